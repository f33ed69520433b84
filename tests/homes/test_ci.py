"""The recipes for CI runners, started and cancelled like those runners do it: no terminal, no
input, concurrent pipelines.

The sources of the runners are the reference. Their graces between signals are shortened, except
where a test depends on them.
"""

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap

import builds
import pytest
from builds import make_pyz
from conftest import (
    PATIENCE,
    ROOT,
    find_script,
    read_line,
    read_state,
    run_threads,
    until,
    wait_dead,
    write_program,
)
from machine import count_most_at_once, finish
from pages import read_example, read_jobs

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.tool("flock", "bash", "make")

ACTION = ROOT / "packaging/action"
COMPONENT = ROOT / "packaging/gitlab/templates/solo.yml"
INPUT = r"\$\[\[ inputs\.(\w+) \]\]"
SHORT_GRACE = 0.5, 0.5  # seconds, instead of GITHUB_GRACE
GITHUB_GRACE = 7.5, 2.0  # really 7.5 and 2.5: the job must end half a second earlier


class Pipeline:
    """The top process of a step on a runner. `cancel` does what that runner does to cancel it."""

    def __init__(self, machine, words, cancel, variables=None, **options):
        self.cancel = lambda: cancel(self.process)
        environment = {**machine.environment, "CI": "true", **(variables or {})}
        options = {
            "env": environment,
            "cwd": machine.bin,
            "stdin": subprocess.DEVNULL,
            "text": True,
            **options,
        }
        self.process = machine.start_words(*words, **options)


# --- GitHub: ProcessInvoker.cs, ScriptHandler.cs--------------------------------------------------


def run_github(machine, text, shell=None, variables=None):
    """Run `bash -e FILE`, or for `shell: bash` the words of ScriptHandlerHelpers."""
    assert "${{" not in text, (
        "the runner pastes it into the script: the name of a branch could run commands"
    )
    script = machine.path / f"step-{len(machine.started)}.sh"
    script.write_text(text)
    strict = {None: [], "bash": ["--noprofile", "--norc", "-o", "pipefail"]}[shell]
    variables = {"GITHUB_ACTIONS": "true", **(variables or {})}
    return Pipeline(machine, ["bash", *strict, "-e", script], cancel_github, variables)


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
    checkout, step = job["steps"]
    assert checkout["uses"].startswith("actions/checkout@") and "self-hosted" in job["runs-on"]
    if "uses" in step:
        assert step["uses"] == "./.github/actions/solo"
        return run_action(machine, step["with"])
    return run_github(machine, step["run"], step.get("shell"))


def run_action(machine, values, action=ACTION):
    """Run the composite action, whose folder is `action`."""
    step = yaml.safe_load((ACTION / "action.yml").read_text())["runs"]["steps"][0]
    return run_github(machine, step["run"], step["shell"], make_variables(machine, values, action))


def make_variables(machine, values, action=ACTION):
    """Map `values` and the defaults of other inputs to variables, as its `env` says. Return them
    and those of the runner.
    """
    known = yaml.safe_load((ACTION / "action.yml").read_text())
    assert set(values) <= set(known["inputs"]) and known["runs"]["using"] == "composite"
    inputs = {
        name: values.get(name, about.get("default", "")) for name, about in known["inputs"].items()
    }
    inputs = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in inputs.items()
    }
    [step] = known["runs"]["steps"]
    temporary = machine.path / "_temp"
    temporary.mkdir(exist_ok=True)
    (temporary / "path").touch()
    places = {
        "GITHUB_ACTION_PATH": action,
        "GITHUB_PATH": temporary / "path",
        "RUNNER_TEMP": temporary,
    }
    variables = {name: str(place) for name, place in places.items()}
    for name, value in step["env"].items():
        variables[name] = re.sub(
            r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], value
        )
    return variables


# --- GitLab: shells/bash.go, killer_unix.go-------------------------------------------------------


def run_gitlab(machine, text):
    """Run a login shell in a new process group."""
    return start_gitlab(machine, text, cancel_gitlab, preexec_fn=os.setpgrp)


def run_gitlab_by_su(machine, text):
    """Run it like the runner of GitLab's packages, which has the option --user: below su, in a
    session of its own.
    """
    return start_gitlab(machine, text, cancel_su, start_new_session=True)


def start_gitlab(machine, text, cancel, **options):
    """The login shell evaluates the script in a pipeline."""
    [job] = yaml.safe_load(text).values()
    script = machine.path / f"script-{len(machine.started)}.sh"
    lines = "\n".join(job["script"]).replace("'", "'\\''")
    script.write_text(
        f"PATH={machine.environment['PATH']}\n"
        "if set -o | grep pipefail > /dev/null; then set -o pipefail; fi; set -o errexit\n"
        f"set +o noclobber\n: | eval '{lines}'\nexit 0\n"
    )
    variables = {
        "GITLAB_CI": "true",
        **{name: about["value"] for name, about in job.get("variables", {}).items()},
    }
    return Pipeline(machine, ["bash", "--login", script], cancel, variables, **options)


