# SPDX-License-Identifier: MIT
"""A folder is a layer: a file imports from its own folder and from the rows above, nothing else."""

import ast
from pathlib import Path

import pytest

import coframe

ROWS = [
    "types errors threads compiled",
    "geometry nearest_kernels",
    "nearest",
    "em io",
    "data compute",
    "input",
    "start align",
    "result evaluate",
    "api paper",
    "sequence particles baselines",
    "report",
    "cli",
    "__main__",
]
ROW = {name: row for row, names in enumerate(ROWS) for name in names.split()}
FOLDER = Path(coframe.__file__).parent
FILES = sorted(path for path in FOLDER.rglob("*.py") if path != FOLDER / "__init__.py")


def imported(path: Path) -> set[str]:
    """The layers that a file imports from, at module level or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from coframe import X` of the public interface is for the command line.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("coframe.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_imports_only_from_its_own_layer_and_from_above(path: Path) -> None:
    layer = path.relative_to(FOLDER).parts[0].removesuffix(".py")
    known = {name for name in imported(path) if name in ROW}
    public = imported(path) - known
    assert not public or layer == "cli", f"imports the public interface: {public}"
    assert {name for name in known if ROW[name] >= ROW[layer] and name != layer} == set()
