"""The recipes for CI runners, started and cancelled like those runners do it: no terminal, no input, concurrent pipelines.

The sources of the runners are the reference. Their graces between signals are shortened, except where a test depends on them.
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
SHORT_GRACE = 0.5, 0.5  # seconds, instead of GITHUB_GRACE
GITHUB_GRACE = 7.5, 2.0  # really 7.5 and 2.5: the job must end half a second earlier
GITLAB_GRACE = 9.5  # really 10


class Pipeline:
    """The top process of a step on a runner. `cancel` does what that runner does to cancel it."""

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
    """Run `bash -e FILE`, or for `shell: bash` the words of ScriptHandlerHelpers."""
    assert "${{" not in text, "the runner pastes it into the script: the name of a branch could run commands"
    script = machine.path / f"step-{len(machine.started)}.sh"
    script.write_text(text)
    words = {None: ["bash", "-e", script], "bash": ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script]}[
        shell
    ]
    return Pipeline(machine, words, cancel_github, {"GITHUB_ACTIONS": "true", **(variables or {})})


def cancel_github(process, graces=SHORT_GRACE):
    """Send SIGINT, then SIGTERM, then SIGKILL like NixKillProcessTree: to the top process alone."""
    for number, grace in zip((signal.SIGINT, signal.SIGTERM), graces):
        process.send_signal(number)
        until(lambda: process.poll() is not None or has_no_pending_signal(process.pid))
        try:
            return process.wait(grace)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.wait(PATIENCE)


def has_no_pending_signal(pid):
    """Whether the process has received all its signals and sleeps again."""
    pending = re.search(r"ShdPnd:\s*(\w+)", read_file(f"/proc/{pid}/status"))
    return pending is not None and int(pending[1], 16) == 0 and read_state(pid) == "S"


def run_workflow(machine, text):
    """Run the last step. The steps before are the checkout."""
    [job] = yaml.safe_load(text)["jobs"].values()
    *before, step = job["steps"]
    assert [other["uses"].partition("@")[0] for other in before] == ["actions/checkout"] and "self-hosted" in job[
        "runs-on"
    ]
    if "uses" in step:
        assert step["uses"] == "./.github/actions/solo"
        return run_action(machine, step["with"])
    return run_github(machine, step["run"], step.get("shell"))


def run_action(machine, values):
    """Run the composite action: map `values` and the defaults of other inputs to variables, as its `env` says."""
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    assert set(values) <= set(action["inputs"]) and action["runs"]["using"] == "composite"
    inputs = {name: values.get(name, about.get("default", "")) for name, about in action["inputs"].items()}
    inputs = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in inputs.items()}
    [step] = action["runs"]["steps"]
    variables = {"GITHUB_ACTION_PATH": str(ACTION)}
    for name, value in step["env"].items():
        variables[name] = re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], value)
    return run_github(machine, step["run"], step["shell"], variables)


# --- GitLab: shells/bash.go, killer_unix.go --------------------------------------------------------------------------


def run_gitlab(machine, text):
    """Run a login shell in a new process group; it evaluates the script in a pipeline."""
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
    """Send SIGTERM to the group; after `grace` SIGKILL, unless the last writer of the job's output has ended before."""
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(PATIENCE)
    try:
        process.communicate(timeout=grace) if grace else None
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


# --- Jenkins: BourneShellScript.java, ProcessTree.java ---------------------------------------------------------------


def run_jenkins(machine, text):
    """Run `nohup sh -xe` in a new session. A variable identifies its processes."""
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
    """Send SIGTERM to every process with the variable, children first, and wait for each."""
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
    """Start a pipeline of this recipe, with `new` in place of `old`."""
    assert old in block.text
    return RUN[block.kind](machine, block.text.replace(old, new))


def put_probe(machine, *ignored):
    """Make ./deploy.sh a program that logs each signal. It ends on SIGTERM, unless that is in `ignored`."""
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
    """Wait until ./deploy.sh has logged its start; return its pid."""
    until(lambda: re.search(r"start:\d+$", machine.log.read_text(), re.M))
    return int(re.search(r"start:(\d+)$", machine.log.read_text(), re.M)[1])


def read_signals(machine):
    """Return the signals and the end that the job has logged so far."""
    events = [event for event in machine.read_log() if event.startswith(("signal", "end"))]
    return [event for event in events if "migrate" not in event]


# --- concurrent pipelines ---------------------------------------------------------------------------------------------


