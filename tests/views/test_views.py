"""The views list, show, history, top and metrics, and the progress of a waiter: on real terminals,
in pipes and as data.
"""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from conftest import PATIENCE, finish, kill_both, make_full_pipe, read_line, read_state, until
from observed import parse_metrics
from tmux import Tmux
from written import DAY, Written

from solo.commands.history import collect, find_percentile, find_trends, make_picture
from solo.commands.lookup import Asked
from solo.contention import progress
from solo.history.usual import FEWEST, LEAST_LONG
from solo.text.tables import fit
from solo.text.width import measure

MANY = 40  # names, more than a screen has rows


@pytest.fixture
def screen(lab):
    opened = []

    def open_screen(*words, width=100, height=24, **environment):
        environment = {**lab.environment, "LC_ALL": "C.UTF-8", **environment}
        opened.append(Tmux([lab.script, *words], environment, width, height))
        return opened[-1]

    yield open_screen
    for each in opened:
        each.close()


def hold_many(lab, count=MANY):
    """Start one launcher that holds many names; return it once the journal of the last has the
    start.
    """
    words = [word for number in range(count - 1) for word in ("-n", f"name{number:03d}")]
    last = f"name{count - 1:03d}"
    holder, journal = lab.hold(last, *words), lab.find_journal(last)
    until(lambda: journal.exists() and journal.stat().st_size)
    return holder


# --- metrics--------------------------------------------------------------------------------------


def read_metrics(lab, name="job"):
    """Return {sample: value} of one name."""
    samples = parse_metrics(lab.run("metrics").stdout.decode())
    return {key[0]: value for key, value in samples.items() if key[1:] == (name, "file")}


def test_metrics_count_holders_waiters_runs_skips_and_failures(lab):
    lab.run("-n", "job", "true")
    lab.run("-n", "job", "false")
    holder = lab.hold("job")
    waiter = lab.start_waiter("job")
    lab.run("-n", "job", "true")

    mine = read_metrics(lab)

    assert mine.pop("solo_held_seconds") < PATIENCE
    assert (
        mine.pop("solo_last_failure_timestamp_seconds")
        >= mine.pop("solo_last_success_timestamp_seconds")
        > 1.7e9
    )
    for sample in ("solo_run_seconds_sum", "solo_last_run_seconds", "solo_wait_seconds_sum"):
        mine.pop(sample)
    assert mine == {
        "solo_job_state failing": 1,
        "solo_job_state running": 1,
        "solo_job_state new": 1,
        "solo_held": 1,
        "solo_waiting": 1,
        "solo_runs_total": 3,
        "solo_skips_total": 1,
        "solo_skips_in_a_row": 1,
        "solo_failures_total": 1,
        "solo_killed_runs": 0,
        "solo_lost_leases_total": 0,
        "solo_run_seconds_count": 2,
        "solo_wait_seconds_count": 3,
    }
    finish(holder)
    waiter.wait(PATIENCE)
    mine, rows = read_metrics(lab), [row for row in lab.history() if row["ran"] is not None]
    assert mine["solo_skips_in_a_row"] == 0 and rows[-1]["waited"] > 0
    assert mine["solo_run_seconds_sum"] == pytest.approx(sum(row["ran"] for row in rows))
    assert mine["solo_wait_seconds_sum"] == pytest.approx(sum(row["waited"] for row in rows))
    assert mine["solo_last_run_seconds"] in [row["ran"] for row in rows[-2:]]  # both end at once


def test_metrics_say_what_is_usual_and_when_a_run_is_overdue(lab):
    for _ in range(FEWEST - 1):
        lab.run("-n", "job", "true")
    assert "solo_usual_seconds" not in read_metrics(lab)

    lab.run("-n", "job", "true")

    mine = read_metrics(lab)
    assert (
        0 < mine["solo_usual_seconds"] < PATIENCE
        and mine["solo_overdue_after_seconds"] == LEAST_LONG
    )


def test_metrics_judge_jobs_and_what_is_usual_as_list_all_does(lab):
    for words in (["true"], ["sleep", "0.2"]):
        for _ in range(FEWEST):
            lab.run("-n", "job", *words)
    holder = lab.hold("held")
    lab.run("true")

    samples = parse_metrics(lab.run("metrics").stdout.decode())
    rows = json.loads(lab.run("list", "--all", "--json").stdout)

    found = {(row["name"], state) for row in rows for state in row["states"]}
    assert found == {
        (name, sample.split()[1]) for sample, name, _ in samples if "_state " in sample
    }
    [row] = [row for row in rows if row["name"] == "job"]
    assert samples["solo_usual_seconds", "job", "file"] == row["usual"] >= 0.2
    assert any(name.startswith("true-") for _, name, _ in samples)
    finish(holder)


def test_metrics_have_no_command(lab):
    lab.run("-n", "job", "true", "--password=hunter2")
    lab.run("true", "--password=hunter2")
    holder = lab.start("sleep", "99", "--password=hunter2")

    assert b"hunter2" not in lab.run("metrics").stdout
    holder.kill()


def test_metrics_of_two_directories_have_a_socket_once(lab):
    """One collector refuses two files that have the same series, and counts twice what differs in
    the directory only.
    """
    network = lab.hold(f"job{os.getpid()}", "--via", "socket")

    typed = lab.run("metrics", "--dir", lab.path / "elsewhere")
    asked = lab.run("metrics", "--dir", lab.path / "elsewhere", "--via", "socket")

    assert b"socket" not in typed.stdout and b'via="socket"' in asked.stdout
    finish(network)


