# SPDX-License-Identifier: MIT
"""The start of clouds in the plane: every angle is tried, and for each the shift at which the two
images coincide best.

Curves have no descriptors worth matching, but a plane has one angle only. Scans are those of
`features`, in the plane z = 0.
"""

import numpy as np
from jaxtyping import Float
from scipy import fft
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.start.features import NORMAL_RADIUS, ThinScan, fitted_normals, oriented
from coframe.types import Array

ANGLES = 90  # tried, all around
PEAKS = 6  # motions that are verified
FARTHEST = 60.0  # spacings from the middle: stray points beyond would make images without bound
APART = 3  # angles: of two peaks closer than this, only the higher counts


def embedded(points: Float[Array, "n 2"]) -> ThinScan:
    """Points of the plane as a scan; its normals lie in the plane."""
    space = np.c_[points, np.zeros(len(points))]
    tree = cKDTree(space)
    normals, roughness = fitted_normals(space, tree, radius=NORMAL_RADIUS, planar=True)
    return ThinScan(
        space, oriented(space, normals, roughness), np.zeros((len(points), 1)), tree, None
    )


def motions(a: ThinScan, b: ThinScan) -> list[Float[Array, "4 4"]]:
    """The motions that bring most points of a near points of b, at one angle each; best first."""
    reach = (
        int(
            np.ceil(max(_distances(a.points, FARTHEST).max(), _distances(b.points, FARTHEST).max()))
        )
        + 2
    )
    size = fft.next_fast_len(4 * reach, real=True)
    first, second = (scan.points[_distances(scan.points, np.inf) <= FARTHEST] for scan in (a, b))
    image = fft.rfft2(_image(second[:, :2], size))
    found = []
    for k in range(ANGLES):
        R = geometry.exp_rotation(np.array([0.0, 0.0, 2 * np.pi * k / ANGLES]))
        turned = fft.rfft2(_image((first @ R.T)[:, :2], size))
        likeness = fft.irfft2(np.conj(turned) * image, (size, size))
        peak = int(likeness.argmax())
        shift = np.array(np.unravel_index(peak, likeness.shape), float)
        shift[shift > size / 2] -= size
        found.append((float(likeness.flat[peak]), k, geometry.pose(R, np.array([*shift, 0.0]))))
    kept: list[tuple[int, Float[Array, "4 4"]]] = []
    for _, k, motion in sorted(found, key=lambda each: (-each[0], each[1])):
        if all(min((k - other) % ANGLES, (other - k) % ANGLES) >= APART for other, _ in kept):
            kept.append((k, motion))
    return [motion for _, motion in kept[:PEAKS]]


def _distances(points: Float[Array, "n 3"], most: float) -> Float[Array, " n"]:
    return np.minimum(np.linalg.norm(points, axis=1), most)


def _image(points: Float[Array, "n 2"], size: int) -> Float[Array, "size size"]:
    """A pixel a spacing; a point lights its pixel and, less, those around it."""
    image = np.zeros((size, size))
    cell = np.floor(points).astype(int)
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            where = (cell[:, 0] + dx) % size, (cell[:, 1] + dy) % size
            image[where] = np.maximum(image[where], 1.0 if dx == dy == 0 else 0.5)
    return image - image.mean()
