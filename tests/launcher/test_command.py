"""A run without -n guards two names: that of its words as typed, and that of its program's real
path.
"""

import os
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest
from conftest import finish, read_line, write_program

SHELL = os.path.realpath("/bin/sh")
# of a holder: says its name, and lives until its stdin is closed
HELD = "echo $SOLO_NAME; read line; exit 0"


@pytest.fixture
def places(lab):
    """Make two folders with a copy of a shell each, `job`, and a link `current` to the first
    one.
    """
    for folder in ("one", "two"):
        (lab.path / folder).mkdir()
        shutil.copy(SHELL, lab.path / folder / "job")
    (lab.path / "current").symlink_to("one")
    return lab.path


def name_of(program, *arguments):
    """Return the name that solo 0.2.0 makes of a real path, and this solo of a word as typed."""
    return (
        f"{Path(program).name}-{zlib.crc32(chr(0).join([str(program), *arguments]).encode()):08x}"
    )


def start(lab, *words, **options):
    """Start a holder; return it, and its SOLO_NAME."""
    holder = lab.start(*words, "-c", HELD, **options)
    return holder, read_line(holder)


def test_same_line_has_one_name_wherever_path_leads(lab, places):
    start(lab, "--", "job", env={**lab.environment, "PATH": f"{places}/one:{os.environ['PATH']}"})

    second = lab.run(
        "--",
        "job",
        "-c",
        HELD,
        env={**lab.environment, "PATH": f"{places}/two:{os.environ['PATH']}"},
    )

    assert (second.returncode, second.stdout) == (75, b"")
    assert second.stderr.decode().startswith(f"solo: {name_of('job', '-c', HELD)}: busy: held for ")


@pytest.mark.parametrize("word", ["current/job", "./current//./job"])
def test_same_line_has_one_name_while_its_link_is_switched(lab, places, word):
    start(lab, "--", "current/job", cwd=places)
    (places / "new").symlink_to("two")
    (places / "new").rename(places / "current")

    assert lab.run("--", word, "-c", HELD, cwd=places).returncode == 75
    assert lab.run("--", f"{places}/current/job", "-c", HELD).returncode == 75


def test_program_has_one_name_by_every_link(lab, places):
    _, held = start(lab, "--", places / "current/job")

    other = lab.run("--", "one/job", "-c", HELD, cwd=places)

    real = name_of(places / "one/job", "-c", HELD)
    assert (other.returncode, held) == (75, name_of(places / "current/job", "-c", HELD))
    assert other.stderr.decode().startswith(f"solo: {real}: busy: held for ")


def test_run_excludes_one_of_an_earlier_version(lab, places):
    """Version 0.2.0 holds only the name of the real path."""
    real = name_of(places / "one/job", "-c", HELD)
    old = lab.hold(real)
    words = ("--", places / "current/job")
    assert lab.run(*words, "-c", HELD).returncode == 75
    finish(old)
    start(lab, *words)

    assert lab.run("-n", real, "true").returncode == 75


def test_real_path_has_one_name(lab, places):
    start(lab, "--", places / "one/job")

    assert [name for name in os.listdir(lab.directory) if name[0] != "."] == [
        name_of(places / "one/job", "-c", HELD)
    ]


def test_arguments_and_their_boundaries_change_the_name(lab, places):
    words = ["one/job", "-c", "echo $SOLO_NAME"]

    endings = (["a b", "c"], ["a", "b c"], ["a", "b"], ["a", "b"])
    names = [lab.run("--", *words, *more, cwd=places).stdout for more in endings]

    assert (
        len(set(names)) == 3
        and names[2] == names[3]
        and all(len(name) == len("job-1f0c2a9e\n") for name in names)
    )


def test_long_name_is_cut_to_file_name_limit(lab):
    tool = write_program(lab.path / ("漢" * 84), "#!/bin/sh\n")
    (lab.path / "link").symlink_to(tool)

    assert lab.run(tool).returncode == lab.run(lab.path / "link").returncode == 0


def test_one_relative_line_in_two_projects_says_where_it_runs(lab, places):
    """It is one job: the busy line and the views name the directory of the holder unless they run
    there.
    """
    words = ("--", SHELL, "-c", HELD)
    holder = lab.start(*words, cwd=places / "one")
    name = read_line(holder)

    here, elsewhere = (
        lab.run(*words, cwd=places / folder).stderr.decode() for folder in ("one", "two")
    )

    assert " in /" not in here and f") in {places}/one, 1 skip since\n" in elsewhere
    assert lab.list(name)[0]["directory"] == f"{places}/one"
    assert b"DIRECTORY" in lab.run("list", cwd=places / "two").stdout
    assert b"DIRECTORY" not in lab.run("list", cwd=places / "one").stdout
    assert f"\nin:      {places}/one\n" in lab.run("show", name).stdout.decode()


def test_launcher_without_a_command_is_not_said_to_be_in_the_root(lab, places):
    """Its command may have begun since its record was read; then the launcher has left its
    directory.
    """
    start(lab, "--", places / "current/job")
    words = ("--", places / "current/../one/job", "-c", HELD)
    waiter = lab.start("-w", "forever", "-v", *words, cwd="/")
    waiter.stderr.readline()  # it waits for the second name

    busy = lab.run(*words).stderr.decode()

    assert f"by pid {waiter.pid} (" in busy and " in /" not in busy


