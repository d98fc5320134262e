# SPDX-License-Identifier: MIT
"""`coframe register`."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coframe.cli.app import (
    AsJson,
    Output,
    Quiet,
    Seed,
    Threads,
    WithReport,
    console,
    say,
    say_json,
    writable,
)
from coframe.cli.interrupt import interruptible
from coframe.cli.show import as_told, failed, store, verdict_table
from coframe.cli.watch import Watch, watching

if TYPE_CHECKING:
    from coframe import Options, Registration
    from coframe.compute.cluster import Client
    from coframe.types import Array

SECONDS = 10.0  # to wait for a scheduler


class Method(StrEnum):
    """Who does the work."""

    REGISTER = "register"
    PAPER = "paper"


def register(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES", help="Two or more clouds: files of any format, folders, patterns."
        ),
    ],
    output: Output,
    poses: Annotated[
        Path | None,
        typer.Option(help="Start poses in any format, matched by name. Default: they are found."),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            metavar="auto|identity|match",
            help=(
                "'identity' takes clouds as they lie, or as --poses say; 'match' matches them;"
                " 'auto' does it in doubt."
            ),
        ),
    ] = "auto",
    method: Annotated[
        Method,
        typer.Option(
            help=(
                "'paper' is JRMPC-B as published, with its defaults: clouds start centred on each"
                " other."
            )
        ),
    ] = Method.REGISTER,
    components: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=(
                "Gaussians of the model. Default: 1000; paper: 60 % of a cloud's points, up to"
                " 1000."
            ),
        ),
    ] = None,
    seed: Seed = 0,
    threads: Threads = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory to keep to, such as 2GB: clouds that are larger are read in blocks."
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help=(
                "Dask scheduler, tcp://... or tls://...: its workers read the files and do the"
                " work."
            )
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a run in the same folder that was interrupted."),
    ] = False,
    report: WithReport = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Bring clouds into one common frame.

    They may lie as they come from the scanner; start poses help where they are known. Ctrl-C keeps
    what is done; the same command with --resume goes on to the same result.

    Examples:

    coframe register scans/*.ply -o out

    coframe register scans -o out --poses start.json

    coframe register scans -o out --json --no-report

    coframe register scans -o out --memory 2GB

    coframe register scans -o out --scheduler tcp://10.0.0.1:8786

    coframe register scans -o out --method paper --components 300
    """
    import coframe
    from coframe import geometry
    from coframe.errors import InputError
    from coframe.input.checks import as_clouds
    from coframe.io import clouds as cloud_files
    from coframe.io import poses as pose_files
    from coframe.result.export import described

    begun = time.perf_counter()
    writable(output)
    options = coframe.Options(
        components=components or 1000, start=start, seed=seed, threads=threads
    )
    if resume and method is Method.PAPER:
        raise InputError(
            "resume: expected --method register, which keeps a checkpoint, found paper"
        )
    if resume and not quiet and not (output / "checkpoint.db").exists():
        print(f"coframe: no interrupted run in {output}, a new one begins", file=sys.stderr)
    if memory is not None or scheduler is not None:
        if method is Method.PAPER:
            raise InputError("method: expected register with --memory and --scheduler, found paper")
        result, written = _from_files(
            files,
            poses,
            options,
            output,
            memory,
            scheduler,
            resume,
            report,
            begun,
            quiet or as_json,
        )
        _finish(result, output, written, begun, as_json, quiet)
        return
    with watching(quiet) as watch:
        scans, files = cloud_files.open_all(files, on_file=watch.file)
        clouds = as_clouds([scan.points for scan in scans], names=[str(path) for path in files])
        names = [scan.name for scan in scans]
        known = pose_files.read_for(poses, names) if poses else None
        first = geometry.identity(len(clouds), clouds[0].shape[1]) if known is None else known
        watch.tell(f"looking at {len(clouds)} clouds")
        with (
            nullcontext() if method is Method.PAPER else interruptible(output, resume) as checkpoint
        ):
            if method is Method.PAPER:
                result = _published(clouds, known, components, options, names, watch)
            else:
                result = coframe.register(
                    clouds,
                    known,
                    options=options,
                    names=names,
                    checkpoint=checkpoint,
                    **watch.callbacks,
                )
            watch.tell("writing")
            result = described(result, scans, files)
            written = store(output, result, options, first, begun, report=report)
    _finish(result, output, written, begun, as_json, quiet)


