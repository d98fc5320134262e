# SPDX-License-Identifier: MIT
"""From motions between pairs to one pose per scan.

Edges that have enough evidence are checked against each other in cycles; those that agree connect
the scans into groups, and the poses of a group are averaged over all its edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from coframe import geometry
from coframe.start.match import Edge
from coframe.start.recipe import START, StartRecipe
from coframe.start.verify import motion_distance
from coframe.types import Array

Groups = tuple[tuple[int, ...], ...]
# [limit] Reweighted solutions of an averaging, of rotations and of translations each; after half as
# many the poses no longer change.
SWEEPS = 20
# [limit] Inconsistent edges, and other motions of edges, that are tried as trusted ones, strongest
# first.
MAX_RIVALS = 8
# [limit] Hypotheses about the poses, best first; each costs a coarse fit.
MAX_HYPOTHESES = 3


@dataclass(frozen=True)
class Graph:
    """Poses of the scans, up to one motion for each group of connected scans."""

    # [spacings] Poses of the scans.
    poses: Float[Array, "M 4 4"]
    # Connected scans, the largest group first.
    groups: Groups
    # Edges that are consistent with the poses, and connect the groups.
    edges: tuple[Edge, ...]
    # Edges that are inconsistent with them.
    dropped: tuple[Edge, ...]

    @property
    def evidence(self) -> float:
        """The evidence [nats] of all edges that are consistent."""
        return sum(edge.best.weight for edge in self.edges)


def supported(edges: Sequence[Edge], recipe: StartRecipe = START) -> list[Edge]:
    """The edges that have more evidence than unrelated surfaces reach by chance."""
    return [edge for edge in edges if edge.best.weight >= needed_evidence(edge, recipe)]


def unambiguous(edges: Sequence[Edge], recipe: StartRecipe = START) -> list[Edge]:
    """The edges that cannot slide, and whose best motion has clearly more evidence than others."""
    return [
        edge
        for edge in supported(edges, recipe)
        if edge.margin >= needed_evidence(edge, recipe)
        and edge.margin >= recipe.min_margin * edge.best.weight
        and edge.best.stiffness >= recipe.min_stiffness
    ]


def needed_evidence(edge: Edge, recipe: StartRecipe) -> float:
    """The evidence [nats] that an edge between scans of this size needs.

    Of n points, about n^3 motions differ from each other, and the best of these has the logarithm
    of their number by chance.
    """
    by_size = recipe.min_evidence * float(np.sqrt(edge.size / recipe.points_3d))
    return max(by_size, 3 * float(np.log(max(edge.size, 1))))


def solve_graph(
    edges: Sequence[Edge], count: int, recipe: StartRecipe = START
) -> tuple[list[Graph], Groups]:
    """Find hypotheses about the graph, best first, and the groups of unambiguous edges alone.

    Other edges are used only where the unambiguous ones leave several groups; what they connect is
    in doubt.
    """
    graphs = find_hypotheses(unambiguous(edges, recipe), count, recipe=recipe)
    solid = _without_weak_bridges(graphs[0], count, recipe)
    if len(solid) < len(graphs[0].edges):
        graphs = find_hypotheses(solid, count, recipe=recipe)
    certain = graphs[0]
    if len(certain.groups) > 1:
        graphs = find_hypotheses(supported(edges, recipe), count, certain.edges, recipe)
    return graphs, _joined_parts(graphs[0], certain.groups, recipe)


def _joined_parts(graph: Graph, parts: Groups, recipe: StartRecipe) -> Groups:
    """The parts, joined where all edges between two of them together leave no doubt.

    Edges that are consistent speak for the same motion between two parts, so what they have more
    than their next best motions adds up, as does what edges have that had to be dropped.
    """
    member = {j: number for number, part in enumerate(parts) for j in part}
    while True:
        between: dict[tuple[int, int], list[tuple[Edge, bool]]] = {}
        for edges, kept in ((graph.edges, True), (graph.dropped, False)):
            for edge in edges:
                a, b = sorted((member[edge.first], member[edge.second]))
                if a != b:
                    between.setdefault((a, b), []).append((edge, kept))
        excess = {pair: _excess(found, recipe) for pair, found in between.items()}
        best = max(excess, key=lambda pair: excess[pair], default=None)
        if best is None or excess[best] < 0:
            break
        one, other = best
        member = {j: one if number == other else number for j, number in member.items()}
    joined: dict[int, list[int]] = {}
    for j, number in sorted(member.items()):
        joined.setdefault(number, []).append(j)
    return tuple(sorted(map(tuple, joined.values()), key=lambda part: (-len(part), part)))


def _excess(edges: Sequence[tuple[Edge, bool]], recipe: StartRecipe) -> float:
    """Evidence [nats] beyond what is needed to join two parts; `True`: an edge is consistent."""
    kept = [edge for edge, consistent in edges if consistent]
    if not kept or max(edge.best.stiffness for edge in kept) < recipe.min_stiffness:
        return -np.inf
    margin = sum(edge.margin for edge in kept)
    margin -= sum(edge.best.weight for edge, consistent in edges if not consistent)
    needed = recipe.bridge_factor * max(needed_evidence(edge, recipe) for edge in kept)
    return margin - max(needed, recipe.min_margin * sum(edge.best.weight for edge in kept))


def _without_weak_bridges(graph: Graph, count: int, recipe: StartRecipe) -> list[Edge]:
    """The edges without those that alone connect two parts, unless they are strong."""
    groups = len(graph.groups)
    return [
        edge
        for edge in graph.edges
        if edge.margin >= recipe.bridge_factor * needed_evidence(edge, recipe)
        or _components([other for other in graph.edges if other is not edge], count).max() + 1
        == groups
    ]


def find_hypotheses(
    edges: Sequence[Edge], count: int, trusted: Sequence[Edge] = (), recipe: StartRecipe = START
) -> list[Graph]:
    """Find the best graph, and others in which a rival of one of its edges is trusted.

    Rivals are edges that the best graph had to drop, and other motions of an edge with nearly as
    much evidence.
    """
    best = best_graph(edges, count, trusted, recipe)
    rivals = [
        edge
        for edge in best.dropped
        if edge.best.weight >= recipe.rival_share * _weakest(best, edge)
    ]
    rivals.sort(key=lambda edge: -edge.best.weight)
    alternatives = [(edges, rival) for rival in rivals[:MAX_RIVALS]]
    swaps: list[tuple[Edge, Edge]] = []
    for edge in (e for e in edges if not any(e is sure for sure in trusted)):
        needed = max(needed_evidence(edge, recipe), recipe.rival_share * edge.best.weight)
        swaps += [
            (edge, replace(edge, best=other, others=(edge.best,)))
            for other in edge.others
            if other.weight >= needed
        ]
    swaps.sort(key=lambda swap: -swap[1].best.weight)
    for edge, swapped in swaps[:MAX_RIVALS]:
        alternatives.append(([swapped if e is edge else e for e in edges], swapped))
    different = [best]
    for others, rival in alternatives:
        if len(different) == MAX_HYPOTHESES:
            break
        graph = best_graph(others, count, [*trusted, rival], recipe)
        swapped = [_nearest(edge, graph.poses, recipe) for edge in others]
        graph = best_graph(swapped, count, [*trusted, rival], recipe)
        if not any(_same(graph, other, recipe) for other in different):
            different.append(graph)
    return different


def _nearest(edge: Edge, poses: Float[Array, "M 4 4"], recipe: StartRecipe) -> Edge:
    """An edge at that of its motions which is consistent with poses, if one is."""
    every = [edge.best, *edge.others]
    for number, each in enumerate(every):
        swapped = replace(edge, best=each, others=(*every[:number], *every[number + 1 :]))
        if distance_to(poses, swapped, recipe) < recipe.first_gate:
            return edge if number == 0 else swapped
    return edge


def best_graph(
    edges: Sequence[Edge], count: int, trusted: Sequence[Edge] = (), recipe: StartRecipe = START
) -> Graph:
    """Find the graph with the most evidence. `trusted` edges come first, whatever their evidence.

    Without any, each of the strongest edges that had to be dropped is tried as a trusted one.
    """
    best = _build_graph(edges, count, trusted, recipe)
    if trusted:
        return best
    for rival in sorted(best.dropped, key=lambda edge: -edge.best.weight)[:MAX_RIVALS]:
        other = _build_graph(edges, count, [rival], recipe)
        if other.evidence > best.evidence:
            best = other
    return best


def _build_graph(
    edges: Sequence[Edge], count: int, trusted: Sequence[Edge], recipe: StartRecipe
) -> Graph:
    """Chain the poses along a spanning tree, drop inconsistent edges, average over the others."""
    weights = np.array([edge.best.weight for edge in edges])
    if len(edges):
        certain = np.array([any(edge is other for other in trusted) for edge in edges])
        weights = np.maximum(weights + _cycle_support(edges, count, recipe), 1.0)
        weights = np.where(certain, weights + weights.max(), weights)  # The tree uses these first.
    poses = _chain_along_tree(edges, weights, count)
    kept = [edge for edge in edges if distance_to(poses, edge, recipe) < recipe.first_gate]
    poses = average_motions(poses, kept, recipe)
    kept = [edge for edge in kept if distance_to(poses, edge, recipe) < recipe.first_gate]
    member = _components(kept, count)
    groups = [tuple(np.flatnonzero(member == k).tolist()) for k in range(member.max() + 1)]
    groups.sort(key=lambda group: (-len(group), group))
    dropped = tuple(edge for edge in edges if not any(edge is k for k in kept))
    return Graph(poses, tuple(groups), tuple(kept), dropped)


def _weakest(graph: Graph, edge: Edge) -> float:
    """The evidence of the weakest edge at either end of an edge."""
    ends = {edge.first, edge.second}
    touching = [other.best.weight for other in graph.edges if ends & {other.first, other.second}]
    return min(touching, default=0.0)


def _same(one: Graph, other: Graph, recipe: StartRecipe) -> bool:
    return one.groups == other.groups and all(
        distance_to(one.poses, edge, recipe) < recipe.first_gate for edge in other.edges
    )


def distance_to(poses: Float[Array, "M 4 4"], edge: Edge, recipe: StartRecipe) -> float:
    """How far [spacings] the poses are from an edge's motion."""
    return motion_distance(
        geometry.inverse(poses[edge.second]) @ poses[edge.first], edge.best.motion, recipe
    )


