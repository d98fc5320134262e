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
from dataclasses import dataclass, fields

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
# [guard] Probabilities that are no larger are bounded, not computed.
TINY = np.finfo(np.float64).tiny


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


# Of clouds that share too little surface to say anything.
NONE = Surprise(0.0, 0.0, np.inf)


@dataclass(frozen=True)
class Contact:
    """The patches of one cloud in territory of another: over which planes, and how high."""

    centres: Points  # of the patches below
    normals: Points  # of these
    radii: Float[Array, " n"]
    heights: Float[Array, " n"]
    deviations: Float[Array, " n"]
    reach: Float[Array, " n"]
    tolerance: Float[Array, " n"]  # of heights over one plane

    def __len__(self) -> int:
        return len(self.heights)


Contacts = dict[tuple[int, int], list[Contact]]


def contact(
    one: Surface,
    other: Surface,
    motion: Pose,
    sign: float,
    recipe: EvidenceRecipe = ALIGN.evidence,
    pose: Pose | None = None,
) -> Contact:
    """Lay a cloud over another one by a motion. `pose`: of the other cloud; planes in that frame.

    Without it, in the frame of the other cloud.
    """
    met = meet(one, other, motion, recipe, sign)
    rows = np.flatnonzero(met.inside)
    below = met.rows[rows]
    centres, normals = other.centres[below], other.normals[below]
    if pose is not None:
        centres = geometry.transform(pose, centres)
        normals = normals @ geometry.rotation(pose).T
    heights, deviations, reach = (each[rows] for each in (met.heights, met.deviations, met.reach))
    tolerance = max(one.threshold, other.threshold) * deviations
    return Contact(centres, normals, one.radii[rows], heights, deviations, reach, tolerance)


def surprise(
    one: Surface,
    other: Surface,
    motion: Pose,
    sign: float,
    recipe: EvidenceRecipe = ALIGN.evidence,
) -> Surprise:
    """How little chance explains that two clouds agree under a motion; see `surprise_of`."""
    return surprise_of([contact(one, other, motion, sign, recipe)])


def surprise_of(contacts: Sequence[Contact]) -> Surprise:
    """How little chance explains that two clouds, or two rigid parts of several, agree.

    Minus the logarithm of the probability that as many pieces of surface meet as closely by chance,
    beyond those that any motion can bring together. How closely is not fixed beforehand: the most
    surprising height counts, less the logarithm of the number of heights that were tried.
    """
    from coframe.align import plane_kernels  # Numba, which verdicts alone do not need

    if sum(map(len, contacts)) < BLOCK:
        return NONE
    every = [
        np.concatenate([getattr(each, field.name) for each in contacts])
        for field in fields(Contact)
    ]
    centres, normals, radii, heights, deviations, reach, tolerance = every
    pieces = planes_of(centres, normals, radii, tolerance)
    found, expected = plane_kernels.mean_heights(
        pieces, normals, heights, deviations, reach, FEWEST
    )
    D = centres.shape[1]
    spare = len(found) - geometry.degrees_of_freedom(D)
    if spare <= 0:
        return NONE
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
    where they meet closely. Of two parts, the evidence of all links between them adds up. Each link
    spares the pieces that a motion can bring together; but a part is rigid, and one motion is all
    that is free between two of them. So what is left are parts that are laid upon each other as
    wholes. `certain`: clouds that are known to belong together.
    """
    M = len(surfaces)
    signs, inverse = signs_of(surfaces, poses, recipe), geometry.inverse(poses)
    partners = partners_of(surfaces, poses)

    def laid(j: int, i: int, pose: Pose | None = None) -> Contact:
        sign = float(signs[j] * signs[i])
        return contact(surfaces[j], surfaces[i], inverse[i] @ poses[j], sign, recipe, pose)

    def found(j: int) -> list[Surprise]:
        return [surprise_of([laid(j, i)]) for i in partners[j]]

    known: dict[tuple[int, int], Surprise] = {}
    for j, row in enumerate(Local(range(M), threads).map(found)):
        known |= {(j, i): each for i, each in zip(partners[j], row, strict=True)}
    links = np.zeros((M, M))
    for j, i in known:
        # A cloud with many neighbours may be compared in one direction alone.
        links[j, i] = links[i, j] = _of_both(known[j, i], known.get((i, j), known[j, i]))
    links[np.ix_(certain, certain)] = 1.0
    parts = _joined(links)
    number = {j: a for a, part in enumerate(parts) for j in part}
    across = [(j, i) for j in range(M) for i in partners[j] if number[j] != number[i]]
    contacts: Contacts = {}
    between = Local(across, threads).map(lambda pair: laid(pair[0], pair[1], poses[pair[1]]))
    for (j, i), each in zip(across, between, strict=True):
        contacts.setdefault((number[j], number[i]), []).append(each)
    return _joined_as_wholes(parts, contacts)


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


def _joined_as_wholes(parts: Sequence[set[int]], contacts: Contacts) -> list[set[int]]:
    """Parts with less than one between any two of them, each laid upon the other as a whole.

    `contacts`: of the clouds of a part on those of another.
    """
    known, laid = dict(enumerate(parts)), dict(contacts)
    between: dict[tuple[int, int], float] = {}
    changed = {(min(pair), max(pair)) for pair in laid}
    while True:
        between |= {pair: _link(laid, *pair) for pair in sorted(changed)}
        best = max(between, key=lambda pair: between[pair], default=None)
        if best is None or between[best] < 1:
            return list(known.values())
        a, b = best
        known[a] = known[a] | known.pop(b)
        changed = set()
        for pair in [pair for pair in laid if b in pair]:
            moved = laid.pop(pair)
            new = tuple(a if part == b else part for part in pair)
            between.pop((min(pair), max(pair)), None)
            if new[0] != new[1]:
                laid[new[0], new[1]] = [*laid.get((new[0], new[1]), []), *moved]
                changed.add((min(new), max(new)))


def _link(contacts: Contacts, a: int, b: int) -> float:
    """What two parts have in what the best of all motions has by chance."""
    both = [surprise_of(contacts[pair]) for pair in ((a, b), (b, a)) if pair in contacts]
    return _of_both(both[0], both[-1])


def _of_both(one: Surprise, other: Surprise) -> float:
    """What either way of laying one part upon the other has in what chance has, if it is close."""
    nats = one.nats / one.needed + other.nats / other.needed
    possible = one.possible / one.needed + other.possible / other.needed
    return nats / 2 if 2 * nats >= possible else 0.0
