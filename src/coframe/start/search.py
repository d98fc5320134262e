# SPDX-License-Identifier: MIT
"""Start poses from nothing: clouds in arbitrary poses in, hypotheses about their poses out.

First the poses that the clouds came with are checked: a rig or a tracked scanner needs no matching.
Where these do not fit, pairs of clouds are matched and connected. What the data do not decide is
reported: groups that nothing connects, and clouds whose pose is ambiguous.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.compute.checkpoint import Checkpoint
from coframe.compute.per_cloud import Pair, PerCloud
from coframe.input.normalise import Summary
from coframe.input.source import Source
from coframe.start import features, graph, match, planar, verify
from coframe.start.doubt import Doubt
from coframe.start.features import ThinScan
from coframe.start.graph import Graph, Groups
from coframe.start.match import Edge
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
    # IDENTITY, MATCHED or GIVEN.
    source: str
    # Pairs that were matched.
    pairs: int
    doubts: tuple[Doubt, ...] = ()
    # The evidence that the poses rest on, if there is any, and the scans it was found with.
    graph: Graph | None = None
    thin: ThinScans | None = None

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
        if best.certainty == (True, -1):
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
        M = len(self.thin)
        pairs = match.candidate_pairs(self.thin.scans, self.rng, self.recipe)
        poses = self.thin.enter_poses(self.thin.identity)
        motions = [geometry.inverse(poses[b]) @ poses[a] for a, b in pairs]
        if self.try_identity:
            start = self._check_identity(pairs, motions)
            if start is not None:
                return start
        edges = self._match(self.thin.scans, pairs, motions if self.try_identity else None)
        matches = _Matches(self.thin, edges, len(pairs))
        graphs, certain = graph.solve_graph(matches.edges, M, self.recipe)
        if len(graphs[0].groups) > 1:
            matches = self._connect_groups(matches, graphs[0].groups)
            graphs, certain = graph.solve_graph(matches.edges, M, self.recipe)
        return self._decide(matches, graphs, certain)

    def _check_identity(self, pairs: list[Pair], motions: list[Motion]) -> Start | None:
        """The start at the identity, if it fits all clouds."""
        columns = pairs, motions, [self.recipe] * len(pairs)
        edges = self.thin.scans.map_pairs(match.edge_at, pairs, *columns)
        (best, *_), certain = graph.solve_graph(edges, len(self.thin), self.recipe)
        if len(best.groups) > 1 or not self._in_place(best):
            return None
        return self._start_at_identity(
            _find_doubts(best, certain, self.thin, self.recipe), best=best
        )

    def _match(
        self, scans: PerCloud[ThinScan], pairs: list[Pair], guesses: list[Motion] | None = None
    ) -> list[Edge]:
        return match.match_pairs(
            scans,
            pairs,
            guesses=guesses,
            find=match.find_motions if self.thin.dimension == 3 else planar.find_motions,
            on_pair=self.on_pair,
            checkpoint=self.checkpoint,
            recipe=self.recipe,
        )

    def _connect_groups(self, matches: _Matches, groups: Groups) -> _Matches:
        """Match groups with the largest one again, with reversed normals: their sides are a guess.

        Scans of groups that are connected this way keep the reversed normals, and their new edges
        replace those of the same pairs.
        """
        scans = matches.thin.scans
        edges: list[Edge] = []
        tried = matches.pairs
        main = set(groups[0])
        waiting = list(groups[1:])
        progress = True
        while waiting and progress:
            progress = False
            for group in list(waiting):
                flips = [j in group for j in range(len(scans))]
                flipped = scans.map_keep(_flip, flips, shared=(self.recipe,))
                pairs = self._pairs_between(main, group)
                found = self._match(flipped, pairs)
                tried += len(pairs)
                good = graph.unambiguous(found, self.recipe)
                if good:
                    edges += good
                    main |= set(group)
                    waiting.remove(group)
                    scans = flipped
                    progress = True
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
        inverse = geometry.inverse(poses)
        found_poses = found.poses[group]
        inverse_found = geometry.inverse(found_poses)
        return all(
            verify.motion_distances(
                inverse_found[i] @ found_poses[:i], inverse[i] @ poses[:i], self.recipe
            ).max()
            < self.recipe.max_displacement
            for i in range(1, len(group))
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
    left = start.thin.scans.map_pairs(verify.verify, pairs, motions, [recipe] * len(pairs))
    for (edge, _), found in zip(moved, left, strict=True):
        if found.weight < recipe.rival_share * edge.best.weight:
            contradicted[[edge.first, edge.second]] += edge.best.weight
    doubtful = np.flatnonzero(2 * contradicted > evidence)
    return tuple(Doubt(int(j), CONTRADICTED) for j in doubtful)


def _thin_scan(cloud: Source, summary: Summary, side: float, recipe: StartRecipe) -> ThinScan:
    make = ThinScan.of if len(summary.median) == 3 else planar.planar_scan
    return make(features.thin(cloud, summary, side) / side, recipe)


def _flip(scan: ThinScan, reverse: bool, recipe: StartRecipe) -> ThinScan:
    return scan.flipped(recipe) if reverse else scan


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
                poses = [pose for e in edges for pose in _alternatives(e, j, found, thin, recipe)]
                slides = all(edge.best.stiffness < recipe.min_stiffness for edge in edges)
                doubts.append(Doubt(j, _reason(len(poses), slides), tuple(poses)))
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
    """Other user poses of one of an edge's clouds with about as much evidence."""
    poses = found.poses.copy()
    alternatives = []
    for other in edge.others:
        if other.weight < recipe.rival_share * edge.best.weight:
            continue
        if cloud == edge.first:
            poses[cloud] = found.poses[edge.second] @ other.motion
        else:
            poses[cloud] = found.poses[edge.first] @ geometry.inverse(other.motion)
        alternatives.append(thin.leave_poses(poses)[cloud])
    return alternatives
