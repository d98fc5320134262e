# SPDX-License-Identifier: MIT
"""`coframe doctor`."""

import typer

from coframe.cli.app import say

EXTRAS = {  # extra: its package, and what it is for
    "las": ("laspy", "LAS and LAZ files"),
    "pcd": ("python-neo-lzf", "compressed PCD files"),
    "e57": ("pye57", "E57 files"),
    "crs": ("pyproj", "coordinate reference systems by name"),
    "mesh": ("trimesh", "OBJ, STL and OFF files"),
    "images": ("pillow", "depth images"),
    "cluster": ("distributed", "clusters of machines"),
    "plot": ("plotly", "figures in notebooks"),
    "particles": ("h5py", "particles of Picasso, HDF5"),
    "datasets": ("pooch", "downloads of published data sets"),
}
# [limit] [deg] largest rotation error of a self-test that passes; 0.17 is usual.
SELF_TEST = 1.0


def doctor() -> None:
    """Show what is installed and run a self-test.

    It lists versions, threads and optional packages, and registers a small scene with known poses.

    Example:  coframe doctor
    """
    import platform
    import time
    from importlib.metadata import PackageNotFoundError, version

    import numpy as np

    import coframe
    from coframe.data import simulate
    from coframe.evaluate import metrics
    from coframe.threads import available_cores

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return ""

    say(
        f"coframe {coframe.__version__}, Python {platform.python_version()} on"
        f" {platform.platform()}, {available_cores()} threads"
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
            + (f"{package} {found}" if found else f"not installed; pip install 'coframe[{extra}]'")
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
