"""The recipes for CI runners, run as those do, and cancelled as those do: no terminal, no input, real concurrent pipelines.

What the runners do is from their sources. The graces between their signals are shortened, but where a test depends on them.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from conftest import PATIENCE, ROOT, read_state, until, wait_dead
from machine import count_most_at_once, finish
from pages import read_blocks

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.tool("flock", "bash", "make")

BLOCKS = {}  # by kind
for block in read_blocks():
    BLOCKS.setdefault(block.kind, []).append(block)
ACTION = ROOT / "packaging/action"
GRACE = 0.5, 0.5  # seconds, instead of
GITHUBS_GRACE = 7.5, 2.0  # of 2.5: not within the last half second
GITLABS_GRACE = 9.5  # of 10


class Pipeline:
    """The top process of a step on a runner, and how that runner cancels it."""

    def __init__(self, machine, words, cancel, variables=None, **options):
        self.cancel = lambda: cancel(self.process)
        environment = {**machine.environment, "CI": "true", **(variables or {})}
        self.process = subprocess.Popen(
            words,
            env=environment,
            cwd=machine.bin,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        machine.started.append(self.process)


# --- GitHub: ProcessInvoker.cs, ScriptHandler.cs ---------------------------------------------------------------------


def run_github(machine, text, shell=None, variables=None):
    """`bash -e FILE`, or with shell: bash what ScriptHandlerHelpers says."""
    assert "${{" not in text, "put into the script as it is: whoever names a branch runs commands"
    script = machine.path / f"step-{len(machine.started)}.sh"
    script.write_text(text)
    words = {None: ["bash", "-e", script], "bash": ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script]}[
        shell
    ]
    return Pipeline(machine, words, cancel_github, {"GITHUB_ACTIONS": "true", **(variables or {})})


def cancel_github(process, graces=GRACE):
    """SIGINT, SIGTERM, then NixKillProcessTree, which kills the top process alone."""
    for number, grace in zip((signal.SIGINT, signal.SIGTERM), graces):
        process.send_signal(number)
        until(lambda: process.poll() is not None or has_taken_all(process.pid))
        try:
            return process.wait(grace)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.wait(PATIENCE)


def has_taken_all(pid):
    """Whether it took what it was sent, and sleeps again."""
    pending = re.search(r"ShdPnd:\s*(\w+)", read_file(f"/proc/{pid}/status"))
    return pending is not None and int(pending[1], 16) == 0 and read_state(pid) == "S"


def run_workflow(machine, text):
    """Its last step; those before are the checkout."""
    [job] = yaml.safe_load(text)["jobs"].values()
    *before, step = job["steps"]
    assert [other["uses"].partition("@")[0] for other in before] == ["actions/checkout"] and "self-hosted" in job[
        "runs-on"
    ]
    if "uses" in step:
        assert step["uses"] == "./.github/actions/solo"
        return run_action(machine, step["with"])
    return run_github(machine, step["run"], step.get("shell"))


def run_action(machine, given):
    """A composite action: its inputs with their defaults go where its `env` puts them."""
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    assert set(given) <= set(action["inputs"]) and action["runs"]["using"] == "composite"
    inputs = {name: given.get(name, about.get("default", "")) for name, about in action["inputs"].items()}
    inputs = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in inputs.items()}
    [step] = action["runs"]["steps"]
    variables = {"GITHUB_ACTION_PATH": str(ACTION)}
    for name, value in step["env"].items():
        variables[name] = re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], value)
    return run_github(machine, step["run"], step["shell"], variables)


# --- GitLab: shells/bash.go, killer_unix.go --------------------------------------------------------------------------


def run_gitlab(machine, text):
    """A login shell in a group of its own, the script evaluated in a pipeline."""
    [job] = yaml.safe_load(text).values()
    (machine.path / ".bash_profile").write_text(f"PATH={machine.environment['PATH']}\n")
    script = machine.path / f"script-{len(machine.started)}.sh"
    lines = "\n".join(job["script"]).replace("'", "'\\''")
    script.write_text(
        "if set -o | grep pipefail > /dev/null; then set -o pipefail; fi; set -o errexit\n"
        f"set +o noclobber\n: | eval '{lines}'\nexit 0\n"
    )
    return Pipeline(machine, ["bash", "--login", script], cancel_gitlab, {"GITLAB_CI": "true"}, preexec_fn=os.setpgrp)


def cancel_gitlab(process, grace=None):
    """SIGTERM to the group; with a grace SIGKILL to it, unless before that the last writer of the job's output has ended."""
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(PATIENCE)
    try:
        process.communicate(timeout=grace) if grace else None
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


