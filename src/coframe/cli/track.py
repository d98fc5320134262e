# SPDX-License-Identifier: MIT
"""`coframe track`."""

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coframe.cli.app import (
    AsJson,
    Output,
    Quiet,
    Seed,
    Threads,
    WithReport,
    progress_console,
    say,
    say_json,
    writable,
)
from coframe.cli.watch import TimeLeft, about

if TYPE_CHECKING:
    from coframe.io.frames import FrameSource
    from coframe.sequence.tracker import Tracker

CHECKPOINT = 100  # frames of a sequence from one saved state to the next


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
    points: Annotated[int, typer.Option(min=100, help="Points of a frame.")] = 1500,
    components: Annotated[
        int, typer.Option(min=10, help="Gaussians that frames are placed against.")
    ] = 800,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on where an interrupted run in the same folder ended."),
    ] = False,
    seed: Seed = 0,
    threads: Threads = None,
    report: WithReport = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Follow a sensor through a depth sequence.

    Example:  coframe track rgbd_dataset_freiburg1_desk -o desk
    """
    from coframe.io import frames
    from coframe.sequence import state
    from coframe.sequence.tracker import Tracker, TrackOptions

    begun = time.perf_counter()
    camera = (
        frames.read_intrinsics(intrinsics)
        if intrinsics and Path(intrinsics).suffix == ".json"
        else intrinsics
    )
    source = frames.open_frames(sequence, intrinsics=camera)
    writable(output)
    checkpoint = output / "state.npz"
    options = TrackOptions(points=points, components=components, seed=seed, threads=threads)
    tracker = state.load(checkpoint) if resume else Tracker(options)
    output.mkdir(parents=True, exist_ok=True)
    stopped = _follow(tracker, source, checkpoint, quiet or as_json)
    if not stopped:
        tracker.settle()
    told, written = _write_track(output, tracker, source, begun, report=report)
    if as_json and not stopped:
        say_json({**told, "folder": str(output), "files": written})
    elif not quiet and not as_json:
        say(
            f"{told['frames']} of {told['of']} frames, {len(told['lost'])} lost,"
            f" {len(told['keyframes'])} key frames"
        )
        say(f"wrote {', '.join(written[:-1])} and {written[-1]} to {output}/")
    if stopped:
        again = shlex.join(["coframe", "track", str(sequence), "-o", str(output), "--resume"])
        print(f"coframe: interrupted; go on with: {again}", file=sys.stderr)
        if as_json:
            say_json({"error": "interrupted", "exit_code": 130})
        raise typer.Exit(130)


def _follow(tracker: "Tracker", source: "FrameSource", checkpoint: Path, quiet: bool) -> bool:
    """Give the tracker all frames; after Ctrl-C the frame at hand is finished first.

    Returns whether the run was stopped.
    """
    import signal

    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from coframe.sequence import state
    from coframe.threads import quiet_blas

    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    before = signal.signal(signal.SIGINT, stop)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    try:
        hidden = quiet or not progress_console().is_terminal
        with (
            quiet_blas(),
            Progress(
                *columns, console=progress_console(), transient=True, disable=hidden
            ) as progress,
        ):
            first, began, left = len(tracker.times), time.perf_counter(), TimeLeft()
            left.report(0.0)
            task = progress.add_task(f"frame {first} of {len(source)}")
            for frame in source.prepared(tracker.prepared, first):
                step = tracker.add(frame)
                rate = (step.index + 1 - first) / (time.perf_counter() - began)
                quality = "lost" if step.lost else f"{step.explained:.0%} explained"
                left.report((step.index + 1 - first) / (len(source) - first))
                where = f"frame {step.index + 1} of {len(source)}: {rate:.0f} frames/s, {quality}"
                progress.update(
                    task,
                    description=(
                        f"{where}, {left_in_words}"
                        if (left_in_words := about(left.seconds()))
                        else where
                    ),
                )
                if (step.index + 1) % CHECKPOINT == 0:
                    state.save(tracker, checkpoint)
                if stopped:
                    break
    finally:
        signal.signal(signal.SIGINT, before)
    state.save(tracker, checkpoint)
    return stopped


def _write_track(
    output: Path, tracker: "Tracker", source: "FrameSource", begun: float, *, report: bool
) -> tuple[dict[str, Any], list[str]]:
    """Writes all files of a result; returns what track.json says and the names of the files."""
    import json
    from dataclasses import asdict
    from importlib.metadata import version

    import numpy as np

    from coframe import report as reports
    from coframe.io import ply, trajectory
    from coframe.io.files import atomic

    result = tracker.result()
    written = ["trajectory.txt", "track.json", "state.npz"]
    trajectory.write_tum(output / "trajectory.txt", result.found())
    if result.keyframes:
        model = result.model()
        ply.write(output / "model.ply", model.means, variance=model.variances, weight=model.weights)
        sizes = [len(keyframe.cloud) for keyframe in result.keyframes]
        indices = np.array([keyframe.index for keyframe in result.keyframes], "<i4")
        ply.write(output / "merged.ply", result.merged(), frame=np.repeat(indices, sizes))
        written[1:1] = ["model.ply", "merged.ply"]
    told = {
        "format": "coframe-track/1",
        "frames": len(result),
        "of": len(source),
        "lost": [source.names[i] for i in np.flatnonzero(result.lost)],
        "explained": [round(share, 4) for share in result.explained.tolist()],
        "keyframes": [keyframe.index for keyframe in result.keyframes],
        "options": asdict(tracker.options),
        "version": version("coframe"),
    }
    with atomic(output / "track.json") as temporary:
        temporary.write_text(json.dumps(told, indent=1) + "\n")
    if report:
        run = reports.Run(
            shlex.join(["coframe", *sys.argv[1:]]),
            asdict(tracker.options),
            seconds=time.perf_counter() - begun,
        )
        reports.track.write(result, source.names, output / "report.html", run=run)
        written.append("report.html")
    else:
        # that of an earlier run would speak of another result
        (output / "report.html").unlink(missing_ok=True)
    return told, written