def _finish(
    result: "Registration",
    output: Path,
    written: list[str],
    begun: float,
    as_json: bool,
    quiet: bool,
) -> None:
    if as_json:
        say_json(as_told(output, written, begun))
    elif not quiet:
        _show(result, output, written)
    if failed(result):
        raise typer.Exit(1)


def _from_files(
    files: list[Path],
    poses: Path | None,
    options: "Options",
    output: Path,
    memory: str | None,
    scheduler: str | None,
    resume: bool,
    report: bool,
    begun: float,
    quiet: bool,
) -> "tuple[Registration, list[str]]":
    """Clouds that stay in their files, on this machine or on a cluster."""
    import coframe
    from coframe import geometry
    from coframe.align import cost
    from coframe.io import clouds as cloud_files
    from coframe.io import poses as pose_files

    paths = cloud_files.expand(files)
    names, _ = cloud_files.titles(paths, [[""]] * len(paths))
    known = pose_files.read_for(poses, names) if poses else None
    if memory is not None:
        estimate = cost.estimate(paths, options)
        if not quiet:
            say(
                f"{len(paths)} files, {estimate.described()}, of"
                f" {cost.bytes_of(memory) / 1e6:.0f} MB"
            )
        cost.check(len(paths), options, memory)
    with (
        watching(quiet) as watch,
        _workers(scheduler) as cluster,
        interruptible(output, resume) as checkpoint,
    ):
        result = coframe.register(
            paths,
            known,
            options=options,
            checkpoint=checkpoint,
            memory=memory,
            cluster=cluster,
            output=output,
            **watch.callbacks,
        )
        watch.tell("writing")
        first = (
            geometry.identity(len(result.poses), result.mixture.dimension)
            if known is None
            else known
        )
        written = store(output, result, options, first, begun, report=report)
    return result, written


@contextmanager
def _workers(scheduler: str | None) -> "Iterator[Client | None]":
    """The workers behind a scheduler; certificates for tls:// come from Dask's own configuration."""
    if scheduler is None:
        yield None
        return
    from coframe.errors import InputError, optional

    distributed = optional("distributed", "cluster", "scheduler")
    try:
        client = distributed.Client(
            scheduler, direct_to_workers=True, set_as_default=False, timeout=SECONDS
        )
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"scheduler: expected the address of a Dask scheduler, found {scheduler} ({reason})"
        ) from None
    with client:
        yield client


def _published(
    clouds: "list[Array]",
    known: "Array | None",
    components: int | None,
    options: "Options",
    names: list[str],
    watch: Watch,
) -> "Registration":
    """JRMPC-B: means on a sphere around the clouds, or on their points where start poses are given."""
    from dataclasses import replace

    import numpy as np

    import coframe
    from coframe.paper import initial

    rng, steps = np.random.default_rng(options.seed), 100
    count = min(initial.component_count(clouds), 1000) if components is None else components
    first = (
        initial.means_on_sphere(clouds, count, rng)
        if known is None
        else initial.means_on_points(clouds, known, count, rng)
    )

    def on_iteration(step: coframe.Iteration) -> None:
        watch.iteration(step)
        watch.progress(watch.iterations / steps)

    result = coframe.paper.batch(
        clouds,
        first,
        poses=known,
        iterations=steps,
        threads=options.threads,
        on_iteration=on_iteration,
    )
    record = {"method": "paper", "components": count, "iterations": steps, "seed": options.seed}
    return replace(
        result, names=tuple(names), start="centred" if known is None else "given", options=record
    )


def _show(result: "Registration", output: Path, written: list[str]) -> None:
    console.print(verdict_table(result))
    tried = (
        f", {result.pairs_tried} pair{'s' * (result.pairs_tried > 1)} tried"
        if result.pairs_tried
        else ""
    )
    say(f"start: {result.start}{tried}")
    for warning in result.warnings:
        say(f"warning: {warning}")
    published = result.options["method"] == Method.PAPER
    say(f"{result.iterations} iterations, as published" if published else result.status.value)
    say(f"wrote {', '.join(written)} to {output}/")
