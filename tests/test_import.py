# SPDX-License-Identifier: MIT
"""`import coframe` is light: what is heavy is imported when it is first used."""

import subprocess
import sys

import coframe


def test_nothing_heavy_is_imported() -> None:
    heavy = ("numpy", "scipy", "numba", "jaxtyping", "threadpoolctl", "typer")
    code = f"import sys, coframe; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert found.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in coframe.__all__:
        assert getattr(coframe, name) is not None
    assert set(coframe.__all__) <= set(dir(coframe))
    assert not hasattr(coframe, "absent")
