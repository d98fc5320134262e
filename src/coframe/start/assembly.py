# SPDX-License-Identifier: MIT
"""Scans of a built place, joined one after another where all that are placed agree.

Two scans of rooms fit each other in many ways: a corner and a floor fit every corner. But where a
scan is laid wrongly, others see that its walls stand where they looked through. So each scan is
tried at every motion that any pair suggests, and weighed against all scans that are placed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from coframe import geometry
from coframe.compute.per_cloud import PerCloud
from coframe.start import directions
from coframe.start.features import ThinScan
from coframe.start.graph import needed_evidence
from coframe.start.match import Edge
from coframe.start.recipe import START, StartRecipe
from coframe.start.verify import Evidence, Motion, motion_distance
from coframe.types import Array

# [limit] Strongest edges from which the scans are joined in turn.
SEEDS = 3


@dataclass(frozen=True)
class Joined:
    """Scans in one frame, and the evidence of every pair of them there."""

    poses: dict[int, Motion]
    # Signed: below 0 where two scans contradict each other.
    weights: Float[Array, "M M"]
    # For each scan its best other pose, and the evidence of that over the evidence of its own.
    rivals: dict[int, tuple[float, Motion]]

    @property
    def evidence(self) -> float:
        """The evidence [nats] of all pairs."""
        return float(self.weights.sum()) / 2


def consistent(
    scans: PerCloud[ThinScan], edges: Sequence[Edge], recipe: StartRecipe = START
) -> list[Edge]:
    """The edges of built scans, at the motions at which all scans fit best together."""
    if not all(scans.map(has_patches)):
        return list(edges)
    strong = sorted(edges, key=lambda edge: -edge.best.weight)
    best: Joined | None = None
    seeds: list[Edge] = []
    for edge in strong:
        if len(seeds) == SEEDS or edge.best.weight <= 0:
            break
        if best is not None and _explained(best, edge, recipe):
            continue
        seeds.append(edge)
        found = join(scans, edges, edge, recipe)
        if best is None or found.evidence > best.evidence:
            best = found
    return list(edges) if best is None else [_settled(best, edge, recipe) for edge in edges]


def has_patches(scan: ThinScan) -> bool:
    """Whether a scan is one of a built place."""
    return scan.patches is not None


def is_built(scan: ThinScan, recipe: StartRecipe) -> bool:
    """Whether most of a scan's surface faces a few directions."""
    return scan.patches is not None and scan.patches.built(recipe)


def join(
    scans: PerCloud[ThinScan], edges: Sequence[Edge], seed: Edge, recipe: StartRecipe
) -> Joined:
    """Join scans, beginning with an edge: always the one that fits those that are placed best."""
    M = len(scans)
    weights = np.zeros((M, M))
    poses = {seed.second: np.eye(4), seed.first: seed.best.motion}
    weights[seed.first, seed.second] = weights[seed.second, seed.first] = seed.best.weight
    # Poses that are tried: of which scan, where, and their evidence with each scan that is placed.
    tried: list[tuple[int, Motion, dict[int, float]]] = []
    waiting = [seed.first, seed.second]
    while True:
        for j in waiting:
            tried += [(k, pose, {}) for k, pose in _suggested(edges, j, poses)]
        _weigh(scans, tried, poses, recipe)
        free = [each for each in tried if each[0] not in poses]
        if not free:
            break
        k, pose, found = max(free, key=lambda each: sum(each[2].values()))
        if sum(found.values()) <= 0:
            break
        poses[k] = pose
        for j, weight in found.items():
            weights[j, k] = weights[k, j] = weight
        waiting = [k]
    rivals = {}
    for j, pose in poses.items():
        # A step aside is no other pose.
        others = [
            (sum(weight for i, weight in found.items() if i != j), other)
            for k, other, found in tried
            if k == j and motion_distance(other, pose, recipe) > 2 * recipe.first_gate
        ]
        most, other = max(others, key=lambda each: each[0], default=(0.0, pose))
        rivals[j] = most / max(float(weights[j].sum()), 1.0), other
    return Joined(poses, weights, rivals)


