"""Below every parent a command inherits with solo what it inherits without it, and the parent sees
its status.

A row is a parent. Installed, solo starts by a stub, and every row is exact; without a stub the rows
of GUESSED differ, in SIGPIPE and SIGXFSZ alone.
"""

import os
import pty
import resource
import shlex
import signal
import subprocess
import sys
import tempfile

import pytest
from conftest import PATIENCE, need_namespaces, need_tools, write_program
from home import install_launcher, make_home, run  # noqa: F401

pytestmark = pytest.mark.long

PARENTS = {}
IN_MAKE_TEST = {"odd state", "environment {}", "dash trap PIPE", "solo", "node"}  # one of each kind
GUESSED = {"python restore_signals=False"}


def parent(name, *tools):
    """Declare a row: a function of (home, words) that runs words below the parent and returns the
    status that it sees.
    """

    def declare(start):
        PARENTS[name] = (tools, start)
        return start

    return declare


def declare(name, *before, tools=None):
    """Declare a parent that is started by the words `before` the command."""
    tools = before[:1] if tools is None else tools
    parent(name, *tools)(lambda home, words: run(*before, *words, cwd=home.path))


NODE = "const [word, ...rest] = process.argv.slice(1); process.exit(require('child_process').spawnSync(word, rest).status)"
SHELL = '"$@"; code=$?; exit $code'
for name, prepare in (
    *((name, "") for name in ("dash", "bash", "zsh")),
    ("dash trap PIPE", "trap '' PIPE; "),
    ("bash trap XFSZ", "trap '' XFSZ; "),
    ("zsh trap both", "trap '' PIPE XFSZ; "),
):
    declare(name, name.partition(" ")[0], "-c", prepare + SHELL, "sh")
declare("busybox", "busybox", "sh", "-c", SHELL, "sh")
declare("perl", "perl", "-e", "system(@ARGV); exit($? >> 8)")
declare("node", "node", "-e", NODE, "--")
declare("sudo", "sudo", "-n")
PYTHON = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
declare("python", sys.executable, "-IS", "-c", PYTHON, tools=())


for environment in (
    {},
    {"LANG": "C"},
    {"LC_ALL": "C"},
    *({"LC_CTYPE": name} for name in ("C", "UTF-8", "POSIX", "")),
):
    # Python itself may set LC_CTYPE, as in the C locale.
    parent(f"environment {environment}")(
        lambda home, words, environment=environment: run(*words, env=environment)
    )


@parent("odd state")
def start_oddly(home, words):
    """All that a Python program can hand on: descriptors, limits, mask, dispositions, umask, a
    variable with a newline.
    """
    read, write = os.pipe()

    def prepare():
        for number in (signal.SIGTTOU, signal.SIGSEGV, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGTTIN, signal.SIGILL, signal.SIGTERM, signal.SIGALRM}
        )
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 22, 1 << 22))
        os.nice(3)

    try:
        environment = {**os.environ, "ODD": "a\nb", "EMPTY": ""}
        options = {
            "pass_fds": (read, write),
            "env": environment,
            "umask": 0o27,
            "start_new_session": True,
        }
        return run(*words, cwd=home.path, preexec_fn=prepare, **options)
    finally:
        os.close(read)
        os.close(write)


@parent("python restore_signals=False")
def start_by_careless_python(home, words):
    return run(*words, restore_signals=False)


@parent("solo", "dash")
def start_by_solo(home, words):
    trap = "trap '' PIPE; exec \"$@\""
    return run(
        "dash",
        "-c",
        trap,
        "sh",
        home.launcher,
        "--dir",
        f"{home.path}/outer",
        "-n",
        "outer",
        "--",
        *words,
    )


@parent("make", "make")
def start_by_make(home, words):
    (home.path / "Makefile").write_text(f"all:\n\t@{shlex.join(words)}\n")
    return run("make", "-s", "-C", home.path, stderr=subprocess.DEVNULL)


