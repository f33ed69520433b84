"""Parse the command line into a dict of typed options. Check each value's kind, and the options that exclude or need
each other.

GNU style: `-n NAME`, `-nNAME`, `-qn NAME`, `--name NAME`, `--name=NAME`. The first word that is not an option ends the
options; it and all later words belong to the command.
"""

import posix

from solo.errors import UsageError
from solo.kernel import FOREVER, decode
from solo.options import (
    DIR,
    FILE,
    LAUNCHER_OPTIONS,
    LOCAL_BACKENDS,
    LOUD_AFTER,
    ONCE_PER,
    REPLACE_AFTER,
    SOCKET,
    SUBCOMMAND_NAMES,
    VIA,
)
from solo.record import NOTE_LIMIT

UNITS = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0))

SHORT = {"-" + option.short: option for option in LAUNCHER_OPTIONS if option.short}
LONG = {"--" + option.flag: option for option in LAUNCHER_OPTIONS}


def parse(words: list) -> tuple:
    """Parse the words after `solo`.

    Return (options by key, subcommand or None, the words from there on). Raises UsageError.
    """
    options, at = {}, 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return options, None, words[at + 1 :]
        if word[:1] != "-" or word == "-":
            subcommand = word if word in SUBCOMMAND_NAMES else None
            return options, subcommand, words[at:]
        at = parse_option(options, words, at + 1, LONG, SHORT)
    return options, None, []


def parse_option(options: dict, words: list, at: int, long: dict, short: dict) -> int:
    """Store the options in the word before number `at`. Return the number of the next word to parse."""
    if words[at - 1][:2] == "--":
        return parse_long(options, words, at, long)
    return parse_letters(options, words, at, short, long)


def parse_long(options: dict, words: list, at: int, table: dict) -> int:
    """Store the long option before the word number `at`. Return the number of the next word to parse."""
    flag, equals, value = words[at - 1].partition("=")
    option = find_option(table, flag)
    if option.kind == "flag":
        if equals:
            raise UsageError(f"{flag} takes no value")
        value = True
    elif not equals:
        value, at = take_word(flag, words, at)
    store(options, option, flag, value)
    return at


def parse_letters(options: dict, words: list, at: int, table: dict, long: dict) -> int:
    """Store the short options in the word before number `at`. Return the number of the next word to parse."""
    word = words[at - 1]
    if len(word) > 2 and f"-{word.partition('=')[0]}" in long:
        raise UsageError(f"{word}: a long option starts with two dashes (use -{word})")
    letters = word[1:]
    while letters:
        flag, letters = "-" + letters[0], letters[1:]
        option = find_option(table, flag)
        if option.kind == "flag":
            value = True
        elif letters:
            value, letters = letters, ""
        else:
            value, at = take_word(flag, words, at)
        store(options, option, flag, value)
    return at


def check_together(options: dict):
    """Raise UsageError if an option excludes another that was typed, or needs one that was not."""
    check_excludes(options, LAUNCHER_OPTIONS)
    typed = [option for option in LAUNCHER_OPTIONS if option.key in options]
    for option in typed:
        if option.needs and not any(has_meaning(flag, options) for flag in option.needs):
            *first, last = [
                "an engine (choose one with --via)" if flag == VIA.flag else f"--{flag}" for flag in option.needs
            ]
            raise UsageError(f"--{option.flag} needs {', '.join(first)}{' or ' * bool(first)}{last}")


def check_excludes(options: dict, table: tuple):
    """Raise UsageError if two of `options` exclude each other."""
    for option in table:
        for flag in option.excludes if option.key in options else ():
            if flag.replace("-", "_") in options:
                raise UsageError(f"--{option.flag} and --{flag} exclude each other")


def has_meaning(flag: str, options: dict) -> bool:
    """Return whether the option was typed; --via counts only with an engine."""
    return is_engine(options) if flag == VIA.flag else LONG["--" + flag].key in options


def is_engine(options: dict) -> bool:
    """Return whether an engine keeps the lock, beyond this machine."""
    return options.get(VIA.key, FILE) not in LOCAL_BACKENDS