def test_run_killed_with_its_launcher_counts_as_failed(lab):
    """A running one and an orphan do not."""
    lab.run("-n", "job", "true")
    holder = lab.hold("job")
    assert read_metrics(lab)["solo_killed_runs"] == 0
    holder.kill()
    assert read_metrics(lab)["solo_killed_runs"] == 0

    kill_both(holder)

    mine = read_metrics(lab)
    assert (mine["solo_killed_runs"], mine["solo_failures_total"]) == (1, 0)
    assert mine["solo_last_failure_timestamp_seconds"] > mine["solo_last_success_timestamp_seconds"]


def test_metrics_say_which_names_were_made_and_have_one_label_for_a_directory(lab):
    lab.run("-n", "job", "true")
    lab.run("true")
    lab.start("sleep", "99")
    until(lambda: len(lab.list()) == 1)

    text = "".join(
        lab.run("metrics", "--dir", f"{lab.directory}{end}").stdout.decode()
        for end in ("", "/", "//")
    )

    marked = {*re.findall(r'name="([^"]*)"[^}]*generated="true"', text)}
    assert {name.partition("-")[0] for name in marked} == {"true", "sleep"}
    assert {*re.findall(r'dir="([^"]*)"', text)} == {str(lab.directory)}


def test_metrics_of_slots_say_how_many_there_are_and_how_many_are_taken(lab):
    holder = lab.hold("job", "--slots", "4,3")

    held = read_metrics(lab)
    finish(holder)
    free = read_metrics(lab)

    found = [
        (each["solo_held"], each["solo_slots"], each["solo_slots_taken"]) for each in (held, free)
    ]
    assert found == [(1, 4, 3), (0, 4, 0)]
    lab.run("-n", "job", "true")
    assert "solo_slots" not in read_metrics(lab)


def test_metrics_count_lost_leases(lab):
    lab.run("-n", "job", "true")
    journal = lab.find_journal("job")
    journal.write_bytes(journal.read_bytes().replace(b" timed-out=0", b" timed-out=0 lost=1"))

    mine = read_metrics(lab)

    assert (mine["solo_lost_leases_total"], mine["solo_failures_total"]) == (1, 1)


def test_metrics_of_no_name_and_of_strange_names_are_valid(lab):
    """No two names have one label."""
    assert not parse_metrics(lab.run("metrics", "--via", "file").stdout.decode())
    for name in (
        b'quo"te',
        b"a\\y",
        b"a\xff",
        b"a\\xff",
        b"a\\\\xff",
        b"a\\udcff",
        "ö".encode(),
        b"a/b",
    ):
        subprocess.run([lab.script, "-n", name, "true"], env=lab.environment, check=True)
    lab.hold_old("new\nline")

    samples = parse_metrics(lab.run("metrics", "--via", "file").stdout.decode())

    names = {name for sample, name, _ in samples if sample == "solo_runs_total"}
    assert names >= {'quo"te', "a\\y", "new\nline", "a\\xff", "ö", "a/b"} and len(names) == 9


def test_metrics_of_another_backend_claim_nothing_about_files(lab):
    lab.hold("job")
    lab.use_sockets()
    name = f"job{os.getpid()}"
    holder = lab.hold(name)

    samples = parse_metrics(lab.run("metrics", "--via", "socket").stdout.decode())

    assert ("solo_runs_total", "job", "file") in samples and (
        "solo_held",
        "job",
        "file",
    ) not in samples
    assert (
        samples["solo_held", name, "socket"] == 1
        and ("solo_runs_total", name, "socket") not in samples
    )
    finish(holder)


@pytest.mark.parametrize("view", [["list", "--via", "file"], ["show", b"a\xff"], ["history"]])
def test_json_of_a_name_that_is_not_utf_8_is_valid(lab, view):
    holder = lab.start("-n", b"a\xff", "--", "sh", "-c", "echo; read line", "\U0001f480\\udc80")
    read_line(holder)

    text = lab.run(view[0], "--json", *view[1:]).stdout.decode("ascii")

    [row] = json.loads(text)
    assert row["name"] == "a\\xff" and b"a\\xff" in lab.run(*view).stdout
    json.dumps(
        row, ensure_ascii=False
    ).encode()  # no lone surrogate is left, and the other text is unchanged
    assert "\U0001f480\\udc80" in (row if "command" in row else row["holds"][0])["command"]


def test_metrics_output_to_a_dash_is_stdout(lab):
    lab.run("-n", "job", "true")

    result = lab.run("metrics", "--output", "-", cwd=lab.path)

    assert result.stdout.endswith(b"# EOF\n") and not (lab.path / "-").exists()


def test_metrics_output_is_readable_by_others_and_replaces_no_device_or_link(lab):
    lab.run("-n", "job", "true")
    target, link, pipe = lab.path / "target", lab.path / "link", lab.path / "pipe"
    link.symlink_to(target)
    os.mkfifo(pipe)

    lab.run("metrics", "--output", link, prefix=("sh", "-c", 'umask 077; exec "$@"', "sh"))
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    lab.run("metrics", "--output", pipe)
    lab.run("metrics", "--output", "/dev/null")
    missing = lab.run("metrics", "--output", "/nonexistent/solo.prom")

    assert (
        link.is_symlink()
        and target.read_text().endswith("# EOF\n")
        and target.stat().st_mode & 0o777 == 0o644
    )
    assert pipe.is_fifo() and reader.communicate()[0].endswith(b"# EOF\n")
    assert os.stat("/dev/null").st_mode == os.stat("/dev/zero").st_mode
    assert missing.returncode == 125
    assert (
        missing.stderr == b"solo: cannot write /nonexistent/solo.prom: No such file or directory\n"
    )


