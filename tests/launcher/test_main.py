"""The command line decides: a guarded run, or a subcommand. What is wrong with solo itself is one
line.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, write_program

from solo import __version__, argv


def test_solo_alone_prints_six_lines_and_an_example_that_works(lab):
    result = lab.run()
    closed = lab.run(prefix=("sh", "-c", 'exec "$@" 2>&-', "sh"))

    lines = result.stderr.decode().splitlines()
    assert (result.returncode, result.stdout, len(lines), max(map(len, lines)) < 80) == (
        125,
        b"",
        6,
        True,
    )
    assert lines[0] == "solo: no command given"
    [example] = [text.split() for text in lines if " -- " in text]
    assert argv.parse(example[example.index("solo") + 1 :]) == (
        {"name": ["backup"]},
        None,
        ["backup.sh", "--full"],
    )
    assert (closed.returncode, closed.stdout) == (125, b"")


def test_unwritable_stdout_is_one_line_and_125(lab):
    with open("/dev/full", "w") as full:
        result = lab.run("--version", capture_output=False, stdout=full, stderr=subprocess.PIPE)

    assert (result.returncode, result.stderr) == (
        125,
        b"solo: cannot write to stdout: No space left on device\n",
    )


def test_incomplete_installation_is_one_line_and_125(lab):
    shutil.copytree(
        ROOT / "solo",
        lab.path / "lib/solo",
        ignore=shutil.ignore_patterns("__pycache__", "launcher.py"),
    )
    head = f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(lab.path / 'lib')!r})\n"
    lab.script = write_program(
        lab.path / "incomplete", head + (ROOT / "solo/__main__.py").read_text()
    )

    result = lab.run("-n", "job", "true")

    refusal = b"solo: cannot continue: cannot import name 'launcher' from 'solo' (%s/lib/solo/__init__.py)\n"
    assert (result.returncode, result.stderr) == (125, refusal % os.fsencode(lab.path))


def test_module_that_a_small_python_lacks_is_named(lab):
    code = "import runpy, sys; sys.modules.update(shlex=None, subprocess=None); sys.argv = ['solo', 'doctor']; runpy.run_module('solo')"
    result = subprocess.run(
        [sys.executable, "-c", code], env=lab.environment, capture_output=True, text=True
    )

    assert result.returncode == 125 and result.stderr.count("\n") == 1
    assert result.stderr.startswith(
        "solo: module subprocess is missing: Python, or solo, is not wholly installed"
    )


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
def test_bug_in_solo_is_one_line_and_125(lab):
    """/proc/PID/stat of solo is empty, but its start time is needed."""
    hide = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount --bind /dev/null /proc/$$/stat && exec "$@"',
        "sh",
    )

    result = lab.run("-n", "job", "--", "echo", "ran", prefix=hide)

    assert (result.returncode, result.stdout) == (125, b"")
    assert result.stderr == b"solo: this is a bug in solo: ValueError: subsection not found\n"


def test_options_before_a_subcommand_apply(lab):
    lab.hold("job", "--dir", lab.path / "new")

    listing = lab.run("--via", "file", "--dir", lab.path / "new", "list", "--json").stdout

    assert [ticket["name"] for ticket in json.loads(listing)] == ["job"]
    assert lab.list() == []


def test_version(lab):
    assert lab.run("--version").stdout.decode() == f"solo {__version__}\n"


def test_command_like_a_subcommand_runs_with_a_hint(lab, terminal):
    """ls only on a terminal; kill, ps and rm with a known name."""
    lab.run("-n", "job", "true")

    typed = terminal("sh", "-c", "exec $SOLO ls >/dev/null").read_to_end()
    hints = [
        lab.run(*words.split()).stderr
        for words in ("kill job", "ps job", "rm job", "ls", "kill -l 9", "ps -p 1")
    ]

    assert typed == b"solo: ls is run as COMMAND (did you mean solo list?)\r\n"
    assert [b"is run as COMMAND (did you mean solo" in hint for hint in hints] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
