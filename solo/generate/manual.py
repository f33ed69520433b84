"""Makes the manual's lists of options, subcommands and statuses from their tables: `python -m solo.generate.manual
man/solo.1 man/solo-hold.1`.

Rewrites the lines between `.\\" made from TABLE` and `.\\" end`, and leaves the rest of the page alone.
"""

import sys

from solo.commands.table import SUBCOMMANDS
from solo.errors import EXIT_STATUSES
from solo.options import LAUNCHER_OPTIONS


def make_options(options) -> str:
    return "".join(f".It {make_flags(option)}\n{make_text(option.text)}" for option in options)


def make_flags(option) -> str:
    short = f"Fl {option.short} , " if option.short else ""
    return f"{short}Fl -{option.flag}" + (f" Ar {option.metavar}" if option.metavar else "")


def make_text(text: str) -> str:
    """Return the text with one sentence per line, as mdoc wants it."""
    return text.replace(". ", ".\n").replace("\\", "\\e") + "\n"


def make_subcommands() -> str:
    lines = []
    for subcommand in SUBCOMMANDS:
        lines.append(f".It Nm Cm {subcommand.name} {make_usage(subcommand)}\n{make_text(subcommand.text)}")
    return "".join(lines)


def make_hold() -> str:
    """Return the options that only `solo hold` and `solo release` have."""
    hold, release = (next(one for one in SUBCOMMANDS if one.name == name) for name in ("hold", "release"))
    own = [option for option in (*hold.options, *release.options) if option not in LAUNCHER_OPTIONS]
    return make_options(own)


def make_usage(subcommand) -> str:
    if subcommand.name == "hold":
        return "Ar OPTION ... NAME ..."  # solo-hold(1) has them
    options = " ".join(f"Oo {make_flags(option)} Oc" for option in subcommand.options)
    name = f"Ar {subcommand.arguments.strip('[].')}"
    if not subcommand.arguments:
        return options
    return f"{options} {name} ..." if subcommand.needs_name else f"{options} Oo {name} ... Oc"


def make_statuses() -> str:
    return "".join(f".It {status}\n{meaning}\n" for status, meaning in EXIT_STATUSES)


TABLES = {
    "options": lambda: make_options(LAUNCHER_OPTIONS),
    "subcommands": make_subcommands,
    "statuses": make_statuses,
    "hold": make_hold,
}


def rewrite(page: str) -> str:
    """Return the page with every table made anew."""
    for table, make in TABLES.items():
        start, end = f'.\\" made from {table}\n', '.\\" end\n'
        before, mark, rest = page.partition(start)
        if mark:
            page = before + mark + make() + rest[rest.index(end) :]
    return page


if __name__ == "__main__":
    for path in sys.argv[1:]:
        with open(path) as file:
            text = rewrite(file.read())
        with open(path, "w") as file:
            file.write(text)
