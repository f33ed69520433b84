"""Where the journals are, whose they are, and what else may be in their place."""

import os
import stat
import subprocess

import pytest
from conftest import finish

from solo import journal_files
from solo.history.reader import find_histories


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
def test_roots_journal_survives_a_boot(lab):
    script = f"""
        mount -t tmpfs tmpfs /run && mkdir -p /var/lib && mount -t tmpfs tmpfs /var/lib && unset SOLO_DIR
        {lab.script} -n a/b true && umount -l /run && mount -t tmpfs tmpfs /run
        {lab.script} history && stat -c '%a %n' /var/lib/solo /var/lib/solo/a/b/.journal
        {lab.script} clean && {lab.script} clean --history 0 && ls /var/lib/solo
    """
    _, out, err = finish(lab.start_words("unshare", "--mount", "sh", "-ec", script))

    _, row, *lines = out.splitlines()
    assert (err, row.split()[0], row.split()[3], row.split()[-1]) == ("", "a/b", "ok", "true")
    assert lines == ["700 /var/lib/solo", "600 /var/lib/solo/a/b/.journal", "a/b: history removed"]


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
@pytest.mark.parametrize("names", ["-n a -n b", "-n a/b/c -n a/d"])
def test_a_place_that_is_cleaned_is_warned_of_once_a_run(lab, names):
    script = f"mount -t tmpfs tmpfs /var/tmp; SOLO_DIR=/var/tmp {lab.script} {names} true"
    _, _, error = finish(lab.start_words("unshare", "--mount", "sh", "-ec", script))

    assert error.count("cleaners remove old files there") == len(error.splitlines()) == 1


def spoil_the_folder(file):
    file.parent.rmdir()
    file.parent.parent.rmdir()
    file.parent.parent.write_text("mine")


SPOILS = {
    "directory": os.mkdir,
    "fifo": os.mkfifo,
    "link": lambda file: file.symlink_to(file.parent.parent.parent / "elsewhere"),
    "full device": lambda file: os.mknod(file, 0o600 | stat.S_IFCHR, os.makedev(1, 7)),
    "folder": spoil_the_folder,
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_other_file_in_the_journals_place_fails_no_job(lab, spoil):
    lab.run("-n", "job", "true")
    lab.find_journal("job").unlink()
    try:
        spoil(lab.find_journal("job"))
    except PermissionError:
        pytest.skip("needs to make devices")

    quiet = lab.run("-n", "job", "--", "sh", "-c", "exit 3")
    loud = lab.run("-v", "-n", "job", "true")

    assert (quiet.returncode, quiet.stderr, loud.returncode) == (3, b"", 0)
    assert b"\nsolo: job: the journal is not written: " in loud.stderr
    assert lab.run("history").returncode in (0, 125) and lab.run("list").returncode == 0
    assert not (lab.directory / "elsewhere").exists()


def test_directory_removed_by_the_job_is_not_created_again(lab):
    started = 'until grep -q ^started "$0"; do :; done; rm -rf "$1"'  # not before that was written
    result = lab.run("-n", "job", "--", "sh", "-c", started, lab.find_journal("job"), lab.directory)

    assert result.returncode == 0 and not lab.directory.exists()


@pytest.mark.root
@pytest.mark.parametrize(
    "mode, uids", [(0o2770, [0, 0, 65534, 65534, 65533, 65533]), (0o1777, [0, 0])]
)
def test_group_shares_a_journal_and_sticky_users_do_not(common, mode, uids):
    common.directory.mkdir()
    os.chown(common.directory, 0, 65534)
    common.directory.chmod(mode)
    for uid in (0, 65534, 65533):
        subprocess.run(
            [common.script, "-n", "job", "true"],
            env=common.environment,
            user=uid,
            group=65534,
            check=True,
        )

    events = dict(find_histories(str(common.directory), []))["job"].events

    assert [event.uid for event in events] == uids
    assert (
        sum(len(path.read_text().splitlines()) for path in common.directory.rglob(".journal")) == 6
    )


@pytest.mark.root
def test_roots_journals_are_found_by_any_path_of_its_directory(tmp_path, monkeypatch):
    """/var/run/solo is /run/solo: with two journals of one name, --once-per could run twice."""
    (tmp_path / "run").mkdir()
    (tmp_path / "var").symlink_to(tmp_path / "run")
    monkeypatch.setattr(journal_files, "ROOT_PLACE", str(tmp_path / "run"))

    paths = (tmp_path / "run", tmp_path / "var", f"{tmp_path}//run/")
    found = {journal_files.find_journals(str(path))[0] for path in paths}

    assert found == {journal_files.DURABLE_PLACE}
    assert journal_files.find_journals(str(tmp_path))[0] == str(tmp_path)
