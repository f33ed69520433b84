"""A machine for the recipes: its PATH has `solo` and the programs that they name, which log their
runs.
"""

import fcntl
import re
import subprocess

from conftest import PATIENCE, ROOT, Lab, until, write_program
from servers import Etcd

PROGRAMS = (
    "backup.sh build.sh deploy.sh dump.sh job.sh load.sh migrate.sh reboot report.sh run.sh sync.sh test.sh train.sh"
    " mirror.sh upload.sh worker.sh"
).split()
ETCD = "etcd://h1,h2,h3"
JOB = """#!/bin/sh
echo "start:${{0##*/}}:$DB$CUDA_VISIBLE_DEVICES" >>{lab}/log
exec 7<{lab}/gate
flock -s 7 </dev/null >/dev/null 2>&1
echo "end:${{0##*/}}:$DB$CUDA_VISIBLE_DEVICES" >>{lab}/log
"""


class Machine(Lab):
    """A lab with the programs of the recipes. They log their start, and after release() their
    end.
    """

    def __init__(self, script, path):
        super().__init__(script, path)
        self.server = None
        self.bin = path / "bin"
        self.bin.mkdir()
        (self.bin / "solo").symlink_to(script)
        for program in PROGRAMS:
            write_program(self.bin / program, JOB.format(lab=path))
        (self.bin / "Makefile").write_text("all:\n\t@./build.sh\n")
        self.gate = open(path / "gate", "w")
        self.places = dict.fromkeys(("/usr/local/bin", "/srv"), self.bin)
        self.places.update(dict.fromkeys(("/var/lock", "/var/lib/prometheus/node-exporter"), path))
        for variable in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "DB", "CUDA_VISIBLE_DEVICES", "GUARD"):
            self.environment.pop(variable, None)
        self.environment.update(
            PATH=f"{self.bin}:/usr/bin:/bin", HOME=str(path), PARALLEL_HOME=str(path)
        )
        self.hold_all()

    def hold_all(self):
        fcntl.flock(self.gate, fcntl.LOCK_EX)

    def release(self):
        fcntl.flock(self.gate, fcntl.LOCK_UN)

    def close(self):
        self.release()
        super().close()
        if self.server is not None:
            self.server.stop()

    def replace_places(self, text):
        if ETCD in text and ETCD not in self.places:
            self.server = Etcd(self.path / "etcd").start()
            self.places[ETCD] = self.server.url
        own = (ROOT, self.path)  # may lie below one of the places
        pattern = re.compile("|".join(map(re.escape, map(str, (*own, *self.places)))))
        return pattern.sub(lambda found: str(self.places.get(found[0], found[0])), text)

    def type(self, line, environment=None):
        """Start a command line, or the command of a unit or crontab, in the directory of the
        programs.
        """
        options = {
            "env": environment or self.environment,
            "cwd": self.bin,
            "stdin": subprocess.DEVNULL,
            "text": True,
        }
        return self.start_words("/bin/sh", "-c", self.replace_places(line), **options)

    def count(self, event):
        return sum(line.startswith(event) for line in self.read_log())

    def wait_for_starts(self, number):
        running = [process for process in self.started if not process.stdout.closed]
        until(lambda: self.count("start") >= number or any(process.poll() for process in running))
        assert self.count("start") == number, [
            process.stderr.read() for process in running if process.poll()
        ]

    def start_waiter(self, line, environment=None):
        waiters, starts = self.count_waiters(), self.count("start")
        process = self.type(line, environment)
        until(lambda: self.count_waiters() > waiters or self.count("start") > starts)
        assert self.count("start") == starts
        return process

    def count_waiters(self):
        return sum(row["state"] == "waiting" for row in self.collect())


def finish(process):
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def count_most_at_once(log):
    most = now = 0
    for line in log:
        now += 1 if line.startswith("start") else -1
        most = max(most, now)
    return most
