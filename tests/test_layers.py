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
    "algebra kernels mixture surface simulate",
    "moments source pairs",
    "coupled",
    "clouds",
    "estep mstep joint growth io.files io.numbers io.scan",
    "io.archive",
    "assess sweeps em io.ply io.text io.raw io.las io.e57 io.mesh io.images download",
    "io.pcd io.poses io.merged places",
    "journal start.features classify cluster",
    "start.verify start.planar",
    "io.clouds trajectory",
    "sequence.frames datasets metrics",
    "stored",
    "result start.poses start.means start.scale start.match levels doors",
    "start.graph export groups budget placement tidying",
    "start.nothing schedule",
    "opening arrival",
    "paper registration extend sequence.backend report.markup report.run",
    "refining sequence.places sequence.published report.charts report.figures held",
    "sequence.search baselines.runs",
    "sequence.tracking baselines.icp baselines.averaging baselines.network",
    "baselines.cpd baselines.gmmreg baselines.motion baselines.simultaneous",
    "sequence.state report.scene compare",
    "report.page",
    "report.comparison report.track",
    "cli.app",
    "cli.show cli.watch cli.interrupt",
    "cli.compare cli.demo cli.register cli.report cli.export cli.extend cli.evaluate cli.track cli.doctor cli.datasets",
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
