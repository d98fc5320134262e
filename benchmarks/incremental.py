# SPDX-License-Identifier: MIT
"""One cloud at a time against all at once: JRMPC-I as published, `coframe.extend` and `coframe.register` on the same scans.

    python -m benchmarks.incremental [--noise 25]

Problems and judge are those of `benchmarks.multiview`. JRMPC-I runs with the settings of the paper's experiment: K = 4000
components on points of roughly aligned scans, 50 iterations for the first two, then for each scan K/M components started anew,
one integration and 30 batch iterations. `extend` starts from a registration of all scans but every third, which it adds;
"extend + refine" then moves them all together once. Seconds of `extend` are those of one added cloud in the mean, those of
"extend + refine" contain its share of the refinement; the others' are the whole run.

`rows(problem, noise_db, seed)` gives the same figures to other programs.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from benchmarks.multiview import HEAD, PROBLEMS, ROOT, data, judge, machine, problem, show, stanford
from coframe import metrics, start

COMPONENTS = 4000  # the paper's K
METHODS = ("register", "extend", "JRMPC-B", "JRMPC-I")
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


def extend(clouds: Sequence[np.ndarray], poses: np.ndarray, seed: int) -> dict[str, tuple[np.ndarray, float]]:
    """Poses, and seconds for each cloud that was added: by `extend` alone, and with a refinement in the end."""
    options = coframe.Options(seed=seed)
    added = list(range(1, len(clouds), 3))
    order = [j for j in range(len(clouds)) if j not in added] + added
    first = len(clouds) - len(added)
    result = coframe.register([clouds[j] for j in order[:first]], poses[order[:first]], options=options)
    moved = result.poses[0] @ np.linalg.inv(poses[0])  # the starts of the others, in the frame that register chose
    began = time.perf_counter()
    for j in added:
        result = coframe.extend(result, clouds[j], moved @ poses[j], options=options)
    alone = time.perf_counter() - began
    refined = coframe.refine(result, options=options)
    whole = time.perf_counter() - began
    back = np.argsort(order)
    return {
        "extend": (result.poses[back], alone / len(added)),
        "extend + refine": (refined.poses[back], whole / len(added)),
    }


def rows(name: str, noise_db: float | None, seed: int = 0, methods: Sequence[str] = METHODS) -> Iterator[dict[str, Any]]:
    """The figures of each method on one problem, one after the other."""
    scans, truth = stanford(data() / PROBLEMS[name])
    surfaces = [metrics.Surface.of(scan) for scan in scans]
    clouds, poses = problem(scans, truth, noise_db, seed)
    single = {"register": register, "JRMPC-B": jrmpc_b, "JRMPC-I": jrmpc_i}
    for method in methods:
        found = extend(clouds, poses, seed) if method == "extend" else {method: single[method](clouds, poses, seed)}
        for label, (result, seconds) in found.items():
            figures = judge(surfaces, result, truth)
            yield {"problem": name, "seed": seed, "method": label, **figures, "seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.incremental", description=__doc__)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--noise", type=float, metavar="DB")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "incremental.json")
    options = parser.parse_args(arguments)
    found: list[dict[str, Any]] = []
    print(HEAD)
    for name in options.problems:
        for seed in options.seeds:
            for row in rows(name, options.noise, seed, options.methods):
                found.append(row)
                show(row)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    report = {"options": {**vars(options), "output": str(options.output)}, "machine": machine(), "rows": found}
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
