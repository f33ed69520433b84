"""Installation: `make install` and `uninstall`, wheel and sdist. Tests that need a package index skip without one."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from conftest import PATIENCE, ROOT, until

pytestmark = pytest.mark.network


def list_tree(path):
    return sorted(
        os.path.relpath(os.path.join(folder, name), path)
        for folder, folders, files in os.walk(path)
        for name in folders + files
    )


def run(*words, **options):
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=4 * PATIENCE, **options
    )


def make(*words, start=run, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return start("make", "-C", ROOT, f"PYTHON={sys.executable}", *words, env={**environment, **variables})


def start(*words, **options):
    """Start a program in a new session."""
    return subprocess.Popen(
        list(map(str, words)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


@pytest.fixture(scope="module")
def index():
    """Skip the test if pip cannot get packages."""
    result = run(
        sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--force-reinstall", "--no-deps", "hatchling"
    )
    if result.returncode:
        pytest.skip(f"pip gets no packages: {result.stderr[-200:]}")


@pytest.mark.tool("strace")
def test_make_install_works_and_uninstall_removes_exactly_its_files(lab, index):
    prefix = lab.path / "usr"
    (prefix / "share/man/man1").mkdir(parents=True)
    (prefix / "share/man/man1/other.1").write_text("other")
    before = list_tree(lab.path / "usr")

    result = make("install", f"PREFIX={prefix}")
    assert result.returncode == 0, result.stderr

    lab.script = str(prefix / "bin/solo")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"
    assert lab.list() == []
    assert lab.run("--help").returncode == 0
    assert open(lab.script).readline().endswith("/lib/solo/bin/python -IS\n")
    assert (
        run("strace", "-f", "-e", "trace=open,openat", lab.script, "--version").stderr.count("site-packages/solo/") == 0
    )
    (prefix / "lib/solo/launcher").write_bytes(b"for another Python")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"
    for file in (
        "share/man/man1/solo.1",
        "share/man/man3/solo.3",
        "share/bash-completion/completions/solo",
        "share/zsh/site-functions/_solo",
        "share/fish/vendor_completions.d/solo.fish",
    ):
        assert (prefix / file).stat().st_size > 200
    page = (prefix / "share/man/man7/solo.7").read_text()
    assert page.count("ExecStart=") == page.count(f"ExecStart={prefix}/bin/solo ") > 0
    assert make("install", f"PREFIX={prefix}").returncode == 0  # a second time, over the first
    assert make("uninstall", f"PREFIX={prefix}").returncode == 0
    assert list_tree(lab.path / "usr") == before


def install_by_make(path, dist):
    assert make("install", f"PREFIX={path}/usr").returncode == 0
    return path / "usr/bin/solo"


def install_by_pip(path, dist):
    assert run(sys.executable, "-m", "venv", path / "venv").returncode == 0
    assert run(path / "venv/bin/pip", "install", "-q", find(dist, "*.whl")).returncode == 0
    return path / "venv/bin/solo"


def install_by_uv(path, dist):
    """Install by uv, whose environments have no pip."""
    environment = {**os.environ, "UV_TOOL_DIR": f"{path}/tools", "UV_TOOL_BIN_DIR": f"{path}/bin"}
    result = run(
        sys.executable, "-m", "uv", "tool", "install", "--python", sys.executable, find(dist, "*.whl"), env=environment
    )
    assert result.returncode == 0, result.stderr
    return path / "bin/solo"


def install_as_one_file(path, dist):
    """Make solo.pyz, and a script that runs it by a Python without libraries."""
    assert run(sys.executable, "-m", "venv", "--without-pip", path / "bare").returncode == 0
    assert run(sys.executable, ROOT / "packaging/pyz.py", path / "solo.pyz").returncode == 0
    (path / "solo").write_text(f'#!/bin/sh\nexec {path}/bare/bin/python {path}/solo.pyz "$@"\n')
    (path / "solo").chmod(0o755)
    return path / "solo"


def type_hint(refused):
    """Run the command in the hint of a refusal, with a PATH that has no programs."""
    command = re.search(r"\(install: (/.*)\)\n", refused.stderr.decode())[1]
    return run("/bin/sh", "-c", command, env={"PATH": "/nowhere"})


@pytest.mark.parametrize("install", [install_by_make, install_by_pip, install_by_uv, install_as_one_file])
def test_hint_for_a_missing_library_works_as_typed(lab, index, dist, install):
    """test_packages.py has the same test for the Debian package."""
    lab.script = str(install(lab.path, dist))
    words = ("--via", "zookeeper://127.0.0.1:1", "-n", "job", "true")

    refused = lab.run(*words)
    typed = type_hint(refused)
    reached = lab.run(*words)

    assert (refused.returncode, typed.returncode, reached.returncode) == (125, 0, 69), typed.stderr
    assert lab.list() == []


def interrupt(prefix, number):
    """Start `make install`, signal its process group once it makes its venv, and wait until its session is empty."""
    installation = make("install", f"PREFIX={prefix}", start=start)
    until(lambda: (prefix / "lib/solo.new/pyvenv.cfg").exists() or installation.poll() is not None)
    os.killpg(installation.pid, number)
    installation.communicate(timeout=PATIENCE)
    until(lambda: not run("pgrep", "-s", installation.pid).stdout)
    assert installation.returncode != 0


@pytest.mark.tool("pgrep")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_make_install_leaves_nothing(lab, number):
    interrupt(lab.path / "usr", number)

    assert not (lab.path / "usr").exists()


@pytest.mark.tool("pgrep")
def test_uninstall_removes_the_rest_of_a_killed_make_install(lab):
    interrupt(lab.path / "usr", signal.SIGKILL)
    assert (lab.path / "usr/lib/solo.new").exists()

    assert make("uninstall", f"PREFIX={lab.path}/usr").returncode == 0

    assert not (lab.path / "usr").exists()


def test_failed_make_install_leaves_nothing(lab, index):
    prefix = lab.path / "usr"
    (prefix / "share/man/man1/solo.1").mkdir(parents=True)  # makes one of the last steps fail
    before = list_tree(prefix)

    early = make("install", f"PREFIX={prefix}", PIP_NO_INDEX="1")
    left_early = list_tree(prefix)
    late = make("install", f"PREFIX={prefix}")

    assert early.returncode and "No matching distribution" in early.stderr
    assert late.returncode and "solo.1" in late.stderr
    assert left_early == list_tree(prefix) == before


def test_failed_make_install_keeps_the_older_one_working(lab, index):
    prefix = lab.path / "usr"
    page = prefix / "share/man/man1/solo.1"
    assert make("install", f"PREFIX={prefix}").returncode == 0
    before = list_tree(prefix)
    page.unlink()
    page.mkdir()
    (prefix / "lib/solo/older").touch()

    assert make("install", f"PREFIX={prefix}").returncode

    assert list_tree(prefix) == sorted([*before, "lib/solo/older"])
    lab.script = str(prefix / "bin/solo")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"


@pytest.fixture
def public():
    """A directory that every user can enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.root
