# SPDX-License-Identifier: MIT
"""Depth images: from pixels to points, and the noise of each."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped

from coframe.types import Array


@dataclass(frozen=True)
class Intrinsics:
    """A pinhole camera: the pixel (u, v) of depth d sees ((u - cx) d / fx, (v - cy) d / fy, d).

    Attributes
    ----------
    fx, fy : float
        Focal lengths [pixels].
    cx, cy : float
        Principal point [pixels]; the centre of the first pixel is (0, 0).
    scale : float
        Stored values per metre, or per whatever unit the points are to have.
    """

    fx: float
    fy: float
    cx: float
    cy: float
    scale: float = 1000.0


# [paper: Nguyen et al. 2012] Deviation of a depth z: a + b (z - c)^2, with a [m], b [1/m], c [m].
AXIAL_NOISE = (0.0012, 0.0019, 0.4)
# [format] The cameras of the TUM RGB-D sequences, as their authors calibrated them, and the values
# that they advise for all three.
TUM_FR1 = Intrinsics(517.3, 516.5, 318.6, 255.3, 5000.0)
TUM_FR2 = Intrinsics(520.9, 521.0, 325.1, 249.7, 5000.0)
TUM_FR3 = Intrinsics(535.4, 539.2, 320.1, 247.6, 5000.0)
TUM_DEFAULT = Intrinsics(525.0, 525.0, 319.5, 239.5, 5000.0)
# [format] ICL-NUIM, as its authors have it: fy is negative, so that y points up, as in their poses.
ICL = Intrinsics(481.2, -480.0, 319.5, 239.5, 5000.0)
PRESETS = {
    "freiburg1": TUM_FR1,
    "freiburg2": TUM_FR2,
    "freiburg3": TUM_FR3,
    "kinect": TUM_DEFAULT,
    "icl": ICL,
}


def points(
    depth: Shaped[Array, "H W"], intrinsics: Intrinsics, *, step: int = 1
) -> Float[Array, "N 3"]:
    """The points that a depth image sees, row by row, in the camera's frame: x to the right, y
    down, z ahead.

    Pixels that are zero, negative or not finite saw nothing and give no point. `step` takes every
    so many rows and columns.

    >>> points(image, TUM_FR1)  # in metres
    """
    depth = depth[::step, ::step]
    with np.errstate(invalid="ignore"):
        v, u = np.nonzero((depth > 0) & np.isfinite(depth))
    z = (depth[v, u] / intrinsics.scale).astype(float)
    return np.stack(
        [
            (step * u - intrinsics.cx) * z / intrinsics.fx,
            (step * v - intrinsics.cy) * z / intrinsics.fy,
            z,
        ],
        1,
    )


def deviation(z: Float[Array, " N"]) -> Float[Array, " N"]:
    """The standard deviation [m] of the depth z [m] of a structured-light camera: it grows with z^2
    (Nguyen et al. 2012).
    """
    return AXIAL_NOISE[0] + AXIAL_NOISE[1] * (z - AXIAL_NOISE[2]) ** 2
