# SPDX-License-Identifier: MIT
"""Is `result.pose_covariance` true? Pose errors of simulated scenes in units of it: `python -m benchmarks.calibration`."""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from scipy.stats import chi2

import coframe
from coframe import geometry, joint, simulate

VIEWS, POINTS, DEGREES = 5, 1500, 120.0
NOISE_DB = (40.0, 50.0)
START_DEGREES, START_SHIFT = 5.0, 0.03
NOMINAL = (0.50, 0.90, 0.95, 0.99)
PARTS = {"pose": slice(0, 6), "rotation": slice(0, 3), "translation": slice(3, 6)}


def errors(result: coframe.Registration, truth: np.ndarray) -> np.ndarray:
    """Twists (omega, tau) of each pose's error about its cloud's centre, in the gauge of the average cloud: see `assess`."""
    centre = np.average(result.mixture.means, axis=0, weights=result.mixture.weights)
    for _ in range(3):  # the motion that all clouds share is not small; what is left after the first time is
        motions = result.poses @ geometry.inverse(truth)
        R = geometry.rotation(motions)
        twists = np.concatenate([geometry.log_rotation(R), R @ centre + geometry.translation(motions) - centre], 1)
        truth = joint.about(geometry.exp(twists.mean(0)[None]), centre) @ truth
    twists -= twists.mean(0)
    places = [geometry.transform(T, np.median(c, 0)[None])[0] for T, c in zip(result.poses, result.clouds, strict=True)]
    return np.array([joint.lever(place - centre) @ twist for place, twist in zip(places, twists, strict=True)])


def squared(error: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """e^T C^-1 e of each cloud."""
    return np.einsum("ji,ji->j", error, np.linalg.solve(covariance, error[..., None])[..., 0])


def scene(seed: int) -> dict[str, np.ndarray]:
    """One scene, registered: the normalised squared errors of its clouds, for whole poses and for their parts."""
    rng = np.random.default_rng(seed)
    s = simulate.scene(VIEWS, POINTS, degrees=DEGREES, noise_db=rng.uniform(*NOISE_DB), rng=rng)
    turns = np.array([geometry.random_rotation(rng, 3, START_DEGREES) for _ in s.poses])
    start = geometry.pose(turns, rng.uniform(-START_SHIFT, START_SHIFT, (VIEWS, 3))) @ s.poses
    result = coframe.register(s.clouds, start)
    e, C = errors(result, s.poses), result.pose_covariance
    return {name: squared(e[:, part], C[:, part, part]) for name, part in PARTS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path("results/calibration.json"))
    arguments = parser.parse_args()
    began, results = time.perf_counter(), []
    for seed in range(arguments.scenes):
        results.append(scene(seed))
        if (seed + 1) % 10 == 0 or seed + 1 == arguments.scenes:
            passed = time.perf_counter() - began
            print(f"  {seed + 1} of {arguments.scenes} scenes, {passed:.0f} s", flush=True)
    table = {}
    for name, part in PARTS.items():
        values, freedom = np.concatenate([each[name] for each in results]), part.stop - part.start
        table[name] = {
            "coverage": {f"{p:.2f}": float((values < chi2.ppf(p, freedom)).mean()) for p in NOMINAL},
            "mean_ratio": float(values.mean() / freedom),
            "median_ratio": float(np.median(values) / chi2.median(freedom)),
        }
        covered = "  ".join(f"{float(p):.0%}: {share:6.1%}" for p, share in table[name]["coverage"].items())
        ratios = f"mean ratio {table[name]['mean_ratio']:.2f}, median ratio {table[name]['median_ratio']:.2f}"
        print(f"{name:12s} coverage at nominal {covered}   {ratios}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    setting = {"scenes": arguments.scenes, "views": VIEWS, "points": POINTS, "degrees": DEGREES, "noise_db": NOISE_DB}
    start = {"start_degrees": START_DEGREES, "start_shift": START_SHIFT, "version": coframe.__version__}
    arguments.output.write_text(json.dumps({**setting, **start, "seconds": time.perf_counter() - began, **table}, indent=1))
    print(f"saved to {arguments.output}")


if __name__ == "__main__":
    main()
