# SPDX-License-Identifier: MIT
"""From motions between pairs to one pose per scan: cycles checked, groups found, poses averaged
over all that is consistent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from coframe import geometry
from coframe.start import verify
from coframe.start.match import Edge
from coframe.types import Array

LEAST_WEIGHT = 60.0  # nats: clouds that do not overlap reach 45 by chance,
FULL = 1000  # points, and less where there are fewer points than that,
FEWEST = 0.25  # but this share of the weight is needed of the smallest cloud
LEAST_OVERLAP = 0.15
CLEAR = 0.25  # of the weight of an edge's best motion: by so much the next must fall behind
FIRM = 0.008  # stiffness: what has less can slide (spheres and planes have below 0.003)
BRIDGE = 2.5  # times the least weight, for an edge that no cycle confirms
BROKEN = 8.0  # spacings: a cycle that misses its beginning by more is broken
LOOSE = 2.0  # spacings: residuals beyond this count less and less
SWEEPS = 20  # of the averaging
# of the weight of the edges it contradicts: with more, an edge makes a hypothesis of its own
DOUBT = 0.5
MOST_HYPOTHESES, MOST_RIVALS = 3, 8


@dataclass(frozen=True)
class Graph:
    """Where the scans lie, up to one motion for each group of scans that hang together."""

    poses: Float[Array, "M 4 4"]  # of the scans, in spacings
    groups: tuple[tuple[int, ...], ...]  # largest first
    edges: tuple[Edge, ...]  # that hold the groups together
    dropped: tuple[Edge, ...]  # that speak against them


def accepted(edges: Sequence[Edge]) -> list[Edge]:
    """The edges whose evidence is more than chance gives."""
    return [
        edge
        for edge in edges
        if edge.best.weight >= least_weight(edge) and edge.best.overlap >= LEAST_OVERLAP
    ]


def unambiguous(edges: Sequence[Edge]) -> list[Edge]:
    """The edges for whose motion there is clearly more evidence than for any other, and which
    cannot slide.
    """
    return [
        edge
        for edge in accepted(edges)
        if edge.margin >= max(least_weight(edge), CLEAR * edge.best.weight)
        and edge.best.stiffness >= FIRM
    ]


def least_weight(edge: Edge) -> float:
    """What an edge between scans of this size must weigh."""
    return LEAST_WEIGHT * float(np.clip(edge.size / FULL, FEWEST, 1))


def decided(edges: Sequence[Edge], count: int) -> tuple[list[Graph], tuple[tuple[int, ...], ...]]:
    """Hypotheses about the graph, best first, and the groups that unambiguous edges hold together.

    Other edges are used only where these leave several groups; what they add is a guess.
    """
    graphs = hypotheses(unambiguous(edges), count)
    solid = _without_thin_bridges(graphs[0], count)
    if len(solid) < len(graphs[0].edges):
        graphs = hypotheses(solid, count)
    if len(graphs[0].groups) == 1:
        return graphs, graphs[0].groups
    return hypotheses(accepted(edges), count, trusted=graphs[0].edges), graphs[0].groups


def _without_thin_bridges(graph: Graph, count: int) -> list[Edge]:
    """The edges but for those that alone connect two parts, in no cycle that would confirm them,
    unless they are strong.
    """
    pieces = len(graph.groups)
    return [
        edge
        for edge in graph.edges
        if edge.margin >= BRIDGE * least_weight(edge)
        or _components([other for other in graph.edges if other is not edge], count).max() + 1
        == pieces
    ]


def solved(edges: Sequence[Edge], count: int, trusted: Sequence[Edge] = ()) -> Graph:
    """The graph of accepted edges. `trusted` edges come before all others, whatever their weight.

    Without any, an edge that had to be dropped is tried as one, and kept where more evidence agrees
    with it than without it.
    """
    best = _settled(edges, count, trusted)
    for rival in (
        [] if trusted else sorted(best.dropped, key=lambda edge: -edge.best.weight)[:MOST_RIVALS]
    ):
        other = _settled(edges, count, [rival])
        if _agreed(other) > _agreed(best):
            best = other
    return best


def _agreed(graph: Graph) -> float:
    return sum(edge.best.weight for edge in graph.edges)


def _settled(edges: Sequence[Edge], count: int, trusted: Sequence[Edge]) -> Graph:
    weights = np.array([edge.best.weight for edge in edges])
    if len(edges):
        certain = np.array([any(edge is other for other in trusted) for edge in edges])
        weights = np.maximum(weights + _cycles(edges, count), 1.0) + np.where(
            certain, 10 * weights.sum(), 0
        )
    poses = _along_tree(edges, weights, count)
    kept = [edge for edge in edges if _gap(poses, edge) < BROKEN]
    # an edge that averaging leaves behind is dropped, and the rest averaged again
    for _ in range(2):
        poses = averaged(poses, kept)
        kept = [edge for edge in kept if _gap(poses, edge) < BROKEN]
    member = _components(kept, count)
    groups = [tuple(np.flatnonzero(member == k).tolist()) for k in range(member.max() + 1)]
    groups.sort(key=lambda group: (-len(group), group))
    return Graph(
        poses,
        tuple(groups),
        tuple(kept),
        tuple(edge for edge in edges if not any(edge is k for k in kept)),
    )


def hypotheses(edges: Sequence[Edge], count: int, trusted: Sequence[Edge] = ()) -> list[Graph]:
    """The best graph, and others that trust an edge which it had to drop, or an edge's other motion
    that is nearly as good.
    """
    graphs = [solved(edges, count, trusted)]
    rivals = [
        edge for edge in graphs[0].dropped if edge.best.weight >= DOUBT * _weakest(graphs[0], edge)
    ]
    for rival in sorted(rivals, key=lambda edge: -edge.best.weight):
        graphs.append(solved(edges, count, trusted=[*trusted, rival]))
    for edge in (e for e in edges if not any(e is sure for sure in trusted)):
        for other in edge.others:
            if other.weight >= max(least_weight(edge), DOUBT * edge.best.weight):
                swapped = replace(edge, best=other, others=(edge.best,))
                graphs.append(
                    solved(
                        [swapped if e is edge else e for e in edges],
                        count,
                        trusted=[*trusted, swapped],
                    )
                )
    different: list[Graph] = []
    for graph in graphs:
        if len(different) < MOST_HYPOTHESES and all(not _same(graph, other) for other in different):
            different.append(graph)
    return different


def _weakest(graph: Graph, edge: Edge) -> float:
    """The weight of the weakest edge at either end of an edge."""
    ends = {edge.first, edge.second}
    touching = [other.best.weight for other in graph.edges if ends & {other.first, other.second}]
    return min(touching, default=0.0)


def _same(one: Graph, other: Graph) -> bool:
    return one.groups == other.groups and all(
        _gap(one.poses, edge) < BROKEN for edge in other.edges
    )


def _gap(poses: Float[Array, "M 4 4"], edge: Edge) -> float:
    """How far the poses are from an edge's motion, in spacings."""
    return verify.motion_distance(
        geometry.inverse(poses[edge.second]) @ poses[edge.first], edge.best.motion
    )


