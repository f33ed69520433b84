"""The command line: list, --help, --version, messages and hints, and the manual, which is made from
its declaration.
"""

import json
import os
import re
import shlex
import subprocess

import pytest
from conftest import PATIENCE, ROOT, finish, read_line, until

from solo import argv
from solo.commands.cli import SUBCOMMANDS
from solo.commands.lookup import Asked
from solo.options import GROUPS, LAUNCHER_OPTIONS


def test_list_is_empty_where_nothing_ran(lab):
    assert lab.list() == []
    assert lab.run("list", "--via", "file").stdout == b""


def test_list_has_an_object_per_ticket(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job")

    held, waiting = lab.list()

    keys = ("name", "state", "mode", "slot", "via", "launcher", "child", "host")
    host = os.uname().nodename
    assert [held[key] for key in keys] == [
        "job",
        "held",
        "exclusive",
        None,
        "file",
        holder.pid,
        holder.child,
        host,
    ]
    assert held["command"] == ["sh", "-c", "echo $$; read line; exit 0"]
    assert (waiting["state"], waiting["launcher"], waiting["child"]) == (
        "waiting",
        waiter.pid,
        None,
    )


def test_list_takes_names(lab):
    lab.hold("one")
    lab.hold("two/three")

    assert [ticket["name"] for ticket in lab.list("two/three", "four")] == ["two/three"]
    assert [ticket["name"] for ticket in lab.list("two")] == ["two/three"]


def test_waiter_at_a_parent_is_listed_there(lab):
    lab.hold("deploy")
    lab.start("-n", "deploy/prod", "-w", "forever", "true")
    until(lambda: len(lab.list()) == 2)

    assert [(row["name"], row["state"]) for row in lab.list()] == [
        ("deploy", "held"),
        ("deploy", "waiting"),
    ]


def test_directories_deeper_than_any_name_are_ignored(lab):
    lab.run("-n", "/".join("a" * 64), "true")
    path = lab.directory.joinpath(*"a" * 64)
    for _ in range(5):
        path = path / "a"
        path.mkdir(mode=0o700)

    assert lab.list() == []
    assert lab.run("-n", "/".join("a" * 65), "true").returncode == 125


def test_longest_name_can_be_used_shown_and_removed(lab):
    name = "/".join(["n" * 255] * 7 + ["n" * 254, "n"])  # 2048 bytes
    longer = lab.run("-n", name + "n", "true")

    for words in (("-n", name, "true"), ("show", name), ("clean", "--history", "0", name)):
        assert lab.run(*words).returncode == 0
    assert lab.run("show", name).returncode == 125
    assert (longer.returncode, longer.stderr) == (
        125,
        b"solo: a name may not be longer than 2048 bytes\n",
    )


def test_list_in_a_pipe_is_plain_aligned_text(lab):
    holder = lab.hold("job")

    head, row = lab.run("list").stdout.decode().splitlines()

    assert head.split() == ["NAME", "STATE", "MODE", "LAUNCHER", "CHILD", "FOR", "USER", "COMMAND"]
    assert row.split()[:5] == ["job", "held", "exclusive", str(holder.pid), str(holder.child)]
    assert head.index("STATE") == row.index("held")


def test_list_names_the_backends_where_rows_differ(lab):
    by_file = lab.hold("job")
    by_socket = lab.hold("job", "--via", "socket")

    head, *rows = lab.run("list").stdout.decode().splitlines()
    [plain, _] = lab.run("list", "--via", "socket").stdout.decode().splitlines()

    found = {int(row.split()[3]): row[head.index("VIA") :].split()[0] for row in rows}
    assert found == {by_file.pid: "file", by_socket.pid: "socket"} and "VIA" not in plain


def test_list_escapes_control_characters_and_survives_a_closed_pipe(lab):
    process = lab.start(
        "-n", "job", "--", "sh", "-c", "echo; read line; exit 0", b"\x1b]0;\xff\x07"
    )
    read_line(process)
    (lab.directory / "job").rename(
        lab.directory / os.fsdecode(b"n\xe4\x1b[31m")
    )  # version 0.2.0 accepts the name

    assert b"\x1b" not in lab.run("list").stdout
    assert lab.list("--json")[0]["name"] == "n\\xe4\x1b[31m"
    closed = subprocess.run(
        f"{lab.script} list | true", shell=True, env=lab.environment, capture_output=True
    )
    assert closed.stderr == b""
    finish(process)


def test_every_subcommand_works_without_libraries(common):
    """`common` has a Python of its own. The lines of README's first block, and the others."""
    holder = common.hold("job")

    rows = json.loads(common.run("list", "--json").stdout)
    for line in (
        "list",
        "list --via file",
        "show job",
        "history -h",
        "history --limit 1",
        "metrics",
        "top",
        "doctor --json",
    ):
        ran = common.run(*line.split())
        assert (ran.returncode, ran.stdout > b"") == (0, True), (line, ran.stderr)
    stopped = common.run("stop", "job", "--kill-after", "1s")

    assert [row["launcher"] for row in rows] == [holder.pid]
    assert stopped.returncode == 0 and stopped.stdout.startswith(b"job: ended pid ")
    assert common.run("wait", "-t", "9", "job").returncode == 0
    assert (
        common.run("stop", "--kil", "3", "x").stderr
        == b"solo: --kil: no such option (did you mean --kill-after?)\n"
    )


@pytest.mark.parametrize(
    "words", [["-h"], ["--help"], ["hold", "-h"], ["release", "--help"]], ids=" ".join
)
def test_help_of_a_run_and_of_a_hold_needs_no_library(common, words):
    result = common.run(*words)

    assert (result.returncode, result.stderr) == (0, b"") and result.stdout.startswith(
        b"Usage: solo "
    )


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_of_a_subcommand_on_a_terminal_has_every_option_in_80_columns(terminal, lab, name):
    one = SUBCOMMANDS[name]
    text = terminal(lab.script, name, "-h", TERM="dumb").read_to_end().decode()

    assert "\x1b" not in text and "<bool>" not in text
    assert f"Usage: solo {name} [OPTION]... {one.names.metavar}" in text
    assert max(map(len, text.splitlines())) <= 80
    shown = " ".join(text.replace("│", " ").split())
    assert one.text in shown
    for option in one.options:
        assert {f"--{option.flag}", *option.help.split()} <= {*shown.split()}


def test_brief_help_fits_a_screen_and_names_what_serves_most(lab):
    lines = lab.run("-h").stdout.decode().splitlines()

    assert len(lines) <= 24 and max(map(len, lines)) < 80
    flags = re.findall(r"^  (?:-., |    )(--[a-z-]+)", "\n".join(lines), re.M)
    assert flags == [
        "--name",
        "--quiet",
        "--wait",
        "--timeout",
        "--tree",
        "--slots",
        "--loud-after",
    ]
    assert {*SUBCOMMANDS} <= set(re.findall(r"\w+", "\n".join(lines))) and lines[-1].endswith(
        "solo --help for all"
    )
    assert lab.run("-h", "--help").stdout == lab.run("--help").stdout != lab.run("-h").stdout


@pytest.mark.parametrize("words", [[], *([name] for name in SUBCOMMANDS)], ids=" ".join)
def test_help_has_a_line_of_79_columns_for_each_option(lab, words):
    """Or two lines, if the option and its value leave no room."""
    lines = lab.run(*words, "--help").stdout.decode().splitlines()
    options = SUBCOMMANDS[words[0]].options if words else LAUNCHER_OPTIONS

    assert max(map(len, lines)) <= 79 and ("", "") not in zip(lines, lines[1:])
    for option in options:
        flag = f"--{option.flag} {option.metavar or ''}".rstrip()
        head = re.compile(rf"  (?:-.,|   ) {re.escape(flag)}(?: .*)?")
        [at] = [at for at, row in enumerate(lines) if head.fullmatch(row)]
        row = lines[at] if "  " in lines[at].strip() else lines[at] + lines[at + 1]
        assert row.endswith(f"  {option.help}") and option.text[-1] == "."
    assert words or {f"  {name:<10}{one.summary}" for name, one in SUBCOMMANDS.items()} <= set(
        lines
    )


def test_help_has_usage_groups_and_valid_examples(lab):
    text = lab.run("--help").stdout.decode()

    assert text.startswith("Usage: solo [OPTION]... [--] COMMAND [ARG]...\n       solo SUBCOMMAND")
    assert [line for line in text.splitlines() if line[:-1] in GROUPS] == [
        f"{group}:" for group in GROUPS
    ]
    examples = [line.split() for line in text.splitlines() if line.startswith("  solo ")]
    assert len(examples) == 3 and all(argv.parse(words[1:])[1] is None for words in examples)


@pytest.mark.tool("mandoc")
def test_manual_is_clean_mdoc_of_some_screens_with_the_usual_sections():
    warnings, shown = (
        subprocess.run(
            ["mandoc", "-T", *words, ROOT / "man/solo.1"], capture_output=True, text=True
        ).stdout
        for words in (["lint", "-W", "warning"], ["utf8"])
    )

    assert warnings == "" and shown.count("\n") < 650
    assert "wrapper" in next(row for row in shown.splitlines() if "–" in row)
    page = (ROOT / "man/solo.1").read_text()
    for section in (
        "EXAMPLES",
        "EXIT STATUS",
        "DIAGNOSTICS",
        "ENVIRONMENT",
        "FILES",
        "TRUST",
        "CAVEATS",
        "SEE ALSO",
    ):
        assert re.search(rf"^\.Sh {section}(\\&)?$", page, re.M)
    assert page.index(".Sh EXAMPLES") < page.index(".Sh OPTIONS")


def test_options_of_each_subcommand_are_fields_of_the_asked_ones():
    typed = {
        option.key for one in SUBCOMMANDS.values() for option in one.options if one.name != "hold"
    }

    assert {key for key in typed if not hasattr(Asked, key)} == {"all"}


MISTAKES = [
    ("lsit", "lsit: command not found (did you mean solo list?)"),
    ("hisotry job", "hisotry: command not found (did you mean solo history?)"),
    ("cd /", "cd: command not found (it is a word of the shell: use sh -c)"),
    (
        "'echo a; echo b'",
        "echo a; echo b: command not found (it is a line for the shell: use sh -c)",
    ),
    ("A=1 env", "A=1: command not found (to set a variable use env)"),
    ("xyzzy", "xyzzy: command not found (in the PATH $PATH)"),
    ("status job", "status: command not found (it was taken as COMMAND; did you mean solo show?)"),
    ("unlock", "unlock: command not found (it was taken as COMMAND; did you mean solo release?)"),
    ("help", "help: command not found (it was taken as COMMAND; did you mean solo --help?)"),
    ("help metrics", "help: command not found (did you mean solo metrics -h?)"),
    (
        "version",
        "version: command not found (it was taken as COMMAND; did you mean solo --version?)",
    ),
    ("run true", "run: command not found (it was taken as COMMAND; did you mean solo -- COMMAND?)"),
    (
        "'–n' job true",
        "\u2013n: command not found (it starts with a typographic dash, which was taken as COMMAND: type -)",
    ),
    (
        "--wait 5 min true",
        "min: command not found (it was taken as COMMAND; a duration is one word, like 30s, 5m, 2h)",
    ),
    (
        "-x true",
        "-x: no such option (of flock(1): a hold is exclusive by default; -s makes it shared)",
    ),
    (
        "-u f",
        "-u: no such option (of flock(1): the lock is released when COMMAND ends; solo stop NAME ends it earlier)",
    ),
    ("-name job true", "-name: a long option starts with two dashes (use --name)"),
    ("-wait=5 true", "-wait=5: a long option starts with two dashes (use --wait=5)"),
    (
        "-n /j.lock true",
        "/j.lock: a name is not a path (is a variable unset? to lock a file use --flock /j.lock)",
    ),
    (
        "-port=1 true",
        "-p: no such option (no port is needed: solo -- COMMAND; -n NAME chooses the name of the lock)",
    ),
    (
        "/run/my.lock true",
        "/run/my.lock: no such file (solo needs no lock file, as flock(1) does: solo -- true ...)",
    ),
    ("stop -k 5 m", "-k 5 m: a duration is one word, like 30s, 5m, 2h (for a name m: -k 5s m)"),
    ("--flock -- date", "--flock needs a value"),
    ("wait job -t", "-t needs a value"),
    ("list --json=1", "--json takes no value"),
    ("--lockf file true", "--lockf: no such option (did you mean --fcntl?)"),
    ("-n '' true", "-n needs a value, not an empty word (is a variable unset?)"),
    ("list --null --json", "--null and --json exclude each other"),
    ("list --everything", "--everything: no such option (--help lists the options)"),
    ("--frob true", "--frob: no such option (--help lists the options)"),
    ("hold --pid 1", "hold: no name given (in a script: solo hold --pid $$ NAME)"),
    ("list a//b", "a//b: a part of a name may not be empty or start with a dot"),
    ("list --dir ''", "--dir needs a value, not an empty word (is a variable unset?)"),
    ("--loud-after 3 true", "--loud-after needs --quiet, --busy-exit or --notify"),
    (
        "--via socket -q --loud-after 3 true",
        "--loud-after cannot count skips with --via socket (use a duration)",
    ),
    (
        "--via socket --replace-after 3 true",
        "--replace-after cannot count skips with --via socket (use a duration)",
    ),
    ("-t 0 true", "--timeout must be more than 0"),
    ("-n=job true", "=job: a name may not start with ="),
    ("-n:job true", ":job: a name may not start with :"),
    ("-n 'a\nb' true", "a\\nb: a name may not contain control characters"),
    ("hold --for 9 'a\x1b'", "a\\x1b: a name may not contain control characters"),
    (
        "--via file clean",
        "only --dir may precede clean, other options follow it (to run a program of this name, type -- before it)",
    ),
    (
        "-n job top",
        "only --dir and --via may precede top, other options follow it (to run a program of this name, type -- before it)",
    ),
    ("list --jsn", "--jsn: no such option (did you mean --json?)"),
    ("stop --kil 3 x", "--kil: no such option (did you mean --kill-after?)"),
    (
        "history --since x",
        "--since x: not a duration or a date (like 12h, 2d, yesterday, 2026-01-31 or '2026-01-31 03:00')",
    ),
    ("history --limit 0", "--limit 0: not a number above 0"),
    ("-V", "-V: no such option (did you mean --version?)"),
    ("metrics -o f", "-o: no such option (did you mean --output?)"),
    (
        "history -n 5",
        "-n: no such option (did you mean --limit? A name is typed as it is: solo history NAME)",
    ),
    ("list -n x", "-n: no such option (type the NAME alone, without an option)"),
    ("list -o json", "-o: no such option (--help lists the options)"),
    ("list --format json", "--format: no such option (did you mean --json?)"),
    ("stop -t 5 x", "-t: no such option (did you mean --kill-after?)"),
    ("-j 4 true", "-j: no such option (did you mean --slots?)"),
    ("-f x true", "-f: no such option (did you mean --flock? -n NAME needs no file)"),
    (
        "-s KILL true",
        "KILL: command not found (it was taken as COMMAND; did you mean solo --timeout DURATION,SIG?)",
    ),
    ("pause job", "pause: command not found (it was taken as COMMAND; did you mean solo hold?)"),
    ("-n 'job ' true", "'job ': a name may not start or end with a blank"),
    ("-n ' ' true", "' ': a name may not start or end with a blank"),
    ("stop -9 x", "-9: no such option (to end it at once: -k 0)"),
    ("stop --signal KILL x", "--signal: no such option (to end it at once: -k 0)"),
    (
        "explain x",
        "explain: command not found (it was taken as COMMAND; did you mean solo --explain?)",
    ),
    ("-- check", "check: command not found (did you mean solo check?)"),
    ("-- here.sh", "here.sh: command not found (did you mean ./here.sh?)"),
    ("./here.sh", "./here.sh: Permission denied (chmod +x ./here.sh)"),
    ("'./here.sh && x'", "./here.sh && x: no such file (it is a line for the shell: use sh -c)"),
    (
        "-n my backup -- ./here.sh",
        "backup: command not found (it was taken as COMMAND; a name needs -n, a value with blanks quotes or a comma)",
    ),
    (
        "--once-per 1d retry -- true",
        "retry: command not found (it was taken as COMMAND; a name needs -n, a value with blanks quotes or a comma)",
    ),
    ("-- [[ -f x ]]", "[[: command not found (it is a word of the shell: use sh -c)"),
    ("--once-per 24 true", "--once-per 24: needs a unit (like 24h, 24d or 24s)"),
    ("list --watch", "--watch: no such option (did you mean solo top?)"),
    (
        "--json list",
        "only --dir and --via may precede list, other options follow it (to run a program of this name, type -- before it)",
    ),
    ("-n backup", "no command given: backup is the value of -n (see solo --help)"),
    (
        "-- -q true",
        "-q: command not found (it was taken as COMMAND: options come first, then --, then COMMAND)",
    ),
    ("--retry 3 true", "--retry: no such option (solo repeats no command)"),
    ("--max 3 true", "--max: no such option (did you mean --slots?)"),
    ("--no-wait true", "--no-wait: no such option (solo waits only with --wait)"),
    ("--nonblock true", "--nonblock: no such option (of flock(1): solo waits only with --wait)"),
    ("--max-waitings 3 true", "--max-waitings: no such option (--help lists the options)"),
    ("--failed job", "--failed: no such option (did you mean solo history --failed?)"),
    ("stop --all", "--all: no such option (type each NAME: solo list shows them)"),
    ("stop --pid 9 job", "--pid: no such option (type each NAME: solo list shows them)"),
    ("history --tail 3", "--tail: no such option (did you mean --limit?)"),
    ("wait --wait 3 job", "--wait: no such option (did you mean --timeout?)"),
    ("show --captured job", "--captured: no such option (did you mean solo history --captured?)"),
    ("-q --loud-after x true", "--loud-after x: not a number, nor a duration (like 3, 30s, 6h)"),
]


@pytest.mark.parametrize("words, message", MISTAKES)
def test_likely_mistake_gets_a_hint(lab, words, message):
    (lab.path / "here.sh").write_text("true")

    result = lab.run(*shlex.split(words), cwd=lab.path)

    assert result.returncode in (125, 126, 127) and result.stdout == b""
    assert result.stderr.decode() == f"solo: {message}\n".replace("$PATH", os.environ["PATH"])


@pytest.mark.parametrize("words", [["-c", "date"], ["-e", "true"], ["-o", "true"], ["-F", "true"]])
def test_option_of_flock_gets_a_hint(lab, words):
    result = lab.run(*words)

    assert result.returncode == 125
    assert result.stderr.decode().startswith(f"solo: {words[0]}: no such option (of flock(1): ")


def test_doctor_notes_many_names_of_one_program(lab):
    for number in range(10):
        lab.run("echo", str(number))

    note = b"echo ran under 10 names made from its words; runs of one job need one name: -n NAME"
    assert note in lab.run("doctor").stdout


@pytest.mark.parametrize("typed, shown", [("names", b"names"), ("n\udcff", b"n\\xff")])
def test_relative_solo_dir_is_refused(lab, typed, shown):
    lab.environment["SOLO_DIR"] = typed

    for words in (["-n", "job", "true"], ["list"], ["clean"]):
        result = lab.run(*words, cwd=lab.path)
        remedy = b"(a relative one differs between working directories)"
        expected = b"solo: SOLO_DIR must be an absolute path, not %b %b\n" % (shown, remedy)
        assert (result.returncode, result.stderr) == (125, expected)
    for words in (
        ["list", "--help"],
        ["list", "--dir", lab.directory],
        ["--dir", lab.directory, "list"],
    ):
        assert lab.run(*words, cwd=lab.path).returncode == 0


def test_views_of_files_ignore_solo_via(lab):
    lab.run("-n", "job", "true")
    lab.environment["SOLO_VIA"] = "socket"

    assert [row["name"] for row in lab.history()] == ["job"]
    assert b'solo_runs_total{name="job"' in lab.run("metrics").stdout
    assert b"names live in " + os.fsencode(lab.directory) in lab.run("doctor").stdout
    assert lab.run("clean", "--history", "0s").stdout == b"job: removed\njob: history removed\n"


def test_unprintable_name_is_escaped(lab):
    name = "x\x1b]0;owned\x07\nsolo: y"
    holder = lab.hold_old(name)

    clean = ("clean", "--history", "0s", name)
    output = b"".join(lab.run(*words).stdout for words in (("stop", name), ("stop", name), clean))

    said = [line.partition(b": y: ")[2].split()[0] for line in output.splitlines()]
    assert said == [b"ended", b"not", b"removed", b"history"]
    assert output.isascii() and output.replace(b"\n", b"").decode().isprintable()
    holder.wait(PATIENCE)


@pytest.mark.parametrize("words", [["--help"], ["list", "--help"], ["history", "--help"]])
def test_help_respects_no_color_and_the_width(lab, terminal, words):
    def show(**environment):
        resized = ("sh", "-c", 'stty cols 60; exec "$@"', "sh", lab.script, *words)
        return terminal(*resized, **environment).read_to_end()

    colored, plain, dumb = (
        show(TERM="xterm-256color"),
        show(TERM="xterm-256color", NO_COLOR="1"),
        show(TERM="dumb"),
    )

    assert b"\x1b[1;36m" in colored and b"\x1b[" not in plain + dumb
    assert max(map(len, plain.decode().split("\r\n"))) <= 60
    for variable in ("GITHUB_ACTIONS", "FORCE_COLOR"):  # in a pipe
        assert b"\x1b" not in lab.run(*words, env={**lab.environment, variable: "1"}).stdout
