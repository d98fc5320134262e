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
        typer.Argument(
            help=(
                "Folder of depth images (TUM, ICL, 7-Scenes, Redwood and others) or of clouds"
                " (KITTI, PCD, PLY and others), or a ROS bag (folder, .mcap, .db3, .bag)."
            )
        ),
    ],
    output: Output,
    intrinsics: Annotated[
        str | None,
        typer.Option(
            help=(
                "Camera: a file with fx, fy, cx, cy, scale; or freiburg1, freiburg2,"
                " freiburg3, kinect, icl. Default: found beside the images."
            )
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Topic of a ROS bag, if it has several with frames.")
    ] = None,
    spin: Annotated[
        bool,
        typer.Option(
            "--spin",
            help=(
                "Correct frames of a spinning lidar for its motion by the azimuth of their points."
                " Points with times of their own are always corrected."
            ),
        ),
    ] = False,
    map_folder: Annotated[
        Path | None,
        typer.Option(
            "--map",
            metavar="DIR",
            help=(
                "Result of an earlier track of the same scene: frames are found in it and poses are"
                " in its frame; the new key frames are added to its own."
            ),
        ),
    ] = None,
    localise_only: Annotated[
        bool,
        typer.Option("--localise-only", help="Leave the map as it is, and add nothing to it."),
    ] = False,
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
    """Follow a depth camera or lidar through a sequence.

    Missing and damaged files are skipped and counted.

    Ctrl-C keeps what is done; the same command with --resume goes on to the same result.

    Example:  coframe track rgbd_dataset_freiburg1_desk -o desk
    """
    import coframe
    from coframe import report as reports
    from coframe.sequence import degeneracy

    started = time.perf_counter()
    frames = coframe.open_frames(sequence, intrinsics=intrinsics, topic=topic, spin=spin)
    options = coframe.TrackOptions(points=points, components=components, seed=seed, threads=threads)
    with (
        claimed(output, reports.track_files(page=report)),
        watching(quiet or as_json) as watch,
        interruptible(output, resume, quiet=quiet) as checkpoint,
    ):
        result = coframe.track(
            frames,
            options=options,
            map=map_folder,
            localise_only=localise_only,
            checkpoint=checkpoint,
            on_frame=_shown(watch, len(frames)),
        )
        watch.show("writing")
        command = shlex.join(["coframe", *sys.argv[1:]])
        run = reports.Run(command, asdict(options), seconds=time.perf_counter() - started)
        written = reports.write_track_folder(result, output, run=run, page=report)
    if as_json:
        say_json({**result.record(), "folder": str(output), "files": written})
    elif not quiet:
        skipped = len(result.skipped)
        say(
            f"{len(result)} of {len(frames)} frames, {result.lost.sum() - skipped} lost,"
            f" {len(result.keyframes)} key frames"
        )
        for stretch in result.degenerate:
            say(degeneracy.sentence(stretch, result.names))
        if skipped:
            first = next(iter(result.skipped.values()))
            say(f"{skipped} frames skipped, since they could not be read; the first: {first}")
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
