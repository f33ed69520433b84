"""The recipes: the code blocks of README, the files of examples/, and the blocks of the manual,
which quote them.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
ESCAPES = {r"\(aq": "'", r"\e": "\\", r"\&": ""}


class Block:
    def __init__(self, page, place, text):
        self.page = page
        self.text = text
        self.id = f"{page}:{place}"

    @property
    def lines(self):
        """The lines without trailing comments."""
        return [re.sub(r" {2,}# .*", "", line) for line in self.text.splitlines()]


def read_readme() -> list:
    """Return the fenced and indented blocks, each under the heading that it has."""
    text = (ROOT / "README.md").read_text()
    blocks = []
    for found in re.finditer(r"^```\w*\n((?s:.*?))^```$|((?:^ {4}.*\n)+)", text, re.M):
        heading = re.findall(r"^##? (.*)", text[: found.start()], re.M)[-1]
        block = found[1] or "".join(line[4:] for line in found[2].splitlines(True))
        blocks.append(Block("README.md", heading, block))
    return blocks


def read_quotes() -> list:
    """Return the blocks of the manual, .Bd -literal and .Dl."""
    blocks = []
    for page in sorted((ROOT / "man").glob("*.[0-9]")):
        text = page.read_text()
        for found in re.finditer(
            r"^\.Bd -literal.*\n((?s:.*?))^\.Ed$|((?:^\.Dl .*\n)+)", text, re.M
        ):
            block = found[1] or "".join(line[4:] for line in found[2].splitlines(True))
            for escape, meaning in ESCAPES.items():
                block = block.replace(escape, meaning)
            blocks.append(Block(page.name, text.count("\n", 0, found.start()) + 1, block))
    return blocks


def read_example(name) -> str:
    return (EXAMPLES / name).read_text()


def read_cron_lines(text) -> tuple:
    """Return (variables, commands). As in crontab(5), a line has five fields, and the first
    unescaped % ends its command.
    """
    variables, commands = {}, []
    for line in text.splitlines():
        if found := re.fullmatch(r"(\w+)=(.*)", line):
            variables[found[1]] = found[2]
        elif line and line[0] != "#":
            *fields, command = line.split(None, 5)
            for field, last in zip(fields, (59, 23, 31, 12, 7)):
                assert re.fullmatch(r"\*(/\d+)?|\d+", field), field
                assert all(int(number) <= last for number in re.findall(r"\d+", field)), field
            assert not re.search(r"(?<!\\)%", command), "cron would cut it here"
            commands.append(command.replace("\\%", "%"))
    return variables, commands


def read_jobs() -> dict:
    """Return {name: text} of the jobs of the workflow, each as a workflow of its own."""
    jobs = re.findall(r"^  (\w+):\n((?:    .*\n)+)", read_example("workflow.yml"), re.M)
    assert [name for name, _ in jobs] == re.findall(
        r"^  (\w+):$", read_example("workflow.yml"), re.M
    )
    assert all("    runs-on:" in text for _, text in jobs) and len(dict(jobs)) == len(jobs)
    return {name: f"jobs:\n  {name}:\n{text}" for name, text in jobs}
