# SPDX-License-Identifier: MIT
"""Depth images: from pixels to points, and how far to trust each."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped

from coframe.arrays import Array


@dataclass(frozen=True)
class Intrinsics:
    """A pinhole camera: focal lengths and principal point [pixels], and image values per unit of length."""

    fx: float
    fy: float
    cx: float
    cy: float
    scale: float = 5000.0


# The cameras of TUM RGB-D, by the first part of a sequence's name, and the values of a Kinect that nobody calibrated.
PRESETS = {
    "freiburg1": Intrinsics(517.3, 516.5, 318.6, 255.3),
    "freiburg2": Intrinsics(520.9, 521.0, 325.1, 249.7),
    "freiburg3": Intrinsics(535.4, 539.2, 320.1, 247.6),
    "kinect": Intrinsics(525.0, 525.0, 319.5, 239.5),
}


def points(depth: Shaped[Array, "H W"], intrinsics: Intrinsics, *, step: int = 1) -> Float[Array, "N 3"]:
    """The points of every `step`-th row and column, x right, y down, z ahead; pixels without depth (0, NaN) are left out."""
    z = depth[::step, ::step] / intrinsics.scale
    with np.errstate(invalid="ignore"):
        v, u = np.nonzero((z > 0) & np.isfinite(z))
    z = z[v, u].astype(float)
    x = (step * u - intrinsics.cx) / intrinsics.fx * z
    y = (step * v - intrinsics.cy) / intrinsics.fy * z
    return np.stack([x, y, z], 1)


def deviation(z: Float[Array, " N"]) -> Float[Array, " N"]:
    """The standard deviation [m] of the depth z [m] of a structured-light camera: it grows with z^2 (Nguyen et al. 2012)."""
    return 0.0012 + 0.0019 * (z - 0.4) ** 2
