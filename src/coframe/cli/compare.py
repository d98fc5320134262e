# SPDX-License-Identifier: MIT
"""`coframe compare`."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coframe.cli.app import (
    AsJson,
    Quiet,
    Seed,
    Threads,
    progress_console,
    say,
    say_json,
    say_table,
)
from coframe.cli.output import claimed, clouds_of

if TYPE_CHECKING:
    from coframe import Comparison


def compare(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES", help="Two or more clouds: files of any format, folders, patterns."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for comparison.html and .json.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="True poses in any format, matched by name.")
    ] = None,
    poses: Annotated[
        Path | None,
        typer.Option(help="Start poses for all methods. Default: found as by register."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method to run, named as in the table. Repeatable. Default: all."),
    ] = None,
    points: Annotated[
        int,
        typer.Option(min=4, help="Points per cloud given to the methods; they are judged on more."),
    ] = 3000,
    gate: Annotated[
        float | None,
        typer.Option(help="Distance beyond which surfaces differ. Default: from the clouds."),
    ] = None,
    seed: Seed = 0,
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run every method on your own clouds, side by side.

    All methods start from the same poses and use the same points. The overlap is the share of
    points with a surface of another cloud within the gate; the residual is the median distance of
    these points to that surface.

    Examples:

    coframe compare scans/*.ply -o out

    coframe compare scans/*.ply --truth poses.json --method icp
    """
    import coframe
    from coframe.io import clouds as cloud_files
    from coframe.io import poses as pose_files
    from coframe.report import comparison as pages

    paths = clouds_of(files)
    scans, _ = cloud_files.open_all(paths)
    names = [scan.name for scan in scans]
    with (
        nullcontext() if output is None else claimed(output, pages.FILES, paths),
        progress_console().status("finding start poses") as status,
    ):
        if quiet or not progress_console().is_terminal:
            status.stop()
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
            pages.write_folder(found, output)
    if as_json:
        say_json(found.content())
    elif not quiet:
        _show(found, pages.columns(found))
        if output is not None:
            say(f"wrote comparison.html and comparison.json to {output}/")


def _show(found: "Comparison", columns: dict[str, list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True)
    for label in columns:
        text = label in ("method", "failure")
        table.add_column(
            escape(label), no_wrap=label != "failure", justify="left" if text else "right"
        )
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(escape, row))
    say_table(table)
    for name in found.left_out:
        say(f"left out: {name}, which could not be matched with the others")
    say(f"start: {found.start}; at most {found.points} points per cloud; gate {found.gate:.3g}")
