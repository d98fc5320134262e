# SPDX-License-Identifier: MIT
"""Shapes of arrays are checked in tests, and only there; third-party data is found here."""

import importlib.util
import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import hypothesis
import jaxtyping
import pytest

# Modules whose tests are many whole registrations. Checks of shapes would take most of their time;
# the same functions are checked in test_registration, test_extend, test_from_nothing and below.
UNCHECKED = {
    "test_checkpoint",
    "test_compare",
    "test_given",
    "test_judge",
    "test_outofcore",
    "test_report",
    "test_trust",
    "test_watch",
}

# All modules but those that Numba compiles are listed without being imported: a module that is
# imported before the hook stays unchecked.
assert not any(name.startswith("coframe.") for name in sys.modules), (
    "coframe was imported before its shapes could be checked"
)
_package = importlib.util.find_spec("coframe")
assert _package is not None, "coframe is not installed: pip install -e '.[dev]'"
_root = Path(_package.submodule_search_locations[0])
_compiled = {
    "em/kernels.py",
    "nearest_kernels.py",
    "em/joint_kernels.py",
    "em/joint_sparse_kernels.py",
    "em/localise_kernels.py",
    "align/surface_kernels.py",
    "align/plane_kernels.py",
    "sequence/sampling_kernels.py",
    "start/clique_kernels.py",
    "start/feature_kernels.py",
    "particles/density_kernels.py",
    "start/patch_kernels.py",
    "start/planar_kernels.py",
    "start/verify_kernels.py",
}
_files = {str(path.relative_to(_root)) for path in _root.rglob("*.py")} - _compiled
_modules = {
    name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for name in _files
    if name != "__init__.py" and (name.count("/") == 0 or not name.endswith("__init__.py"))
}
jaxtyping.install_import_hook([f"coframe.{name}" for name in sorted(_modules)], "beartype.beartype")

hypothesis.settings.register_profile(
    "coframe", deadline=None, derandomize=True, database=None, max_examples=50
)
hypothesis.settings.load_profile("coframe")

DATA = Path(
    os.environ.get("COFRAME_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
)
REFERENCE = Path(os.environ.get("COFRAME_REFERENCE") or DATA.parent / "reference")


def _found(folder: Path, variable: str, name: str) -> Path:
    path = folder / name
    if not path.exists():
        pytest.skip(f"{name} is not in {folder}; set {variable} to the folder that holds it")
    return path


@pytest.fixture(scope="module", autouse=True)
def _shapes(request):
    from scenes import unchecked

    with unchecked() if request.module.__name__ in UNCHECKED else nullcontext():
        yield


@pytest.fixture(scope="session")
def data():
    """data(name) is the path of a third-party set, such as jrmpc_synthetic, or the test skips."""
    return partial(_found, DATA, "COFRAME_DATA")


@pytest.fixture(scope="session")
def reference():
    """reference(name) is the path of stored output of another program, or the test skips."""
    return partial(_found, REFERENCE, "COFRAME_REFERENCE")
