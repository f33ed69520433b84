"""The packages: reproducible builds, the Debian package in clean roots, and one file for any Python."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, TESTS
from guest import PACKAGES
from pages import read_blocks
from roots import get_root, start_container
from test_install import run

from solo.engines.targets import ENGINES
from solo.text.missing import LIBRARIES

pytestmark = pytest.mark.network

MANUAL = [path.name for path in (ROOT / "man").iterdir()]
IGNORED = shutil.ignore_patterns(".git", ".venv*", "dist", "build", "__pycache__", ".*_cache", ".hypothesis")
DEB_TOOLS = pytest.mark.tool("dh", "pybuild", "pyproject-build", "hatchling")
# A different environment must not change the bytes.
ELSEWHERE = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "HOME": "/proc/nowhere", "SOLO_DIR": "/proc/nowhere"}


def build(tree, *targets, prefix=(), umask=0o022, **environment):
    """Make `targets` from a copy of the source at `tree`; return {suffix: file} of its dist/."""
    shutil.copytree(ROOT, tree, ignore=IGNORED)
    python = sys.executable
    # `-o` counts the venv as up to date: this Python has what the targets need.
    words = [*prefix, "make", "-C", tree, "-o", ".venv/made", f"PYTHON={python}", f"VENV_PYTHON={python}", *targets]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    result = run(*words, env={**inherited, **environment}, umask=umask)
    assert result.returncode == 0, result.stdout + result.stderr
    return {path.suffix: path for path in (tree / "dist").iterdir()}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="module")
def deb(place):
    return build(place / "deb", "deb")[".deb"]


@pytest.fixture(scope="module")
def pyz(place):
    return build(place / "pyz", "pyz")[".pyz"]


@pytest.mark.root
@pytest.mark.tool("unshare")
@pytest.mark.parametrize("targets", [["dist", "pyz"], pytest.param(["deb"], marks=DEB_TOOLS)], ids=" ".join)
def test_builds_are_reproducible_and_use_source_date_epoch(tmp_path, targets):
    here = build(tmp_path / "here", *targets)
    for path in (tmp_path / "here").rglob("*"):
        os.utime(path, (1e9, 1e9))
    there = build(
        tmp_path / "some/where/else",
        *targets,
        prefix=["unshare", "--map-user=1000", "--map-group=1000"],
        umask=0o077,
        **ELSEWHERE,
    )
    dated = build(tmp_path / "dated", *targets, SOURCE_DATE_EPOCH="1700000000")

    assert here.keys() == there.keys() == dated.keys()
    for suffix in here:
        assert here[suffix].read_bytes() == there[suffix].read_bytes(), suffix
        assert (here[suffix].read_bytes() == dated[suffix].read_bytes()) == (suffix == ".pyz")  # it has no dates


@DEB_TOOLS
@pytest.mark.tool("lintian")
def test_lintian_finds_nothing(deb):
    found = run("lintian", "--display-info", "--display-experimental", "--pedantic", "--show-overrides", deb)

    assert (found.returncode, found.stdout) == (0, "")


def test_debian_version_is_that_of_solo():
    from solo import __version__

    assert (ROOT / "packaging/debian/changelog").read_text().startswith(f"solo-run ({__version__}) ")


def test_debian_copyright_has_the_text_of_license():
    words = (ROOT / "LICENSE").read_text().partition("Permission")[2].split()

    assert (ROOT / "packaging/debian/copyright").read_text().replace("\n .\n", "\n").partition("Permission")[
        2
    ].split() == words


def test_make_deb_names_missing_tools(tmp_path):
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "dpkg-query").chmod(0o755)

    result = run("make", "-C", ROOT, "deb", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    assert result.returncode == 2
    assert re.match(r"solo: make deb lacks tools of Debian: apt install dpkg-dev debhelper [a-z3 -]+\n", result.stderr)


@pytest.fixture(scope="module")
def unpacked(place, deb):
    """A directory with the files of the package."""
    assert run("dpkg-deb", "-x", deb, place / "unpacked").returncode == 0
    return place / "unpacked"


def read_manual(unpacked):
    return "".join(gzip.decompress(page.read_bytes()).decode() for page in unpacked.glob("usr/share/man/*/solo*.gz"))


@DEB_TOOLS
def test_texts_of_the_debian_package_name_its_solo(unpacked):
    units = [path.read_text() for path in (unpacked / "usr/share/doc/solo-run/examples/systemd").glob("*.service")]
    texts = "\n".join([*units, read_manual(unpacked), (unpacked / "usr/share/doc/solo-run/README.md").read_text()])

    started = re.findall(r"(?m)^ *Exec(?:Start|Condition)=(\S+)", texts)
    assert len(started) >= len(units) + 5 and set(started) == {"/usr/bin/solo"}
    assert (unpacked / "usr/bin/solo").exists()


@DEB_TOOLS
def test_debian_package_has_every_example_of_the_source(unpacked):
    folder = unpacked / "usr/share/doc/solo-run/examples"

    for example in ("systemd", "action", "prometheus", "container", "kubernetes", "ansible", "gitlab"):
        names = {file.name for file in (ROOT / "packaging" / example).iterdir()}
        assert names == {file.name for file in (folder / example).iterdir()}


@DEB_TOOLS
def test_debian_package_has_the_files_that_its_readme_names(unpacked):
    folder = unpacked / "usr/share/doc/solo-run"
    readme = (folder / "README.md").read_text()
    named = re.findall(r"/usr/share/doc/solo-run[\w/.]*\w", readme + read_manual(unpacked))

    assert {link for link in re.findall(r"\]\(([^)#:]+)\)", readme) if not (folder / link).exists()} == set()
    assert named and all((unpacked / path[1:]).exists() for path in named)


@pytest.fixture(scope="module")
def newcomers(place, deb):
    """Run newcomer.sh in a clean root of each suite, both at once. Return {suite: directory with its results}."""
    later = place / "later"
    assert run("dpkg-deb", "-R", deb, later).returncode == 0
    control = (later / "DEBIAN/control").read_text()
    (later / "DEBIAN/control").write_text(re.sub("(?m)^Version: .*", r"\g<0>+later", control))
    started = {}
    for suite, packages in (("bookworm", PACKAGES), ("trixie", PACKAGES)):
        lab = place / suite
        lab.mkdir()
        root = get_root(suite, packages)
        shutil.copy(TESTS / "newcomer.sh", lab)
        shutil.copy(deb, lab)
        assert run("dpkg-deb", "-b", later, lab / "later.deb").returncode == 0
        words = (f"--machine=solo-{suite}", "sh", "/lab/newcomer.sh", deb.name, "later.deb")
        started[suite] = lab, start_container(root, lab, *words)
    try:
        for _, container in started.values():
            container.wait(600)
    finally:
        for _, container in started.values():
            if container.poll() is None:
                container.kill()
                container.wait()
    return {suite: lab for suite, (lab, _) in started.items()}


@pytest.fixture(params=["bookworm", "trixie"])
def newcomer(request, newcomers):
    lab = newcomers[request.param]
    if not (lab / "ready").exists():
        logs = [file.read_text() for file in (lab / "console", lab / "prepared") if file.exists()]
        pytest.skip(f"apt gets no packages there: {''.join(logs)[-300:]}")
    return lab


class TestNewcomer:
    """The results of newcomer.sh in a clean root of both suites."""

    pytestmark = [
        pytest.mark.root,
        DEB_TOOLS,
        pytest.mark.tool("debootstrap", "systemd-nspawn"),
        pytest.mark.timeout(900),
    ]

    def test_two_commands_guard_a_crontab_line(self, newcomer):
        run, *_ = json.loads((newcomer / "history").read_text())

        assert (run["command"], run["outcome"]) == (["touch", "/lab/ran-by-cron"], "ok")

    def test_launcher_views_and_module_work_with_libraries_of_debian(self, newcomer):
        assert (newcomer / "date").read_text() == "now\n"
        assert (newcomer / "start").read_text() == "#!/usr/bin/python3 -IS\n"
        assert (newcomer / "lock").read_text() == "<solo.Hold of job>\n"
        assert "--loud-after" in (newcomer / "help").read_text() and (newcomer / "help").read_text().endswith("\n0\n")
        assert (newcomer / "mistyped").read_text() == "solo: --jsn: no such option (did you mean --json?)\n125\n"

    def test_hint_for_a_missing_library_works_as_typed(self, newcomer):
        hint = (newcomer / "hint").read_text().splitlines()

        assert hint[0].endswith(" (install: apt install python3-kazoo)") and (hint[1], hint[-1]) == ("125", "69")

    def test_manual_completions_and_private_directories_are_installed(self, newcomer):
        installed = (newcomer / "files.installed").read_text().split()

        assert (newcomer / "places").read_text() == "/run/solo root 700\n/var/lib/solo root 700\n"
        assert (newcomer / "bash").read_text() == "complete -F _solo solo\n"
        assert {"/usr/share/zsh/vendor-completions/_solo", "/usr/share/fish/vendor_completions.d/solo.fish"} <= set(
            installed
        )
        for page in MANUAL:
            assert f"/usr/share/man/man{page[-1]}/{page}.gz" in installed

    def test_package_conflicts_with_the_other_package_that_has_a_solo(self, newcomer):
        assert "\nRemv solo-run " in "\n" + (newcomer / "other").read_text()

    def test_upgrade_keeps_the_name_of_a_running_command(self, newcomer):
        assert "solo-run\t0.1.0+later" in (newcomer / "upgraded").read_text()
        assert re.fullmatch(r"solo: held: busy: held for \d+s by pid \d+ .*\n75\n", (newcomer / "busy").read_text())
        assert "held   exclusive" in (newcomer / "list").read_text()

    def test_purge_keeps_only_held_names(self, newcomer):
        assert ".hold." in (newcomer / "purged.held").read_text()
        assert "/var/lib/solo\n" in (newcomer / "files.installed").read_text()
        assert (newcomer / "files.after").read_text() == (newcomer / "files.before").read_text() == ""
        assert (newcomer / "done").exists()


@pytest.mark.root
@pytest.mark.timeout(900)  # some sixty packages
@pytest.mark.tool("debootstrap", "systemd-nspawn")
def test_commands_of_the_readme_work_in_order_from_a_fresh_clone(tmp_path):
    """In a clean root. test_recipes.py runs the crontab line."""
    [block] = [block for block in read_blocks() if block.kind == "debian"]
    shutil.copytree(ROOT, tmp_path / "clone", ignore=IGNORED)
    script = [
        "set -ex",
        "export DEBIAN_FRONTEND=noninteractive",
        "echo 'APT::Get::Assume-Yes \"true\";' >/etc/apt/apt.conf.d/yes",
        "apt-get -qq update",
        "touch /lab/ready",
        "cd /lab/clone",
        *block.lines[:-1],
        "solo -- date +now >/lab/date",
    ]
    (tmp_path / "typed.sh").write_text("\n".join(script) + "\n")

    typed = subprocess.run(
        [
            "systemd-nspawn",
            "-q",
            "-D",
            get_root("trixie", PACKAGES),
            "--register=no",
            "--keep-unit",
            "--volatile=overlay",
            "--machine=solo-clone",
            f"--bind={tmp_path}:/lab",
            "sh",
            "/lab/typed.sh",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
    )

    if not (tmp_path / "ready").exists():
        pytest.skip(f"apt gets no packages there: {typed.stderr[-300:]}")
    assert typed.returncode == 0, typed.stdout[-500:] + typed.stderr[-500:]
    assert (tmp_path / "date").read_text() == "now\n"


@pytest.fixture(scope="module")
def bare(place):
    """A Python without libraries."""
    assert run(sys.executable, "-m", "venv", "--without-pip", place / "bare").returncode == 0
    return place / "bare/bin/python"


class TestOneFile:
    def test_one_file_runs_commands_without_libraries(self, lab, bare, pyz):
        for words in ([bare, pyz], ["env", f"PATH={bare.parent}:{os.environ['PATH']}", pyz]):
            ran = run(*words, "-n", "job", "--", "sh", "-c", "echo $SOLO_NAME; exit 5", env=lab.environment)

            assert (ran.returncode, ran.stdout, ran.stderr) == (5, "job\n", "")

    def test_program_imports_lock_and_run_from_one_file(self, lab, bare, pyz):
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import solo\n"
            "with solo.Lock('job'): print(solo.holders('job')[0].name, solo.run(['echo'], name='other').returncode, flush=True)"
        )

        ran = run(bare, "-c", code, pyz, env=lab.environment)

        assert (ran.stdout, ran.stderr) == ("\njob 0\n", "")

    def test_views_of_one_file_use_installed_libraries(self, lab, pyz):
        ran = run(sys.executable, pyz, "list", "--json", env=lab.environment)

        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[]\n", "")

    @pytest.mark.parametrize(
        "words", [["--help"], ["top", "-h"], ["list", "--bogus"], ["list", "--help"]], ids=" ".join
    )
    def test_help_names_missing_libraries_in_one_line(self, lab, bare, pyz, words):
        ran = run(bare, pyz, *words, env=lab.environment)

        command = f"{bare} -m ensurepip && {bare} -m pip install " + " ".join(
            f"'{LIBRARIES[library]}'" for library in LIBRARIES
        )
        assert (ran.returncode, ran.stdout) == (125, "")
        assert ran.stderr == f"solo: this subcommand needs typer, rich and psutil (install: {command})\n"

    def test_views_for_scripts_need_no_libraries(self, lab, bare, pyz):
        found = [run(bare, pyz, *words, env=lab.environment) for words in (["list"], ["list", "--json"], ["metrics"])]

        assert [(ran.returncode, ran.stderr) for ran in found] == [(0, "")] * 3
        assert (found[1].stdout, found[2].stdout[-6:]) == ("[]\n", "# EOF\n")


@pytest.mark.skipif(not os.access("/usr/bin/apt", os.X_OK), reason="needs apt")
def test_hint_for_the_python_of_debian_is_apt(lab, pyz):
    ran = run("/usr/bin/python3", "-IS", pyz, "list", "--help", env=lab.environment)

    assert ran.returncode == 125
    assert re.fullmatch(
        "solo: this subcommand needs .* \\(install: apt install python3-typer python3-rich python3-psutil\\)\n",
        ran.stderr,
    )


def test_named_libraries_match_pyproject():
    project = (ROOT / "pyproject.toml").read_text()

    assert f"dependencies = {json.dumps(list(LIBRARIES.values()))[:-1]}, 'tomli" in project
    for kind in ENGINES.values():
        assert not kind.library or f'{kind.module.partition(".")[0]} = ["{kind.requirement}"]' in project


def test_wheel_has_every_page_of_the_manual():
    project = (ROOT / "pyproject.toml").read_text()

    for page in MANUAL:
        assert f'"man/{page}" = "share/man/man{page[-1]}/{page}"\n' in project