def run_component(machine, text):
    """Run the job that the component makes of the inputs."""
    [include] = yaml.safe_load(text)["include"]
    assert re.fullmatch(r"\S+/solo@\S+", include["component"])
    return run_gitlab(machine, yaml.safe_dump(fill_component(include["inputs"])[1]))


def fill_component(values):
    """Return (the head of the template, its jobs with these inputs). Like GitLab, replace a value
    that is one input by its type.
    """
    head, jobs = yaml.safe_load_all(COMPONENT.read_text())
    known = head["spec"]["inputs"]
    assert set(values) <= set(known)
    inputs = {
        name: values[name] if name in values else about["default"] for name, about in known.items()
    }
    for name, about in known.items():
        assert re.search(about.get("regex", ""), str(inputs[name])), name

    def fill(node):
        if isinstance(node, dict):
            return {fill(key): fill(value) for key, value in node.items()}
        if isinstance(node, list):
            return list(map(fill, node))
        whole = re.fullmatch(INPUT, node) if isinstance(node, str) else None
        if whole or not isinstance(node, str):
            return inputs[whole[1]] if whole else node
        return re.sub(INPUT, lambda found: inputs[found[1]], node)

    return head, fill(jobs)


def cancel_su(process):
    """Signal the shell alone, as su(1) does when the runner sends SIGTERM to the process group of
    su.
    """
    process.terminate()
    process.wait(PATIENCE)


def cancel_gitlab(process):
    """Send SIGTERM to the group. The runner sends SIGKILL ten minutes later."""
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(PATIENCE)


# --- Jenkins: BourneShellScript.java, ProcessTree.java--------------------------------------------


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
    }

    def cancel(process):
        """Send SIGTERM to every process with the variable, children first, and wait for each."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if f"JENKINS_SERVER_COOKIE={cookie}\0" in read_file(f"/proc/{pid}/environ"):
                kill_recursively(int(pid))

    return Pipeline(
        machine, ["nohup", "sh", "-xe", script], cancel, variables, start_new_session=True
    )


def kill_recursively(pid):
    for child in read_file(f"/proc/{pid}/task/{pid}/children").split():
        kill_recursively(int(child))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        wait_dead(pid)


def read_file(path):
    try:
        return open(path, errors="replace").read()
    except OSError:
        return ""


# --- a Makefile-----------------------------------------------------------------------------------


def run_makefile(machine, text):
    (machine.bin / "Makefile").write_text(text)
    return Pipeline(machine, ["make", "deploy"], lambda process: process.terminate())


Recipe = collections.namedtuple("Recipe", "start id text")
GITHUB = [
    Recipe(run_workflow, f"workflow.yml:{name}", text)
    for name, text in read_jobs().items()
    if "hold:" not in text
]
STEP = GITHUB[0]
GITLAB = Recipe(run_gitlab, "gitlab-ci.yml", read_example("gitlab-ci.yml"))
USE = """
include:
  - component: gitlab.example.com/tools/solo/solo@1.0.0
    inputs:
      name: deploy
      run: ./deploy.sh
"""
MAKEFILE = Recipe(run_makefile, "Makefile", read_example("Makefile").partition("\nnewest:")[0])
RECIPES = [
    *GITHUB,
    GITLAB,
    Recipe(run_component, "component", USE),
    Recipe(run_jenkins, "Jenkinsfile", read_example("Jenkinsfile")),
    MAKEFILE,
]


def run(machine, block, old="", new=""):
    """Start a pipeline of this recipe, with `new` in place of `old`."""
    assert old in block.text
    return block.start(machine, block.text.replace(old, new))


def put_probe(machine, *ignored):
    """Make ./deploy.sh a program that logs each signal. It ends on SIGTERM, unless that is in
    `ignored`.
    """
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


# --- concurrent pipelines-------------------------------------------------------------------------


def count_jobs(machine):
    """Return how many jobs have started. The recipe with the action has two commands; the first one
    counts.
    """
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


# --- cancelled------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.id)
def test_cancel_signals_the_job_and_the_next_pipeline_runs(new, block):
    machine = new()
    put_probe(machine)
    machine.release()
    pipeline = run(machine, block)
    find_job(machine)

    pipeline.cancel()

    until(lambda: "end" in machine.read_log())
    assert read_signals(machine) == ["signal:2"] * (block in GITHUB) + ["signal:15", "end"]
    put_plain(machine)
    assert finish(run(machine, block).process)[0] == 0


@pytest.mark.tool("setpriv")
def test_cancel_by_gitlab_reaches_a_job_below_su_by_the_death_signal(new):
    """su kills the shell, which is not in the runner's process group."""
    machine = new()
    put_probe(machine)
    pipeline = run_gitlab_by_su(machine, GITLAB.text)
    find_job(machine)

    pipeline.cancel()

    until(lambda: len(read_signals(machine)) == 2)
    assert read_signals(machine) == ["signal:15", "end"]
    put_plain(machine)
    machine.release()
    assert finish(run_gitlab_by_su(machine, GITLAB.text).process)[0] == 0