def test_make_install_by_root_refuses_a_python_that_others_cannot_run(public):
    (public / "home").mkdir(mode=0o700)
    python = public / "home/bin/python"
    assert run(sys.executable, "-m", "venv", "--without-pip", python.parent.parent).returncode == 0

    refused = make("install", f"PYTHON={python}", f"PREFIX={public}/usr")
    for_root_alone = run(python, ROOT / "packaging/others.py", public / "home/.local")

    assert refused.returncode == 2 and refused.stderr.startswith("solo: make install: other users cannot run ")
    assert "(make install PYTHON=/usr/bin/python3; or " in refused.stderr
    assert (for_root_alone.returncode, os.listdir(public)) == (0, ["home"])


@pytest.mark.root
@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="no Python of the system")
def test_other_users_can_run_a_root_installation_with_any_umask(public, index):
    if run("/usr/bin/python3", "-c", "import ensurepip, sys; sys.exit(sys.version_info < (3, 9))").returncode:
        pytest.skip("the system's Python cannot make a venv")
    words = "make", "-C", ROOT, "install", "PYTHON=/usr/bin/python3", f"PREFIX={public}/usr"

    assert run(*words, umask=0o077).returncode == 0

    ran = run(public / "usr/bin/solo", "--dir", public, "--version", user=65534, group=65534, extra_groups=[])
    assert (ran.returncode, ran.stderr) == (0, "")


