"""The packages: reproducible builds, the Debian package in clean roots, and one file for any
Python.
"""

import gzip
import json
import os
import re
import shutil
import sys

import pytest
from builds import IGNORED, make, make_bare_python, run
from conftest import NOBODY, ROOT, TESTS, in_mounts, need_namespaces, until, write_program
from guest import PACKAGES, get_root, start_container
from pages import read_readme
from tmux import Tmux

from solo import __version__
from solo.engines.targets import ENGINES
from solo.text.missing import LIBRARIES

pytestmark = [pytest.mark.long, pytest.mark.full, pytest.mark.network]

MANUAL = [path.name for path in (ROOT / "man").iterdir()]
DEB_TOOLS = pytest.mark.tool("dh", "pybuild", "pyproject-build", "hatchling")
# A different environment must not change the bytes.
ELSEWHERE = {
    "TZ": "Asia/Tokyo",
    "LC_ALL": "C",
    "HOME": "/proc/nowhere",
    "SOLO_DIR": "/proc/nowhere",
}


def build(tree, *targets, prefix=(), umask=0o022, **environment):
    """Make `targets` from a copy of the source at `tree`; return {suffix: file} of its dist/."""
    shutil.copytree(ROOT, tree, ignore=IGNORED)
    # `-o` counts the venv as up to date: this Python has what the targets need.
    words = ("-o", ".venv/dist", f"VENV_PYTHON={sys.executable}", *targets)
    result = make(*words, source=tree, prefix=prefix, options={"umask": umask}, **environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return {path.suffix: path for path in (tree / "dist").iterdir()}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="module")
def deb(place):
    """The package solo-run; beside it is the one of the link."""
    build(place / "deb", "deb")
    [path] = (place / "deb/dist").glob("solo-run_*.deb")
    return path


@pytest.fixture(scope="module")
def pyz(place):
    return build(place / "pyz", "pyz")[".pyz"]


@pytest.fixture(scope="module")
def sdist(place):
    return build(place / "dist", "dist")[".gz"]


@pytest.mark.root
@pytest.mark.tool("unshare")
@pytest.mark.parametrize(
    "kind", ["sdist", "pyz", pytest.param("deb", marks=[DEB_TOOLS, pytest.mark.rare])]
)
def test_builds_are_reproducible(tmp_path, request, kind):
    here = request.getfixturevalue(kind).parent
    become = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    need_namespaces(become)

    there = build(
        tmp_path / "some/where/else",
        kind.replace("sdist", "dist"),
        prefix=become,
        umask=0o077,
        **ELSEWHERE,
    )

    assert there and {path.name for one in there.values() for path in one.parent.iterdir()} == {
        path.name for path in here.iterdir()
    }
    for path in there.values():
        for file in path.parent.iterdir():
            assert file.read_bytes() == (here / file.name).read_bytes(), file.name


@DEB_TOOLS
@pytest.mark.tool("lintian")
def test_lintian_finds_nothing(deb):
    """Beside what packaging/debian/solo-run.lintian-overrides explains."""
    found = run(
        "lintian",
        "--display-info",
        "--display-experimental",
        "--pedantic",
        *deb.parent.glob("*.deb"),
    )

    assert (found.returncode, found.stdout) == (0, "")


def test_debian_files_have_version_and_license():
    words = (ROOT / "LICENSE").read_text().partition("Permission")[2].split()

    text = (ROOT / "packaging/debian/copyright").read_text().replace("\n .\n", "\n")
    assert text.partition("Permission")[2].split() == words
    assert (
        (ROOT / "packaging/debian/changelog").read_text().startswith(f"solo-run ({__version__}) ")
    )


