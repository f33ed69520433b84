"""Crontabs and units, for `solo doctor --crontab`."""

from readers.target import attempt, expect, fuzzed, put_into_file, same
from solo import kernel
from solo.commands import cron_log, crontab, shell_line
from solo.commands.shell_line import Unclear

TIMES = "* * * * *|@daily|*/5 1-7 * jan mon-fri|ExecStart=|ExecStart=-".split("|")
PIECES = (
    "flock|-n|-w 5|/run/lock/x|/tmp/x|lckdo|setlock|chpst -l|run-one|sem --id x|solo|/x/solo|list|-n x|--dir /d|--|-c 'a && b'|job.sh|a b|&&|;"
    "|\\|\\||>log|2>&1|$(date +\\%F)|%|\"|'|`|$(|mkdir /tmp/l|rmdir /tmp/l|[ -f x.pid ]|pgrep x|cd /|nice|A=b|root|#|&"
).split("|")
STATES = ("fails", "note")


def make_crontab(rng) -> bytes:
    lines = rng.sample(
        ["PATH=/usr/bin:/bin", "SHELL=/bin/bash", "[Service]", "User=alice", "SOLO_DIR=/d"], rng.randrange(4)
    )
    for _ in range(rng.randrange(1, 5)):
        words = [rng.choice(PIECES) for _ in range(rng.randrange(1, 12))]
        lines.append(f"{rng.choice(TIMES)} {' '.join(words)}")
    return "\n".join(lines).encode()


@fuzzed(6, "|".join(["\n* * * * * ", "\nExecStart=", "flock", "/x", "&&", "'", '"', "$(", ")", "\\%"]).encode())
def check_crontab(data: bytes):
    [source] = crontab.read_all([put_into_file(data)])
    assert source.text.endswith(crontab.cut_header(source.text))
    same(source.text, kernel.decode(data))
    for parse in (crontab.parse_crontab, crontab.parse_unit):
        lines = list(parse(source))
        for line, row in zip(lines, crontab.describe(lines, {}, {})):
            expect({finding["state"] for finding in row["findings"]} <= set(STATES))
            use = row["use"]
            expect(use is None or use.isprintable() and use.startswith(line.head), use)
            expect(use is None or row["findings"], "a suggestion without a reason", use)
    text = source.text.partition("\n")[0]
    steps = attempt(shell_line.split_line, text, may=Unclear)
    for step in [] if isinstance(steps, Unclear) else steps[0]:
        for word in [word for command in step.commands for word in command.words]:
            same(text[word.start : word.end], word.raw)
            same(shell_line.read_word(text, word.start), word)


ENTRIES = (
    "CMD (a.sh)|CMD ([7] a.sh)|END ([7] a.sh)|CMDEND (a.sh)|pam_unix(cron:session): session opened for user alice(uid=1) by x"
    "|pam_unix(cron:session): session closed for user alice|CMD ()|(x"
).split("|")
NOW = 1_800_000_000.0


def make_cron_log(rng) -> bytes:
    lines = []
    for _ in range(rng.randrange(8)):
        date = rng.choice(["Nov 23", "2026-11-23T", "Feb 29", "0000-00-00T"])
        time = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
        date += f"{time}+01:00" if date.endswith("T") else f" {time}"
        entry = rng.choice(ENTRIES)
        user = "(alice) " if entry[:1] in "CE" else ""
        lines.append(f"{date} host CRON[{rng.choice((1, 7, 99999999999))}]: {user}{entry}")
    return "\n".join(lines).encode()


@fuzzed(2, b"Nov 23 |T00:00:00|CRON[|]: |(alice) |CMD (|)|session opened for user |+01:00|9999-12-31T23:59:59")
def check_cron_log(data: bytes):
    lines = kernel.decode(data).split("\n")
    runs = cron_log.find_runs(lines, NOW)
    for ran in runs.values():
        expect(all(run.start <= run.end for run in ran), "a run ends before it starts", ran)
        overlap = cron_log.find_overlap(ran)
        expect(overlap is None or overlap[0].end > overlap[1].start, overlap)
