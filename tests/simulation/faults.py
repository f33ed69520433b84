"""A fault: one change of solo's code, anchored by a function and a statement or expression in it,
so that layout does not matter.
"""

import ast
from typing import NamedTuple


class Fault(NamedTuple):
    name: str
    # file and function, as in "gate.py FileGate.wait"; of a file alone: the statements outside of
    # functions
    place: str
    old: str  # an expression, or statements in a row; the function has it exactly once
    new: str
    # that finds it, and "--exhaustive" if random schedules do not; of a lease: the engines
    scene: str
    harmless: str = ""  # why no promise is broken

    @property
    def file(self):
        return self.place.partition(" ")[0]

    def put_into(self, text):
        """Return the text of its file with the fault. Raises ValueError if the code is not there
        exactly once.
        """
        file, _, function = self.place.partition(" ")
        tree = ast.parse(text)
        scope = find_function(tree, function) if function else tree
        old, new = parse_part(self.old), parse_part(self.new)
        count = 0
        for holder, key in list(find_equal(scope, old, not function)):
            count += 1
            if isinstance(old, list):
                holder[key : key + len(old)] = new
            elif isinstance(holder, list):
                holder[key] = new
            else:
                setattr(holder, key, new)
        if count != 1:
            raise ValueError(f"{self.place} has {count} times: {self.old}")
        return ast.unparse(ast.fix_missing_locations(tree))


def find_function(tree, path):
    for name in path.split("."):
        kinds = ast.FunctionDef, ast.ClassDef
        found = [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == name]
        if len(found) != 1:
            raise ValueError(f"{path}: {name} is there {len(found)} times")
        tree = found[0]
    return tree


def parse_part(text):
    """Return an expression, or a list of statements."""
    body = ast.parse(text).body
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else body


def find_equal(scope, old, is_outside):
    """Yield (holder, key) of each place in `scope` that equals `old`; `is_outside`: of no function
    in it.
    """
    kind = type(old[0] if isinstance(old, list) else old)
    for field, value in ast.iter_fields(scope):
        if isinstance(value, list):
            holder, parts = value, list(enumerate(value))
        else:
            holder, parts = scope, [(field, value)]
        for key, part in parts:
            if isinstance(part, ast.AST) and not (is_outside and isinstance(part, ast.FunctionDef)):
                found = (
                    value[key : key + len(old)]
                    if isinstance(old, list) and holder is value
                    else part
                )
                if isinstance(part, kind) and dump(found) == dump(old):
                    yield holder, key
                yield from find_equal(part, old, is_outside)


def dump(code):
    return list(map(ast.dump, code)) if isinstance(code, list) else ast.dump(code)
