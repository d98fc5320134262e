# SPDX-License-Identifier: MIT
"""Which code a figure depends on, and a digest of it.

The poses that a method finds depend on the files that compute them and on those that make its
problem, and on nothing else: a change of the report does not invalidate hours of work. `POSES` says
which folders compute; what a method imports beside them only carries values (`CARRIERS`), and a
test holds both lists against what is imported. Comments, docstrings and layout do not count.
"""

import ast
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import coframe

LIBRARY = Path(coframe.__file__).parent
EXPERIMENTS = Path(__file__).parent
EVERYWHERE = ("geometry.py", "nearest.py", "nearest_kernels.py", "input/normalise.py")
PUBLISHED = ("em", "paper", *EVERYWHERE)
BASELINES = ("baselines", "paper/initial.py", *EVERYWHERE)
REGISTER = ("em", "input", "start", "align", "api", *EVERYWHERE)
# Folders and files of the library that compute the poses of each method, under its name in tables;
# methods that are not here are baselines.
POSES: Mapping[str, tuple[str, ...]] = {
    "JRMPC-B": PUBLISHED,
    "JRMPC-I": PUBLISHED,
    "register": REGISTER,
    "coframe.track": ("sequence", "io/frames.py", *REGISTER),
    "coframe.track_published": ("io/frames.py", *PUBLISHED),
}
# What methods import beside these files: values, checks, files and judgements of poses that stand.
CARRIERS = (
    "align",
    "api",
    "compiled.py",
    "compute",
    "data",
    "em",
    "errors.py",
    "evaluate",
    "input",
    "io",
    "result",
    "start",
    "threads.py",
    "types.py",
)
# Of the library, what makes problems and what measures poses.
DATA = ("data/datasets.py", "data/simulate/views.py")
MEASURES = ("evaluate/metrics.py", "evaluate/trajectory_errors.py", "geometry.py")
# Files of this folder that make the problems and call the methods.
PROBLEMS = ("problems.py", "methods.py", "models.py")


@cache
def of_method(method: str) -> str:
    """Digest of the code behind the poses of a method, and behind its problems."""
    return digest(
        [*files(LIBRARY, (*poses(method), *DATA)), *files(EXPERIMENTS, PROBLEMS)],
    )


@cache
def of_published() -> str:
    """Digest of the code behind the poses of JRMPC alone, whatever its problems."""
    return digest(files(LIBRARY, PUBLISHED))


@cache
def of_measure(experiment: str) -> str:
    """Digest of the code that makes tables of poses."""
    own = (f"{experiment}.py", "record.py", *PROBLEMS)
    return digest([*files(LIBRARY, (*MEASURES, *DATA)), *files(EXPERIMENTS, own)])


def poses(method: str) -> tuple[str, ...]:
    """The folders and files that compute the poses of a method, by its name in a table."""
    return POSES.get(method.split(",")[0], BASELINES)


def files(root: Path, names: Iterable[str]) -> list[Path]:
    """The Python files of folders, and files, below a root."""
    found: set[Path] = set()
    for name in names:
        path = root / name
        inside = set(path.rglob("*.py")) if path.is_dir() else {path}
        if not inside or not all(each.exists() for each in inside):
            raise FileNotFoundError(f"{path}: is no folder of Python files, and no file")
        found |= inside
    return sorted(found)


def digest(paths: Iterable[Path]) -> str:
    """Of the code in files, whatever its comments, docstrings and layout."""
    return hashlib.sha256("".join(map(_digest_of_file, paths)).encode()).hexdigest()[:12]


@cache
def _digest_of_file(path: Path) -> str:
    code = f"{path.name} {meaning(ast.parse(path.read_text(encoding='utf-8')))}"
    return hashlib.sha256(code.encode()).hexdigest()


def meaning(node: Any) -> str:
    """A syntax tree as text, the same in every version of Python: without docstrings, positions
    and empty fields.
    """
    if isinstance(node, list):
        return "[" + ",".join(meaning(each) for each in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list) and value and _docstring(value[0]):
            value = value[1:]
        if name not in ("kind", "type_comment") and value not in (None, []):
            parts.append(f"{name}={meaning(value)}")
    return f"{type(node).__name__}({','.join(parts)})"


def _docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