def _cycle_support(edges: Sequence[Edge], count: int, recipe: StartRecipe) -> Float[Array, " E"]:
    """For each edge, the evidence of the triangles that it closes less that of those it breaks."""
    motion = np.zeros((count, count, 4, 4))
    weight = np.zeros((count, count))
    for edge in edges:
        a, b = edge.first, edge.second
        motion[a, b] = edge.best.motion
        motion[b, a] = geometry.inverse(edge.best.motion)
        weight[a, b] = weight[b, a] = edge.best.weight
    support = np.zeros(len(edges))
    for i, edge in enumerate(edges):
        a, b = edge.first, edge.second
        for c in np.flatnonzero((weight[a] > 0) & (weight[b] > 0)):
            gap = motion_distance(motion[c, b] @ motion[a, c], edge.best.motion, recipe)
            sign = 1.0 if gap < recipe.first_gate else -1.0
            support[i] += min(weight[a, c], weight[c, b]) * sign
    return support


def _components(edges: Sequence[Edge], count: int) -> Array:
    """The number of each scan's group."""
    a, b = np.array([(edge.first, edge.second) for edge in edges], int).reshape(-1, 2).T
    links = coo_array((np.ones(len(a)), (a, b)), shape=(count, count))
    return np.asarray(connected_components(links, directed=False)[1])


