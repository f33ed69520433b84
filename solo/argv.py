"""Parse the command line into a dict of typed options. Check values, and the options that exclude
or need each other.

GNU style: `-n NAME`, `-nNAME`, `-qn NAME`, `--name NAME`, `--name=NAME`. The first word that is not
an option ends the options; it and all later words belong to the command.
"""

from solo.errors import UsageError
from solo.kernel import decode
from solo.kinds import FLAG, read_word
from solo.options import (
    DIR,
    EVERY_OPTION,
    FILE,
    LOCAL_BACKENDS,
    ONCE_PER,
    SKIP_LIMITS,
    SOCKET,
    SUBCOMMAND_NAMES,
    VIA,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from solo.options import Option

    Typed = dict[str, Any]  # options by key
    Table = Mapping[str, Option]  # options by flag

SHORT = {"-" + option.short: option for option in EVERY_OPTION if option.short}
LONG = {"--" + option.flag: option for option in EVERY_OPTION}


def parse(words: "list[str]") -> "tuple[Typed, str | None, list[str]]":
    """Return (options by key, subcommand or None, the words from there on) of the words after
    `solo`. Raises UsageError.
    """
    options: Typed = {}
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return options, None, words[at + 1 :]
        if word[:1] != "-" or word == "-":
            subcommand = word if word in SUBCOMMAND_NAMES else None
            return options, subcommand, words[at:]
        at = parse_option(options, words, at + 1, LONG, SHORT)
    return options, None, []


def parse_option(
    options: "Typed", words: "list[str]", at: int, long: "Table", short: "Table"
) -> int:
    """Store the options in the word before number `at`. Return the number of the next word to
    parse.
    """
    if words[at - 1][:2] == "--":
        return parse_long(options, words, at, long)
    return parse_letters(options, words, at, short, long)


def parse_long(options: "Typed", words: "list[str]", at: int, table: "Table") -> int:
    """Store the long option before the word number `at`. Return the number of the next word to
    parse.
    """
    flag, equals, value = words[at - 1].partition("=")
    option = find_option(table, flag, table)
    if option.kind is FLAG:
        if equals:
            raise UsageError(f"{flag} takes no value")
    elif not equals:
        value, at = take_word(flag, words, at)
    store(options, option, flag, value)
    return at


def parse_letters(
    options: "Typed", words: "list[str]", at: int, table: "Table", long: "Table"
) -> int:
    """Store the short options in the word before number `at`. Return the number of the next word to
    parse.
    """
    word = words[at - 1]
    if len(word) > 2 and f"-{word.partition('=')[0]}" in long:
        raise UsageError(f"{word}: a long option starts with two dashes (use -{word})")
    letters = word[1:]
    while letters:
        flag, letters = "-" + letters[0], letters[1:]
        option = find_option(table, flag, long)
        if option.kind is FLAG:
            value = ""
        elif letters:
            value, letters = letters, ""
        else:
            value, at = take_word(flag, words, at)
        store(options, option, flag, value)
    return at


def check_together(options: "Typed") -> None:
    """Raise UsageError if an option excludes another that was typed, or needs one that was not."""
    typed = [option for option in LONG.values() if option.key in options]
    check_excludes(typed)
    for option in typed:
        if option.needs and not any(has_meaning(flag, options) for flag in option.needs):
            engine = "an engine (choose one with --via)"
            *first, last = [engine if flag == VIA.flag else f"--{flag}" for flag in option.needs]
            raise UsageError(
                f"--{option.flag} needs {', '.join(first)}{' or ' * bool(first)}{last}"
            )


def check_excludes(typed: "list[Option]") -> None:
    """Raise UsageError if two of these options exclude each other."""
    by_flag = {option.flag: option for option in typed}
    for option in typed:
        for flag in option.excludes:
            if flag in by_flag:
                raise UsageError(f"{option.title} and {by_flag[flag].title} exclude each other")


def has_meaning(flag: str, options: "Typed") -> bool:
    """Return whether the option was typed; --via counts only with an engine."""
    return is_engine(options) if flag == VIA.flag else LONG["--" + flag].key in options


def is_engine(options: "Mapping[str, object]") -> bool:
    """Return whether an engine keeps the lock, beyond this machine."""
    return options.get(VIA.key, FILE) not in LOCAL_BACKENDS


def find_option(table: "Table", flag: str, long: "Table") -> "Option":
    """Return the Option of `flag`. Raises UsageError, with a hint."""
    if flag in table:
        return table[flag]
    from solo.commands.cli import SUBCOMMANDS
    from solo.text.hints import explain_option

    hint = explain_option(flag, {**table, **long}, SUBCOMMANDS)
    raise UsageError(f"{flag}: no such option{hint}")


def take_word(flag: str, words: "list[str]", at: int) -> "tuple[str, int]":
    """Return the value of `flag`, the word number `at`, and the number of the next word. Raises
    UsageError.
    """
    if at == len(words) or words[at] == "--":
        raise UsageError(f"{flag} needs a value")
    return words[at], at + 1


def store(options: "Typed", option: "Option", flag: str, text: str) -> None:
    """Convert the text of a value by the kind of its option, and store it and its part by key.
    Raises UsageError.
    """
    text, comma, rest = text.partition(",") if option.part is not None else (text, "", "")
    if option.kind is not FLAG:
        # an empty one is no duration or number either: say why it may be empty
        read_word(flag, text)
    value = option.kind.read(flag, text)
    if option.part is not None and option.key in options:
        options.pop(option.part.key, None)  # the last of a repeated option replaces all of it
    if option.many:
        options.setdefault(option.key, []).append(value)
    else:
        options[option.key] = value
    if option.part is not None and comma:
        if option.part.kind is FLAG and rest != option.part.metavar:
            raise UsageError(
                f"{flag} {text},{rest}: after the comma only {option.part.metavar} may stand"
            )
        store(options, option.part, f"{option.part.metavar} of {flag}", rest)


def check_command(words: "list[str]", typed: "list[str]") -> None:
    """Raise UsageError if there is none. `typed` are all words after `solo`."""
    if not words or not words[0]:
        taken = ""
        if not words and typed[1:] and typed[-1][:1] != "-":
            taken = f": {typed[-1]} is the value of {typed[-2]}"
        raise UsageError(f"no command given{taken} (see solo --help)")


def read_variables(options: "Typed", environment: "Mapping[bytes, bytes]") -> None:
    """Add options from the environment, unless they were typed. Raises UsageError for a wrong
    combination.
    """
    read_variable(options, VIA, environment)
    if options.get(VIA.key) != SOCKET:
        read_variable(options, DIR, environment)
        return check_together(options)
    check_together(options)
    for option in (DIR, ONCE_PER):
        if option.key in options:
            raise UsageError(
                f"--via socket and --{option.flag} exclude each other: sockets keep no files"
            )
    for option in SKIP_LIMITS:
        if isinstance(options.get(option.key), int):
            raise UsageError(
                f"--{option.flag} cannot count skips with --via socket (use a duration)"
            )


def read_variable(options: "Typed", option: "Option", environment: "Mapping[bytes, bytes]") -> None:
    """Add one option from the environment, unless it was typed. Raises UsageError."""
    value = decode(environment.get((option.variable or "").encode(), b""))
    if value and option.key not in options:
        check_variable(option, value)
        options[option.key] = value


def check_variable(option: "Option", value: str) -> None:
    """Raise UsageError for a relative path in the environment variable of an option."""
    if option is DIR and value[0] != "/":
        remedy = "(a relative one differs between working directories)"
        raise UsageError(f"{option.variable} must be an absolute path, not {value} {remedy}")