def test_views_show_one_row_by_the_words_as_typed(lab, places):
    holder, held = start(lab, "--", places / "current/job")
    link = name_of(places / "current/../one/job", "-c", HELD)
    waiter = lab.start("-w", "forever", "-v", "--", places / "current/../one/job", "-c", HELD)
    line = waiter.stderr.readline().decode()  # it waits for the second name
    lab.run("--", places / "current/job", "-c", HELD)

    assert line.startswith(f"solo: {link}: waiting: held for ")
    assert {row["name"]: row["state"] for row in lab.list()} == {
        link: "waiting",
        held: "held",
    } and len(lab.list()) == 2
    real = name_of(places / "one/job", "-c", HELD)
    assert [row["name"] for row in lab.list(real)] == [real] * 2
    assert [(row["name"], row["outcome"]) for row in lab.history()] == [
        (held, "running"),
        (held, "skipped"),
    ]
    metrics = lab.run("metrics").stdout.decode()
    assert set(re.findall(r'(?m)^solo_(\w+){name="([^"]*)', metrics)) >= {
        *((kind, name) for kind in ("held", "waiting") for name in (held, link)),
        *((f"wait_seconds_{part}", held) for part in ("sum", "count")),
    }
    assert real not in metrics


@pytest.mark.parametrize("which", ["first", "second"])
def test_show_stop_and_wait_accept_both_names(lab, places, which):
    holder, held = start(lab, "--", places / "current/job")
    name = {"first": held, "second": name_of(places / "one/job", "-c", HELD)}[which]

    shown = lab.run("show", name)
    stopped = lab.run("stop", name)

    assert f"{name}: 1 held, 0 waiting".encode() in shown.stdout
    assert b": ended pid " in stopped.stdout and lab.run("wait", name).returncode == 0
    assert finish(holder)[0] == -15


def test_pair_by_sockets_is_one_row(lab, places):
    lab.use_sockets()
    holder, held = start(lab, "--", places / "current/job")
    busy = lab.run("--", places / "one/job", "-c", HELD)

    assert [(row["name"], row["state"]) for row in lab.list()] == [(held, "held")]
    name = name_of(places / "one/job", "-c", HELD)
    assert busy.returncode == 75 and busy.stderr.decode().startswith(f"solo: {name}: ")


@pytest.mark.parametrize("kind", ["file", "socket"])
def test_slots_are_those_of_all_spellings(lab, places, kind):
    if kind == "socket":
        lab.use_sockets()
    script = "echo $SOLO_NAME $SOLO_SLOT; read line; exit 0"
    held = {}
    for word in ("current/job", "one/job", "current/../one/job"):
        holder = lab.start("--slots", "3", "--", places / word, "-c", script)
        name, slot = read_line(holder).split()
        held[name] = int(slot)

    assert sorted(held.values()) == [0, 1, 2]
    assert {row["name"]: row["slot"] for row in lab.list()} == held
    for name, slot in held.items():
        shown = lab.run("show", "--via", kind, name).stdout.decode()
        assert f"), slot {slot} of 3, " in shown
    fourth = places / "one/../current/job"
    assert lab.run("--slots", "3", "--", fourth, "-c", script).returncode == 75


def read_token(lab, *words):
    return int(lab.run(*words, "-c", "echo $SOLO_TOKEN").stdout)


@pytest.mark.parametrize("kind", ["file", "socket"])
def test_token_grows_over_all_spellings(lab, places, kind):
    if kind == "socket":
        lab.use_sockets()
    words = ("one/job", "current/job", "one/job", "current/../one/job", "current/job", "one/job")

    tokens = [read_token(lab, "--", places / word) for word in words]

    assert tokens == sorted(set(tokens))
    if kind == "file":
        assert [row["token"] for row in lab.history()] == tokens


def test_token_grows_beyond_those_of_an_earlier_version(lab, places):
    """Version 0.3.0 gave the number of the first name, here one whose counter is ahead."""
    script = ("-c", "echo $SOLO_TOKEN")
    link, real = (name_of(places / word, *script) for word in ("current/job", "one/job"))
    tokens = [read_token(lab, "-n", name, "--", places / "one/job") for name in (real, link)]

    tokens += [read_token(lab, "--", places / word) for word in ("current/job", "one/job")]

    assert tokens == sorted(set(tokens))


def test_token_grows_if_an_earlier_version_comes_back(lab, places):
    """Version 0.3.0 counts on from the gate of the first name."""
    for word in ("current/job", "current/job", "one/job", "current/job"):
        token = read_token(lab, "--", places / word)
        first = name_of(places / word, "-c", "echo $SOLO_TOKEN")
        number = 1 + int((lab.directory / first / ".gate").read_text().split()[0])
        assert number > token
        assert read_token(lab, "-n", first, "--", places / "one/job") == number
        assert read_token(lab, "--", places / word) > number


def test_second_names_are_pruned(lab, places):
    """They have no journal that says that solo made them."""
    lab.run("--", places / "current/job", "-c", "")

    cleaned = subprocess.run(
        [lab.script, "clean", "--generated"], env=lab.environment, capture_output=True, check=True
    )

    assert cleaned.stdout.count(b": removed\n") == 2 and os.listdir(lab.directory) == [".journals"]


@pytest.mark.parametrize(
    "status, command",
    [
        (126, "plain"),
        (126, "."),
        (126, "/etc/passwd"),
        (127, "absent"),
        (127, "./absent"),
        (127, "/etc/passwd/x"),
    ],
)
def test_unusable_command_is_one_line_and_126_or_127(lab, status, command):
    (lab.path / "plain").write_text("true\n")

    result = lab.run(
        "-n",
        "job",
        "--",
        lab.path / command if command in ("plain", ".") else command,
        cwd=lab.path,
    )

    assert (result.returncode, result.stderr.count(b"\n")) == (status, 1)
