# SPDX-License-Identifier: MIT
"""`coframe demo`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coframe.cli.app import Output, Quiet, Seed, Threads, say, say_table
from coframe.cli.output import claimed
from coframe.cli.show import run_so_far
from coframe.cli.watch import watching

if TYPE_CHECKING:
    from rich.table import Table

    from coframe import Registration
    from coframe.data import simulate


def demo(
    output: Output = Path("demo"),
    views: Annotated[int, typer.Option(min=2, help="Number of scans.")] = 6,
    points: Annotated[int, typer.Option(min=100, help="Points per scan, roughly.")] = 2000,
    outliers: Annotated[
        float, typer.Option(min=0, max=1, help="Outliers per point of the surface.")
    ] = 0.1,
    noise: Annotated[
        float, typer.Option(help="Signal-to-noise ratio of the points, in dB.")
    ] = 45.0,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Register a simulated scene and compare with the truth.

    The shape is scanned from all sides; every scan has a frame of its own.

    Example:  coframe demo --views 8 --outliers 0.2 -o demo
    """
    import numpy as np

    from coframe import Options, geometry, register, report
    from coframe.data import simulate

    started = time.perf_counter()
    rng = np.random.default_rng(seed)
    degrees = 360.0 * (views - 1) / views
    scene = simulate.scene(
        views, points, degrees=degrees, noise_db=noise, outliers=outliers, rng=rng
    )
    chosen = Options(seed=seed, threads=threads)
    with claimed(output, report.files()), watching(quiet) as watch:
        result = register(scene.clouds, options=chosen, **watch.callbacks)
        result = report.complete(result)
        run = run_so_far(started, chosen, geometry.identity(views, 3))
        written = report.write_folder(result, output, run=run)
    if not quiet:
        say_table(_demo_table(result, scene))
        say(f"wrote {', '.join(written)} to {output}/")
    if any(verdict.verdict == "failed" for verdict in result.verdicts):
        raise typer.Exit(1)


def _demo_table(result: "Registration", scene: "simulate.SimulatedScene") -> "Table":
    from rich.table import Table

    from coframe.evaluate import metrics

    errors = metrics.rotation_errors(result.poses, scene.poses)
    table = Table("cloud", title="Result against the truth")
    for heading in ("points", "rotation error", "verdict", "outliers", "found", "false alarms"):
        table.add_column(heading, justify="right")
    for j, (keep, true) in enumerate(zip(result.inliers(), scene.outliers, strict=True)):
        found = int((~keep & true).sum())
        false_alarms = int((~keep & ~true).sum())
        table.add_row(
            str(j),
            str(len(keep)),
            "reference" if j == 0 else f"{errors[j]:.3f} deg",
            result.verdicts[j].verdict,
            str(true.sum()),
            _share(found, int(true.sum())),
            _share(false_alarms, int((~true).sum())),
        )
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"
