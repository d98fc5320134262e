# SPDX-License-Identifier: MIT
"""One cloud at a time against all at once: JRMPC-I as published, `coframe.extend` and `coframe.register` on the same scans.

    python -m benchmarks.incremental [--noise 25]

Problems and judge are those of `benchmarks.multiview`. JRMPC-I runs with the settings of the paper's experiment: K = 4000
components on points of roughly aligned scans, 50 iterations for the first two, then for each scan K/M components started anew,
one integration and 30 batch iterations. `extend` starts from a registration of the first `--first` scans. The seconds of
`extend` are those of one added cloud in the mean; the others' are the whole run.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from benchmarks.multiview import HEAD, PROBLEMS, ROOT, data, judge, machine, problem, show, stanford
from coframe import metrics, start

COMPONENTS = 4000  # the paper's K
VARIANCE = 0.004**2  # m^2: as far off as the starts are


def jrmpc_i(clouds: Sequence[np.ndarray], poses: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """The published incremental version."""
    rng = np.random.default_rng(seed)
    began = time.perf_counter()
    means = start.means.sampled(clouds, poses, COMPONENTS, rng)
    result = coframe.paper.incremental(clouds, means, rng, poses=poses, variances=VARIANCE, epsilon=1e-10)
    return result.poses, time.perf_counter() - began


def jrmpc_b(clouds: Sequence[np.ndarray], poses: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """The published batch version, with as many iterations as JRMPC-I refines in its last step and begins with."""
    rng = np.random.default_rng(seed)
    began = time.perf_counter()
    means = start.means.sampled(clouds, poses, COMPONENTS, rng)
    result = coframe.paper.batch(clouds, means, poses=poses, variances=VARIANCE, epsilon=1e-10, iterations=80)
    return result.poses, time.perf_counter() - began


def register(clouds: Sequence[np.ndarray], poses: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    began = time.perf_counter()
    result = coframe.register(clouds, poses, options=coframe.Options(seed=seed))
    return result.poses, time.perf_counter() - began


def extend(clouds: Sequence[np.ndarray], poses: np.ndarray, seed: int, first: int) -> tuple[np.ndarray, float]:
    """Poses, and seconds for each cloud that was added."""
    options = coframe.Options(seed=seed)
    result = coframe.register(clouds[:first], poses[:first], options=options)
    moved = result.poses[0] @ np.linalg.inv(poses[0])  # the starts of the others, in the frame that register chose
    began = time.perf_counter()
    for cloud, pose in zip(clouds[first:], poses[first:], strict=True):
        result = coframe.extend(result, cloud, moved @ pose, options=options)
    return result.poses, (time.perf_counter() - began) / (len(clouds) - first)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.incremental", description=__doc__)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", default=["register", "extend", "JRMPC-B", "JRMPC-I"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--first", type=int, help="clouds that extend begins with; default: half of them")
    parser.add_argument("--noise", type=float, metavar="DB")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "incremental.json")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    print(HEAD)
    for name in options.problems:
        scans, truth = stanford(data() / PROBLEMS[name])
        surfaces = [metrics.Surface.of(scan) for scan in scans]
        first = options.first or len(scans) // 2
        methods = {
            "register": register,
            "extend": lambda c, p, s, first=first: extend(c, p, s, first),
            "JRMPC-B": jrmpc_b,
            "JRMPC-I": jrmpc_i,
        }
        for seed in options.seeds:
            clouds, poses = problem(scans, truth, options.noise, seed)
            for method in options.methods:
                found, seconds = methods[method](clouds, poses, seed)
                figures = judge(surfaces, found, truth)
                rows.append({"problem": name, "seed": seed, "method": method, **figures, "seconds": seconds})
                show(rows[-1])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    report = {"options": {**vars(options), "output": str(options.output)}, "machine": machine(), "rows": rows}
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
