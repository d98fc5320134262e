# SPDX-License-Identifier: MIT
"""Which clouds could lie elsewhere? Free directions, and what evidence says of a result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int

from coframe import geometry
from coframe.align import chance, planes
from coframe.align.evidence import (
    BLOCK,
    Agreement,
    Surface,
    agreement,
    blocks_of,
    compare,
    compare_all,
    contradicting,
    deviation_of,
    displacement,
    lead_of,
    partners_of,
    pooled,
    share_of,
    signs_of,
    some_patches,
)
from coframe.align.recipe import ALIGN, EvidenceRecipe
from coframe.compute.per_cloud import Local
from coframe.types import Array, Pose, Poses

# [size] Steps of a move along a cloud's extent, at most.
STEPS = 80


@dataclass(frozen=True)
class Freedom:
    """A direction in which a cloud can move and contradict the others no more than it does now."""

    twist: Float[Array, " P"]  # about the cloud's origin, in the common frame
    turn: float  # [rad] how far it can turn
    shift: float  # how far its origin can move
    alternative: Float[Array, "D1 D1"]  # the pose there
    contradictions: tuple[float, float]  # share of contradictions as it is, and there
    lead: float  # standard deviations by which it contradicts the others less as it is


@dataclass(frozen=True)
class Review:
    """What evidence says of clouds under some poses."""

    agreement: Agreement
    deviations: Float[Array, " M"]  # standard deviation of each share of contradictions
    freedoms: tuple[Freedom | None, ...]
    # Per cloud another one that saw the same from within; see `same_place`.
    twins: tuple[int | None, ...]

    def sure(self, recipe: EvidenceRecipe = ALIGN.evidence) -> list[bool]:
        """Clouds that agree with others in enough territory to say so."""
        M = len(self.agreement.territory)
        if self.agreement.silent:
            return [False] * M
        doubtful = {*contradicting(self.agreement, recipe), *self.agreement.isolated}
        return [j not in doubtful for j in range(M)]

    def checked(
        self, parts: Sequence[set[int]], recipe: EvidenceRecipe = ALIGN.evidence
    ) -> list[bool]:
        """Clouds that are sure, or that meet another one closer than chance and contradict none.

        `parts`: of clouds that do; few pieces of surface that meet may say as much as wide ones.
        """
        shares = self.agreement.shares
        met = {j for part in parts if len(part) > 1 for j in part if shares[j] <= recipe.max_share}
        return [sure or j in met for j, sure in enumerate(self.sure(recipe))]


def review(
    surfaces: Sequence[Surface],
    poses: Poses,
    movable: Sequence[bool],
    recipe: EvidenceRecipe = ALIGN.evidence,
    possible: Callable[[int, Pose], bool] = lambda cloud, pose: True,
    threads: int | None = 1,
) -> Review:
    """Contradictions and free directions of all clouds; of clouds that are not movable, no such.

    `possible`: whether a cloud may lie in some pose, by all that is known besides.
    """
    found = agreement(surfaces, poses, recipe, threads)
    deviations = np.array([deviation_of(blocks) for blocks in found.blocks])
    partners = partners_of(surfaces, poses)

    def free(j: int) -> Freedom | None:
        if not movable[j]:
            return None
        return free_direction(surfaces, poses, j, partners[j], recipe, partial(possible, j))

    freedoms = Local(range(len(surfaces)), threads).map(free)
    twins = same_place(surfaces, found.agree, recipe)
    return Review(found, deviations, tuple(freedoms), twins)


def same_place(
    surfaces: Sequence[Surface], agree: Int[Array, "M M"], recipe: EvidenceRecipe = ALIGN.evidence
) -> tuple[int | None, ...]:
    """Per cloud one that agrees with it in as much territory as its own points among themselves.

    Two scans of a room, a storey or a street that cover the same were made in one place, or in two
    that look alike: scans that overlap less say which, these do not. Of clouds seen from one side
    this says nothing: views of a body from about one side are usual.
    """
    M = len(surfaces)
    own = np.array([each.own * some_patches(each, M).flat.sum() for each in surfaces])
    covered = agree >= (1 - recipe.max_share) * own[:, None]
    within = np.array([not each.aside for each in surfaces])
    alike = covered & covered.T & within & within[:, None] & (agree >= BLOCK)
    return tuple(int(row.argmax()) if row.any() else None for row in alike)


def free_direction(
    surfaces: Sequence[Surface],
    poses: Poses,
    cloud: int,
    partners: Sequence[int],
    recipe: EvidenceRecipe = ALIGN.evidence,
    possible: Callable[[Pose], bool] = lambda pose: True,
) -> Freedom | None:
    """Move a cloud along the direction that the normals of its territory constrain least.

    The direction is free if there are poses, by at least `recipe.distinct` of the cloud's extent
    away and with at least half as much territory, that do not have clearly more contradictions,
    from which planes do not draw the cloud back, and where surfaces do not just meet somehow. None
    if there are none, or if the cloud shares too little territory to say so. `possible`: whether it
    may lie in some pose, by all that is known besides.
    """
    if not partners:
        return None
    signs = signs_of(surfaces, poses, recipe)
    one, others = (
        some_patches(surfaces[cloud], len(surfaces)),
        pooled(surfaces, poses, partners, signs),
    )
    pose, sign = poses[cloud], float(signs[cloud])
    inside, fits = compare(one, others, pose, recipe, sign)
    agree = inside & fits
    if agree.sum() < BLOCK:
        return None
    about = geometry.translation(pose)
    twist = _weakest(one, pose, agree)[0]
    extent = surfaces[cloud].extent
    step = float(np.median(surfaces[cloud].radii)) / 2
    if not step > 0 or not extent > 0:
        return None
    step = max(step, extent / STEPS)
    few = [blocks_of(*compare_all(one, others, pose, recipe, sign))]
    back = _thinned(others, len(surfaces[cloud]))

    def every(there: Pose) -> list[Int[Array, "_ 2"]]:
        """Of all patches, and of those of the others: their pillars where the cloud has none."""
        both = surfaces[cloud], back
        ways = (
            compare_all(both[0], others, there, recipe, sign),
            compare_all(back, both[0], geometry.inverse(there), recipe, sign),
        )
        sizes = [BLOCK * max(1, len(each) // len(one)) for each in both]
        return [blocks_of(*way, size) for way, size in zip(ways, sizes, strict=True)]

    now = every(pose)

    def as_good(before: list[Int[Array, "_ 2"]], blocks: list[Int[Array, "_ 2"]]) -> bool:
        enough = 2 * blocks[0][:, 0].sum() >= before[0][:, 0].sum()
        return bool(enough) and lead_of(before, blocks) < recipe.free

    def tempting(there: Pose) -> bool:
        return as_good(few, [blocks_of(*compare_all(one, others, there, recipe, sign))])

    lengths = np.arange(1, int(recipe.farthest * extent / step) + 1) * step
    lengths = lengths[lengths > recipe.distinct * extent]
    for length in np.column_stack([lengths, -lengths])[::-1].ravel().tolist():
        moved = geometry.about(geometry.exp(length * twist)[None], about)[0] @ pose
        if not possible(moved) or not tempting(moved):
            continue
        there = planes.settle_one(one, others, moved, abs(length), sign)
        blocks = every(there)
        if (
            displacement(one.centres, there, pose) > recipe.distinct * extent
            and tempting(there)
            and as_good(now, blocks)
            and possible(there)
            and chance.surprise(surfaces[cloud], others, there, sign, recipe).close
        ):
            motion = there @ geometry.inverse(pose)
            turn = float(geometry.angle(geometry.rotation(motion)))
            shift = float(np.linalg.norm(geometry.translation(there) - about))
            before, after = share_of(now), share_of(blocks)
            shares = (before.value if before else 0.0, after.value if after else 0.0)
            return Freedom(length * twist, turn, shift, there, shares, lead_of(now, blocks))
    return None


def _thinned(surface: Surface, count: int) -> Surface:
    """At most so many patches of clouds that were put together, neighbours beside each other."""
    from coframe.em.kernels import kd_order  # Numba, which verdicts alone do not need

    order = kd_order(np.ascontiguousarray(surface.centres), BLOCK)
    count = min(count, len(order))
    return surface.subset(order[np.arange(count) * len(order) // count])


def _weakest(one: Surface, pose: Pose, agree: Bool[Array, " n"]) -> Float[Array, "P P"]:
    """The directions in which patches that agree constrain a cloud, weakest first.

    As twists about the cloud's origin that move all its patches by one, root mean square.
    """
    about = geometry.translation(pose)
    D = len(about)
    arms = geometry.transform(pose, one.centres) - about
    normals = one.normals @ geometry.rotation(pose).T
    # Displacement of each patch by a twist, with turns in units of the cloud's size.
    size = np.sqrt((arms**2).sum(1).mean())
    levers = geometry.levers(arms)
    levers[:, :, :-D] /= size
    rows = np.einsum("nd,ndp->np", normals, levers)[agree]
    axes = np.linalg.eigh(rows.T @ rows)[1]
    moves = np.sqrt((np.einsum("ndp,pq->ndq", levers, axes) ** 2).sum(1).mean(0))
    twists: Float[Array, "P P"] = axes.T / moves[:, None]
    twists[:, :-D] /= size
    return twists
