# SPDX-License-Identifier: MIT
"""Pairwise ICP on a network of clouds, and poses averaged from its motions.

MAICP (Govindu and Pooja 2014) averages after every ICP iteration, MATrICP (Li et al. 2014) does so
with trimmed ICP; plain pose-graph averaging lets every pair run to its end and averages once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.baselines import icp, overlap, run
from coframe.baselines.averaging import averaged
from coframe.baselines.icp import ITERATIONS, Choice
from coframe.baselines.overlap import Pairs
from coframe.baselines.run import OnIteration
from coframe.em import loop
from coframe.result.registration import Registration
from coframe.types import Array


def maicp(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"],
    *,
    iterations: int = ITERATIONS,
    pairs: Pairs | None = None,
    on_iteration: OnIteration = loop.carry_on,
) -> Registration:
    """Motion-averaged ICP: one ICP iteration for every pair, then the average, again and again.

    Matches with points at which a cloud ends, and far ones, do not count. pairs: of clouds (a, b);
    default: those that overlap at the start.
    """
    solve = partial(_alternating, pairs=pairs, choices=_inside)
    return run.run(solve, clouds, poses, iterations=iterations, on_iteration=on_iteration)


def matricp(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"],
    *,
    iterations: int = ITERATIONS,
    pairs: Pairs | None = None,
    on_iteration: OnIteration = loop.carry_on,
) -> Registration:
    """Motion-averaged trimmed ICP: as `maicp`, but the best matches of every pair count, and no
    more is known of them.
    """
    solve = partial(_alternating, pairs=pairs, choices=_trimmed)
    return run.run(solve, clouds, poses, iterations=iterations, on_iteration=on_iteration)


def pose_graph(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"],
    *,
    iterations: int = ITERATIONS,
    pairs: Pairs | None = None,
    on_iteration: OnIteration = loop.carry_on,
) -> Registration:
    """Pairwise trimmed ICP, run to its end for every pair; the poses average its motions. pairs: as
    in `maicp`.
    """
    return run.run(
        partial(_one_by_one, pairs=pairs),
        clouds,
        poses,
        iterations=iterations,
        on_iteration=on_iteration,
    )


def _inside(clouds: Sequence[Float[Array, "_ D"]]) -> list[Choice]:
    """For each target, that matches with its boundary do not count, nor those that are far beside
    the others.
    """

    def inside(
        edge: Bool[Array, " K"], distance: Float[Array, " N"], nearest: Int[Array, " N"]
    ) -> Bool[Array, " N"]:
        return icp.close(distance, nearest) & ~edge[nearest]

    return [partial(inside, overlap.boundary(cloud)) for cloud in clouds]


def _trimmed(clouds: Sequence[Float[Array, "_ D"]]) -> list[Choice]:
    return [icp.trimmed] * len(clouds)


def _alternating(
    clouds: Sequence[Float[Array, "_ D"]],
    poses: Float[Array, "M D1 D1"],
    *,
    pairs: Pairs | None,
    choices: Callable[[Sequence[Float[Array, "_ D"]]], list[Choice]],
) -> Iterator[Float[Array, "M D1 D1"]]:
    """One ICP step for each pair from where the poses put it, then the poses from all motions."""
    edges = overlap.as_pairs(pairs, clouds, poses)
    trees, choose = [cKDTree(cloud) for cloud in clouds], choices(clouds)
    while True:
        steps = [
            icp.step(clouds[a], trees[b], geometry.inverse(poses[b]) @ poses[a], choose[b])
            for a, b in edges
        ]
        motions, matches = zip(*steps, strict=True)
        poses = averaged(poses, edges, np.array(motions), np.array(matches, float))
        yield poses


def _one_by_one(
    clouds: Sequence[Float[Array, "_ D"]], poses: Float[Array, "M D1 D1"], *, pairs: Pairs | None
) -> Iterator[Float[Array, "M D1 D1"]]:
    """Every pair by itself; the poses that follow from the motions so far."""
    edges = overlap.as_pairs(pairs, clouds, poses)
    starts = np.array([geometry.inverse(poses[b]) @ poses[a] for a, b in edges])
    each = [
        icp.pairwise(clouds[a], clouds[b], T, choose=icp.trimmed)
        for (a, b), T in zip(edges, starts, strict=True)
    ]
    for motions in run.in_step(each, starts):
        poses = averaged(poses, edges, motions, np.ones(len(edges)))
        yield poses
