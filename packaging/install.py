"""Install or remove solo below PREFIX: `install.py install|uninstall PREFIX DESTDIR PYTHON`, from install.sh.

A version lives in a directory of its own, lib/solo/VERSION-XXXXXXXX. The link lib/solo/current names the one in use:
one rename(2) of it is the installation, so a start finds the old solo or the new one at every instant. The version
before stays until the next installation, for those that had just begun to load it. Files outside lib/solo are renamed
into place too. A lock makes a second installation wait. What a killed one left is removed by the next.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import solo  # noqa: E402
from solo.commands.doctor.daemon import CRON_PATH  # noqa: E402
from solo.generate import bundle  # noqa: E402
from solo.kernel import USERS_PLACE  # noqa: E402
from solo.text import missing  # noqa: E402

MADE = "made-directories"  # in lib/solo: those that `make uninstall` removes if they are empty
NAMES = ["python3", "/usr/bin/python3", *(f"python3.{minor}" for minor in range(14, 8, -1))]
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
FOR_ALL = ("/usr/local", "/usr")  # prefixes in the PATH of all accounts
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
COMPLETIONS = {
    "solo.bash": "bash-completion/completions/solo",
    "_solo": "zsh/site-functions/_solo",
    "solo.fish": "fish/vendor_completions.d/solo.fish",
}
# In the environment, for pip: what the user set for other installations would change this one.
PIP = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
NOT_FOR_PIP = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONPATH", "PYTHONHOME")
# Printed by a Python: what install.py must know of it.
PROBE = """import json, sys
path = sys.executable if sys.argv[1:] else sys._base_executable  # without PYTHON= no virtual environment
print(json.dumps([sys.version_info[:3], path, "libpython" in open("/proc/self/maps").read()]))"""
# Printed by a Python: where its libraries are, and the versions of those that views use.
LIBRARIES = """import json, os, site
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in ("typer", "click", "rich", "psutil"):
    try: found[name] = version(name)
    except PackageNotFoundError: pass
print(json.dumps([[path for path in site.getsitepackages() if os.path.isdir(path)], found]))"""


class Failure(Exception):
    """The installation cannot go on; the text says why."""


def say(line: str):
    """Print a line, at once. Nobody may read it."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


class Python:
    """A Python that may run solo: its `path`, `version`, and whether it `is_shared`, linked to libpython.so."""

    def __init__(self, path: str, version: list, is_shared: bool):
        self.path, self.version, self.is_shared = path, version, is_shared

    def __str__(self):
        return f"{self.path} ({'.'.join(map(str, self.version))})"


