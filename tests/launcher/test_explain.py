"""--explain: says what a run would do, and does nothing."""

import json
import random
import re
import signal
import sys

import pytest
from conftest import finish, is_blocked, kill, read_line, until, write_program


def explain(lab, *words, prefix=(), **options):
    """Return (status, {title: text}) of --explain; lines without a title are left out."""
    result = lab.run("--explain", *words, prefix=prefix, **options)
    assert result.stderr == b"", result.stderr
    lines = [re.split(r" {2,}", line, maxsplit=1) for line in result.stdout.decode().splitlines()]
    said = {title: text for title, text in lines if title}
    assert said["status"] == str(result.returncode)
    return result.returncode, said["now"], said


def test_free_name_is_explained_and_nothing_is_made(lab):
    status, now, said = explain(lab, "sleep", "5")

    assert status == 0 and now == "it runs at once"
    assert re.fullmatch(r"sleep-[0-9a-f]{8}, made from the words of the command", said["name"])
    assert said["directory"] == f"{lab.directory}, by SOLO_DIR; it is missing: the run makes it"
    assert not lab.directory.exists()


def test_held_name_is_explained_as_the_run_would_end(lab):
    holder = lab.hold("job")
    until(
        (lab.directory / ".journals/job/.journal").exists
    )  # the launcher writes it beside the command
    before = sorted(lab.directory.rglob("*"))
    words = ("-n", "job", "true")
    held = rf"held for \d+s by pid {holder.pid} \(.*\)"

    status, now, _ = explain(lab, *words)
    assert status == lab.run(*words).returncode == 75 and re.fullmatch(
        f"it is skipped: job: busy: {held}", now
    )
    assert [
        explain(lab, "-E", "3", *more, *words)[0]
        for more in ([], ["--loud-after", "1"], ["--loud-after", "2"])
    ] == [3, 75, 3]
    assert re.fullmatch(
        f"it waits up to 5m: 1st in the queue; job: {held}", explain(lab, "-w", "5m", *words)[1]
    )
    lab.start_waiter("job", tag="waiter")
    assert re.fullmatch(
        f"it waits: 2nd in the queue; job: {held}", explain(lab, "-w", "forever", *words)[1]
    )
    status, now, _ = explain(lab, "-w", "5m,1", *words)
    assert status == 75 and now.startswith("it is skipped: job: busy")
    replaces = "it ends the holder and the waiters in its way, and runs; job: "
    assert re.fullmatch(replaces + held, explain(lab, "--replace", *words)[1])
    assert re.fullmatch(replaces + held, explain(lab, "--replace-after", "0s", *words)[1])
    assert explain(lab, "--slots", "3", "--via", "socket", *words)[1] == "it runs at once"

    assert [
        file for file in sorted(lab.directory.rglob("*")) if ".seat." not in file.name
    ] == before


def test_refusal_is_explained_by_the_error_of_the_run(lab):
    (lab.path / "names").mkdir(mode=0o700)
    (lab.path / "names/in-the-way").touch()
    for words in (
        ["-n", "job", "nosuchprogram"],
        ["-n", "job", "--latest", "true"],
        ["-n", "job", "--chdir", "/no/where", "true"],
        ["-n", "job", "--timeout", "0", "true"],
        ["-n", "job", "--flock", "/no/where/file", "true"],
        ["-n", "job", "--dir", "/proc/names", "true"],
        ["-n", "in-the-way", "true"],
        ["-n", "job", "--via", "etcd://127.0.0.1:1", "true"],
    ):
        explained, run = lab.run("--explain", *words), lab.run(*words)
        assert (explained.returncode, explained.stderr) == (run.returncode, run.stderr), words
        assert run.returncode in (69, 125, 127) and explained.stdout == b""


@pytest.mark.root
@pytest.mark.tool("setpriv")
def test_place_of_another_user_is_explained_by_the_error_of_the_run(common):
    place = common.directory.parent / "roots"
    place.mkdir(mode=0o755)
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    for directory in (place, place / "names"):
        words = ["--dir", directory, "-n", "job", "true"]
        explained, run = (common.run(*more, *words, prefix=user) for more in (["--explain"], []))
        assert (explained.returncode, explained.stderr) == (
            run.returncode,
            run.stderr,
        ) and run.returncode == 125
        assert re.search(rb"cannot create .*roots/\w+: Permission denied", run.stderr)


