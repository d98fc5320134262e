# SPDX-License-Identifier: MIT
"""The methods under test, all functions of clouds, start poses and a generator to a `Trial`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

import coframe
from coframe import baselines, geometry
from coframe.io.trajectory import Trajectory
from coframe.paper import initial
from experiments.trials import Trial, trial

Method = Callable[[Sequence[np.ndarray], np.ndarray, np.random.Generator], Trial]

ITERATIONS = 100  # of every method in the paper's first experiments
SHARE = 0.6  # K over the mean cardinality, in the same
# times N / K: the points within reach of a component when the clouds are roughly aligned
HELD = 3.0
FIXED = 50  # iterations with fixed variances, half of all
THREADS = 1  # of each call: trials run side by side
FEWEST = 300  # points of a frame that the published scheme keeps; those of toys have few


def centred(clouds: Sequence[np.ndarray]) -> np.ndarray:
    """The paper's start: identity rotations, centroids brought to one point."""
    return initial.poses_by_centroid(clouds, np.zeros(clouds[0].shape[1]))


def sphere(
    clouds: Sequence[np.ndarray], start: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Start means on a sphere around the clouds, and the start variance: the squared median
    distance of points from them.
    """
    means = initial.means_on_sphere(clouds, initial.component_count(clouds, SHARE), rng)
    return means, initial.variance_of_distances(clouds, start, means, rng)


def batch_from_nothing(
    clouds: Sequence[np.ndarray],
    start: np.ndarray,
    rng: np.random.Generator,
    iterations: int = ITERATIONS,
) -> Trial:
    """JRMPC-B as in the paper's first experiments: means on a sphere, K = 60 % of the points of a
    cloud, constant priors.
    """
    means, variance = sphere(clouds, start, rng)
    return trial(
        lambda: coframe.paper.batch(
            clouds,
            means,
            variances=variance,
            poses=start,
            iterations=iterations,
            threads=THREADS,
        )
    )


def few_points(
    clouds: Sequence[np.ndarray], start: np.ndarray, means: np.ndarray, reach: float = HELD
) -> float:
    """A start variance with which a component holds a few points: it reaches `reach` times its
    share of them.
    """
    points = np.concatenate(
        [geometry.transform(T, cloud) for T, cloud in zip(start, clouds, strict=True)]
    )
    neighbours = max(2, round(reach * len(points) / len(means)))
    return float(np.median(cKDTree(points).query(means, neighbours)[0][:, -1]) ** 2 / 3)


def batch_from_rough(
    clouds: Sequence[np.ndarray],
    start: np.ndarray,
    rng: np.random.Generator,
    *,
    components: int,
    iterations: int = ITERATIONS,
    fixed: int = FIXED,
    epsilon: float = 1e-6,
) -> Trial:
    """JRMPC-B from roughly aligned clouds: means on some of their points, variances that hold a
    few, fixed for a while.
    """
    means = initial.means_on_points(clouds, start, components, rng)
    variance = few_points(clouds, start, means)
    given: dict[str, Any] = {
        "variances": variance,
        "poses": start,
        "iterations": iterations,
        "fixed_variances": fixed,
        "epsilon": epsilon,
        "threads": THREADS,
    }
    return trial(lambda: coframe.paper.batch(clouds, means, **given))


def incremental_from_rough(
    clouds: Sequence[np.ndarray],
    start: np.ndarray,
    rng: np.random.Generator,
    *,
    components: int,
    epsilon: float = 1e-6,
) -> Trial:
    """JRMPC-I from the same: two clouds for 50 iterations, then one at a time with 30 refinements;
    half of each as JRMPC-B with the start's variances."""
    means = initial.means_on_points(clouds, start, components, rng)
    known = {
        "variances": few_points(clouds, start, means),
        "poses": start,
        "epsilon": epsilon,
        "fixed_share": FIXED / ITERATIONS,
        "threads": THREADS,
    }
    return trial(lambda: coframe.paper.incremental(clouds, means, rng, **known))


def register(clouds: Sequence[np.ndarray], start: np.ndarray, rng: np.random.Generator) -> Trial:
    """`coframe.register` from the start that all others get, no option set but the threads."""
    options = coframe.Options(threads=THREADS)
    return trial(lambda: coframe.register(clouds, poses=start, options=options))


def baseline(name: str, iterations: int = ITERATIONS) -> Method:
    """A method of `coframe.baselines`.

    The time stops at its last iteration: the judgement of its poses is ours.
    """

    def run(clouds: Sequence[np.ndarray], start: np.ndarray, rng: np.random.Generator) -> Trial:
        began, ended = time.process_time(), []
        watch = lambda step: ended.append(time.process_time())  # noqa: E731
        result = baselines.run(
            name, clouds, start, iterations=iterations, on_iteration=watch, threads=THREADS
        )
        return Trial.of(result, (ended or [time.process_time()])[-1] - began)

    return run


PAIRWISE: dict[str, Method] = {
    "ICP": baseline("icp"),
    "seqICP": baseline("icp sequential"),
    "GMMReg": baseline("gmmreg"),
    "CPD / ECMPR": baseline("cpd"),
    "SimReg": baseline("simreg"),
    "JRMPC-B": batch_from_nothing,
    "register": register,
}


def on_views(name: str) -> Method:
    """A method of the paper's first experiments; "JRMPC-B, 5 iterations" ends after these."""
    words = name.split(", ")
    if len(words) == 1:
        return PAIRWISE[name]
    return partial(batch_from_nothing, iterations=int(words[1].split()[0]))


def joint(components: int) -> dict[str, Method]:
    """The methods of the paper's multi-view tables.

    All start from poses that pairwise ICP has brought near.
    """
    return {
        "MV-ICP": baseline("mv-icp"),
        "MAICP": baseline("maicp"),
        "MATrICP": baseline("matricp"),
        "pose graph": baseline("pose graph"),
        "JRMPC-B": partial(batch_from_rough, components=components),
        "JRMPC-I": partial(incremental_from_rough, components=components),
        "register": register,
    }


Opened = Callable[[int], Any]  # every so many rows and columns of the images -> frames
Tracker = Callable[[Opened, int], tuple[Trajectory, float]]


def tracked(opened: Opened, seed: int) -> tuple[Trajectory, float]:
    """`coframe.track`, no option but seed and threads; lost frames left out."""
    source, began = opened(4), time.process_time()
    options = coframe.TrackOptions(seed=seed, threads=THREADS)
    path = coframe.track(source, options=options).found()
    return path, time.process_time() - began


def published(opened: Opened, seed: int, share: int = 1) -> tuple[Trajectory, float]:
    """The paper's scheme, with all of its points and components or a share of them."""
    whole, source = coframe.PublishedOptions(seed=seed, threads=THREADS), opened(1)
    fewer = {
        name: getattr(whole, name) // share for name in ("front_components", "back_components")
    }
    every = min(share * whole.downsampling, max(1, len(source[0].points) // FEWEST))
    began = time.process_time()
    path = coframe.track_published(source, options=replace(whole, downsampling=every, **fewer))
    return path, time.process_time() - began


TRACK, PUBLISHED = "coframe.track", "coframe.track_published"
TRACKERS: dict[str, Tracker] = {TRACK: tracked, PUBLISHED: published}
