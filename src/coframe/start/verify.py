# SPDX-License-Identifier: MIT
"""Is a motion between two scans right? A few steps of point-to-plane ICP from it, then evidence for
and against.

For: the share of points that lie on the other scan's surface, with normals that agree. Against:
points that float in front of a surface that the other scanner saw; it would have seen them instead.
Lengths are in spacings, see `features`.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry
from coframe.start.features import HIDDEN, ThinScan, depth_image
from coframe.types import Array

# spacings: how far a point may be from its neighbour, step by step
GATES = (
    5.0,
    4.0,
    3.0,
    3.0,
    2.0,
    2.0,
    2.0,
    2.0,
)
ROUGH_STEPS = 4  # of these, with few points
AGREE = 0.7  # cosine between normals of one surface
NEAR = 1.5  # spacings: a point with a neighbour this close,
CLOSE = 0.5  # and this close to its tangent plane, lies on the other surface
LEAST_POINTS = 20  # that a motion is fitted to
ROUGH = 700  # points that the first steps use
WORTH = 0.1  # share of points with a neighbour after these: with less, a motion is given up
CONTRADICTED = 4.0  # how much a floating point counts against, beside one that lies on the surface
BY_CHANCE = 0.4  # overlap that unrelated surfaces reach
SOFT = 0.02  # stiffness below which a motion may slide,
SLIDES = (6.0, 12.0, 20.0, 30.0)  # spacings, this far
SAME = 5.0  # spacings: motions that differ by less are the same
RADIUS = 20.0  # spacings from the centre at which motions are compared


@dataclass(frozen=True)
class Evidence:
    """What speaks for a motion that carries scan a onto scan b, and what against it."""

    motion: Float[Array, "4 4"]  # refined
    overlap: float  # share of points on the other's surface, of the scan that has the larger share
    common: float  # number of these points, the mean over both directions
    # share of points that float in front of the other's surface, the worse of both directions
    conflict: float
    residual: float  # root mean square distance to the tangent plane, where they overlap
    # smallest eigenvalue of the fit's information a point: near 0 where the motion can slide
    stiffness: float

    @property
    def weight(self) -> float:
        """Evidence in nats: how much more likely the distances are than those between unrelated
        surfaces, which are uniform.

        Noise blunts the distances, but not the overlap: more of it than unrelated surfaces have
        counts, too.
        """
        sharper = max(
            0.0, float(np.log(2 * CLOSE / (np.sqrt(2 * np.pi * np.e) * max(self.residual, 0.02))))
        )
        larger = max(0.0, self.overlap - BY_CHANCE)
        return self.common * (sharper + larger) * max(0.0, 1.0 - CONTRADICTED * self.conflict)


NOTHING = Evidence(np.eye(4), overlap=0.0, common=0.0, conflict=0.0, residual=CLOSE, stiffness=0.0)


def verify(a: ThinScan, b: ThinScan, motion: Float[Array, "4 4"]) -> Evidence:
    """Refine the motion and weigh it."""
    few = a.fewer(ROUGH)
    for gate in GATES[:ROUGH_STEPS]:
        motion = _step(few, b, motion, gate) @ motion
    if len(_near(few, b, motion, GATES[ROUGH_STEPS])[0]) < max(WORTH * len(few), LEAST_POINTS):
        return NOTHING
    for gate in GATES[ROUGH_STEPS:]:
        motion = _step(a, b, motion, gate) @ motion
    return evidence_for(a, b, motion)


def evidence_for(a: ThinScan, b: ThinScan, motion: Float[Array, "4 4"]) -> Evidence:
    """The evidence for a motion as it is."""
    back = geometry.inverse(motion)
    on_b, distances = _on(a, b, motion)
    on_a, _ = _on(b, a, back)
    conflict = max(_floating(a, b, motion, on_b), _floating(b, a, back, on_a))
    return Evidence(
        motion,
        overlap=float(max(on_b.mean(), on_a.mean())),
        common=float(on_b.sum() + on_a.sum()) / 2,
        conflict=conflict,
        residual=float(np.sqrt(np.mean(distances[on_b] ** 2))) if on_b.any() else CLOSE,
        stiffness=_stiffness(a, b, motion, on_b),
    )


def motion_distance(one: Float[Array, "4 4"], other: Float[Array, "4 4"]) -> float:
    """How far two motions carry points of a scan apart that are RADIUS from its centre, in
    spacings.
    """
    turn = float(geometry.angle(geometry.rotation(one).T @ geometry.rotation(other)))
    return RADIUS * turn + float(
        np.linalg.norm(geometry.translation(one) - geometry.translation(other))
    )


def _near(
    a: ThinScan, b: ThinScan, motion: Float[Array, "4 4"], gate: float
) -> tuple[Array, Array, Array, Array]:
    """Indices of a's points with a neighbour on b, these neighbours, the moved points and their
    distances from the planes.
    """
    moved = geometry.transform(motion, a.points)
    distance, nearest = b.tree.query(moved, distance_upper_bound=gate)
    i = np.flatnonzero(np.isfinite(distance))
    j = nearest[i]
    alike = ((a.normals[i] @ geometry.rotation(motion).T) * b.normals[j]).sum(1) > AGREE
    i, j = i[alike], j[alike]
    return i, j, moved[i], ((moved[i] - b.points[j]) * b.normals[j]).sum(1)


def _step(
    a: ThinScan, b: ThinScan, motion: Float[Array, "4 4"], gate: float
) -> Float[Array, "4 4"]:
    """One Gauss-Newton step of point-to-plane ICP, with Tukey's weights; nothing where too few
    points are near.
    """
    i, j, moved, height = _near(a, b, motion, gate)
    if len(i) < LEAST_POINTS:
        return np.eye(4)
    weight = np.maximum(1 - (height / gate) ** 2, 0) ** 2
    centre = moved.mean(0)
    normals = b.normals[j]
    J = np.concatenate([np.cross(moved - centre, normals), normals], 1)
    H = (J * weight[:, None]).T @ J
    twist = -np.linalg.solve(
        H + 1e-3 * np.diag(np.diagonal(H)) + 1e-9 * np.eye(6), J.T @ (weight * height)
    )
    return about(twist, centre)


def _on(
    a: ThinScan, b: ThinScan, motion: Float[Array, "4 4"]
) -> tuple[Bool[Array, " n"], Float[Array, " n"]]:
    """Which points of a lie on b's surface, and how far they are from it."""
    i, _, _, height = _near(a, b, motion, NEAR)
    on, distance = np.zeros(len(a), bool), np.full(len(a), np.inf)
    on[i] = np.abs(height) < CLOSE
    distance[i] = height
    return on, distance


