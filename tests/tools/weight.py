"""`make weight`: the tokens of solo/ and tests/, by folder, against the last release.

Tokens are those of Python's tokenize, without comments, docstrings, newlines and indents: layout
and prose have no weight. `--record` writes the table of a release, tests/tools/weight.txt.
"""

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "tests/tools/weight.txt"
WEIGHTLESS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
FSTRING_START = getattr(tokenize, "FSTRING_START", None)
FSTRING_END = getattr(tokenize, "FSTRING_END", None)


def list_tokens(text):
    """Yield the tokens of the source `text` that have weight.

    An f-string is one token, as it was before Python 3.12.
    """
    documented = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    prose = {node.body[0].lineno for node in nodes if ast.get_docstring(node) is not None}
    depth = 0  # of f-strings
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        depth += token.type == FSTRING_START
        if not depth and token.type not in WEIGHTLESS:
            if token.type != tokenize.STRING or token.start[0] not in prose:
                yield token
        if token.type == FSTRING_END:
            depth -= 1
            if not depth:
                yield token


def count_tokens(text):
    """Return how many tokens the source `text` has."""
    return sum(1 for _ in list_tokens(text))


def weigh():
    """Return {folder: tokens}, with the sum of solo and of tests as "solo/" and "tests/"."""
    weights = Counter()
    for room in ("solo", "tests"):
        for path in sorted((ROOT / room).rglob("*.py")):
            tokens = count_tokens(path.read_text())
            weights[str(path.parent.relative_to(ROOT))] += tokens
            weights[f"{room}/"] += tokens
    return weights


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--record", metavar="VERSION", help="write the table of a release")
    version = parser.parse_args().record
    weights = weigh()
    if version:
        rows = [f"{folder} {tokens}" for folder, tokens in sorted(weights.items())]
        RELEASE.write_text("\n".join([version, *rows, ""]))
    release, *rows = RELEASE.read_text().splitlines()
    before = Counter({folder: int(tokens) for folder, tokens in map(str.split, rows)})
    print(f"{'tokens':>8} {'since ' + release:>12}")
    for folder in sorted({*weights, *before}):
        print(f"{weights[folder]:8,} {weights[folder] - before[folder]:+12,}  {folder}")


if __name__ == "__main__":
    main()
