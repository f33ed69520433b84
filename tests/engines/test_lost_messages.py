"""A launcher with --wait retries: the command runs exactly once, whichever message is lost.

Half of the messages are reset, the others vanish; which of them, SOLO_SEED decides.
"""

import itertools
import os
import signal
import time

import pytest
import tally
from conftest import PATIENCE, finish, inject, read_line, until
from fleet import describe, find_children
from proxy import ANSWER, HOLE, REQUEST, RESET, Proxy
from servers import SERVERS, serve

from solo.engines.acquire import DELAY, ORDER_POLL, TIMEOUT

pytestmark = [pytest.mark.long, pytest.mark.full]

AT_ONCE = 8  # launchers
MANY = 1000  # messages; more than a launcher sends
MOST = 3 * DELAY  # seconds to the end on a loaded machine; still less than a call may take
TERMS = ("--ttl", "3s", "-k", "300ms")


server = serve(SERVERS)


class Struck:
    """A launcher on its own host that loses one message."""

    names = (f"job{number}" for number in itertools.count())

    def __init__(self, lab, server):
        self.lab = lab
        self.server = server
        self.name = next(self.names)
        self.proxy = Proxy(server.port)
        self.url = server.make_url(self.proxy.port)

    def start(self, *words, **options):
        self.launcher = self.start_beside(self.url, "struck", *words, **options)
        return self

    def start_beside(self, url, host, *words, **options):
        environment = describe(self.lab, f"{self.name}-{host}", url)
        return self.lab.start("-n", self.name, *TERMS, *words, env=environment, **options)

    def end(self):
        """Send SIGTERM. Return (status, stdout, seconds until the launcher ended, whether the
        message was lost).
        """
        begin = time.monotonic()
        self.launcher.send_signal(signal.SIGTERM)
        self.launcher.wait(PATIENCE)
        seconds = time.monotonic() - begin
        status, out, _, has_struck = self.finish()
        return status, out, seconds, has_struck

    def finish(self):
        """Return (status, stdout, stderr, whether the message was lost)."""
        try:
            out, err = self.launcher.communicate(timeout=PATIENCE)
        finally:
            self.proxy.close()
        return self.launcher.returncode, out.decode(), err.decode(), self.proxy.has_struck


