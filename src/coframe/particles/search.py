# SPDX-License-Identifier: MIT
"""From nothing to a pose per particle: densities on a grid, random starts, joint sweeps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial.transform import Rotation

from coframe.particles import density_kernels as kernels
from coframe.particles.recipe import FuseRecipe
from coframe.threads import pool
from coframe.types import Array

# [size] Cells of a grid per blur: two samples per standard deviation keep a Gaussian.
CELLS_PER_BLUR = 2.0
# [size] Sweeps of a chain of Gibbs sampling.
CHAIN_SWEEPS = 12
# [guard] Share of outliers at least.
FEWEST_OUTLIERS = 1e-3
# [size] Iterations of EM for the share of outliers.
SHARE_ITERATIONS = 50
# [size] Poses of a particle's grid search that are refined: in a sweep, and for the verdict.
CANDIDATES, RIVALS = 8, 32


@dataclass(frozen=True)
class Particles:
    """Centred particles in units of the structure's radius, one after the other.

    Attributes
    ----------
    points : array (N, 3)
        In the plane, the third coordinate is zero.
    variances : array (N, 3)
        Of each localisation along the particle's own axes.
    first : array (M + 1)
        Where each particle begins.
    dimension : int
        2 or 3.
    """

    points: Float[Array, "N 3"]
    variances: Float[Array, "N 3"]
    first: Int[Array, " M1"]
    dimension: int

    def __len__(self) -> int:
        return len(self.first) - 1

    def rows(self, j: int) -> slice:
        return slice(int(self.first[j]), int(self.first[j + 1]))

    def subset(self, chosen: Int[Array, " S"]) -> "Particles":
        rows = np.concatenate([np.arange(self.first[j], self.first[j + 1]) for j in chosen])
        first = np.concatenate([[0], np.cumsum(np.diff(self.first)[chosen])])
        return Particles(self.points[rows], self.variances[rows], first, self.dimension)

    def thinned(self, most: int, rng: np.random.Generator) -> "Particles":
        """At most so many points of each particle, drawn at random."""
        sizes = np.diff(self.first)
        rows = [self.first[j] + np.sort(rng.permutation(sizes[j])[:most]) for j in range(len(self))]
        first = np.concatenate([[0], np.cumsum(np.minimum(sizes, most))])
        chosen = np.concatenate(rows)
        return Particles(self.points[chosen], self.variances[chosen], first, self.dimension)


@dataclass(frozen=True)
class Motions:
    """Rotation and shift per particle, in the frame of the model."""

    R: Float[Array, "M 3 3"]
    t: Float[Array, "M 3"]

    def subset(self, chosen: Int[Array, " S"]) -> "Motions":
        return Motions(self.R[chosen], self.t[chosen])


class Level:
    """Particles at one blur: their weights, and the grid on which their density is summed."""

    def __init__(
        self, particles: Particles, blur: float, recipe: FuseRecipe, radius: float
    ) -> None:
        self.particles = particles
        self.blur = blur
        self.cell = blur / CELLS_PER_BLUR
        D = particles.dimension
        variance = particles.variances[:, :D].mean(1)
        crowd = kernels.crowding(particles.points, particles.first, blur)
        # n points at one spot count as the square root of n: localisations of one label are not
        # independent, and neither are they one. The density of the others has their noise beside
        # the blur: only a point that is localised worse than is typical counts less.
        typical = blur**2 + np.median(variance)
        self.weights = np.minimum(typical / (blur**2 + variance), 1) / np.sqrt(crowd)
        sums = np.add.reduceat(self.weights, particles.first[:-1])
        self.masses = self.weights / np.repeat(sums, np.diff(particles.first))
        spots = np.add.reduceat(1 / crowd, particles.first[:-1])
        # The centre of n labels of a structure is 1 / sqrt(n) radii from the structure's, as a
        # standard deviation; three of these are searched.
        self.reach = np.maximum(3 / np.sqrt(spots), recipe.max_shift)
        half = int(np.ceil((radius + recipe.max_shift + kernels.REACH * blur) / self.cell))
        self.origin = np.full(3, -half * self.cell)
        self.shape = (2 * half + 1, 2 * half + 1, 2 * half + 1 if D == 3 else 1)
        if D == 2:
            self.origin[2] = 0

    def splat(self, grid: Array, j: int, motions: Motions, symmetry: Motions, sign: float) -> None:
        """Add or subtract a particle, in every place that the symmetry gives it."""
        rows = self.particles.rows(j)
        share = self.masses[rows] / len(symmetry.t)
        for S, s in zip(symmetry.R, symmetry.t, strict=True):
            kernels.splat(
                grid,
                self.particles.points[rows],
                share,
                self.blur,
                S @ motions.R[j],
                S @ motions.t[j] + s,
                self.origin,
                self.cell,
                sign,
            )

    def density(
        self, motions: Motions, symmetry: Motions, members: Bool[Array, " M"] | None = None
    ) -> Float[Array, "X Y Z"]:
        """Sum over particles, all or some, each of mass 1."""
        grid = np.zeros(self.shape)
        for j in range(len(self.particles)):
            if members is None or members[j]:
                self.splat(grid, j, motions, symmetry, 1.0)
        return grid

    def table(
        self, grid: Array, mass: float, outliers: float = kernels.EVEN
    ) -> Float[Array, "X Y Z"]:
        return np.asarray(kernels.log_density(grid, mass, outliers))

    def without(self, grid: Array, j: int, motions: Motions, symmetry: Motions) -> Array:
        """Density of all particles but one."""
        others = grid.copy()
        self.splat(others, j, motions, symmetry, -1.0)
        return others

    def shifts(self, reach: float) -> Int[Array, "S 3"]:
        """Shifts by whole cells in a ball."""
        steps = int(reach / self.cell)
        axis = np.arange(-steps, steps + 1)
        deep = axis if self.particles.dimension == 3 else np.zeros(1, int)
        found = np.stack(np.meshgrid(axis, axis, deep, indexing="ij"), -1).reshape(-1, 3)
        return found[(found**2).sum(1) <= steps**2]


def no_symmetry() -> Motions:
    return Motions(np.eye(3)[None], np.zeros((1, 3)))


def rotations(dimension: int, spacing: float) -> Float[Array, "R 3 3"]:
    """Rotations spread evenly, with about this angle [rad] between neighbours."""
    if dimension == 2:
        angles = np.linspace(0, 2 * np.pi, int(np.ceil(2 * np.pi / spacing)), endpoint=False)
        return Rotation.from_rotvec(angles[:, None] * [0, 0, 1]).as_matrix()
    # Super-Fibonacci spirals; 8 pi^2 is the volume of the rotations in these angles.
    count = int(np.ceil(8 * np.pi**2 / spacing**3))
    s = np.arange(count) + 0.5
    alpha, beta = 2 * np.pi * s / np.sqrt(2), 2 * np.pi * s / 1.533751168755204288118041
    r, q = np.sqrt(s / count), np.sqrt(1 - s / count)
    spread = np.stack([r * np.sin(alpha), r * np.cos(alpha), q * np.sin(beta), q * np.cos(beta)], 1)
    return Rotation.from_quat(spread).as_matrix()


def random_rotations(rng: np.random.Generator, count: int, dimension: int) -> Array:
    if dimension == 2:
        angles = rng.uniform(0, 2 * np.pi, (count, 1))
        return Rotation.from_rotvec(angles * [0, 0, 1]).as_matrix()
    return Rotation.random(count, rng=rng).as_matrix()


def sample(
    particles: Particles, recipe: FuseRecipe, radius: float, rng: np.random.Generator
) -> tuple[Motions, float]:
    """A start by Gibbs sampling from random rotations, and its mean score."""
    M, D = len(particles), particles.dimension
    level = Level(particles, recipe.coarse_blur, recipe, radius)
    turns = rotations(D, recipe.coarse_blur)
    shifts = level.shifts(recipe.max_shift if D == 2 else 1.5 * level.cell)
    motions = Motions(random_rotations(rng, M, D), np.zeros((M, 3)))
    grid = level.density(motions, no_symmetry())
    scores = np.zeros(M)
    for _ in range(CHAIN_SWEEPS):
        noise = rng.gumbel(size=(M, len(turns), len(shifts)))
        kernels.sample_chain(
            grid,
            particles.points,
            particles.first,
            level.weights,
            level.masses,
            level.blur,
            motions.R,
            motions.t,
            turns,
            random_rotations(rng, M, D),
            shifts,
            level.origin,
            level.cell,
            rng.permutation(M),
            noise,
            scores,
        )
    return motions, float(scores.mean())


@dataclass(frozen=True)
class Found:
    """Modes of one particle's pose, best first."""

    R: Float[Array, "C 3 3"]
    t: Float[Array, "C 3"]
    scores: Float[Array, " C"]


