# SPDX-License-Identifier: MIT
"""`coframe extend`."""

from pathlib import Path
from typing import Annotated

import typer

from coframe.cli.app import Quiet, Seed, Threads, console
from coframe.cli.show import verdict_table


def extend(
    folder: Annotated[Path, typer.Argument(help="Folder with a result of register or extend.")],
    files: Annotated[list[Path], typer.Argument(help="One or more clouds to add, in this order.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the result. Default: the same.")] = None,
    start: Annotated[
        str, typer.Option(help="Where a cloud starts: previous, velocity, or match (from anywhere).")
    ] = "previous",
    poses: Annotated[Path | None, typer.Option(help="Start poses, matched by file name.")] = None,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Add clouds to a registration; the ones already there stay where they are.

    Example:  coframe extend out scans/new.ply --start match
    """
    import coframe
    from coframe.clouds import InputError
    from coframe.io import poses as pose_files

    result = coframe.load(folder)
    before = len(result.clouds)
    known = pose_files.read_for(poses, [path.stem for path in files]) if poses else [start] * len(files)
    options = coframe.Options(seed=seed, threads=threads)
    for path, pose in zip(files, known, strict=True):
        if path.stem in result.names:
            raise InputError(f"{path}: expected a cloud that is not in {folder} yet, found {path.stem} there")
        result = coframe.extend(result, path, pose, options=options)
    result.save(output or folder)
    if not quiet:
        console.print(verdict_table(result))
        console.print(f"added {len(files)} to {before} clouds; wrote {output or folder}/")
    if any(verdict.verdict == "failed" for verdict in result.verdicts[before:]):
        raise typer.Exit(1)
