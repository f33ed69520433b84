"""The tests that `make coverage` runs, the tests that it leaves out, and the lines that no test runs, with reasons.

It runs only tests that do the same every time: the torture takes a sample and would cover lines by chance.
"""

TESTS = [
    "tests/test_cli.py",
    "tests/test_child.py",
    "tests/test_handoff.py",
    "tests/test_queue.py",
    "tests/test_gate.py",
    "tests/test_modes.py",
    "tests/test_limits.py",
    "tests/test_directories.py",
    "tests/test_damage.py",
    "tests/test_flock.py",
    "tests/test_policies.py",
    "tests/test_commands.py",
    "tests/test_journal.py",
    "tests/test_terminal.py",
    "tests/test_sockets.py",
    "tests/test_once.py",
    "tests/test_syslog.py",
    "tests/test_notify.py",
    "tests/test_api_async.py",
    "tests/test_api_deadlock.py",
    "tests/test_api_descriptors.py",
    "tests/test_api_exit.py",
    "tests/test_api_fork.py",
    "tests/test_api_lock.py",
    "tests/test_api_module.py",
    "tests/test_api_run.py",
    "tests/test_api_threads.py",
    "tests/test_argv.py",
    "tests/test_compatibility.py",
    "tests/test_fcntl.py",
    "tests/test_hold.py",
    "tests/test_messages.py",
    "tests/test_note.py",
    "tests/test_old_kernel.py",
    "tests/test_options.py",
    "tests/test_owners.py",
    "tests/test_record.py",
    "tests/test_trust.py",
    "tests/test_etcd.py",
    "tests/test_redis.py",
    "tests/test_pairs.py",
    "tests/test_umask.py",
    "tests/test_chdir.py",
    "tests/test_prune.py",
    "tests/test_process_1.py",
    "tests/test_pid_namespaces.py",
    "tests/test_views.py::test_a_waiter_on_a_terminal_shows_the_holder_and_its_place",
    "tests/test_views.py::test_without_a_terminal_progress_goes_only_to_a_ci_log",
    "tests/test_views.py::test_progress_names_the_holder_of_slots_and_of_a_file",
]

# {test: why it cannot pass in a traced process}
LEFT_OUT = {
    "test_api_module.py::test_import_solo_loads_nothing": "the tracer loads mmap and opcode",
    "test_limits.py::test_out_of_memory_is_one_line_and_125": "the tracer needs memory too",
    "test_trust.py::test_lack_of_descriptors_is_reported_with_verb_and_without_remedy": "the tracer needs a descriptor",
    "test_sockets.py::test_no_file_is_created_or_opened_for_writing": "the file of the arcs is opened for writing",
}

# {(module.function, line or branch `line  ->  line` that no test runs): reason}
EXPLAINED = {
    (
        "main.main",
        "refusal = SoloError(f\"cannot continue: {str(error) or 'Cannot allocate memory'}\")",
    ): "memory ran out: the tracer needs memory too",
    ("start.fork", "raise"): "memory ran out: the tracer needs memory too",
    ("start.fork", "except MemoryError:"): "memory ran out: the tracer needs memory too",
    (
        "start.fork",
        "posix.write(2, NO_MEMORY)  # as it is: there may be no room for another line",
    ): "memory ran out: the tracer needs memory too",
    ("__main__", "if str(error):  ->  try:"): "memory ran out: no other error is without a text",
}