def test_metrics_output_is_replaced_atomically(lab):
    hold_many(lab)
    output = lab.path / "solo.prom"
    lab.run("metrics", "--output", output)
    writer = lab.start_shell(f"for i in 1 2 3; do $SOLO metrics --output {output}; done; echo done")
    sizes = set()
    while writer.poll() is None:
        text = output.read_text()
        assert text.endswith("# EOF\n")
        sizes.add(text.count("solo_runs_total{"))

    assert sizes == {MANY} and [
        file.name for file in lab.path.iterdir() if "solo.prom" in file.name
    ] == ["solo.prom"]


# --- in a pipe and on a terminal------------------------------------------------------------------


FILES = ("--via", "file")  # an ordinary user's other worker may have names as sockets
VIEWS = [("list", *FILES), ("show", "name007"), ("history",), ("metrics", *FILES), ("top", *FILES)]


@pytest.mark.parametrize("count", [0, MANY])
def test_every_view_in_a_pipe_is_plain_text(lab, count):
    if count:
        hold_many(lab)
    for words in VIEWS:
        result = lab.run(*words, env={**lab.environment, "LC_ALL": "C"})

        is_unknown = words[0] == "show" and not count
        assert (result.returncode, bool(result.stderr)) == (
            (125, True) if is_unknown else (0, False)
        )
        assert b"\x1b" not in result.stdout
        if words[0] in ("list", "history", "top"):
            assert result.stdout.count(b"\n") == (count and count + 1)


@pytest.mark.tool("tmux")
def test_every_view_on_a_terminal_fits_its_width(lab, screen):
    hold_many(lab)

    for words, width in itertools.product(
        [("list",), ("show", "name007"), ("history",)], (40, 160)
    ):
        lines = screen(*words, width=width, height=700).wait_for("ended:0")
        assert max(map(len, lines)) <= width and any("name007" in row for row in lines)
        assert sum(line.startswith("name") for line in lines) <= 2 * MANY + 4  # no line wraps


@pytest.mark.tool("tmux")
def test_empty_view_names_the_directory_on_a_terminal_only(lab, screen):
    place = f"names in {lab.directory}"
    lab.directory.mkdir()

    assert f"no locks held: {place}" in screen("list", "--via", "file", width=200).wait_for(
        "ended:0"
    )
    assert f"no locks held: {place}, and by sockets" in screen("list", width=200).wait_for(
        "ended:0"
    )
    assert f"no runs known: {place}" in screen("history", width=200).wait_for("ended:0")
    assert lab.run("list", "--via", "file").stdout == lab.run("history").stdout == b""


@pytest.mark.tool("tmux")
def test_view_says_that_the_directory_does_not_exist(lab, screen):
    lines = screen("list", "--dir", "/nosuch", width=200).wait_for("ended:0")

    assert "no locks held: names in /nosuch, which does not exist, and by sockets" in lines
    refused = lab.run("list", "--dir", "/nosuch", "job").stderr
    assert refused.endswith(b"not among the names in /nosuch, which does not exist\n")


@pytest.mark.tool("tmux")
def test_picture_has_bars_for_runs_and_marks_for_skips_and_failures(lab, screen):
    lab.hold("busy")
    lab.run("-n", "busy", "true")
    lab.run("-n", "bad", "false")
    lab.run("-n", "good", "true")

    lines = screen("history").wait_for("ended:0")
    plain, narrow = [
        str(
            make_picture(collect(Asked(dir=str(lab.directory)), [])[0], 0, time.time(), width, code)
        ).split("\n")
        for width, code in ((80, "latin-1"), (58, "utf-8"))
    ]

    rows = {line.split()[0]: line for line in lines[1:4]}
    assert (
        "━" in rows["busy"] and "○" in rows["busy"] and "✗" in rows["bad"] and "━" in rows["good"]
    )
    assert rows["busy"].split()[-6:] == ["1", "0", "1", "-", "-", "-"] and rows["bad"].split()[
        -6:-3
    ] == ["1", "1", "0"]
    assert lines[0].split()[-7:] == ["now", "RUNS", "FAILED", "SKIPPED", "50%", "95%", "MAX"]
    assert any(row.startswith("busy") and "=" in row and "o" in row for row in plain[1:4])
    assert narrow[0].endswith("50%") and max(map(len, narrow)) <= 58  # not a part of a number
    assert [find_percentile(list(range(1, 101)), percent) for percent in (50, 95, 100)] == [
        50,
        95,
        100,
    ]


@pytest.mark.tool("tmux")
def test_picture_has_a_row_for_the_job_that_did_not_run(lab, screen):
    quiet, now = Written(), time.time()
    quiet.daily(9, now - DAY)
    quiet.save(lab, "quiet")
    lab.run("-n", "job", "true")

    lines = screen("history", "--since", "12h").wait_for("ended:0")

    [row] = [line for line in lines if line.startswith("quiet")]
    assert row.split() == ["quiet", "0", "0", "0", "-", "-", "-"]