# --- Jenkins: BourneShellScript.java, ProcessTree.java ---------------------------------------------------------------


def run_jenkins(machine, text):
    """nohup sh -xe, in a session of its own, known by a variable."""
    [command] = re.findall(r"^ +sh '(.*)'$", text, re.M)
    script = machine.path / f"script-{len(machine.started)}.sh.copy"
    script.write_text(command)
    cookie = f"durable-{len(machine.started)}-{machine.path}"
    variables = {
        "JENKINS_SERVER_COOKIE": cookie,
        "JENKINS_URL": "http://localhost/",
        "BUILD_ID": "7",
        "JENKINS_NODE_COOKIE": "n",
    }
    words = ["nohup", "sh", "-xe", script]
    return Pipeline(machine, words, lambda process: cancel_jenkins(cookie), variables, start_new_session=True)


def cancel_jenkins(cookie):
    """SIGTERM to each that has the variable, children first; waits for each."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if f"JENKINS_SERVER_COOKIE={cookie}\0" in read_file(f"/proc/{pid}/environ"):
            kill_recursively(int(pid))


def kill_recursively(pid):
    for child in read_file(f"/proc/{pid}/task/{pid}/children").split():
        kill_recursively(int(child))
    if read_state(pid) not in ("gone", "Z"):
        os.kill(pid, signal.SIGTERM)
        wait_dead(pid)


def read_file(path):
    try:
        return open(path, errors="replace").read()
    except OSError:
        return ""


# --- a Makefile ------------------------------------------------------------------------------------------------------


def run_makefile(machine, text):
    (machine.bin / "Makefile").write_text(text)
    return Pipeline(machine, ["make", "deploy"], lambda process: process.terminate())


RUN = {"github": run_workflow, "gitlab": run_gitlab, "jenkins": run_jenkins, "makefile": run_makefile}
RECIPES = [block for kind in RUN for block in BLOCKS[kind]]
STEP = next(block for block in BLOCKS["github"] if "exec solo" in block.text)


def run(machine, block, old="", new=""):
    """A pipeline of this recipe, or of it with `new` in place of `old`."""
    assert old in block.text
    return RUN[block.kind](machine, block.text.replace(old, new))


def put_probe(machine, *ignored):
    """From now on ./deploy.sh tells the log of each signal; it ends on SIGTERM, unless that is ignored."""
    code = f"""
    import os, signal
    every = signal.valid_signals() - {{signal.SIGKILL, signal.SIGSTOP}}
    signal.pthread_sigmask(signal.SIG_BLOCK, every)
    log = os.open({str(machine.log)!r}, os.O_WRONLY | os.O_APPEND)
    number = 0
    os.write(log, b"start:%d\\n" % os.getpid())
    while number != signal.SIGTERM or number in {list(map(int, ignored))}:
        number = signal.sigwait(every)
        os.write(log, b"signal:%d\\n" % number)
    os.write(log, b"end\\n")
    """
    (machine.bin / "deploy.sh").write_text(f"#!{sys.executable} -IS\n{textwrap.dedent(code)}")


def put_plain(machine):
    (machine.bin / "deploy.sh").write_text((machine.bin / "build.sh").read_text())


def find_job(machine):
    """The pid of the one that was put there."""
    until(lambda: re.search(r"start:\d+$", machine.log.read_text(), re.M))
    return int(re.search(r"start:(\d+)$", machine.log.read_text(), re.M)[1])


def read_told(machine):
    """What it was told so far."""
    return [line for line in machine.read_log() if line.startswith(("signal", "end")) and "migrate" not in line]


# --- pipelines beside each other -------------------------------------------------------------------------------------


def count_jobs(machine):
    """Started ones; the action's recipe has two commands, of which the first tells of it."""
    return max(machine.count("start:deploy"), machine.count("start:migrate"))


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.id)
def test_pipelines_run_one_at_a_time_and_the_newest_wins_where_it_says_so(new, block):
    machine = new()
    first = run(machine, block)
    until(lambda: count_jobs(machine) == 1 or first.process.poll() is not None)
    second = run(machine, block)
    until(lambda: machine.count_seats() == 1)
    third = run(machine, block)
    newest = "latest" in block.text
    if newest:
        assert finish(second.process)[0] == 75
    until(lambda: machine.count_seats() == (1 if newest else 2))
    assert count_jobs(machine) == 1

    machine.release()

    ended = [first, third] if newest else [first, second, third]
    assert [finish(pipeline.process)[0] for pipeline in ended] == [0] * len(ended)
    assert count_jobs(machine) == len(ended) and count_most_at_once(machine.read_log()) == 1


