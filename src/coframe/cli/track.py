# SPDX-License-Identifier: MIT
"""`coframe track`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from coframe.cli.app import Output, Quiet, Seed, Threads, console

if TYPE_CHECKING:
    from coframe.sequence.frames import Frames
    from coframe.sequence.tracking import Tracker

CHECKPOINT = 100  # frames of a sequence from one saved state to the next


def track(
    sequence: Annotated[Path, typer.Argument(help="Folder: TUM RGB-D, depth images with intrinsics.json, or clouds.")],
    output: Output,
    intrinsics: Annotated[
        str | None,
        typer.Option(help="Camera: a JSON file with fx, fy, cx, cy, scale; or freiburg1, freiburg2, freiburg3, kinect."),
    ] = None,
    points: Annotated[int, typer.Option(min=100, help="Points of a frame.")] = 1500,
    components: Annotated[int, typer.Option(min=10, help="Gaussians that frames are placed against.")] = 1000,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run in the same folder ended.")] = False,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Follow a sensor through a depth sequence.

    Example:  coframe track rgbd_dataset_freiburg1_desk -o desk
    """
    from coframe.sequence import frames
    from coframe.sequence.tracking import Tracker, TrackOptions

    camera = frames.read_intrinsics(intrinsics) if intrinsics and Path(intrinsics).suffix == ".json" else intrinsics
    source = frames.open_frames(sequence, intrinsics=camera)
    state = output / "state.npz"
    options = TrackOptions(points=points, components=components, seed=seed, threads=threads)
    tracker = Tracker.load(state) if resume else Tracker(options)
    output.mkdir(parents=True, exist_ok=True)
    stopped = _follow(tracker, source, state, quiet)
    result = tracker.result()
    _write_track(output, tracker, source)
    if not quiet:
        lost = int(result.lost.sum())
        console.print(f"{len(result)} of {len(source)} frames, {lost} lost, {len(result.keyframes)} key frames")
        console.print(f"wrote trajectory.txt, model.ply, merged.ply, track.json and state.npz to {output}/")
    if stopped:
        print(f"coframe: interrupted; go on with: coframe track {sequence} -o {output} --resume", file=sys.stderr)
        raise typer.Exit(130)


def _follow(tracker: "Tracker", source: "Frames", state: Path, quiet: bool) -> bool:
    """Give the tracker all frames; after Ctrl-C the frame at hand is finished first. Returns whether the run was stopped."""
    import signal

    from coframe.sweeps import quiet_blas

    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    before = signal.signal(signal.SIGINT, stop)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    try:
        hidden = quiet or not console.is_terminal
        with quiet_blas(), Progress(*columns, console=console, transient=True, disable=hidden) as progress:
            first, began = len(tracker.times), time.perf_counter()
            task = progress.add_task(f"frame {first} of {len(source)}")
            for frame in source.prepared(tracker.prepared, first):
                step = tracker.add(frame)
                rate = (step.index + 1 - first) / (time.perf_counter() - began)
                quality = "lost" if step.lost else f"{step.explained:.0%} explained"
                progress.update(task, description=f"frame {step.index + 1} of {len(source)}: {rate:.0f} frames/s, {quality}")
                if (step.index + 1) % CHECKPOINT == 0:
                    tracker.save(state)
                if stopped:
                    break
    finally:
        signal.signal(signal.SIGINT, before)
    tracker.save(state)
    return stopped


def _write_track(output: Path, tracker: "Tracker", source: "Frames") -> None:
    import json
    from dataclasses import asdict
    from importlib.metadata import version

    import numpy as np

    from coframe import trajectory
    from coframe.io import ply
    from coframe.io.files import atomic

    result = tracker.result()
    trajectory.write_tum(output / "trajectory.txt", result.found())
    if result.keyframes:
        model = result.model()
        ply.write(output / "model.ply", model.means, variance=model.variances, weight=model.weights)
        sizes = [len(keyframe.cloud) for keyframe in result.keyframes]
        indices = np.array([keyframe.index for keyframe in result.keyframes], "<i4")
        ply.write(output / "merged.ply", result.merged(), frame=np.repeat(indices, sizes))
    report = {
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
        temporary.write_text(json.dumps(report, indent=1) + "\n")
