# SPDX-License-Identifier: MIT
"""Start poses from nothing: clouds in arbitrary poses in, hypotheses about their poses out.

First the poses that the clouds came with are checked: a rig or a tracked scanner needs few matches.
Where these have more evidence elsewhere, or the clouds are not in place, all pairs are matched and
connected. Where both starts are possible, both are returned: points of the whole clouds decide
between them, which the search does not see. What the data do not decide is reported: groups that
nothing connects, and clouds whose pose is ambiguous.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.compute.checkpoint import Checkpoint
from coframe.compute.per_cloud import Pair, PerCloud
from coframe.input.normalise import Summary
from coframe.input.source import Source
from coframe.start import assembly, conflicts, features, graph, match, planar, verify
from coframe.start.doubt import Doubt
from coframe.start.features import ThinScan
from coframe.start.graph import Graph, Groups
from coframe.start.match import Edge
from coframe.start.patches import Patches
from coframe.start.recipe import START, StartRecipe
from coframe.start.verify import Motion
from coframe.types import Array, Pose, Poses

# [guard] Poses are rounded to multiples of this, in radians and spacings, so that the rounding of
# the input does not show.
GRID = 2.0**-10
# [format] Where start poses come from, as results say it.
IDENTITY = "identity"
MATCHED = "matched"
GIVEN = "given"
TARGETS = "targets"
# Why clouds are in doubt.
UNMATCHED = (
    "no other cloud could be matched with it, so its pose is the one it came with; give start"
    " poses, or scans that overlap more"
)
CONTRADICTED = (
    "the fit moved it away from where it matched other clouds; check it in the report, or give"
    " start poses"
)


@dataclass(frozen=True)
class ThinScans:
    """Thin scans of all clouds, and their coordinates u: v = centre + spacing u in user units."""

    scans: PerCloud[ThinScan]
    centres: Float[Array, "M 3"]
    spacing: float
    dimension: int = 3

    @classmethod
    def of(
        cls,
        clouds: PerCloud[Source],
        summaries: Sequence[Summary],
        points: int,
        recipe: StartRecipe = START,
    ) -> "ThinScans":
        """Thin the clouds out to a common spacing, at which the median cloud has `points`."""
        D = len(summaries[0].median)
        centres = np.array([summary.median for summary in summaries])
        side = features.find_spacing(clouds, summaries, points)
        scans = clouds.map_keep(_thin_scan, summaries, shared=(side, recipe))
        # All or none: evidence of patches and of points does not compare.
        built = D == 3 and 2 * sum(scans.map(assembly.is_built, shared=(recipe,))) > len(scans)
        scans = scans.map_keep(_with_patches, shared=(built,))
        return cls(scans, np.pad(centres, ((0, 0), (0, 3 - D))), side, D)

    def __len__(self) -> int:
        return len(self.scans)

    @property
    def identity(self) -> Poses:
        """User poses that leave the clouds as they are."""
        return geometry.identity(len(self), self.dimension)

    def enter_poses(self, poses: Poses) -> Float[Array, "M 4 4"]:
        """User poses as poses of the scans."""
        D = self.dimension
        R = np.tile(np.eye(3), (len(poses), 1, 1))
        R[:, :D, :D] = geometry.rotation(poses)
        t = np.einsum("jab,jb->ja", R, self.centres)
        t[:, :D] += geometry.translation(poses)
        return geometry.pose(R, (t - t.mean(0)) / self.spacing)

    def leave_poses(self, poses: Float[Array, "M 4 4"]) -> Poses:
        """Poses of the scans as user poses, rounded."""
        D = self.dimension
        turns = np.round(geometry.log_rotation(geometry.rotation(poses)) / GRID) * GRID
        R = geometry.exp_rotation(turns)
        t = np.round(geometry.translation(poses) / GRID) * GRID
        t = self.spacing * t - np.einsum("jab,jb->ja", R, self.centres)
        return geometry.pose(R[:, :D, :D], t[:, :D])


@dataclass(frozen=True)
class Start:
    """Hypotheses about the poses, best first, and what is known about them."""

    # User poses.
    poses: tuple[Poses, ...]
    # Connected clouds; poses of different groups have nothing in common.
    groups: Groups
    # IDENTITY, MATCHED, GIVEN or TARGETS.
    source: str
    # Pairs that were matched.
    pairs: int
    doubts: tuple[Doubt, ...] = ()
    # The evidence that the poses rest on, if there is any, and the scans it was found with.
    graph: Graph | None = None
    thin: ThinScans | None = None
    # Other starts that are possible, each with all clouds in one group.
    rivals: "tuple[Start, ...]" = ()

    @property
    def certainty(self) -> tuple[bool, int]:
        """Greater for a start that rests on evidence, then for one with fewer groups."""
        return self.graph is not None, -len(self.groups)


def find_start(
    clouds: PerCloud[Source],
    summaries: Sequence[Summary],
    *,
    rng: np.random.Generator,
    try_identity: bool = True,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
    checkpoint: Checkpoint | None = None,
    recipe: StartRecipe = START,
) -> Start:
    """Find start poses, with fewer points where many do not connect all clouds.

    `try_identity`: check first whether the clouds are in place already.
    """
    tried = 0
    best: Start | None = None
    D = len(summaries[0].median)
    points = recipe.points_2d if D == 2 else recipe.points_3d
    # At twice the spacing, half the points are left of a curve, a quarter of a surface.
    for count in (points, points // 2 ** (D - 1)):
        thin = ThinScans.of(clouds, summaries, count, recipe)
        found = _Search(thin, rng, try_identity, on_pair, checkpoint, recipe).run()
        tried += found.pairs
        if best is None or found.certainty > best.certainty:
            best = found
        # Of a built place nothing is left but planes where points are few.
        if best.certainty == (True, -1) or all(thin.scans.map(assembly.has_patches)):
            break
    assert best is not None
    return replace(best, pairs=tried)


@dataclass(frozen=True)
class _Matches:
    """Edges of all pairs that were matched, and the scans with the normals that fit them."""

    thin: ThinScans
    edges: list[Edge]
    pairs: int


@dataclass(frozen=True)
class _InPlace:
    """Clouds that are about in place already: what their pairs say of it."""

    thin: ThinScans
    graph: Graph
    certain: Groups


@dataclass(frozen=True)
class _Search:
    """The search for start poses with scans of one spacing."""

    thin: ThinScans
    rng: np.random.Generator
    try_identity: bool
    on_pair: Callable[[int, int], object]
    checkpoint: Checkpoint | None
    recipe: StartRecipe

    def run(self) -> Start:
        """Check the identity, match pairs, connect groups, decide."""
        similar = planar.similarity if self.thin.dimension == 2 else None
        pairs = match.candidate_pairs(self.thin.scans, self.rng, self.recipe, similar)
        in_place = self._check_identity(pairs) if self.try_identity else None
        if in_place is None:
            return self._find_matched(pairs, self._motions(pairs) if self.try_identity else None)
        matched = self._match_strongest(in_place)
        groups = (tuple(range(len(self.thin))),)
        doubts = _find_doubts(in_place.graph, in_place.certain, in_place.thin, self.recipe)
        refined = in_place.thin.leave_poses(in_place.graph.poses)
        starts = [
            Start((poses,), groups, source, len(matched), doubts, in_place.graph, in_place.thin)
            for source, poses in ((IDENTITY, self.thin.identity), (MATCHED, refined))
        ]
        if self._refuted(in_place, matched):
            starts.append(self._find_matched(pairs))
        return self._with_rivals(starts)

    def _with_rivals(self, starts: list[Start]) -> Start:
        """The first of several starts, those as rivals that differ and have about as much evidence.

        All clouds of a rival are in one group. Thin scans do not distinguish points of one cell.
        """
        whole = [start for start in starts if len(start.groups) == 1 and start.graph is not None]
        most = max(start.graph.evidence for start in whole if start.graph is not None)
        kept: list[Start] = []
        for start in whole:
            assert start.graph is not None
            distances = [self._displacement(start.poses[0], each.poses[0]) for each in kept]
            if start.graph.evidence >= self.recipe.rival_share * most and all(
                distance > self.recipe.neighbour_distance for distance in distances
            ):
                kept.append(start)
        pairs = max(start.pairs for start in starts)
        return replace(kept[0], pairs=pairs, rivals=tuple(kept[1:]))

    def _motions(self, pairs: list[Pair]) -> list[Motion]:
        """Motions of the pairs at the poses that the clouds came with."""
        poses = self.thin.enter_poses(self.thin.identity)
        return [geometry.inverse(poses[b]) @ poses[a] for a, b in pairs]

    def _check_identity(self, pairs: list[Pair]) -> _InPlace | None:
        """What the pairs say at the identity, if it fits all clouds."""
        found = _Matches(self.thin, self._verify(self.thin.scans, pairs), 0)
        graphs, _ = graph.solve_graph(found.edges, len(self.thin), self.recipe)
        if len(graphs[0].groups) > 1:
            # Ambiguous edges will do: no motion is sought.
            found = self._connect_groups(
                found, graphs[0].groups, self._verify, partial(graph.supported, recipe=self.recipe)
            )
            graphs, _ = graph.solve_graph(found.edges, len(self.thin), self.recipe)
        best = graphs[0]
        if len(best.groups) > 1 or not self._in_place(best):
            return None
        # That the clouds came like this speaks for it: other poses must only be worse than chance
        # makes them.
        decided = [e for e in best.edges if e.margin >= graph.needed_evidence(e, self.recipe)]
        certain = graph.best_graph(decided, len(self.thin), recipe=self.recipe).groups
        return _InPlace(found.thin, best, certain)

    def _verify(self, scans: PerCloud[ThinScan], pairs: list[Pair]) -> list[Edge]:
        columns = pairs, self._motions(pairs), [self.recipe] * len(pairs)
        return scans.map_pairs(match.edge_at, pairs, *columns)

    def _match_strongest(self, in_place: _InPlace) -> list[Edge]:
        """Match each cloud with the one that it has most evidence with where it is."""
        chosen = set()
        for j in range(len(self.thin)):
            edges = [edge for edge in in_place.graph.edges if j in (edge.first, edge.second)]
            best = max(edges, key=lambda edge: edge.best.weight)
            chosen.add((best.first, best.second))
        return self._match(in_place.thin.scans, sorted(chosen))

    def _refuted(self, in_place: _InPlace, matched: list[Edge]) -> bool:
        """Whether a matched pair has more evidence elsewhere than where it is."""
        known = {(edge.first, edge.second): edge.best for edge in in_place.graph.edges}
        return any(
            edge.best.weight > known[edge.first, edge.second].weight
            and verify.motion_distance(
                edge.best.motion, known[edge.first, edge.second].motion, self.recipe
            )
            > self.recipe.first_gate
            for edge in matched
        )

    def _find_matched(self, pairs: list[Pair], guesses: list[Motion] | None = None) -> Start:
        """The start that matched pairs give; `guesses` are verified beside what is found."""
        edges = self._match(self.thin.scans, pairs, guesses)
        matches = _Matches(self.thin, edges, len(pairs))
        graphs, certain = graph.solve_graph(matches.edges, len(self.thin), self.recipe)
        if len(graphs[0].groups) > 1:
            matches = self._connect_groups(
                matches,
                graphs[0].groups,
                self._match,
                partial(graph.unambiguous, recipe=self.recipe),
            )
            graphs, certain = graph.solve_graph(matches.edges, len(self.thin), self.recipe)
        return self._decide(matches, graphs, certain)

    def _match(
        self, scans: PerCloud[ThinScan], pairs: list[Pair], guesses: list[Motion] | None = None
    ) -> list[Edge]:
        edges = match.match_pairs(
            scans,
            pairs,
            guesses=guesses,
            find=match.find_motions if self.thin.dimension == 3 else planar.find_motions,
            on_pair=self.on_pair,
            checkpoint=self.checkpoint,
            recipe=self.recipe,
        )
        return conflicts.resolved(
            scans, assembly.consistent(scans, edges, self.recipe), self.recipe
        )

    def _connect_groups(
        self,
        matches: _Matches,
        groups: Groups,
        find_edges: Callable[[PerCloud[ThinScan], list[Pair]], list[Edge]],
        select: Callable[[list[Edge]], list[Edge]],
    ) -> _Matches:
        """Try groups with the largest one again, with reversed normals: their sides are a guess.

        Scans of groups that are connected this way keep the reversed normals, and their new edges
        replace those of the same pairs.
        """
        scans = matches.thin.scans
        edges: list[Edge] = []
        tried = matches.pairs
        main = set(groups[0])
        reversed_ones: set[int] = set()
        # The sides of the surfaces of a built place are known.
        waiting = [] if all(scans.map(assembly.has_patches)) else list(groups[1:])
        progress = True
        while waiting and progress:
            progress = False
            for group in list(waiting):
                # As they are, only those have not been tried that were reversed meanwhile.
                for others, reverse in ((main, True), (reversed_ones, False)):
                    flips = [reverse and j in group for j in range(len(scans))]
                    flipped = scans.map_keep(_flip, flips)
                    pairs = self._pairs_between(others, group)
                    good = select(find_edges(flipped, pairs)) if pairs else []
                    tried += len(pairs)
                    if good:
                        edges += good
                        main |= set(group)
                        reversed_ones |= set(group) if reverse else set()
                        waiting.remove(group)
                        scans = flipped
                        progress = True
                        break
        known = {(edge.first, edge.second) for edge in edges}
        old = [edge for edge in matches.edges if (edge.first, edge.second) not in known]
        return _Matches(replace(matches.thin, scans=scans), [*old, *edges], tried)

    def _pairs_between(self, main: set[int], group: Sequence[int]) -> list[Pair]:
        """Pairs of a cloud of each, or so many of them drawn."""
        pairs = [(min(a, b), max(a, b)) for a in sorted(main) for b in group]
        most = self.recipe.max_pairs
        if len(pairs) <= most:
            return pairs
        return [pairs[i] for i in np.sort(self.rng.choice(len(pairs), most, replace=False))]

    def _decide(self, matches: _Matches, graphs: list[Graph], certain: Groups) -> Start:
        """The identity if most clouds are in place or nothing was matched, else the hypotheses."""
        best = graphs[0]
        pairs = matches.pairs
        doubts = _find_doubts(best, certain, matches.thin, self.recipe)
        if (
            self.try_identity
            and len(best.groups) > 1
            and 2 * len(best.groups[0]) > len(self.thin)
            and self._in_place(best)
        ):
            return self._start_at_identity(doubts, pairs, best)
        if len(best.groups) == len(self.thin):
            unmatched = tuple(Doubt(j, UNMATCHED) for j in range(len(self.thin)))
            return self._start_at_identity(unmatched, pairs)
        poses = tuple(matches.thin.leave_poses(g.poses) for g in graphs if g.groups == best.groups)
        return Start(poses, best.groups, MATCHED, pairs, doubts, best, matches.thin)

    def _start_at_identity(
        self,
        doubts: tuple[Doubt, ...],
        pairs: int = 0,
        best: Graph | None = None,
    ) -> Start:
        groups = (tuple(range(len(self.thin))),)
        poses = (self.thin.identity,)
        return Start(poses, groups, IDENTITY, pairs, doubts, best, self.thin)

    def _in_place(self, found: Graph) -> bool:
        """Whether the clouds of the largest group are about where their edges put them.

        All relative to all, since edges alone do not decide: scans from a turntable lie on top of
        each other, neighbours not far from their true poses, and yet the way around leads to the
        other side.
        """
        group = list(found.groups[0])
        poses = self.thin.enter_poses(self.thin.identity)[group]
        return self._largest_distance(poses, found.poses[group]) < self.recipe.max_displacement

    def _displacement(self, some: Poses, others: Poses) -> float:
        """How far [spacings] two clouds are displaced against each other, at most."""
        return self._largest_distance(self.thin.enter_poses(some), self.thin.enter_poses(others))

    def _largest_distance(
        self, some: Float[Array, "n 4 4"], others: Float[Array, "n 4 4"]
    ) -> float:
        """The same of poses of the scans."""
        one, other = geometry.inverse(some), geometry.inverse(others)
        return max(
            float(
                verify.motion_distances(one[i] @ some[:i], other[i] @ others[:i], self.recipe).max()
            )
            for i in range(1, len(some))
        )


def contradicted_clouds(
    start: Start, poses: Float[Array, "m D1 D1"], group: Sequence[int], recipe: StartRecipe = START
) -> tuple[Doubt, ...]:
    """Clouds of a group that a fit has moved away from where most of their edges put them."""
    if start.graph is None or start.thin is None:
        return ()
    fitted = start.thin.identity
    fitted[list(group)] = poses
    fitted = start.thin.enter_poses(fitted)
    evidence = np.zeros(len(start.thin))
    contradicted = np.zeros(len(start.thin))
    moved: list[tuple[Edge, Motion]] = []
    for edge in start.graph.edges:
        if edge.first not in group:
            continue
        motion = geometry.inverse(fitted[edge.second]) @ fitted[edge.first]
        evidence[[edge.first, edge.second]] += edge.best.weight
        if verify.motion_distance(motion, edge.best.motion, recipe) > recipe.first_gate:
            moved.append((edge, motion))
    pairs = [(edge.first, edge.second) for edge, _ in moved]
    motions = [motion for _, motion in moved]
    left = start.thin.scans.map_pairs(match.verify_motion, pairs, motions, [recipe] * len(pairs))
    for (edge, _), found in zip(moved, left, strict=True):
        if found.weight < recipe.rival_share * edge.best.weight:
            contradicted[[edge.first, edge.second]] += edge.best.weight
    doubtful = np.flatnonzero(2 * contradicted > evidence)
    return tuple(Doubt(int(j), CONTRADICTED) for j in doubtful)


def _thin_scan(cloud: Source, summary: Summary, side: float, recipe: StartRecipe) -> ThinScan:
    points = features.thin(cloud, summary, side) / side
    if len(summary.median) == 2:
        return planar.planar_scan(points, recipe)
    return replace(ThinScan.of(points, recipe), patches=Patches.of(points))


def _with_patches(scan: ThinScan, built: bool) -> ThinScan:
    return scan if built else replace(scan, patches=None)


def _flip(scan: ThinScan, reverse: bool) -> ThinScan:
    return scan.flipped if reverse else scan


def _find_doubts(
    found: Graph, certain: Groups, thin: ThinScans, recipe: StartRecipe
) -> tuple[Doubt, ...]:
    """Clouds that only ambiguous edges connect with the others of their group."""
    doubts = []
    for group in found.groups:
        core = next(part for part in certain if set(part) <= set(group))  # Largest first.
        for j in group if len(core) == 1 else sorted(set(group) - set(core)):
            edges = [edge for edge in found.edges if j in (edge.first, edge.second)]
            if edges:
                motions = [T for e in edges for T in _alternatives(e, j, found, thin, recipe)]
                slides = all(edge.best.stiffness < recipe.min_stiffness for edge in edges)
                reason = _reason(len(motions), slides)
                chance = not motions and not slides
                doubts.append(Doubt(j, reason, tuple(motions), not motions, by_chance=chance))
    return tuple(doubts)


def _reason(alternatives: int, slides: bool) -> str:
    """Why a pose is ambiguous, and what to do."""
    if alternatives:
        why = f"it fits about as well elsewhere (other poses found: {alternatives})"
    elif slides:
        why = "it can slide along the surface that it shares with others"
    else:
        why = "it shares too little surface with others to exclude chance"
    return f"its pose is ambiguous: {why}; give start poses, or scans that overlap more"


def _alternatives(
    edge: Edge, cloud: int, found: Graph, thin: ThinScans, recipe: StartRecipe
) -> list[Pose]:
    """Motions of one of an edge's clouds, in its own frame, to places with as much evidence."""
    poses = found.poses.copy()
    here = geometry.inverse(thin.leave_poses(poses)[cloud])
    motions = []
    for other in edge.others:
        if other.weight < recipe.rival_share * edge.best.weight:
            continue
        if cloud == edge.first:
            poses[cloud] = found.poses[edge.second] @ other.motion
        else:
            poses[cloud] = found.poses[edge.first] @ geometry.inverse(other.motion)
        motions.append(here @ thin.leave_poses(poses)[cloud])
    return motions