def test_the_action_can_cancel_what_is_in_progress(new):
    machine = new()
    first = run_action(machine, {"name": "preview", "run": "./build.sh", "replace": True})
    machine.wait_for_starts(1)

    second = run_action(machine, {"name": "preview", "run": "./build.sh", "replace": True})

    assert finish(first.process)[0] == -signal.SIGTERM
    until(lambda: machine.count("start") == 2)
    machine.release()
    assert finish(second.process)[0] == 0


# --- cancelled -------------------------------------------------------------------------------------------------------


CANCELLED = {  # what the job is told
    "github": ["signal:2", "signal:15"],
    "gitlab": ["signal:15"],
    "jenkins": ["signal:15"],
    "makefile": ["signal:15"],
}


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.id)
def test_a_cancelled_pipeline_tells_its_job_and_the_next_one_runs(new, block):
    machine = new()
    put_probe(machine)
    machine.release()
    pipeline = run(machine, block)
    find_job(machine)

    pipeline.cancel()

    until(lambda: "end" in machine.read_log())
    assert read_told(machine) == [*CANCELLED[block.kind], "end"]
    put_plain(machine)
    assert finish(run(machine, block).process)[0] == 0


def test_gitlab_may_tell_the_job_twice_as_the_manual_says(new):
    """A group's signal is one to each of its processes; to be seen twice, the second must not come before the first was taken."""
    machine = new()
    put_probe(machine, signal.SIGTERM)
    pipeline = run(machine, BLOCKS["gitlab"][0])
    job = find_job(machine)
    [row] = machine.list()
    assert os.getpgid(job) == os.getpgid(row["launcher"]) == pipeline.process.pid

    for number, pid in enumerate((job, row["launcher"]), 1):
        os.kill(pid, signal.SIGTERM)
        until(lambda number=number: machine.read_log().count("signal:15") == number)

    os.kill(job, signal.SIGKILL)
    pipeline.process.wait(PATIENCE)


def test_a_job_that_gitlab_kills_is_gone_and_the_next_one_runs(new):
    machine = new()
    put_probe(machine, signal.SIGTERM)
    pipeline = run(machine, BLOCKS["gitlab"][0])
    job = find_job(machine)

    pipeline.cancel()
    assert read_state(job) not in ("gone", "Z")
    os.killpg(pipeline.process.pid, signal.SIGKILL)

    wait_dead(job)
    put_plain(machine)
    machine.release()
    assert finish(run(machine, BLOCKS["gitlab"][0]).process)[0] == 0