@pytest.mark.tool("tmux")
def test_history_without_a_run_in_its_span_says_when_the_last_one_was(lab, screen):
    job, start = Written(), time.time() - DAY
    job.run(start, 1)
    job.save(lab, "job")
    when = time.strftime("%F %T", time.localtime(start))

    alone = screen("history", "--since", "12h", "job", width=150).wait_for("ended:0")
    failed = screen("history", "--failed", width=150).wait_for("ended:0")

    assert f"no runs in the last 12h; the last one: {when}, ok" in alone
    assert f"no failed runs; the last one: job, {when}, ok" in failed


def test_trend_is_said_where_it_is_plain():
    def name_trend(spans):
        rows = [
            SimpleNamespace(name="job", outcome="ok", ran=span, time=day * DAY)
            for day, span in enumerate(spans)
        ]
        return find_trends(rows).get("job")

    assert name_trend([2400] * 15 + [3540] * 15) == "59m; 40m 29d ago"
    assert name_trend([60] * 15 + [30] * 15) == "30s; 1m 29d ago"
    assert (
        name_trend([2400] * 15 + [2500] * 15)
        is name_trend([60, 4000] * 20)
        is name_trend([1] * 9 + [60] * 9)
        is None
    )


def test_list_and_show_print_which_slot_of_how_many(lab):
    for _ in range(2):
        lab.hold("pool", "--slots", "4")
    lab.hold("pool", "--slots", "4,2")
    waiter = lab.start_waiter("pool", "--slots", "4", tag="waiter")

    head, *rows = lab.run("list", "--via", "file").stdout.decode().splitlines()
    shown = lab.run("show", "pool").stdout.decode()

    modes = [row[head.index("MODE") : head.index("LAUNCHER")].strip() for row in rows]
    assert modes == ["slot 0 of 4", "slot 1 of 4", "2 of 4 slots", "1 of 4 slots"]
    assert ", slot 1 of 4, file\n" in shown and ", 2 of 4 slots, file\n" in shown
    assert re.search(rf"\nwaiting:\nPLACE .*\n1 +{waiter.pid} +\S+ +1 of 4 slots ", shown)


NOTED = ("--note", "migration until noon on db1")


@pytest.mark.tool("tmux")
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_note_and_slots_leave_the_command_and_the_reason_of_a_skip(lab, screen, width):
    for name in ("nightly-backup", "gpu"):
        words = ("--slots", "1") if name == "gpu" else ()
        holder = lab.hold(name, *NOTED, *words)
        assert lab.run("-n", name, *words, "true").returncode == 75

    held, history = (
        screen(view, *FILES, width=width).wait_for("ended:0") for view in ("list", "history")
    )

    for lines, at_end in ((held, "sh -.*"), (history, "sh -.*|held .*|1 of .*")):
        [head] = [row for row in lines if row.startswith("NAME ")]
        rows = lines[lines.index(head) + 2 :]
        cells = [
            row[head.index("COMMAND") :].rstrip()
            for row in rows
            if row.startswith(("nightly", "gpu"))
        ]
        assert len(cells) in (2, 4) and all(re.fullmatch(at_end, cell) for cell in cells), lines
    assert finish(holder)[0] == 0


@pytest.mark.parametrize("room", range(30, 140, 7))
def test_a_table_is_fitted_in_the_documented_order(room):
    columns = ("NAME", "STATE", "MODE", "CHILD", "USER", "NOTE", "COMMAND")
    row = [
        "a-rather-long-name",
        "held",
        "exclusive",
        "4711",
        "root",
        "migration until noon",
        "backup.sh --full /srv",
    ]

    shown, [cells] = fit(columns, [row], room, 2)

    given_up = [column for column in ("MODE", "CHILD", "USER", "NOTE") if column not in shown]
    assert given_up == ["MODE", "CHILD", "USER", "NOTE"][: len(given_up)] and shown[-1] == "COMMAND"
    assert cells[-1] == row[-1] and all(cell in row or cell.endswith("…") for cell in cells)
    widths = [
        max(measure(column), measure(cell)) + 2 for column, cell in zip(shown[:-1], cells[:-1])
    ]
    assert sum(widths) + 16 <= room or given_up == ["MODE", "CHILD", "USER", "NOTE"]


def test_a_mode_that_differs_and_users_that_differ_stay():
    columns = ("NAME", "MODE", "USER", "COMMAND")
    rows = [["a", "exclusive", "root", "x" * 40], ["b", "slot 0 of 4", "alice", "x" * 40]]

    assert fit(columns, rows, 20, 2) == (list(columns), rows)


@pytest.mark.tool("tmux")
def test_the_picture_of_many_names_keeps_its_axis_on_the_screen(lab, screen):
    finish(hold_many(lab, 30))

    lines = screen("history", width=80, height=24).wait_for("ended:0")

    assert any(
        row.split()[-7:] == ["now", "RUNS", "FAILED", "SKIPPED", "50%", "95%", "MAX"]
        for row in lines
    )
    assert any(re.fullmatch(r"and \d+ more names", row.strip()) for row in lines)


@pytest.mark.tool("tmux")
def test_a_long_history_says_how_many_rows_it_leaves_out(lab, screen):
    for _ in range(12):
        lab.run("-n", "job", "true")

    lines = screen("history", height=10).wait_for("ended:0")

    assert any("of 12: all are in `solo history | less`" in row for row in lines)
    assert lab.run("history").stdout.count(b"\n") == 13


