"""The umask of a program does not narrow the modes of solo's directories and files: their owner
must be able to open them.
"""

import pytest

HOLD = """
directory = sys.argv[1]
os.umask(int(sys.argv[2], 8))
with solo.Lock(["a/b", "c"], directory=directory), solo.Lock("c/d", shared=True, directory=directory + "/other"):
    for folder, folders, files in os.walk(directory):
        for entry in [".", *files]:
            print(oct(os.stat(os.path.join(folder, entry)).st_mode & 0o7777), entry == ".")
print(oct(os.umask(0)))
"""


@pytest.mark.parametrize("umask", ["0", "077", "0177", "0777"])
def test_umask_narrows_no_directory_or_file_of_a_program(lab, umask):
    _, out, err = lab.run_code(HOLD, lab.directory, umask)

    *modes, after = out.splitlines()
    assert err == "" and int(after, 8) == int(umask, 8)
    assert set(modes) == {"0o700 True", "0o600 False"} and len(modes) > 10


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
def test_program_locks_where_the_kernel_does_not_show_its_umask(lab):
    """As before Linux 4.7."""
    replace = (
        'grep -v ^Umask: /proc/$$/status >"$0" && mount --bind "$0" /proc/$$/status && exec "$@"'
    )
    prefix = ("unshare", "--mount", "sh", "-c", replace, lab.path / "status")

    _, out, err = lab.run_code(HOLD, lab.directory, "027", prefix=prefix)

    *modes, after = out.splitlines()
    assert (err, after, set(modes)) == ("", "0o27", {"0o700 True", "0o600 False"})


def test_umask_narrows_no_directory_in_a_home(lab):
    head = "from solo.directories import HOME_PLACE, make_home_directories\n"

    ended = lab.run_code(
        f"{head}os.umask(0o777)\nmake_home_directories(sys.argv[1] + HOME_PLACE)", lab.path
    )

    made = [lab.path / path for path in (".local", ".local/state", ".local/state/solo")]
    assert ended == (0, "", "") and [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3
