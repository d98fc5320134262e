# SPDX-License-Identifier: MIT
"""Our matcher and kiss-matcher on the same correspondences: right pairs and time.

`pip install kiss-matcher`, then `python -m benchmarks.matcher`; without it, ours alone. The pairs:
26 of synthetic range images, and all pairs of the raw scans of the Stanford bunny, dragon and happy
buddha, which are turned and moved at random. Both are given the same correspondences and asked for
as many motions, which are verified in the same way; a pair is right when its best motion is
supported and within `first_gate` of the true one, and wrong when it is supported and farther off.
Times are those of the search, correspondences included, without verification, in turns in one
process, on one thread each: with several, kiss-matcher is slower for so few correspondences.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.from_nothing import scattered
from coframe import geometry
from coframe.compute.per_cloud import Local
from coframe.data import datasets
from coframe.input.normalise import Summary
from coframe.input.source import InMemory, Source
from coframe.start import graph, match, verify
from coframe.start.features import ThinScan
from coframe.start.recipe import START
from coframe.start.search import ThinScans

RANGE_PAIRS = "range_pairs"
PROBLEMS = (RANGE_PAIRS, "bunny", "dragon", "happy buddha")
Find = Callable[[ThinScan, ThinScan], list[np.ndarray]]


def kiss_matcher(a: ThinScan, b: ThinScan) -> list[np.ndarray]:
    """kiss-matcher on our correspondences, once more on those that a motion leaves."""
    library = import_module("kiss_matcher")
    rows = match.correspondences(a, b)
    source, target = a.points[rows[0]].astype(np.float32), b.points[rows[1]].astype(np.float32)
    found = []
    for _ in range(START.motions_per_pair):
        if len(source) < match.clique_kernels.MIN_CORRESPONDENCES:
            break
        matcher = library.KISSMatcher(library.KISSMatcherConfig(1.0))  # its voxel: one spacing
        solution = matcher.prune_and_solve(source, target)
        R = geometry.nearest_rotation(np.asarray(solution.rotation, float))
        t = np.ravel(solution.translation).astype(float)
        found.append(geometry.pose(R, t))
        left = np.linalg.norm(source @ R.T + t - target, axis=1) > START.first_gate
        source, target = np.ascontiguousarray(source[left]), np.ascontiguousarray(target[left])
    return found


def scenes(name: str) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
    """Clouds and their poses."""
    if name != RANGE_PAIRS:
        found = datasets.load(name)
        yield scattered(found.clouds(), np.array(found.poses), seed=0)
        return
    for path in sorted((datasets.root() / name).glob("*.npz")):
        with np.load(path) as file:
            clouds = [file["a"].astype(float), file["b"].astype(float)]
            yield clouds, np.array([np.eye(4), file["T_a_b"]])


def compare(name: str, matchers: dict[str, Find]) -> None:
    """Match all pairs of a problem by every matcher, and print a line for each."""
    right, wrong, seconds = (dict.fromkeys(matchers, 0.0) for _ in range(3))
    pairs = 0
    for clouds, truth in scenes(name):
        sources: Local[Source] = Local(list(map(InMemory, clouds)))
        thin = ThinScans.of(sources, sources.map(Summary.of), START.points_3d)
        scans = thin.scans.map(lambda scan: scan)
        poses = thin.enter_poses(truth)
        for find in matchers.values() if pairs == 0 else ():
            find(scans[0], scans[1])  # Whatever is compiled or loaded is not timed.
        for i, j in combinations(range(len(scans)), 2):
            true = geometry.inverse(poses[j]) @ poses[i]
            pairs += 1
            for matcher, find in matchers.items():
                began = time.perf_counter()
                motions = find(scans[i], scans[j])
                seconds[matcher] += time.perf_counter() - began
                edge = match.edge_between(scans[i], scans[j], (i, j), motions)
                if graph.supported([edge]):
                    near = verify.motion_distance(edge.best.motion, true) < START.first_gate
                    right[matcher] += near
                    wrong[matcher] += not near
    if pairs == 0:
        sys.exit(f"{name}: found no pairs in {datasets.root() / name}; see docs/data.md")
    for matcher in matchers:
        print(
            f"{name:12} {matcher:14} {pairs:4} pairs, right {right[matcher]:3.0f},"
            f" wrong {wrong[matcher]:2.0f}, {1e3 * seconds[matcher] / pairs:6.2f} ms a pair",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, and compare."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.matcher",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    matchers: dict[str, Find] = {"coframe": match.find_motions}
    if find_spec("kiss_matcher") is not None:
        import_module("kiss_matcher")
        matchers["kiss-matcher"] = kiss_matcher
    with threadpool_limits(1):  # OpenMP's of kiss-matcher, too.
        for name in parser.parse_args(arguments).problems:
            compare(name, matchers)


if __name__ == "__main__":
    main()
