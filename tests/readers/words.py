"""The words of the command line, values of options, variables, and text that is shown."""

import getopt
import json
import math
import re
import signal
from types import SimpleNamespace

from readers import some
from readers.target import NUMBERS, attempt, expect, fuzzed, same, swapped
from solo import argv, directories, kernel, kinds, record
from solo.engines import engine, etcd
from solo.errors import UsageError
from solo.options import LAUNCHER_OPTIONS, PARTS, SUBCOMMAND_NAMES
from solo.text import describe, width

DURATION = re.compile(r"(?<![0-9.])([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|[smhd])")
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
DURATIONS = "500ms|30|30s|5m|1h30m|2d|forever|1m30|1.5h|.5|5.|.||-1|1e3|ms|1h 2m|²|1mm|1ms1m".split(
    "|"
) + ["9" * 400]
VALUES = "0|1|255|256||--|-q|x=y|a|failed|keep,64k|keep,2G|ended,started".split("|")


def find_seconds(text: str):
    if text == "forever":
        return math.inf
    if re.fullmatch(r"\d+\.?\d*|\.\d+", text, re.A):
        return float(text)
    if not text or DURATION.sub("", text):
        return None
    return sum(float(count) * SECONDS[unit] for count, unit in DURATION.findall(text))


def find_number(text: str, most: int, digits: int):
    return int(text) if re.fullmatch(r"[0-9]{1,%d}" % digits, text) and int(text) <= most else None


def find_signal(text: str):
    if re.fullmatch("[0-9]+", text):
        return int(text) if len(text) <= 2 and int(text) in signal.valid_signals() else None
    name = "SIG" + text.upper().removeprefix("SIG")
    aliases = {"SIGCLD": signal.SIGCHLD, "SIGIOT": signal.SIGABRT, "SIGPOLL": signal.SIGIO}
    return aliases.get(name) or signal.Signals.__members__.get(name)


def find_note(text: str):
    return text if text.strip() and text.isprintable() and len(text) <= record.NOTE_LIMIT else None


def find_capture(text: str):
    found = re.fullmatch("(failed|keep)(?:,([0-9]{1,9})([kMG]?))?", text)
    size = (
        found
        and int(found[2] or 64)
        << {"": 0, "k": 10, "M": 20, "G": 30}[found[3] or "k" * (not found[2])]
    )
    return (found[1] == "failed", size) if found and 1 << 10 <= size <= 1 << 30 else None


def find_events(text: str):
    found = text.split(",")
    return found if {*found} <= {"failed", "skipped", "overdue", "ended", "started"} else None


# How another reader finds the value of a kind, None if it is invalid; all other kinds take any
# word.
FINDERS = {
    kinds.FLAG: lambda text: True,
    kinds.DURATION: find_seconds,
    kinds.AGE: lambda text: (
        None if re.fullmatch("[0-9.]+", text) and find_seconds(text) else find_seconds(text)
    ),
    kinds.COUNT: lambda text: find_number(text, 999999999, 9),
    kinds.LIMIT: lambda text: (
        find_number(text, 999999999, 9) if text.isdigit() else find_seconds(text)
    ),
    kinds.STATUS: lambda text: find_number(text, 255, 3),
    kinds.PID: lambda text: find_number(text, 999999999, 9) or None,
    kinds.SIGNAL: find_signal,
    kinds.NOTE: find_note,
    kinds.CAPTURE: find_capture,
    kinds.ON: find_events,
}


def find_value(kind, text: str):
    return FINDERS.get(kind, lambda text: text or None)(text)


def make_value(rng) -> bytes:
    if rng.random() < 0.5:
        return rng.choice(DURATIONS).encode()
    return "".join(
        rng.choice("0|1|59|.|ms|s|m|h|d|_| |٣".split("|")) for _ in range(rng.randrange(8))
    ).encode()


@fuzzed(16, b"ms|forever|1h|.|/|" + NUMBERS)
def check_value(data: bytes):
    typed = kernel.decode(data)
    for kind in FINDERS:
        value, other = attempt(kind.read, "-x", typed, may=UsageError), find_value(kind, typed)
        if other is None:
            expect(
                isinstance(value, UsageError), "an invalid value is accepted", kind.sample, value
            )
        else:
            expect(
                value == other or math.isclose(value, other, rel_tol=1e-9),
                kind.sample,
                value,
                other,
            )
    parts = attempt(directories.split_name, typed, may=UsageError)
    bad = (
        any(part[:1] in (b"", b".") or len(part) > 255 for part in data.split(b"/"))
        or data.count(b"/") > 63
    )
    bad = bad or len(data) > 2048
    if bad:
        expect(isinstance(parts, UsageError), "an invalid name is accepted", parts)
    else:
        same(parts, typed.split("/"))


def trip_value(rng):
    seconds = rng.randrange(10 ** rng.randrange(1, 10))
    wording = describe.format_duration(seconds)
    read = kinds.read_duration("-x", wording)
    expect(
        read <= seconds
        and (seconds - read) * 24 <= max(seconds, 24 * 3600 * (seconds >= 86400)) + 60 * 24,
        wording,
    )
    same(kinds.read_duration("-x", f"{seconds}ms"), seconds * 0.001)


# --- words, compared with getopt of the standard library------------------------------------------

OPTIONS = (*LAUNCHER_OPTIONS, *PARTS)
BY_FLAG = {flag: option for option in OPTIONS for flag in (f"--{option.flag}", f"-{option.short}")}
SHORTS = "".join(
    option.short + ":" * (option.kind is not kinds.FLAG)
    for option in LAUNCHER_OPTIONS
    if option.short
)
LONGS = [option.flag + "=" * (option.kind is not kinds.FLAG) for option in OPTIONS]
NO_OPTIONS = "|--|-|list|--\0list\0-x|true\0-n|-qvs|-qE9|--wiat".split("|")


