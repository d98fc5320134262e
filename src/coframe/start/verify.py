# SPDX-License-Identifier: MIT
"""Is a motion between two scans right? A few steps of point-to-plane ICP, then evidence.

For the motion: the share of points on the other scan's surface, with normals that agree. Against
it: points that float in front of a surface that the other scanner saw, since it would have seen
them instead. Lengths are in spacings (see `features`).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry
from coframe.start import planar_kernels, verify_kernels
from coframe.start.features import ThinScan
from coframe.start.recipe import START, StartRecipe
from coframe.types import Array

Motion = Float[Array, "4 4"]
Mask = Bool[Array, " n"]
# Points of one scan near another; see `_correspondences`.
Near = tuple[Array, Array, Array, Array]
ALL = slice(None)
# [size] Points, about, of the first steps of ICP, which need not be exact.
ROUGH_POINTS = 700
# [guard] Points that a motion is fitted to, at least, so that its six unknowns are overdetermined.
MIN_MATCHED = 20
# [size] Steps of ICP from the first gate to the last, with few points, and then with all points.
STEPS = 4
# [guard] Damping of a step of ICP, relative to the diagonal of its information: a motion that the
# points leave undetermined is not changed.
DAMPING = 1e-3
# [guard] Residuals [spacings] below this give no further evidence, so that scans which coincide
# have a finite amount of it; real ones have more.
MIN_RESIDUAL = 0.02


@dataclass(frozen=True)
class Evidence:
    """What supports a motion that carries scan a onto scan b, and what refutes it."""

    # The motion, refined.
    motion: Motion
    # [nats] How much more likely the distances are than those between unrelated surfaces.
    weight: float = 0.0
    # [share] Points on the other's surface, of the scan that has the larger share.
    overlap: float = 0.0
    # [information per point] Smallest eigenvalue of the fit: near 0 where the motion can slide.
    stiffness: float = 0.0


NO_EVIDENCE = Evidence(np.eye(4))


def verify(a: ThinScan, b: ThinScan, motion: Motion, recipe: StartRecipe = START) -> Evidence:
    """Refine a motion by ICP and collect the evidence for it."""
    few = slice(None, None, max(1, len(a) // ROUGH_POINTS))
    for gate in np.linspace(recipe.first_gate, recipe.last_gate, STEPS):
        motion = _icp_step(a, b, motion, float(gate), recipe, few) @ motion
    matched = len(_correspondences(a, b, motion, recipe.last_gate, recipe, few)[0])
    if matched < MIN_MATCHED:
        return NO_EVIDENCE
    for _ in range(STEPS):
        motion = _icp_step(a, b, motion, recipe.last_gate, recipe) @ motion
    return evidence_for(a, b, motion, recipe)


def evidence_for(a: ThinScan, b: ThinScan, motion: Motion, recipe: StartRecipe = START) -> Evidence:
    """The evidence for a motion as it is.

    Distances between unrelated surfaces are uniform; the sharper those of the common points are,
    the more each of them counts. Noise blunts the distances, but not the overlap, so more overlap
    than unrelated surfaces have counts, too. Points that float refute a share of all this.
    """
    back = geometry.inverse(motion)
    near = _correspondences(a, b, motion, recipe.neighbour_distance, recipe)
    on_b, distances = _points_on_surface(a, near, recipe)
    near_a = _correspondences(b, a, back, recipe.neighbour_distance, recipe)
    on_a, _ = _points_on_surface(b, near_a, recipe)
    overlap = float(max(on_b.mean(), on_a.mean()))
    common = float(on_b.sum() + on_a.sum()) / 2
    limit = recipe.surface_distance
    residual = float(np.sqrt(np.mean(distances[on_b] ** 2))) if on_b.any() else limit
    spread = np.sqrt(2 * np.pi * np.e) * max(residual, MIN_RESIDUAL)
    sharper = max(0.0, float(np.log(2 * limit / spread)))
    larger = max(0.0, overlap - recipe.chance_overlap)
    conflict = max(
        _floating_share(a, b, motion, on_b, recipe), _floating_share(b, a, back, on_a, recipe)
    )
    weight = common * (sharper + larger) * max(0.0, 1.0 - recipe.conflict_cost * conflict)
    stiffness = 0.0
    if on_b.sum() >= MIN_MATCHED:
        stiffness = float(_information(a, b, near, on_b)[0][0])
    return Evidence(motion, weight, overlap, stiffness)


def motion_distance(one: Motion, other: Motion, recipe: StartRecipe = START) -> float:
    """How far apart [spacings] two motions carry the points at a radius from a scan's centre."""
    angle = float(geometry.angle(geometry.rotation(one).T @ geometry.rotation(other)))
    return recipe.motion_radius * angle + float(
        np.linalg.norm(geometry.translation(one) - geometry.translation(other))
    )


def motion_distances(
    some: Float[Array, "n 4 4"], others: Float[Array, "_ 4 4"], recipe: StartRecipe = START
) -> Float[Array, " n"]:
    """`motion_distance` of each motion and its counterpart, or of all and a single one."""
    turns = np.swapaxes(geometry.rotation(some), 1, 2) @ geometry.rotation(others)
    shifts = geometry.translation(some) - geometry.translation(others)
    return recipe.motion_radius * geometry.angle(turns) + np.linalg.norm(shifts, axis=1)