def test_script_without_its_interpreter_is_explained(lab):
    """As of a carriage return after it. The kernel tells the run so late that the name is taken."""
    script = write_program(lab.path / "job", "#!/bin/sh\r\ntrue\n")
    words = ("-n", "job", script)

    explained, run = lab.run("--explain", *words), lab.run(*words)

    assert (explained.returncode, explained.stderr) == (run.returncode, run.stderr)
    assert run.returncode == 127 and b"its interpreter /bin/sh" in run.stderr


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
def test_full_disk_is_explained_by_the_error_of_the_run(lab):
    lab.directory.mkdir()
    script = (
        "mount -t tmpfs -o size=64k,mode=700 tmpfs $SOLO_DIR; $SOLO -n job true\n"
        "head -c 1M /dev/zero >$SOLO_DIR/full 2>/dev/null\n"
        "$SOLO --explain -n job true; echo $?; $SOLO -n job true; echo $?"
    )

    _, out, stderr = finish(lab.start_words("unshare", "-m", "sh", "-c", script))

    first, second = stderr.splitlines()
    assert out == "125\n125\n" and first == second and "free some space" in first


def test_run_inside_a_run_is_explained(lab):
    """Below the holder of the name; beside a holder that waits for what the run around it holds."""
    both = 'for more in --explain ""; do $SOLO $more "$@"; echo $? >&2; done'
    nested = lab.run("-n", "job", "--", "sh", "-c", both, "-", "-n", "job", "true").stderr.decode()
    assert re.fullmatch(
        r"(solo: job: held by pid \d+, an ancestor of this process: it would wait for itself\n125\n)\1",
        nested,
    )

    outer = lab.start(
        "-n",
        "y",
        "--",
        "sh",
        "-c",
        f"echo; read line; {both}",
        "-",
        "-w",
        "forever",
        "-n",
        "x",
        "true",
    )
    read_line(outer)
    lab.start("-n", "x", "--", lab.script, "-w", "forever", "-n", "y", "true")
    until(lambda: lab.count_waiting("y"))
    text = re.sub(r"\d+", "N", finish(outer, b"\n")[2])
    assert re.fullmatch(
        r"(solo: x: a deadlock: held by pid N .*, in which pid N waits for y, held by us \(pid N\)\nN\n)\1",
        text,
    )


def test_program_that_may_release_the_name_is_waited_for(lab):
    code = f"""
import subprocess
threading.Thread(target=threading.Event().wait, daemon=True).start()
with solo.Lock('job', directory={str(lab.directory)!r}):
    print(subprocess.run([{lab.script!r}, '--explain', '-w', '5', '-n', 'job', 'true']).returncode)
"""
    _, out, err = lab.run_code(code)
    assert "it waits up to 5s: 1st in the queue" in out and out.endswith("0\n") and err == ""


def test_period_is_explained(lab):
    words = ("-n", "job", "--once-per", "1d", "true")
    status, now, said = explain(lab, *words)
    assert (status, now) == (0, "it runs at once") and said["period"].startswith("lasts until 2")
    assert not lab.directory.exists()
    lab.run(*words)

    status, now, said = explain(lab, *words)
    assert (
        status == 0
        and "period" not in said
        and lab.run("-v", *words).stderr.decode() == f"solo: {now[15:]}\n"
    )
    assert explain(lab, "-E", "9", *words)[0] == lab.run("-E", "9", *words).returncode == 9


