"""The three loops: `make quick` while typing, `make test` before a commit, `make test-full` in CI.

A file belongs to one loop; the marker `full` moves a single test to `make test-full`. A file named on pytest's command line runs
completely in every loop.
"""

from collections import Counter

# At most 15 seconds on two cores: pure functions, imports, the bundle, some real launches.
QUICK = {
    "test_argv",
    "test_compatibility",
    "test_engine_parts",
    "test_layers",
    "test_lease",
    "test_once",
    "test_options",
    "test_record",
}

# These need servers, packages, another root directory, a booted systemd, or minutes.
FULL = {
    "test_ansible",
    "test_bench",
    "test_containers",
    "test_coverage",
    "test_cron",
    "test_cron_log",
    "test_dashboard",
    "test_docs",
    "test_engines",
    "test_etcd",
    "test_faults",
    "test_hostile_etcd",
    "test_install",
    "test_lab",
    "test_lost_messages",
    "test_packages",
    "test_postgresql",
    "test_prometheus",
    "test_redis",
    "test_s3",
    "test_systemd",
    "test_torture",
    "test_upgrade",
    "test_zookeeper",
}

FIRST = "test_cron_log"  # waits for minutes of cron: at the end, the other worker would wait for it

LOOPS = {  # which files and tests run: is it in QUICK, is it in FULL
    "quick": lambda quick, full: quick and not full,
    "test": lambda quick, full: not full,
    "rest": lambda quick, full: full,
    "full": lambda quick, full: True,
}


def pytest_addoption(parser):
    parser.addoption("--loop", choices=LOOPS, default="full", help="the tests to run; rest is full without test")
    parser.addoption("--bundle", action="store_true", help="run the bundle that `make install` makes")


def is_in_loop(config, path, full=False):
    return LOOPS[config.getoption("loop")](path.stem in QUICK, full or path.stem in FULL)


def pytest_ignore_collect(collection_path, config):
    """Ignore files of other loops. pytest does not ask about named files; "rest" looks for single tests in every file."""
    if collection_path.name.startswith("test_") and config.getoption("loop") != "rest":
        return None if is_in_loop(config, collection_path) else True


def pytest_collection_modifyitems(config, items):
    def is_chosen(item):
        full = item.get_closest_marker("full") is not None
        return item.session.isinitpath(item.path) or is_in_loop(config, item.path, full)

    left_out = [item for item in items if not is_chosen(item)]
    items[:] = filter(is_chosen, items)
    if config.getoption("loop") in ("rest", "full"):  # as pytest-xdist would: the largest file first, but for FIRST
        sizes = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path.stem != FIRST, -sizes[item.path], item.path))
    config.hook.pytest_deselected(items=left_out)
