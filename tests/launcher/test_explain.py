"""--explain: says what a run would do, and does nothing."""

import re

import pytest
from conftest import until


def explain(lab, *words, prefix=(), **options):
    """Return (status, {title: text}) of --explain; lines without a title are left out."""
    result = lab.run("--explain", *words, prefix=prefix, **options)
    assert result.stderr == b"", result.stderr
    lines = [re.split(r" {2,}", line, maxsplit=1) for line in result.stdout.decode().splitlines()]
    return result.returncode, {title: text for title, text in lines if title}


def test_free_name_is_explained_and_nothing_is_made(lab):
    status, said = explain(lab, "sleep", "5")

    assert status == 0 and said["now"] == "it runs at once"
    assert re.fullmatch(r"sleep-[0-9a-f]{8}, made from the words of the command", said["name"])
    assert said["directory"] == f"{lab.directory}, by SOLO_DIR; it is missing: the run makes it"
    assert not lab.directory.exists()


def test_held_name_is_explained_as_the_run_would_end(lab):
    holder = lab.hold("job")
    until((lab.directory / ".journals/job/.journal").exists)  # the launcher writes it beside the command
    before = sorted(lab.directory.rglob("*"))
    words = ("-n", "job", "true")

    status, said = explain(lab, *words)
    assert (status, said["now"]) == (lab.run(*words).returncode, "busy without --wait: it is skipped") and status == 75
    assert re.fullmatch(rf"held for \d+s by pid {holder.pid} \(.*\)", said["job"])
    assert explain(lab, "-E", "3", *words)[0] == 3
    assert explain(lab, "-w", "5m", *words)[1]["now"] == "it waits up to 5m: 1st in the queue"
    lab.start_waiter("job", tag="waiter")
    assert explain(lab, "-w", "forever", *words)[1]["now"] == "it waits: 2nd in the queue"
    status, said = explain(lab, "-w", "5m,1", *words)
    assert (status, said["now"]) == (75, "busy as 1 wait (N of --wait): it is skipped")
    assert explain(lab, "--replace", *words)[1]["now"] == "it ends the holder and the waiters in its way, and runs"
    assert explain(lab, "--slots", "3", "--via", "socket", *words)[1]["now"] == "it runs at once"

    assert [file for file in sorted(lab.directory.rglob("*")) if ".seat." not in file.name] == before


@pytest.mark.parametrize("name", ["n" * 9, "n" * 10, "n" * 11, "a/long/name/of/a/job", "日本語の仕事"])
def test_name_of_any_length_is_apart_from_its_holder(lab, name):
    lab.hold(name)

    status, said = explain(lab, "-n", name, "true")

    assert status == 75 and said[name].startswith("held for ")


def test_refusal_is_explained_by_the_error_of_the_run(lab):
    for words in (["-n", "job", "nosuchprogram"], ["-n", "job", "--latest", "true"]):
        explained, run = lab.run("--explain", *words), lab.run(*words)
        assert (explained.returncode, explained.stderr) == (run.returncode, run.stderr) and run.returncode in (125, 127)

    nested = lab.run("-n", "job", "--", lab.script, "--explain", "-n", "job", "true")
    assert nested.returncode == 125 and nested.stderr.endswith(b"ancestor of this process: it would wait for itself\n")


def test_engine_and_files_are_said_not_to_be_asked(lab):
    status, said = explain(lab, "--via", "etcd://127.0.0.1:1", "--flock", lab.path / "file", "-n", "job", "true")

    assert (status, said["backend"]) == (0, "etcd://127.0.0.1:1, which is not asked, by --via")
    assert said["now"] == "it runs at once (not looked at: --flock)" and not (lab.path / "file").exists()
