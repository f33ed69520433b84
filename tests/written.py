"""Journals that a test writes, and what the judge of health says of them."""

import time

from solo.history import reader
from solo.history.health import Clock, Held, judge
from solo.record import quote

MINUTE, HOUR, DAY, WEEK = 60, 3600, 86400, 7 * 86400
NOW = time.mktime((2025, 10, 6, 12, 0, 0, 0, 0, -1))  # a Monday


class Written:
    """A journal that the test writes: `text`, as solo writes it, and what is held."""

    def __init__(self):
        self.lines = []  # (time, line)
        self.held = []
        self.number = 0

    def run(
        self,
        start,
        ran=MINUTE,
        command="a.sh",
        code=0,
        is_ended=True,
        is_held=False,
        waited=0,
        mark="",
    ):
        self.number += 1
        common = f"uid=0 host=h launcher={self.number} mode=X slots=1 take=1{mark} start={start:.3f} waited={waited:.3f}"
        common += f" child={self.number + 1} token={self.number}"
        self.lines.append((start, f"started {start:.3f} {common} command={command}\n"))
        if is_ended:
            end = f"{common} ran={ran:.3f} code={code} timed-out=0"
            self.lines.append((start + ran, f"ended {start + ran:.3f} {end} command={command}\n"))
        if is_held:
            self.held.append(Held(start, command.encode(), (self.number, self.number + 1)))

    def skip(
        self,
        when,
        command="a.sh",
        why="job: busy: held for 1s by pid 1 (x)",
        code=75,
        event="skipped",
    ):
        quoted = quote(why.encode()).decode()
        words = (
            f"uid=0 host=h launcher=1 mode=X slots=1 take=1 waited=0.000 code={code} why={quoted}"
        )
        self.lines.append((when, f"{event} {when:.3f} {words} command={command}\n"))

    def daily(self, days, now=NOW, **kind):
        """Run at this time on each of the last `days`, the last time a day ago."""
        for day in range(days, 0, -1):
            self.run(now - day * DAY, **kind)

    def read(self, until=float("inf")):
        """Return the runs in the journal as it was at that time."""
        text = "".join(line for when, line in sorted(self.lines) if when <= until)
        _, events = reader.parse("job", text.encode())
        return reader.History(events, None).list_runs()

    def judge(self, now=NOW, **clock):
        return judge(self.read(now), self.held, Clock(now, **clock))

    def save(self, lab, name):
        """Write the journal of that name, as far as it is not of the future."""
        folder = lab.find_journal(name).parent
        folder.mkdir(mode=0o700, parents=True)
        for above in (lab.directory, lab.directory / ".journals", folder):
            above.chmod(0o700)
        lines = [line for when, line in sorted(self.lines) if when <= time.time()]
        lab.find_journal(name).write_text("".join(lines))
