"""`solo doctor`: check that this machine and user have all that solo needs, and print the first
thing to do.
"""

import re

from solo.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.commands.lookup import Asked  # daemon.py, for an installation, imports nothing

REMEDY = re.compile(r"\(([^()]*)\)$")


def run(options: "Asked", names: "list[str]") -> int:
    """Print the findings; with --json as {check, state, text}. Return 1 if a check fails. Raises
    UsageError.
    """
    if options.fix:
        from solo.commands.doctor import accounts

        return accounts.run(names)
    if options.crontab or options.unit:
        from solo.commands.doctor import jobs

        return jobs.run(options, names)
    if names:
        raise UsageError(f"doctor {names[0]}: a FILE needs --crontab or --unit")
    from solo.commands.doctor.checks import examine_machine
    from solo.text.rows import BAD, Finding
    from solo.text.tables import format_json
    from solo.text.width import print_clean

    found = [*examine_machine(options.dir)]
    if options.is_engine:
        from solo.commands import remote

        found += [Finding(state, "engine", text) for state, text in remote.examine(options.where)]
    failures = [finding.text for finding in found if finding.state == BAD]
    if options.json:
        print(format_json(found))
    else:
        for finding in found:
            print_clean(f"{finding.state:<5}  {finding.text}")
        remedy = REMEDY.search(failures[0]) if failures else None
        print_clean(
            f"not ready; first: {remedy[1] if remedy else failures[0]}" if failures else "ready"
        )
    return bool(failures)
