# SPDX-License-Identifier: MIT
"""What each option of `register` changes: one at a time, on the full scans of the Stanford bunny, from starts 8 degrees off.

`python -m benchmarks.options FOLDER` (with bun.conf and its scans in it) prints mean and worst rotation against the published
poses, the held-out residual of `benchmarks.multiview`, and the time beside that of the defaults in the same run.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import coframe
from benchmarks.multiview import DEGREES, SHIFT, judge, stanford
from coframe import Options, geometry, metrics

CHANGES = (
    {},
    {"components": 100},
    {"components": 300},
    {"components": 3000},
    {"points": 500},
    {"points": 1000},
    {"points": 10_000},
    {"iterations": 5},
    {"iterations": 60},
    {"tolerance": 1e-3},
    {"tolerance": 1e-5},
    {"seed": 1},
    {"seed": 2},
)


def disturbed(truth: np.ndarray, seed: int = 0) -> np.ndarray:
    """The true poses, turned and shifted at random, but for the first."""
    rng = np.random.default_rng(seed)
    start = truth.copy()
    for j in range(1, len(truth)):
        axis = rng.normal(size=3)
        turn = np.radians(rng.uniform(0, DEGREES)) * axis / np.linalg.norm(axis)
        start[j] = truth[j] @ geometry.exp(np.concatenate([turn, rng.uniform(-SHIFT, SHIFT, 3)]))
    return start


def main() -> None:
    """Run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    scans, truth = stanford(arguments.folder / "bun.conf")
    surfaces, start = [metrics.Surface.of(scan) for scan in scans], disturbed(truth)
    coframe.register(scans[:2], start[:2])  # compiles
    base = None
    for change in CHANGES:
        times = []
        for _ in range(arguments.rounds):
            began = time.perf_counter()
            result = coframe.register(scans, start, options=Options(**change))
            times.append(time.perf_counter() - began)
        base = base or min(times)
        figures = judge(surfaces, result.poses, truth)
        label = ", ".join(f"{name} {value:g}" for name, value in change.items()) or "defaults"
        angles = f"{figures['rotation_deg']:.3f} deg, worst {figures['worst_deg']:.3f}"
        print(
            f"{label:>16}: {angles}, residual {1e6 * (figures['residual'] or 0):.1f} um, {min(times) / base:.2f} x", flush=True
        )


if __name__ == "__main__":
    main()
