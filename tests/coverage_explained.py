"""The tests that `make coverage` runs, the tests that it leaves out, and the lines that no test runs, with reasons.

It runs only tests that do the same every time: the torture takes a sample and would cover lines by chance.
"""

FILES = """
    cli child handoff queue gate modes limits directories damage flock policies commands journal terminal sockets
    once syslog notify api_async api_deadlock api_descriptors api_exit api_fork api_lock api_module api_run
    api_threads argv compatibility fcntl hold messages note old_kernel options owners record trust etcd redis pairs
    umask chdir prune process_1 pid_namespaces
"""
TESTS = [
    *(f"tests/test_{file}.py" for file in FILES.split()),
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