def _cycles(edges: Sequence[Edge], count: int) -> Float[Array, " E"]:
    """For each edge, the weight of the triangles that it closes less that of those it breaks."""
    motion, weight = np.zeros((count, count, 4, 4)), np.zeros((count, count))
    for edge in edges:
        a, b = edge.first, edge.second
        motion[a, b], motion[b, a] = edge.best.motion, geometry.inverse(edge.best.motion)
        weight[a, b] = weight[b, a] = edge.best.weight
    support = np.zeros(len(edges))
    for i, edge in enumerate(edges):
        a, b = edge.first, edge.second
        for c in np.flatnonzero((weight[a] > 0) & (weight[b] > 0)):
            gap = verify.motion_distance(motion[c, b] @ motion[a, c], edge.best.motion)
            support[i] += min(weight[a, c], weight[c, b]) * (1.0 if gap < BROKEN else -1.0)
    return support


def _components(edges: Sequence[Edge], count: int) -> Array:
    a, b = np.array([(edge.first, edge.second) for edge in edges], int).reshape(-1, 2).T
    return np.asarray(
        connected_components(
            coo_array((np.ones(len(a)), (a, b)), shape=(count, count)), directed=False
        )[1]
    )


def _along_tree(
    edges: Sequence[Edge], weights: Float[Array, " E"], count: int
) -> Float[Array, "M 4 4"]:
    """Poses along the maximum spanning tree of each group, from its first scan."""
    poses = geometry.identity(count, 3)
    if not edges:
        return poses
    a, b = np.array([(edge.first, edge.second) for edge in edges]).T
    cost = 1 + weights.max() - weights
    tree = minimum_spanning_tree(coo_array((cost, (a, b)), shape=(count, count)).tocsr())
    motion = {(edge.first, edge.second): edge.best.motion for edge in edges}
    member = _components(edges, count)
    for group in range(member.max() + 1):
        order, before = breadth_first_order(tree, int(np.argmax(member == group)), directed=False)
        for j in order[1:]:
            i = int(before[j])  # pose_a = pose_b motion_ab
            step = motion[j, i] if (j, i) in motion else geometry.inverse(motion[i, j])
            poses[j] = poses[i] @ step
    return poses


def averaged(poses: Float[Array, "M 4 4"], edges: Sequence[Edge]) -> Float[Array, "M 4 4"]:
    """Rotations first, then translations: least squares over all edges, with weights that fall
    where an edge does not fit.
    """
    if not edges:
        return poses
    a, b = np.array([(edge.first, edge.second) for edge in edges]).T
    motions = np.array([edge.best.motion for edge in edges])
    weight = np.array([edge.best.weight for edge in edges])
    R, t = geometry.rotation(poses).copy(), geometry.translation(poses).copy()
    for _ in range(SWEEPS):
        turn = geometry.log_rotation(R[b] @ geometry.rotation(motions) @ np.swapaxes(R[a], 1, 2))
        doubt = verify.RADIUS * np.linalg.norm(turn, axis=1) / LOOSE
        R = geometry.exp_rotation(_levelled(a, b, turn, weight / (1 + doubt**2), len(R))) @ R
    for _ in range(SWEEPS):
        shift = np.einsum("eij,ej->ei", R[b], geometry.translation(motions)) + t[b] - t[a]
        doubt = np.linalg.norm(shift, axis=1) / LOOSE
        t = t + _levelled(a, b, shift, weight / (1 + doubt**2), len(t))
    return geometry.pose(R, t)


def _levelled(
    a: Array, b: Array, difference: Float[Array, "E 3"], weight: Float[Array, " E"], count: int
) -> Float[Array, "M 3"]:
    """The x that minimises sum w |difference + x_b - x_a|^2, with mean zero in each group."""
    L, g = np.zeros((count, count)), np.zeros((count, 3))
    for i, j, sign in ((a, a, 1), (b, b, 1), (a, b, -1), (b, a, -1)):
        np.add.at(L, (i, j), sign * weight)
    np.add.at(g, a, weight[:, None] * difference)
    np.add.at(g, b, -weight[:, None] * difference)
    return np.linalg.lstsq(L, g, rcond=1e-10)[0]
