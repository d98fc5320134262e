# SPDX-License-Identifier: MIT
"""Pairwise ICP on a network of clouds, and poses averaged from its motions.

MAICP (Govindu and Pooja 2014) averages after every ICP iteration, MATrICP (Li et al. 2014) does so
with trimmed ICP; plain pose-graph averaging lets every pair run to its end and averages once.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.baselines import icp, iterate, overlap
from coframe.baselines.icp import Choice
from coframe.baselines.iterate import Clouds
from coframe.baselines.overlap import Pairs
from coframe.types import Array, Poses

# [guard] Sweeps of the averaging at most; a few do when the motions nearly agree.
SWEEPS = 50
# [guard] Share of the radius: poses that move less in a sweep are averaged.
TOLERANCE = 1e-12


def maicp(clouds: Clouds, poses: Poses, *, pairs: Pairs | None = None) -> Iterator[Poses]:
    """Motion-averaged ICP: one ICP iteration for every pair, then the average, again and again.

    Matches with points at which a cloud ends, and far ones, do not count.
    """
    choices: list[Choice] = [partial(_inside, overlap.boundary(cloud)) for cloud in clouds]
    return _alternating(clouds, poses, pairs, choices)


def matricp(clouds: Clouds, poses: Poses, *, pairs: Pairs | None = None) -> Iterator[Poses]:
    """Motion-averaged trimmed ICP: one trimmed ICP iteration for every pair, then the average."""
    return _alternating(clouds, poses, pairs, [icp.trimmed] * len(clouds))


def pose_graph(clouds: Clouds, poses: Poses, *, pairs: Pairs | None = None) -> Iterator[Poses]:
    """Trimmed ICP, run to its end for every pair; the poses average its motions so far."""
    edges = overlap.as_pairs(pairs, clouds, poses)
    starts = np.array([geometry.inverse(poses[b]) @ poses[a] for a, b in edges])
    each = [
        icp.pairwise(clouds[a], clouds[b], T, choose=icp.trimmed)
        for (a, b), T in zip(edges, starts, strict=True)
    ]
    for motions in iterate.in_step(each, starts):
        poses = average_motions(poses, edges, motions, np.ones(len(edges)))
        yield poses


def _inside(
    edge: Bool[Array, " K"], distance: Float[Array, " N"], nearest: Int[Array, " N"]
) -> Bool[Array, " N"]:
    """Close matches with points of the target that are not on its boundary."""
    return icp.close(distance, nearest) & ~edge[nearest]


def _alternating(
    clouds: Clouds, poses: Poses, pairs: Pairs | None, choices: Sequence[Choice]
) -> Iterator[Poses]:
    """One ICP step for each pair from the current poses, then the poses from all motions.

    choices: which matches with each target count.
    """
    edges = overlap.as_pairs(pairs, clouds, poses)
    trees = [cKDTree(cloud) for cloud in clouds]
    while True:
        steps = [
            icp.step(clouds[a], trees[b], geometry.inverse(poses[b]) @ poses[a], choices[b])
            for a, b in edges
        ]
        motions, matches = zip(*steps, strict=True)
        poses = average_motions(poses, edges, np.array(motions), np.array(matches, float))
        yield poses


def average_motions(
    poses: Poses, pairs: Pairs, motions: Float[Array, "E D1 D1"], weights: Float[Array, " E"]
) -> Poses:
    """The poses that minimise sum w |log(pose_b motion pose_a^-1)|^2 over all pairs, from a start,
    in its gauge (Govindu 2004).

    The motion of the pair (a, b) carries cloud a into the frame of cloud b. Each sweep takes the
    discrepancies to the Lie algebra, where they are linear, solves there and moves all poses.
    """
    M = len(poses)
    a, b = np.array(pairs).T
    incidence = np.zeros((len(a), M))
    incidence[np.arange(len(a)), a] = 1
    incidence[np.arange(len(a)), b] = -1
    solve = np.linalg.pinv(np.sqrt(weights)[:, None] * incidence) * np.sqrt(weights)
    for _ in range(SWEEPS):
        discrepancy = geometry.log(poses[b] @ motions @ geometry.inverse(poses[a]))
        new = geometry.exp(solve @ discrepancy) @ poses
        done = iterate.largest_move(poses, new) < TOLERANCE
        poses = new
        if done:
            break
    return poses
