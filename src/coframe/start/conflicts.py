# SPDX-License-Identifier: MIT
"""Edges that contradict each other: the parts that they connect are compared as wholes.

The evidence of one pair may prefer a wrong motion: on a street each house looks like the next one.
So where an edge is inconsistent with the poses that the others give, the scans are divided where
least evidence holds its two ends together. Every motion that an edge between the two parts suggests
is tried, and all pairs of scans across say what they see there, also those whose own best motion is
another one. Of each scan of the smaller part the pair with most evidence counts: scans that saw the
same surface are no independent witnesses, and where a part is laid onto many scans it would win.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from coframe import geometry
from coframe.compute.per_cloud import Pair, PerCloud
from coframe.start import match
from coframe.start.features import ThinScan
from coframe.start.graph import (
    Graph,
    best_graph,
    distance_to,
    needed_evidence,
    supported,
    unambiguous,
)
from coframe.start.match import Edge
from coframe.start.recipe import START, StartRecipe
from coframe.start.verify import Evidence, Motion, motion_distance, motion_distances
from coframe.types import Array

# [limit] Motions between two parts that are compared, those with the most evidence first.
MAX_MOTIONS = 8
# [guard] Divisions that are settled one after the other; each is usually the last.
PASSES = 20


@dataclass(frozen=True)
class _Across:
    """A motion of one part against another, and what the pairs across say of it."""

    motion: Motion
    found: dict[Pair, Evidence]
    # [nats] The evidence of all scans of the smaller part.
    evidence: float


def resolved(
    scans: PerCloud[ThinScan], edges: Sequence[Edge], recipe: StartRecipe = START
) -> list[Edge]:
    """The edges; where some contradict each other, at the motions that have most evidence in all.

    An edge between two parts is as ambiguous as the motion between the parts is.
    """
    edges, count = list(edges), len(scans)
    for _ in range(PASSES):
        found = best_graph(unambiguous(edges, recipe), count, recipe=recipe)
        divided = _contested(found, supported(edges, recipe), recipe)
        if divided is None:
            return edges
        edges = _settled(scans, edges, found, *divided, recipe)
    return edges


def _contested(
    found: Graph, edges: Sequence[Edge], recipe: StartRecipe
) -> tuple[set[int], set[int]] | None:
    """Two parts of a group, where the edges across that are inconsistent have about as much
    evidence as those that hold the parts together.
    """
    member = {j: number for number, group in enumerate(found.groups) for j in group}
    odd = [
        edge
        for edge in edges
        if member[edge.first] == member[edge.second]
        and distance_to(found.poses, edge, recipe) >= recipe.first_gate
    ]
    for edge in sorted(odd, key=lambda each: -each.best.weight):
        part = _part(found, edge)
        rest = set(found.groups[member[edge.first]]) - part
        part, rest = sorted((part, rest), key=lambda each: (len(each), min(each)))
        against, held = (
            _total({(e.first, e.second): e.best for e in each}, part, rest)
            for each in (odd, found.edges)
        )
        if against >= recipe.rival_share * held:
            return part, rest
    return None


def _total(found: dict[Pair, Evidence], part: set[int], rest: set[int]) -> float:
    """The evidence [nats] of each scan of a part with one of the rest."""
    most = dict.fromkeys(part, 0.0)
    for (a, b), evidence in found.items():
        for one, other in ((a, b), (b, a)):
            if one in part and other in rest:
                most[one] = max(most[one], evidence.weight)
    return sum(most.values())


def _part(found: Graph, odd: Edge) -> set[int]:
    """The scans on the side of an edge's first one, where least evidence holds the two together."""
    count = len(found.poses)
    capacity = np.zeros((count, count), np.int32)
    for edge in found.edges:
        a, b = edge.first, edge.second
        capacity[a, b] = capacity[b, a] = max(round(edge.best.weight), 1)
    whole = csr_array(capacity)
    flow = maximum_flow(whole, odd.first, odd.second).flow
    left = csr_array(np.maximum(capacity - flow.toarray(), 0))
    return set(breadth_first_order(left, odd.first, return_predecessors=False).tolist())