@pytest.mark.parametrize(
    "words", [("list",), ("show", "job"), ("history",)], ids=lambda words: words[0]
)
def test_views_respect_no_color_and_escape_control_characters(lab, terminal, words):
    subprocess.run(
        [lab.script, "-n", "job", "sh", "-c", ":", "\x1b]0;evil\x07\x1b[2J"], env=lab.environment
    )
    lab.hold("job")

    opened = [
        terminal(lab.script, *words, TERM="xterm-256color", **more)
        for more in ({}, {"NO_COLOR": "1"})
    ]
    colored, plain = [each.read_to_end() for each in opened]

    assert b"\x1b[32m" in colored or b"\x1b[1;32m" in colored or words[0] == "show"
    assert b"\x1b[3" not in plain and b"job" in plain
    for screen in (colored, plain):
        assert b"\x1b]0" not in screen and b"\x1b[2J" not in screen


def test_wide_and_combining_letters_keep_the_columns(lab, screen):
    for name in ("日本語", "cafe\u0301", "plain"):
        lab.hold(name)

    piped = lab.run("list").stdout.decode().splitlines()
    shown = screen("list").wait_for("ended:0")

    assert len({measure(line[: line.index("held")]) for line in piped[1:]}) == 1
    assert any(line.startswith("日本語 ") for line in shown)


def test_show_prints_the_rest_of_a_tree_and_nothing_of_another_namespace(lab):
    def list_processes(name):
        [shown] = json.loads(lab.run("show", "--json", name).stdout)
        return [process for hold in shown["holds"] for process in hold["processes"]]

    lab.start("-n", "tree", "--tree", "--", "sh", "-c", "sleep 999 & exit 0")
    until(lambda: any(process["command"] == ["sleep", "999"] for process in list_processes("tree")))
    if os.geteuid() == 0 and shutil.which("unshare"):
        inside = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
        inner = lab.start("-n", "inner", "sleep", "999", prefix=inside)
        until(
            lambda: (
                [process["command"] for process in list_processes("inner")] == [["sleep", "999"]]
            )
        )
        inner.kill()

    [sleep] = list_processes("tree")
    assert sleep["depth"] == 0
    os.kill(sleep["pid"], signal.SIGKILL)


def test_repeated_looks_at_a_socket_ask_its_owner_once(lab, monkeypatch):
    from solo.contention import sockets
    from solo.identity import read_origin

    lab.use_sockets()
    name = f"looked{os.getpid()}"
    holder = lab.hold(name)
    asked, connect = [], sockets.connect
    monkeypatch.setattr(
        sockets, "connect", lambda name, text: asked.append(text) or connect(name, text)
    )

    for _ in range(5):
        queue = sockets.SocketQueue(name, read_origin())
        tickets = [queue.look(file) for file in queue.list_files()]
        assert [ticket.read_record().launcher[0] for ticket in tickets] == [holder.pid]
        queue.leave()

    assert len(asked) == 1
    finish(holder)


@pytest.mark.host
@pytest.mark.tool("strace")
def test_list_opens_each_name_once(lab):
    lab.run("list", "--null")  # compiles the modules
    before = trace_view(lab, "list", "--null")
    holder = hold_many(lab)
    after = trace_view(lab, "list", "--null")
    finish(holder, b"\n")

    for number in range(MANY):
        assert sum(f'name{number:03d}"' in call for call in after) == 1
    assert len(after) - len(before) < 19 * MANY  # 18 calls a name, and some for memory


def trace_view(lab, *words):
    """Return the system calls of a view, a line each."""
    trace = lab.path / "trace"
    assert lab.run(*words, prefix=("strace", "-qq", "-y", "-o", trace)).returncode == 0
    return trace.read_text().splitlines()


@pytest.mark.tool("strace")
@pytest.mark.parametrize("view", ["list", "history"])
def test_a_view_of_one_name_opens_no_other(lab, view):
    finish(hold_many(lab))
    inside = lab.run("-n", "name007/inner", "true")

    calls = trace_view(lab, view, "name007")

    assert inside.returncode == 0 and any('"name007"' in call for call in calls)
    assert any('"inner"' in call for call in calls) and not any(
        '"name008"' in call for call in calls
    )


@pytest.mark.tool("strace")
def test_show_of_many_slots_lists_the_processes_once(lab):
    for _ in range(5):
        lab.hold("pool", "--slots", "5")

    calls = trace_view(lab, "show", "pool")

    assert sum('"/proc", O_RDONLY' in call for call in calls) == 1
    assert all(
        len(hold["processes"]) == 1
        for hold in json.loads(lab.run("show", "--json", "pool").stdout)[0]["holds"]
    )


@pytest.mark.tool("strace")
def test_recent_history_reads_the_end_of_a_journal_only(lab):
    lab.run("-n", "job", "true")
    journal = lab.find_journal("job")
    [*_, last] = journal.read_text().splitlines(True)
    old = [
        re.sub(r"^ended [\d.]+(.*) token=\d+", rf"ended {1.6e9 + n:.3f}\1 token={n}", last)
        for n in range(4000)
    ]
    journal.write_text("".join([*old, last]))
    lab.hold("long")
    until(lambda: len(lab.history("long")) == 1)
    long = lab.find_journal("long")
    long.write_text(
        re.sub(r"(?m)^started [\d.]+", f"started {1.6e9:.3f}", long.read_text()) + "".join(old)
    )

    calls = trace_view(lab, "history", "--since", "10m", "job")

    reads = [call for call in calls if call.startswith("pread64") and str(journal) in call]
    assert reads and sum(int(call.rpartition("= ")[2]) for call in reads) < 20_000
    assert len(lab.history("job")) == 4001 and len(lab.history("--since", "10m", "job")) == 1
    assert [row["outcome"] for row in lab.history("--since", "10m", "long")] == ["running"]


