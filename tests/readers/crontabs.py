"""Crontabs and units, for `solo doctor --crontab`."""

from readers.target import attempt, expect, fuzzed, put_into_file, same
from solo import kernel
from solo.commands.doctor import crontab, jobs, shell_line, units
from solo.commands.doctor.shell_line import Unclear

TIMES = "* * * * *|@daily|*/5 1-7 * jan mon-fri|ExecStart=|ExecStart=-".split("|")
PIECES = (
    "flock|-n|-w 5|/run/lock/x|/tmp/x|lckdo|setlock|chpst -l|run-one|sem --id x|solo|/x/solo|list|-n x|--dir /d|--|-c 'a && b'|job.sh|a b|&&|;"
    "|\\|\\||>log|2>&1|$(date +\\%F)|%|\"|'|`|$(|mkdir /tmp/l|rmdir /tmp/l|[ -f x.pid ]|pgrep x|cd /|nice|A=b|root|#|&"
).split("|")
STATES = ("fails", "note")


def make_crontab(rng) -> bytes:
    lines = rng.sample(
        "PATH=/usr/bin:/bin SHELL=/bin/bash [Service] User=alice SOLO_DIR=/d".split(),
        rng.randrange(4),
    )
    for _ in range(rng.randrange(1, 5)):
        words = [rng.choice(PIECES) for _ in range(rng.randrange(1, 12))]
        lines.append(f"{rng.choice(TIMES)} {' '.join(words)}")
    return "\n".join(lines).encode()


@fuzzed(
    6,
    "|".join(
        ["\n* * * * * ", "\nExecStart=", "flock", "/x", "&&", "'", '"', "$(", ")", "\\%"]
    ).encode(),
)
def check_crontab(data: bytes):
    [source] = crontab.read_all([put_into_file(data)])
    same(source.text, kernel.decode(data))
    for parsed in (
        crontab.parse_crontab(source),
        units.parse_unit([source]),
        units.parse_unit([source, source]),
    ):
        lines = list(parsed)
        for line, row in zip(lines, jobs.describe(lines)):
            expect({finding.state for finding in row.findings} <= set(STATES))
            use = row.use
            expect(use is None or use.isprintable() and use.startswith(line.head), use)
            expect(use is None or row.findings, "a suggestion without a reason", use)
    text = source.text.partition("\n")[0]
    steps = attempt(shell_line.split_line, text, may=Unclear)
    for word in (
        [] if isinstance(steps, Unclear) else [word for command in steps for word in command.words]
    ):
        same(text[word.start : word.end], word.raw)
