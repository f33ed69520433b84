"""Overlapping runs, found by doctor in the log that the real cron and PAM write."""

import re
from pathlib import Path

import pytest
from conftest import PATIENCE, until
from guest import Layer, start_layer

pytestmark = [pytest.mark.root, pytest.mark.tool("cron", "busybox", "unshare", "nsenter", "mount")]

TABLE = """
* * * * * root sleep 300 # \\% \xe9%input
* * * * * root sleep 3
* * * * * alice exec sleep 300
* * * * * alice solo -- sleep 300
* * * * * bob sleep 250
"""
START = re.compile(r"CMD \((?:\[\d+\] )?(?:exec )?sleep (?:300|250)")  # three each minute
FINDING = "/etc/cron.d/tab:{}: the runs of "


class Machine(Layer):
    def read_log(self):
        log = Path(f"/proc/{self.leader}/root/var/log/syslog")
        return log.read_text() if log.exists() else ""

    def find_overlaps(self):
        """Return the numbers of the lines that overlapped, says doctor."""
        text = self.run("solo", "doctor", "--crontab").stdout
        return [number for number in range(1, 8) if FINDING.format(number) in text]


@pytest.fixture
def machine(tmp_path, request):
    with start_layer(tmp_path) as leader:
        machine = Machine(leader, tmp_path)
        for user in ("alice", "bob"):
            machine.do("useradd", "--create-home", "--shell=/bin/sh", "--password=*", user)
        machine.clear_tables()
        machine.write("etc/cron.d/tab", TABLE, 0o644)
        log = machine.start("busybox", "syslogd", "-n", "-O", "/var/log/syslog")
        cron = None
        try:
            until(lambda: "syslogd started" in machine.read_log())
            cron = machine.start("cron", "-f", *getattr(request, "param", ()))
            until(lambda: len(START.findall(machine.read_log())) >= 6, patience=3 * PATIENCE)
            cron.terminate()
            yield machine
        finally:
            for process in filter(None, (log, cron)):
                process.terminate()
                process.wait()


@pytest.mark.parametrize(
    "machine, proved", [((), [6]), (("-L", "15"), [2, 4, 6])], ids=["default", "all-levels"], indirect=["machine"]
)
def test_doctor_finds_lines_whose_runs_overlap_now_or_did(machine, proved):
    """By default cron logs no ends; PAM logs those of sessions, and only bob has a single one at a time."""
    until(lambda: machine.find_overlaps())
    assert machine.find_overlaps() == [2, 4, 6], machine.read_log()

    machine.do("sh", "-c", "kill $(pidof sleep | sed 's/ 1$//')")
    until(lambda: machine.read_log().count("opened") == machine.read_log().count("closed"))

    assert machine.find_overlaps() == proved