@pytest.mark.tool("tmux")
def test_views_show_what_is_usual_and_mark_an_overdue_run(lab, screen):
    words = ("-n", "job", "--", "sh", "-c", "read line; exit 0")
    for _ in range(5):
        assert lab.run(*words, stdin=subprocess.DEVNULL).returncode == 0
    lab.start(*words)
    until(lambda: [row["child"] for row in lab.collect("job") if row["child"]])
    [row] = lab.list("--json")
    lab.hasten("solo.history.usual.LEAST_LONG", 0)
    until(lambda: b"s! " in lab.run("list").stdout)  # it has run for longer than each earlier run
    head, late = lab.run("list").stdout.decode().splitlines()

    assert (row["overdue"], 0 < row["usual"] < 60) == (False, True)
    assert re.match(r"([\d.]+m?s to )?[\d.]+m?s! ", late[head.index("USUAL") :])
    assert re.search(
        r"held for \d+s, usually .+, running long, by pid ", lab.run("show", "job").stdout.decode()
    )
    assert "USUAL" in lab.run("top", *FILES).stdout.decode()


# --- top------------------------------------------------------------------------------------------


@pytest.mark.tool("tmux")
@pytest.mark.parametrize("count", [0, MANY])
def test_top_shows_holders_and_ends_with_q(lab, screen, count):
    if count:
        hold_many(lab)

    top = screen("top", "--via", "file", width=90, height=20)
    lines = top.wait_for("up/down: select")  # the row that is drawn last
    top.type("q")

    assert lines[0].startswith(f"solo: {count} held, 0 waiting ")
    assert lines[-1] == "up/down: select   s: stop it   q: quit" and len(lines) == 20
    assert sum(line.startswith("name") for line in lines) == min(count, 17)
    until(lambda: top.read()[:3] == ["ended:0", "icanon", "echo"])


@pytest.mark.tool("tmux")
def test_top_asks_before_it_stops_only_the_selected_one_or_a_waiter(lab, screen):
    keep, doomed = lab.hold("keep"), lab.hold("other")
    waiter = lab.start_waiter("keep")
    top = screen("top", "--via", "file")
    top.wait_for("2 held, 1 waiting")

    top.type("Down", "s")
    top.wait_for("? y/n")
    top.type("y")
    top.wait_for("2 held, 0 waiting")
    assert waiter.wait(PATIENCE) == -signal.SIGTERM and lab.read_log() == []
    top.type("Down", "s")
    top.wait_for(f"stop other: pid {doomed.pid} (")
    top.type("n")
    top.wait_for("up/down: select")
    assert read_state(doomed.child) != "gone"
    top.type("s")
    top.wait_for("? y/n")
    top.type("y")
    lines = top.wait_for("1 held")

    assert finish(doomed)[0] == -signal.SIGTERM and keep.poll() is None
    assert any(
        line.startswith(f"ended other: pid {doomed.pid}") for line in top.wait_for("ended other")
    )
    assert any(line.startswith("keep") for line in lines)
    top.type("q")
    top.wait_for("ended:0")


@pytest.mark.tool("tmux")
def test_top_takes_no_pasted_text_or_function_key_as_yes(lab, screen):
    holder = lab.hold("job")
    top = screen("top", "--via", "file")
    top.wait_for("1 held")

    def paste(keys):
        top.call("set-buffer", keys)
        top.call("paste-buffer", "-r")

    paste("easy")
    top.wait_for("? y/n")  # what is typed before it appears is dropped
    paste("\x1bOQ")
    top.wait_for("up/down: select")
    for keys in ("\x1bOS", "\x1b[1;2S", "sys"):
        paste(keys)
    top.wait_for("? y/n")
    top.type("n")
    top.wait_for("up/down: select")

    assert holder.poll() is None and read_state(holder.child) == "S"
    top.type("q")
    top.wait_for("ended:0")


def test_top_on_a_dumb_terminal_or_without_one_prints_once(lab, terminal):
    holder = lab.hold("job")
    screen = terminal(lab.script, "top", "--via", "file").read_to_end()
    printed = lab.run("top", "--via", "file")

    assert b"job" in screen and b"\x1b[?1049h" not in screen
    assert printed.returncode == 0 and printed.stdout.split()[8:11] == [
        b"job",
        b"held",
        str(holder.pid).encode(),
    ]


def test_top_of_nothing_prints_what_list_does(lab, terminal):
    said, unknown = (
        terminal(lab.script, "top", *more, "--via", "file").read_to_end()
        for more in ((), ("nosuch",))
    )

    assert said == terminal(lab.script, "list", "--via", "file").read_to_end() != b""
    assert unknown.count(b"\n") == 1 and lab.run("top", "--via", "file").stdout == b""


def test_table_on_a_dumb_terminal_has_its_width(lab, terminal):
    lab.hold("job")

    wide = terminal(lab.script, "list", COLUMNS="150").read_to_end()

    assert len(wide.decode().splitlines()[1]) == 150


