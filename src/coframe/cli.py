# SPDX-License-Identifier: MIT
"""The command line. It parses, shows and writes; the work is done by the library, imported where a command needs it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from coframe import Registration, simulate

app = typer.Typer(
    help="Bring many overlapping point clouds into one common frame, jointly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
console = Console()


def main() -> None:
    """The `coframe` command. Exit codes: 0 done, 2 bad input or usage, 130 interrupted."""
    from coframe.clouds import InputError

    try:
        app(standalone_mode=True)
    except InputError as error:
        print(f"coframe: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("coframe: interrupted", file=sys.stderr)
        sys.exit(130)


def _show_version(wanted: bool) -> None:
    if wanted:
        import coframe

        print(f"coframe {coframe.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of coframe itself."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the result.")] = Path("demo"),
    views: Annotated[int, typer.Option(min=2, help="Number of scans.")] = 4,
    points: Annotated[int, typer.Option(min=100, help="Points per scan, about.")] = 1500,
    outliers: Annotated[float, typer.Option(min=0, max=1, help="Outliers per true point.")] = 0.2,
    noise: Annotated[float, typer.Option(help="Signal-to-noise ratio of the points, in dB.")] = 40.0,
    seed: Annotated[int, typer.Option(help="Seed of the scene and of the start.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; default: all cores.")] = None,
) -> None:
    """Simulate scans of a known shape, register them, and compare with the truth.

    Example:  coframe demo --views 6 --outliers 0.3 -o demo
    """
    import numpy as np

    from coframe import paper, simulate
    from coframe.start import means

    rng = np.random.default_rng(seed)
    scene = simulate.scene(views, points, degrees=20.0 * (views - 1), noise_db=noise, outliers=outliers, rng=rng)
    iterations = 100
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn(),
        console=console, transient=True,
    ) as progress:  # fmt: skip
        bar = progress.add_task("registering", total=iterations)
        result = paper.batch(
            scene.clouds,
            means.on_sphere(scene.clouds, means.count(scene.clouds), rng),
            gamma=0.1,
            iterations=iterations,
            threads=threads,
            on_iteration=lambda step: progress.update(bar, completed=step.number + 1),
        )
    result.save(output)
    console.print(_demo_table(result, scene))
    console.print(f"{result.iterations} iterations; wrote poses.json, merged.ply, model.ply and state.npz to {output}/")


def _demo_table(result: "Registration", scene: "simulate.Scene") -> Table:
    from coframe import metrics

    errors = metrics.rotation_errors(result.poses, scene.poses)
    table = Table("cloud", title="Registered against the truth")
    for heading in ("points", "rotation error", "outliers", "found", "false alarms"):
        table.add_column(heading, justify="right")
    for j, (keep, true) in enumerate(zip(result.inliers(), scene.outliers, strict=True)):
        found, false_alarms = (~keep & true).sum(), (~keep & ~true).sum()
        error = "reference" if j == 0 else f"{errors[j]:.2f} deg"
        table.add_row(
            str(j), str(len(keep)), error, str(true.sum()), _share(found, true.sum()), _share(false_alarms, (~true).sum())
        )
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"