def find_exact(opt, longopts):
    """Replace getopt's function, which accepts abbreviated long options. solo does not."""
    if opt in longopts or opt + "=" in longopts:
        return opt + "=" in longopts, opt
    raise getopt.GetoptError(opt)


def run_getopt(words: list):
    """Return (the options, the other words); None if getopt refuses them."""
    with swapped(getopt, long_has_args=find_exact):
        found = attempt(getopt.getopt, words, SHORTS, LONGS, may=getopt.GetoptError)
    return None if isinstance(found, getopt.GetoptError) else found


def parse_otherwise(words: list):
    """Return the result of argv.parse, computed by getopt; None for UsageError."""
    found = run_getopt(words)
    if found is None:
        return None
    pairs, rest = found
    options = convert(pairs)
    if options is None:
        return None
    taken = words[: len(words) - len(rest)]
    # `--` ends the options, unless it is the value of one.
    ended = taken[-1:] == ["--"] and (run_getopt(taken[:-1]) or [None, None])[1] == []
    known = set(SUBCOMMAND_NAMES)
    return options, rest[0] if rest and not ended and rest[0] in known else None, rest


def convert(pairs: list):
    """Return the options of getopt by key, None if a value is invalid."""
    options = {}
    for flag, value in pairs:
        whole = BY_FLAG[flag]
        texts = value.split(",", 1) if whole.part else [value]
        if whole.part and whole.key in options:
            options.pop(whole.part.key, None)  # the last one counts as a whole
        for option, text in zip((whole, whole.part), texts):
            found = find_value(option.kind, text)
            if found is None or texts[1:] and option.kind is kinds.FLAG and text != "retry":
                return None
            if option.many:
                options.setdefault(option.key, []).append(found)
            else:
                options[option.key] = found
    return options


def make_words(rng) -> bytes:
    typed = []
    for _ in range(rng.randrange(5)):
        option = rng.choice(OPTIONS)
        flag = f"-{option.short}" if option.short and rng.random() < 0.5 else f"--{option.flag}"
        value = rng.choice(DURATIONS if option.kind in (kinds.DURATION, kinds.LIMIT) else VALUES)
        if option.part and rng.random() < 0.5:
            value += "," + rng.choice((*VALUES, "INT", "retry"))
        joined = flag + ("=" if flag[:2] == "--" else "") + value
        typed += [flag] if option.kind is kinds.FLAG else rng.choice(([flag, value], [joined]))
    typed += rng.choice(([], *(words.split("\0") for words in NO_OPTIONS)))
    return "\0".join(typed).encode()


@fuzzed(
    2, "|".join([*(f"--{option.flag}" for option in LAUNCHER_OPTIONS), "\0|=|,|-qn|--"]).encode()
)
def check_words(data: bytes):
    typed = kernel.decode(data).split("\0")
    read = attempt(argv.parse, typed, may=UsageError)
    other = parse_otherwise(typed)
    if other is None:
        expect(isinstance(read, UsageError), "solo accepts words that getopt refuses", read)
        expect(len(say(str(read))) <= 200 + 12 * len(data))
        return
    if isinstance(read, UsageError):
        expect(is_stricter(read, typed), "solo refuses words that getopt accepts", read)
        return
    same((list(read[0]), *read[1:]), (list(other[0]), *other[1:]))
    for key, value in read[0].items():
        expect(
            value == other[0][key] or math.isclose(value, other[0][key], rel_tol=1e-9), key, value
        )


def is_stricter(error: UsageError, typed: list) -> bool:
    """Whether solo is stricter than getopt here: `--` is no value, and `-name` is not `-n ame`."""
    return "--" in typed and "needs a value" in str(error) or "starts with two dashes" in str(error)


# --- shown text-----------------------------------------------------------------------------------


def say(message: str) -> bytes:
    """Return the line that kernel.say writes to stderr."""
    lines = []
    with swapped(kernel, posix=SimpleNamespace(write=lambda fd, line: lines.append(line))):
        kernel.say(message)
    [line] = lines
    expect(
        line.endswith(b"\n") and line.count(b"\n") == 1 and line[:-1].decode().isprintable(), line
    )
    return line


def make_shown(rng) -> bytes:
    return some.word(rng) + some.word(rng)


@fuzzed(6, "\x1b[2J|漢|é́|\u202e|\r|".encode() + b"\xed\xa0\x80")
def check_shown(data: bytes):
    plain = kernel.decode(data)
    same(kernel.encode(plain), data)
    expect(len(say(plain)) <= 7 + 10 * len(data))
    shown = width.clean(plain)
    expect(
        shown.isprintable()
        and len(shown) <= 10 * len(plain)
        and say(plain) == f"solo: {shown}\n".encode()
    )
    room = len(data) % 17
    short = width.cut(shown, room)
    expect(short in (shown, "") or short.endswith("…") and shown.startswith(short[:-1]), short)
    expect(width.measure(short) <= room == width.measure(width.pad(short, room)), short)
    expect(len(width.pad(short, room)) >= len(short))
    words = plain.split(" ")
    expect(len(describe.cut_command(words)) <= describe.COMMAND_WIDTH)
    kept = engine.cut(words)
    expect(
        len(json.dumps(kept)) <= engine.COMMAND_LIMIT + 6 * engine.LAST_WORD + 40
        and len(kept) <= len(words)
    )
    same(etcd.unpack(etcd.pack(data)), data)
