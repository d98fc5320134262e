# SPDX-License-Identifier: MIT
"""How good poses are: against the truth, and without one.

Poses are known up to one common motion: the gauge is taken out here (`relative`), and only here.
The errors of trajectories, ATE (`absolute_errors`) and RPE (`relative_errors`), are those of
`trajectory_errors`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.errors import InputError
from coframe.evaluate.trajectory_errors import Errors, absolute_errors, relative_errors
from coframe.types import Array, Points, Pose, Poses

__all__ = [
    "Agreement",
    "Errors",
    "Surface",
    "absolute_errors",
    "agreement",
    "default_gate",
    "frobenius_errors",
    "relative",
    "relative_errors",
    "rotation_errors",
    "rotation_rmse",
    "translation_errors",
]

# What follows defines the measure `agreement`; none of it changes a result.
# [size] Points of a cloud that are compared.
SAMPLE = 3000
# [format] Seed of their choice: always the same points.
SEED = 5
# [format] Neighbours of a point through which its plane is laid.
NEIGHBOURS = 12
# [format] Points that a pair must share to count, or a tenth of the sample where that is less.
MIN_SHARED = 200
# [format] [share of the extent] Points that are farther apart are not of the same surface.
GATE = 0.01
# [format] [distances between neighbours] The same gate, at least.
SPACINGS = 3.0


def relative(poses: Poses, reference: int = 0) -> Poses:
    """The poses in the frame of one of the clouds."""
    return geometry.inverse(poses[reference]) @ poses


def rotation_errors(poses: Poses, truth: Poses, reference: int = 0) -> Float[Array, " M"]:
    """The angle between estimated and true rotation of each cloud, relative to the reference cloud.

    Parameters
    ----------
    poses, truth
        Estimated and true poses.
    reference
        Index of the cloud that the others are compared relative to.

    Returns
    -------
    array of shape (M,)
        In degrees; 0 for the reference.

    Examples
    --------
    >>> coframe.metrics.rotation_errors(result.poses, truth).max()
    """
    difference = geometry.inverse(relative(poses, reference)) @ relative(truth, reference)
    return np.degrees(geometry.angle(geometry.rotation(difference)))


def translation_errors(poses: Poses, truth: Poses, reference: int = 0) -> Float[Array, " M"]:
    """The distance between estimated and true translation of each cloud, relative to the reference
    cloud.

    Parameters
    ----------
    poses, truth
        Estimated and true poses.
    reference
        Index of the cloud that the others are compared relative to.

    Returns
    -------
    array of shape (M,)
        In the unit of the poses; 0 for the reference.

    Examples
    --------
    >>> coframe.metrics.translation_errors(result.poses, truth).max()
    """
    return np.linalg.norm(
        geometry.translation(relative(poses, reference))
        - geometry.translation(relative(truth, reference)),
        axis=1,
    )


def error_at_points(pose: Pose, truth: Pose, points: Points) -> float:
    """The root mean square distance between points under a pose and under the true one.

    Parameters
    ----------
    pose, truth : (D+1, D+1) array
    points : (N, D) array
        In the cloud's own frame.

    Returns
    -------
    float
        [unit]

    Examples
    --------
    >>> error_at_points(np.eye(3), geometry.pose(np.eye(2), np.array([3.0, 4.0])), np.ones((5, 2)))
    5.0
    """
    middle = points.mean(0)
    R = geometry.rotation(pose) - geometry.rotation(truth)
    shift = geometry.translation(pose) - geometry.translation(truth) + R @ middle
    moved = (points - middle) @ R.T + shift
    return float(np.sqrt((moved**2).sum(1).mean()))


def frobenius_errors(poses: Poses, truth: Poses, reference: int = 0) -> Float[Array, " M"]:
    """The paper's rotation error |R_1^T R_j - true R_1^T R_j|_F of each cloud j, in space 2 sqrt(2)
    sin(angle / 2).

    Parameters
    ----------
    poses, truth
        Estimated and true poses.
    reference
        Index of the cloud that the others are compared relative to.

    Returns
    -------
    array of shape (M,)
        0 for the reference.

    Examples
    --------
    >>> coframe.metrics.frobenius_errors(result.poses, truth)
    """
    difference = geometry.rotation(relative(poses, reference)) - geometry.rotation(
        relative(truth, reference)
    )
    return np.linalg.norm(difference, axis=(1, 2))


def rotation_rmse(poses: Poses, truth: Poses, reference: int = 0) -> float:
    """The root of the mean squared Frobenius error over all clouds but the reference.

    Parameters
    ----------
    poses, truth
        Estimated and true poses.
    reference
        Index of the cloud that the others are compared relative to.

    Returns
    -------
    float
        The figure of the paper's tables.

    Examples
    --------
    >>> coframe.metrics.rotation_rmse(result.poses, truth)
    """
    errors = np.delete(frobenius_errors(poses, truth, reference), reference)
    return float(np.sqrt((errors**2).mean()))


@dataclass(frozen=True, eq=False)
class Surface:
    """A cloud for `agreement`: points, unit normals, and a tree over the points."""

    points: Points
    normals: Points
    tree: cKDTree

    @classmethod
    def of(cls, points: Points) -> "Surface":
        """The normals are those of the planes through the nearest neighbours."""
        tree = cKDTree(points)
        patches = points[tree.query(points, min(NEIGHBOURS, len(points)))[1]]
        patches -= patches.mean(1, keepdims=True)
        return cls(
            points, np.linalg.eigh(patches.swapaxes(1, 2) @ patches).eigenvectors[:, :, 0], tree
        )


@dataclass(frozen=True)
class Agreement:
    """How well clouds lie on each other.

    The residual alone can be small where little is left to compare: look at both.
    """

    # [user units] Median distance of a point to the surface of another cloud; None if no pair
    # overlaps.
    residual: float | None
    overlap: float  # share of points that have a point of another cloud within the gate


def agreement(surfaces: Sequence[Surface], poses: Poses, gate: float) -> Agreement:
    """The median absolute point-to-plane distance over all ordered pairs of clouds, and how much of
    them overlaps.

    It needs no truth, and is an honest figure where the poses were found from other points than
    these. Up to 3,000 random points of each cloud are compared. A point counts where its nearest
    neighbour is within the gate, and for the residual a pair of clouds counts where 200 points do.

    Parameters
    ----------
    surfaces
        The clouds, in their own frames.
    poses
        One for each cloud.
    gate
        Distance [user units] beyond which points are not of the same surface.

    Returns
    -------
    Agreement
        Residual and overlap.

    Examples
    --------
    >>> surfaces = [coframe.metrics.Surface.of(cloud) for cloud in clouds]
    >>> coframe.metrics.agreement(surfaces, result.poses, gate=0.01)
    """
    rng = np.random.default_rng(SEED)
    samples = [s.points[rng.choice(len(s.points), min(SAMPLE, len(s.points)))] for s in surfaces]
    distances, covered = [], []
    for a, sample in enumerate(samples):
        near_any = np.zeros(len(sample), bool)
        for b, surface in enumerate(surfaces):
            if a == b:
                continue
            points = geometry.transform(geometry.inverse(poses[b]) @ poses[a], sample)
            distance, nearest = surface.tree.query(points, distance_upper_bound=gate)
            near = np.isfinite(distance)
            near_any |= near
            if near.sum() >= min(MIN_SHARED, len(sample) / 10):
                offset = points[near] - surface.points[nearest[near]]
                distances.append(np.abs((offset * surface.normals[nearest[near]]).sum(1)))
        covered.append(near_any)
    residual = float(np.median(np.concatenate(distances))) if distances else None
    return Agreement(residual, float(np.concatenate(covered).mean()))


def default_gate(surfaces: Sequence[Surface], extent: float) -> float:
    """A gate for `agreement` where none is known: a hundredth of the extent, or three times the
    typical point spacing.
    """
    if not extent > 0:
        raise InputError(f"extent: expected a length above 0, found {extent!r}")
    spacing = [
        float(np.median(s.tree.query(s.points[:: -(-len(s.points) // SAMPLE)], 2)[0][:, 1]))
        for s in surfaces
    ]
    return max(GATE * extent, SPACINGS * float(np.median(spacing)))
