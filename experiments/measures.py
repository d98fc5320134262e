# SPDX-License-Identifier: MIT
"""Errors as the paper measures them, and a residual that needs no truth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from coframe import geometry, metrics

SAMPLE = 1000  # points of a scan that are compared with every other scan
GATE = 0.015  # of the extent: what is farther apart is not the same surface
LEAST = 50  # points that two scans must share for their gap to count


def frobenius_errors(poses: np.ndarray, truth: np.ndarray, reference: int = 0) -> np.ndarray:
    """|R_ref^T R_j - Q_ref^T Q_j| for estimated rotations R and true ones Q."""
    difference = geometry.rotation(metrics.relative(poses, reference)) - geometry.rotation(metrics.relative(truth, reference))
    return np.linalg.norm(difference, axis=(1, 2))


@dataclass(frozen=True)
class Surface:
    """A whole scan: points (N, 3), unit normals (N, 3), and a tree over the points."""

    points: np.ndarray
    normals: np.ndarray
    tree: cKDTree

    @classmethod
    def of(cls, points: np.ndarray, neighbours: int = 12) -> "Surface":
        """The normals are those of the planes through the nearest neighbours."""
        tree = cKDTree(points)
        patches = points[tree.query(points, neighbours)[1]]
        patches -= patches.mean(1, keepdims=True)
        return cls(points, np.linalg.eigh(patches.swapaxes(1, 2) @ patches).eigenvectors[:, :, 0], tree)


def residual(surfaces: Sequence[Surface], poses: np.ndarray, gate: float = GATE) -> float:
    """The median distance of points of a scan to the surface of the other scans, NaN where no two scans share any."""
    rng = np.random.default_rng(5)
    samples = [s.points[rng.choice(len(s.points), min(SAMPLE, len(s.points)), replace=False)] for s in surfaces]
    distances = [np.empty(0)]
    for a, sample in enumerate(samples):
        for b, surface in enumerate(surfaces):
            if a == b:
                continue
            points = geometry.transform(geometry.inverse(poses[b]) @ poses[a], sample)
            distance, nearest = surface.tree.query(points, distance_upper_bound=gate)
            near = np.isfinite(distance)
            if near.sum() >= LEAST:
                offset = points[near] - surface.points[nearest[near]]
                distances.append(np.abs((offset * surface.normals[nearest[near]]).sum(1)))
    found = np.concatenate(distances)
    return float(np.median(found)) if len(found) else float("nan")