def _floating(
    a: ThinScan, b: ThinScan, motion: Float[Array, "4 4"], on: Bool[Array, " n"]
) -> float:
    """The share of a's points that float in front of b's surface, of those that fall onto its
    image.
    """
    if b.view is None:
        return 0.0
    moved = geometry.transform(motion, a.points)
    behind = depth_image(b.points, b.view).at(moved)
    seen = np.isfinite(behind)
    floating = seen & ~on & (moved @ b.view - behind > HIDDEN)
    return float(floating.sum() / max(seen.sum(), 1))


def _stiffness(
    a: ThinScan, b: ThinScan, motion: Float[Array, "4 4"], on: Bool[Array, " n"]
) -> float:
    """How firmly the common points hold the motion: the smallest eigenvalue of J^T J / n with arms
    in units of their spread.
    """
    return float(_held(a, b, motion, on)[0][0]) if on.sum() >= LEAST_POINTS else 0.0


def _held(
    a: ThinScan, b: ThinScan, motion: Float[Array, "4 4"], on: Bool[Array, " n"]
) -> tuple[Float[Array, " 6"], Float[Array, "6 6"], float, Float[Array, " 3"]]:
    """Eigenvalues and vectors of J^T J / n, the spread of the common points, and their centre."""
    i, j, moved, _ = _near(a, b, motion, NEAR)
    kept = on[i]
    centre = moved[kept].mean(0)
    arms = moved[kept] - centre
    spread = max(float(np.sqrt((arms**2).sum(1).mean())), 1e-9)
    normals = b.normals[j[kept]]
    J = np.concatenate([np.cross(arms / spread, normals), normals], 1)
    H = J.T @ J / len(J)
    if not a.points[:, 2].any():  # in the plane: what it cannot do is not soft
        H[[0, 1, 5], [0, 1, 5]] = 1.0
    values, vectors = np.linalg.eigh(H)
    return values, vectors, spread, centre


def slides(a: ThinScan, b: ThinScan, motion: Float[Array, "4 4"]) -> list[Evidence]:
    """What is found from places along the way that the common points resist least."""
    on, _ = _on(a, b, motion)
    if on.sum() < LEAST_POINTS:
        return []
    _, vectors, spread, centre = _held(a, b, motion, on)
    twist = vectors[:, 0] / np.array([spread] * 3 + [1.0] * 3)
    return [
        verify(a, b, about(sign * far * twist, centre) @ motion)
        for far in SLIDES
        for sign in (1, -1)
    ]


def about(twist: Float[Array, " 6"], centre: Float[Array, " 3"]) -> Float[Array, "4 4"]:
    """The motion x -> exp(omega) (x - c) + c + tau."""
    R = geometry.exp_rotation(twist[:3])
    return geometry.pose(R, centre - R @ centre + twist[3:])
