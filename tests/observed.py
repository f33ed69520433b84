"""Observations for tests of several rooms: the modules that a launcher loads, the metrics, a
launcher that waits.
"""

import subprocess
import sys

import fleet
from conftest import ROOT, is_blocked, until

from solo import __version__
from solo.process.tree import find_children

# unshare of Debian 11 ignores SIGINT and SIGTERM, and so does what it starts
HEARING = ("env", "--default-signal=INT,TERM")
INNER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def list_loaded(lab, *words, before=""):
    """Return the modules loaded when the launcher of a guarded run exits, without those of the bare
    interpreter.
    """
    output = lab.path / "loaded"
    code = f"""
import sys, posix
start = set(sys.modules)
{before}
sys.path.insert(0, {str(ROOT)!r})
sys.argv = ['solo', *{words!r}]
launcher, exit = posix.getpid(), posix._exit

def write_and_exit(status):
    if posix.getpid() == launcher:
        fd = posix.open({str(output)!r}, posix.O_WRONLY | posix.O_CREAT)
        posix.write(fd, '\\n'.join(set(sys.modules) - start).encode())
    exit(status)

posix._exit = write_and_exit
import solo.main
solo.main.main()
"""
    assert subprocess.run([sys.executable, "-IS", "-c", code], env=lab.environment).returncode == 0
    return set(output.read_text().split("\n"))


def parse_metrics(text):
    """Return {(sample, name, via): value}, of a state only if it is true. Each has a HELP and a
    TYPE, and one directory and user; the version has no name.
    """
    from prometheus_client import parser

    families = list(parser.text_string_to_metric_families(text))
    assert all(family.documentation and family.type != "unknown" for family in families)
    [build] = [family.samples for family in families if family.name == "solo_build_info"]
    [common] = {
        (sample.labels["dir"], sample.labels["user"])
        for family in families
        for sample in family.samples
    }
    labels = {"version": __version__, "dir": common[0], "user": common[1]}
    assert [(sample.labels, sample.value) for sample in build] == [(labels, 1)]
    samples = {}
    for family in families:
        for sample in family.samples[: 0 if family.name == "solo_build_info" else None]:
            state = sample.labels.get("state")
            if state is None or sample.value:
                name = sample.name if state is None else f"{sample.name} {state}"
                samples[name, sample.labels["name"], sample.labels["via"]] = sample.value
    return samples


def until_blocked(tracer):
    """Wait until the traced launcher waits in the queue and has prepared its turn."""
    until(lambda: any(is_blocked(child) for child, _ in find_children(tracer.pid)))


def find_chain(process):
    """Return the pids, outside, of process 1, of the launcher, and of the command if it runs."""
    chain = [process.pid]
    while children := fleet.find_children(chain[-1]):
        chain.append(children[0])
    return chain[1:]
