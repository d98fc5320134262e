# SPDX-License-Identifier: MIT
"""A start from nothing: clouds in arbitrary poses in, hypotheses about their poses out.

First the clouds are taken as they lie: a rig or a tracked scanner needs no matching. Only where that does not hold them together
are pairs matched. What cannot be told is said: groups that nothing connects, and clouds whose place is ambiguous.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.arrays import Array
from coframe.start import features, graph, match, verify
from coframe.start.features import Scan
from coframe.start.graph import Graph
from coframe.start.match import Edge, Pair

POINTS = 2000  # of a scan
GRID = 2.0**-10  # poses are rounded to this, in radians and extents: no rounding of the input shows through
SLIDE = 0.02  # stiffness below which it is tried whether a cloud can slide
SLIDES = (6.0, 15.0)  # spacings: how far
AS_GOOD = 0.8  # of the weight of the best motion: an alternative


@dataclass(frozen=True)
class Doubt:
    """A cloud whose place is not certain, and the other places for it."""

    cloud: int
    reason: str
    alternatives: tuple[Float[Array, "D1 D1"], ...] = ()  # poses, in user coordinates


@dataclass(frozen=True)
class Start:
    """Hypotheses about the poses, best first, and what is known about them."""

    poses: tuple[Float[Array, "M D1 D1"], ...]  # in user coordinates
    groups: tuple[tuple[int, ...], ...]  # clouds that hang together; poses of different groups have nothing in common
    source: str  # "as they lie" or "matched"
    pairs: int  # tried
    crashed: tuple[Pair, ...] = ()  # that the native matcher died on
    doubts: tuple[Doubt, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """Scans, and how to get from their coordinates to the user's: v = centre + spacing u."""

    scans: tuple[Scan, ...]
    centres: Float[Array, "M 3"]
    spacing: float

    @classmethod
    def of(cls, clouds: Sequence[Float[Array, "_ 3"]], threads: int) -> "Prepared":
        centres = np.array([np.median(cloud, axis=0) for cloud in clouds])
        centred = [cloud - centre for cloud, centre in zip(clouds, centres, strict=True)]
        side = features.spacing(centred, POINTS)
        with ThreadPoolExecutor(max(1, threads)) as pool:
            scans = tuple(pool.map(lambda cloud: Scan.of(features.thinned(cloud, side) / side), centred))
        return cls(scans, centres, side)

    def enter(self, poses: Float[Array, "M 4 4"]) -> Float[Array, "M 4 4"]:
        """Poses of the user's clouds as poses of the scans."""
        R = geometry.rotation(poses)
        t = np.einsum("jab,jb->ja", R, self.centres) + geometry.translation(poses)
        return geometry.pose(R, (t - t.mean(0)) / self.spacing)

    def leave(self, poses: Float[Array, "M 4 4"]) -> Float[Array, "M 4 4"]:
        """The inverse, rounded."""
        turns = np.round(geometry.log_rotation(geometry.rotation(poses)) / GRID) * GRID
        R, t = geometry.exp_rotation(turns), np.round(geometry.translation(poses) / GRID) * GRID
        return geometry.pose(R, self.spacing * t - np.einsum("jab,jb->ja", R, self.centres))


def start(
    clouds: Sequence[Float[Array, "_ 3"]],
    *,
    rng: np.random.Generator,
    threads: int,
    look: bool = True,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
) -> Start:
    """Where the clouds may lie. `look`: first see whether they lie in place already."""
    M = len(clouds)
    prepared = Prepared.of(clouds, threads)
    scans = list(prepared.scans)
    pairs = match.candidates(scans, rng)
    lying = prepared.enter(geometry.identity(M, 3))
    guesses = [geometry.inverse(lying[b]) @ lying[a] for a, b in pairs]
    if look:
        with ThreadPoolExecutor(max(1, threads)) as pool:
            found = list(pool.map(lambda pair, guess: _weighed(scans, pair, guess), pairs, guesses))
        settled = graph.solved(graph.accepted(found), M)
        if len(settled.groups) == 1:
            return Start((geometry.identity(M, 3),), settled.groups, "as they lie", len(pairs), (), _doubts(settled, prepared))
    match.available()
    edges, crashed = match.edges(scans, pairs, threads=threads, known=guesses if look else None, on_pair=on_pair)
    tried = len(pairs)
    graphs = graph.hypotheses(graph.accepted(edges), M)
    if len(graphs[0].groups) > 1:
        more, dead, extra = _between(scans, graphs[0], set(pairs), rng, threads, on_pair)
        edges, crashed, tried = [*_without(edges, more), *more], [*crashed, *dead], tried + extra
        graphs = graph.hypotheses(graph.accepted(edges), M)
    groups = graphs[0].groups
    return Start(
        tuple(prepared.leave(each.poses) for each in graphs if each.groups == groups),
        groups,
        "matched",
        tried,
        tuple(crashed),
        _doubts(graphs[0], replace(prepared, scans=tuple(scans))),
    )


