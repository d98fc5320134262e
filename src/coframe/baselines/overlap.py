# SPDX-License-Identifier: MIT
"""Which clouds overlap, and at which points a cloud ends."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.errors import InputError
from coframe.types import Array, Points, Poses

# [0.1, unknown] Times the distance at which half of a cloud finds its nearest other cloud: what is
# closer may be the same surface.
REACH = 2.0
# [0.1, unknown] Share of the points of either cloud within reach of the other, at least, of clouds
# that overlap.
LEAST_OVERLAP = 0.5
# [0.1, unknown] Neighbours of a point that show whether the cloud ends there.
NEIGHBOURS = 16
# [0.1, chosen between 0.2 inside and 0.6 on a straight edge] Mean offset of the neighbours over
# their mean distance, above which a point is on the boundary.
LOPSIDED = 0.45

Pairs = Sequence[tuple[int, int]]


def overlapping(clouds: Sequence[Float[Array, "_ D"]], poses: Poses) -> list[tuple[int, int]]:
    """The pairs (a, b), a < b, of clouds that overlap under these poses, and as many more as it
    takes to connect them all.
    """
    M = len(clouds)
    trees = [cKDTree(cloud) for cloud in clouds]
    distances = [
        [_distances(clouds[a], trees[b], poses[a], poses[b]) for b in range(M)] for a in range(M)
    ]
    half = [min(float(np.median(distances[a][b])) for b in range(M) if b != a) for a in range(M)]
    reach = REACH * float(np.median(half))
    share = np.array([[(distances[a][b] <= reach).mean() for b in range(M)] for a in range(M)])
    share = np.minimum(share, share.T)
    # An entry of 0 would mean: no edge.
    tree = minimum_spanning_tree(np.where(np.eye(M) > 0, 0.0, 1.5 - share)).toarray() > 0
    return [
        (a, b)
        for a in range(M)
        for b in range(a + 1, M)
        if share[a, b] >= LEAST_OVERLAP or tree[a, b] or tree[b, a]
    ]


def _distances(cloud: Array, tree: cKDTree, pose: Array, other: Array) -> Float[Array, " N"]:
    return np.asarray(tree.query(geometry.transform(geometry.inverse(other) @ pose, cloud))[0])


def as_pairs(
    value: Any, clouds: Sequence[Float[Array, "_ D"]], poses: Poses
) -> list[tuple[int, int]]:
    """Pairs as given, checked; those that overlap where none are given."""
    if value is None:
        return overlapping(clouds, poses)
    M = len(clouds)
    pairs = [tuple(pair) for pair in value]
    for pair in pairs:
        indices = len(pair) == 2 and all(isinstance(j, Integral) and 0 <= int(j) < M for j in pair)
        if not indices or pair[0] == pair[1]:
            raise InputError(
                f"pairs: expected two different clouds of 0 to {M - 1}, found {pair!r};"
                " leave pairs out to have them found"
            )
    linked = np.eye(M)
    for a, b in pairs:
        linked[a, b] = 1
    if connected_components(linked, directed=False)[0] > 1:
        raise InputError(
            f"pairs: expected pairs that connect all {M} clouds, found some clouds without a"
            " connection to the others; add pairs, or leave them out"
        )
    return [(int(a), int(b)) for a, b in pairs]


def boundary(points: Points) -> Bool[Array, " N"]:
    """Points at which the cloud ends: their neighbours lie on one side.

    Where two clouds overlap in part, points beyond the overlap find their nearest neighbours there.
    """
    count = min(NEIGHBOURS + 1, len(points))
    distance, nearest = cKDTree(points).query(points, count)
    offset = np.linalg.norm(points[nearest[:, 1:]].mean(1) - points, axis=1)
    return np.asarray(offset > LOPSIDED * distance[:, 1:].mean(1))