def count_jobs(machine):
    """Return how many jobs have started. The recipe with the action has two commands; the first one counts."""
    return max(machine.count("start:deploy"), machine.count("start:migrate"))


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.id)
def test_pipelines_run_one_at_a_time_and_latest_skips_older_waiters(new, block):
    machine = new()
    first = run(machine, block)
    until(lambda: count_jobs(machine) == 1 or first.process.poll() is not None)
    second = run(machine, block)
    until(lambda: machine.count_waiters() == 1)
    third = run(machine, block)
    newest = "latest" in block.text
    if newest:
        assert finish(second.process)[0] == 75
    until(lambda: machine.count_waiters() == (1 if newest else 2))
    assert count_jobs(machine) == 1

    machine.release()

    ended = [first, third] if newest else [first, second, third]
    assert [finish(pipeline.process)[0] for pipeline in ended] == [0] * len(ended)
    assert count_jobs(machine) == len(ended) and count_most_at_once(machine.read_log()) == 1


def test_replace_of_the_action_ends_the_pipeline_in_progress(new):
    machine = new()
    first = run_action(machine, {"name": "preview", "run": "./build.sh", "replace": True})
    machine.wait_for_starts(1)

    second = run_action(machine, {"name": "preview", "run": "./build.sh", "replace": True})

    assert finish(first.process)[0] == -signal.SIGTERM
    until(lambda: machine.count("start") == 2)
    machine.release()
    assert finish(second.process)[0] == 0


# --- cancelled -------------------------------------------------------------------------------------------------------


CANCELLED = {  # {kind: the signals that the job gets}
    "github": ["signal:2", "signal:15"],
    "gitlab": ["signal:15"],
    "jenkins": ["signal:15"],
    "makefile": ["signal:15"],
}


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.id)
def test_cancel_signals_the_job_and_the_next_pipeline_runs(new, block):
    machine = new()
    put_probe(machine)
    machine.release()
    pipeline = run(machine, block)
    find_job(machine)

    pipeline.cancel()

    until(lambda: "end" in machine.read_log())
    assert read_signals(machine) == [*CANCELLED[block.kind], "end"]
    put_plain(machine)
    assert finish(run(machine, block).process)[0] == 0


def test_cancel_by_gitlab_can_signal_the_job_twice(new):
    """Each process of the group gets one SIGTERM, and the launcher forwards its own.

    Two that are pending at once are one, so send the second after the first was received.
    """
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


def test_sigkill_by_gitlab_ends_the_job_and_the_next_pipeline_runs(new):
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


def test_without_exec_the_job_gets_no_signal_and_the_next_pipeline_waits(new):
    machine = new()
    put_probe(machine)
    pipeline = run(machine, STEP, "exec ", "")
    job = find_job(machine)

    pipeline.cancel()

    os.kill(job, signal.SIGUSR1)  # a witness: the job can receive a signal
    until(lambda: machine.count("signal") == 1)
    assert read_signals(machine) == [f"signal:{int(signal.SIGUSR1)}"]
    put_plain(machine)
    following = run(machine, STEP)
    until(lambda: machine.count_waiters() == 1)
    assert [row["child"] for row in machine.list() if row["state"] == "held"] == [job]
    os.kill(job, signal.SIGTERM)
    machine.release()
    assert finish(following.process)[0] == 0


@pytest.mark.parametrize("block", BLOCKS["github"], ids=lambda block: block.id)
def test_next_pipeline_waits_for_a_job_that_outlives_its_killed_step(new, block):
    machine = new()
    put_probe(machine, signal.SIGTERM)
    text = block.text.replace("            ./migrate.sh\n", "").replace(
        "            ./deploy.sh", "            exec ./deploy.sh"
    )
    pipeline = run_workflow(machine, text)
    job = find_job(machine)

    pipeline.cancel()

    assert pipeline.process.returncode == -signal.SIGKILL
    until(lambda: len(read_signals(machine)) == 2)
    assert read_signals(machine) == ["signal:2", "signal:15"] and read_state(job) not in ("gone", "Z")
    put_plain(machine)
    following = run_workflow(machine, text)
    until(lambda: machine.count_waiters() == 1)
    assert [(row["state"], row["child"]) for row in machine.list() if row["state"] != "waiting"] == [("orphaned", job)]
    os.kill(job, signal.SIGKILL)
    machine.release()
    assert finish(following.process)[0] == 0


def test_no_orphan_kills_a_job_that_ignores_sigterm_with_its_step(new):
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
    """Make ./deploy.sh end on any signal, with a descendant in another session that only SIGKILL ends."""
    put_probe(machine, signal.SIGTERM)
    (machine.bin / "deploy.sh").rename(machine.bin / "stubborn.sh")
    (machine.bin / "deploy.sh").write_text("#!/bin/sh\nsetsid ./stubborn.sh &\nexec sleep 600\n")
    (machine.bin / "deploy.sh").chmod(0o755)


