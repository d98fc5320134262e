# SPDX-License-Identifier: MIT
"""Do clouds agree where they share territory? A measure that overlap alone cannot improve.

At fixed K the likelihood pays for overlap: clouds on top of each other need less surface, so that
each component is smaller and every point denser. So hypotheses about poses are compared by
something else. Every cloud has small flat patches. Where a patch of one cloud lies within a patch
of another, whatever its height, the two share territory. There the heights either agree, within
what the scatter of both patches and the spacing of the points allow, or they contradict each other.
Only the share of contradictions counts: more territory does not improve it.

Patches that face away from each other are the two sides of a slab or of a thin body, not
contradictions. Which way a patch faces is not known; but a cloud was seen from one side, or from
within (`_orient`).

Contradictions come in clusters. So the points of a cloud are dealt out to blocks of neighbours, and
the variance of a share is estimated from how much it differs between blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.align import sampling
from coframe.align.recipe import ALIGN, AlignRecipe, EvidenceRecipe
from coframe.compute.per_cloud import Local, PerCloud
from coframe.input.normalise import RADIUS, Normalisation
from coframe.input.source import Rows, Source
from coframe.nearest import Nearest
from coframe.types import Array, Points, Pose, Poses

# [size] Points of a block of neighbours.
BLOCK = 32
# [size] Patches of all clouds together that are compared with other clouds, about.
QUERIES = 12_000
# [size] Patches of one cloud that are compared with other clouds: at least, at most.
FEWEST, MOST = 200, 600
# [size] Clouds that one is compared with, at most.
PARTNERS = 8
# [size] Points of all clouds together that have patches, about.
POINTS = 600_000
# [size] Passes that find the side that a cloud was seen from.
PASSES = 5
# [guard] Radii of a patch beyond which nothing is in its territory: more than the root of 1 + 1/4.
NEAR = 1.12
# Of a surface, one entry for each patch.
COLUMNS = ("centres", "normals", "variances", "radii", "spacings", "flat", "facing")
# [guard] Patches that must be compared before a threshold is taken from them.
ENOUGH = 20


@dataclass(frozen=True)
class Surface:
    """Patches of a cloud, in its own frame and in kd order. All but the normals are symmetric."""

    centres: Points
    normals: Float[Array, "N D"]  # towards the middle of the cloud
    variances: Float[Array, " N"]  # of the points about the patch's plane
    radii: Float[Array, " N"]  # distance of the patch's outermost point
    spacings: Float[Array, " N"]  # distance of the nearest point
    flat: Bool[Array, " N"]
    facing: Bool[Array, " N"]  # whether it is known which way the patch faces
    aside: bool = False  # seen from one side: the common sign of its normals is not known
    threshold: float = 0.0  # standard deviations: heights that differ more contradict each other
    own: float = 1.0  # share of flat patches of one half of the points in territory of the other

    def __len__(self) -> int:
        return len(self.centres)

    @cached_property
    def middle(self) -> Float[Array, " D"]:
        """The median of the centres."""
        return np.median(self.centres, axis=0)

    @cached_property
    def extent(self) -> float:
        """The size of the box around the centres, see `geometry.extent`."""
        return geometry.extent(self.centres)

    @cached_property
    def nearest(self) -> Nearest:
        """The centres, to be searched."""
        return Nearest.of(cKDTree(self.centres))

    def subset(self, rows: Int[Array, " n"]) -> "Surface":
        """Some of the patches."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})


