"""Hosts that share one engine, each behind its own proxy with faults; and a check that no two
commands overlapped.

Every command is beats.py, which ignores SIGTERM and writes times of the same clock.
"""

import os
import random
import signal
import struct
import subprocess
import sys
import time
from typing import NamedTuple

import tally
from conftest import TESTS, until
from proxy import HOLE, NO_ANSWERS, NO_REQUESTS, OK, RESET, Proxy

NETWORK_FAULTS = (HOLE, RESET, NO_REQUESTS, NO_ANSWERS)
STOPPED, ALL_STOPPED, KILLED = "launcher stopped", "launcher and command stopped", "launcher killed"
FAULTS = (*NETWORK_FAULTS, STOPPED, ALL_STOPPED, KILLED)
# How a holder ends that cannot renew: its launcher exits with 123; one without CPU in its last 0.25
# s dies by the kernel's timer.
LOST = (123, -signal.SIGKILL)


class Life(NamedTuple):
    """The lifetime of a command in seconds since boot, and its token."""

    first: float
    last: float
    token: int


def read_life(path):
    """Read a file of beats.py; return a Life, or None if the command never wrote a time."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) < 16:
        return None
    data = data[: len(data) // 8 * 8]
    first, last = (struct.unpack_from("d", data, at)[0] for at in (8, len(data) - 8))
    return Life(first, last, struct.unpack_from("q", data)[0])


def find_overlaps(lives: list) -> list:
    """Return the pairs of lives that overlap."""
    lives = sorted(lives)
    return [(one, other) for one, other in zip(lives, lives[1:]) if other.first <= one.last]


def is_growing(lives: list) -> bool:
    """Whether tokens grow in the order of the starts."""
    tokens = [life.token for life in sorted(lives)]
    return all(before < after for before, after in zip(tokens, tokens[1:]))


class Clock:
    """A wall clock that is `ahead` of the machine's, for programs with this `environment`. Needs
    gcc.
    """

    def __init__(self, path, ahead: int):
        shim, self.file = path / "clock.so", path / f"clock{os.urandom(4).hex()}"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", shim, TESTS / "clock.c"], check=True)
        self.environment = {"LD_PRELOAD": str(shim), "CLOCK": str(self.file)}
        self.set(ahead)

    def set(self, ahead: int):
        with open(
            self.file, "r+b" if self.file.exists() else "wb"
        ) as file:  # running programs have it mapped
            file.write(struct.pack("q", ahead))


def describe(lab, host: str, url: str) -> dict:
    """Return the environment of a host with a directory of names of its own."""
    return {**lab.environment, "SOLO_DIR": str(lab.path / host), "SOLO_VIA": url}


class Host:
    """One machine: its own directory of names, and its own proxy to the server."""

    def __init__(self, lab, server, name: str):
        self.lab = lab
        self.name = name
        self.proxy = Proxy(server.port)
        self.environment = describe(lab, name, server.make_url(self.proxy.port))
        self.launcher = None
        self.stopped = []  # processes, which may outlive their launcher, as its holder does below init

    def start(self, job: str, file, seconds: float, *words):
        """Start a contender for `job`, whose command writes into `file`; return the launcher."""
        command = [sys.executable, "-IS", str(TESTS / "beats.py"), str(file), str(seconds)]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        words = ("-n", job, "--wait", "1h", *words, "--", *command)
        self.launcher = self.lab.start(*words, env=self.environment, **streams)
        return self.launcher

    def fail(self, fault: str):
        if fault in NETWORK_FAULTS:
            self.proxy.set(fault)
        elif fault == KILLED:
            self.launcher.kill()
        elif fault in (STOPPED, ALL_STOPPED):
            children = find_children(self.launcher.pid) if fault == ALL_STOPPED else []
            self.stopped = [self.launcher.pid, *children]
            for pid in self.stopped:
                send(pid, signal.SIGSTOP)

    def heal(self):
        if self.proxy.mode != OK:
            self.proxy.set(OK)
        stopped, self.stopped = self.stopped, []
        for pid in stopped:
            send(pid, signal.SIGCONT)

    def close(self):
        self.heal()
        self.proxy.close()


def find_children(pid: int) -> list:
    try:
        return list(map(int, open(f"/proc/{pid}/task/{pid}/children").read().split()))
    except OSError:
        return []


def send(pid: int, number: int):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Soak:
    """Hosts that run jobs of one name repeatedly while random faults, drawn from `seed`, hit
    them.
    """

    def __init__(
        self,
        lab,
        server,
        seed: int,
        ttl: float = 3.0,
        faults=FAULTS,
        hosts: int = 3,
        rate: float = 0.2,
    ):
        self.lab = lab
        self.random = random.Random(seed)
        self.ttl = ttl
        self.faults = faults
        self.rate = rate  # of faults in a step of 0.1 s
        self.hosts = [
            Host(lab, server, f"soak-{type(server).__name__}-{number}") for number in range(hosts)
        ]
        self.job = f"soak{seed}"
        self.files = []
        self.injected = 0
        self.due = {}  # {host: when its fault heals}

    def step(self):
        """Start idle hosts, heal due faults, and sometimes inject one fault."""
        now = time.monotonic()
        for host in self.hosts:
            if host.launcher is None or host.launcher.poll() is not None and host not in self.due:
                if host.launcher is not None:
                    host.launcher.stderr.close()
                self.files.append(self.lab.path / f"{host.name}.{len(self.files)}")
                # Run longer than the lease: else a lost lease does no harm.
                seconds = self.ttl * self.random.uniform(1.2, 2.5)
                host.start(
                    self.job, self.files[-1], seconds, "--ttl", f"{self.ttl}s", "-k", "300ms"
                )
            if self.due.get(host, now + 1) <= now:
                host.heal()
                del self.due[host]
        if self.random.random() < self.rate:
            holding = [
                host
                for host in self.hosts
                if host not in self.due and find_children(host.launcher.pid)
            ]
            host = self.random.choice(holding or self.hosts)
            if host not in self.due:
                fault = self.random.choice(self.faults)
                host.fail(fault)
                tally.add(**({"kills": 1} if fault == KILLED else {"faults": {fault: 1}}))
                self.due[host] = now + self.ttl * self.random.uniform(0.2, 2.5)
                self.injected += 1
        time.sleep(0.1)

    def read_lives(self) -> list:
        """Return the lives of all commands so far."""
        return [life for life in map(read_life, self.files) if life]

    def finish(self):
        """Heal and end all hosts."""
        for host in self.hosts:
            host.heal()
        launchers = [
            host.launcher for host in self.hosts if host.launcher
        ]  # none, if there was no time for a step
        for launcher in launchers:
            launcher.kill()
            launcher.wait()
        until(lambda: not any(find_children(launcher.pid) for launcher in launchers))
        time.sleep(0.3)  # a command that was just killed may still write
        for host in self.hosts:
            host.close()
