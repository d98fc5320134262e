# SPDX-License-Identifier: MIT
"""Could chance make clouds agree like this?

Whatever two clouds show, some motion brings pieces of one onto pieces of the other. A rigid motion
has six parameters (three in the plane): so many pieces of surface can be made to meet. If the
motion is wrong, the heights of all other pieces over those that they are laid upon are anywhere
within reach. If it is right, they are small. So what is counted is pieces of surface that need not
have met: not patches, of which a wall has hundreds, but planes. A curved body has many, three walls
and a floor have none to spare.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from coframe import geometry
from coframe.align.evidence import BLOCK, Surface, meet, partners_of, signs_of
from coframe.align.recipe import ALIGN, EvidenceRecipe
from coframe.compute.per_cloud import Local
from coframe.types import Array, Points, Pose, Poses

# [guard] Patches of a piece of surface, at least: one or two may be stray points.
FEWEST = 3
# [limit] Passes that find all patches of a plane.
PASSES = 10
# [limit] Cosine of the angle within which patches lie on one plane.
SAME = np.cos(np.radians(10.0))
# [limit] Share of flat patches of a surface that consists of flat pieces.
FLAT = 0.5
# [guard] Heights [share of the reach] below this say no more than this, so that clouds without
# noise have a finite amount of evidence.
LEAST = 1e-6
# [guard] Probabilities below this are bounded, not computed.
TINY = 1e-290


@dataclass(frozen=True)
class Surprise:
    """How little chance explains that two clouds agree [nats]."""

    nats: float
    possible: float  # what the scatter of the points allows
    needed: float  # the best of all motions has this by chance

    @property
    def close(self) -> bool:
        """Whether the clouds meet at least half as closely as the scatter of their points allows.

        If not, they meet somehow: what they share is no evidence, and the place is none. Clouds
        without a piece to spare, such as bare walls, have no evidence that could be missed.
        """
        return 2 * self.nats >= self.possible


def surprise(
    one: Surface,
    other: Surface,
    motion: Pose,
    sign: float,
    recipe: EvidenceRecipe = ALIGN.evidence,
) -> Surprise:
    """How little chance explains that two clouds agree under a motion.

    Minus the logarithm of the probability that as many pieces of surface meet as closely by chance,
    beyond those that any motion can bring together. How closely is not fixed beforehand: the most
    surprising height counts, less the logarithm of the number of heights that were tried.
    """
    from coframe.align import plane_kernels  # Numba, which verdicts alone do not need

    met = meet(one, other, motion, recipe, sign)
    rows = np.flatnonzero(met.inside)
    if len(rows) < BLOCK:
        return Surprise(0.0, 0.0, np.inf)
    below = met.rows[rows]
    normals = other.normals[below]
    heights, deviations, reach = (each[rows] for each in (met.heights, met.deviations, met.reach))
    tolerance = max(one.threshold, other.threshold) * deviations
    pieces = planes_of(other.centres[below], normals, one.radii[rows], tolerance)
    found, expected = plane_kernels.mean_heights(
        pieces, normals, heights, deviations, reach, FEWEST
    )
    spare = len(found) - geometry.degrees_of_freedom(motion.shape[0] - 1)
    if spare <= 0:
        return Surprise(0.0, 0.0, np.inf)
    # By chance, each of these is uniform between 0 and 1.
    shares = np.clip(np.sort(found)[-spare:], LEAST, 1.0)
    closer = np.arange(spare)  # besides the piece itself
    # More than so many of `spare` are as close: the tail of a binomial distribution. scipy.stats
    # has it too, and takes a quarter of a second to import.
    exact = special.betainc(closer + 1, spare - closer, shares)
    tails = np.where(exact > TINY, np.log(np.maximum(exact, TINY)), _bound(closer, spare, shares))
    nats = float((-tails).max() - np.log(spare))
    possible = -spare * float(np.log(np.clip(np.mean(expected), LEAST, 1.0)))
    # As many pieces as there are dimensions fix a motion: those of one cloud on any of the other.
    D = len(motion) - 1
    needed = math.log(math.comb(len(found), D) * math.perm(len(found), D))
    return Surprise(max(nats, 0.0), possible, needed)


def _bound(closer: Int[Array, " n"], spare: int, shares: Float[Array, " n"]) -> Float[Array, " n"]:
    """Chernoff's bound on the logarithm of the same tail, where it is too small for a float."""
    share = (closer + 1) / spare
    apart = special.rel_entr(share, shares) + special.rel_entr(1 - share, 1 - shares)
    return -spare * np.where(share > shares, apart, 0.0)