def _suggested(edges: Sequence[Edge], j: int, poses: dict[int, Motion]) -> list[tuple[int, Motion]]:
    """Other scans, and where the motions of their edges with a scan that is placed put them."""
    found = []
    for edge in edges:
        if j not in (edge.first, edge.second):
            continue
        for evidence in (edge.best, *edge.others):
            if evidence.weight <= 0:
                continue
            if j == edge.second:
                found.append((edge.first, poses[j] @ evidence.motion))
            else:
                found.append((edge.second, poses[j] @ geometry.inverse(evidence.motion)))
    return found


def _weigh(
    scans: PerCloud[ThinScan],
    tried: Sequence[tuple[int, Motion, dict[int, float]]],
    poses: dict[int, Motion],
    recipe: StartRecipe,
) -> None:
    """Complete the evidence of the poses that are tried with the scans that are placed."""
    missing = [
        (k, j, n)
        for n, (k, _, found) in enumerate(tried)
        for j in poses
        if j != k and j not in found
    ]
    pairs = [(k, j) for k, j, _ in missing]
    motions = [geometry.inverse(poses[j]) @ tried[n][1] for _, j, n in missing]
    for (_, j, n), weight in zip(
        missing, scans.map_pairs(_pair, pairs, motions, [recipe] * len(pairs)), strict=True
    ):
        tried[n][2][j] = weight


def _pair(a: ThinScan, b: ThinScan, motion: Motion, recipe: StartRecipe) -> float:
    assert a.patches is not None
    assert b.patches is not None
    return directions.weigh(a.patches, b.patches, motion, recipe)[0]


def _explained(joined: Joined, edge: Edge, recipe: StartRecipe) -> bool:
    """Whether an edge is consistent with scans that are joined."""
    motion = _motion(joined, edge)
    return (
        motion is not None and motion_distance(motion, edge.best.motion, recipe) < recipe.first_gate
    )


def _motion(joined: Joined, edge: Edge) -> Motion | None:
    if not {edge.first, edge.second} <= set(joined.poses):
        return None
    return geometry.inverse(joined.poses[edge.second]) @ joined.poses[edge.first]


def _settled(joined: Joined, edge: Edge, recipe: StartRecipe) -> Edge:
    """An edge at the motion that all scans agree on, as ambiguous as the pose of its scans is.

    An edge that alone holds two parts together is as ambiguous as it is by itself.
    """
    motion = _motion(joined, edge)
    if motion is None:
        return edge
    a, b = edge.first, edge.second
    weight = max(float(joined.weights[a, b]), 0.0)
    found = replace(edge, best=Evidence(motion, weight, edge.best.overlap, 1.0), others=())
    others = []
    for j, side in ((a, 0), (b, 1)):
        share, pose = joined.rivals[j]
        if share > 0:
            moved = [joined.poses[a], joined.poses[b]]
            moved[side] = pose
            there = geometry.inverse(moved[1]) @ moved[0]
            others.append(replace(found.best, motion=there, weight=min(share, 1.0) * weight))
    if _alone(joined, found, recipe):
        others += [
            each
            for each in (edge.best, *edge.others)
            if motion_distance(each.motion, motion, recipe) > recipe.first_gate
        ]
    others.sort(key=lambda each: -each.weight)
    return replace(found, others=tuple(others))


def _alone(joined: Joined, edge: Edge, recipe: StartRecipe) -> bool:
    """Whether nothing else that is supported connects the scans of an edge."""
    links = joined.weights >= needed_evidence(edge, recipe)
    links[edge.first, edge.second] = links[edge.second, edge.first] = False
    member = connected_components(coo_array(links), directed=False)[1]
    return bool(member[edge.first] != member[edge.second])
