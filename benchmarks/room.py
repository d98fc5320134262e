# SPDX-License-Identifier: MIT
"""`coframe.track` with its defaults in rooms that are not freiburg1_desk: simulated ones, whose
true path is exact.

    python -m benchmarks.room [--frames 400] [--seeds 0 1 2]

A depth camera (160 x 120 pixels, the field of view and the noise of a Kinect, depth in steps as its
disparity has them, no depth at edges) goes around a table with boxes and balls ("around"), or turns
about itself in the middle of the room ("turn"), once, back to where it began. The hand trembles.
Other settings run beside the defaults, which were chosen on another sequence.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from benchmarks.record import ROOT, machine
from coframe import geometry
from coframe.evaluate import trajectory_errors
from coframe.io import depth
from coframe.io.depth import Intrinsics
from coframe.io.frames import FAR, NEAR, Frame, FrameSource, by_depth
from coframe.io.trajectory import Trajectory

CAMERA = Intrinsics(129.3, 129.1, 79.6, 63.8, 5000.0)  # a quarter of freiburg1
HEIGHT = 120  # [pixels]
WIDTH = 160  # [pixels]
# [m] of depth at 1 m, from the disparity of a Kinect; it grows with the square of the depth
STEP = 2.85e-3
GRAZING = 0.08  # relative jump between neighbouring pixels: at edges, a Kinect sees nothing
PATHS = ("around", "turn")
SETTINGS: dict[str, dict[str, int]] = {
    "defaults": {},
    "key frame every 3": {"every": 3},
    "key frame every 8": {"every": 8},
    "400 components": {"components": 400},
    "1600 components": {"components": 1600},
}


@dataclass(frozen=True)
class Room:
    """Walls around, seen from inside, and what stands in it. The y axis points down."""

    low: np.ndarray  # (3,) corner of the room
    high: np.ndarray
    boxes: np.ndarray  # (B, 2, 3) corners
    balls: np.ndarray  # (S, 4) centre and radius
    pillars: np.ndarray  # (C, 3) x, z and radius, from floor to ceiling

    @classmethod
    def furnished(cls, rng: np.random.Generator) -> "Room":
        """A table in the middle with things on it, some furniture at the walls."""
        table = [[[-0.7, 0.0, -0.45], [0.7, 0.05, 0.45]], [[-0.65, 0.05, -0.4], [-0.55, 0.75, 0.4]]]
        table += [[[0.55, 0.05, -0.4], [0.65, 0.75, 0.4]]]
        boxes = [*table]
        for _ in range(7):  # on the table
            size, place = rng.uniform(0.05, 0.3, 3), rng.uniform([-0.6, 0, -0.35], [0.5, 0, 0.3])
            boxes.append(
                [[place[0], -size[1], place[2]], [place[0] + size[0], 0.0, place[2] + size[2]]]
            )
        for side in range(8):  # at the walls
            size, x, z = rng.uniform(0.3, 0.8, 3), rng.uniform(-2.0, 1.4), rng.uniform(-2.0, 1.4)
            x, z = [(x, 2.2 - size[2]), (x, -2.2), (2.2 - size[0], z), (-2.2, z)][side % 4]
            boxes.append([[x, 0.75 - 1.5 * size[1], z], [x + size[0], 0.75, z + size[2]]])
        balls = [
            [*rng.uniform([-0.5, -0.1, -0.3], [0.5, -0.08, 0.3]), rng.uniform(0.06, 0.12)]
            for _ in range(4)
        ]
        pillars = [[1.5, -1.4, 0.2], [-1.6, 1.3, 0.15]]
        return cls(
            np.array([-2.2, -1.7, -2.2]),
            np.array([2.2, 0.75, 2.2]),
            np.array(boxes),
            np.array(balls),
            np.array(pillars),
        )

    def depths(self, pose: np.ndarray) -> np.ndarray:
        """(HEIGHT, WIDTH) in metres along z, without noise."""
        v, u = np.mgrid[0:HEIGHT, 0:WIDTH]
        rays = np.stack(
            [(u - CAMERA.cx) / CAMERA.fx, (v - CAMERA.cy) / CAMERA.fy, np.ones(u.shape)], -1
        )
        d, o = rays @ geometry.rotation(pose).T, geometry.translation(pose)
        with np.errstate(divide="ignore", invalid="ignore"):
            best = np.maximum((self.low - o) / d, (self.high - o) / d).min(-1)
            for low, high in self.boxes:
                a, b = (low - o) / d, (high - o) / d
                enter, leave = np.minimum(a, b).max(-1), np.maximum(a, b).min(-1)
                best = np.where((enter > 0) & (enter < leave) & (enter < best), enter, best)
            for *centre, radius in self.balls:
                best = np.minimum(best, _entered(d, o - np.array(centre), radius))
            for x, z, radius in self.pillars:
                best = np.minimum(best, _entered(d[..., ::2], o[::2] - np.array([x, z]), radius))
        return best


def _entered(d: np.ndarray, o: np.ndarray, radius: float) -> np.ndarray:
    """Where rays o + s d meet a sphere (a circle in the plane) about the origin; infinity where
    they do not.
    """
    a, b, c = (d**2).sum(-1), (d * o).sum(-1), o @ o - radius**2
    root = b**2 - a * c
    s = (-b - np.sqrt(np.maximum(root, 0))) / a
    return np.where((root > 0) & (s > 0), s, np.inf)


def image(true: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What the camera makes of true depths, in units of 1/5000 m; zero where it sees nothing."""
    noisy = true + rng.normal(size=true.shape) * depth.deviation(true.ravel()).reshape(true.shape)
    step = STEP * noisy**2
    noisy = step * np.round(noisy / step)
    jump = np.maximum(
        np.abs(np.diff(true, axis=1, append=true[:, -1:])),
        np.abs(np.diff(true, axis=0, append=true[-1:])),
    )
    noisy[jump > GRAZING * true] = 0
    return np.round(CAMERA.scale * np.clip(noisy, 0, 10)).astype(np.uint16)


