# SPDX-License-Identifier: MIT
"""Is a fused structure carried onto itself by turns, and by which?

The measure of a motion S is the mean log density at the moved points. It is compared with that of
no motion and with that of arbitrary turns: 1 is a symmetry, 0 an arbitrary turn.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from coframe.particles import density_kernels as kernels
from coframe.particles.recipe import FuseRecipe
from coframe.particles.search import CANDIDATES, Level, Motions, no_symmetry, rotations
from coframe.types import Array

# [size] Points that measure a symmetry.
POINTS = 20_000
# [size] Arbitrary turns that a symmetry is compared with.
TURNS = 60


def find_symmetry(
    level: Level, motions: Motions, recipe: FuseRecipe, orders: tuple[int, ...]
) -> tuple[int, Motions, dict[int, float]]:
    """The highest order of a symmetry, its motions, and the measure of each order.

    In space, two-fold axes across the main axis are motions of the symmetry too.
    """
    particles = level.particles
    D = particles.dimension
    rotated = [
        particles.points[particles.rows(j)] @ motions.R[j].T + motions.t[j]
        for j in range(len(particles))
    ]
    points = np.concatenate(rotated)
    weights = level.masses
    chosen = slice(None, None, max(1, len(points) // POINTS))
    points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    table = level.table(level.density(motions, no_symmetry()), float(len(particles)))

    def measure(R: Array, t: Array) -> float:
        return float(kernels.score(table, points, weights, R, t, level.origin, level.cell))

    inside = points[np.linalg.norm(points, axis=1) < 2]
    centre = inside.mean(0)
    for _ in range(5):
        near = np.linalg.norm(points - centre, axis=1) < 2
        centre = np.average(points[near], axis=0, weights=weights[near])
    spread = (points[near] - centre).T @ (points[near] - centre)
    axes = np.linalg.eigh(spread)[1].T if D == 3 else np.array([[0.0, 0.0, 1.0]])
    none = measure(np.eye(3), np.zeros(3))
    best: tuple[int, Motions, float] = (1, no_symmetry(), 0.0)
    found: dict[int, float] = {}
    for axis in axes:
        angles = np.linspace(0, 2 * np.pi, TURNS, endpoint=False)[1:]
        arbitrary = float(np.median([measure(*_about(axis, a, centre)) for a in angles]))
        for order in orders:
            value, R, t = kernels.climb(
                table,
                points,
                weights,
                *_about(axis, 2 * np.pi / order, centre),
                level.origin,
                level.cell,
                level.blur / 2,
                level.cell,
            )
            share = (value - arbitrary) / max(none - arbitrary, np.finfo(float).tiny)
            turn = Rotation.from_matrix(R)
            # A climb may end at another order's turn.
            if abs(turn.magnitude() - 2 * np.pi / order) > np.pi / (order * (order + 1)):
                share = 0.0
            found[order] = max(found.get(order, 0.0), float(share))
            if share >= max(recipe.min_symmetry, 0) and order > best[0]:
                vector = turn.as_rotvec()
                # The fixed point nearest to the centre.
                fixed = centre + np.linalg.lstsq(np.eye(3) - R, R @ centre + t - centre)[0]
                best = order, _cyclic(vector / np.linalg.norm(vector), order, fixed), arbitrary
                main, middle = vector / np.linalg.norm(vector), fixed
    order, group, arbitrary = best
    if D == 3 and order > 1:
        group = _with_flips(group, main, middle, measure, none, arbitrary, recipe)
    return order, group, found


def imposed_symmetry(
    level: Level, motions: Motions, order: int, recipe: FuseRecipe
) -> tuple[Motions, float]:
    """Turns of a given order about the axis that fits best, and how well it fits."""
    _, group, found = find_symmetry(level, motions, replace(recipe, min_symmetry=-1.0), (order,))
    return Motions(group.R[:order], group.t[:order]), found[order]


def likeness(
    levels: tuple[Level, Level],
    motions: Motions,
    other_levels: tuple[Level, Level],
    other: Motions,
    recipe: FuseRecipe,
) -> float:
    """How well other particles at their motions show the structure of the first.

    Levels are the coarse and the fine one of each.

    1 is as well as the first particles themselves, each in the structure made of the others; 0 is
    as badly as turned arbitrarily.
    """
    coarse, fine = levels
    D = fine.particles.dimension

    def cloud(level: Level, at: Motions) -> tuple[Array, Array]:
        own = level.particles
        points = np.concatenate(
            [own.points[own.rows(j)] @ at.R[j].T + at.t[j] for j in range(len(own))]
        )
        chosen = slice(None, None, max(1, len(points) // POINTS))
        weights = level.masses[chosen]
        return np.ascontiguousarray(points[chosen]), weights / weights.sum()

    tables = [
        level.table(level.density(motions, no_symmetry()), float(len(fine.particles)))
        for level in (coarse, fine)
    ]
    points, weights = cloud(other_levels[0], other)
    turns = rotations(D, recipe.coarse_blur)
    shifts = coarse.shifts(recipe.coarse_blur)
    R, t = np.zeros((CANDIDATES, 3, 3)), np.zeros((CANDIDATES, 3))
    count = kernels.find_candidates(
        tables[0],
        points,
        weights,
        turns,
        shifts,
        coarse.origin,
        coarse.cell,
        1.5 * recipe.coarse_blur,
        recipe.coarse_blur,
        R,
        t,
    )
    points, weights = cloud(other_levels[1], other)
    found = [
        kernels.climb(
            tables[1],
            points,
            weights,
            R[c],
            t[c],
            fine.origin,
            fine.cell,
            recipe.coarse_blur / 2,
            fine.cell,
        )[0]
        for c in range(count)
    ]
    some = turns[:: max(1, len(turns) // TURNS)]
    arbitrary = np.median(
        [
            kernels.score(tables[1], points, weights, S, np.zeros(3), fine.origin, fine.cell)
            for S in some
        ]
    )
    none = _against_others(fine, motions)
    return float((max(found) - arbitrary) / max(none - arbitrary, np.finfo(float).tiny))


def _against_others(level: Level, motions: Motions) -> float:
    """Mean log density of the points of a particle in the density of all others."""
    own = level.particles
    grid = level.density(motions, no_symmetry())
    scores = []
    for j in range(len(own)):
        others = level.without(grid, j, motions, no_symmetry())
        table = level.table(others, float(len(own) - 1))
        rows, at = own.rows(j), (motions.R[j], motions.t[j], level.origin, level.cell)
        scores.append(kernels.score(table, own.points[rows], level.masses[rows], *at))
    return float(np.mean(scores))


def _about(
    axis: Float[Array, " 3"], angle: float, centre: Float[Array, " 3"]
) -> tuple[Array, Array]:
    R = Rotation.from_rotvec(angle * axis).as_matrix()
    return R, centre - R @ centre


def _cyclic(axis: Float[Array, " 3"], order: int, centre: Float[Array, " 3"]) -> Motions:
    turns = [_about(axis, 2 * np.pi * k / order, centre) for k in range(order)]
    return Motions(np.array([R for R, _ in turns]), np.array([t for _, t in turns]))


def _with_flips(
    group: Motions,
    axis: Float[Array, " 3"],
    centre: Float[Array, " 3"],
    measure: Callable[[Array, Array], float],
    none: float,
    arbitrary: float,
    recipe: FuseRecipe,
) -> Motions:
    """The group with the two-fold turns about axes across the main one, if they fit as well."""
    across = np.linalg.svd(axis[None])[2][1:]
    angles = np.linspace(0, np.pi / len(group.t), TURNS, endpoint=False)
    directions = [np.cos(a) * across[0] + np.sin(a) * across[1] for a in angles]
    values = [measure(*_about(d, np.pi, centre)) for d in directions]
    at = int(np.argmax(values))
    if (values[at] - arbitrary) / (none - arbitrary) < recipe.min_symmetry:
        return group
    R, t = _about(directions[at], np.pi, centre)
    return Motions(
        np.concatenate([group.R, group.R @ R]), np.concatenate([group.t, group.R @ t + group.t])
    )
