"""--chdir: the working directory of the command only."""

import os
from pathlib import Path

import pytest
from conftest import finish, until, write_program

SHOW = ("--", "sh", "-c", "pwd -P")


@pytest.fixture
def elsewhere(lab):
    (lab.path / "elsewhere").mkdir()
    return lab.path / "elsewhere"


def test_command_runs_in_the_directory(lab, elsewhere):
    for words in (
        ("--chdir", elsewhere),
        ("--chdir", "elsewhere"),
        ("--chdir", "elsewhere", "-n", "job", "--tree"),
    ):
        assert lab.run(*words, *SHOW, cwd=lab.path).stdout.decode() == f"{elsewhere}\n"


@pytest.mark.parametrize(
    "kind, reason", [("missing", "No such file or directory"), ("log", "Not a directory")]
)
def test_wrong_directory_is_refused_and_nothing_runs(lab, kind, reason):
    result = lab.run(
        "-n", "job", "--chdir", kind, "--", "sh", "-c", "echo ran >>$LAB/log", cwd=lab.path
    )

    assert (result.returncode, lab.read_log()) == (125, [])
    assert result.stderr.decode() == f"solo: cannot change to directory {kind}: {reason}\n"


@pytest.mark.root
def test_forbidden_directory_is_refused(common):
    closed = Path(common.script).parent / "closed"
    closed.mkdir(mode=0)

    result = common.run("--chdir", closed, "--", "true", user=65534, group=65534, extra_groups=[])

    assert (
        result.stderr.decode() == f"solo: cannot change to directory {closed}: Permission denied\n"
    )
    assert result.returncode == 125


def test_relative_paths_start_at_the_launchers_directory(lab, elsewhere):
    script = lab.path / "job.sh"
    for text in ("#!/bin/sh\npwd -P\n", "pwd -P\n"):
        write_program(script, text)

        result = lab.run("--dir", "here", "--chdir", elsewhere, "./job.sh", cwd=lab.path)
        assert result.stdout.decode() == f"{elsewhere}\n"

    assert (lab.path / "here").is_dir() and os.listdir(elsewhere) == []
    assert lab.run("--chdir", lab.path, "./job.sh", cwd=elsewhere).returncode == 127


def test_waiter_runs_in_a_directory_moved_during_the_wait(lab, elsewhere):
    holder = lab.hold("job")
    waiter = lab.start("-n", "job", "-w", "1h", "--chdir", elsewhere, *SHOW)
    until(lambda: lab.count_waiting("job") == 1)
    elsewhere.rename(lab.path / "moved")

    finish(holder)

    assert finish(waiter)[:2] == (0, f"{lab.path}/moved\n")
