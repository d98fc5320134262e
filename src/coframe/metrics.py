# SPDX-License-Identifier: MIT
"""How far poses are from the truth. Poses are known up to one common motion: the gauge is taken out here, and only here."""

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.arrays import Array


def relative(poses: Float[Array, "M D1 D1"], reference: int = 0) -> Float[Array, "M D1 D1"]:
    """The poses in the frame of one of the clouds."""
    return geometry.inverse(poses[reference]) @ poses


def rotation_errors(poses: Float[Array, "M D1 D1"], truth: Float[Array, "M D1 D1"], reference: int = 0) -> Float[Array, " M"]:
    """The angle in degrees between estimated and true rotation of each cloud, relative to the reference cloud (itself 0)."""
    difference = geometry.inverse(relative(poses, reference)) @ relative(truth, reference)
    return np.degrees(geometry.angle(geometry.rotation(difference)))


def translation_errors(
    poses: Float[Array, "M D1 D1"], truth: Float[Array, "M D1 D1"], reference: int = 0
) -> Float[Array, " M"]:
    """The distance between estimated and true translation of each cloud, relative to the reference cloud, in its units."""
    return np.linalg.norm(
        geometry.translation(relative(poses, reference)) - geometry.translation(relative(truth, reference)), axis=1
    )
