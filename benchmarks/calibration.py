# SPDX-License-Identifier: MIT
"""Is `result.pose_covariance` true? Pose errors in units of it.

    python -m benchmarks.calibration [--scenes 200] [--noise 40 50]          simulated scenes
    python -m benchmarks.calibration --set armadillo [--scenes 6] [--points 3000]

`--set` takes virtual depth scans with exact poses (armadillo, lucy; see docs/data.md), each time
other points of them (0: all).
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from scipy.stats import chi2

import coframe
from benchmarks import problems
from coframe import geometry
from coframe.data import simulate

VIEWS = 5  # of a simulated scene
POINTS = 1500  # of each view
DEGREES = 120.0  # between the first and the last view
NOISE_DB = (40.0, 50.0)
START_DEGREES = 5.0  # by which starts of simulated scenes are turned, at most
START_SHIFT = 0.03  # [size of the scene] by which they are moved along each axis, at most
NOMINAL = (0.50, 0.90, 0.95, 0.99)
SCAN_DEGREES = 8.0  # by which starts of scans with exact poses are turned, at most
SCAN_SHIFT = 0.03  # [size of the scene] by which they are moved along each axis, at most
PARTS = {"pose": slice(0, 6), "rotation": slice(0, 3), "translation": slice(3, 6)}


def errors(result: coframe.Registration, truth: np.ndarray) -> np.ndarray:
    """Each pose's error (omega, tau) about its cloud's median, in the gauge of the average cloud.

    See `Registration.pose_covariance`.
    """
    centre = np.average(result.mixture.means, axis=0, weights=result.mixture.weights)
    # The motion that all clouds share is not small; what is left after the first pass is.
    for _ in range(3):
        motions = result.poses @ geometry.inverse(truth)
        R = geometry.rotation(motions)
        twists = np.concatenate(
            [geometry.log_rotation(R), R @ centre + geometry.translation(motions) - centre], 1
        )
        truth = geometry.about(geometry.exp(twists.mean(0)[None]), centre) @ truth
    twists -= twists.mean(0)
    medians = [
        geometry.transform(T, np.median(c, 0)[None])[0]
        for T, c in zip(result.poses, result.clouds, strict=True)
    ]
    return np.array(
        [
            geometry.lever(median - centre) @ twist
            for median, twist in zip(medians, twists, strict=True)
        ]
    )


def squared(error: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """e^T C^-1 e of each cloud."""
    return np.einsum("ji,ji->j", error, np.linalg.solve(covariance, error[..., None])[..., 0])


def simulated(
    noise: tuple[float, float], rng: np.random.Generator
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Clouds, true poses and start poses of one scene."""
    s = simulate.scene(VIEWS, POINTS, degrees=DEGREES, noise_db=rng.uniform(*noise), rng=rng)
    turns = np.array([geometry.random_rotation(rng, 3, START_DEGREES) for _ in s.poses])
    return (
        s.clouds,
        s.poses,
        geometry.pose(turns, rng.uniform(-START_SHIFT, START_SHIFT, (VIEWS, 3))) @ s.poses,
    )


def scanned(name: str, points: int, seed: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Some points (0: all) of each scan of a set, true poses and start poses."""
    scans, poses = problems.scans(name)
    clouds, start = problems.disturbed(
        scans, poses, seed, points=points or None, degrees=SCAN_DEGREES, shift=SCAN_SHIFT
    )
    return clouds, poses, start


def judged(clouds: list[np.ndarray], truth: np.ndarray, start: np.ndarray) -> dict[str, np.ndarray]:
    """The normalised squared errors of a scene's clouds, for whole poses and for their parts."""
    # near enough to need no matching
    result = coframe.register(clouds, start, options=coframe.Options(start="identity"))
    e, C = errors(result, truth), result.pose_covariance
    return {name: squared(e[:, part], C[:, part, part]) for name, part in PARTS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument(
        "--noise",
        type=float,
        nargs=2,
        default=NOISE_DB,
        help="of simulated scenes, from and to [dB]",
    )
    parser.add_argument("--set", choices=["simulated", "armadillo", "lucy"], default="simulated")
    parser.add_argument("--points", type=int, default=3000, help="of each scan of a set; 0: all")
    parser.add_argument("--output", type=Path, default=Path("results/calibration.json"))
    arguments = parser.parse_args()
    began, results = time.perf_counter(), []
    for seed in range(arguments.scenes):
        if arguments.set == "simulated":
            scene = simulated(arguments.noise, np.random.default_rng(seed))
        else:
            scene = scanned(arguments.set, arguments.points, seed)
        results.append(judged(*scene))
        if (seed + 1) % 10 == 0 or seed + 1 == arguments.scenes:
            passed = time.perf_counter() - began
            print(f"  {seed + 1} of {arguments.scenes} scenes, {passed:.0f} s", flush=True)
    table = {}
    for name, part in PARTS.items():
        values, freedom = np.concatenate([each[name] for each in results]), part.stop - part.start
        table[name] = {
            "coverage": {
                f"{p:.2f}": float((values < chi2.ppf(p, freedom)).mean()) for p in NOMINAL
            },
            "mean_ratio": float(values.mean() / freedom),
            "median_ratio": float(np.median(values) / chi2.median(freedom)),
        }
        covered = "  ".join(
            f"{float(p):.0%}: {share:6.1%}" for p, share in table[name]["coverage"].items()
        )
        ratios = (
            f"mean ratio {table[name]['mean_ratio']:.2f}, median ratio"
            f" {table[name]['median_ratio']:.2f}"
        )
        print(f"{name:12s} coverage at nominal {covered}   {ratios}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    setting = {"set": arguments.set, "scenes": arguments.scenes, "version": coframe.__version__}
    if arguments.set == "simulated":
        setting |= {
            "views": VIEWS,
            "points": POINTS,
            "degrees": DEGREES,
            "noise_db": arguments.noise,
        }
        setting |= {"start_degrees": START_DEGREES, "start_shift": START_SHIFT}
    else:
        setting |= {
            "points": arguments.points,
            "start_degrees": SCAN_DEGREES,
            "start_shift": SCAN_SHIFT,
        }
    arguments.output.write_text(
        json.dumps({**setting, "seconds": time.perf_counter() - began, **table}, indent=1)
    )
    print(f"saved to {arguments.output}")


if __name__ == "__main__":
    main()
