# SPDX-License-Identifier: MIT
"""`coframe register`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from coframe.cli.app import Output, Quiet, Seed, Threads, console
from coframe.cli.interrupt import interruptible
from coframe.cli.show import progress, verdict_table, write_report


def register(
    files: Annotated[list[Path], typer.Argument(help="Two or more clouds: files of any format, folders, patterns.")],
    output: Output,
    poses: Annotated[
        Path | None, typer.Option(help="Start poses in any format, matched by name. Default: they are found.")
    ] = None,
    start: Annotated[
        str,
        typer.Option(help="Without --poses: 'identity' takes clouds as they lie, 'match' matches them, 'auto' looks first."),
    ] = "auto",
    components: Annotated[int, typer.Option(min=1, help="Gaussians of the model.")] = 1000,
    seed: Seed = 0,
    threads: Threads = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run in the same folder that was interrupted.")] = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True,
    quiet: Quiet = False,
) -> None:
    """Register clouds as they come from the scanner, or from start poses.

    Ctrl-C keeps what is done; the same command with --resume goes on to the same result.

    Example:  coframe register scans/*.ply -o out
    """
    import coframe
    from coframe.clouds import as_clouds
    from coframe.export import described
    from coframe.io import clouds as cloud_files
    from coframe.io import poses as pose_files

    begun = time.perf_counter()
    scans, files = cloud_files.open_all(files)
    clouds = as_clouds([scan.points for scan in scans], names=[str(path) for path in files])
    names = [scan.name for scan in scans]
    known = pose_files.read_for(poses, names) if poses else None
    options = coframe.Options(components=components, start=start, seed=seed, threads=threads)
    with interruptible(output, resume) as journal:
        with progress(quiet) as (on_iteration, on_pair):
            result = coframe.register(
                clouds, known, options=options, names=names, on_iteration=on_iteration, on_pair=on_pair, journal=journal
            )
        result = described(result, scans, files)
        result.save(output)
        if report:
            write_report(output, result, options, known, begun)
    if not quiet:
        console.print(verdict_table(result))
        tried = f", {result.pairs_tried} pairs tried" if result.pairs_tried else ""
        console.print(f"start: {result.start}{tried}")
        for warning in result.warnings:
            console.print(f"warning: {warning}", markup=False)
        written = "poses.json, merged.ply, model.ply, state.npz" + (", report.html" if report else "")
        console.print(f"{result.status.value}; wrote {written} to {output}/")
    if any(verdict.verdict == "failed" for verdict in result.verdicts):
        raise typer.Exit(1)