@dataclass(frozen=True)
class Agreement:
    """How many patches of each cloud agree with another one, or contradict it, under some poses.

    Attributes
    ----------
    agree, contradict : (M, M) arrays of int
        [j, i]: patches of cloud j in the territory of cloud i.
    blocks : tuple of (B, 2) arrays of int
        Per cloud and block of neighbours: patches in territory, and those that contradict.
    pairs : mapping of (int, int) to (B, 2) array of int
        The blocks of cloud j in the territory of cloud i alone.
    """

    agree: Int[Array, "M M"]
    contradict: Int[Array, "M M"]
    blocks: tuple[Int[Array, "_ 2"], ...]
    pairs: Mapping[tuple[int, int], Int[Array, "_ 2"]] = field(default_factory=dict)

    @property
    def territory(self) -> Int[Array, " M"]:
        """Per cloud: patches in the territory of other clouds."""
        return (self.agree + self.contradict).sum(1)

    @property
    def silent(self) -> bool:
        """Whether the clouds share too little territory for their shares to say anything."""
        return bool(np.median(self.territory) < BLOCK)

    @property
    def isolated(self) -> list[int]:
        """Clouds that share too little territory for their own share to say anything.

        None where all clouds are like that.
        """
        found: list[int] = np.flatnonzero(self.territory < BLOCK).tolist()
        return found if len(found) < len(self.territory) else []

    @property
    def shares(self) -> Float[Array, " M"]:
        """Per cloud: the share of contradictions; 0 where there is no territory."""
        return self.contradict.sum(1) / np.maximum(self.territory, 1)


def draw_surface(cloud: Source, rows: Rows, frame: Normalisation, recipe: AlignRecipe) -> Surface:
    """The patches of some points of a cloud, in internal coordinates."""
    points = frame.enter([cloud.counted().take(rows).points])[0]
    return surface(points, recipe)


def surface(points: Points, recipe: AlignRecipe = ALIGN) -> Surface:
    """The patches of a cloud, one for each point.

    One half of the points against the other says what heights to expect where nothing is wrong: the
    threshold is as large as that needs.
    """
    from coframe.em.kernels import kd_order  # Numba, which verdicts alone do not need

    points = points[kd_order(np.ascontiguousarray(points), BLOCK)]
    whole = _patches(points, recipe)
    own = recipe.evidence
    whole = replace(whole, threshold=own.sigmas)
    if len(points) < 2 * ENOUGH:
        return whole
    one, other = _patches(points[::2], recipe), _patches(points[1::2], recipe)
    # The halves face the same way, but it may be that the sign is not the same.
    met = meet(one, other, np.eye(points.shape[1] + 1), own, 0.0)
    share = float(met.inside.sum() / max(one.flat.sum(), 1))
    if met.inside.sum() < ENOUGH:
        return replace(whole, own=share)
    threshold = max(own.sigmas, float(np.quantile(met.sigmas[met.inside], own.level)))
    return replace(whole, threshold=threshold, own=share)