@pytest.mark.tool("setsid")
def test_stubborn_descendant_is_dead_before_the_runner_kills_solo(new):
    """Run all recipes at once, because each of them needs its whole grace."""
    runs = []
    for block in [*BLOCKS["github"], *BLOCKS["gitlab"]]:
        machine = new()
        put_stubborn(machine)
        pipeline = run(machine, block, *(["            ./migrate.sh\n"] if "migrate" in block.text else []))
        runs.append((block, machine, pipeline, find_job(machine)))

    def cancel(one):
        block, _, pipeline, _ = one
        if block.kind == "github":
            cancel_github(pipeline.process, GITHUB_GRACE)
        else:
            cancel_gitlab(pipeline.process, GITLAB_GRACE)

    with ThreadPoolExecutor(len(runs)) as threads:
        list(threads.map(cancel, runs))

    for block, machine, pipeline, stubborn in runs:
        ended = pipeline.process.returncode != -signal.SIGKILL and read_state(stubborn) in ("gone", "Z")
        assert ended, block.id
        put_plain(machine)
        machine.release()
        assert finish(run(machine, block).process)[0] == 0, block.id


@pytest.mark.parametrize("tree", [True, False])
def test_tree_signals_the_children_of_a_shell_script(new, tree):
    """On SIGINT bash waits for its child, which gets a signal only with --tree."""
    machine = new()
    put_probe(machine)
    (machine.bin / "deploy.sh").rename(machine.bin / "probe.sh")
    (machine.bin / "deploy.sh").write_text("#!/bin/bash\n./probe.sh\necho not the last command\n")
    (machine.bin / "deploy.sh").chmod(0o755)
    words = "--tree --kill-after 5s "
    pipeline = run(machine, STEP, words, words if tree else "")
    job = find_job(machine)

    pipeline.process.send_signal(signal.SIGINT)

    until(lambda: has_no_pending_signal(pipeline.process.pid))
    until(lambda: not tree or machine.count("signal"))
    os.kill(job, signal.SIGTERM)
    pipeline.process.wait(PATIENCE)
    assert read_signals(machine) == ["signal:2"] * tree + ["signal:15", "end"]


def test_make_forwards_sigterm_but_not_sigint(new):
    machine = new()
    put_probe(machine)
    pipeline = run(machine, BLOCKS["makefile"][0])
    job = find_job(machine)

    pipeline.process.send_signal(signal.SIGINT)
    until(lambda: has_no_pending_signal(pipeline.process.pid))
    os.kill(job, signal.SIGUSR1)
    until(lambda: machine.count("signal") == 1)
    assert read_signals(machine) == [f"signal:{int(signal.SIGUSR1)}"]

    pipeline.cancel()
    pipeline.process.wait(PATIENCE)
    assert read_signals(machine)[1:] == ["signal:15", "end"]


# --- the action ------------------------------------------------------------------------------------------------------

HOSTILE = """a b' "c" $(touch pwned) `touch pwned` $HOME ; touch pwned #"""


def test_inputs_of_the_action_are_never_evaluated(new):
    machine = new()
    text = "printf '%s|' one \"two  three\" '$four'\nenv | grep -c ^SOLO_INPUT_ || true\n"

    status, out, err = finish(run_action(machine, {"name": HOSTILE, "run": text}).process)
    assert (status, out) == (0, "one|two  three|$four|0\n"), err
    for name in ("wait", "timeout", "latest", "replace"):
        status, out, err = finish(run_action(machine, {"name": "job", "run": "touch ran", name: HOSTILE}).process)
        assert (status, out, err.count("\n")) == (125, "", 1) and err.startswith("solo: "), err

    assert not {"pwned", "ran"} & set(os.listdir(machine.bin))


def test_failed_line_fails_the_action_and_busy_is_75(new):
    machine = new()
    assert finish(run_action(machine, {"name": "job", "run": "false | cat\necho not reached"}).process)[:2] == (1, "")
    run_action(machine, {"name": "job", "run": "./build.sh"})
    machine.wait_for_starts(1)

    status, out, err = finish(run_action(machine, {"name": "job", "run": "./build.sh"}).process)

    assert (status, err.count("\n")) == (75, 1) and "job: busy" in err


def test_action_reports_empty_inputs_and_a_missing_solo(new):
    machine = new()
    for values in ({"name": "", "run": "true"}, {"name": "job", "run": ""}):
        status, _, err = finish(run_action(machine, values).process)
        assert status == 125 and err.startswith("solo: action: ") and err.endswith(" is empty\n")
    (machine.bin / "solo").unlink()
    (machine.bin / "bash").symlink_to(shutil.which("bash"))
    machine.environment["PATH"] = str(machine.bin)
    status, _, err = finish(run_action(machine, {"name": "job", "run": "true"}).process)
    assert status == 125 and err.startswith("solo: action: cannot find solo in PATH ")
