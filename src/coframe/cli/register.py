# SPDX-License-Identifier: MIT
"""`coframe register`."""

import time
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coframe.cli.app import AsJson, Output, Quiet, Seed, Threads, WithReport, console, say, say_json, writable
from coframe.cli.interrupt import interruptible
from coframe.cli.show import as_told, failed, store, verdict_table
from coframe.cli.watch import Watch, watching

if TYPE_CHECKING:
    from coframe import Options, Registration
    from coframe.arrays import Array


class Method(StrEnum):
    """Who does the work."""

    REGISTER = "register"
    PAPER = "paper"


def register(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Two or more clouds: files of any format, folders, patterns.")
    ],
    output: Output,
    poses: Annotated[
        Path | None, typer.Option(help="Start poses in any format, matched by name. Default: they are found.")
    ] = None,
    start: Annotated[
        str,
        typer.Option(help="Without --poses: 'identity' takes clouds as they lie, 'match' matches them, 'auto' looks first."),
    ] = "auto",
    method: Annotated[
        Method, typer.Option(help="'paper' is JRMPC-B as published, with its defaults: clouds start centred on each other.")
    ] = Method.REGISTER,
    components: Annotated[
        int | None,
        typer.Option(min=1, help="Gaussians of the model. Default: 1000; paper: 60 % of a cloud's points, up to 1000."),
    ] = None,
    seed: Seed = 0,
    threads: Threads = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run in the same folder that was interrupted.")] = False,
    report: WithReport = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Bring clouds into one common frame.

    They may lie as they come from the scanner; start poses help where they are known. Ctrl-C keeps what is done; the same
    command with --resume goes on to the same result.

    Examples:

    coframe register scans/*.ply -o out

    coframe register scans -o out --poses start.json

    coframe register scans -o out --json --no-report

    coframe register scans -o out --method paper --components 300
    """
    import coframe
    from coframe import geometry
    from coframe.clouds import InputError, as_clouds
    from coframe.export import described
    from coframe.io import clouds as cloud_files
    from coframe.io import poses as pose_files

    begun = time.perf_counter()
    writable(output)
    options = coframe.Options(components=components or 1000, start=start, seed=seed, threads=threads)
    if resume and method is Method.PAPER:
        raise InputError("resume: expected --method register, which keeps a checkpoint, found paper")
    with watching(quiet) as watch:
        scans, files = cloud_files.open_all(files)
        clouds = as_clouds([scan.points for scan in scans], names=[str(path) for path in files])
        names = [scan.name for scan in scans]
        known = pose_files.read_for(poses, names) if poses else None
        first = geometry.identity(len(clouds), clouds[0].shape[1]) if known is None else known
        watch.tell(f"looking at {len(clouds)} clouds")
        with nullcontext() if method is Method.PAPER else interruptible(output, resume) as journal:
            if method is Method.PAPER:
                result = _published(clouds, known, components, options, names, watch)
            else:
                result = coframe.register(clouds, known, options=options, names=names, journal=journal, **watch.callbacks)
            watch.tell("writing")
            result = described(result, scans, files)
            written = store(output, result, options, first, begun, report=report)
    if as_json:
        say_json(as_told(output, written, begun))
    elif not quiet:
        _show(result, output, written)
    if failed(result):
        raise typer.Exit(1)


def _published(
    clouds: "list[Array]", known: "Array | None", components: int | None, options: "Options", names: list[str], watch: Watch
) -> "Registration":
    """JRMPC-B: means on a sphere around the clouds, or on their points where start poses are given."""
    from dataclasses import replace

    import numpy as np

    import coframe
    from coframe.start import means

    rng, steps = np.random.default_rng(options.seed), 100
    count = min(means.count(clouds), 1000) if components is None else components
    first = means.on_sphere(clouds, count, rng) if known is None else means.sampled(clouds, known, count, rng)

    def on_iteration(step: coframe.Iteration) -> None:
        watch.iteration(step)
        watch.progress(watch.iterations / steps)

    result = coframe.paper.batch(
        clouds, first, poses=known, iterations=steps, threads=options.threads, on_iteration=on_iteration
    )
    record = {"method": "paper", "components": count, "iterations": steps, "seed": options.seed}
    return replace(result, names=tuple(names), start="centred" if known is None else "given", options=record)


def _show(result: "Registration", output: Path, written: list[str]) -> None:
    console.print(verdict_table(result))
    tried = f", {result.pairs_tried} pairs tried" if result.pairs_tried else ""
    say(f"start: {result.start}{tried}")
    for warning in result.warnings:
        say(f"warning: {warning}")
    published = result.options["method"] == Method.PAPER
    say(f"{result.iterations} iterations, as published" if published else result.status.value)
    say(f"wrote {', '.join(written)} to {output}/")
