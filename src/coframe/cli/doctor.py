# SPDX-License-Identifier: MIT
"""`coframe doctor`."""

import typer

from coframe.cli.app import say

EXTRAS = {  # extra -> package, what it is for
    "las": ("laspy", "LAS and LAZ files"),
    "pcd": ("python-neo-lzf", "compressed PCD files"),
    "e57": ("pye57", "E57 files"),
    "mesh": ("trimesh", "OBJ, STL and OFF files"),
    "images": ("pillow", "depth images"),
    "cluster": ("distributed", "clusters"),
    "datasets": ("pooch", "downloads of published data sets"),
}
SELF_TEST = 1.0  # degrees; the scene of the self-test leaves 0.17


def doctor() -> None:
    """Show what is installed, and run a self-test.

    Versions, threads, optional packages; then a small scene is registered whose answer is known.

    Example:  coframe doctor
    """
    import os
    import platform
    import time
    from importlib.metadata import PackageNotFoundError, version

    import numpy as np

    import coframe
    from coframe.data import simulate
    from coframe.evaluate import metrics

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return ""

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    say(
        f"coframe {coframe.__version__}, Python {platform.python_version()} on"
        f" {platform.platform()}, {cores} threads"
    )
    say(
        "  "
        + ", ".join(
            f"{package} {installed(package)}" for package in ("numpy", "scipy", "numba", "plyfile")
        )
    )
    for extra, (package, purpose) in EXTRAS.items():
        found = installed(package)
        say(
            f"  {purpose}: "
            + (f"{package} {found}" if found else f"absent; pip install 'coframe[{extra}]'")
        )
    scene = simulate.scene(3, 300, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    began = time.perf_counter()
    result = coframe.register(scene.clouds)
    seconds = time.perf_counter() - began
    error = float(metrics.rotation_errors(result.poses, scene.poses).max())
    good = error < SELF_TEST and all(verdict.verdict == "aligned" for verdict in result.verdicts)
    say(
        f"  self-test: {'passed' if good else 'FAILED'}, largest rotation error {error:.3f} deg,"
        f" {seconds:.1f} s"
    )
    if not good:
        raise typer.Exit(1)