def verify_slides(
    a: ThinScan, b: ThinScan, motion: Motion, recipe: StartRecipe = START
) -> list[Evidence]:
    """Verify motions displaced along the least constrained direction, to detect sliding."""
    near = _correspondences(a, b, motion, recipe.neighbour_distance, recipe)
    on, _ = _points_on_surface(a, near, recipe)
    if on.sum() < MIN_MATCHED:
        return []
    _, vectors, spread, centre = _information(a, b, near, on)
    twist = vectors[:, 0] / np.array([spread] * 3 + [1.0] * 3)
    return [
        verify(a, b, motion_about(sign * far * twist, centre) @ motion, recipe)
        for far in _slides(recipe)
        for sign in (1, -1)
    ]


def _slides(recipe: StartRecipe) -> list[float]:
    """From the least displacement that is another motion, each twice the one before."""
    octaves = int(np.log2(recipe.motion_radius / recipe.first_gate))
    return [recipe.first_gate * 2.0**k for k in range(octaves + 1)]


def _correspondences(
    a: ThinScan,
    b: ThinScan,
    motion: Motion,
    gate: float,
    recipe: StartRecipe,
    rows: slice = ALL,
) -> Near:
    """Points of a, or of some rows of it, near b: their indices among these, those of their
    neighbours, their positions, their heights.

    Heights are those above the tangent planes of the neighbours.
    """
    points, normals = a.points[rows], a.normals[rows]
    moved = geometry.transform(motion, points)
    distance, nearest = b.nearest.query(moved, gate)
    i = np.flatnonzero(np.isfinite(distance))
    j = nearest[i]
    turned = normals[i] @ geometry.rotation(motion).T
    found: Near = verify_kernels.facing_alike(
        i, j, moved, turned, b.points, b.normals, recipe.min_normal_cosine
    )
    return found


def _icp_step(
    a: ThinScan, b: ThinScan, motion: Motion, gate: float, recipe: StartRecipe, rows: slice = ALL
) -> Motion:
    """One Gauss-Newton step with Tukey's weights; identity where too few points correspond."""
    i, j, moved, height = _correspondences(a, b, motion, gate, recipe, rows)
    if len(i) < MIN_MATCHED:
        return np.eye(4)
    weight = np.maximum(1 - (height / gate) ** 2, 0) ** 2
    centre = moved.mean(0)
    J = verify_kernels.levers(moved - centre, b.normals[j])
    H = (J * weight[:, None]).T @ J
    damped = H + DAMPING * np.diag(np.diagonal(H)) + 1e-9 * np.eye(6)
    return motion_about(-np.linalg.solve(damped, J.T @ (weight * height)), centre)


def _points_on_surface(
    a: ThinScan, near: Near, recipe: StartRecipe
) -> tuple[Mask, Float[Array, " n"]]:
    """Which points of a are on the other surface, and how high above it."""
    i, _, _, height = near
    on = np.zeros(len(a), bool)
    on[i] = np.abs(height) < recipe.surface_distance
    heights = np.full(len(a), np.inf)
    heights[i] = height
    return on, heights


def _floating_share(
    a: ThinScan, b: ThinScan, motion: Motion, on: Mask, recipe: StartRecipe
) -> float:
    """The share of a's points in b's view that float in front of b's surface."""
    moved = geometry.transform(motion, a.points)
    if b.place is not None:
        floats, inside = planar_kernels.count_floating(
            moved, on, b.points, b.normals, b.place, recipe.normal_radius
        )
        return floats / max(inside, 1)
    if b.view is None or b.image is None:
        return 0.0
    surface = b.image.at(moved)
    seen = np.isfinite(surface)
    floating = seen & ~on & (moved @ b.view - surface > recipe.normal_radius)
    return float(floating.sum() / max(seen.sum(), 1))


def _information(
    a: ThinScan, b: ThinScan, near: Near, on: Mask
) -> tuple[Float[Array, " 6"], Float[Array, "6 6"], float, Float[Array, " 3"]]:
    """Eigenvalues and vectors of J^T J / n of the common points, their spread and their centre.

    Arms are in units of the spread, so that rotations and translations compare.
    """
    i, j, moved, _ = near
    kept = on[i]
    centre = moved[kept].mean(0)
    arms = moved[kept] - centre
    spread = max(float(np.sqrt((arms**2).sum(1).mean())), 1e-9)
    J = verify_kernels.levers(arms / spread, b.normals[j[kept]])
    H = J.T @ J / len(J)
    if not a.points[:, 2].any():  # Scans in the plane cannot leave it, so they are stiff there.
        H[[0, 1, 5], [0, 1, 5]] = 1.0
    values, vectors = np.linalg.eigh(H)
    return values, vectors, spread, centre


def motion_about(twist: Float[Array, " 6"], centre: Float[Array, " 3"]) -> Motion:
    """The motion x -> exp(omega) (x - c) + c + tau."""
    R = geometry.exp_rotation(twist[:3])
    return geometry.pose(R, centre - R @ centre + twist[3:])
