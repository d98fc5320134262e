# SPDX-License-Identifier: MIT
"""`coframe compare`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from coframe.cli.app import Quiet, Seed, Threads, console


def compare(
    files: Annotated[list[Path], typer.Argument(help="Two or more clouds: files of any format, folders, patterns.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for comparison.html and .json.")] = None,
    truth: Annotated[Path | None, typer.Option(help="True poses in any format, matched by name.")] = None,
    poses: Annotated[
        Path | None, typer.Option(help="Start poses of all methods. Default: found as register finds them; most need a start.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="A method to run; may be repeated. Default: all.")] = None,
    points: Annotated[
        int, typer.Option(min=4, help="Points of each cloud that the methods see; they are judged on more.")
    ] = 3000,
    gate: Annotated[float | None, typer.Option(help="Distance beyond which surfaces differ. Default: from the clouds.")] = None,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Run every method on your own clouds, side by side.

    Example:  coframe compare scans/*.ply --truth poses.json -o out
    """
    import coframe
    from coframe.io import clouds as cloud_files
    from coframe.io import poses as pose_files
    from coframe.report import comparison as pages

    scans, files = cloud_files.open_all(files)
    names = [scan.name for scan in scans]
    with console.status("finding a start") as status:
        status.stop() if quiet else None
        found = coframe.compare(
            [scan.points for scan in scans],
            pose_files.read_for(poses, names) if poses else None,
            truth=pose_files.read_for(truth, names) if truth else None,
            methods=method,
            points=points,
            gate=gate,
            options=coframe.Options(seed=seed, threads=threads),
            names=names,
            on_method=lambda name, done, total: status.update(f"{name} ({done + 1} of {total})"),
        )
    if output is not None:
        found.save(output / "comparison.json")
        pages.write(found, output / "comparison.html")
    if quiet:
        return
    columns = pages.columns(found)
    table = Table(*columns)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    console.print(table, markup=False)
    for name in found.left_out:
        console.print(f"left out: {name} could not be matched with the others", markup=False)
    console.print(f"start: {found.start}; up to {points} points a cloud; gate {found.gate:.3g}")
    if output is not None:
        console.print(f"wrote comparison.html and comparison.json to {output}/", markup=False)
