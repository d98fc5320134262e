# SPDX-License-Identifier: MIT
"""What is known of the poses beforehand: fixed clouds, restricted motion, priors, targets."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

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
class SharedPoint:
    """A point that several clouds observe, in the coordinates of the poses.

    Cloud i observes it at v_i with weight w_i, the inverse variance of a coordinate; its known
    position, where there is one, is X with weight w. Its true position y is a nuisance parameter
    and eliminated, as the means of the mixture are:

        E = 1/2 min_y sum_i w_i |x_i - y|^2 + w |X - y|^2,    x_i = R_i v_i + t_i
    """

    clouds: Int[Array, " n"]  # no two alike
    points: Float[Array, "n D"]  # v_i, each in its cloud's own frame
    weights: Float[Array, " n"]
    known: Float[Array, " D"] | None = None  # X
    known_weight: float = 0.0  # infinite: exact

    def where(self, poses: Poses) -> Float[Array, "n D"]:
        """x_i, where each observation lies."""
        own = poses[self.clouds]
        return np.asarray(
            np.einsum("nij,nj->ni", geometry.rotation(own), self.points) + geometry.translation(own)
        )

    @property
    def shares(self) -> Float[Array, " n"]:
        """The share of each observation in the best position: zeros where that is known exactly."""
        return self.weights / (self.weights.sum() + self.known_weight)

    def best(self, poses: Poses) -> Float[Array, " D"]:
        """The y of the minimum."""
        shares = self.shares
        y = shares @ self.where(poses)
        return y if self.known is None else y + (1 - shares.sum()) * self.known

    def energy(self, poses: Poses) -> float:
        """E."""
        y = self.best(poses)
        own = float(self.weights @ ((self.where(poses) - y) ** 2).sum(1))
        if self.known is None or np.isinf(self.known_weight):
            return own / 2
        return (own + self.known_weight * float(((self.known - y) ** 2).sum())) / 2

    def normal_equations(
        self, poses: Poses, centre: Float[Array, " D"]
    ) -> tuple[Float[Array, "n P n P"], Float[Array, "n P"]]:
        """What it adds to the matrix and the gradient of its clouds' twists about a centre."""
        x = self.where(poses)
        J = geometry.levers(x - centre)
        coupling = np.diag(self.weights) - np.outer(self.weights, self.shares)
        H = np.einsum("ij,idp,jdq->ipjq", coupling, J, J)
        return H, np.einsum("i,idp,id->ip", self.weights, J, x - self.best(poses))

    def only(self, chosen: Bool[Array, " M"]) -> "SharedPoint":
        """What the chosen clouds observe, with their numbers among themselves."""
        own = chosen[self.clouds]
        numbers = np.cumsum(chosen) - 1
        return replace(
            self,
            clouds=numbers[self.clouds[own]],
            points=self.points[own],
            weights=self.weights[own],
        )


@dataclass(frozen=True)
class Constraints:
    """What is known of the poses beforehand."""

    fixed: tuple[int, ...] = ()  # clouds that do not move
    motion: str = "rigid"  # or "translation", or "yaw": turns about the common frame's z axis only
    priors: tuple[Prior, ...] = ()
    targets: tuple[SharedPoint, ...] = ()
    level: tuple[int, ...] = ()  # clouds whose own motion is "yaw"; a common frame must be known

    @property
    def gauge_free(self) -> bool:
        """Whether a motion that all clouds share changes nothing."""
        known = any(target.known is not None for target in self.targets)
        return not self.fixed and not self.priors and not known

    def penalty(self, poses: Poses) -> float:
        """The logarithm of the density of priors and targets, up to a constant."""
        errors = [(prior.error(poses[prior.cloud]), prior.information) for prior in self.priors]
        known = -0.5 * float(sum(e @ L @ e for e, L in errors))
        return known - sum(target.energy(poses) for target in self.targets)

    def observed(self, count: int) -> Bool[Array, " M"]:
        """Which clouds observe a target."""
        found = np.zeros(count, bool)
        for target in self.targets:
            found[target.clouds] = True
        return found

    def only(self, chosen: Bool[Array, " M"]) -> "Constraints":
        """Those of the chosen clouds, where none is fixed and none has a prior."""
        return replace(self, targets=tuple(target.only(chosen) for target in self.targets))

    def allowed(self, count: int, dimension: int) -> Bool[Array, "M P"]:
        """Which entries of the clouds' twists may differ from zero."""
        turns = dimension * (dimension - 1) // 2
        entries = np.ones(turns + dimension, bool)
        if self.motion == "translation":
            entries[:turns] = False
        elif self.motion == "yaw":
            entries[: turns - 1] = False
        allowed = ~np.isin(np.arange(count), self.fixed)[:, None] & entries
        allowed[np.ix_(self.level, range(turns - 1))] = False
        return allowed


UNCONSTRAINED = Constraints()
