# SPDX-License-Identifier: MIT
"""Many clouds at once, all around a shape: time, memory and accuracy.

`python -m benchmarks.many`.
"""

import argparse
import json
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

import coframe
from coframe import geometry
from coframe.align.level import Run
from coframe.align.recipe import Level
from coframe.compute.per_cloud import Local
from coframe.data import simulate
from coframe.evaluate import metrics
from coframe.input.normalise import Normalisation
from coframe.input.source import InMemory

NOISE_DB = 45.0
START_DEGREES = 2.0  # by which starts are turned, at most
START_SHIFT = 0.01  # [size of the scene] by which they are moved along each axis, at most


def seconds_per_iteration(
    clouds: list[np.ndarray], poses: np.ndarray, options: coframe.Options, count: int = 4
) -> float:
    """Median over a few iterations of the last level, on all threads."""
    frames = Normalisation.of(clouds)
    rng = np.random.default_rng(0)
    place = Local(list(map(InMemory, clouds)), options.threads)
    stamps: list[float] = []
    level = Level(options.components, options.points, count + 1, burn_in=0, tolerance=0.0)
    run = Run(
        place,
        list(map(len, clouds)),
        frames,
        level,
        rng,
        threads=options.threads,
        on_iteration=lambda step: stamps.append(time.perf_counter()),
    )
    run.fit(run.draw(options.points), frames.enter_poses(poses, np.zeros(3)), level)
    return float(np.median(np.diff(stamps)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clouds", type=int, default=200)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--output", type=Path, default=Path("results/many.json"))
    arguments = parser.parse_args()
    M, N = arguments.clouds, arguments.points
    rng = np.random.default_rng(0)
    scene = simulate.scene(M, N, degrees=360 * (M - 1) / M, noise_db=NOISE_DB, rng=rng)
    turns = np.array([geometry.random_rotation(rng, 3, START_DEGREES) for _ in range(M)])
    start = geometry.pose(turns, rng.uniform(-START_SHIFT, START_SHIFT, (M, 3))) @ scene.poses
    print(f"{M} clouds, {sum(map(len, scene.clouds)):,} points; registering", flush=True)

    options, calls = coframe.Options(), 0

    def count(step: coframe.Iteration) -> None:
        nonlocal calls
        calls += 1
        if calls % 25 == 0:
            print(
                f"  {calls} iterations of all phases, {time.perf_counter() - began:.0f} s",
                flush=True,
            )

    baseline = peak_memory()
    began = time.perf_counter()
    result = coframe.register(scene.clouds, start, options=options, on_iteration=count)
    total, peak = time.perf_counter() - began, peak_memory()
    verdicts = [each.verdict for each in result.verdicts]
    figures = {
        "clouds": M,
        "points": N,
        "components": len(result.mixture),
        "seconds": total,
        "iterations": calls,
        "seconds_per_iteration": seconds_per_iteration(scene.clouds, result.poses, options),
        "peak_bytes": peak,
        "peak_bytes_before": baseline,
        "rotation_error_before": spread(start, scene.poses),
        "rotation_error_after": spread(result.poses, scene.poses),
        "verdicts": {verdict: verdicts.count(verdict) for verdict in ("aligned", "weak", "failed")},
        "status": result.status.name,
        "options": asdict(options),
        "version": coframe.__version__,
    }
    print(
        f"total time          {total:.1f} s, {calls} iterations of all phases, {figures['status']}"
    )
    print(
        f"time per iteration  {figures['seconds_per_iteration']:.2f} s (last level, K ="
        f" {figures['components']})"
    )
    print(
        f"peak memory         {peak / 2**20:.0f} MiB, {baseline / 2**20:.0f} MiB of it before"
        " the run"
    )
    for when in ("before", "after"):
        error = figures[f"rotation_error_{when}"]
        print(
            f"rotation error      {when:6s} mean {error['mean']:.4f} deg, largest"
            f" {error['largest']:.4f} deg"
        )
    print(f"verdicts            {figures['verdicts']}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(figures, indent=1))
    print(f"saved to {arguments.output}")


def spread(poses: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Rotation errors in degrees, each cloud against the average one: no single cloud is the
    reference.
    """
    omega = geometry.log_rotation(geometry.rotation(poses @ geometry.inverse(truth)))
    common = geometry.pose(geometry.exp_rotation(omega.mean(0)), np.zeros(3))
    each = np.degrees(geometry.angle(geometry.rotation(poses @ geometry.inverse(common @ truth))))
    to_first = metrics.rotation_errors(poses, truth)
    return {
        "mean": float(each.mean()),
        "largest": float(each.max()),
        "mean_to_first": float(to_first.mean()),
    }


def peak_memory() -> int:
    """The largest resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


if __name__ == "__main__":
    main()