def _weighed(scans: Sequence[Scan], pair: Pair, guess: Float[Array, "4 4"]) -> Edge:
    return Edge(*pair, verify.verify(scans[pair[0]], scans[pair[1]], guess))


def _without(edges: Sequence[Edge], others: Sequence[Edge]) -> list[Edge]:
    known = {(edge.first, edge.second) for edge in others}
    return [edge for edge in edges if (edge.first, edge.second) not in known]


def _between(
    scans: list[Scan],
    settled: Graph,
    tried: set[Pair],
    rng: np.random.Generator,
    threads: int,
    on_pair: Callable[[int, int], object],
) -> tuple[list[Edge], list[Pair], int]:
    """Edges between the groups, found with the normals of one of the two turned inside out: their sides are a guess.

    Scans of groups that are connected this way are turned in place. Groups are tried against the largest first.
    """
    found: list[Edge] = []
    crashed: list[Pair] = []
    count = 0
    main = set(settled.groups[0])
    waiting = list(settled.groups[1:])
    progress = True
    while waiting and progress:
        progress = False
        for group in list(waiting):
            flipped = dict(zip(group, (scans[j].flipped() for j in group), strict=True))
            both = [flipped.get(j, scan) for j, scan in enumerate(scans)]
            pairs = [(min(a, b), max(a, b)) for a in sorted(main) for b in group]
            if len(pairs) > match.MOST_PAIRS:
                pairs = [pairs[i] for i in np.sort(rng.choice(len(pairs), match.MOST_PAIRS, replace=False))]
            more, dead = match.edges(both, pairs, threads=threads, on_pair=on_pair)
            count, crashed = count + len(pairs), [*crashed, *dead]
            good = graph.accepted(more)
            if good:
                found += good
                main |= set(group)
                waiting.remove(group)
                scans[:] = both
                progress = True
    return found, crashed, count


def _doubts(settled: Graph, prepared: Prepared) -> tuple[Doubt, ...]:
    """Clouds that would fit as well elsewhere: they slide on what holds them, or an edge has another motion as good."""
    doubts = []
    for j in range(len(settled.poses)):
        held = [edge for edge in settled.edges if j in (edge.first, edge.second)]
        if not held:
            continue
        others = [_elsewhere(edge, j, settled, prepared) for edge in held]
        if all(len(places) > 0 for places in others):
            strongest = int(np.argmax([edge.best.weight for edge in held]))
            doubts.append(
                Doubt(j, f"its place is ambiguous: it fits elsewhere as well ({len(others[strongest])} alternatives found)",
                      tuple(others[strongest]))
            )
    return tuple(doubts)


def _elsewhere(edge: Edge, cloud: int, settled: Graph, prepared: Prepared) -> list[Float[Array, "4 4"]]:
    """Other poses of one of an edge's clouds, in user coordinates, for which the evidence is about as good."""
    a, b = prepared.scans[edge.first], prepared.scans[edge.second]
    found = [other for other in edge.others if other.weight >= AS_GOOD * edge.best.weight]
    if edge.best.stiffness < SLIDE:
        direction, centre = verify.softest(a, b, edge.best.motion)
        for far in (sign * length for length in SLIDES for sign in (1, -1)):
            slid = verify.verify(a, b, verify.about(direction * far, centre) @ edge.best.motion)
            if slid.weight >= AS_GOOD * edge.best.weight and verify.apart(slid.motion, edge.best.motion) > verify.SAME:
                found.append(slid)
    poses = settled.poses.copy()
    places = []
    for other in found:
        if cloud == edge.first:
            poses[cloud] = settled.poses[edge.second] @ other.motion
        else:
            poses[cloud] = settled.poses[edge.first] @ geometry.inverse(other.motion)
        places.append(prepared.leave(poses)[cloud])
    return places
