"""One module a subcommand: `run(options, names)` prints and returns the exit status."""
