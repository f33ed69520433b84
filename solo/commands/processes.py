"""The processes of the machine, which psutil reads in one pass, for the views that a person waits for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Processes:
    """All processes at one moment. Without psutil there are none, and `problem` says why."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}
        self.children: dict[int, list[int]] = {}
        self.problem = ""
        try:
            import psutil
        except ModuleNotFoundError:
            from solo.text.missing import describe_missing

            self.problem = f"processes are not shown: {describe_missing('psutil')}"
            return
        self.Gone = psutil.NoSuchProcess
        for process in psutil.process_iter(["ppid"]):
            self.found[process.pid] = process
            self.children.setdefault(process.info["ppid"], []).append(process.pid)

    def walk(self, pids: list[int], *attributes: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield (pid, depth, what psutil knows of it) for each of these processes and its descendants, parents first."""
        seen = set()
        left = [(pid, 0) for pid in reversed(pids)]
        while left:
            pid, depth = left.pop()
            if pid not in self.found or pid in seen:
                continue
            seen.add(pid)
            left += [(child, depth + 1) for child in reversed(self.children.get(pid, []))]
            try:
                yield pid, depth, self.found[pid].as_dict(attributes)
            except self.Gone:
                continue
