"""`make man` writes docs/solo.schema.json: an object for each class of rows in solo/text/rows.py, a
key for each field, described by the comment above or beside it.
"""

import ast
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "docs/solo.schema.json"
SOURCE = ROOT / "solo/text/rows.py"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
TITLE = (
    "What solo prints with --json: keys are added, never removed, renamed or given another meaning"
)
# What each command prints: a key of $defs by the name of its array.
VIEWS = {
    "list": ("solo list --json", "ticket"),
    "show": ("solo show --json", "name"),
    "jobs": ("solo list --all --json", "job"),
    "history": ("solo history --json", "run"),
    "doctor": ("solo doctor --json", "check"),
    "crontab": ("solo doctor --crontab --json, solo doctor --unit --json", "line"),
}
NUMBER = {"type": "integer", "minimum": 0}
DATE = {
    "description": "ISO 8601, with the offset of the local time zone",
    "type": ["string", "null"],
    "format": "date-time",
}
TYPES = {
    "count": {**NUMBER, "type": ["integer", "null"]},
    "seconds": {"type": ["number", "null"], "minimum": 0},
    "text": {"type": ["string", "null"]},
    "words": {"type": "array", "items": {"type": "string"}},
    "time": DATE,
}
PLAIN = {
    "str": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": NUMBER,
    "float": {"type": "number", "minimum": 0},
    "dict[str, int]": {"type": "object", "additionalProperties": {"type": "integer"}},
    "dict[str, str | int]": {"type": "object"},
    "list[float] | None": {"type": ["array", "null"], "items": {"type": "number"}},
}
NAMED = {
    "int | None": "count",
    "float | None": "seconds",
    "str | None": "text",
    "list[str]": "words",
    "Time": "time",
    "Time | None": "time",
}


def refer(name):
    return {"$ref": f"#/$defs/{name}"}


def name_object(row):
    """Return the key in $defs of a class of rows."""
    return {"Row": "ticket", "Finding": "check"}.get(row, row.removesuffix("Row").lower())


def make_type(annotation, aliases):
    """Return the schema of a field by its annotation, in quotes or not. Raises KeyError for one
    that is not known.
    """
    is_quoted = isinstance(annotation, ast.Constant)
    annotation = annotation.value if is_quoted else ast.unparse(annotation)
    annotation = aliases.get(annotation, annotation)
    if annotation in NAMED:
        return refer(NAMED[annotation])
    if annotation.startswith("Literal["):
        return {"enum": list(ast.literal_eval(annotation.removeprefix("Literal")))}
    if found := re.fullmatch(r"list\[(\w*Row|Finding)\]( \| None)?", annotation):
        kind = ["array", "null"] if found[2] else "array"
        return {"type": kind, "items": refer(name_object(found[1]))}
    return PLAIN[annotation]


def find_comment(lines, number):
    """Return the comment beside a line, or those above it."""
    if "  # " in lines[number]:
        return lines[number].partition("  # ")[2]
    above = []
    while lines[number - 1].startswith("    # "):
        number -= 1
        above.insert(0, lines[number].strip(" #"))
    return " ".join(above)


def make_schema():
    """Return the text of the schema."""
    source = SOURCE.read_text()
    lines, tree = source.splitlines(), ast.parse(source)
    aliases = {
        ast.unparse(node.targets[0]): ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Literal")
    }
    defs = {
        view: {"description": command, "type": "array", "items": refer(row)}
        for view, (command, row) in VIEWS.items()
    }
    defs["explain"] = {"description": "solo --explain --json", **refer("verdict")}
    defs.update(TYPES)
    for row in tree.body:
        if isinstance(row, ast.ClassDef):
            fields = [one for one in row.body if isinstance(one, ast.AnnAssign)]
            properties = {}
            for field in fields:
                comment = find_comment(lines, field.lineno - 1)
                properties[field.target.id] = {
                    **({"description": comment} if comment else {}),
                    **make_type(field.annotation, aliases),
                }
            defs[name_object(row.name)] = {
                "description": ast.get_docstring(row).rstrip("."),
                "type": "object",
                "properties": properties,
                "required": [*properties],
            }
    objects = ",\n".join(f"{json.dumps(name)}: {format_object(one)}" for name, one in defs.items())
    return f'{{\n"$schema": "{DRAFT}",\n"title": "{TITLE}",\n"$defs": {{\n{objects}\n}}\n}}\n'


def format_object(one):
    """Return one of $defs on a line; of an object, a line for each property."""
    properties = one.get("properties", {})
    if not properties:
        return json.dumps(one)
    lines = ",\n".join(f'    "{key}": {json.dumps(known)}' for key, known in properties.items())
    head, tail = json.dumps({**one, "properties": 0}).split('"properties": 0')
    return f'{head}"properties": {{\n{lines}}}{tail}'


if __name__ == "__main__":
    SCHEMA.write_text(make_schema())
