"""What doctor reads in the log that the real cron and PAM write: runs of a line that overlapped."""

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
"""
START, END = "CMD (sleep 300", "session closed for user root"
FINDING = "/etc/cron.d/tab:{}: the runs of "


class Machine(Layer):
    def read_log(self):
        log = Path(f"/proc/{self.leader}/root/var/log/syslog")
        return log.read_text() if log.exists() else ""

    def find_overlaps(self):
        """Return the numbers of the lines that overlapped, says doctor."""
        lines = self.run("solo", "doctor", "--crontab").stdout.split("\n")
        return [number for number in range(1, 6) if any(FINDING.format(number) in line for line in lines)]


@pytest.fixture
def machine(tmp_path, request):
    with start_layer(tmp_path) as leader:
        machine = Machine(leader, tmp_path)
        machine.do("useradd", "--create-home", "--shell=/bin/sh", "--password=*", "alice")
        machine.clear_tables()
        machine.write("etc/cron.d/tab", TABLE, 0o644)
        log = machine.start("busybox", "syslogd", "-n", "-O", "/var/log/syslog")
        cron = None
        try:
            until(lambda: "syslogd started" in machine.read_log())
            cron = machine.start("cron", "-f", *getattr(request, "param", ()))
            until(lambda: machine.read_log().count(START) >= 4, patience=3 * PATIENCE)
            cron.terminate()
            yield machine
        finally:
            for process in filter(None, (log, cron)):
                process.terminate()
                process.wait()


@pytest.mark.parametrize("machine", [(), ("-L", "15")], ids=["default", "all-levels"], indirect=True)
def test_doctor_finds_lines_whose_runs_overlap_now_or_did(machine):
    until(lambda: machine.find_overlaps() == [2, 4])

    machine.do("sh", "-c", "kill $(pidof sleep | sed 's/ 1$//')")
    until(lambda: machine.read_log().count("opened") == machine.read_log().count("closed"))

    assert machine.find_overlaps() == [2, 4]
