# SPDX-License-Identifier: MIT
"""Simultaneous registration of many clouds by matched points (Williams and Bennamoun 2001).

All poses together minimise the squared distances between matched points of all pairs of clouds that
overlap. As in the paper, MV-ICP keeps the matches of its start (the original), and SimReg finds
them anew in every iteration.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.baselines import icp, overlap
from coframe.baselines.iterate import Clouds
from coframe.baselines.overlap import Pairs
from coframe.types import Array, Poses

# [paper] Iterations of the pairwise ICP that SimReg begins with.
PAIRWISE_ITERATIONS = 100

# a, b, points of a, the points of b they match.
Matches = list[tuple[int, int, Float[Array, "_ D"], Float[Array, "_ D"]]]


def simreg(
    clouds: Clouds,
    poses: Poses,
    *,
    pairs: Pairs | None = None,
    pairwise_iterations: int = PAIRWISE_ITERATIONS,
) -> Iterator[Poses]:
    """All clouds at once, matches updated in every iteration, from the poses at which ICP onto the
    first cloud ends, as in the paper.

    pairwise_iterations: of that ICP.
    """
    edges = overlap.as_pairs(pairs, clouds, poses)
    for found in islice(icp.icp(clouds, poses), pairwise_iterations):
        poses = found
    trees = [cKDTree(cloud) for cloud in clouds]
    while True:
        poses = improved(poses, form(matched(clouds, trees, poses, edges), len(clouds)))
        yield poses


def mv_icp(clouds: Clouds, poses: Poses, *, pairs: Pairs | None = None) -> Iterator[Poses]:
    """All clouds at once with the matches of the start, which stay."""
    edges = overlap.as_pairs(pairs, clouds, poses)
    trees = [cKDTree(cloud) for cloud in clouds]
    quadratic = form(matched(clouds, trees, poses, edges), len(clouds))
    while True:
        poses = improved(poses, quadratic)
        yield poses


def matched(clouds: Clouds, trees: Sequence[cKDTree], poses: Poses, edges: Pairs) -> Matches:
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
    S = np.zeros((count * D, count * D))
    B = np.zeros((count * D, count))
    L = np.zeros((count, count))
    for a, b, p, q in matches:
        s = np.concatenate([p, -q], 1)
        blocks = np.r_[a * D : a * D + D, b * D : b * D + D]
        S[np.ix_(blocks, blocks)] += s.T @ s
        B[blocks, a] += s.sum(0)
        B[blocks, b] -= s.sum(0)
        L[[a, b, a, b], [a, b, b, a]] += np.array([1, 1, -1, -1]) * len(p)
    P = -B @ np.linalg.pinv(L, hermitian=True)
    return S + P @ B.T, P


def improved(poses: Poses, quadratic: tuple[Float[Array, "MD MD"], Float[Array, "MD M"]]) -> Poses:
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
