# SPDX-License-Identifier: MIT
"""`coframe.track` for ten minutes: whether memory and time per frame stay as they are, and whether
the loop closes.

    python -m benchmarks.long_loop [--frames 6000] [--laps 6]

The depth camera of `benchmarks.room` goes around the table so many times, at ten frames a second,
with new noise in every frame. The table has a row for each tenth of the frames: processor time of
the tracking thread per frame, memory, key frames, and the error of the path in that tenth. Nothing
is aligned with the truth but the first frame, so that the error of the last frame is what a loop
that did not close would leave.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import coframe
from benchmarks import record
from benchmarks.room import CAMERA, Room, image, path
from benchmarks.sequence import resident
from coframe import geometry
from coframe.io import depth
from coframe.io.frames import FAR, NEAR, Frame, FrameSource, by_depth

RATE = 10.0  # [frames/s]
ROWS = 10


@dataclass(frozen=True)
class Moment:
    """What is measured after a frame."""

    seconds: float  # processor time of the tracking thread since the last frame
    mib: float
    keyframes: int


def sequence(count: int, laps: int, seed: int) -> tuple[FrameSource, np.ndarray]:
    """Frames, which are drawn when they are read, and the true poses."""
    room = Room.furnished(np.random.default_rng(seed))
    around = path("around", -(-count // laps) + 1)[:-1]  # its last pose is its first
    poses = around[np.arange(count) % len(around)]
    times = np.arange(count) / RATE

    def read(i: int) -> Frame:
        noise = np.random.default_rng([seed, i])
        seen = depth.points(image(room.depths(poses[i]), noise), CAMERA)
        seen = seen[(seen[:, 2] > NEAR) & (seen[:, 2] < FAR)]
        return Frame(float(times[i]), seen, by_depth(seen), f"frame {i}")

    return FrameSource(tuple(f"frame {i}" for i in range(count)), times, read), poses


def measured(count: int, laps: int, seed: int) -> tuple[coframe.Track, np.ndarray, list[Moment]]:
    """The track, the error of each frame [m] and what was measured after each."""
    source, truth = sequence(count, laps, seed)
    moments: list[Moment] = []
    last = time.thread_time()

    def watch(step: Any) -> None:
        nonlocal last
        now = time.thread_time()
        moments.append(Moment(now - last, resident(), step.keyframes))
        last = now

    track = coframe.track(source, options=coframe.TrackOptions(seed=seed), on_frame=watch)
    placed = truth[0] @ track.poses
    errors = np.linalg.norm(geometry.translation(placed) - geometry.translation(truth), axis=1)
    return track, errors, moments


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_loop", description=__doc__)
    parser.add_argument("--frames", type=int, default=6000)
    parser.add_argument("--laps", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    record.add_option(parser)
    options = parser.parse_args(arguments)
    coframe.track(sequence(12, 1, options.seed)[0])  # compilation comes before
    track, errors, moments = measured(options.frames, options.laps, options.seed)
    rows = []
    for part in np.array_split(np.arange(len(track)), ROWS):
        some = [moments[i] for i in part]
        rows.append(
            [
                f"{part[0]} to {part[-1]}",
                f"{1e3 * np.mean([each.seconds for each in some]):.1f} ms",
                f"{some[-1].mib:.0f} MiB",
                str(some[-1].keyframes),
                str(int(track.lost[part].sum())),
                f"{np.sqrt(np.mean(errors[part] ** 2)):.4f} m",
            ]
        )
        print(*rows[-1], sep="  ", flush=True)
    print(f"error of the last frame {errors[-1]:.4f} m, {int(track.lost.sum())} lost")
    columns = ["frames", "time a frame", "memory", "key frames", "lost", "error (RMSE)"]
    what = (
        f"{options.frames} frames, {options.laps} times around a table; the last frame is"
        f" {errors[-1]:.4f} m off."
    )
    record.save("long_loop", what, columns, rows, folder=options.records)


if __name__ == "__main__":
    main()