def path(kind: str, count: int) -> np.ndarray:
    """(count, 4, 4): once around, looking at the table, or once about itself; always with a
    trembling hand.
    """
    t = np.linspace(0, 2 * np.pi, count)
    tremble = 0.02 * np.stack([np.sin(17 * t), np.sin(23 * t + 1), np.sin(19 * t + 2)], 1)
    if kind == "around":
        eyes = (
            np.stack([1.35 * np.sin(t), -0.6 + 0.15 * np.sin(3 * t), -1.35 * np.cos(t)], 1)
            + tremble
        )
        ahead = np.array([0.0, 0.0, 0.0]) - eyes
    else:
        eyes = (
            np.array([0.3, -0.7, -1.3])
            + 0.1 * np.stack([np.sin(t), np.sin(2 * t), np.cos(t)], 1)
            + tremble
        )
        ahead = np.stack([np.sin(t), 0.25 + 0.15 * np.sin(2 * t), np.cos(t)], 1)
    z = ahead / np.linalg.norm(ahead, axis=1, keepdims=True)
    x = np.cross(np.array([0.0, 1.0, 0.0]), z)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    turns = np.stack([x, np.cross(z, x), z], 2) @ geometry.exp_rotation(tremble)
    return geometry.pose(turns, eyes)


def sequence(kind: str, count: int, seed: int) -> tuple[FrameSource, Trajectory]:
    """Frames, which are drawn when they are read, and the true path."""
    room, poses, times = (
        Room.furnished(np.random.default_rng(seed)),
        path(kind, count),
        np.arange(count) / 30,
    )

    def read(i: int) -> Frame:
        seen = depth.points(image(room.depths(poses[i]), np.random.default_rng([seed, i])), CAMERA)
        seen = seen[(seen[:, 2] > NEAR) & (seen[:, 2] < FAR)]
        return Frame(float(times[i]), seen, by_depth(seen), f"frame {i}")

    return FrameSource(tuple(f"frame {i}" for i in range(count)), times, read), Trajectory(
        times, poses
    )


def measured(kind: str, count: int, seed: int, setting: str, threads: int | None) -> dict[str, Any]:
    source, truth = sequence(kind, count, seed)
    options = replace(coframe.TrackOptions(seed=seed, threads=threads), **SETTINGS[setting])
    result = coframe.track(source, options=options)
    errors = trajectory_errors.absolute_errors(result.found(), truth)
    return {
        "path": kind,
        "setting": setting,
        "seed": seed,
        "ate_rmse": errors.rmse,
        "largest_error": errors.largest,
        "lost": int(result.lost.sum()),
        "length_m": truth.length,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.room", description=__doc__)
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=list(PATHS))
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "room.json")
    options = parser.parse_args(arguments)
    found: list[dict[str, Any]] = []
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for kind in options.paths:
        for setting in options.settings:
            for seed in options.seeds:
                found.append(measured(kind, options.frames, seed, setting, options.threads))
                print(found[-1], flush=True)
                report = {"frames": options.frames, "machine": machine(), "rows": found}
                options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