def test_destdir_stages_files_that_run_from_prefix(lab, index):
    stage, prefix = lab.path / "stage", lab.path / "final"

    assert make("install", f"DESTDIR={stage}", f"PREFIX={prefix}").returncode == 0

    assert not prefix.exists()
    os.rename(f"{stage}{prefix}", prefix)
    lab.script = str(prefix / "bin/solo")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"
    assert lab.run("list").returncode == 0
    found = run("grep", "-rlI", stage, prefix, "--include=pyvenv.cfg", "--include=solo")
    assert found.stdout == ""


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A directory with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    result = run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return folder


def find(folder, pattern):
    [path] = folder.glob(pattern)
    return path


def test_pip_install_of_the_sdist_works_in_a_clean_environment(lab, index, dist):
    venv = lab.path / "venv"
    assert run(sys.executable, "-m", "venv", venv).returncode == 0

    result = run(venv / "bin/pip", "install", "-q", "--disable-pip-version-check", find(dist, "*.tar.gz"))

    assert result.returncode == 0, result.stderr
    lab.script = str(venv / "bin/solo")
    assert lab.run("-n", "job", "--", "sh", "-c", "exit 5").returncode == 5
    assert lab.list() == []
    assert (venv / "share/man/man1/solo.1").exists()
    assert (
        run(venv / "bin/python", "-m", "solo", "--dir", lab.directory, "-n", "job", "--", "echo", "ran").stdout
        == "ran\n"
    )


@pytest.mark.tool("git")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a clone by git")
def test_sdist_has_every_file_for_make_install_pyz_and_deb(lab, index, dist):
    with tarfile.open(find(dist, "*.tar.gz")) as archive:
        archive.extractall(lab.path)
    source = find(lab.path, "solo_run-*")
    tracked = {path for path in run("git", "-C", ROOT, "ls-files").stdout.split() if not path.startswith(".ci/")}

    assert {path for path in tracked if not (source / path).exists()} == set()
    assert (
        run("make", "-C", source, f"PYTHON={sys.executable}", f"PREFIX={lab.path}/usr", "install", "pyz").returncode
        == 0
    )
    lab.script = str(lab.path / "usr/bin/solo")
    assert lab.list() == []
    assert (source / "dist/solo.pyz").exists()


@pytest.mark.parametrize(
    "installer, manual",
    [
        (["pipx", "install", "--python"], "manual/man1/solo.1"),
        (["uv", "tool", "install", "--python"], "tools/solo-run/share/man/man1/solo.1"),
    ],
    ids=["pipx", "uv"],
)
def test_tool_installers_get_command_views_and_manual_from_the_wheel(lab, index, dist, installer, manual):
    home, tools = lab.path, lab.path / "tools"
    environment = {
        **os.environ,
        "PIPX_HOME": f"{home}/pipx",
        "PIPX_BIN_DIR": f"{home}/bin",
        "PIPX_MAN_DIR": f"{home}/manual",
        "UV_TOOL_DIR": str(tools),
        "UV_TOOL_BIN_DIR": f"{home}/bin",
    }

    result = run(sys.executable, "-m", *installer, sys.executable, find(dist, "*.whl"), env=environment)

    assert result.returncode == 0, result.stderr
    lab.script = str(home / "bin/solo")
    assert lab.run("-n", "job", "--", "sh", "-c", "exit 5").returncode == 5
    assert lab.list() == []
    assert (home / manual).stat().st_size > 1000


def test_wheel_without_libraries_runs_commands_and_prints_help(lab, dist):
    target = lab.path / "target"
    assert (
        run(
            sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target, find(dist, "*.whl")
        ).returncode
        == 0
    )
    words = [sys.executable, "-S", "-m", "solo", "--dir", lab.directory]

    ran, help = (run(*words, *rest, cwd=target) for rest in (["-n", "job", "--", "echo", "ran"], ["list", "--help"]))

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ran\n", "")
    assert (help.returncode, help.stderr) == (0, "") and help.stdout.startswith("Usage: solo list ")


# The oldest that pyproject.toml allows, those of Debian bookworm with its click, and those that pip chooses.
LIBRARIES = {
    "oldest": ["typer==0.15.4", "rich==13.3.1", "psutil==5.9.4"],
    "bookworm": ["typer==0.7.0", "click==8.1.3", "rich==13.3.1", "psutil==5.9.4"],
    "newest": ["typer<0.29", "rich", "psutil"],
}