LOCKER = """
import fcntl, sys
call, file, lock = sys.argv[1:]
file = open(file, "w+")
{"flock": fcntl.flock, "fcntl": fcntl.lockf}[call](file, getattr(fcntl, lock))
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.tool("strace")
@pytest.mark.parametrize("kind", ["flock", "fcntl"])
def test_file_is_looked_at_and_not_locked(lab, kind):
    file, words = lab.path / "file", (f"--{kind}", lab.path / "file", "-n", "job", "true")
    assert explain(lab, *words)[:2] == (0, "it runs at once") and not file.exists()
    for lock, shared in (("LOCK_SH", 0), ("LOCK_EX", 75)):
        locker = lab.start_words(sys.executable, "-c", LOCKER, kind, file, lock)
        read_line(locker)
        assert explain(lab, "-s", *words)[0] == lab.run("-s", *words).returncode == shared
        status, now, _ = explain(lab, *words)
        assert status == 75 and lab.run(*words).stderr.decode() == f"solo: {now[15:]}\n"
        assert explain(lab, "-w", "5", *words)[1].startswith("it waits up to 5s; ")
        finish(locker)
    trace = lab.path / "trace"
    explain(lab, *words, prefix=("strace", "-f", "-o", trace, "-e", "trace=flock,fcntl"))
    assert not re.search(r"LOCK_EX|LOCK_SH|SETLK", trace.read_text())


def test_json_has_the_facts_for_wrappers(lab):
    lab.hold("job")
    words = ("--explain", "--json", "-n", "job", "--slots", "3,2", "true", "x")
    busy, free = lab.run(*words), lab.run(*words[:2], "true")
    facts = json.loads(busy.stdout)

    assert busy.returncode == facts.pop("status") == 75 and re.match(
        "job: busy: held for ", facts.pop("reason")
    )
    command = facts.pop("command")
    assert command[0].endswith("/true") and command[1:] == ["x"]
    assert facts == {
        "names": ["job"], "mode": "slots", "slots": 3, "take": 2, "directory": str(lab.directory), "via": "file",
        "outcome": "busy", "name": "job", "place": None,
    }  # fmt: skip
    assert json.loads(free.stdout)["outcome"] == "runs"
    assert lab.run("--json", "true").stderr == b"solo: --json needs --explain\n"


# --- fifty situations drawn at random

HOLDERS = [  # the name below that of the situation, and the options of each
    [],
    [("",)],
    [("", "-s")] * 2,
    [("", "--slots", "2")],
    [("", "--slots", "2")] * 2,
    [("/a",)],
    [("/a", "-s")],
]
MODES = [[], ["-s"], ["--slots", "2"], ["--slots", "2,2"]]
FOREVER = ["-w", "forever"]
POLICIES = [
    [], [], ["-E", "3"], FOREVER, FOREVER, ["-w", "forever,1"], ["-w", "0"], [*FOREVER, "--latest"], ["--replace"],
    [*FOREVER, "--replace"], ["--replace-after", "0s"], ["--replace-after", "1h"], [*FOREVER, "--replace-after", "1"],
]  # fmt: skip


@pytest.mark.parametrize(
    "words, status, reason",
    [
        ("missing-command x", 127, "missing-command: command not found"),
        ("-n job missing-command x", 127, "missing-command: command not found"),
        ("/ x", 126, "/: Is a directory"),
        ("-n job --chdir /missing true x", 125, "cannot change to directory /missing"),
    ],
)
def test_json_has_the_reason_of_a_refusal(lab, words, status, reason):
    result = lab.run("--explain", "--json", *words.split())

    facts = json.loads(result.stdout)
    assert (result.returncode, facts["status"], facts["outcome"]) == (status, status, "refused")
    assert facts["reason"].startswith(reason) and result.stderr == b""
    assert facts["command"][-1] == "x" and facts["names"] in ([], ["job"])


def without_times(text):
    return re.sub(r"for \d+s", "for", text)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 5))]
)
def test_run_does_what_explain_says(lab, seed):
    """In ten situations: one in five is of sockets."""
    if seed == 4:
        lab.use_sockets()
    chance, outcomes = random.Random(seed), set()
    for number in range(10):
        name = f"job{seed}-{number}"
        holders = [lab.hold(name + below, *mode) for below, *mode in chance.choice(HOLDERS)]
        for _ in range(chance.choice((0, 0, 1, 2)) if holders else 0):
            lab.start_waiter(name, tag="waiter")
        orphan = chance.random() < 0.2 and seed < 4
        if orphan and holders:
            kill(holders[0])
        words = [
            *chance.choice(POLICIES),
            *chance.choice(MODES),
            "-n",
            name + chance.choice(("", "", "/a", "/b")),
        ]

        explained = lab.run("--explain", "--json", *words, "echo", "ran")
        run = lab.start(*words, "echo", "ran")
        facts = json.loads(explained.stdout or b"{}")
        if explained.returncode == 125:  # of a usage error there is no object
            error = explained.stderr.decode() or f"solo: {facts['reason']}\n"
            assert finish(run) == (125, "", error), words
            continue
        outcomes.add(facts["outcome"])
        if facts["outcome"] == "waits":
            until(lambda: run.poll() is not None or is_blocked(run.pid))
            run.send_signal(signal.SIGTERM)
            assert finish(run)[1] == "" and run.returncode == -signal.SIGTERM, (words, facts)
        else:
            status, out, err = finish(run)
            assert (status, facts["status"]) == (explained.returncode, explained.returncode), (
                words,
                facts,
                err,
            )
            assert out == ("" if facts["outcome"] == "busy" else "ran\n"), (words, facts, err)
            if facts["outcome"] == "busy":
                assert without_times(err) == without_times(f"solo: {facts['reason']}\n")
    assert len(outcomes) > 2