def test_without_exec_a_job_is_never_told_and_still_the_next_one_waits_for_it(new):
    machine = new()
    put_probe(machine)
    pipeline = run(machine, STEP, "exec ", "")
    job = find_job(machine)

    pipeline.cancel()

    os.kill(job, signal.SIGUSR1)  # a witness that it could have heard
    until(lambda: machine.count("signal") == 1)
    assert read_told(machine) == [f"signal:{int(signal.SIGUSR1)}"]
    put_plain(machine)
    following = run(machine, STEP)
    until(lambda: machine.count_seats() == 1)
    assert [row["child"] for row in machine.list() if row["state"] == "held"] == [job]
    os.kill(job, signal.SIGTERM)
    machine.release()
    assert finish(following.process)[0] == 0


@pytest.mark.parametrize("block", BLOCKS["github"], ids=lambda block: block.id)
def test_a_job_that_takes_no_notice_is_waited_for_after_its_runner_killed_the_step(new, block):
    machine = new()
    put_probe(machine, signal.SIGTERM)
    text = block.text.replace("            ./migrate.sh\n", "").replace(
        "            ./deploy.sh", "            exec ./deploy.sh"
    )
    pipeline = run_workflow(machine, text)
    job = find_job(machine)

    pipeline.cancel()

    assert pipeline.process.returncode == -signal.SIGKILL
    until(lambda: len(read_told(machine)) == 2)
    assert read_told(machine) == ["signal:2", "signal:15"] and read_state(job) not in ("gone", "Z")
    put_plain(machine)
    following = run_workflow(machine, text)
    until(lambda: machine.count_seats() == 1)
    assert [(row["state"], row["child"]) for row in machine.list() if row["state"] != "waiting"] == [("orphaned", job)]
    os.kill(job, signal.SIGKILL)
    machine.release()
    assert finish(following.process)[0] == 0


def test_with_no_orphan_a_job_that_takes_no_notice_dies_with_the_step(new):
    machine = new()
    put_probe(machine, signal.SIGTERM)
    pipeline = run(machine, STEP, "--tree --kill-after 5s", "--no-orphan")
    job = find_job(machine)

    pipeline.cancel()

    wait_dead(job)
    put_plain(machine)
    machine.release()
    assert finish(run(machine, STEP).process)[0] == 0


def put_stubborn(machine):
    """From now on ./deploy.sh ends on any signal, and has a descendant, in a session of its own, that ends on SIGKILL alone."""
    put_probe(machine, signal.SIGTERM)
    (machine.bin / "deploy.sh").rename(machine.bin / "stubborn.sh")
    (machine.bin / "deploy.sh").write_text("#!/bin/sh\nsetsid ./stubborn.sh &\nexec sleep 600\n")
    (machine.bin / "deploy.sh").chmod(0o755)


@pytest.mark.tool("setsid")
def test_a_descendant_that_ignores_sigterm_is_dead_before_the_runner_kills_solo(new):
    """All recipes at once, because each of them takes its grace."""
    runs = []
    for block in [*BLOCKS["github"], *BLOCKS["gitlab"]]:
        machine = new()
        put_stubborn(machine)
        pipeline = run(machine, block, *(["            ./migrate.sh\n"] if "migrate" in block.text else []))
        runs.append((block, machine, pipeline, find_job(machine)))

    def cancel(one):
        block, _, pipeline, _ = one
        if block.kind == "github":
            cancel_github(pipeline.process, GITHUBS_GRACE)
        else:
            cancel_gitlab(pipeline.process, GITLABS_GRACE)

    with ThreadPoolExecutor(len(runs)) as threads:
        list(threads.map(cancel, runs))

    for block, machine, pipeline, stubborn in runs:
        ended = pipeline.process.returncode != -signal.SIGKILL and read_state(stubborn) in ("gone", "Z")
        assert ended, block.id
        put_plain(machine)
        machine.release()
        assert finish(run(machine, block).process)[0] == 0, block.id


