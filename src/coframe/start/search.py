# SPDX-License-Identifier: MIT
"""A start from nothing: clouds in arbitrary poses in, hypotheses about their poses out.

First the clouds are taken as they lie: a rig or a tracked scanner needs no matching. Where that
does not hold them together, pairs are matched. What cannot be told is said: groups that nothing
connects, and clouds whose place is ambiguous.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.compute.checkpoint import Checkpoint
from coframe.compute.places import Pair, PerCloud
from coframe.input.normalise import Summary
from coframe.input.source import Source
from coframe.start import features, graph, match, planar, verify
from coframe.start.doubt import Doubt
from coframe.start.features import ThinScan
from coframe.start.graph import Graph
from coframe.start.match import Edge
from coframe.types import Array

# of a scan, by dimension; fewer where these connect too little: means of more are less noisy
POINTS = {
    2: (120, 40),
    3: (2000, 500),
}
# poses are rounded to this, in radians and extents: no rounding of the input shows through
GRID = 2.0**-10
AS_GOOD = 0.5  # of the weight of the best motion: an alternative
# spacings: a cloud that is no farther than this from where it belongs lies about in place
NEARBY = 15.0
LEFT = 0.5  # of the weight of an edge: with less, a fit has lost it
IDENTITY, MATCHED, GIVEN = "identity", "matched", "given"


@dataclass(frozen=True)
class Start:
    """Hypotheses about the poses, best first, and what is known about them."""

    poses: tuple[Float[Array, "M D1 D1"], ...]  # in user coordinates
    # clouds that hang together; poses of different groups have nothing in common
    groups: tuple[tuple[int, ...], ...]
    source: str  # AS_THEY_LIE, MATCHED or GIVEN
    pairs: int  # tried
    crashed: tuple[Pair, ...] = ()  # that the native matcher died on
    doubts: tuple[Doubt, ...] = ()
    graph: Graph | None = None
    prepared: "Prepared | None" = None


@dataclass(frozen=True)
class Prepared:
    """Scans, and how to get from their coordinates to the user's: v = centre + spacing u."""

    scans: PerCloud[ThinScan]
    centres: Float[Array, "M 3"]
    spacing: float
    dimension: int = 3

    @classmethod
    def of(cls, clouds: PerCloud[Source], summaries: Sequence[Summary], points: int) -> "Prepared":
        """Thin the clouds out to a common spacing."""
        D = len(summaries[0].median)
        centres = np.array([summary.median for summary in summaries])
        side = features.spacing(clouds, summaries, points)
        scans = clouds.map_keep(_scan, summaries, shared=(side,))
        return cls(scans, np.pad(centres, ((0, 0), (0, 3 - D))), side, D)

    def enter(self, poses: Float[Array, "M D1 D1"]) -> Float[Array, "M 4 4"]:
        """Poses of the user's clouds as poses of the scans."""
        D = self.dimension
        R = np.tile(np.eye(3), (len(poses), 1, 1))
        R[:, :D, :D] = geometry.rotation(poses)
        t = np.einsum("jab,jb->ja", R, self.centres)
        t[:, :D] += geometry.translation(poses)
        return geometry.pose(R, (t - t.mean(0)) / self.spacing)

    def leave(self, poses: Float[Array, "M 4 4"]) -> Float[Array, "M D1 D1"]:
        """The inverse, rounded."""
        turns = np.round(geometry.log_rotation(geometry.rotation(poses)) / GRID) * GRID
        R, t = geometry.exp_rotation(turns), np.round(geometry.translation(poses) / GRID) * GRID
        t = self.spacing * t - np.einsum("jab,jb->ja", R, self.centres)
        return geometry.pose(R[:, : self.dimension, : self.dimension], t[:, : self.dimension])


def find_start(
    clouds: PerCloud[Source],
    summaries: Sequence[Summary],
    *,
    rng: np.random.Generator,
    look: bool = True,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
    checkpoint: Checkpoint | None = None,
) -> Start:
    """Where the clouds may lie. `look`: first see whether they lie in place already."""
    tried = 0
    best: Start | None = None
    for points in POINTS[len(summaries[0].median)]:
        found = _attempted(Prepared.of(clouds, summaries, points), rng, look, on_pair, checkpoint)
        tried += found.pairs
        if best is None or _certainty(found) > _certainty(best):
            best = found
        if _certainty(best) == (True, -1):
            break
    assert best is not None
    return replace(best, pairs=tried)


