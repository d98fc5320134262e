# SPDX-License-Identifier: MIT
"""Could chance make clouds agree like this?

Whatever two clouds show, some motion brings pieces of one onto pieces of the other. A rigid motion
has six parameters (three in the plane): so many pieces of surface can be made to meet. If the
motion is wrong, the heights of all other pieces over those that they are laid upon are anywhere
within reach. If it is right, they are small. So what is counted is pieces of surface that need not
have met: not patches, of which a wall has hundreds, but planes. A curved body has many, three walls
and a floor have none to spare.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import binom

from coframe import geometry
from coframe.align.evidence import BLOCK, Surface, meet, partners_of, signs_of
from coframe.align.recipe import ALIGN, EvidenceRecipe
from coframe.types import Array, Points, Pose, Poses

# [guard] Patches of a piece of surface, at least: one or two may be stray points.
FEWEST = 3
# [limit] Cosine of the angle within which patches lie on one plane.
SAME = np.cos(np.radians(10.0))
# [guard] Heights [share of the reach] below this say no more than this, so that clouds without
# noise have a finite amount of evidence.
LEAST = 1e-6


def surprise(
    one: Surface,
    other: Surface,
    motion: Pose,
    sign: float,
    recipe: EvidenceRecipe = ALIGN.evidence,
) -> float:
    """How little chance explains that two clouds agree under a motion [nats].

    Minus the logarithm of the probability that as many pieces of surface meet as closely by chance,
    beyond those that any motion can bring together. How closely is not fixed beforehand: the most
    surprising height counts, less the logarithm of the number of heights that were tried.
    """
    met = meet(one, other, motion, recipe, sign)
    rows = np.flatnonzero(met.inside)
    if len(rows) < BLOCK:
        return 0.0
    below = met.rows[rows]
    normals = other.normals[below]
    tolerance = max(one.threshold, other.threshold) * met.deviations[rows]
    pieces = planes_of(other.centres[below], normals, one.radii[rows], tolerance)
    found = []
    for piece in range(pieces.max() + 1):
        own = np.flatnonzero(pieces == piece)
        if len(own) >= FEWEST:
            side = np.sign(normals[own] @ normals[own[0]])
            height = np.mean(side * met.heights[rows[own]])
            found.append(abs(height) / np.mean(met.reach[rows[own]]))
    spare = len(found) - geometry.degrees_of_freedom(motion.shape[0] - 1)
    if spare <= 0:
        return 0.0
    # By chance, each of these is uniform between 0 and 1.
    heights = np.clip(np.sort(found)[-spare:], LEAST, 1.0)
    closer = np.arange(spare)  # besides the piece itself
    nats = -binom.logsf(closer, spare, heights)
    return max(0.0, float(nats.max() - np.log(spare)))


def planes_of(
    centres: Points,
    normals: Points,
    radii: Float[Array, " n"],
    tolerance: Float[Array, " n"],
) -> Int[Array, " n"]:
    """For each patch the number of its plane: patches within tolerance of one another's planes.

    The largest patch that has no plane yet begins the next one.
    """
    plane = np.full(len(centres), -1)
    count = 0
    for first in np.argsort(-radii, kind="stable"):
        if plane[first] >= 0:
            continue
        away = centres - centres[first]
        height = np.maximum(np.abs(away @ normals[first]), np.abs((away * normals).sum(1)))
        same = (plane < 0) & (np.abs(normals @ normals[first]) > SAME)
        same &= height < np.maximum(tolerance, tolerance[first])
        plane[same] = count
        plane[first] = count
        count += 1
    return plane


def beyond_chance(
    surfaces: Sequence[Surface],
    poses: Poses,
    certain: Sequence[int],
    recipe: EvidenceRecipe = ALIGN.evidence,
) -> set[int]:
    """Clouds that agree with most others, directly or along links, as chance would not have it.

    Of n points, about n^3 motions differ from each other, and the best of them surprises by the
    logarithm of their number. `certain`: clouds that are known to belong together.
    """
    M = len(surfaces)
    signs, inverse = signs_of(surfaces, poses, recipe), geometry.inverse(poses)
    nats = np.zeros((M, M))
    for j, partners in enumerate(partners_of(surfaces, poses)):
        for i in partners:
            motion, sign = inverse[i] @ poses[j], float(signs[j] * signs[i])
            nats[j, i] = surprise(surfaces[j], surfaces[i], motion, sign, recipe)
    sizes = np.log(np.maximum([len(each) for each in surfaces], 1))
    links = (nats + nats.T) / 2 > 3 * np.minimum(sizes, sizes[:, None])
    links[np.ix_(certain, certain)] = True
    part = connected_components(coo_array(links), directed=False)[1]
    largest = np.flatnonzero(part == np.bincount(part).argmax()).tolist()
    return set(largest) if 2 * len(largest) > M else set()
