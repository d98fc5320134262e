# SPDX-License-Identifier: MIT
"""The command line. It parses, shows and writes; the work is done by the library, imported where a command needs it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from coframe import Iteration, Registration, simulate
    from coframe.arrays import Array

app = typer.Typer(
    help="Bring many overlapping point clouds into one common frame, jointly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
console = Console()

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the result.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn at random.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads; default: all cores. The result is the same.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def main() -> None:
    """The `coframe` command. Exit codes: 0 done, 1 a cloud failed, 2 bad input or usage, 130 interrupted."""
    from coframe.clouds import InputError

    try:
        app()
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

    rng = np.random.default_rng(seed)
    degrees = 360.0 * (views - 1) / views
    scene = simulate.scene(views, points, degrees=degrees, noise_db=noise, outliers=outliers, rng=rng)
    with _progress(quiet=False) as (on_iteration, on_pair):
        settings = Options(seed=seed, threads=threads)
        result = register(scene.clouds, options=settings, on_iteration=on_iteration, on_pair=on_pair)
    result.save(output)
    console.print(_demo_table(result, scene))
    console.print(f"Wrote poses.json, merged.ply, model.ply and state.npz to {output}/")


@app.command()
def register(
    files: Annotated[list[Path], typer.Argument(help="Two or more clouds: .ply, .npy, .txt, .xyz, .csv.")],
    output: Output,
    poses: Annotated[
        Path | None, typer.Option(help="Start poses (coframe-poses/1 JSON), matched by file name. Default: they are found.")
    ] = None,
    start: Annotated[
        str,
        typer.Option(help="Without --poses: 'identity' takes clouds as they lie, 'match' matches them, 'auto' looks first."),
    ] = "auto",
    components: Annotated[int, typer.Option(min=1, help="Gaussians of the model.")] = 1000,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Register clouds as they come from the scanner, or from start poses.

    Example:  coframe register scans/*.ply -o out
    """
    import coframe
    from coframe.clouds import as_clouds
    from coframe.io import clouds as cloud_files

    files = sorted(files, key=lambda path: cloud_files.natural(path.name))
    clouds = as_clouds([cloud_files.read(path) for path in files], names=[str(path) for path in files])
    known = _start_poses(files, poses) if poses else None
    options = coframe.Options(components=components, start=start, seed=seed, threads=threads)
    with _progress(quiet) as (on_iteration, on_pair):
        names = [path.stem for path in files]
        result = coframe.register(clouds, known, options=options, names=names, on_iteration=on_iteration, on_pair=on_pair)
    result.save(output)
    if not quiet:
        console.print(_verdict_table(result))
        tried = f", {result.pairs_tried} pairs tried" if result.pairs_tried else ""
        console.print(f"start: {result.start}{tried}")
        for warning in result.warnings:
            console.print(f"warning: {warning}")
        console.print(f"{result.status.value}; wrote poses.json, merged.ply, model.ply and state.npz to {output}/")
    if any(verdict.verdict == "failed" for verdict in result.verdicts):
        raise typer.Exit(1)


def _start_poses(files: list[Path], path: Path) -> "Array":
    import numpy as np

    from coframe.clouds import InputError
    from coframe.io import poses as pose_files

    known = pose_files.read(path)
    for file in files:
        if file.stem not in known and file.name not in known:
            raise InputError(f"{path}: expected a pose for {file.name}, found poses for {', '.join(known)}")
    return np.stack([known[file.stem] if file.stem in known else known[file.name] for file in files])


@contextmanager
def _progress(quiet: bool) -> "Iterator[tuple[Callable[[Iteration], None], Callable[[int, int], None]]]":
    """A line that shows where the run is; callbacks move it, for iterations and for pairs."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task, done = progress.add_task("reading the scene"), 0

        def show(iteration: "Iteration") -> None:
            nonlocal done
            done += 1
            text = f"iteration {done}: log-likelihood {iteration.log_likelihood:.5g}, largest step {iteration.step:.1e}"
            progress.update(task, description=text)

        def show_pair(pair: int, pairs: int) -> None:
            progress.update(task, description=f"matching: pair {pair} of {pairs}")

        yield show, show_pair


def _verdict_table(result: "Registration") -> Table:
    table = Table("cloud", "points", "verdict", "overlap", "residual", "reason")
    for name, cloud, verdict in zip(result.names, result.clouds, result.verdicts, strict=True):
        figures = f"{verdict.overlap:.0%}", f"{verdict.residual:.3g}"
        reason = "" if verdict.verdict == "aligned" else verdict.reason
        table.add_row(name, str(len(cloud)), verdict.verdict, *figures, reason)
    return table


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