@parent("xargs", "xargs")
def start_by_xargs(home, words):
    return subprocess.run(
        ["xargs", "-I", "{}", *words], input=b"one\n", timeout=PATIENCE
    ).returncode


@parent("git hook", "git")
def start_by_git(home, words):
    """git receive-pack ignores SIGPIPE while a hook runs."""
    own = {**os.environ, "HOME": str(home.path), "GIT_CONFIG_NOSYSTEM": "1"}
    author = ["-c", "user.name=a", "-c", "user.email=a@a"]
    server, clone = home.path / "server", home.path / "clone"
    if not server.exists():
        for line in (["init", "-q", "--bare", server], ["init", "-q", clone]):
            subprocess.run(["git", *line], env=own, check=True, stderr=subprocess.DEVNULL)
    write_program(
        server / "hooks/post-receive", f"#!/bin/sh\ncat >/dev/null\nexec {shlex.join(words)}\n"
    )
    for line in (
        [*author, "commit", "-q", "--allow-empty", "-m", "x"],
        ["push", "-q", server, "HEAD:main"],
    ):
        subprocess.run(["git", "-C", clone, *line], env=own, check=True, stderr=subprocess.DEVNULL)


@parent("tmux", "tmux")
def start_by_tmux(home, words):
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket must be short
        line = f"exec {shlex.join(words)}"
        run(
            "tmux",
            "-S",
            f"{folder}/s",
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            line,
            ";",
            "wait-for",
            "never",
        )


@parent("sudo on a terminal", "sudo")
def start_by_sudo_on_a_terminal(home, words):
    return run_on_terminal("sudo", "-n", *words)


def run_on_terminal(*words):
    """Run a command as the leader of a session with a terminal; return its status."""
    pid, terminal = pty.fork()
    if pid == 0:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(words[0], words)
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        pass  # closed
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@parent("terminal", "bash")
def start_on_a_terminal(home, words):
    return run_on_terminal("bash", "-ic", shlex.join(words) + "; exit $?")


SSHD = "HostKey {0}/key\nAuthorizedKeysFile {0}/key.pub\nUsePAM no\nStrictModes no\nPermitRootLogin yes\n"
SSH = [
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
    "LogLevel=ERROR",
    "BatchMode=yes",
]


@parent("sshd", "sshd", "ssh", "unshare")
def start_by_sshd(home, words):
    """sshd -i on a pipe: it listens nowhere. It wants /run/sshd."""
    key, config = home.path / "key", home.path / "sshd_config"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", key], check=True)
        config.write_text(SSHD.format(home.path))
    need_namespaces(["unshare", "--mount"])
    serve = f"unshare --mount sh -c 'mount -t tmpfs tmpfs /run; mkdir /run/sshd; exec /usr/sbin/sshd -i -f {config}'"
    options = [word for option in (*SSH, f"ProxyCommand={serve}") for word in ("-o", option)]
    return run("ssh", "-n", "-F", "/dev/null", "-i", key, *options, "root@here", shlex.join(words))


def list_rows():
    for name in PARENTS:
        marks = [] if name in IN_MAKE_TEST else [pytest.mark.full]
        yield pytest.param(
            name, marks=[*marks, pytest.mark.root] if name.startswith(("sudo", "sshd")) else marks
        )


@pytest.mark.tool("perl")
@pytest.mark.parametrize("name", list(list_rows()))
def test_command_inherits_the_same_with_and_without_solo(home, name):
    tools, start = PARENTS[name]
    need_tools(*tools)

    (status, plain), (guarded_status, guarded) = home.compare(lambda words: start(home, words))

    assert status == guarded_status
    if name in GUESSED and not home.is_exact:
        both = 0x1001000
        assert [int(facts.pop("SigIgn"), 16) & both for facts in (plain, guarded)] == [both, 0]
    assert guarded == plain
