# SPDX-License-Identifier: MIT
"""Where else could clouds lie? Poses that other stages propose, and what evidence says of them.

A rival fit, another motion between two scans, a free direction: each is a hypothesis that some
clouds lie elsewhere relative to the others. All are asked the same question: with the clouds there,
do they contradict the others clearly more than where they are? If not, the data do not decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from coframe import geometry
from coframe.align import planes
from coframe.align.evidence import (
    BLOCK,
    Surface,
    blocks_of,
    compare_all,
    displacement,
    lead_of,
    partners_of,
    pooled,
    share_of,
    signs_of,
)
from coframe.align.recipe import ALIGN, AlignRecipe, EvidenceRecipe
from coframe.types import Array, Pose, Poses


@dataclass(frozen=True, eq=False)
class Alternative:
    """Another place of some clouds that the data do not exclude.

    Attributes
    ----------
    clouds : tuple of int
        The clouds that would lie elsewhere, all others staying where they are.
    poses : (m, D+1, D+1) array
        Their poses there, in the common frame.
    reason : str
        What proposed it.
    contradictions : tuple of two floats, or None
        Share of their patches in common territory that contradict other clouds: as they are, and
        there. None where they share too little territory to say so.
    lead : float
        By how many standard deviations they contradict the others less as they are; 0 where nothing
        is known.
    """

    clouds: tuple[int, ...]
    poses: Poses
    reason: str
    contradictions: tuple[float, float] | None
    lead: float


def moved_clouds(
    surfaces: Sequence[Surface],
    poses: Poses,
    others: Poses,
    recipe: EvidenceRecipe = ALIGN.evidence,
) -> tuple[tuple[int, ...], Poses]:
    """Clouds that lie elsewhere under other poses, relative to most clouds; all other poses.

    These are in the frame in which most clouds stay. Where no majority of the clouds stays
    together, all have moved. Moves of less than `recipe.distinct` of a cloud's extent do not count.
    """
    M = len(surfaces)
    extents = np.array([geometry.extent(each.centres) for each in surfaces])
    fewest, frame = np.ones(M, bool), geometry.inverse(others[0])
    for common in poses @ geometry.inverse(others):
        shifts = np.array(
            [
                _displacement(surface, one, other)
                for surface, one, other in zip(surfaces, poses, common @ others, strict=True)
            ]
        )
        moved = shifts > recipe.distinct * extents
        if moved.sum() < fewest.sum():
            fewest, frame = moved, common
    if 2 * fewest.sum() >= M:
        # With half of the clouds on either side, or less, none of them is known to be right.
        return (tuple(range(M)) if fewest.any() else ()), frame @ others
    return tuple(np.flatnonzero(fewest).tolist()), frame @ others


def distinct(
    surfaces: Sequence[Surface],
    found: Sequence[Alternative],
    recipe: EvidenceRecipe = ALIGN.evidence,
) -> list[Alternative]:
    """Alternatives without those that place the same clouds where an earlier one does."""

    def same(one: Alternative, other: Alternative) -> bool:
        return one.clouds == other.clouds and all(
            _displacement(surfaces[j], here, there)
            <= recipe.distinct * geometry.extent(surfaces[j].centres)
            for j, here, there in zip(one.clouds, one.poses, other.poses, strict=True)
        )

    kept: list[Alternative] = []
    for each in found:
        if not any(same(each, other) for other in kept):
            kept.append(each)
    return kept


def _displacement(surface: Surface, one: Pose, other: Pose) -> float:
    """How far the patches of a cloud lie from where another pose puts them, root mean square."""
    return displacement(surface.centres[:: max(1, len(surface) // BLOCK)], one, other)


def weigh(
    surfaces: Sequence[Surface],
    poses: Poses,
    clouds: Sequence[int],
    there: Poses,
    recipe: EvidenceRecipe = ALIGN.evidence,
) -> tuple[tuple[float, float] | None, float]:
    """Shares of contradictions of some clouds under two sets of poses, and the lead of the first.

    The same patches under both: those of the clouds that move, and those of the clouds that stay in
    territory of these, which may have a pillar where a moved cloud has bare floor.
    """
    both = zip(partners_of(surfaces, poses), partners_of(surfaces, there), strict=True)
    partners = [sorted({*one, *other}) for one, other in both]
    now, then = (_blocks(surfaces, each, clouds, partners, recipe) for each in (poses, there))
    shares = share_of(now), share_of(then)
    own = (sum(int(each[:, 0].sum()) for each in blocks[: len(clouds)]) for blocks in (now, then))
    if min(own) < BLOCK or None in shares:
        return None, 0.0
    one, other = (each.value for each in shares if each is not None)
    return (one, other), lead_of(now, then)


def _blocks(
    surfaces: Sequence[Surface],
    poses: Poses,
    clouds: Sequence[int],
    partners: Sequence[Sequence[int]],
    recipe: EvidenceRecipe,
) -> list[Int[Array, "_ 2"]]:
    """Per moving cloud and block: patches in the territory of others, and contradictions.

    Then the same of the clouds that stay, in the territory of those that move.
    """
    signs = signs_of(surfaces, poses, recipe)
    inverse = geometry.inverse(poses)

    def against(j: int, others: Sequence[int]) -> Int[Array, "_ 2"]:
        blocks = np.zeros((-(-len(surfaces[j]) // BLOCK), 2), int)
        for i in others:
            motion, sign = inverse[i] @ poses[j], signs[j] * signs[i]
            blocks += blocks_of(*compare_all(surfaces[j], surfaces[i], motion, recipe, sign))
        return blocks

    stay = sorted({i for j in clouds for i in partners[j]} - {*clouds})
    found = [against(j, partners[j]) for j in clouds]
    return found + [against(i, [j for j in clouds if i in partners[j]]) for i in stay]


def settled(
    surfaces: Sequence[Surface], poses: Poses, cloud: int, there: Pose, recipe: AlignRecipe = ALIGN
) -> Poses:
    """All poses with one cloud elsewhere, where its planes meet those of the others."""
    moved = poses.copy()
    moved[cloud] = there
    partners = partners_of(surfaces, moved)[cloud]
    if not partners:
        return moved
    signs = signs_of(surfaces, moved, recipe.evidence)
    others = pooled(surfaces, moved, partners, signs)
    gate = recipe.gates[0]
    moved[cloud] = planes.settle_one(surfaces[cloud], others, there, gate, float(signs[cloud]))
    return moved