@pytest.mark.parametrize("tree", [True, False])
def test_tree_reaches_what_a_shell_script_has_started(new, tree):
    """bash, told to end by SIGINT, waits for its child, which only --tree tells."""
    machine = new()
    put_probe(machine)
    (machine.bin / "deploy.sh").rename(machine.bin / "probe.sh")
    (machine.bin / "deploy.sh").write_text("#!/bin/bash\n./probe.sh\necho not the last command\n")
    (machine.bin / "deploy.sh").chmod(0o755)
    words = "--tree --kill-after 5s "
    pipeline = run(machine, STEP, words, words if tree else "")
    job = find_job(machine)

    pipeline.process.send_signal(signal.SIGINT)

    until(lambda: has_taken_all(pipeline.process.pid))
    until(lambda: not tree or machine.count("signal"))
    os.kill(job, signal.SIGTERM)
    pipeline.process.wait(PATIENCE)
    assert read_told(machine) == ["signal:2"] * tree + ["signal:15", "end"]


def test_make_passes_sigterm_on_but_not_sigint(new):
    machine = new()
    put_probe(machine)
    pipeline = run(machine, BLOCKS["makefile"][0])
    job = find_job(machine)

    pipeline.process.send_signal(signal.SIGINT)
    until(lambda: has_taken_all(pipeline.process.pid))
    os.kill(job, signal.SIGUSR1)
    until(lambda: machine.count("signal") == 1)
    assert read_told(machine) == [f"signal:{int(signal.SIGUSR1)}"]

    pipeline.cancel()
    pipeline.process.wait(PATIENCE)
    assert read_told(machine)[1:] == ["signal:15", "end"]


# --- the action ------------------------------------------------------------------------------------------------------

HOSTILE = """a b' "c" $(touch pwned) `touch pwned` $HOME ; touch pwned #"""


def test_the_inputs_of_the_action_are_never_run(new):
    machine = new()
    text = "printf '%s|' one \"two  three\" '$four'\nenv | grep -c ^SOLO_INPUT_ || true\n"

    status, out, err = finish(run_action(machine, {"name": HOSTILE, "run": text}).process)
    assert (status, out) == (0, "one|two  three|$four|0\n"), err
    for name in ("wait", "timeout", "latest", "replace"):
        status, out, err = finish(run_action(machine, {"name": "job", "run": "touch ran", name: HOSTILE}).process)
        assert (status, out, err.count("\n")) == (125, "", 1) and err.startswith("solo: "), err

    assert not {"pwned", "ran"} & set(os.listdir(machine.bin))


def test_a_failing_line_fails_the_action_and_busy_is_75(new):
    machine = new()
    assert finish(run_action(machine, {"name": "job", "run": "false | cat\necho not reached"}).process)[:2] == (1, "")
    run_action(machine, {"name": "job", "run": "./build.sh"})
    machine.wait_for_starts(1)

    status, out, err = finish(run_action(machine, {"name": "job", "run": "./build.sh"}).process)

    assert (status, err.count("\n")) == (75, 1) and "job: busy" in err


def test_the_action_says_what_is_missing(new):
    machine = new()
    for given in ({"name": "", "run": "true"}, {"name": "job", "run": ""}):
        status, _, err = finish(run_action(machine, given).process)
        assert status == 125 and err.startswith("solo: action: ") and err.endswith(" is empty\n")
    (machine.bin / "solo").unlink()
    (machine.bin / "bash").symlink_to(shutil.which("bash"))
    machine.environment["PATH"] = str(machine.bin)
    status, _, err = finish(run_action(machine, {"name": "job", "run": "true"}).process)
    assert status == 125 and err.startswith("solo: action: cannot find solo in PATH ")
