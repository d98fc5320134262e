# SPDX-License-Identifier: MIT
"""What is known of the poses beforehand: fixed clouds, restricted motion, priors."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry
from coframe.types import Array, Pose, Poses


@dataclass(frozen=True)
class Prior:
    """A soft constraint on one pose, in the coordinates of the poses."""

    cloud: int
    pose: Pose
    # Inverse covariance of (omega, tau): the cloud's turn, and the shift of `point`.
    information: Float[Array, "P P"]
    point: Float[Array, " D"]  # in the cloud's own frame

    def where(self, pose: Pose) -> Float[Array, " D"]:
        """Where a pose puts the point."""
        return geometry.rotation(pose) @ self.point + geometry.translation(pose)

    def error(self, pose: Pose) -> Float[Array, " P"]:
        """(omega, tau) of a pose."""
        turn = geometry.log_rotation(geometry.rotation(pose) @ geometry.rotation(self.pose).T)
        return np.concatenate([turn, self.where(pose) - self.where(self.pose)])

    def normal_equations(
        self, pose: Pose, centre: Float[Array, " D"]
    ) -> tuple[Float[Array, "P P"], Float[Array, " P"]]:
        """What it adds to the matrix and the gradient of its cloud's twist about a centre."""
        J = geometry.lever(self.where(pose) - centre)
        return J.T @ self.information @ J, J.T @ self.information @ self.error(pose)


@dataclass(frozen=True)
class Constraints:
    """What is known of the poses beforehand."""

    fixed: tuple[int, ...] = ()  # clouds that do not move
    motion: str = "rigid"  # or "translation", or "yaw": turns about the common frame's z axis only
    priors: tuple[Prior, ...] = ()

    @property
    def gauge_free(self) -> bool:
        """Whether a motion that all clouds share changes nothing."""
        return not self.fixed and not self.priors

    def penalty(self, poses: Poses) -> float:
        """The logarithm of the priors' density, up to a constant."""
        errors = [(prior.error(poses[prior.cloud]), prior.information) for prior in self.priors]
        return -0.5 * float(sum(e @ L @ e for e, L in errors))

    def allowed(self, count: int, dimension: int) -> Bool[Array, "M P"]:
        """Which entries of the clouds' twists may differ from zero."""
        turns = dimension * (dimension - 1) // 2
        entries = np.ones(turns + dimension, bool)
        if self.motion == "translation":
            entries[:turns] = False
        elif self.motion == "yaw":
            entries[: turns - 1] = False
        return ~np.isin(np.arange(count), self.fixed)[:, None] & entries


UNCONSTRAINED = Constraints()