def _chain_along_tree(
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
            i = int(before[j])
            # The pose of a is the pose of b times the motion from a to b.
            step = motion[j, i] if (j, i) in motion else geometry.inverse(motion[i, j])
            poses[j] = poses[i] @ step
    return poses


def average_motions(
    poses: Float[Array, "M 4 4"], edges: Sequence[Edge], recipe: StartRecipe
) -> Float[Array, "M 4 4"]:
    """Fit the poses to all edges: rotations first, then translations, by reweighted least squares.

    Weights fall for edges that do not fit.
    """
    if not edges:
        return poses
    a, b = np.array([(edge.first, edge.second) for edge in edges]).T
    motions = np.array([edge.best.motion for edge in edges])
    weight = np.array([edge.best.weight for edge in edges])
    R = geometry.rotation(poses).copy()
    t = geometry.translation(poses).copy()
    for _ in range(SWEEPS):
        turn = geometry.log_rotation(R[b] @ geometry.rotation(motions) @ np.swapaxes(R[a], 1, 2))
        misfit = recipe.motion_radius * np.linalg.norm(turn, axis=1) / recipe.last_gate
        R = geometry.exp_rotation(_solve_nodes(a, b, turn, weight / (1 + misfit**2), len(R))) @ R
    for _ in range(SWEEPS):
        shift = np.einsum("eij,ej->ei", R[b], geometry.translation(motions)) + t[b] - t[a]
        misfit = np.linalg.norm(shift, axis=1) / recipe.last_gate
        t = t + _solve_nodes(a, b, shift, weight / (1 + misfit**2), len(t))
    return geometry.pose(R, t)


def _solve_nodes(
    a: Array, b: Array, difference: Float[Array, "E 3"], weight: Float[Array, " E"], count: int
) -> Float[Array, "M 3"]:
    """The x that minimises sum w |difference + x_b - x_a|^2, with mean zero in each group."""
    L = np.zeros((count, count))
    g = np.zeros((count, 3))
    for i, j, sign in ((a, a, 1), (b, b, 1), (a, b, -1), (b, a, -1)):
        np.add.at(L, (i, j), sign * weight)
    np.add.at(g, a, weight[:, None] * difference)
    np.add.at(g, b, -weight[:, None] * difference)
    return np.linalg.lstsq(L, g, rcond=1e-10)[0]