def ask(python: str, *words: str):
    """Return what a program prints, read as JSON, or None if it fails."""
    try:
        result = subprocess.run(
            [python, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return json.loads(result.stdout) if result.returncode == 0 else None
    except (OSError, ValueError):
        return None


def succeeds(*words: str, **options) -> bool:
    try:
        return subprocess.run(words, **QUIET, **options).returncode == 0
    except OSError:
        return False  # not executable; or a container in which root cannot become that user


def is_private(python: Python, prefix: str) -> bool:
    """Return whether users who can enter `prefix`, or its nearest existing parent, cannot run this Python."""
    while not os.path.isdir(prefix):
        prefix = os.path.dirname(prefix)
    is_public = succeeds("/bin/sh", "-c", 'test -x "$1"', "sh", prefix, **NOBODY)
    return bool(NOBODY) and is_public and not succeeds(python.path, "-IS", "-c", "", **NOBODY)


def choose_python(prefix: str, typed: str) -> Python:
    """Return the Python that will run solo: `typed`, else the first that every user can run.

    Prefer one that is not linked to libpython.so: a launch costs a third more there. Raises Failure.
    """
    found, reasons = [], []
    answers = [
        ask(name, "-IS", "-c", PROBE, *[typed] * bool(typed))
        for name in ([typed] if typed else NAMES)
    ]
    pythons: dict = {}
    for version, path, is_shared in filter(None, answers):
        path = os.path.join(
            os.path.realpath(os.path.dirname(path)), os.path.basename(path)
        )  # /usr/bin for /bin
        pythons.setdefault(os.path.realpath(path), Python(path, version, is_shared))
    for python in pythons.values():
        if tuple(python.version) < (3, 9):
            continue
        if re.search(r"\s", python.path):
            reasons.append(f"{python.path}: the path has a blank")
        elif is_private(python, prefix):
            reasons.append(f"other users cannot run {os.path.realpath(python.path)}")
        else:
            found.append(python)
    if not found:
        remedy = "make install PYTHON=/usr/bin/python3; or make install PREFIX=$HOME/.local, for root alone"
        raise Failure(f"{'; '.join(reasons) or f'{typed} does not run'} ({remedy})")
    chosen = next((python for python in found if not python.is_shared), found[0])
    if chosen is not found[0]:
        reasons.append(f"{found[0].path} is linked to libpython.so, which makes each start slower")
    say(f"using {chosen}{': ' * bool(reasons)}{'; '.join(reasons)}")
    return chosen


class Tree:
    """The files and directories that an installation adds below `stage` (DESTDIR), to be removed if it fails."""

    def __init__(self, stage: str):
        self.stage = stage
        self.added: list = []  # files, then the directories that they are in
        self.made: list = []  # directories, without `stage`

    def make_folder(self, path: str) -> str:
        """Make a directory, with its parents. Return its place in the stage."""
        place = self.stage + path
        if not os.path.isdir(place):
            self.make_folder(os.path.dirname(path))
            os.mkdir(place)
            self.made.append(path)
        return place

    def put(self, path: str, write):
        """Let `write` make a file, and rename it to `path`."""
        place = self.stage + path
        if not os.path.lexists(place):
            self.added.append(place)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{place}.new")
        try:
            write(f"{place}.new")
            os.replace(f"{place}.new", place)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(f"{place}.new")
            raise

    def undo(self):
        for place in self.added:
            with contextlib.suppress(OSError):
                os.unlink(place)
        for path in reversed(self.made):
            with contextlib.suppress(OSError):
                os.rmdir(self.stage + path)


def write_file(text: str, mode: int = 0o644):
    """Return a function that writes `text` to a place."""

    def write(place: str):
        with open(place, "w") as file:
            file.write(text)
        os.chmod(place, mode)

    return write


def list_texts() -> dict:
    """Return the manual and the completions: {path below the prefix: text}."""
    folder = ROOT / "packaging/completions"
    texts = {f"share/{path}": (folder / file).read_text() for file, path in COMPLETIONS.items()}
    for page in sorted((ROOT / "man").glob("*.[0-9]")):
        texts[f"share/man/man{page.suffix[1:]}/{page.name}"] = page.read_text()
    return texts


def fits(name: str, versions: dict) -> bool:
    """Return whether views work with the installed version of a library. Debian's typer is as old as its click."""
    found = {
        library: tuple(map(int, re.findall(r"\d+", text))) for library, text in versions.items()
    }
    least = tuple(map(int, missing.LIBRARIES[name].partition(">=")[2].split(".")))
    if name == "typer" and found.get("click", (9,)) < (8, 2):
        least = 0, 7
    return found.get(name, ()) >= least


def run_pip(python: Python, target: str) -> str:
    """Install what the views need into `target`, in the versions of requirements.txt.

    Return "", or why it failed with what to do.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in NOT_FOR_PIP
    } | PIP
    with tempfile.TemporaryDirectory() as folder:
        words = [python.path, "-Im", "pip"]
        if not succeeds(*words, "--version"):
            if not succeeds(python.path, "-Im", "venv", folder):
                remedy = (
                    "apt install python3-venv" if os.path.exists("/usr/bin/apt") else "install pip"
                )
                return f"{python.path} has neither pip nor venv ({remedy}, then try again)"
            words = [f"{folder}/bin/python", "-Im", "pip"]
        words += ["install", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        words += ["--requirement", str(ROOT / "packaging/requirements.txt"), "--target", target]
        result = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    errors = [line[7:] for line in result.stderr.splitlines() if line.startswith("ERROR: ")]
    reason = [*errors, f"it ended with status {result.returncode}"][0]
    return f"pip: {reason} (try again where pip reaches its index)" if result.returncode else ""


def find_libraries(python: Python, target: str) -> list:
    """Return the directories of this Python's libraries. Install into `target` what views need and those lack."""
    sites, versions = ask(python.path, "-I", "-c", LIBRARIES) or ([], {})
    lacking = [name for name in missing.LIBRARIES if not fits(name, versions)]
    reason = run_pip(python, target) if lacking else ""
    if reason:
        say(f"runs and views work as plain text; {', '.join(lacking)} are missing: {reason}")
    remove(f"{target}/bin")
    return sites


def copy_modules(target: str):
    """Copy solo's modules, not their modes: in a checkout of umask 0 every user may write them."""
    shutil.copytree(ROOT / "solo", target, ignore=shutil.ignore_patterns("__pycache__"))
    for folder, _, files in os.walk(target):
        os.chmod(folder, 0o755)
        for file in files:
            os.chmod(f"{folder}/{file}", 0o644)


def build(python: Python, folder: str, final: str, prefix: str):
    """Build a version of solo in `folder`, which will be `final`. Raises CalledProcessError."""
    copy_modules(f"{folder}/lib/solo")
    sites = find_libraries(python, f"{folder}/lib")
    words = [bundle.__file__, "program", f"{final}/lib/solo", f"{folder}/program"]
    subprocess.run(
        [python.path, "-IB", "-X", "no_debug_ranges", *words], check=True, stdin=subprocess.DEVNULL
    )
    stub = (
        "sh",
        str(ROOT / "packaging/stub.sh"),
        f"{prefix}/lib/solo/current/solo",
        f"{folder}/stub",
    )
    has_stub = succeeds(*stub)
    if not has_stub:
        guess = "solo works, but guesses whether a command is to ignore SIGPIPE, see INHERITED STATE in solo(7)"
        say(
            f"no C compiler (cc): {guess} (Debian: apt install gcc libc6-dev; then run make install again)"
        )
    script = bundle.make_script(
        python.path, [f"{final}/lib", *sites], f"{final}/program", f"{prefix}/bin/solo" * has_stub
    )
    write_file(script, 0o755)(f"{folder}/solo")


@contextlib.contextmanager
def lock(tree: Tree, path: str):
    """Hold flock(2) on the directory `path`, made if it is missing: a second installation waits."""
    while True:
        place = tree.make_folder(path)
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.path.isdir(place) and os.path.samestat(os.fstat(fd), os.stat(place)):
                yield place
                return
        finally:
            os.close(fd)


def flush(*places: str):
    """Write files and directories to the disk: after a power loss, a renamed link may not name an empty program."""
    for place in places:
        fd = os.open(place, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def read_link(place: str) -> str:
    return os.readlink(place) if os.path.islink(place) else ""


def make_link(target: str):
    """Return a function that makes a place a link to `target`."""
    return lambda place: os.symlink(target, place)


def read_made(base: str) -> list:
    with contextlib.suppress(OSError), open(f"{base}/{MADE}") as file:
        return file.read().splitlines()
    return []


def install(prefix: str, stage: str, typed: str):
    python = choose_python(stage + prefix, typed)
    if stage:
        os.makedirs(stage, exist_ok=True)
    texts = list_texts()
    tree = Tree(stage)
    final = f"{prefix}/lib/solo"
    folder = before = ""
    try:
        with lock(tree, final) as base:
            before = read_link(f"{base}/current")
            for entry in os.listdir(base) if before else []:
                if entry not in (before, "current", MADE):
                    remove(f"{base}/{entry}")
            for path in (*texts, "bin/solo"):
                tree.make_folder(os.path.dirname(f"{prefix}/{path}"))
            tree.put(
                f"{final}/{MADE}",
                write_file("".join(f"{path}\n" for path in [*read_made(base), *tree.made])),
            )
            folder = tempfile.mkdtemp(prefix=f"{solo.__version__}-", dir=base)
            os.chmod(folder, 0o755)
            name = os.path.basename(folder)
            build(python, folder, f"{final}/{name}", prefix)
            for path, text in texts.items():
                tree.put(f"{prefix}/{path}", write_file(text))
            flush(*(entry.path for entry in os.scandir(folder) if entry.is_file()), folder, base)
            tree.put(f"{final}/current", make_link(name))
            if os.path.exists(f"{folder}/stub"):
                tree.put(f"{prefix}/bin/solo", lambda place: shutil.move(f"{folder}/stub", place))
            else:
                tree.put(f"{prefix}/bin/solo", make_link("../lib/solo/current/solo"))
    except BaseException:
        if before:
            tree.put(f"{final}/current", make_link(before))
        remove(folder)
        tree.undo()
        raise
    say(f"installed {prefix}/bin/solo")
    if not (stage or os.geteuid()) and prefix in FOR_ALL:
        make_places(f"{prefix}/bin/solo")
    if not stage and f"{prefix}/bin" not in os.environ.get("PATH", "").split(":"):
        say(f'not in PATH yet: export PATH="{prefix}/bin:$PATH"')
    if not stage and f"{prefix}/bin" not in CRON_PATH.split(":"):
        say(f"a crontab needs this line, above its jobs: PATH={prefix}/bin:{CRON_PATH}")


def make_places(script: str):
    """Make places for the names of accounts without a home, as www-data: cron runs jobs as these."""
    made = subprocess.run(
        [script, "doctor", "--fix"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    users = [line.partition(":")[0] for line in made.stdout.splitlines()]
    if users:
        say(f"made places in {USERS_PLACE} for {', '.join(users)}, which have no home directory")
    if made.stderr:
        say(made.stderr.rstrip())


def remove(place: str):
    """Remove a file, a link or a whole directory, if it is there."""
    if os.path.isdir(place) and not os.path.islink(place):
        shutil.rmtree(place, ignore_errors=True)
    elif os.path.lexists(place):
        os.unlink(place)


def uninstall(prefix: str, stage: str, typed: str):
    base = f"{stage}{prefix}/lib/solo"
    made = [*read_made(base), *read_made(f"{base}.new")]  # the second: of 0.2.0
    for path in (*list_texts(), "bin/solo", "lib/solo", "lib/solo.new", "lib/solo.old"):
        remove(f"{stage}{prefix}/{path}")
    for path in sorted(made, key=len, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(stage + path)
    say(
        f"removed {prefix}/bin/solo; history stays in /var/lib/solo (root), {USERS_PLACE} and ~/.local/state/solo"
    )


def end(number: int, _):
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main(what: str, prefix: str, stage: str, typed: str):
    os.umask(0o022)  # for every user, whatever the umask of root
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        if not os.path.isabs(prefix) or not prefix.isprintable():
            raise Failure(f"PREFIX={prefix} is not an absolute path")
        {"install": install, "uninstall": uninstall}[what](
            os.path.normpath(prefix), os.path.abspath(stage) if stage else "", typed
        )
    except OSError as error:
        sys.exit(f"solo: make {what}: {error.filename}: {error.strerror}")
    except (Failure, subprocess.CalledProcessError) as error:
        sys.exit(f"solo: make {what}: {error}")


if __name__ == "__main__":  # pyz.py imports this file
    main(*sys.argv[1:])