def test_make_deb_names_missing_tools(tmp_path):
    write_program(tmp_path / "dpkg-query", "#!/bin/sh\nexit 1\n")

    result = run("make", "-C", ROOT, "deb", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    lacks = r"solo: make deb lacks tools of Debian: apt install gcc libc6-dev dpkg-dev [a-z3 -]+\n"
    assert result.returncode == 2 and re.match(lacks, result.stderr)


def test_make_rpm_names_missing_tools_before_it_works():
    result = run("make", "-C", ROOT, "rpm", "CC=no-cc", env={"PATH": os.environ["PATH"]})

    assert result.returncode == 2 and re.match(
        r"solo: make rpm lacks( rpmbuild)? no-cc \(Fedora: dnf install rpm-build gcc; ",
        result.stderr,
    )
    assert result.stdout.count("\n") <= 2


def test_recipes_have_maintainer_and_address_of_one_file(tmp_path):
    """The notice of `make lint` is no failure: who publishes solo decides."""
    shutil.copytree(ROOT / "packaging", tmp_path / "packaging")
    words = [sys.executable, tmp_path / "packaging/publisher.py"]

    assert run(*words).stdout.startswith("notice: MAINTAINER and URL of packaging/publisher.py ")
    assert run(*words, "Ann <ann@solo.test>", "https://solo.test").stdout == ""
    assert run(*words).stdout == ""
    left = run("grep", "-rl", "solo@example.org\\|https://example.org/solo", tmp_path / "packaging")
    assert left.stdout == ""
    assert "Ann <ann@solo.test>" in (tmp_path / "packaging/debian/control").read_text()


@pytest.fixture(scope="module")
def unpacked(place, deb):
    """A directory with the files of the package."""
    assert run("dpkg-deb", "-x", deb, place / "unpacked").returncode == 0
    return place / "unpacked"


@DEB_TOOLS
def test_debian_package_has_every_example_of_the_source(unpacked):
    recipes = {
        "alpine",
        "arch",
        "debian",
        "nix",
        "rpm",
        "systemd",
        "tmpfiles",
        "completions",
        "__pycache__",
    }
    folders = [
        path
        for path in (ROOT / "packaging").iterdir()
        if path.is_dir() and path.name not in recipes
    ]
    folder = unpacked / "usr/share/doc/solo-run/examples"

    sources = {path: path.parent for path in folders} | {ROOT / "examples": ROOT / "examples"}
    wanted = {
        str(path.relative_to(base))
        for one, base in sources.items()
        for path in one.rglob("*")
        if path.is_file()
    }
    assert {"crontab", "systemd/solo@.service", "action/action.yml"} < wanted
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == wanted
    units = {path.name for path in unpacked.glob("*/systemd/system/*")}
    assert units == {"solo-clean.service", "solo-clean.timer"}


@DEB_TOOLS
def test_debian_package_has_the_files_that_its_readme_names(unpacked):
    folder = unpacked / "usr/share/doc/solo-run"
    readme = (folder / "README.md").read_text()
    manual = [
        gzip.decompress(page.read_bytes()).decode()
        for page in unpacked.glob("usr/share/man/*/solo*.gz")
    ]
    named = re.findall(r"/usr/share/doc/solo-run[\w/.@-]*\w", "".join([readme, *manual]))

    assert {
        link for link in re.findall(r"\]\(([^)#:]+)\)", readme) if not (folder / link).exists()
    } == set()
    assert named and all((unpacked / path[1:]).exists() for path in named)


@pytest.fixture(scope="module", params=["trixie", "bookworm"])
def newcomer(request, place, deb):
    """Run newcomer.sh in a clean root of a suite; return the directory with its results."""
    lab, later = place / request.param, place / f"later-{request.param}"
    lab.mkdir()
    assert run("dpkg-deb", "-R", deb, later).returncode == 0
    control = (later / "DEBIAN/control").read_text()
    (later / "DEBIAN/control").write_text(re.sub("(?m)^Version: .*", r"\g<0>+later", control))
    assert run("dpkg-deb", "-b", later, lab / "later.deb").returncode == 0
    for file in (
        TESTS / "newcomer.sh",
        ROOT / "packaging/debian/tests/smoke",
        *deb.parent.glob("*.deb"),
    ):
        shutil.copy(file, lab)
    words = (f"--machine=solo-{request.param}", "sh", "/lab/newcomer.sh", deb.name, "later.deb")
    run_in_root(request.param, lab, *words)
    if not (lab / "ready").exists():
        logs = [file.read_text() for file in (lab / "console", lab / "prepared") if file.exists()]
        pytest.skip(f"apt gets no packages there: {''.join(logs)[-300:]}")
    return lab


def run_in_root(suite, lab, *words):
    """Run a command to its end in a clean root."""
    with start_container(get_root(suite, PACKAGES), lab, *words) as container:
        try:
            container.wait(600)
        finally:
            container.kill()


class TestNewcomer:
    """The results of newcomer.sh."""

    pytestmark = [
        pytest.mark.rare,
        pytest.mark.root,
        DEB_TOOLS,
        pytest.mark.tool("debootstrap", "systemd-nspawn"),
    ]

    def test_two_commands_guard_a_crontab_line(self, newcomer):
        run, *_ = json.loads((newcomer / "history").read_text())

        assert (run["command"], run["outcome"]) == (["touch", "/lab/ran-by-cron"], "ok")

    def test_launcher_views_and_module_work_with_libraries_of_debian(self, newcomer):
        assert (newcomer / "date").read_text() == "now\n"
        start = (newcomer / "start").read_text()
        assert start.startswith("/usr/bin/python3 -IS /usr/lib/solo/solo 0 -n started ")
        assert " -> /usr/lib/solo/program\n" in start
        assert (newcomer / "lock").read_text() == "<solo.Hold of job>\n"
        assert (newcomer / "smoke.status").read_text() == "0\n", (newcomer / "smoked").read_text()[
            -2000:
        ]
        assert "--loud-after" in (newcomer / "help").read_text() and (
            newcomer / "help"
        ).read_text().endswith("\n0\n")
        assert (
            newcomer / "mistyped"
        ).read_text() == "solo: --jsn: no such option (did you mean --json?)\n125\n"

    def test_hint_for_a_missing_library_works_as_typed(self, newcomer):
        hint = (newcomer / "hint").read_text().splitlines()

        assert hint[0].endswith(" (install: apt install python3-kazoo)") and (
            hint[1],
            hint[-1],
        ) == ("125", "69")

    def test_manual_completions_and_private_directories_are_installed(self, newcomer):
        installed = (newcomer / "files.installed").read_text().split()

        assert (newcomer / "places").read_text() == "/run/solo root 700\n/var/lib/solo root 700\n"
        assert (newcomer / "bash").read_text() == "complete -F _solo solo\n"
        completions = {"zsh/vendor-completions/_solo", "fish/vendor_completions.d/solo.fish"}
        assert {f"/usr/share/{file}" for file in completions} <= set(installed)
        for page in MANUAL:
            assert f"/usr/share/man/man{page[-1]}/{page}.gz" in installed

    def test_only_the_link_conflicts_with_the_other_package_that_has_a_solo(self, newcomer):
        simulated = "\n" + (newcomer / "other").read_text()
        assert "\nRemv solo-is-solo-run " in simulated and "\nRemv solo-run " not in simulated
        assert (newcomer / "alone").read_text() == "ran\n"

    def test_first_crontab_line_of_www_data_runs(self, newcomer):
        assert (newcomer / "www-data").read_text() == "by-www ok\n"

    def test_upgrade_keeps_the_name_of_a_running_command(self, newcomer):
        assert f"solo-run\t{__version__}+later" in (newcomer / "upgraded").read_text()
        assert re.fullmatch(
            r"solo: held: busy: held for \d+s by pid \d+ .*\n75\n", (newcomer / "busy").read_text()
        )
        assert "held   exclusive" in (newcomer / "list").read_text()

    def test_purge_keeps_only_held_names(self, newcomer):
        kept = (newcomer / "purged.held").read_text().splitlines()
        assert kept[:2] == ["/run/solo/held", "/run/solo/held/.gate"] and len(kept) == 3
        assert "/var/lib/solo\n" in (newcomer / "files.installed").read_text()
        assert (
            (newcomer / "files.after").read_text() == (newcomer / "files.before").read_text() == ""
        )
        assert (newcomer / "done").exists()


TYPED = r"""
set -ex
export DEBIAN_FRONTEND=noninteractive
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/yes
apt-get -qq update
touch /lab/ready
cd /lab/clone
apt-get -qq install make
make deb 2>&1 | sed -n 's/.*Debian: //p' | sh # the tools that it lacks
%s
solo -- date +now >/lab/date
"""


@pytest.mark.rare
@pytest.mark.root
@pytest.mark.tool("debootstrap", "systemd-nspawn")
def test_commands_of_the_readme_work_in_order_from_a_fresh_clone(tmp_path):
    """In a clean root. test_recipes.py runs the crontab line."""
    [line] = [
        line for block in read_readme() for line in block.lines if line.startswith("make deb")
    ]
    shutil.copytree(ROOT, tmp_path / "clone", ignore=IGNORED)
    (tmp_path / "typed.sh").write_text(TYPED % line)

    run_in_root("trixie", tmp_path, "--machine=solo-clone", "sh", "/lab/typed.sh")

    if not (tmp_path / "ready").exists():
        pytest.skip(f"apt gets no packages there: {(tmp_path / 'console').read_text()[-300:]}")
    assert (tmp_path / "date").exists(), (tmp_path / "console").read_text()[-1000:]
    assert (tmp_path / "date").read_text() == "now\n"


# --- other distributions: built from the sdist, run on this machine in a layer over its /usr

RECIPES = {
    "rpm": ROOT / "packaging/rpm/solo-run.spec",
    "arch": ROOT / "packaging/arch/PKGBUILD",
    "alpine": ROOT / "packaging/alpine/APKBUILD",
}
ALPINE = """
    set -eu
    srcdir=$1/src pkgdir=$1/pkg
    mkdir "$srcdir" "$pkgdir"
    . ./APKBUILD
    tar -xzf "$source" -C "$srcdir"
    for step in build check package; do (cd "$builddir"; "$step"); done
"""


@pytest.fixture(scope="module")
def rpms(place):
    """Build from the tree of a clone: the RPM package and its source package."""
    build(place / "rpm", "rpm")
    folder = place / "rpm/build/rpm"
    return sorted(folder.glob("*RPMS/*.rpm")) + sorted(folder.glob("RPMS/*/*.rpm"))


def unpack_rpm(folder, sdist, request):
    *_, package = request.getfixturevalue("rpms")
    assert run("sh", "-c", f"rpm2cpio {package} | bsdtar -x -C {folder} -f -").returncode == 0
    return folder


def unpack_arch(folder, sdist, request):
    """makepkg refuses to run as root, and with --nodeps needs no pacman."""
    shutil.copy(sdist, folder)
    for file in (RECIPES["arch"], RECIPES["arch"].with_name("solo-run.install")):
        shutil.copy(file, folder)
    become = "unshare", f"--map-user={NOBODY}", f"--map-group={NOBODY}"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PACMAN": "true"}
    made = run(*become, "makepkg", "--nodeps", "--nosign", cwd=folder, env=environment)
    assert made.returncode == 0, made.stderr
    [package] = folder.glob("solo-run-*.pkg.tar.*")
    root = folder / "root"
    root.mkdir()
    assert run("bsdtar", "-x", "-C", root, "-f", package).returncode == 0
    return root


def unpack_alpine(folder, sdist, request):
    """The script does what abuild does, which Debian lacks."""
    shutil.copy(sdist, folder)
    shutil.copy(RECIPES["alpine"], folder)
    made = run("busybox", "sh", "-c", ALPINE, "sh", folder, cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder / "pkg"


KINDS = [
    pytest.param(unpack_rpm, marks=pytest.mark.tool("rpmbuild", "rpm2cpio", "bsdtar"), id="rpm"),
    pytest.param(
        unpack_arch, marks=pytest.mark.tool("makepkg", "fakeroot", "bsdtar", "unshare"), id="arch"
    ),
    pytest.param(unpack_alpine, marks=pytest.mark.tool("busybox"), id="alpine"),
]


@pytest.fixture(scope="module", params=KINDS)
def root(request, place, sdist):
    """A directory with the files of a package."""
    folder = place / request.param.__name__
    folder.mkdir()
    return request.param(folder, sdist, request)


@pytest.mark.root
@pytest.mark.tool("unshare")
def test_solo_of_a_package_runs_commands_and_views(lab, root):
    enter = in_mounts(f'mount -t overlay overlay -o "lowerdir={root}/usr:/usr" /usr')

    ran = run(
        *enter,
        "/usr/bin/solo",
        "-n",
        "job",
        "--",
        "sh",
        "-c",
        "echo $SOLO_NAME; exit 5",
        env=lab.environment,
    )
    listed = run(
        *enter, "/usr/bin/solo", "list", "--json", env=lab.environment
    )  # the only view that needs no library

    assert (ran.returncode, ran.stdout, ran.stderr) == (5, "job\n", "")
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "[]\n", "")


def test_package_has_the_files_of_every_package_and_no_others(root):
    files = [
        str(path.relative_to(root / "usr")) for path in (root / "usr").rglob("*") if path.is_file()
    ]
    modules = [path for path in files if "-packages/solo/" in path]

    around = {
        re.sub(r"^(share/man.*)\.gz$", r"\1", path)
        for path in {*files} - {*modules}
        if "/doc/" not in path
    }
    version = next(iter(re.findall(r"solo_run-(.*)\.dist-info", " ".join(files))))
    [site] = {path.partition("/solo/")[0] for path in modules}
    completions = (
        "bash-completion/completions/solo",
        "zsh/site-functions/_solo",
        "fish/vendor_completions.d/solo.fish",
    )
    wanted = {
        "bin/solo",
        "bin/solo-run",
        "share/man/man1/solo-run.1",
        "lib/solo/solo",
        "lib/solo/program",
        f"{site}/solo_run-{version}.dist-info/METADATA",
    }
    wanted |= {f"share/man/man{page[-1]}/{page}" for page in MANUAL} | {
        f"share/{file}" for file in completions
    }
    units = {f"lib/systemd/system/solo-clean.{kind}" for kind in ("service", "timer")}
    units.add("lib/tmpfiles.d/solo-run.conf")
    assert {path for path in around if "/licenses/" not in path} - units == wanted
    assert units <= around or "alpine" in str(root)
    assert len(modules) >= 2 * len([*(ROOT / "solo").rglob("*.py")])  # with bytecode
    assert f"{ROOT}" not in (root / "usr/lib/solo/solo").read_text()


@pytest.mark.tool("rpmbuild", "rpmlint")
def test_rpmlint_finds_nothing(rpms):
    found = run("rpmlint", "-c", ROOT / "packaging/rpm/rpmlint.toml", RECIPES["rpm"], *rpms)

    assert found.returncode == 0 and " 0 errors, 0 warnings" in found.stdout, found.stdout


@pytest.mark.tool("shellcheck")
def test_shellcheck_finds_nothing_in_recipes_and_scripts():
    # abuild and makepkg set and read the variables of their recipes.
    for words in (
        ("-s", "bash", "-e", "SC2034,SC2154", RECIPES["arch"]),
        ("-s", "sh", "-e", "SC2034,SC2154", RECIPES["alpine"]),
        *(
            ("-s", "sh", ROOT / f"packaging/{name}.sh")
            for name in ("stage", "install", "stub", "check")
        ),
        *(("-s", "sh", path) for path in (ROOT / "packaging/debian").glob("solo-run.p*")),
        (ROOT / "packaging/debian/tests/smoke",),
    ):
        found = run("shellcheck", *words)
        assert (found.returncode, found.stdout) == (0, "")


NIX = """
    let
      nixpkgs = {
        lib = {
          genAttrs = names: make: builtins.listToAttrs (map (name: { inherit name; value = make name; }) names);
          licenses.mit = "MIT";
          platforms.linux = [ ];
        };
        legacyPackages.x86_64-linux.python3Packages = {
          hatchling = "hatchling"; typer = "typer"; rich = "rich"; psutil = "psutil"; buildPythonApplication = built: built;
        };
      };
      outputs = (import %s).outputs { self = null; inherit nixpkgs; };
    in removeAttrs outputs.packages.x86_64-linux.default [ "src" ]
"""


@pytest.mark.tool("nix-instantiate")
def test_nix_flake_evaluates_with_the_version_and_libraries_of_pyproject():
    """In place of nixpkgs, which needs the network: attributes that return what they were called
    with.
    """
    flake = ROOT / "packaging/nix/flake.nix"

    found = run(
        "nix-instantiate", "--store", "dummy://", "--eval", "--strict", "--json", "-E", NIX % flake
    )

    built = json.loads(found.stdout)
    assert (built["version"], {*built["dependencies"]}) == (__version__, {*LIBRARIES})
    assert built["build-system"] == ["hatchling"]


def read_requirements(text):
    """Return {library: {its limits}} of a recipe. The names of distributions begin with python3-,
    python- or py3-.
    """
    found = re.findall(r"\b(?:python3|python|py3)-(typer|rich|psutil)\b *([<>]=?) *([\d.]+)", text)
    return {
        library: {sign + limit for one, sign, limit in found if one == library}
        for library, _, _ in found
    }


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_recipe_has_version_and_requirements_of_pyproject(recipe):
    text = recipe.read_text()

    assert re.search(r"(?m)^(?:Version: +|pkgver=)(.*)$", text)[1] == __version__
    wanted = {
        library: {*limits.removeprefix(library).split(",")} for library, limits in LIBRARIES.items()
    }
    assert read_requirements(text) == wanted and re.search(r"python3? ?>= ?3\.9\b", text)


@pytest.fixture(scope="module")
def bare(place):
    return make_bare_python(place / "bare")


needs_3_10 = pytest.mark.skipif(
    sys.version_info < (3, 10), reason="typer and rich in the one file need Python 3.10"
)


class TestOneFile:
    def test_one_file_runs_commands_without_libraries(self, lab, bare, pyz):
        for words in ([bare, pyz], ["env", f"PATH={bare.parent}:{os.environ['PATH']}", pyz]):
            ran = run(
                *words,
                "-n",
                "job",
                "--",
                "sh",
                "-c",
                "echo $SOLO_NAME; exit 5",
                env=lab.environment,
            )

            assert (ran.returncode, ran.stdout, ran.stderr) == (5, "job\n", "")

    def test_program_imports_lock_and_run_from_one_file(self, lab, bare, pyz):
        code = "import sys; sys.path.insert(0, sys.argv[1]); import solo\n"
        code += "with solo.Lock('job'): print(solo.holders('job')[0].name, solo.run(['true'], name='a').returncode)"

        ran = run(bare, "-c", code, pyz, env=lab.environment)

        assert (ran.stdout, ran.stderr) == ("job 0\n", "")

    @needs_3_10
    @pytest.mark.parametrize("words", [["--help"], ["top", "-h"], ["list", "--help"]], ids=" ".join)
    def test_help_needs_no_libraries(self, lab, bare, pyz, words):
        ran = run(bare, pyz, *words, env=lab.environment)

        assert "Usage: solo " in ran.stdout and "--dir" in ran.stdout
        assert (ran.returncode, ran.stdout) == (0, lab.run(*words).stdout.decode())

    @needs_3_10
    def test_wrong_option_is_explained_without_libraries(self, lab, bare, pyz):
        ran = run(bare, pyz, "list", "--jsn", env=lab.environment)

        assert (ran.returncode, ran.stderr) == (
            125,
            "solo: --jsn: no such option (did you mean --json?)\n",
        )

    @needs_3_10
    @pytest.mark.tool("tmux")
    def test_views_on_a_terminal_need_no_libraries(self, lab, bare, pyz):
        """The table of `list` is rich's; without psutil `show` and `top` say that they lack the
        processes.
        """
        lab.hold("job")

        for words, line in (
            (["list"], r"job +held +exclusive +\d+ +\d+ .*"),
            (["show", "job"], "solo: processes are not shown: this subcommand needs psutil .*"),
            (["top"], "processes are not shown: this subcommand needs psutil .*"),
        ):
            screen = Tmux([str(bare), str(pyz), *words], lab.environment, 120)
            try:
                until(lambda: any(re.fullmatch(line, row) for row in screen.read()))
            finally:
                screen.close()

    @needs_3_10
    def test_views_for_scripts_need_no_libraries(self, lab, bare, pyz):
        found = [
            run(bare, pyz, *words, env=lab.environment)
            for words in (["list"], ["list", "--json"], ["metrics"])
        ]

        assert [(ran.returncode, ran.stderr) for ran in found] == [(0, "")] * 3
        assert (found[1].stdout, found[2].stdout[-6:]) == ("[]\n", "# EOF\n")


@pytest.mark.root
@pytest.mark.tool("unshare")
@pytest.mark.parametrize(
    "scheme, needs", [("zookeeper", "the Python library kazoo"), ("postgresql", "libpq")]
)
def test_engine_names_the_library_that_it_lacks(lab, bare, pyz, scheme, needs):
    hide = "for file in $(find -L /usr/lib /lib -name libpq.so.5 2>/dev/null); do mount --bind /dev/null $file; done"
    words = [bare, pyz, "-n", "job", "--via", f"{scheme}://127.0.0.1:1/x", "--", "true"]

    ran = run(*in_mounts(hide), *words, env=lab.environment)

    message, _, command = ran.stderr.partition(" (install: ")
    assert (ran.returncode, message) == (125, f"solo: --via {scheme} needs {needs}")
    assert command.endswith(f" -m pip install '{ENGINES[scheme].requirement}')\n")


def test_named_libraries_match_pyproject_and_have_no_upper_limit():
    """An upper limit would exclude solo from the environments of programs that need a newer
    library.
    """
    project = (ROOT / "pyproject.toml").read_text()

    assert f"dependencies = {json.dumps(list(LIBRARIES.values()))[:-1]}, 'tomli" in project
    assert all(re.fullmatch(r"\w+>=[\d.]+", text) for text in LIBRARIES.values())
    for kind in ENGINES.values():
        assert not kind.library or f'{kind.schemes[0]} = ["{kind.requirement}"]' in project


def test_wheel_has_every_page_of_the_manual():
    project = (ROOT / "pyproject.toml").read_text()

    for page in MANUAL:
        assert f'"man/{page}" = "share/man/man{page[-1]}/{page}"\n' in project