def put_stubborn(machine):
    """Make ./deploy.sh end on any signal, with a descendant in another session that only SIGKILL
    ends.
    """
    put_probe(machine, signal.SIGTERM)
    (machine.bin / "deploy.sh").rename(machine.bin / "stubborn.sh")
    write_program(machine.bin / "deploy.sh", "#!/bin/sh\nsetsid ./stubborn.sh &\nexec sleep 600\n")


@pytest.mark.full
@pytest.mark.tool("setsid")
def test_stubborn_descendant_is_dead_before_the_runner_kills_solo(new):
    """Run both recipes at once, because each of them needs its whole grace."""
    runs = []
    for block in GITHUB:
        machine = new()
        put_stubborn(machine)
        pipeline = run(
            machine, block, *(["            ./migrate.sh\n"] if "migrate" in block.text else [])
        )
        runs.append((block, machine, pipeline, find_job(machine)))

    run_threads(lambda one: cancel_github(one[2].process, GITHUB_GRACE), runs)

    for block, machine, pipeline, stubborn in runs:
        ended = pipeline.process.returncode != -signal.SIGKILL and read_state(stubborn) in (
            "gone",
            "Z",
        )
        assert ended, block.id
        put_plain(machine)
        machine.release()
        assert finish(run(machine, block).process)[0] == 0, block.id


# --- the action-----------------------------------------------------------------------------------

HOSTILE = """a b' "c" $(touch pwned) `touch pwned` $HOME ; touch pwned #"""


def test_inputs_of_the_action_are_never_evaluated(new):
    machine = new()
    text = "printf '%s|' one \"two  three\" '$four'\nenv | grep -c ^SOLO_INPUT_ || true\n"

    status, out, err = finish(run_action(machine, {"name": HOSTILE, "run": text}).process)
    assert (status, out) == (0, "one|two  three|$four|0\n"), err
    for name in ("wait", "timeout", "latest", "replace"):
        status, out, err = finish(
            run_action(machine, {"name": "job", "run": "touch ran", name: HOSTILE}).process
        )
        assert (status, out, err.count("\n")) == (125, "", 1) and err.startswith("solo: "), err

    assert not {"pwned", "ran"} & set(os.listdir(machine.bin))


def test_failed_line_fails_the_action_and_busy_is_75(new):
    machine = new()
    assert finish(
        run_action(machine, {"name": "job", "run": "false | cat\necho not reached"}).process
    )[:2] == (1, "")
    run_action(machine, {"name": "job", "run": "./build.sh"})
    machine.wait_for_starts(1)

    status, out, err = finish(run_action(machine, {"name": "job", "run": "./build.sh"}).process)

    assert (status, err.count("\n")) == (75, 1) and "job: busy" in err


def remove_solo(machine, *programs):
    """Leave `programs` alone in PATH."""
    shutil.rmtree(machine.bin)
    machine.bin.mkdir()
    for program in programs:
        found = shutil.which(program, path="/usr/bin:/bin") or pytest.skip(
            f"needs {program} of the system"
        )
        (machine.bin / program).symlink_to(found)
    machine.environment["PATH"] = str(machine.bin)


INSTALLERS = ("bash", "env", "python3", "mkdir", "cp", "chmod")


@pytest.mark.full
@pytest.mark.parametrize("source", ["beside", "around"])
def test_action_installs_a_missing_solo_for_this_step_and_later_ones(new, source):
    """From solo.pyz beside it, as in a copy of the folder, or from the source around it, as the
    runner downloads it.
    """
    machine = new()
    remove_solo(machine, *INSTALLERS)
    action = ACTION
    if source == "beside":
        action = machine.path / "action"
        shutil.copytree(ACTION, action)
        make_pyz(action / "solo.pyz")
    values = {"name": "job", "run": "command -v solo; echo $SOLO_NAME"}
    folder = machine.path / "_temp/solo-bin"

    done = finish(run_action(machine, values, action).process)

    assert done == (0, f"{folder}/solo\njob\n", "")
    assert (machine.path / "_temp/path").read_text() == f"{folder}\n"
    machine.environment["PATH"] += f":{folder}"
    assert (
        finish(run_action(machine, values, machine.path / "gone").process)[0] != 0
    )  # a witness: the folder is used
    assert finish(run_action(machine, values, action).process)[0] == 0
    assert (machine.path / "_temp/path").read_text() == f"{folder}\n"