def choose_fault(number):
    return (HOLE, RESET)[(number // 2 + tally.SEED // 2) % 2]


def strike_in_turn(lab, server, at_once=AT_ONCE):
    """Yield {number of the message to lose: Struck}, until a launcher has ended without so many
    messages.

    Take every other message; in a whole torture, all.
    """
    step = 1 if tally.WHOLE else 2
    for first in itertools.count(1 + tally.SEED % step, step * at_once):
        struck = {
            number: Struck(lab, server) for number in range(first, first + step * at_once, step)
        }
        yield struck
        if not all(one.proxy.has_struck for one in struck.values()):
            return


@pytest.mark.parametrize("kind", [REQUEST, ANSWER])
def test_wait_runs_the_command_once_whichever_message_is_lost(lab, server, kind):
    for struck in strike_in_turn(lab, server):
        for number, one in struck.items():
            one.proxy.strike(choose_fault(number), kind, number)
            one.start("--wait", "1m", "--once-per", "300d", "--", "echo", "ran")

        for number, one in struck.items():
            status, out, err, _ = one.finish()
            assert (status, out) == (0, "ran\n"), (tally.SEED, number, err)


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
@pytest.mark.parametrize("kind", [REQUEST, ANSWER])
def test_slot_is_recorded_whichever_message_is_lost(lab, server, kind):
    """The command gets its slot, and the next contender another one. Other engines repeat requests
    themselves.
    """
    for struck in strike_in_turn(lab, server):
        for number, one in struck.items():
            one.proxy.strike(RESET, kind, number)
            command = ("--slots", "2", "--", "sh", "-c", "echo $SOLO_SLOT; read line")
            one.start(
                "--ttl", "1m", "--wait", "1m", *command
            )  # a loaded machine must not lose the lease
        for number, one in struck.items():
            assert read_line(one.launcher) == "0", number
            words = ("--wait", "30s", "--slots", "2", "--", "sh", "-c", "echo $SOLO_SLOT")
            assert finish(one.start_beside(server.url, "other", *words))[:2] == (0, "1\n"), number
            one.finish()


@pytest.mark.parametrize("kind", [REQUEST, ANSWER])
def test_waiter_keeps_its_place_whichever_message_is_lost_at_its_turn(lab, server, kind):
    for struck in strike_in_turn(lab, server, 4):
        queues = {number: start_queue(one) for number, one in struck.items()}

        for number, (holder, _) in queues.items():
            struck[number].proxy.strike(choose_fault(number), kind, number)
            holder.stdin.close()

        for number, (_, second) in queues.items():
            status, _, err, _ = struck[number].finish()
            assert (status, second.wait(PATIENCE)) == (0, 0), (tally.SEED, number, err)
            assert (lab.path / struck[number].name).read_text() == "first\nsecond\n", (
                tally.SEED,
                number,
            )


def start_queue(struck):
    """Start a holder, `struck` as the first waiter, and a second one. Return (holder, second
    waiter).
    """
    log = struck.lab.path / struck.name
    words = ("--ttl", "8s", "-v", "--wait", "1m", "--", "sh", "-c")  # enough for a loaded machine
    holder = struck.start_beside(struck.server.url, "holder", *words, "echo; read line; exit 0")
    read_line(holder)
    struck.start(*words, f"echo first >>{log}")
    read_waiting(struck.launcher)
    second = struck.start_beside(struck.server.url, "second", *words, f"echo second >>{log}")
    read_waiting(second)
    return holder, second


def read_waiting(launcher):
    """Wait until a launcher with -v reports that it is in the queue. A busy server may have timed
    out before.
    """
    assert any(b"waiting: held for" in text for text in launcher.stderr)


def test_signal_may_delay_the_end_by_less_than_a_second():
    """As the manual promises. The tests below show that this delay is what counts, not the longer
    time of a call.
    """
    assert ORDER_POLL + DELAY < 0.9
    assert 2 * TIMEOUT <= DELAY  # a call and its repetition


def test_sigterm_ends_a_launcher_at_a_silent_engine(lab, server):
    """Whichever message is the first without an answer, from the first one to the release. A call
    may take 5 s.
    """
    words = [
        "--ttl",
        "60s",
        "-k",
        "3s",
        "--wait",
        "1m",
        "--once-per",
        "300d",
        "--",
        "sh",
        "-c",
        "echo ran; exit 3",
    ]
    for struck in strike_in_turn(lab, server):
        for number, one in struck.items():
            one.proxy.strike(choose_fault(number), ANSWER, number, HOLE)
            one.start(*words)
        for one in struck.values():
            until(lambda one=one: one.proxy.has_struck or one.launcher.poll() is not None)

        for number, one in struck.items():
            status, out, seconds, _ = one.end()
            # A command that runs gets the signal too. A connection that is reset may end the lock,
            # and with it the command.
            allowed = {
                -signal.SIGTERM,
                *([3] if out else []),
                *([123] if choose_fault(number) == RESET else []),
            }
            assert status in allowed and seconds < MOST, (tally.SEED, number, status, seconds)


def test_sigterm_ends_a_launcher_with_its_command_at_a_silent_engine(lab, server):
    one = Struck(lab, server).start(
        "--ttl", "60s", "-k", "3s", "--", "sh", "-c", "echo ran; exec sleep 1000"
    )
    read_line(one.launcher)
    one.proxy.set(HOLE)

    status, _, seconds, _ = one.end()

    assert status == -signal.SIGTERM and seconds < MOST


@pytest.mark.tool("strace")
@pytest.mark.parametrize("server", ["etcd"], indirect=True)
def test_sigterm_ends_a_launcher_that_renews_after_a_slow_fork(lab, server):
    """All signals are blocked then, and a call may take 3 s."""
    one = Struck(lab, server)
    slow = inject(lab, "fork,vfork,clone:delay_enter=5000000:when=1")
    one.proxy.strike(HOLE, REQUEST, MANY)
    one.start("--ttl", "23s", "-k", "12s", "--", "echo", "ran", prefix=slow)
    until(lambda: is_quiet(one.proxy))
    one.proxy.strike(HOLE, REQUEST, 1)
    until(lambda: one.proxy.has_struck)

    begin = time.monotonic()
    os.kill(find_children(one.launcher.pid)[0], signal.SIGTERM)

    assert one.finish()[1:3] == ("", "") and time.monotonic() - begin < MOST


def is_quiet(proxy) -> bool:
    """Whether the launcher has sent requests and sends no more: it forks."""
    left = proxy.left
    time.sleep(1)
    return proxy.left == left < MANY


@pytest.mark.tool("strace")
def test_lease_is_renewed_again_after_a_slow_fork(lab, server):
    """After the fork too little of the lease is left to start a command."""
    slow = inject(lab, "fork,vfork,clone:delay_enter=1600000:when=1")
    one = Struck(lab, server).start("--wait", "1m", "--", "echo", "ran", prefix=slow)

    status, out, err, _ = one.finish()

    assert (status, out) == (0, "ran\n"), err
    assert "(DELAYED)" in (lab.path / "injected").read_text()