def _certainty(found: Start) -> tuple[bool, int]:
    """A start that rests on evidence is better than one that does not, and one with fewer groups
    better than one with more.
    """
    return found.graph is not None, -len(found.groups)


def _attempted(
    prepared: Prepared,
    rng: np.random.Generator,
    look: bool,
    on_pair: Callable[[int, int], object],
    checkpoint: Checkpoint | None,
) -> Start:
    """A start from scans of about so many points."""
    scans, D = prepared.scans, prepared.dimension
    M = len(scans)
    pairs = match.candidates(scans, rng)
    as_given = geometry.identity(M, D)
    lying = prepared.enter(as_given)
    guesses = [geometry.inverse(lying[b]) @ lying[a] for a, b in pairs]
    if look:
        found = scans.map_pairs(match.edge_at, pairs, pairs, guesses)
        (settled, *_), sure = graph.decided(found, M)
        if len(settled.groups) == 1 and _in_place(settled, lying):
            doubts = _doubts(settled, sure, prepared)
            return Start((as_given,), settled.groups, IDENTITY, 0, (), doubts, settled, prepared)
    if D == 3:
        match.available()
    propose = None if D == 3 else planar.motions
    known = guesses if look else None
    edges, crashed = match.edges(
        scans, pairs, known=known, propose=propose, on_pair=on_pair, checkpoint=checkpoint
    )
    tried = len(pairs)
    graphs, sure = graph.decided(edges, M)
    if len(graphs[0].groups) > 1:
        scans, more, dead, extra = _between(scans, graphs[0], rng, propose, on_pair, checkpoint)
        edges, crashed, tried = [*_without(edges, more), *more], [*crashed, *dead], tried + extra
        graphs, sure = graph.decided(edges, M)
    groups = graphs[0].groups
    if look and len(groups) > 1 and len(groups[0]) > M / 2 and _in_place(graphs[0], lying):
        doubts = _doubts(graphs[0], sure, prepared)
        return Start(
            (as_given,),
            (tuple(range(M)),),
            IDENTITY,
            tried,
            tuple(crashed),
            doubts,
            graphs[0],
            prepared,
        )
    if len(groups) == M:
        reason = "no other cloud could be matched with it; it was taken as it lies"
        doubts = tuple(Doubt(j, reason) for j in range(M))
        return Start((as_given,), (tuple(range(M)),), IDENTITY, tried, tuple(crashed), doubts)
    prepared = replace(prepared, scans=scans)
    return Start(
        tuple(prepared.leave(each.poses) for each in graphs if each.groups == groups),
        groups,
        MATCHED,
        tried,
        tuple(crashed),
        _doubts(graphs[0], sure, prepared),
        graphs[0],
        prepared,
    )


def _in_place(settled: Graph, lying: Float[Array, "M 4 4"]) -> bool:
    """Whether the clouds of the largest group lie, all relative to all, about where their edges put
    them.

    Edges alone do not tell: scans from a turntable lie on top of each other, neighbours not far
    from where they belong, and yet the way around leads to the other side.
    """
    group = list(settled.groups[0])
    found, given = geometry.inverse(settled.poses[group]), geometry.inverse(lying[group])
    return all(
        verify.motion_distance(found[i] @ settled.poses[j], given[i] @ lying[j]) < NEARBY
        for i in range(len(group))
        for j in group[:i]
    )


