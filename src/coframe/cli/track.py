# SPDX-License-Identifier: MIT
"""`coframe track`."""

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
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
    say,
    say_json,
)
from coframe.cli.interrupt import interruptible
from coframe.cli.output import claimed
from coframe.cli.watch import Watch, watching
from coframe.sequence.recipe import SEQUENCE

if TYPE_CHECKING:
    from coframe.sequence.tracker import Progress


def track(
    sequence: Annotated[
        Path,
        typer.Argument(help="Folder: TUM RGB-D, depth images with intrinsics.json, or clouds."),
    ],
    output: Output,
    intrinsics: Annotated[
        str | None,
        typer.Option(
            help=(
                "Camera: a JSON file with fx, fy, cx, cy, scale; or freiburg1, freiburg2,"
                " freiburg3, kinect."
            )
        ),
    ] = None,
    points: Annotated[int, typer.Option(min=100, help="Points of a frame.")] = SEQUENCE.points,
    components: Annotated[
        int, typer.Option(min=10, help="Gaussians that frames are localised against.")
    ] = SEQUENCE.components,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a run in the same folder that was interrupted."),
    ] = False,
    seed: Seed = 0,
    threads: Threads = None,
    report: WithReport = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Follow a sensor through a depth sequence.

    Ctrl-C keeps what is done; the same command with --resume goes on to the same result.

    Example:  coframe track rgbd_dataset_freiburg1_desk -o desk
    """
    import coframe
    from coframe import report as reports

    started = time.perf_counter()
    frames = coframe.open_frames(sequence, intrinsics=intrinsics)
    options = coframe.TrackOptions(points=points, components=components, seed=seed, threads=threads)
    with (
        claimed(output, reports.track_files(page=report)),
        watching(quiet or as_json) as watch,
        interruptible(output, resume, quiet=quiet) as checkpoint,
    ):
        result = coframe.track(
            frames, options=options, checkpoint=checkpoint, on_frame=_shown(watch, len(frames))
        )
        watch.show("writing")
        command = shlex.join(["coframe", *sys.argv[1:]])
        run = reports.Run(command, asdict(options), seconds=time.perf_counter() - started)
        written = reports.write_track_folder(result, output, run=run, page=report)
    if as_json:
        say_json({**result.record(), "folder": str(output), "files": written})
    elif not quiet:
        say(
            f"{len(result)} of {len(frames)} frames, {result.lost.sum()} lost,"
            f" {len(result.keyframes)} key frames"
        )
        say(f"wrote {', '.join(written[:-1])} and {written[-1]} to {output}/")


def _shown(watch: Watch, total: int) -> "Callable[[Progress], None]":
    """What is shown after each frame."""
    began = time.perf_counter()
    first: int | None = None
    watch.progress(0.0)

    def show(step: "Progress") -> None:
        nonlocal first
        first = step.index if first is None else first
        done = step.index + 1 - first
        rate = done / (time.perf_counter() - began)
        quality = "lost" if step.lost else f"{step.explained:.0%} explained"
        watch.show(f"frame {step.index + 1} of {total}: {rate:.0f} frames/s, {quality}")
        watch.progress(done / (total - first))

    return show
