# SPDX-License-Identifier: MIT
"""Imports go one way: a module imports only from modules above it in this list."""

import ast
import pkgutil
from pathlib import Path

import pytest

import coframe

LAYERS = [
    "arrays palette",
    "geometry depth plot start.worker start.doubt",
    "algebra kernels mixture metrics surface simulate",
    "moments",
    "clouds",
    "estep mstep joint io.files io.numbers io.scan",
    "io.archive",
    "assess sweeps em io.ply io.text io.raw io.las io.e57 io.mesh io.images start.features",
    "journal io.pcd io.poses start.verify start.planar",
    "io.clouds trajectory",
    "sequence.frames",
    "result start.poses start.means start.scale start.match schedule doors",
    "start.graph export",
    "start.nothing",
    "paper registration extend sequence.frontend sequence.backend report.markup report.run",
    "sequence.tracking report.charts report.figures",
    "report.scene",
    "report.page",
    "cli.app",
    "cli.show cli.interrupt",
    "cli.demo cli.register cli.report cli.export cli.extend cli.track cli.doctor",
    "__main__",
]
ROW = {f"coframe.{name}": row for row, names in enumerate(LAYERS) for name in names.split()}
FOLDER = Path(coframe.__file__).parent
MODULES = sorted(module.name for module in pkgutil.walk_packages(coframe.__path__, "coframe.") if not module.ispkg)


def imported(module: str) -> set[str]:
    path = FOLDER / Path(*module.split(".")[1:]).with_suffix(".py")
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found & set(MODULES)


def test_every_module_has_its_place() -> None:
    assert set(ROW) == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_only_from_above(module: str) -> None:
    assert {name for name in imported(module) if ROW[name] >= ROW[module]} == set()
