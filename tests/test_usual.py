"""The usual run of a job, read from the tail of its journal."""

import pytest

from solo.history.usual import FEWEST, SIZES, find_usual

MINUTE = 60.0


def write_runs(lab, spans, name="job", command="backup.sh --full", **changed):
    """Append runs to the journal of `name`, with lines like those of a real one that has just been written."""
    journal = lab.directory / ".journals" / name / ".journal"
    if not journal.exists():
        lab.run("-n", name, "true")
    start, end = lab.template = getattr(lab, "template", None) or journal.read_text().splitlines(True)
    end = end.replace("command=true", f"command={command}").replace("code=0", f"code={changed.get('code', 0)}")
    end = end.replace("timed-out=0", f"timed-out={changed.get('timed_out', 0)}{changed.get('mark', '')}")
    head, _, tail = end.partition(" ran=")
    with journal.open("a") as file:
        file.writelines(f"{start}{head} ran={span:.3f} {tail.partition(' ')[2]}" for span in spans)


def test_last_hundred_runs_count(lab):
    write_runs(lab, range(1, 151))

    usual = find_usual(str(lab.directory), "job")

    assert (usual.median, usual.high) == (100.5, 145)


def test_fewer_than_five_runs_say_nothing(lab):
    assert find_usual(str(lab.directory), "job") is None

    write_runs(lab, [5] * (FEWEST - 2))  # and the real one
    assert find_usual(str(lab.directory), "job") is None

    write_runs(lab, [5])
    assert find_usual(str(lab.directory), "job").median == 5


@pytest.mark.parametrize("changed", [{"code": 1}, {"timed_out": 1}, {"mark": " lost=1"}], ids=str)
def test_runs_that_failed_do_not_count(lab, changed):
    write_runs(lab, [7] * FEWEST)
    write_runs(lab, [1] * 50, **changed)

    assert find_usual(str(lab.directory), "job").median == 7


def test_jobs_of_one_name_have_their_own_usual(lab):
    write_runs(lab, [300] * 20, command="backup.sh --full")
    write_runs(lab, [2] * 60, command="backup.sh --delta")
    write_runs(lab, [9] * 2 + [1] * 3, command="vacuum.sh --day=1")

    def find_median(*command):
        usual = find_usual(str(lab.directory), "job", list(command))
        return usual and usual.median

    assert find_median(b"backup.sh", b"--full") == 300
    assert find_median(b"vacuum.sh", b"--day=2") == 1  # the words are new: all of the program
    assert find_median(b"rotate.sh") is None


def test_small_tail_of_a_large_journal_is_read(lab):
    """The witness: skips that fill the tail make it read more."""
    write_runs(lab, [60] * 6000)
    journal = lab.directory / ".journals/job/.journal"

    def count_bytes_read():
        with open("/proc/self/io") as io:
            return int(io.readline().split()[1])

    begin = count_bytes_read()
    assert find_usual(str(lab.directory), "job").median == 60
    assert journal.stat().st_size > 2 * SIZES[1] and count_bytes_read() - begin < 2 * SIZES[0]

    with journal.open("a") as file:
        file.write("skipped 1.000 x\n" * 6000)
    begin = count_bytes_read()
    assert find_usual(str(lab.directory), "job").median == 60 and count_bytes_read() - begin > SIZES[1]


def test_runs_before_a_rotation_count(lab):
    write_runs(lab, [60] * 10)
    journal = lab.directory / ".journals/job/.journal"
    journal.rename(journal.with_name(".journal.past"))

    assert find_usual(str(lab.directory), "job").median == 60


def test_run_beyond_its_high_and_twice_its_median_is_overdue(lab):
    write_runs(lab, [4 * MINUTE] * 90 + [20 * MINUTE] * 10)
    usual = find_usual(str(lab.directory), "job")
    assert (usual.high, usual.overdue_after) == (20 * MINUTE, 20 * MINUTE)

    write_runs(lab, [4 * MINUTE] * 100)
    assert find_usual(str(lab.directory), "job").overdue_after == 8 * MINUTE

    write_runs(lab, [1] * 100)
    assert find_usual(str(lab.directory), "job").overdue_after == MINUTE


def test_what_is_left_of_a_run_comes_from_the_longer_runs(lab):
    write_runs(lab, [60, 100, 120, 600, 700])
    usual = find_usual(str(lab.directory), "job")

    assert (usual.find_left(0), usual.find_left(110), usual.find_left(650)) == (110.0, 490, 50)
    assert usual.find_left(700) is None