def planes_of(
    centres: Points,
    normals: Points,
    radii: Float[Array, " n"],
    tolerance: Float[Array, " n"],
) -> Int[Array, " n"]:
    """For each patch the number of its plane: all patches within tolerance of it that face its way.

    The largest patch that has no plane yet begins the next one. Its own normal is too uncertain to
    carry far, so the plane is fitted anew to all that it has found until that finds no more.
    """
    from coframe.align import plane_kernels  # Numba, which verdicts alone do not need

    order = np.argsort(-radii, kind="stable")
    found: Int[Array, " n"] = plane_kernels.planes_of(
        centres, normals, order, tolerance, SAME, PASSES
    )
    return found


def parts_beyond_chance(
    surfaces: Sequence[Surface],
    poses: Poses,
    certain: Sequence[int] = (),
    recipe: EvidenceRecipe = ALIGN.evidence,
    threads: int | None = 1,
) -> list[set[int]]:
    """Parts of the clouds that agree, directly or along links, as chance would not have it.

    What two clouds have is measured in what the best of all motions has by chance, and counts only
    where they meet closely. Of two parts, the evidence of all links between them adds up.
    `certain`: clouds that are known to belong together.
    """
    M = len(surfaces)
    signs, inverse = signs_of(surfaces, poses, recipe), geometry.inverse(poses)
    partners = partners_of(surfaces, poses)

    def found(j: int) -> list[Surprise]:
        return [
            surprise(
                surfaces[j],
                surfaces[i],
                inverse[i] @ poses[j],
                float(signs[j] * signs[i]),
                recipe,
            )
            for i in partners[j]
        ]

    nats, possible, computed = np.zeros((3, M, M))
    for j, row in enumerate(Local(range(M), threads).map(found)):
        for i, each in zip(partners[j], row, strict=True):
            nats[j, i], possible[j, i] = each.nats / each.needed, each.possible / each.needed
            computed[j, i] = 1.0
    # A cloud with many neighbours may be compared in one direction alone.
    ways = np.maximum(computed + computed.T, 1.0)
    links, most = (nats + nats.T) / ways, (possible + possible.T) / ways
    links[2 * links < most] = 0.0
    links[np.ix_(certain, certain)] = 1.0
    return _joined(links)


def majority(parts: Sequence[set[int]]) -> set[int]:
    """The part that has most of the clouds; where none has, nothing says which one is right."""
    largest = max(parts, key=len)
    return largest if 2 * len(largest) > sum(map(len, parts)) else set()


def in_pieces(surfaces: Sequence[Surface]) -> bool:
    """Whether the clouds have so much flat surface that too few pieces which meet are a doubt."""
    return bool(np.median([each.flat.mean() for each in surfaces]) >= FLAT)


def _joined(links: Float[Array, "M M"]) -> list[set[int]]:
    """Parts with less than one between any two of them; those with most are joined first."""
    between = links.copy()
    np.fill_diagonal(between, -np.inf)
    parts = [{j} for j in range(len(links))]
    while len(parts) > 1:
        a, b = sorted(np.unravel_index(int(between.argmax()), between.shape))
        if between[a, b] < 1:
            break
        between[a] += between[b]
        between[:, a] = between[a]
        between[a, a] = -np.inf
        between = np.delete(np.delete(between, b, 0), b, 1)
        parts[a] |= parts.pop(b)
    return parts
