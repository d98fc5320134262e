# SPDX-License-Identifier: MIT
"""Do poses that are known, fixed or with a prior, agree with what the scans show?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from coframe import geometry
from coframe.align import planes
from coframe.align.evidence import Surface, agreement, aligned_frame, displacement, lead
from coframe.align.recipe import ALIGN, AlignRecipe
from coframe.em.constraints import Constraints
from coframe.types import Poses


@dataclass(frozen=True)
class Misfit:
    """A known pose, and where the scans alone put its cloud."""

    turn: float  # [rad]
    shift: float  # of the cloud's middle


def misfits(
    surfaces: Sequence[Surface],
    poses: Poses,
    constraints: Constraints,
    recipe: AlignRecipe = ALIGN,
    threads: int | None = 1,
) -> dict[int, Misfit]:
    """Clouds with known poses that contradict the scans, and how far they are from fitting.

    Without what is known, clouds are moved to where their planes meet. If they contradict each
    other less there, and not by chance alone, known poses are wrong: those that are farther from
    where the others put them than half of the farthest one is. A single known pose contradicts
    nothing, and where all are known there is nothing to compare with.
    """
    known = sorted({*constraints.fixed, *(prior.cloud for prior in constraints.priors)})
    if len(known) < 2 or len(constraints.fixed) == len(poses):
        return {}
    free = replace(constraints, fixed=(), priors=())
    there = planes.settle(surfaces, poses, recipe.gates[0], free, threads)
    now, then = (agreement(surfaces, each, recipe.evidence, threads) for each in (poses, there))
    if then.silent or lead(then, now) < recipe.evidence.free:
        return {}
    there = aligned_frame(there, poses) @ there
    away = {j: displacement(surfaces[j].centres, poses[j], there[j]) for j in known}
    found = {}
    for j in known:
        if 2 * away[j] > max(away.values()):
            back = there[j] @ geometry.inverse(poses[j])
            middle = geometry.transform(poses[j], surfaces[j].middle[None])
            shift = float(np.linalg.norm(geometry.transform(back, middle) - middle))
            found[j] = Misfit(float(geometry.angle(geometry.rotation(back))), shift)
    return found


def far_from_priors(
    poses: Poses, constraints: Constraints, recipe: AlignRecipe = ALIGN
) -> dict[int, float]:
    """Clouds that ended farther from their priors than chance explains: standard deviations."""
    found = {}
    for prior in constraints.priors:
        error = prior.error(poses[prior.cloud])
        squared = float(error @ prior.information @ error)
        known = int(np.linalg.matrix_rank(prior.information, hermitian=True))
        chance = 1 - special.ndtr(recipe.evidence.clear)
        if squared > special.chdtri(max(known, 1), chance):
            found[prior.cloud] = float(np.sqrt(squared))
    return found