def contradicted_clouds(
    begun: Start, poses: Float[Array, "m D1 D1"], group: Sequence[int]
) -> tuple[Doubt, ...]:
    """Clouds of a group that a fit has carried away from where most of the evidence of their pairs
    puts them.
    """
    if begun.graph is None or begun.prepared is None:
        return ()
    M = len(begun.prepared.scans)
    whole = geometry.identity(M, begun.prepared.dimension)
    whole[list(group)] = poses
    entered = begun.prepared.enter(whole)
    held, lost = np.zeros(M), np.zeros(M)
    left: list[tuple[Edge, Float[Array, "4 4"]]] = []
    for edge in begun.graph.edges:
        if edge.first not in group:
            continue
        motion = geometry.inverse(entered[edge.second]) @ entered[edge.first]
        held[[edge.first, edge.second]] += edge.best.weight
        if verify.motion_distance(motion, edge.best.motion) > verify.SAME:
            left.append((edge, motion))
    pairs = [(edge.first, edge.second) for edge, _ in left]
    for (edge, _), found in zip(
        left,
        begun.prepared.scans.map_pairs(verify.verify, pairs, [T for _, T in left]),
        strict=True,
    ):
        if found.weight < LEFT * edge.best.weight:
            lost[[edge.first, edge.second]] += edge.best.weight
    reason = "the fit has left the place where its pairs with other clouds were matched"
    return tuple(Doubt(int(j), reason) for j in np.flatnonzero(lost > 0.5 * held))


def _scan(cloud: Source, summary: Summary, side: float) -> ThinScan:
    make = ThinScan.of if len(summary.median) == 3 else planar.embedded
    return make(features.thin(cloud, summary, side) / side)


def _turned(scan: ThinScan, inside_out: bool) -> ThinScan:
    return scan.flipped() if inside_out else scan


def _without(edges: Sequence[Edge], others: Sequence[Edge]) -> list[Edge]:
    known = {(edge.first, edge.second) for edge in others}
    return [edge for edge in edges if (edge.first, edge.second) not in known]


def _between(
    scans: PerCloud[ThinScan],
    settled: Graph,
    rng: np.random.Generator,
    propose: match.Propose | None,
    on_pair: Callable[[int, int], object],
    checkpoint: Checkpoint | None,
) -> tuple[PerCloud[ThinScan], list[Edge], list[Pair], int]:
    """Edges between the groups, found with the normals of one of the two turned inside out: their
    sides are a guess.

    Scans of groups that are connected this way stay turned. Groups are tried against the largest
    first.
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
            both = scans.map_keep(_turned, [j in group for j in range(len(scans))])
            pairs = [(min(a, b), max(a, b)) for a in sorted(main) for b in group]
            if len(pairs) > match.MOST_PAIRS:
                pairs = [
                    pairs[i]
                    for i in np.sort(rng.choice(len(pairs), match.MOST_PAIRS, replace=False))
                ]
            more, dead = match.edges(
                both, pairs, propose=propose, on_pair=on_pair, checkpoint=checkpoint
            )
            count, crashed = count + len(pairs), [*crashed, *dead]
            good = graph.unambiguous(more)
            if good:
                found += good
                main |= set(group)
                waiting.remove(group)
                scans = both
                progress = True
    return scans, found, crashed, count


def _doubts(
    settled: Graph, sure: tuple[tuple[int, ...], ...], prepared: Prepared
) -> tuple[Doubt, ...]:
    """Clouds that only ambiguous edges connect with the others of their group: they would fit as
    well elsewhere.
    """
    doubts = []
    for group in settled.groups:
        certain = next(part for part in sure if set(part) <= set(group))  # the largest
        for j in group if len(certain) == 1 else sorted(set(group) - set(certain)):
            held = [edge for edge in settled.edges if j in (edge.first, edge.second)]
            places = [place for edge in held for place in _elsewhere(edge, j, settled, prepared)]
            if held:
                reason = (
                    "its place is ambiguous: it fits about as well elsewhere (other places found:"
                    f" {len(places)})"
                )
                doubts.append(Doubt(j, reason, tuple(places)))
    return tuple(doubts)


def _elsewhere(
    edge: Edge, cloud: int, settled: Graph, prepared: Prepared
) -> list[Float[Array, "D1 D1"]]:
    """Other poses of one of an edge's clouds, in user coordinates, for which the evidence is about
    as good.
    """
    poses = settled.poses.copy()
    places = []
    for other in (other for other in edge.others if other.weight >= AS_GOOD * edge.best.weight):
        if cloud == edge.first:
            poses[cloud] = settled.poses[edge.second] @ other.motion
        else:
            poses[cloud] = settled.poses[edge.first] @ geometry.inverse(other.motion)
        places.append(prepared.leave(poses)[cloud])
    return places