@pytest.mark.tool("tmux")
@pytest.mark.parametrize("end", ["TERM", "HUP"])
def test_top_restores_the_terminal_after_a_signal(lab, screen, end):
    lab.hold("job")
    top = screen("top")
    top.wait_for("job")

    os.kill(top.find_pid(), getattr(signal, f"SIG{end}"))

    until(
        lambda: top.read()[-2:] == ["icanon", "echo"]
    )  # the words of the command contain them, too


def test_top_ends_when_its_terminal_is_closed(lab, terminal):
    top = terminal(lab.script, "top", TERM="xterm")
    top.wait_for("up/down: select")

    os.close(top.fd)
    top.fd = -1

    until(lambda: read_state(top.pid) in ("gone", "Z"))


@pytest.mark.tool("tmux")
@pytest.mark.parametrize("view", ["list", "top", "history"])
def test_a_long_name_is_cut_before_pid_and_time(lab, screen, view):
    holder = lab.hold(f"{'long/' * 30}end")
    until(lambda: lab.history())  # it is written a moment after the command has started

    opened = screen(view, *(FILES if view != "history" else ()), width=80)

    [row] = [row for row in opened.wait_for("…  ") if "…  " in row]
    assert row.startswith("long/") and {str(holder.pid), str(holder.child)} & set(row.split())


@pytest.mark.tool("tmux")
def test_a_waiters_line_is_cut_between_words(lab, screen):
    """A number without its unit would mislead."""
    lab.hold("job", "--note", "x" * 100)

    opened = screen("-n", "job", "--wait", "1h", *FILES, "--", "true", width=66)

    [row] = [row for row in opened.wait_for(" …") if "waiting" in row]
    assert re.fullmatch(r"solo: job: waiting for \d+s, \S+ left, 1st in the queue:( \S+)* …", row)


@pytest.mark.tool("tmux")
def test_top_reports_a_holder_that_it_cannot_end(lab, screen):
    """Afterwards top forgets it: at the end it lists no holder that got SIGTERM."""
    lab.hold("job")
    ticket = lab.find_hold("job")
    record = ticket.read_bytes()
    ticket.write_bytes(b"garbage")
    top = screen("top", "--via", "file")
    top.wait_for("1 held")

    top.type("s")
    top.wait_for("? y/n")
    top.type("y")

    top.wait_for("job: cannot end the holder: its record cannot be read")
    top.type("q")
    assert not any("got SIGTERM" in row for row in top.wait_for("ended:0"))
    ticket.write_bytes(record)


@pytest.mark.tool("bash")
@pytest.mark.parametrize("keys, status", [("q", 0), ("\x03", 130)])
def test_top_restores_the_cursor_and_the_main_screen(lab, terminal, keys, status):
    bash = terminal(TERM="xterm")
    bash.type("stty -g >$LAB/before\n")

    bash.type(f"{lab.script} top\n")
    bash.wait_for("up/down: select")
    bash.type(keys)
    bash.wait_for("\x1b[?1049l")
    bash.wait_for("\x1b[?25h")
    bash.type("echo status $?; stty -g >$LAB/after; echo over $((40 + 2))\n")
    bash.wait_for(f"status {status}")
    bash.wait_for("over 42")

    assert (lab.path / "after").read_text() == (lab.path / "before").read_text() != ""


@pytest.mark.tool("bash")
def test_top_can_be_suspended_and_continued(lab, terminal):
    bash = terminal(TERM="xterm")
    bash.type(f"{lab.script} top\n")
    bash.wait_for("up/down: select")

    bash.type("\x1a")
    bash.wait_for("Stopped")
    bash.type("echo back $((40 + 2))\n")
    bash.wait_for("back 42")
    at = len(bash.screen)
    bash.type("fg\n")
    bash.wait_for("up/down: select", at)
    bash.type("q")
    bash.wait_for("$ ", len(bash.screen))


@pytest.mark.tool("tmux")
def test_top_follows_the_selection_and_redraws_when_the_size_changes(lab, screen):
    hold_many(lab)
    top = screen("top", width=90, height=20)
    top.wait_for("name016")

    top.resize(50, 10)

    until(lambda: len(top.read()) == 10 and top.read()[-1].startswith("up/down"))
    assert max(map(len, top.read())) <= 50
    top.type(*["Down"] * (MANY - 1))
    top.wait_for(f"name{MANY - 1:03d}")
    top.resize(120, 30)
    top.wait_for("name026")
    top.type("q")
    top.wait_for("ended:0")


# --- progress of a waiter-------------------------------------------------------------------------


@pytest.mark.tool("tmux")
def test_a_waiter_on_a_terminal_shows_the_holder_and_its_place(lab, screen):
    holder = lab.hold("job")
    first = lab.start_waiter("job", tag="first")
    waiting = screen("-n", "job", "--wait", "1h", "--", "echo", "here I am", width=120)

    waiting.wait_for(f"s by pid {holder.pid} (")
    lines = waiting.wait_for("left, 2nd in the queue")
    assert len(lines) == 1 and lines[0].startswith("solo: job: waiting for ")
    first.kill()
    waiting.wait_for("1st in the queue")
    holder.stdin.close()

    assert waiting.wait_for("ended:0")[:2] == ["here I am", "ended:0"]


def test_progress_is_erased_before_the_first_byte_of_the_command(lab, terminal):
    holder = lab.hold("job")
    waiting = start_waiting(lab, terminal, "echo", "FIRST")
    finish(holder)

    waiting.wait_for("FIRST")

    assert waiting.screen.partition(b"FIRST")[0].endswith(b"\r\x1b[2K") and waiting.wait() == 0


