# SPDX-License-Identifier: MIT
"""Every tuned number is in a recipe: numbers elsewhere say that they are none.

A constant of a module of em, start, align, sequence or particles, outside of recipe.py, is a guard
against rounding or overflow, the size of a block or buffer, fixed by a format, or a limit of what
is accepted. Its comment, on the same line or the line above, begins with that kind.
"""

import ast
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "coframe"
STAGES = ("em", "start", "align", "sequence", "particles")
KINDS = ("[guard]", "[size]", "[format]", "[limit]")
NAMED = {"pi", "inf", "tau", "e", "eps", "tiny"}  # np.pi, math.inf, np.finfo(float).eps
WRAPPERS = {"float", "int", "sqrt", "radians", "deg2rad", "log", "exp", "cos", "sin", "array"}


def is_number(node: ast.expr) -> bool:
    """Whether an expression is made of numbers alone: literals, tuples of them, arithmetic."""
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.Attribute(attr=name):
            return name in NAMED
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            numbers = [part for part in parts if not is_none(part)]
            return bool(numbers) and all(map(is_number, numbers))
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=parts):
            return name in WRAPPERS and bool(parts) and all(map(is_number, parts))
    return False


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def constants(source: str) -> Iterator[tuple[int, int, str]]:
    """First and last line and the name of each number that is assigned at the top of a module."""
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                continue
        if is_number(value):
            yield node.lineno, node.end_lineno or node.lineno, ", ".join(map(ast.unparse, targets))


def unmarked(source: str) -> list[tuple[int, str]]:
    """Line and name of the numbers whose comment does not begin with a kind."""
    lines = iter(source.splitlines(keepends=True))
    tokens = tokenize.generate_tokens(lambda: next(lines, ""))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT
    }

    def block_above(line: int) -> str:
        """The first line of the block of comments that ends above a line."""
        text = source.splitlines()
        first = line
        while first > 1 and text[first - 2].startswith("#"):
            first -= 1
        return comments.get(first, "") if first < line else ""

    return [
        (first, name)
        for first, last, name in constants(source)
        if not block_above(first).startswith(KINDS)
        and not any(comments.get(n, "").startswith(KINDS) for n in range(first, last + 1))
    ]


def test_numbers_outside_the_recipes_are_no_tuning() -> None:
    found = [
        f"{path.relative_to(SOURCE.parents[1])}:{line}: {name}"
        for stage in STAGES
        for path in sorted((SOURCE / stage).rglob("*.py"))
        if path.name != "recipe.py"
        for line, name in unmarked(path.read_text())
    ]
    assert not found, (
        f"{len(found)} numbers belong into a recipe, or need a comment that begins with one of"
        f" {', '.join(KINDS)}:\n" + "\n".join(found)
    )


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("A = 3\n", ["A"]),
        ("A: float = -0.5  # [m] a length\n", ["A"]),
        ("A = (1, 2.0, None)\n", ["A"]),
        ("A, B = 2 * np.pi / 3, 1e-3\n", ["(A, B)"]),
        ("A = np.sqrt(2.0) * np.finfo(float).eps\n", ["A"]),
        ("A = 3  # [guard] against rounding\n", []),
        ("# [size] of a block, speed only,\n# in points\nA = 3\n", []),
        ("# [limit] points of a cloud\nA = 3\nB = 4\n", ["B"]),
        ("A = 3\n# [size] of what is below\nB = 4\n", ["A"]),
        ("A = (\n    1,  # [format] of version 1\n    2,\n)\n", []),
        ('A = "3"\nB = True\nC = None\nD = ()\nE = f(3)\n', []),
        ("def f():\n    A = 3\n", []),
    ],
)
def test_what_counts_as_a_number(source: str, names: list[str]) -> None:
    assert [name for _, name in unmarked(source)] == names
