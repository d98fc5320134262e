# SPDX-License-Identifier: MIT
"""Motions between scans of built places: rooms, halls, facades, whose surfaces face few directions.

On planes there is nothing for descriptors to describe. But the directions that the surfaces of two
scans face must match, which leaves a few rotations. Along each direction surfaces have offsets, and
those of two scans must match, which leaves a few shifts. All combinations of these are tried.

For a motion speak patches that lie on the other scan's surface, against it those that lie beside
it, or where the other scan looked through. Overlap alone decides nothing: rooms that are laid over
each other share most of their floors. Lengths are in spacings (see `features`).
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.start import patch_kernels
from coframe.start.patches import SAME, Patches
from coframe.start.recipe import StartRecipe
from coframe.start.verify import MIN_MATCHED, Evidence, Motion, motion_about, motion_distances
from coframe.types import Array

# [limit] Rotations of a pair: those that carry a box onto itself.
ROTATIONS = 24
# [limit] Directions of the other scan that may be up where one scan has up: floor and ceiling.
UPRIGHT = 2
# [size] Steps of azimuth about a direction.
AZIMUTHS = 180
# [limit] Azimuths nearer to each other than so many are one rotation.
APART = 5
# [limit] Shifts along each of three directions, the most frequent direction first.
SHIFTS = (8, 8, 12)
# [size] Patches that are tried at every shift, and that planes are fitted with.
TRIED = 400
# [size] Motions of a pair whose planes are fitted.
FITTED = 40
# [size] Motions of these that are settled.
SETTLED = 8
# [size] Fits of planes with each gate.
FITS = 2
# [limit] [spacings] How exact motions are after the first fits.
COARSE = 1.0
# [limit] [spacings] How exact they are when they are settled.
FINEST = 0.125
# [limit] Moves along soft directions with one gate.
MOVES = 8
# [limit] Standard deviations of the scatter of both patches within which heights agree.
SIGMAS = 3.0


def find_motions(a: Patches, b: Patches, recipe: StartRecipe) -> list[Motion]:
    """Motions between two scans, those with the most evidence."""
    if not (a.fixes_shifts and b.fixes_shifts):
        return []
    some = spread(a, TRIED)
    axes = _axes(b)
    motions: list[Motion] = []
    evidence: list[float] = []
    for R in rotations(a, b):
        offsets = [
            _offsets(a, b, R, axis, most, recipe) for axis, most in zip(axes, SHIFTS, strict=True)
        ]
        shifts = np.array(list(product(*offsets))) @ np.linalg.inv(axes).T
        turn = geometry.pose(R, np.zeros(3))
        agree, contradict = _compare(a, b, turn, some, shifts, recipe.last_gate)
        found = recipe.patch_evidence * (agree - recipe.patch_conflict * contradict)
        for k in np.argsort(-found, kind="stable")[:FITTED].tolist():
            motions.append(geometry.pose(R, shifts[k]))
            evidence.append(float(found[k]))
    kept = _distinct(motions, evidence, FITTED, recipe)
    for gate in (recipe.first_gate, recipe.last_gate):
        kept = [_fit(a, b, motion, some, gate, recipe)[0] for motion in kept]
    evidence = [weigh(a, b, motion, recipe, COARSE)[0] for motion in kept]
    kept = _distinct(kept, evidence, SETTLED, recipe)
    return [settle(a, b, motion, recipe) for motion in kept]


def evidence_for(a: Patches, b: Patches, motion: Motion, recipe: StartRecipe) -> Evidence:
    """The evidence for a motion as it is. Whether it can slide, other motions have shown."""
    weight, overlap = weigh(a, b, motion, recipe)
    return Evidence(motion, max(weight, 0.0), overlap, 1.0)


def settle(a: Patches, b: Patches, motion: Motion, recipe: StartRecipe) -> Motion:
    """The motion nearby with the most evidence.

    Planes are fitted to each other along directions that most of them resist. Few patches resist a
    slide along floor and ceiling, and a fit would follow their scatter: there the evidence decides.
    """
    some = spread(a, TRIED)
    step = recipe.last_gate
    while step >= FINEST:
        for _ in range(FITS):
            motion, soft, centre = _fit(a, b, motion, some, 2 * step, recipe)
        best = weigh(a, b, motion, recipe, step)[0]
        for _ in range(MOVES if len(soft) else 0):
            near = [motion_about(step * twist, centre) @ motion for twist in soft]
            found = [weigh(a, b, each, recipe, step)[0] for each in near]
            k = int(np.argmax(found))
            if found[k] <= best:
                break
            motion, best = near[k], found[k]
        step /= 2
    return motion


def rotations(a: Patches, b: Patches) -> list[Float[Array, "3 3"]]:
    """Rotations that carry directions of a onto directions of b, the most likely first."""
    found: list[tuple[float, Array]] = []
    one, other = a.faces, b.faces
    for (i, j), (k, m) in product(one.pairs, other.pairs):
        if abs(one.axes[i] @ one.axes[j] - other.axes[k] @ other.axes[m]) > np.sqrt(1 - SAME**2):
            continue
        R = _frame(other.axes[k], other.axes[m]) @ _frame(one.axes[i], one.axes[j]).T
        alike = (one.axes @ R.T) @ other.axes.T > SAME
        both = np.minimum(one.shares[:, None], other.shares)
        found.append((float(np.where(alike, both, 0.0).max(1).sum()), R))
    found.sort(key=lambda each: -each[0])
    turns = [R for axis in other.axes[:UPRIGHT] for R in _turns(a, b, one.axes[0], axis)]
    kept: list[Array] = []
    for R in (*(R for _, R in found), *turns):
        if len(kept) == ROTATIONS:
            break
        if all(np.trace(R.T @ each) < 1 + 2 * SAME for each in kept):
            kept.append(R)
    return kept


def _turns(
    a: Patches, b: Patches, own: Float[Array, " 3"], axis: Float[Array, " 3"]
) -> list[Float[Array, "3 3"]]:
    """Rotations that carry one direction onto another, so that what else there is faces alike."""
    frames = [np.linalg.svd(each[None])[2][[1, 2, 0]] for each in (own, axis)]
    for frame, each in zip(frames, (own, axis), strict=True):
        frame[2] = each
        frame[1] = np.cross(each, frame[0])
    azimuths = []
    for patches, frame in zip((a, b), frames, strict=True):
        x, y, z = frame @ patches.normals.T
        weight = np.where(patches.flat & (np.abs(z) < geometry.ALIKE), patches.areas, 0.0)
        position = np.arctan2(y, x) / (2 * np.pi) * AZIMUTHS % AZIMUTHS
        azimuths.append(np.bincount(position.astype(int) % AZIMUTHS, weight, minlength=AZIMUTHS))
    votes = np.array([np.roll(azimuths[0], k) @ azimuths[1] for k in range(AZIMUTHS)])
    votes = np.sum([(3 - abs(k)) * np.roll(votes, k) for k in range(-2, 3)], axis=0)
    best: list[int] = []
    for k in np.argsort(-votes, kind="stable").tolist():
        apart = [min(abs(k - each), AZIMUTHS - abs(k - each)) for each in best]
        if len(best) < ROTATIONS // UPRIGHT and all(each > APART for each in apart):
            best.append(k)
    turns = geometry.exp_rotation(
        np.outer(np.array(best) * (2 * np.pi / AZIMUTHS), [0.0, 0.0, 1.0])
    )
    return [frames[1].T @ turn @ frames[0] for turn in turns]


def spread(patches: Patches, count: int) -> Array:
    """Rows of about so many patches, as many of each direction (normal-space sampling).

    Most patches of a hall are floor and ceiling, which say nothing of shifts along them. Those that
    are not flat count as one more direction: edges are what floats where scans do not fit.
    """
    axes = patches.faces.axes
    cosines = np.column_stack([patches.normals @ axes.T, np.full(len(patches), SAME)])
    group = np.where(patches.flat, cosines.argmax(1), -1)
    kinds = sorted((np.flatnonzero(group == k) for k in range(-1, len(axes) + 1)), key=len)
    found = []
    for number, rows in enumerate(kinds):
        share = min(len(rows), count // (len(kinds) - number))
        found.append(rows[np.arange(share) * len(rows) // max(share, 1)])
        count -= share
    return np.sort(np.concatenate(found))


def _frame(one: Float[Array, " 3"], other: Float[Array, " 3"]) -> Float[Array, "3 3"]:
    """Orthogonal axes about two directions, as columns; both count alike."""
    x, y = one + other, one - other
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    return np.column_stack([x, y, np.cross(x, y)])


def _axes(of: Patches) -> Float[Array, "3 3"]:
    """Three directions, as rows, that fix a shift; what is missing is perpendicular."""
    axes = of.faces.axes
    first = axes[0]
    beside = next((axis for axis in axes if abs(axis @ first) < geometry.ALIKE), None)
    second = of.normals[of.across][np.argmax(of.areas[of.across])] if beside is None else beside
    normal = np.cross(first, second)
    normal = normal / np.linalg.norm(normal)
    third = next((axis for axis in axes if abs(axis @ normal) > geometry.ALIKE), normal)
    return np.array([first, second, third])


def _offsets(
    a: Patches,
    b: Patches,
    R: Float[Array, "3 3"],
    axis: Float[Array, " 3"],
    most: int,
    recipe: StartRecipe,
) -> Float[Array, " s"]:
    """Shifts along an axis at which surfaces that face it, or away from it, meet, best first."""
    own = axis @ R
    p, q = a.centres @ own, b.centres @ axis
    low = np.floor(min(p.min(), q.min()))
    bins = int(max(p.max(), q.max()) - low) + 2
    votes = np.zeros(2 * bins - 1)
    for sign in (1.0, -1.0):
        profiles = []
        for patches, x, cosine in ((a, p, a.normals @ own), (b, q, b.normals @ axis)):
            # The power makes those that face the axis count, whatever else is there.
            weight = np.where(sign * cosine > geometry.ALIKE, cosine, 0.0) ** 4
            profiles.append(_profile(x - low, weight * patches.areas, bins))
        votes += np.correlate(profiles[1], profiles[0], "full")
    votes = np.convolve(votes, [0.5, 1.0, 0.5], "same")
    kept: list[int] = []
    for k in np.argsort(-votes, kind="stable").tolist():
        if len(kept) == most or votes[k] == 0:
            break
        if all(abs(k - other) > recipe.last_gate for other in kept):
            kept.append(k)
    return np.array(kept or [bins - 1], float) - (bins - 1)


def _profile(x: Float[Array, " n"], weight: Float[Array, " n"], bins: int) -> Float[Array, " bins"]:
    """Sums of weights, each split between two bins: their roots, as large walls are not all."""
    low = x.astype(int)
    share = x - low
    found = np.bincount(low, weight * (1 - share), minlength=bins)
    return np.sqrt(found + np.bincount(low + 1, weight * share, minlength=bins))


def _compare(
    a: Patches, b: Patches, motion: Motion, some: Array, shifts: Float[Array, "s 3"], gate: float
) -> tuple[Float[Array, " s"], Float[Array, " s"]]:
    """How many patches of a agree with b, and how many contradict it, after shifts of a motion."""
    grid = b.grid
    agree, contradict = patch_kernels.compare_shifts(
        geometry.transform(motion, a.centres[some]),
        a.normals[some] @ geometry.rotation(motion).T,
        a.radii[some],
        a.variances[some],
        shifts,
        b.centres,
        b.normals,
        b.radii,
        b.variances,
        b.place,
        grid.cells,
        grid.low,
        grid.side,
        grid.seen,
        grid.edge,
        gate,
        geometry.ALIKE,
        SIGMAS,
    )
    return agree, contradict


def weigh(
    a: Patches, b: Patches, motion: Motion, recipe: StartRecipe, gate: float = FINEST
) -> tuple[float, float]:
    """The evidence of all patches of both, and the larger share of those that agree."""
    still = np.zeros((1, 3))
    there = _compare(a, b, motion, np.arange(len(a)), still, gate)
    back = _compare(b, a, geometry.inverse(motion), np.arange(len(b)), still, gate)
    agree, contradict = (float(one[0] + other[0]) for one, other in zip(there, back, strict=True))
    overlap = max(float(there[0][0]) / len(a), float(back[0][0]) / len(b))
    return recipe.patch_evidence * (agree - recipe.patch_conflict * contradict), overlap


def _distinct(
    motions: Sequence[Motion], evidence: Sequence[float], most: int, recipe: StartRecipe
) -> list[Motion]:
    """The motions with the most evidence that are not the same."""
    order = np.argsort(-np.array(evidence), kind="stable")
    left = np.array(motions).reshape(-1, 4, 4)[order]
    kept: list[Motion] = []
    while len(left) and len(kept) < most:
        kept.append(left[0])
        left = left[motion_distances(left, left[:1], recipe) > recipe.first_gate]
    return kept


def _fit(
    a: Patches, b: Patches, motion: Motion, some: Array, gate: float, recipe: StartRecipe
) -> tuple[Motion, Float[Array, "s 6"], Float[Array, " 3"]]:
    """A motion after one step along its stiff directions.

    Also steps of about one spacing along the others, both ways, and the point that they are about.
    """
    x = geometry.transform(motion, a.centres[some])
    # Those farther away are beyond the gate or beside the patch.
    distance, j = b.nearest.query(x, gate + b.radii.max())
    normals = b.normals[j]
    height = ((x - b.centres[j]) * normals).sum(1)
    across = np.sqrt(np.maximum(distance**2 - height**2, 0))
    cosine = ((a.normals[some] @ geometry.rotation(motion).T) * normals).sum(1)
    kept = a.flat[some] & b.flat[j] & (np.abs(height) < gate)
    kept &= (across < b.radii[j]) & (cosine > geometry.ALIKE)
    if kept.sum() < MIN_MATCHED:
        return motion, np.empty((0, 6)), np.zeros(3)
    x, normals, height = x[kept], normals[kept], height[kept]
    weight = (1 - (height / gate) ** 2) ** 2
    centre = x.mean(0)
    reach = max(float(np.sqrt(((x - centre) ** 2).sum(1).mean())), 1.0)
    J = np.concatenate([np.cross((x - centre) / reach, normals), normals], 1)
    weighted = (J * weight[:, None]).T / weight.sum()
    values, vectors = np.linalg.eigh(weighted @ J)
    units = np.array([1 / reach] * 3 + [1.0] * 3)[:, None] * vectors
    stiff = values > recipe.soft_stiffness
    twist = -units[:, stiff] @ ((vectors.T @ (weighted @ height))[stiff] / values[stiff])
    soft = units[:, ~stiff].T
    return motion_about(twist, centre) @ motion, np.concatenate([soft, -soft]), centre
