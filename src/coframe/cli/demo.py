# SPDX-License-Identifier: MIT
"""`coframe demo`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from coframe.cli.app import Output, Seed, Threads, console
from coframe.cli.show import progress, write_report

if TYPE_CHECKING:
    from coframe import Registration, simulate


def demo(
    output: Output = Path("demo"),
    views: Annotated[int, typer.Option(min=2, help="Number of scans.")] = 6,
    points: Annotated[int, typer.Option(min=100, help="Points per scan, about.")] = 2000,
    outliers: Annotated[float, typer.Option(min=0, max=1, help="Outliers per true point.")] = 0.1,
    noise: Annotated[float, typer.Option(help="Signal-to-noise ratio of the points, in dB.")] = 45.0,
    seed: Seed = 0,
    threads: Threads = None,
) -> None:
    """Simulate scans of a known shape, register them, and compare with the truth.

    Example:  coframe demo --views 8 --outliers 0.2 -o demo
    """
    import numpy as np

    from coframe import Options, register, simulate

    begun = time.perf_counter()
    rng = np.random.default_rng(seed)
    degrees = 360.0 * (views - 1) / views
    scene = simulate.scene(views, points, degrees=degrees, noise_db=noise, outliers=outliers, rng=rng)
    with progress(quiet=False) as (on_iteration, on_pair):
        chosen = Options(seed=seed, threads=threads)
        result = register(scene.clouds, options=chosen, on_iteration=on_iteration, on_pair=on_pair)
    result.save(output)
    write_report(output, result, chosen, None, begun)
    console.print(_demo_table(result, scene))
    console.print(f"Wrote poses.json, merged.ply, model.ply, state.npz and report.html to {output}/")


def _demo_table(result: "Registration", scene: "simulate.Scene") -> Table:
    from coframe import metrics

    errors = metrics.rotation_errors(result.poses, scene.poses)
    table = Table("cloud", title="Registered against the truth")
    for heading in ("points", "rotation error", "verdict", "outliers", "found", "false alarms"):
        table.add_column(heading, justify="right")
    for j, (keep, true) in enumerate(zip(result.inliers(), scene.outliers, strict=True)):
        found, false_alarms = (~keep & true).sum(), (~keep & ~true).sum()
        table.add_row(
            str(j),
            str(len(keep)),
            "reference" if j == 0 else f"{errors[j]:.3f} deg",
            result.verdicts[j].verdict,
            str(true.sum()),
            _share(found, true.sum()),
            _share(false_alarms, (~true).sum()),
        )
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"