def test_oldest_libraries_match_pyproject():
    declared = re.search("(?m)^dependencies = (.*)$", (ROOT / "pyproject.toml").read_text()).group(1)

    assert re.findall(r"(\w+)>=([\d.]+)", declared.partition("'tomli")[0]) == [
        tuple(library.split("==")) for library in LIBRARIES["oldest"]
    ]


@pytest.fixture(scope="module", params=LIBRARIES)
def libraries(request, index, tmp_path_factory):
    """A directory with one set of LIBRARIES."""
    folder = tmp_path_factory.mktemp("libraries")
    result = run(sys.executable, "-m", "pip", "install", "-q", "--target", folder, *LIBRARIES[request.param])
    if result.returncode:
        pytest.skip(f"pip gets no {request.param} libraries: {result.stderr[-200:]}")
    return folder


def test_views_and_usage_errors_are_the_same_with_all_libraries(lab, libraries):
    lab.script = str(lab.path / "solo")
    source = f"#!{sys.executable} -IS\nimport sys; sys.path[:0] = [{str(ROOT)!r}, {str(libraries)!r}]\n"
    (lab.path / "solo").write_text(source + (ROOT / "solo/__main__.py").read_text())
    (lab.path / "solo").chmod(0o755)
    holder = lab.hold("job")

    results = {}
    for words in (
        "--help",
        "list --help",
        "history --jsn",
        "history --since",
        "lst",
        "show",
        "list",
        "list --json",
        "show job",
        "history --since 1d",
        "doctor",
    ):
        ran = lab.run(*words.split())
        results[words] = ran.returncode, ran.stdout.decode(), ran.stderr.decode()

    for words, shown in (
        ("--help", {"--loud-after", "--name", "metrics", "history"}),
        ("list --help", {"--json", "NAME"}),
    ):
        assert results[words][0] == 0 and shown <= set(re.findall(r"[\w-]+", results[words][1]))
    assert results["history --jsn"] == (125, "", "solo: --jsn: no such option (did you mean --json?)\n")
    assert re.fullmatch("solo: .*--since.* requires an argument\n", results["history --since"][2])
    assert results["lst"] == (127, "", "solo: lst: command not found (did you mean solo list?)\n")
    assert results["show"] == (125, "", "solo: show: no name given (solo list shows them)\n")
    assert results["list"][1].splitlines()[1].split()[:4] == ["job", "held", "exclusive", str(holder.pid)]
    assert [row["launcher"] for row in json.loads(results["list --json"][1])] == [holder.pid]
    assert "job: 1 held, 0 waiting" in results["show job"][1] and str(holder.child) in results["show job"][1]
    assert "running" in results["history --since 1d"][1]
    assert "names live in" in results["doctor"][1]
    assert all(err == "" for status, out, err in results.values() if status == 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="the default prefix of root")
def test_default_prefix_depends_on_the_user():
    assert "/usr/local/bin/solo" in make("-n", "install").stdout
    with open(ROOT / "Makefile") as makefile:  # opened here, as the other user may not reach it
        user = subprocess.run(
            ["make", "-f", "-", "-n", "install", "HOME=/somewhere"],
            stdin=makefile,
            capture_output=True,
            text=True,
            cwd="/",
            user=65534,
            env={"PATH": os.environ["PATH"]},
        )
    assert "/somewhere/.local/bin/solo" in user.stdout


def test_oldest_python_is_named_alike_everywhere():
    [minor] = re.findall(r'^requires-python = ">=3\.(\d+)"$', (ROOT / "pyproject.toml").read_text(), flags=re.M)
    lines = {
        "Makefile": f"every CPython >= 3.{minor} ",
        "README.md": f"Python 3.{minor} or newer",
        "CONTRIBUTING.md": f"Python 3.{minor} and newer",
        "packaging/pyz.py": f'sys.version_info >= (3, {minor}) or sys.exit("solo: needs Python 3.{minor} or newer")',
        "packaging/install.sh": f"sys.version_info < (3, {minor}))' || fail \"$PYTHON is older than 3.{minor} ",
        "packaging/debian/control": f"python3 (>= 3.{minor}),",
        "pyproject.toml": f'"Programming Language :: Python :: 3.{minor}"',
        "tests/pythons.py": f"int(version[1]) >= {minor}:",
        ".github/workflows/ci.yml": f'python: ["3.{minor}",',
    }

    assert [path for path, line in lines.items() if line not in (ROOT / path).read_text()] == []
