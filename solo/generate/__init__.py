"""Generated files: the bundle of `make install`, completions, tables of the manual."""