def _settled(
    scans: PerCloud[ThinScan],
    edges: list[Edge],
    found: Graph,
    part: set[int],
    rest: set[int],
    recipe: StartRecipe,
) -> list[Edge]:
    """The edges, those between two parts at the best motion of one against the other."""
    poses = found.poses
    known = {(edge.first, edge.second): edge for edge in edges}
    pairs = _across(known, part, rest, recipe)
    tried: list[_Across] = []
    for motion in _motions(edges, poses, part, rest, recipe):
        moved = poses.copy()
        moved[sorted(part)] = motion @ moved[sorted(part)]
        said = _evidence(scans, pairs, moved, recipe)
        tried.append(_Across(motion, said, _total(said, part, rest)))
    best, *others = sorted(tried, key=lambda each: -each.evidence)
    share = min(others[0].evidence / best.evidence, 1.0) if others and best.evidence > 0 else 0.0
    sizes = scans.map(len)
    for a, b in pairs:
        own = best.found[a, b]
        size = min(sizes[a], sizes[b])
        if (a, b) not in known and own.weight < needed_evidence(Edge(a, b, own, (), size), recipe):
            continue
        rivals = tuple(
            replace(each.found[a, b], weight=share * own.weight) for each in others[:1] if share
        )
        known[a, b] = Edge(a, b, own, rivals, size)
    return [known[pair] for pair in sorted(known)]


def _across(
    known: Mapping[Pair, Edge], part: set[int], rest: set[int], recipe: StartRecipe
) -> list[Pair]:
    """The pairs between two parts; of more than are tried, those with an edge and some others."""
    pairs = sorted((min(a, b), max(a, b)) for a in part for b in rest)
    if len(pairs) <= recipe.max_pairs:
        return pairs
    linked = [pair for pair in pairs if pair in known]
    others = [pair for pair in pairs if pair not in known]
    count = max(recipe.max_pairs - len(linked), 0)
    return sorted(linked + [others[i * len(others) // count] for i in range(count)])


def _motions(
    edges: Sequence[Edge], poses: Array, part: set[int], rest: set[int], recipe: StartRecipe
) -> list[Motion]:
    """Motions of a part against the rest that edges suggest, those with most evidence first."""
    motions: list[Motion] = [np.eye(4)]
    weights = [0.0]
    for edge in edges:
        ends = edge.first in part, edge.second in part
        if ends[0] == ends[1] or not {edge.first, edge.second} <= part | rest:
            continue
        for each in (edge.best, *edge.others):
            if each.weight < needed_evidence(edge, recipe):
                continue
            first, second = poses[edge.first], poses[edge.second]
            if ends[0]:
                motion = second @ each.motion @ geometry.inverse(first)
            else:
                motion = first @ geometry.inverse(each.motion) @ geometry.inverse(second)
            motions.append(motion)
            weights.append(each.weight)
    members = sorted(part)
    every, support = np.array(motions), np.array(weights)
    inverse = geometry.inverse(poses[members])

    def same(k: int) -> Array:
        """Which motions carry all scans of the part to about where one of them does."""
        distances = [
            motion_distances(back @ every @ pose, (back @ every[k] @ pose)[None], recipe)
            for back, pose in zip(inverse, poses[members], strict=True)
        ]
        return np.max(distances, axis=0) < recipe.first_gate

    kept: list[Motion] = []
    left = np.ones(len(every), bool)
    near = [same(k) for k in range(len(every))]
    while left.any() and len(kept) < MAX_MOTIONS:
        alike = {k: near[k] & left for k in np.flatnonzero(left).tolist()}
        k = 0 if left[0] else max(alike, key=lambda k: float(support[alike[k]].sum()))
        kept.append(every[k])
        left &= ~alike[k]
    return kept


def _evidence(
    scans: PerCloud[ThinScan], pairs: Sequence[Pair], poses: Array, recipe: StartRecipe
) -> dict[Pair, Evidence]:
    """What pairs of scans say of poses; nothing where they fit only somewhere else."""
    motions = [geometry.inverse(poses[b]) @ poses[a] for a, b in pairs]
    found = scans.map_pairs(match.verify_motion, pairs, motions, [recipe] * len(pairs))
    return {
        pair: each
        if motion_distance(each.motion, motion, recipe) < recipe.first_gate
        else Evidence(motion)
        for pair, motion, each in zip(pairs, motions, found, strict=True)
    }
