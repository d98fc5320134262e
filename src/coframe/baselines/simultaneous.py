# SPDX-License-Identifier: MIT
"""Simultaneous registration of many clouds by matched points (Williams and Bennamoun 2001).

All poses together minimise the squared distances between matched points of all pairs of clouds that
overlap. As in the paper, MV-ICP keeps the matches of its start (the original), and SimReg finds
them anew in every iteration.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.baselines import icp, overlap, run
from coframe.baselines.icp import ITERATIONS
from coframe.baselines.overlap import Pairs
from coframe.baselines.run import OnIteration
from coframe.em import loop
from coframe.result.registration import Registration
from coframe.types import Array

Clouds = Sequence[Float[Array, "_ D"]]
# a, b, points of a, the points of b they match
Matches = list[tuple[int, int, Float[Array, "_ D"], Float[Array, "_ D"]]]


def simreg(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"],
    *,
    iterations: int = ITERATIONS,
    pairs: Pairs | None = None,
    pairwise_iterations: int = ITERATIONS,
    on_iteration: OnIteration = loop.carry_on,
) -> Registration:
    """All clouds at once, matches updated in every iteration, from where ICP onto the first cloud
    ends, as in the paper.

    pairs: of clouds (a, b) that are matched; default: those that overlap at the start.
    pairwise_iterations: of that ICP.
    """
    solve = partial(_updated, pairs=pairs, before=pairwise_iterations)
    return run.run(solve, clouds, poses, iterations=iterations, on_iteration=on_iteration)


def mv_icp(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"],
    *,
    iterations: int = ITERATIONS,
    pairs: Pairs | None = None,
    on_iteration: OnIteration = loop.carry_on,
) -> Registration:
    """All clouds at once with the matches of the start, which stay. pairs: as in `simreg`."""
    return run.run(
        partial(_fixed, pairs=pairs),
        clouds,
        poses,
        iterations=iterations,
        on_iteration=on_iteration,
    )


def _updated(
    clouds: Clouds, poses: Float[Array, "M D1 D1"], *, pairs: Pairs | None, before: int
) -> Iterator[Float[Array, "M D1 D1"]]:
    edges = overlap.as_pairs(pairs, clouds, poses)
    for _, found in zip(
        range(before), run.one_versus_all(icp.pairwise, clouds, poses), strict=False
    ):
        poses = found
    trees = [cKDTree(cloud) for cloud in clouds]
    while True:
        poses = improved(poses, form(matched(clouds, trees, poses, edges), len(clouds)))
        yield poses


def _fixed(
    clouds: Clouds, poses: Float[Array, "M D1 D1"], *, pairs: Pairs | None
) -> Iterator[Float[Array, "M D1 D1"]]:
    edges, trees = overlap.as_pairs(pairs, clouds, poses), [cKDTree(cloud) for cloud in clouds]
    quadratic = form(matched(clouds, trees, poses, edges), len(clouds))
    while True:
        poses = improved(poses, quadratic)
        yield poses


def matched(
    clouds: Clouds, trees: Sequence[cKDTree], poses: Float[Array, "M D1 D1"], edges: Pairs
) -> Matches:
    """For each pair, the points of the first cloud and their nearest ones in the second, where
    these are close.
    """
    found = []
    for a, b in edges:
        distance, nearest = trees[b].query(
            geometry.transform(geometry.inverse(poses[b]) @ poses[a], clouds[a])
        )
        keep = icp.close(distance, nearest)
        found.append((a, b, clouds[a][keep], clouds[b][nearest[keep]]))
    return found


def form(matches: Matches, count: int) -> tuple[Float[Array, "MD MD"], Float[Array, "MD M"]]:
    """The sum of squared distances as a function of the rotations alone, trace(R Q R^T) with R =
    [R_1 ... R_M], and the translations that go with them, T = R P: for every match, R_a p + t_a -
    R_b q - t_b is linear in both.
    """
    D = matches[0][2].shape[1]
    S, B, L = (
        np.zeros((count * D, count * D)),
        np.zeros((count * D, count)),
        np.zeros((count, count)),
    )
    for a, b, p, q in matches:
        s, blocks = np.concatenate([p, -q], 1), np.r_[a * D : a * D + D, b * D : b * D + D]
        S[np.ix_(blocks, blocks)] += s.T @ s
        B[blocks, a] += s.sum(0)
        B[blocks, b] -= s.sum(0)
        L[[a, b, a, b], [a, b, b, a]] += np.array([1, 1, -1, -1]) * len(p)
    P = -B @ np.linalg.pinv(L, hermitian=True)
    return S + P @ B.T, P


def improved(
    poses: Float[Array, "M D1 D1"], quadratic: tuple[Float[Array, "MD MD"], Float[Array, "MD M"]]
) -> Float[Array, "M D1 D1"]:
    """Each rotation in turn set to the best one beside the others, then all translations.

    The common frame stays.
    """
    Q, P = quadratic
    M, D = len(poses), poses.shape[1] - 1
    R = geometry.rotation(poses).copy()
    for j in range(M):
        block = slice(j * D, j * D + D)
        others = np.hstack(list(R)) @ Q[:, block] - R[j] @ Q[block, block]
        R[j] = geometry.nearest_rotation(-others)
    new = geometry.pose(R, (np.hstack(list(R)) @ P).T)
    return poses[0] @ geometry.inverse(new[0]) @ new