def locate(
    coarse: Level,
    fine: Level,
    coarse_table: Array,
    fine_table: Array,
    j: int,
    spin: Array,
    turns: Array,
    recipe: FuseRecipe,
    candidates: int = CANDIDATES,
) -> Found:
    """Search all rotations at the coarse blur and refine the best at the fine one."""
    D = coarse.particles.dimension
    rows, fine_rows = coarse.particles.rows(j), fine.particles.rows(j)
    points, fine_points = coarse.particles.points[rows], fine.particles.points[fine_rows]
    R, t = np.zeros((candidates, 3, 3)), np.zeros((candidates, 3))
    # In space, all shifts at all rotations would be too many; the climb finds the rest.
    shifts = coarse.shifts(coarse.reach[j] if D == 2 else 1.5 * coarse.cell)
    count = kernels.find_candidates(
        coarse_table,
        points @ spin.T,
        coarse.weights[rows],
        turns,
        shifts,
        coarse.origin,
        coarse.cell,
        1.5 * recipe.coarse_blur,
        recipe.coarse_blur,
        R,
        t,
    )
    R = R[:count] @ spin
    t = t[:count]
    scores = np.empty(count)
    for c in range(count):
        if D == 3:
            _, R[c], t[c] = kernels.climb(
                coarse_table,
                points,
                coarse.weights[rows],
                R[c],
                t[c],
                coarse.origin,
                coarse.cell,
                recipe.coarse_blur / 2,
                coarse.cell,
            )
        scores[c], R[c], t[c] = kernels.climb(
            fine_table,
            fine_points,
            fine.weights[fine_rows],
            R[c],
            t[c],
            fine.origin,
            fine.cell,
            recipe.coarse_blur / 2,
            coarse.cell / 2,
        )
    order = np.argsort(-scores, kind="stable")
    return Found(R[order], t[order], scores[order])


