# SPDX-License-Identifier: MIT
"""Motions between scans in the plane: for every angle, the shift at which two images agree best.

Curves have no descriptors worth matching, but the plane has one angle only. Scans are those of
`features`, in the plane z = 0.
"""

import numpy as np
from jaxtyping import Float
from scipy import fft
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.start.features import ThinScan, fit_normals, orient_normals
from coframe.start.recipe import StartRecipe
from coframe.start.verify import Motion
from coframe.types import Array


def planar_scan(points: Float[Array, "n 2"], recipe: StartRecipe) -> ThinScan:
    """A scan of points in the plane; its normals are in the plane, too."""
    space = np.c_[points, np.zeros(len(points))]
    tree = cKDTree(space)
    normals = orient_normals(space, fit_normals(space, tree, recipe, planar=True), recipe)
    return ThinScan(space, normals, np.zeros((len(points), 1)), tree, None)


def find_motions(a: ThinScan, b: ThinScan, recipe: StartRecipe) -> list[Motion]:
    """Motions that bring most points of a near points of b, best first, at most one an angle."""
    # A line of all points reaches so far. Images would be unbounded with stray points.
    radius = recipe.points_2d / 2
    farthest = max(np.linalg.norm(scan.points, axis=1).max() for scan in (a, b))
    reach = int(np.ceil(min(farthest, radius))) + 2
    size = fft.next_fast_len(4 * reach, real=True)
    first, second = (_within(scan.points, radius) for scan in (a, b))
    # Neighbouring angles differ by no more than neighbouring points do.
    angles = int(np.ceil(2 * np.pi * recipe.motion_radius / recipe.neighbour_distance))
    image = fft.rfft2(_image(second[:, :2], size, recipe))
    found = []
    for k in range(angles):
        R = geometry.exp_rotation(np.array([0.0, 0.0, 2 * np.pi * k / angles]))
        rotated = fft.rfft2(_image((first @ R.T)[:, :2], size, recipe))
        correlation = fft.irfft2(np.conj(rotated) * image, (size, size))
        peak = int(correlation.argmax())
        shift = np.array(np.unravel_index(peak, correlation.shape), float)
        shift[shift > size / 2] -= size
        found.append((float(correlation.flat[peak]), k, geometry.pose(R, np.array([*shift, 0.0]))))
    kept: list[tuple[int, Motion]] = []
    for _, k, motion in sorted(found, key=lambda each: (-each[0], each[1])):
        steps = [min((k - other) % angles, (other - k) % angles) for other, _ in kept]
        if all(step * recipe.neighbour_distance > recipe.first_gate for step in steps):
            kept.append((k, motion))
    return [motion for _, motion in kept[: recipe.planar_motions]]


def _within(points: Float[Array, "n 3"], radius: float) -> Float[Array, "m 3"]:
    return points[np.linalg.norm(points, axis=1) <= radius]


def _image(
    points: Float[Array, "n 2"], size: int, recipe: StartRecipe
) -> Float[Array, "size size"]:
    """A pixel a spacing; a point lights its pixel and, less, those around it."""
    image = np.zeros((size, size))
    cell = np.floor(points).astype(int)
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            pixel = (cell[:, 0] + dx) % size, (cell[:, 1] + dy) % size
            image[pixel] = np.maximum(image[pixel], 1.0 if dx == dy == 0 else recipe.halo)
    return image - image.mean()
