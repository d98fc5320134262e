# SPDX-License-Identifier: MIT
"""Iterative closest points (Besl and McKay 1992), and its trimmed form (Chetverikov, Stepanov and
Krsek 2005).
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.baselines.iterate import Clouds, one_after_another, one_versus_all
from coframe.errors import InputError
from coframe.types import Array, Points, Pose, Poses

# [paper: Chetverikov et al.] Share of matches that trimming may find by itself, at least.
LEAST_OVERLAP = 0.4
# [paper: Chetverikov et al., lambda = 2] 1 + lambda: how dear a smaller overlap is.
EXPONENT = 3
# [0.1, unknown] Times the lower quartile of the distances: farther matches do not count. Where two
# surfaces are the same, nine of ten matches are closer.
CLOSE = 4.0

# Distances to the matched points and their indices -> which matches count.
Choice = Callable[[Float[Array, " N"], Int[Array, " N"]], Bool[Array, " N"]]


def icp(clouds: Clouds, poses: Poses) -> Iterator[Poses]:
    """Every cloud onto the first: each point is matched with the nearest one, wherever that is."""
    return one_versus_all(pairwise, clouds, poses)


def sequential_icp(clouds: Clouds, poses: Poses) -> Iterator[Poses]:
    """Every cloud onto the one before it; errors add up along the chain."""
    return one_after_another(pairwise, clouds, poses)


def trimmed_icp(clouds: Clouds, poses: Poses, *, overlap: float | None = None) -> Iterator[Poses]:
    """Every cloud onto the first with the best matches only.

    overlap: the share of matches that count, in (0, 1]; default: found anew in every iteration (see
    `best_overlap`).
    """
    if overlap is not None and not 0 < overlap <= 1:
        raise InputError(
            f"overlap: expected a share above 0 and at most 1, found {overlap!r}; leave it out to"
            " have it found"
        )
    choose = partial(trimmed, overlap=overlap)
    return one_versus_all(partial(pairwise, choose=choose), clouds, poses)


def everything(distance: Float[Array, " N"], nearest: Int[Array, " N"]) -> Bool[Array, " N"]:
    """All matches count."""
    return np.ones(len(distance), bool)


def close(distance: Float[Array, " N"], nearest: Int[Array, " N"]) -> Bool[Array, " N"]:
    """Matches that are not much farther than the nearest quarter."""
    return np.asarray(distance <= CLOSE * np.quantile(distance, 0.25))


def trimmed(
    distance: Float[Array, " N"], nearest: Int[Array, " N"], overlap: float | None = None
) -> Bool[Array, " N"]:
    """The nearest matches, as many as the share says."""
    share = best_overlap(distance) if overlap is None else overlap
    count = round(share * len(distance))
    keep = np.zeros(len(distance), bool)
    keep[np.argsort(distance, kind="stable")[:count]] = True
    return keep


def best_overlap(distance: Float[Array, " N"]) -> float:
    """The share xi that minimises e(xi) / xi^(1 + lambda), e being the mean of the xi N smallest
    squared distances.
    """
    squares = np.sort(distance) ** 2
    count = np.arange(1, len(squares) + 1)
    share = count / len(squares)
    objective = np.cumsum(squares) / count / share**EXPONENT
    objective[share < LEAST_OVERLAP] = np.inf
    return float(share[np.argmin(objective)])


def pairwise(
    source: Points, target: Float[Array, "K D"], motion: Pose, *, choose: Choice = everything
) -> Iterator[Pose]:
    """Match each point with the nearest one, move by least squares, again and again."""
    tree = cKDTree(target)
    while True:
        motion = step(source, tree, motion, choose)[0]
        yield motion


def step(source: Points, tree: cKDTree, motion: Pose, choose: Choice) -> tuple[Pose, int]:
    """One iteration: the new motion, and how many matches it rests on."""
    distance, nearest = tree.query(geometry.transform(motion, source))
    keep = choose(distance, nearest)
    if keep.sum() <= source.shape[1]:  # no motion follows from so few
        return motion, 0
    return geometry.procrustes(
        source[keep], tree.data[nearest[keep]], np.ones(int(keep.sum()))
    ), int(keep.sum())
