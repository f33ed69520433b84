"""The umask of a program does not narrow the modes of solo's directories and files: their owner must be able to open them."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

HEAD = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport solo, os\n"
HOLD = """
directory = sys.argv[1]
os.umask(int(sys.argv[2], 8))
with solo.Lock(["a/b", "c"], directory=directory), solo.Lock("c/d", shared=True, directory=directory + "/other"):
    for folder, folders, files in os.walk(directory):
        for entry in [".", *files]:
            print(oct(os.stat(os.path.join(folder, entry)).st_mode & 0o7777), entry == ".")
print(oct(os.umask(0)))
"""


def run_program(text, *words, prefix=()):
    program = [*prefix, sys.executable, "-IS", "-c", HEAD + text, *map(str, words)]
    return subprocess.run(program, capture_output=True, text=True)


@pytest.mark.parametrize("umask", ["0", "077", "0177", "0777"])
def test_umask_narrows_no_directory_or_file_of_a_program(tmp_path, umask):
    done = run_program(HOLD, tmp_path / "names", umask)

    *modes, after = done.stdout.splitlines()
    assert done.stderr == "" and int(after, 8) == int(umask, 8)
    assert set(modes) == {"0o700 True", "0o600 False"} and len(modes) > 10


def test_umask_locks_no_user_out_of_a_name(common):
    """Root may open a file of mode 0; an ordinary user may not."""
    common.directory.mkdir(mode=0o700)
    os.chown(common.directory, 65534, 65534)
    place = os.path.dirname(common.script)
    text = (
        f"import sys; sys.path.insert(0, {place!r})\nimport os, solo\nos.umask(0o777)\n"
        "for _ in range(2):\n    with solo.Lock('a/b'): pass\nprint('held')"
    )
    drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

    done = subprocess.run(
        [*drop, "/usr/bin/python3", "-ISc", text], env=common.environment, cwd="/", capture_output=True, text=True
    )

    assert (done.stdout, done.stderr) == ("held\n", "")


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
def test_program_locks_where_the_kernel_does_not_show_its_umask(tmp_path):
    """As before Linux 4.7."""
    replace = 'grep -v ^Umask: /proc/$$/status >"$0" && mount --bind "$0" /proc/$$/status && exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", replace, tmp_path / "status")

    done = run_program(HOLD, tmp_path / "names", "027", prefix=prefix)

    *modes, after = done.stdout.splitlines()
    assert (done.stderr, after, set(modes)) == ("", "0o27", {"0o700 True", "0o600 False"})


def test_umask_narrows_no_directory_in_a_home(tmp_path):
    text = "from solo.directories import HOME_PLACE, make_home_directories\nos.umask(0o777)\nmake_home_directories(sys.argv[1] + HOME_PLACE)"

    done = run_program(text, tmp_path)

    made = [tmp_path / path for path in (".local", ".local/state", ".local/state/solo")]
    assert done.stderr == "" and [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3