def agreement(
    surfaces: Sequence[Surface],
    poses: Poses,
    recipe: EvidenceRecipe = ALIGN.evidence,
    threads: int | None = 1,
) -> Agreement:
    """Compare every cloud with those around it. Costs O(M) queries for many clouds."""
    M = len(surfaces)
    agree, contradict = np.zeros((2, M, M), int)
    blocks = []
    pairs = {}
    inverse = geometry.inverse(poses)
    some = [some_patches(each, M) for each in surfaces]
    signs = signs_of(surfaces, poses, recipe)
    partners = partners_of(surfaces, poses)

    def compared(j: int) -> list[tuple[Bool[Array, " n"], Bool[Array, " n"]]]:
        signed = [(i, inverse[i] @ poses[j], signs[j] * signs[i]) for i in partners[j]]
        return [compare(some[j], surfaces[i], motion, recipe, sign) for i, motion, sign in signed]

    for j, each in enumerate(Local(range(M), threads).map(compared)):
        found = np.zeros((-(-len(some[j]) // BLOCK), 2), int)
        for i, (inside, fits) in zip(partners[j], each, strict=True):
            agree[j, i], contradict[j, i] = (inside & fits).sum(), (inside & ~fits).sum()
            pairs[j, i] = blocks_of(inside, fits)
            found += pairs[j, i]
        blocks.append(found)
    return Agreement(agree, contradict, tuple(blocks), pairs)


def contradicting(found: Agreement, recipe: EvidenceRecipe = ALIGN.evidence) -> dict[int, float]:
    """Clouds that contradict the others clearly more than is typical, and what is typical."""
    shares = found.shares
    clouds = {}
    for j, blocks in enumerate(found.blocks):
        others = np.delete(shares, j)
        typical = float(np.median(others)) if len(others) > 1 else 0.0
        least = shares[j] - recipe.clear * deviation_of(blocks)
        if least > typical + recipe.max_share:
            clouds[j] = typical
    return clouds


@dataclass(frozen=True)
class Split:
    """Clouds that agree with each other, and contradict the rest of those that are linked."""

    side: tuple[int, ...]
    rest: tuple[int, ...]
    across: float  # share of contradictions between the two
    within: float  # and among the clouds of each

    @property
    def doubtful(self) -> tuple[int, ...]:
        """The smaller part; all where none is smaller, as nothing says which one is right."""
        if len(self.side) == len(self.rest):
            return tuple(sorted(self.side + self.rest))
        return min(self.side, self.rest, key=len)


def splits(found: Agreement, recipe: EvidenceRecipe = ALIGN.evidence) -> list[Split]:
    """Where the clouds fall into two parts that contradict each other, clearest first.

    Two halves that were joined wrongly agree inside, so that no cloud contradicts the others more
    than is typical: all do. The parts are sought along the tree of the links that contradict least;
    without one of its links it falls into two. Where most of the territory between the two belongs
    to links that contradict much less than the others, these hold: the others are thin bodies seen
    from both sides, or things that moved.
    """
    # Of all ways to divide the clouds, the tree picks what stands out. With n of them, chance
    # reaches the square root of 2 log n standard deviations.
    ways = (len(found.agree) - 1) * np.log(2)
    clear = np.sqrt(recipe.clear**2 + 2 * ways)
    parts: list[tuple[float, Split]] = []
    for side, rest in _divided(found):
        across = share_of(_between(found, side, rest))
        within = share_of(_between(found, side, side, rest, rest))
        if across is None:
            continue
        # Of two clouds alone, nothing says how much they contradict each other where they are
        # right: points of one cloud do so by chance.
        usual = 1 - recipe.level if within is None else within.value
        variance = across.variance + (0.0 if within is None else within.variance)
        z = float((across.value - usual) / np.sqrt(variance))
        held = _territory_below(found, side, rest, across.value / 2)
        if across.value > 1 - recipe.level and 2 * held < 1 and z > clear:
            split = Split(tuple(sorted(side)), tuple(sorted(rest)), across.value, usual)
            parts.append((z, split))
    return [split for _, split in sorted(parts, key=lambda each: -each[0])]


def _links(found: Agreement) -> tuple[Int[Array, "M M"], Float[Array, "M M"]]:
    """Territory of each two clouds, and the share of contradictions there."""
    wrong = found.contradict + found.contradict.T
    territory = found.agree + found.agree.T + wrong
    return territory, (wrong + 1) / (territory + 2)


def _territory_below(found: Agreement, side: set[int], rest: set[int], share: float) -> float:
    """How much of the territory between two parts belongs to links that contradict less."""
    between = np.ix_(sorted(side), sorted(rest))
    territory, shares = (each[between] for each in _links(found))
    return float(territory[shares <= share].sum() / max(territory.sum(), 1))


def _divided(found: Agreement) -> list[tuple[set[int], set[int]]]:
    """The clouds at either side of each link of the tree of those that contradict least."""
    territory, shares = _links(found)
    links = np.where(np.triu(territory, 1) >= BLOCK, shares, 0.0)
    tree = minimum_spanning_tree(coo_array(links).tocsr()).tocoo()
    edges = list(zip(tree.row.tolist(), tree.col.tolist(), strict=True))
    parts = []
    for cut in edges:
        side, rest = (_reached(end, [edge for edge in edges if edge != cut]) for end in cut)
        parts.append((side, rest))
    return parts


def _reached(start: int, edges: Sequence[tuple[int, int]]) -> set[int]:
    """The clouds that edges connect with one."""
    found, new = {start}, {start}
    while new:
        touching = {j for edge in edges if new & {*edge} for j in edge}
        new = touching - found
        found |= new
    return found


def _between(found: Agreement, *parts: set[int]) -> list[Int[Array, "_ 2"]]:
    """Per cloud the blocks of the pairs between the first part and the second, and so on."""
    blocks: dict[int, Int[Array, "_ 2"]] = {}
    for one, other in zip(parts[::2], parts[1::2], strict=True):
        for (j, i), each in found.pairs.items():
            if (j in one and i in other) or (j in other and i in one):
                blocks[j] = blocks.get(j, 0) + each
    return [blocks[j] for j in sorted(blocks)]


def at_odds(found: Agreement, recipe: EvidenceRecipe = ALIGN.evidence) -> bool:
    """Whether the clouds, or one of them, contradict others clearly more than chance.

    By chance: as often as points of one cloud contradict each other.
    """
    every = [found.blocks, *([blocks] for blocks in found.blocks)]
    shares = [share for share in map(share_of, every) if share is not None]
    return any(
        share.value - recipe.clear * np.sqrt(share.variance) > 1 - recipe.level for share in shares
    )


def any_at_odds(found: Agreement, recipe: EvidenceRecipe = ALIGN.evidence) -> bool:
    """Whether a cloud contradicts others more often than by chance, be it clear or not."""
    return bool((found.shares > 1 - recipe.level).any())


def lead(a: Agreement, b: Agreement, clouds: Sequence[int] | None = None) -> float:
    """By how many standard deviations `a` has a smaller share of contradictions than `b`.

    0 where one of them has no territory. `clouds`: over these alone.
    """
    chosen = range(len(a.blocks)) if clouds is None else clouds
    return lead_of([a.blocks[j] for j in chosen], [b.blocks[j] for j in chosen])


def better(
    a: Sequence[Int[Array, "_ 2"]],
    b: Sequence[Int[Array, "_ 2"]],
    recipe: EvidenceRecipe = ALIGN.evidence,
) -> bool:
    """Whether blocks of some clouds contradict others clearly less than under other poses.

    Poses under which clouds share territory are better than those under which they do not.
    """
    enough = [np.median([each[:, 0].sum() for each in blocks]) >= BLOCK for blocks in (a, b)]
    return bool(enough[0] and (not enough[1] or lead_of(a, b, paired=False) > recipe.clear))


def lead_of(
    a: Sequence[Int[Array, "_ 2"]], b: Sequence[Int[Array, "_ 2"]], *, paired: bool = True
) -> float:
    """As `lead`; `paired`: the blocks are of the same patches.

    Then a block that fits badly under both poses says nothing of either: what counts is how much
    the difference between them differs from block to block.
    """
    one, other = map(share_of, (a, b))
    if one is None or other is None:
        return 0.0
    if paired:
        difference = other.residuals - one.residuals
        variance = float(difference @ difference)
    else:
        variance = float(one.residuals @ one.residuals + other.residuals @ other.residuals)
    variance = max(variance, one.least**2 + other.least**2)
    return float((other.value - one.value) / np.sqrt(variance))


@dataclass(frozen=True)
class Share:
    """A share of contradictions: a ratio of sums over blocks."""

    value: float
    least: float  # standard deviation even if all blocks were alike: that of a count
    residuals: Float[Array, " B"]  # what each block adds beyond its part

    @property
    def variance(self) -> float:
        """Of the value."""
        return max(float(self.residuals @ self.residuals), self.least**2)


def share_of(blocks: Sequence[Int[Array, "_ 2"]]) -> Share | None:
    """The share of contradictions; None without territory.

    One agreeing and one contradicting patch are added, so that no share is certain.
    """
    total, wrong = np.sum([each.sum(0) for each in blocks], 0) if blocks else (0, 0)
    if not total:
        return None
    counts = np.concatenate(blocks)
    share = (wrong + 1) / (total + 2)
    least = float(np.sqrt(share * (1 - share) / total))
    return Share(float(share), least, (counts[:, 1] - share * counts[:, 0]) / total)


def deviation_of(blocks: Int[Array, "_ 2"]) -> float:
    """The standard deviation of a cloud's share of contradictions."""
    share = share_of([blocks])
    return np.inf if share is None else float(np.sqrt(share.variance))


def _patches(points: Points, recipe: AlignRecipe) -> Surface:
    D = points.shape[1]
    own = recipe.evidence
    points, _ = sampling.denoise(points, recipe.denoise)
    count = min(own.neighbours(D), len(points))
    tree = cKDTree(points)
    distances, rows = tree.query(points, count)
    distances, rows = distances.reshape(-1, count), rows.reshape(-1, count)
    # Points with the same neighbours have the same patch, to the last bit: which of them is nearest
    # to something does not depend on rounding.
    rows = np.sort(rows, axis=1)
    centres = points[rows].mean(1)
    d = points[rows] - centres[:, None]
    values, axes = np.linalg.eigh(np.swapaxes(d, 1, 2) @ d / max(count - D, 1))
    values = np.maximum(values, 0)
    normals = axes[:, :, 0]
    normals, facing, aside = _orient(normals, centres, rows, np.median(points, axis=0), own)
    flat = values[:, 0] < own.flat * values[:, 1]
    if D == 3:
        flat &= values[:, 1] > own.flat * values[:, 2]
    return Surface(
        centres,
        normals,
        values[:, 0],
        distances[:, -1],
        distances[:, min(1, count - 1)],
        flat & (count > D),
        facing,
        aside,
    )


def _orient(
    normals: Points,
    centres: Points,
    rows: Int[Array, "N k"],
    middle: Float[Array, " D"],
    recipe: EvidenceRecipe,
) -> tuple[Points, Bool[Array, " N"], bool]:
    """Normals that face one way, of which patches that is known, and whether but for a sign.

    A cloud was seen from within, so that all normals face its middle, or from one side, so that all
    lie in one half space: whichever makes neighbours face more alike.
    """
    inward = middle - centres
    height = (inward * normals).sum(1)
    within = normals * np.where(height < 0, -1.0, 1.0)[:, None]
    axis = np.linalg.eigh(normals.T @ normals)[1][:, -1]
    away = normals @ axis < 0
    for _ in range(PASSES):
        axis = (normals * np.where(away, -1.0, 1.0)[:, None]).sum(0)
        before, away = away, normals @ axis < 0
        if (away == before).all():
            break
    aside = normals * np.where(away, -1.0, 1.0)[:, None]

    def alike(turned: Points) -> float:
        return float(np.einsum("nkd,nd->", turned[rows], turned))

    if alike(within) >= alike(aside):
        known = np.abs(height) > recipe.sideways * np.linalg.norm(inward, axis=1)
        return within, known, False
    return aside, np.ones(len(aside), bool), True


def signs_of(
    surfaces: Sequence[Surface], poses: Poses, recipe: EvidenceRecipe = ALIGN.evidence
) -> Float[Array, " M"]:
    """Per cloud: by which sign its normals are to be taken; 0: it is not known.

    Those of clouds seen from within face inwards; those of a cloud seen from one side are taken so
    that most of them face the middle of the scene.
    """
    from coframe.align import plane_kernels  # Numba, which verdicts alone do not need

    middles = np.array([each.middle for each in surfaces])
    ends = np.einsum("jab,jb->ja", geometry.rotation(poses), middles) + geometry.translation(poses)
    middle = ends.mean(0)
    inverse = geometry.inverse(poses)
    signs = np.ones(len(surfaces))
    for j, one in enumerate(surfaces):
        if one.aside:
            inside = geometry.transform(inverse[j], middle[None])[0]
            decided = plane_kernels.facing(inside, one.centres, one.normals)
            signs[j] = np.sign(decided) if abs(decided) > recipe.sideways else 0.0
    return signs


@dataclass(frozen=True)
class Meeting:
    """Patches of one cloud over those of another that are nearest to them."""

    inside: Bool[Array, " n"]  # in the other cloud's territory
    heights: Float[Array, " n"]  # over the plane of the nearest patch
    deviations: Float[Array, " n"]  # the standard deviation that the scatter of both leaves
    reach: Float[Array, " n"]  # heights beyond this are not in territory
    rows: Int[Array, " n"]  # the nearest patch

    @property
    def sigmas(self) -> Float[Array, " n"]:
        """Heights in standard deviations, without sign."""
        return np.abs(self.heights) / self.deviations


def meet(
    one: Surface,
    other: Surface,
    motion: Float[Array, "D1 D1"],
    recipe: EvidenceRecipe,
    sign: float,
    nearest: tuple[Float[Array, " n"], Int[Array, " n"]] | None = None,
) -> Meeting:
    """Lay a cloud over another one by a motion."""
    from coframe.align import plane_kernels  # Numba, which verdicts alone do not need

    x = geometry.transform(motion, one.centres)
    if nearest is None:
        nearest = _nearest(x, other, one.flat)
    distance, rows = nearest
    turned = one.normals @ geometry.rotation(motion).T
    inside, heights, deviations, reach = plane_kernels.meet(
        x,
        turned,
        (one.flat, one.facing, one.radii, one.variances, one.spacings),
        distance,
        rows,
        (
            *(other.centres, other.normals, other.flat, other.facing),
            *(other.radii, other.variances, other.spacings),
        ),
        float(sign),
        recipe.along,
        recipe.floor,
    )
    return Meeting(inside, heights, deviations, reach, rows)


def _nearest(
    x: Points, other: Surface, asked: Bool[Array, " n"], reach: float = 0.0
) -> tuple[Float[Array, " n"], Int[Array, " n"]]:
    """Distances and rows of the nearest patches of the other cloud, as far as they matter.

    To points that are asked for, they matter as far as there is territory; to others up to `reach`.
    Beyond that, distances are inf.
    """
    # Across a patch by less than half its radius, over it by less than its radius.
    reaches = NEAR * other.radii.max(), reach
    distance, rows = np.full(len(x), np.inf), np.zeros(len(x), np.intp)
    for some, within in zip((asked, ~asked), reaches, strict=True):
        if within > 0:
            distance[some], rows[some] = other.nearest.query(x[some], within)
    return distance, rows


def compare(
    one: Surface, other: Surface, motion: Float[Array, "D1 D1"], recipe: EvidenceRecipe, sign: float
) -> tuple[Bool[Array, " n"], Bool[Array, " n"]]:
    """Which patches lie in the other cloud's territory, and which heights agree."""
    met = meet(one, other, motion, recipe, sign)
    return met.inside, met.sigmas < max(one.threshold, other.threshold)


def compare_all(
    one: Surface, other: Surface, motion: Float[Array, "D1 D1"], recipe: EvidenceRecipe, sign: float
) -> tuple[Bool[Array, " n"], Bool[Array, " n"]]:
    """As `compare`, with patches that are not flat: edges, pillars, furniture.

    These have no height. They agree if the other cloud has a patch where they are, and contradict
    it if they stand close over a flat patch of it. Past the edge of such a patch, and beside those
    that are not flat themselves, they may be where the other cloud ends, which says nothing.
    """
    x = geometry.transform(motion, one.centres)
    nearest = _nearest(x, other, one.flat, 2 * max(one.radii.max(), other.radii.max()))
    distance, rows = nearest
    met = meet(one, other, motion, recipe, sign, nearest)
    fits = met.sigmas < max(one.threshold, other.threshold)
    reach = np.maximum(one.radii, other.radii[rows])
    height = np.abs(((x - other.centres[rows]) * other.normals[rows]).sum(1))
    across = np.sqrt(np.maximum(distance**2 - height**2, 0))
    over = (across < other.radii[rows] / 2) & (height < 2 * reach)
    beside = np.where(other.flat[rows], over, distance < reach / 2)
    return (
        np.where(one.flat, met.inside, np.isfinite(distance) & beside),
        np.where(one.flat, fits, distance < reach / 2),
    )


def some_patches(surface: Surface, clouds: int) -> Surface:
    """Evenly spread patches: neighbours stay neighbours."""
    count = min(max(QUERIES // clouds, FEWEST), MOST, len(surface))
    return surface.subset(np.arange(count) * len(surface) // max(count, 1))


def partners_of(surfaces: Sequence[Surface], poses: Poses, margin: float = 0.0) -> list[list[int]]:
    """For each cloud those whose boxes overlap its own; of many, those with the nearest middles."""
    from coframe.align import plane_kernels  # Numba, which verdicts alone do not need

    low, high = np.empty((2, len(surfaces), poses.shape[1] - 1))
    for j, each in enumerate(surfaces):
        wide = margin + each.radii.max()
        plane_kernels.box(poses[j], each.centres, wide, low[j], high[j])
    middles = (low + high) / 2
    found = []
    for j in range(len(surfaces)):
        overlap = ((low < high[j]) & (high > low[j])).all(1)
        overlap[j] = False
        near = np.flatnonzero(overlap)
        order = np.argsort(((middles[near] - middles[j]) ** 2).sum(1), kind="stable")
        found.append(sorted(near[order[:PARTNERS]].tolist()))
    return found


def draw_surfaces(
    clouds: PerCloud[Source],
    counts: Sequence[int],
    frames: Normalisation,
    points: int,
    recipe: AlignRecipe,
) -> list[Surface]:
    """Patches of each cloud: the same ones whatever the seed, of fewer points of many clouds."""
    rng = np.random.default_rng(0)
    most = min(points, max(POINTS // len(counts), MOST))
    rows = [sampling.draw_rows(count, most, rng) for count in counts]
    return clouds.map(draw_surface, rows, frames.each(), shared=(recipe,))


def displacement(points: Points, one: Pose, other: Pose) -> float:
    """How far apart two poses put some points of a cloud, root mean square."""
    away = geometry.transform(one, points) - geometry.transform(other, points)
    return float(np.sqrt((away**2).sum(1).mean()))


def aligned_frame(given: Poses, found: Poses) -> Pose:
    """The common motion after which most given poses are as near to the found ones as can be."""
    motions = found @ geometry.inverse(given)
    steps = []
    for common in motions:
        rest = geometry.inverse(common) @ motions
        turns = geometry.angle(geometry.rotation(rest))
        ends = geometry.translation(given)
        moved = (geometry.rotation(rest) @ ends[..., None])[..., 0] + geometry.translation(rest)
        steps.append(float(np.median(turns * RADIUS + np.linalg.norm(moved - ends, axis=1))))
    return motions[int(np.argmin(steps))]


def blocks_of(
    inside: Bool[Array, " n"], fits: Bool[Array, " n"], size: int = BLOCK
) -> Int[Array, "B 2"]:
    """Per block of neighbours: patches in territory, and those that contradict."""
    counts = np.array([inside, inside & ~fits], int)
    found: Int[Array, "B 2"] = np.add.reduceat(counts, np.arange(0, len(inside), size), axis=1).T
    return found


def pooled(
    surfaces: Sequence[Surface], poses: Poses, which: Sequence[int], signs: Float[Array, " M"]
) -> Surface:
    """Some clouds as one, in the common frame, with the normals by their signs."""
    moved = [
        replace(
            surfaces[i],
            centres=geometry.transform(poses[i], surfaces[i].centres),
            normals=(signs[i] or 1.0) * surfaces[i].normals @ geometry.rotation(poses[i]).T,
            facing=surfaces[i].facing & bool(signs[i]),
        )
        for i in which
    ]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(each, name) for each in moved]) for name in COLUMNS
    }
    return Surface(**columns, threshold=max(each.threshold for each in moved))
