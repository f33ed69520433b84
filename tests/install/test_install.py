"""Installation: `make install` and `uninstall`, wheel and sdist. Tests that need a package index
skip without one.
"""

import ast
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from builds import IGNORED, install, make, make_bare_python, make_pyz, run, start
from conftest import NOBODY, PATIENCE, ROOT, is_blocked, until, write_program, write_solo

from solo.text.missing import LIBRARIES as LIBRARY_LIMITS

pytestmark = [pytest.mark.long, pytest.mark.full, pytest.mark.network]


README = (ROOT / "README.md").read_text()
CUT = r"sed -n 's/^    \(make install .*\)/\1/p' README.md"


def list_tree(path):
    return sorted(str(found.relative_to(path)) for found in path.rglob("*"))


@pytest.fixture(scope="module")
def index():
    """Skip the test if pip cannot get packages."""
    words = "install -q --dry-run --force-reinstall --no-deps hatchling"
    result = run(sys.executable, "-m", "pip", *words.split())
    if result.returncode:
        pytest.skip(f"pip gets no packages: {result.stderr[-200:]}")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return make_bare_python(tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize("path", [".ci/run", ".github/workflows/ci.yml"])
def test_ci_types_the_one_line_of_readme_as_it_stands(path):
    [line] = run("sh", "-c", CUT, cwd=ROOT).stdout.splitlines()
    text = (ROOT / path).read_text()

    assert line.startswith("make install && ") and line.endswith(" && solo -- date")
    assert f'eval "$({CUT})"\n' in text and not re.search(
        r"(?m)^[^#]*make install [^.]", text.replace(CUT, "")
    )


@pytest.mark.tool("setpriv")
@pytest.mark.root
def test_make_install_without_home_says_so():
    become = (
        "env",
        "-u",
        "HOME",
        "setpriv",
        "--reuid=1",
        "--regid=1",
        "--clear-groups",
        "--inh-caps=+dac_read_search",
        "--ambient-caps=+dac_read_search",
    )
    result = run(*become, "make", "-C", ROOT, "install")

    assert "solo: make install: HOME is not set (set it, or PREFIX=DIR)\n" in result.stderr


def test_make_install_works_and_uninstall_removes_exactly_its_files(lab):
    prefix = lab.path / "a prefix"
    (prefix / "share/man/man1").mkdir(parents=True)
    (prefix / "share/man/man1/other.1").write_text("other")
    before = list_tree(prefix)

    install(prefix)

    lab.script = str(prefix / "bin/solo")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"
    assert lab.list() == []
    assert lab.run("--help").returncode == 0
    completions = (
        "bash-completion/completions/solo",
        "zsh/site-functions/_solo",
        "fish/vendor_completions.d/solo.fish",
    )
    for file in ("man/man1/solo.1", "man/man3/solo.3", *completions):
        assert (prefix / "share" / file).stat().st_size > 200
    for _ in range(2):  # over the first; the second removes the first
        install(prefix)
    versions = [
        path for path in (prefix / "lib/solo").iterdir() if path.is_dir() and not path.is_symlink()
    ]
    assert len(versions) == 2 and (prefix / "lib/solo/current").resolve() in versions
    assert make("uninstall", f"PREFIX={prefix}").returncode == 0
    assert list_tree(prefix) == before


@pytest.mark.tool("cc")
def test_stub_changes_neither_environment_nor_name(lab, installed):
    lab.script = str(installed / "bin/solo")

    show = "cat /proc/$PPID/comm; tr '\\0' '\\n' </proc/$PPID/environ"
    ran = lab.run("-n", "job", "--", "sh", "-c", show, env={"A": "1"})
    last = lab.run("-n", "job", "--", "sh", "-c", 'echo "$#" "$@"', "sh", "", "a b", "-n")

    assert ran.stdout.decode() == "solo\nA=1\n"
    assert last.stdout == b"3  a b -n\n"


@pytest.mark.tool("cc")
def test_holder_by_socket_behind_the_stub_has_command_and_note(lab, installed):
    """Both are read from the launcher's command line, in which a word of the stub is first."""
    lab.script = str(installed / "bin/solo")
    lab.use_sockets()
    holder = lab.hold("job", "--note", "why")

    [row] = lab.list("job")

    assert (row["launcher"], row["note"], row["command"][:2]) == (holder.pid, "why", ["sh", "-c"])


@pytest.mark.tool("cc", "cron")
def test_doctor_names_the_installed_command(lab, installed):
    lab.script = str(installed / "bin/solo")

    said = lab.run("doctor").stdout.decode()

    assert f": write {installed}/bin/solo in crontabs, or set PATH there\n" in said


def test_make_install_prints_the_path_line_of_a_crontab(lab):
    prefix = lab.path / "a prefix"
    line = install(prefix, PIP_NO_INDEX="1").stdout.splitlines()[-1].partition(" jobs: ")[2]

    assert line == f"PATH={prefix}/bin:/usr/bin:/bin"
    ran = run("env", "-i", line, f"SOLO_DIR={lab.directory}", "sh", "-c", "solo -n job -- echo ran")
    assert (ran.stdout, ran.stderr) == ("ran\n", "")
    assert " jobs: " not in install(prefix, f"DESTDIR={lab.path}/stage", PIP_NO_INDEX="1").stdout


@pytest.mark.tool("cc")
def test_start_without_its_installation_is_one_line_and_125(lab):
    install(lab.path / "usr")
    shutil.rmtree(lab.path / "usr/lib/solo")

    ran = run(lab.path / "usr/bin/solo", "-n", "job", "true")

    reason = f"solo: cannot start {lab.path}/usr/lib/solo/current/solo: No such file or directory\n"
    assert (ran.returncode, ran.stderr) == (125, reason)


def test_without_compiler_the_script_is_installed(lab):
    result = install(lab.path / "usr", CC="false")

    assert "no C compiler (cc): " in result.stdout and "apt install gcc libc6-dev;" in result.stdout
    lab.script = str(lab.path / "usr/bin/solo")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A prefix with an installed solo."""
    prefix = tmp_path_factory.mktemp("installed")
    install(prefix)
    return prefix


class TestLibraries:
    """Views look better with libraries; nothing needs them."""

    def test_without_network_all_is_installed_but_libraries(self, lab, bare):
        result = install(lab.path / "usr", python=bare, PIP_NO_INDEX="1")

        assert result.stderr == ""
        [line] = [text for text in result.stdout.splitlines() if "missing" in text]
        assert line.startswith(
            "runs and views work as plain text; typer, rich, psutil are missing: pip: "
        )
        assert line.endswith(" (try again where pip reaches its index)")
        lab.script = str(lab.path / "usr/bin/solo")
        assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"
        assert (
            lab.run("hold", "--for", "1m", "kept").returncode
            == lab.run("release", "kept").returncode
            == 0
        )
        holder = lab.hold("job")
        assert f"by pid {holder.pid} (".encode() in lab.run("-n", "job", "true").stderr
        assert lab.run("stop", "job", "-k", "1s").returncode == 0

    @pytest.mark.rare  # the test of the hint installs them in the same way
    def test_pip_adds_pinned_ones_to_the_installation(self, lab, index, bare):
        """Whatever pip's environment says for other installations."""
        other = {
            "PIP_USER": "1",
            "PIP_TARGET": str(lab.path / "target"),
            "PIP_PREFIX": str(lab.path / "prefix"),
        }
        result = install(lab.path / "usr", python=bare, PIP_REQUIRE_VIRTUALENV="1", **other)

        assert result.stderr == "" and "lack" not in result.stdout
        library = lab.path / "usr/lib/solo/current/lib"
        pinned = re.findall(r"(?m)^([\w-]+)==", (ROOT / "packaging/requirements.txt").read_text())
        found = {
            path.name.partition("-")[0].replace("_", "-") for path in library.glob("*.dist-info")
        }
        assert {"typer", "rich", "psutil"} <= found <= set(pinned)
        assert not (lab.path / "target").exists() and not (lab.path / "prefix").exists()
        lab.script = str(lab.path / "usr/bin/solo")
        assert (
            lab.run("list", "--jsn").stderr
            == b"solo: --jsn: no such option (did you mean --json?)\n"
        )

    def test_pins_are_what_pyproject_allows(self):
        from packaging.requirements import Requirement

        text = (ROOT / "packaging/requirements.txt").read_text()
        pins = dict(re.findall(r"(?m)^([\w-]+)==([\w.]+)(?!.*< \"3)", text))
        for text in LIBRARY_LIMITS.values():
            wanted = Requirement(text)
            assert wanted.specifier.contains(pins[wanted.name]), text


def install_by_make(path, dist):
    assert run(sys.executable, "-m", "venv", path / "own").returncode == 0
    install(path / "usr", python=path / "own/bin/python")
    return path / "usr/bin/solo"


def install_by_pip(path, dist):
    """Install the sdist, of which pip makes a wheel."""
    assert run(sys.executable, "-m", "venv", path / "venv").returncode == 0
    result = run(
        path / "venv/bin/pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        find(dist, "*.tar.gz"),
    )
    assert result.returncode == 0, result.stderr
    assert (path / "venv/share/man/man1/solo.1").exists()
    return path / "venv/bin/solo"


def install_by_uv(path, dist):
    """Install by uv, whose environments have no pip."""
    environment = {**os.environ, "UV_TOOL_DIR": f"{path}/tools", "UV_TOOL_BIN_DIR": f"{path}/bin"}
    words = ("-m", "uv", "tool", "install", "--python", sys.executable, find(dist, "*.whl"))
    result = run(sys.executable, *words, env=environment)
    if "Failed to fetch" in result.stderr:
        pytest.skip("needs an index that uv reaches as it is set up")
    assert result.returncode == 0, result.stderr
    assert (path / "tools/solo-run/share/man/man1/solo.1").stat().st_size > 1000
    return path / "bin/solo"


def install_as_one_file(path, dist):
    """Make solo.pyz, and a script that runs it by a Python without libraries."""
    python, pyz = make_bare_python(path / "bare"), make_pyz(path / "solo.pyz")
    return write_program(path / "solo", f'#!/bin/sh\nexec {python} {pyz} "$@"\n')


RARE = [  # the hint is the same text, and pip gets the libraries again for each
    pytest.param(way, marks=pytest.mark.rare)
    for way in (install_by_pip, install_by_uv, install_as_one_file)
]


@pytest.mark.parametrize("way", [install_by_make, *RARE])
def test_hint_for_a_missing_library_works_as_typed(lab, index, dist, way):
    """With a PATH that has no programs. test_packages.py has the same test for the Debian
    package.
    """
    lab.script = str(way(lab.path, dist))
    words = ("--via", "zookeeper://127.0.0.1:1", "-n", "job", "true")

    refused = lab.run(*words)
    command = re.search(r"\(install: (/.*)\)\n", refused.stderr.decode())[1]
    typed = run("/bin/sh", "-c", command, env={"PATH": "/nowhere"})
    reached = lab.run(*words)

    assert (refused.returncode, typed.returncode, reached.returncode) == (125, 0, 69), typed.stderr
    assert lab.list() == [] and lab.run("-n", "job", "--", "sh", "-c", "exit 5").returncode == 5


@pytest.fixture
def slow_compiler(lab):
    """A compiler that says when `make install` calls it, and waits until the test removes a
    file.
    """
    lab.gate = lab.path / "gate"
    lab.gate.touch()
    text = f'#!/bin/sh\necho $$ >{lab.path}/reached\nwhile [ -e {lab.gate} ]; do sleep 0.1; done\nexec cc "$@"\n'
    return {"CC": str(write_program(lab.path / "compiler", text))}


def interrupt(lab, number, compiler):
    """Start `make install`, signal its process group in the middle, and wait until its session is
    empty.
    """
    installation = make("install", f"PREFIX={lab.path}/usr", start=start, **compiler)
    until(lambda: (lab.path / "reached").exists())
    os.killpg(installation.pid, number)
    installation.communicate(timeout=PATIENCE)
    until(lambda: not find_session(installation.pid))
    assert installation.returncode != 0


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_interrupted_make_install_leaves_nothing(lab, number, slow_compiler):
    interrupt(lab, number, slow_compiler)

    assert not (lab.path / "usr").exists()


def test_uninstall_removes_the_rest_of_a_killed_make_install(lab, slow_compiler):
    interrupt(lab, signal.SIGKILL, slow_compiler)
    assert list((lab.path / "usr/lib/solo").iterdir())

    assert make("uninstall", f"PREFIX={lab.path}/usr").returncode == 0

    assert not (lab.path / "usr").exists()


def test_second_make_install_waits_for_the_first(lab, slow_compiler):
    first = make("install", f"PREFIX={lab.path}/usr", start=start, **slow_compiler)
    until(lambda: (lab.path / "reached").exists())
    second = make("install", f"PREFIX={lab.path}/usr", start=start)
    until(lambda: any(is_blocked(pid) for pid in find_session(second.pid)))
    assert not (lab.path / "usr/bin/solo").exists()

    lab.gate.unlink()

    assert [one.wait(4 * PATIENCE) for one in (first, second)] == [0, 0]
    assert run(lab.path / "usr/bin/solo", "--version").returncode == 0


def find_session(leader):
    """Return the pids of a session."""
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(ProcessLookupError):
            found += [pid] * (os.getsid(pid) == leader)
    return found


# One of the last steps fails.
@pytest.mark.parametrize("path", ["share/man/man7/solo.7", "bin/solo"])
def test_failed_make_install_leaves_nothing(lab, path):
    prefix = lab.path / "usr"
    (prefix / path).mkdir(parents=True)
    before = list_tree(prefix)

    failed = make("install", f"PREFIX={prefix}")

    assert failed.returncode and failed.stderr.startswith(f"solo: make install: {prefix}/{path}")
    assert failed.stderr.count("\n") == 2 and list_tree(prefix) == before


def test_failed_make_install_keeps_the_older_one_working(lab):
    prefix = lab.path / "usr"
    page = prefix / "share/man/man7/solo.7"
    install(prefix)
    before = list_tree(prefix)
    page.unlink()
    page.mkdir()

    assert make("install", f"PREFIX={prefix}").returncode

    assert list_tree(prefix) == before
    lab.script = str(prefix / "bin/solo")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"


@pytest.fixture
def public():
    """A directory that every user can enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


SYSTEM = pytest.mark.skipif(
    not os.access("/usr/bin/python3", os.X_OK), reason="no Python of the system"
)


@pytest.fixture
def private_python(public):
    """A Python that only root can run, named python3."""
    (public / "home").mkdir(mode=0o700)
    python = public / "home/bin/python3"
    assert (
        run(
            sys.executable, "-m", "venv", "--without-pip", "--copies", python.parent.parent
        ).returncode
        == 0
    )
    return python


@pytest.mark.root
@SYSTEM
def test_make_install_by_root_passes_over_a_python_that_others_cannot_run(public, private_python):
    nobody = dict(user=NOBODY, group=NOBODY, extra_groups=[])
    base = os.path.realpath(sys.executable)
    if run("sh", "-c", 'exec "$0" -c ""', base, **nobody).returncode == 0:
        pytest.skip("solo would be installed for the public Python of which that is a copy")
    path = f"{private_python.parent}:/usr/bin:/bin"

    result = install(
        public / "usr", python=None, PATH=path, PIP_NO_INDEX="1", options={"umask": 0o077}
    )

    assert re.match(
        r"using /usr/bin/python3 \(3[\d.]+\): other users cannot run .*\n", result.stdout
    )
    ran = run(public / "usr/bin/solo", "--dir", public, "--version", **nobody)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.root
def test_make_install_by_root_refuses_a_typed_python_that_others_cannot_run(public, private_python):
    refused = make("install", f"PREFIX={public}/usr", python=private_python)
    for_root_alone = make(
        "install", f"PREFIX={public}/home/.local", python=private_python, PIP_NO_INDEX="1"
    )

    assert refused.returncode == 2 and refused.stderr.startswith(
        "solo: make install: other users cannot run "
    )
    assert "(make install PYTHON=/usr/bin/python3; or " in refused.stderr
    assert (for_root_alone.returncode, os.listdir(public)) == (0, ["home"])


@pytest.mark.parametrize(
    "words, reason",
    [
        (["PREFIX=usr"], "PREFIX=usr is not an absolute path"),
        (["PYTHON=/nowhere/python"], "/nowhere/python was not found (Debian: apt install python3)"),
        (
            ["PYTHON=/bin/false"],
            "/bin/false is older than Python 3.9, or does not run (PYTHON= names another)",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_make_install_refuses_in_one_line(words, reason):
    refused = make("install", *words)

    assert refused.stderr.splitlines()[0] == f"solo: make install: {reason}"
    assert refused.stdout == "" and refused.stderr.count("\n") == 2  # make's own line is the second


@pytest.mark.tool("git")
def test_make_install_writes_nothing_into_the_clone(lab):
    clone = lab.path / "clone"
    shutil.copytree(ROOT, clone, ignore=IGNORED)
    before = list_tree(clone)

    install(lab.path / "usr", source=clone)

    assert list_tree(clone) == before


@pytest.fixture(params=["a+w", "go-rwx"])
def odd_clone(request, lab):
    """A clone made with umask 0, or with umask 077."""
    clone = lab.path / "clone"
    shutil.copytree(ROOT, clone, ignore=IGNORED)
    assert run("chmod", "-R", request.param, clone).returncode == 0
    return clone


def find_modes(place):
    """Return the modes of the files and directories in `place`, as find(1) prints them: f644."""
    return set(
        run("find", place, "-mindepth", "1", "!", "-type", "l", "-printf", "%y%m\n").stdout.split()
    )


def test_make_install_takes_no_modes_from_the_clone(lab, odd_clone):
    prefix = lab.path / "usr"

    install(prefix, source=odd_clone, PIP_NO_INDEX="1", options={"umask": 0})

    assert find_modes(prefix) == {"d755", "f644", "f755"}
    programs = run("find", prefix, "-type", "f", "-perm", "755", "-printf", "%f\n").stdout.split()
    assert set(programs) <= {"solo"}


def test_package_takes_no_modes_from_the_source(lab, odd_clone):
    (odd_clone / "PKG-INFO").write_text("Version: 9\n")
    words = ("sh", "packaging/stage.sh", lab.path / "root", sys.executable, "/modules")

    staged = run(*words, cwd=odd_clone, umask=0)

    assert (staged.returncode, staged.stderr) == (0, "")
    assert find_modes(lab.path / "root") == {"d755", "f644", "f755"}


def test_destdir_stages_files_that_run_from_prefix(lab):
    stage, prefix = lab.path / "stage", lab.path / "final"

    install(prefix, f"DESTDIR={stage}")

    assert not prefix.exists()
    os.rename(f"{stage}{prefix}", prefix)
    lab.script = str(prefix / "bin/solo")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"
    assert run("grep", "-rlI", stage, prefix).stdout == ""


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


@pytest.mark.tool("git")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a clone by git")
def test_sdist_has_every_file_of_the_source(dist):
    with tarfile.open(find(dist, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = {
        path
        for path in run("git", "-C", ROOT, "ls-files").stdout.split()
        if not path.startswith(".ci/")
    }

    assert tracked - names == set()


def test_pipx_installs_command_views_and_manual_from_the_wheel(lab, index, dist):
    home = {"PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin", "PIPX_MAN_DIR": "manual"}
    environment = {
        **os.environ,
        **{variable: f"{lab.path}/{folder}" for variable, folder in home.items()},
        # `index` asked pip. pipx prefers uv now, which has an index and certificates of its own.
        "PIPX_DEFAULT_BACKEND": "pip",
    }
    words = ("-m", "pipx", "install", "--python", sys.executable, find(dist, "*.whl"))

    result = run(sys.executable, *words, env=environment)

    assert result.returncode == 0, result.stderr
    lab.script = str(lab.path / "bin/solo")
    assert lab.run("-n", "job", "--", "sh", "-c", "exit 5").returncode == 5 and lab.list() == []
    assert (lab.path / "manual/man1/solo.1").stat().st_size > 1000


# The oldest that pyproject.toml allows, those of Debian bookworm with its click, and those that pip
# chooses.
LIBRARIES = {
    "oldest": ["typer==0.15.4", "rich==13.3.1", "psutil==5.9.4"],
    "bookworm": ["typer==0.7.0", "click==8.1.3", "rich==13.3.1", "psutil==5.9.4"],
    "newest": ["typer", "rich", "psutil"],
}


def test_oldest_libraries_match_pyproject():
    declared = re.search("(?m)^dependencies = (.*)$", (ROOT / "pyproject.toml").read_text()).group(
        1
    )

    oldest = [tuple(library.split("==")) for library in LIBRARIES["oldest"]]
    assert re.findall(r"(\w+)>=([\d.]+)", declared.partition("'tomli")[0]) == oldest


# CI runs the tests of the views with the newest in any case.
SETS = [pytest.param(name, marks=[pytest.mark.rare] * (name == "newest")) for name in LIBRARIES]


@pytest.fixture(scope="module", params=SETS)
def libraries(request, index, tmp_path_factory):
    """A directory with one set of LIBRARIES."""
    folder = tmp_path_factory.mktemp("libraries")
    result = run(
        sys.executable, "-m", "pip", "install", "-q", "--target", folder, *LIBRARIES[request.param]
    )
    if result.returncode:
        pytest.skip(f"pip gets no {request.param} libraries: {result.stderr[-200:]}")
    return folder


@pytest.mark.skipif(sys.version_info < (3, 10), reason="the parser of 3.9 knows no older syntax")
def test_older_python_reads_the_first_module_of_one_file():
    """So that its line on the Python that it needs is printed, not a SyntaxError."""
    source = (ROOT / "solo/__main__.py").read_text()

    ast.parse(source, feature_version=(3, 6))
    with pytest.raises(SyntaxError):
        ast.parse(f"{source}\n(newer := 1)", feature_version=(3, 6))


def test_one_file_has_help_whatever_libraries_it_was_made_beside(lab, index, libraries):
    """It contains nothing compiled: instead of a typer that needs pydantic, that of
    requirements.txt.
    """
    python, pyz = make_bare_python(lab.path / "bare"), lab.path / "solo.pyz"
    beside = {**os.environ, "PYTHONPATH": str(libraries)}

    made = run(sys.executable, ROOT / "packaging/pyz.py", pyz, env=beside)
    helped = run(python, pyz, "list", "--help", env=lab.environment)

    assert (made.returncode, made.stderr) == (helped.returncode, helped.stderr) == (0, "")
    assert "Usage: solo list [OPTION]... [NAME]..." in helped.stdout


def test_views_and_usage_errors_are_the_same_with_all_libraries(lab, libraries):
    lab.script = str(write_solo(lab.path / "solo", ROOT, libraries))
    holder = lab.hold("job")
    lines = "--help|list --help|history --jsn|history --since|lst|show|list|list --json|show job|history --since 1d|doctor"

    results = {}
    for words in lines.split("|"):
        ran = lab.run(*words.split())
        results[words] = ran.returncode, ran.stdout.decode(), ran.stderr.decode()

    help_texts = {
        "--help": {"--loud-after", "--name", "metrics", "history"},
        "list --help": {"--json", "NAME"},
    }
    for words, shown in help_texts.items():
        assert results[words][0] == 0 and shown <= set(re.findall(r"[\w-]+", results[words][1]))
    assert results["history --jsn"] == (
        125,
        "",
        "solo: --jsn: no such option (did you mean --json?)\n",
    )
    assert results["history --since"][2] == "solo: --since needs a value\n"
    assert results["lst"] == (127, "", "solo: lst: command not found (did you mean solo list?)\n")
    assert results["show"] == (125, "", "solo: show: no name given (solo list shows them)\n")
    assert results["list"][1].splitlines()[1].split()[:4] == [
        "job",
        "held",
        "exclusive",
        str(holder.pid),
    ]
    assert [row["launcher"] for row in json.loads(results["list --json"][1])] == [holder.pid]
    assert (
        "job: 1 held, 0 waiting" in results["show job"][1]
        and str(holder.child) in results["show job"][1]
    )
    assert "running" in results["history --since 1d"][1]
    assert "names live in" in results["doctor"][1]
    assert all(err == "" for status, out, err in results.values() if status == 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="the default prefix of root")
def test_default_prefix_depends_on_the_user():
    assert "install: PREFIX := /usr/local\n" in make("-np", "install").stdout
    with open(ROOT / "Makefile") as makefile:  # opened here, as the other user may not reach it
        options = {
            "stdin": makefile,
            "cwd": "/",
            "user": 65534,
            "env": {"PATH": os.environ["PATH"]},
        }
        user = run("make", "-f", "-", "-np", "install", "HOME=/somewhere", **options)
    assert "install: PREFIX := /somewhere/.local\n" in user.stdout


def test_oldest_python_is_named_alike_everywhere():
    [minor] = re.findall(
        r'^requires-python = ">=3\.(\d+)"$', (ROOT / "pyproject.toml").read_text(), flags=re.M
    )
    lines = {
        "Makefile": f"every CPython >= 3.{minor} ",
        "README.md": f"Python 3.{minor} or newer",
        "CONTRIBUTING.md": f"Python 3.{minor} and newer",
        "packaging/pyz.py": f'sys.version_info >= (3, {minor}) or sys.exit("solo: needs Python 3.{minor} or newer")',
        "packaging/install.sh": f"sys.exit(sys.version_info < (3, {minor}))'",
        "packaging/install.py": f"tuple(python.version) < (3, {minor}):",
        "packaging/debian/control": f"python3 (>= 3.{minor})",
        "pyproject.toml": f'"Programming Language :: Python :: 3.{minor}"',
        "tests/tools/pythons.py": f"int(version[1]) >= {minor}:",
        ".github/workflows/ci.yml": f'python: ["3.{minor}",',
    }

    assert [path for path, line in lines.items() if line not in (ROOT / path).read_text()] == []