def place(
    coarse: Level,
    fine: Level,
    model: tuple[Level, Level, Motions],
    recipe: FuseRecipe,
    rng: np.random.Generator,
    threads: int,
) -> list[Found]:
    """Search the poses of particles against the density of others, at two blurs."""
    M, D = len(coarse.particles), coarse.particles.dimension
    tables = [
        level.table(other.density(model[2], no_symmetry()), float(len(other.particles)))
        for level, other in zip((coarse, fine), model[:2], strict=True)
    ]
    turns = rotations(D, recipe.coarse_blur)
    spins = random_rotations(rng, M, D)

    def one(j: int) -> Found:
        return locate(coarse, fine, tables[0], tables[1], j, spins[j], turns, recipe)

    return list(pool(threads).map(one, range(M)))


def sweep(
    coarse: Level,
    fine: Level,
    motions: Motions,
    symmetry: Motions,
    recipe: FuseRecipe,
    rng: np.random.Generator,
    threads: int,
    members: Bool[Array, " M"] | None = None,
    candidates: int = CANDIDATES,
    outliers: float = kernels.EVEN,
) -> list[Found]:
    """Search every particle's pose against the density of all others at their present poses.

    `members`: the particles that make the density; default: all.
    `candidates`: poses of a particle that are refined at most.
    `outliers`: share of points that belong to nothing, at the fine blur.
    """
    M, D = len(coarse.particles), coarse.particles.dimension
    inside = np.ones(M, bool) if members is None else members
    levels = coarse, fine
    grids = [level.density(motions, symmetry, inside) for level in levels]
    mass = float(inside.sum())
    shares = kernels.EVEN, outliers
    turns = rotations(D, recipe.coarse_blur)
    spins = random_rotations(rng, M, D)

    def tables_of(j: int) -> list[Array]:
        return [
            level.table(level.without(grid, j, motions, symmetry), mass - 1, share)
            for level, grid, share in zip(levels, grids, shares, strict=True)
        ]

    whole = [
        level.table(grid, mass, share)
        for level, grid, share in zip(levels, grids, shares, strict=True)
    ]

    def one(j: int) -> Found:
        coarse_table, fine_table = tables_of(j) if inside[j] else whole
        return locate(
            coarse, fine, coarse_table, fine_table, j, spins[j], turns, recipe, candidates
        )

    return list(pool(threads).map(one, range(M)))


def outlier_share(
    level: Level, models: Sequence[Motions], groups: Sequence[Motions], labels: Int[Array, " M"]
) -> float:
    """The likeliest share of points that belong to nothing, each in the density of the others.

    `models`, `groups`: motions and symmetry of each class; `labels`: class of each particle.
    """
    particles = level.particles
    ratios = np.zeros(len(particles.points))
    for c, (motions, group) in enumerate(zip(models, groups, strict=True)):
        own = np.flatnonzero(labels == c)
        grid = level.density(motions, group, labels == c)
        for j in map(int, own):
            others = level.without(grid, j, motions, group) * (grid.size / (len(own) - 1))
            rows = particles.rows(j)
            ratios[rows] = kernels.values(
                others, particles.points[rows], motions.R[j], motions.t[j], level.origin, level.cell
            )
    ratios = np.maximum(ratios, 0)
    share = kernels.EVEN
    for _ in range(SHARE_ITERATIONS):
        belongs_to_nothing = share / (share + (1 - share) * ratios)
        share = max(float(np.average(belongs_to_nothing, weights=level.weights)), FEWEST_OUTLIERS)
    return share
