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


def count_tokens(text):
    """Return how many tokens the source `text` has."""
    documented = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    prose = {node.body[0].lineno for node in nodes if ast.get_docstring(node) is not None}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(
        token.type not in WEIGHTLESS
        and not (token.type == tokenize.STRING and token.start[0] in prose)
        for token in tokens
    )


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
