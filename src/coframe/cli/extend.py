# SPDX-License-Identifier: MIT
"""`coframe extend`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from coframe.cli.app import (
    AsJson,
    Quiet,
    Seed,
    Strict,
    Threads,
    WithReport,
    counted,
    say,
    say_json,
    say_table,
)
from coframe.cli.output import claimed
from coframe.cli.show import (
    as_json_content,
    fails,
    run_so_far,
    say_warnings,
    verdict_table,
)


def extend(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with a result of register or extend.")
    ],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES", help="One or more clouds to add, in this order."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for the result. Default: the same."),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            metavar="previous|velocity|match",
            help="Start of a cloud: pose of the last one, its motion continued, or any pose.",
        ),
    ] = "previous",
    poses: Annotated[Path | None, typer.Option(help="Start poses, matched by file name.")] = None,
    seed: Seed = 0,
    threads: Threads = None,
    strict: Strict = False,
    report: WithReport = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add clouds to a result; the poses of the others stay.

    Examples:

    coframe extend out new.ply -o more

    coframe extend out new.ply --start match
    """
    import coframe
    from coframe import report as reports
    from coframe.errors import InputError, visible
    from coframe.io import poses as pose_files

    started = time.perf_counter()
    target = output or folder
    known = (
        pose_files.read_for(poses, [visible(path.stem) for path in files])
        if poses
        else [start] * len(files)
    )
    options = coframe.Options(seed=seed, threads=threads)
    with claimed(target, reports.files(page=report), files):
        result = coframe.load(folder)
        before = len(result.clouds)
        for path, pose in zip(files, known, strict=True):
            if visible(path.stem) in result.names:
                raise InputError(
                    f"{path}: expected a cloud that is not in {folder} yet, found {path.stem}"
                    " there; rename the file if it is another cloud"
                )
            result = coframe.extend(result, path, pose, options=options)
        result = reports.complete(result)
        run = run_so_far(started, options)
        written = reports.write_folder(result, target, run=run, page=report)
    if as_json:
        say_json(as_json_content(target, written, started))
    elif not quiet:
        say_table(verdict_table(result))
        step = "give its pose with --poses" if poses or start == "match" else "try --start match"
        say_warnings(result, step)
        say(
            f"added {len(files)} to {counted(before, 'cloud')}; wrote"
            f" {', '.join(written)} to {target}/"
        )
    if fails(result, before, strict=strict):
        raise typer.Exit(1)