def start_waiting(lab, terminal, *command):
    waiting = terminal(lab.script, "-n", "job", "--wait", "1h", "--", *command, TERM="xterm")
    waiting.wait_for("1st in the queue")
    return waiting


def test_progress_is_erased_when_the_wait_times_out(lab, terminal):
    lab.hold("job")
    lab.use_clock()
    waiting = start_waiting(lab, terminal, "true")
    lab.leap()  # it looks at its clock once a second

    assert b"\r\x1b[2Ksolo: job: busy: held for" in waiting.read_to_end() and waiting.wait() == 75


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_erases_progress_and_ends_the_waiter(lab, terminal, number):
    lab.hold("job")
    waiting = start_waiting(lab, terminal, "true")

    os.kill(waiting.pid, number)

    assert waiting.read_to_end().endswith(b"\r\x1b[2K") and waiting.wait() == -number


def test_progress_leaves_the_signal_dispositions_of_the_command_alone(lab, terminal):
    code = "print([line for line in open('/proc/self/status') if line.startswith(('SigIgn', 'SigBlk', 'SigCgt'))])"
    probe = [sys.executable, "-IS", "-c", code]
    holder = lab.hold("job")
    waiting = start_waiting(lab, terminal, *probe)
    finish(holder)

    guarded, plain = waiting.read_to_end(), terminal(*probe).read_to_end()

    assert guarded.rpartition(b"['SigBlk")[2] == plain.rpartition(b"['SigBlk")[2] != b""


@pytest.mark.parametrize(
    "words, environment, shown",
    [
        ((), {}, ""),
        ((), {"CI": "true"}, r"solo: job: waiting for \ds, \w+ left, 1st in the queue: held for "),
        (
            (),
            {"JENKINS_URL": "http://ci"},
            r"solo: job: waiting for \ds, \w+ left, 1st in the queue: held for ",
        ),
        (("-q",), {"CI": "true"}, ""),
        (("-v",), {}, "solo: job: waiting: held for "),
    ],
)
def test_without_a_terminal_progress_goes_only_to_a_ci_log(lab, words, environment, shown):
    for variable in ("CI", "JENKINS_URL", "TF_BUILD", "TEAMCITY_VERSION"):
        lab.environment.pop(variable, None)
    holder = lab.hold("job")
    waiting = lab.start(
        "-n", "job", "--wait", "1h", *words, "--", "true", env={**lab.environment, **environment}
    )
    until(lambda: lab.count_waiting("job"))
    until(lambda: read_state(waiting.pid) == "S")
    finish(holder)
    status, _, stderr = finish(waiting)

    lines = [row for row in stderr.splitlines() if "waiting" in row]
    assert status == 0 and len(lines) == bool(shown) and re.match(shown, stderr)


def test_progress_names_the_holder_of_slots_and_of_a_file(lab):
    lab.environment["CI"] = "true"
    holders = [lab.hold("pool", "--slots", "2") for _ in range(2)]
    waiting = lab.start("-n", "pool", "--slots", "2", "--wait", "20s", "true")
    line = waiting.stderr.readline().decode()
    finish(holders[0])

    assert re.search(
        rf"in the queue: 2 of 2 slots taken, the first held for \d+s by pid {holders[0].pid} \(",
        line,
    )
    assert finish(waiting)[0] == 0
    finish(holders[1])

    file = lab.path / "file"
    locker = lab.start_words("flock", file, "sh", "-c", "echo; read line")
    read_line(locker)
    waiting = lab.start("-n", "job", "--flock", file, "--wait", "20s", "true")
    line = waiting.stderr.readline().decode()
    locker.communicate()

    assert (
        line.startswith(f"solo: job: waiting: {file} is locked by pid ") and finish(waiting)[0] == 0
    )


def test_an_unread_ci_log_does_not_block_the_waiter(lab):
    holder = lab.hold("job")
    read, write = make_full_pipe()
    first = lab.start(
        "-n", "job", "--wait", "1h", "true", stderr=write, env={**lab.environment, "CI": "1"}
    )
    until(lambda: lab.count_waiting("job"))
    finish(holder)

    assert first.wait(PATIENCE) == 0
    os.close(read)
    os.close(write)


def test_progress_is_logged_again_every_minute(monkeypatch):
    """A minute passes while the waiter blocks; the loop is the real one."""
    printed, looks, now = [], iter([False, False, True]), 0.0
    monkeypatch.setattr(progress, "monotonic", lambda: now)
    watch = progress.Watch(["job"], float("inf"), False, False, True)
    monkeypatch.setattr(progress, "say_promptly", printed.append)

    def block(until):
        nonlocal now
        now += 60
        return next(looks)

    assert watch(block, float("inf"), lambda: (None, "held", "")) is True
    assert printed == [f"job: waiting for {age}: held" for age in ("0s", "1m", "2m")]


@pytest.mark.tool("bash")
def test_a_background_job_draws_no_progress(lab, terminal):
    lab.hold("job")
    bash = terminal(TERM="xterm")
    bash.type(f"{lab.script} -n job --wait 1h true & echo started\n")
    until(lambda: lab.count_waiting("job"))
    bash.type("sleep 1.2; echo over $((40 + 2))\n")
    bash.wait_for("over 42")

    assert b"in the queue" not in bash.screen