def test_action_reports_what_it_cannot_use(new):
    machine = new()
    (machine.path / "action").mkdir()
    shutil.copy(ACTION / "guard.sh", machine.path / "action")
    wrong = [
        ({"name": "", "run": "true"}, "name is empty"),
        ({"name": "job"}, "run is empty"),
        ({"name": "job", "hold": "yes"}, "hold is 'yes', neither true nor false"),
        ({"name": "job", "hold": True, "run": "true"}, "hold goes without run and timeout"),
        ({"name": "job", "hold": True, "timeout": "1h"}, "hold goes without run and timeout"),
    ]
    for programs in (None, INSTALLERS, ["bash"]):
        if programs:
            remove_solo(machine, *programs)
            message = (
                "cannot find solo in PATH "
                if "cp" in programs
                else "cannot install solo: there is no python3"
            )
            wrong = [({"name": "job", "run": "true"}, message)]
        for values, message in wrong:
            status, out, err = finish(run_action(machine, values, machine.path / "action").process)
            assert (status, out, err.count("\n")) == (125, "", 1)
            assert err.startswith(f"solo: action: {message}"), err


WORKER = """
while read -r script; do
    bash --noprofile --norc -e -o pipefail "$script" </dev/null
    echo "status $?"
done
"""


def test_action_holds_a_name_until_the_process_of_the_job_ends(new):
    """The shell that starts the steps of the manual's job stands for Runner.Worker."""
    machine = new()
    [job] = yaml.safe_load(read_jobs()["steps"])["jobs"].values()
    _, hold, migrate, deploy = job["steps"]
    assert hold["uses"] == "./.github/actions/solo"
    guard = yaml.safe_load((ACTION / "action.yml").read_text())["runs"]["steps"][0]
    environment = {**machine.environment, **make_variables(machine, hold["with"])}
    worker = machine.start_words("bash", "-c", WORKER, env=environment, cwd=machine.bin)
    steps = {
        guard["run"]: 0,
        "solo -n release true": 125,
        migrate["run"]: None,
        deploy["run"]: None,
    }
    for number, (text, status) in enumerate(steps.items()):
        (machine.path / f"{number}.sh").write_text(text)
        worker.stdin.write(f"{machine.path}/{number}.sh\n".encode())
        worker.stdin.flush()
        assert status is None or read_line(worker) == f"status {status}"
    machine.wait_for_starts(1)  # of migrate.sh
    waiter = machine.type("solo -n release --wait forever -- build.sh")
    until(lambda: machine.count_waiters() == 1)
    assert [row["child"] for row in machine.list() if row["state"] == "held"] == [worker.pid]

    machine.release()
    assert [read_line(worker), read_line(worker)] == ["status 0"] * 2
    assert machine.count("start:deploy.sh") == 1 and machine.count_waiters() == 1
    worker.kill()

    assert finish(waiter)[0] == 0


# --- the component--------------------------------------------------------------------------------


def test_run_of_the_component_is_evaluated_once_and_by_bash_alone(new):
    machine = new()
    text = "printf '%s|' one \"two  three\" '$four'\nfalse | cat\necho not reached\n"
    include = {
        "component": "gitlab.example.com/tools/solo/solo@1",
        "inputs": {"name": "a/b", "run": text},
    }

    done = finish(run_component(machine, yaml.safe_dump({"include": [include]})).process)

    assert done[:2] == (1, "one|two  three|$four|"), done


@pytest.mark.parametrize(
    "values", [{"name": HOSTILE}, {"name": "a\nb"}, {"name": "job", "wait": HOSTILE}]
)
def test_component_refuses_inputs_that_a_shell_would_evaluate(values):
    fill_component({"name": "deploy/prod", "run": "true", "wait": "1h30m"})

    with pytest.raises(AssertionError):
        fill_component({"run": "true", **values})


@pytest.mark.full
def test_action_component_and_its_jobs_fit_the_schemas_of_github_and_gitlab(tmp_path):
    check = find_script("check-jsonschema")
    head, jobs = fill_component({"name": "deploy", "run": "./deploy.sh"})
    texts = {"head": head, "jobs": jobs, "wrong": {"deploy": {**jobs["solo"], "tags": 7}}}
    for name, text in texts.items():
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(text))

    files = {
        ACTION / "action.yml": "github-actions",
        **{tmp_path / f"{name}.yml": "gitlab-ci" for name in texts},
    }
    found = [
        builds.run(check, "--builtin-schema", f"vendor.{schema}", path)
        for path, schema in files.items()
    ]

    assert [one.returncode for one in found] == [0, 0, 0, 1], "".join(
        one.stdout + one.stderr for one in found
    )
