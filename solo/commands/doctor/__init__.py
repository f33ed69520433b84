"""`solo doctor`: check that this machine and user have all that solo needs, and print the first
thing to do.
"""

from __future__ import annotations

import re
from typing import Any

from solo.argv import is_engine
from solo.errors import UsageError

REMEDY = re.compile(r"\(([^()]*)\)$")


def run(options: dict[str, Any], names: list[str]) -> int:
    """Print the findings; with --json as {check, state, text}. Return 1 if a check fails. Raises
    UsageError.
    """
    if "fix" in options:
        from solo.commands.doctor import accounts

        return accounts.run(names)
    if "crontab" in options or "unit" in options:
        from solo.commands.doctor import jobs

        return jobs.run(options, names)
    if names:
        raise UsageError(f"doctor {names[0]}: a FILE needs --crontab or --unit")
    from solo.commands.doctor.checks import BAD, examine_machine
    from solo.text.tables import format_json
    from solo.text.width import print_clean

    found = [*examine_machine(options.get("dir"))]
    if is_engine(options):
        from solo.commands import remote

        found += [("engine", *finding) for finding in remote.examine(options["via"])]
    findings = [dict(zip(("check", "state", "text"), finding)) for finding in found]
    failures = [finding["text"] for finding in findings if finding["state"] == BAD]
    if options.get("json"):
        print(format_json(findings))
    else:
        for finding in findings:
            print_clean(f"{finding['state']:<5}  {finding['text']}")
        remedy = REMEDY.search(failures[0]) if failures else None
        print_clean(
            f"not ready; first: {remedy[1] if remedy else failures[0]}" if failures else "ready"
        )
    return bool(failures)