def find_option(table: dict, flag: str):
    """Return the Option of `flag`. Raises UsageError, with a hint."""
    if flag in table:
        return table[flag]
    from solo.text.hints import explain_option

    raise UsageError(f"{flag}: no such option{explain_option(flag, table)}")


def take_word(flag: str, words: list, at: int) -> tuple:
    """Return the value of `flag`, the word number `at`, and the number of the next word. Raises UsageError."""
    if at == len(words) or words[at] == "--":
        raise UsageError(f"{flag} needs a value")
    return words[at], at + 1


def store(options: dict, option, flag: str, value):
    """Convert the value by the kind of its option, and store it by key. Raises UsageError."""
    if option.kind == "duration":
        value = read_duration(flag, value)
    elif option.kind == "status":
        value = read_status(flag, value)
    elif option.kind == "count":
        value = read_count(flag, value)
    elif option.kind == "pid":
        value = read_pid(flag, value)
    elif option.kind == "limit":
        value = read_count(flag, value) if value.isdigit() else read_duration(flag, value)
    elif option.kind == "signal":
        from solo.text.describe import read_signal

        value = read_signal(flag, value)
    elif option.kind == "note":
        check_note(flag, value)
    elif value == "":
        raise UsageError(f"{flag} needs a value, not an empty word (is a variable unset?)")
    if option.many:
        options.setdefault(option.key, []).append(value)
    else:
        options[option.key] = value


def read_duration(flag: str, text: str) -> float:
    """Return the seconds in `500ms`, `30`, `30s`, `5m`, `1h30m`, `2d`, `forever`."""
    if text == "forever":
        return FOREVER
    if is_number(text):
        return float(text)
    seconds, rest = 0.0, text
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        number, tail = rest[:digits], rest[digits:]
        for unit, factor in UNITS:
            if tail.startswith(unit) and is_number(number):
                seconds += float(number) * factor
                rest = tail[len(unit) :]
                break
        else:
            break
    if rest or not text:
        raise UsageError(f"{flag} {text}: not a duration (like 500ms, 30s, 5m, 1h30m, 2d or forever)")
    return seconds


def read_variables(options: dict, environment):
    """Add options from the environment, a mapping of bytes, unless they were typed.

    Raises UsageError for a wrong combination.
    """
    read_variable(options, VIA, environment)
    if options.get(VIA.key) != SOCKET:
        read_variable(options, DIR, environment)
    check_together(options)
    if options.get(VIA.key) == SOCKET:
        if DIR.key in options:
            raise UsageError("--via socket and --dir exclude each other: sockets keep no files")
        if ONCE_PER.key in options:
            raise UsageError("--via socket and --once-per exclude each other: sockets keep no files")
        for option in (LOUD_AFTER, REPLACE_AFTER):
            if isinstance(options.get(option.key), int):
                raise UsageError(f"--{option.flag} cannot count skips with --via socket (use a duration)")


def read_variable(options: dict, option, environment):
    """Add one option from the environment, unless it was typed. Raises UsageError."""
    value = environment.get(option.variable.encode())
    if value and option.key not in options:
        if option is DIR and value[:1] != b"/":
            remedy = "(a relative one differs between working directories)"
            raise UsageError(f"{option.variable} must be an absolute path, not {decode(value)} {remedy}")
        options[option.key] = decode(value)


def read_count(flag: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return int(text)
    raise UsageError(f"{flag} {text}: not a number (0 to 999999999)")


def read_pid(flag: str, text: str) -> int:
    if text == "parent":
        return posix.getppid()
    if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0:
        return int(text)
    raise UsageError(f"{flag} {text}: not a process id")


def check_note(flag: str, text: str):
    """Raise UsageError unless the text is one line that cannot control a terminal."""
    if not isinstance(text, str) or not text.strip() or len(text) > NOTE_LIMIT or not text.isprintable():
        raise UsageError(f"{flag} must be one line of 1 to {NOTE_LIMIT} printable characters")


def is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


def read_status(flag: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= 255:
        return int(text)
    raise UsageError(f"{flag} {text}: not an exit status (0 to 255)")
