# SPDX-License-Identifier: MIT
"""Sufficient statistics: all that EM needs of a cloud is a handful of sums per component."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry
from coframe.em.mixture import Mixture
from coframe.types import Array, Poses


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Posterior-weighted sums over points x in the common frame, one set of sums per component (and
    per cloud, if stacked).

    The sums are taken about `about`, the component means of the E-step, so that nothing cancels
    however far from the origin the scene lies. `second` holds whole matrices (..., K, D, D), or
    only their traces (..., K), all that spheres need.
    """

    about: Float[Array, "K D"]  # mu_k, the point the sums of component k are taken about
    mass: Float[Array, "*B K"]  # A_k = sum_i alpha_ik
    first: Float[Array, "*B K D"]  # b_k = sum_i alpha_ik (x_i - mu_k)
    # C_k = sum_i alpha_ik (x_i - mu_k)(x_i - mu_k)^T
    second: Float[Array, "*B K D D"] | Float[Array, "*B K"]
    # N, the (weighted) number of points behind the sums, outliers included
    points: Float[Array, "*B"]

    @property
    def full(self) -> bool:
        """Whether `second` holds matrices."""
        return self.second.ndim == self.first.ndim + 1

    @property
    def outlier_mass(self) -> Float[Array, "*B"]:
        """sum_i alpha_{i,K+1}: how many points the uniform class explains."""
        return np.asarray(self.points - self.mass.sum(-1))

    def __repr__(self) -> str:
        clouds = f"{len(self.mass)} clouds, " if self.mass.ndim > 1 else ""
        return f"Moments of {clouds}{self.mass.shape[-1]} components"

    @classmethod
    def implied_by(
        cls, mixture: Mixture, mass: Float[Array, " K"], pseudo_points: float
    ) -> "Moments":
        """The moments that a mixture stands for when its components have seen so many points.

        They count as no points of EM.
        """
        mass = mass + pseudo_points
        second = mass[:, None, None] * mixture.covariances
        return cls(mixture.means, mass, np.zeros_like(mixture.means), second, np.zeros(()))

    def __add__(self, other: "Moments") -> "Moments":
        """The moments of both groups of points together."""
        return self._combined(other, 1.0)

    def __sub__(self, other: "Moments") -> "Moments":
        """The moments without the points of `other`."""
        return self._combined(other, -1.0)

    def _combined(self, other: "Moments", sign: float) -> "Moments":
        other = other.recentred(self.about)
        return Moments(
            self.about,
            self.mass + sign * other.mass,
            self.first + sign * other.first,
            self.second + sign * other.second,
            np.asarray(self.points + sign * other.points),
        )

    def __getitem__(self, cloud: int) -> "Moments":
        """The moments of one cloud of a stack."""
        return Moments(
            self.about,
            self.mass[cloud],
            self.first[cloud],
            self.second[cloud],
            np.asarray(self.points[cloud]),
        )

    def with_cloud(self, other: "Moments") -> "Moments":
        """A stack with one more cloud at its end."""
        other = other.recentred(self.about)
        return Moments(
            self.about,
            np.concatenate([self.mass, other.mass[None]]),
            np.concatenate([self.first, other.first[None]]),
            np.concatenate([self.second, other.second[None]]),
            np.append(self.points, other.points),
        )

    def only(self, clouds: Bool[Array, " M"]) -> "Moments":
        """A stack of some of the clouds."""
        return Moments(
            self.about,
            self.mass[clouds],
            self.first[clouds],
            self.second[clouds],
            self.points[clouds],
        )

    def without_cloud(self, cloud: int) -> "Moments":
        """A stack without one of its clouds."""
        return self.only(np.arange(len(self.mass)) != cloud)

    def pooled(self) -> "Moments":
        """The sum over the clouds of a stack, in the order of the clouds."""
        if self.mass.ndim == 1:
            return self
        return Moments(
            self.about,
            self.mass.sum(0),
            self.first.sum(0),
            self.second.sum(0),
            np.asarray(self.points.sum(0)),
        )

    def scaled(self, factors: Float[Array, "*B"]) -> "Moments":
        """The moments as if every point of a cloud counted so often."""
        f = np.asarray(factors)
        return Moments(
            self.about,
            f[..., None] * self.mass,
            f[..., None, None] * self.first,
            f.reshape(*f.shape, *(1,) * (self.second.ndim - f.ndim)) * self.second,
            f * self.points,
        )

    def recentred(self, about: Float[Array, "K D"]) -> "Moments":
        """The same sums taken about other points."""
        if about is self.about:
            return self
        return self._shifted(about, self.first, self.second, self.about - about)

    def moved(self, poses: Float[Array, "*B D1 D1"]) -> "Moments":
        """The moments of the same points after x -> R x + t, one motion per cloud of a stack.

        No point is touched.
        """
        R, t = geometry.rotation(poses), geometry.translation(poses)[..., None, :]
        Rt = np.swapaxes(R, -1, -2)
        second = self.second
        if self.full:  # R C R^T as one matrix product per cloud: vec(R C R^T) = (R x R) vec(C)
            D = R.shape[-1]
            RR = np.einsum("...ij,...kl->...ikjl", R, R).reshape(*R.shape[:-2], D * D, D * D)
            second = (second.reshape(*second.shape[:-2], D * D) @ np.swapaxes(RR, -1, -2)).reshape(
                second.shape
            )
        return self._shifted(self.about, self.first @ Rt, second, self.about @ Rt + t - self.about)

    def moved_and_pooled(self, poses: Poses) -> "Moments":
        """`moved(poses).pooled()` of full moments, without the stack in between."""
        from coframe.em import joint_kernels  # compiled: not for those who only read a result

        K, D = self.about.shape
        mass, first, second = np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D))
        R = np.ascontiguousarray(geometry.rotation(poses))
        t = np.ascontiguousarray(geometry.translation(poses))
        joint_kernels.pool_moved(
            self.about, self.mass, self.first, self.second, R, t, mass, first, second
        )
        return Moments(self.about, mass, first, second, np.asarray(self.points.sum(0)))

    def _shifted(self, about: Array, first: Array, second: Array, offset: Array) -> "Moments":
        """Sums about points that lie `offset` further back: sum a (y + offset), sum a (y +
        offset)(y + offset)^T.
        """
        step = self.mass[..., None] * offset
        if self.full:
            cross = first[..., :, None] * offset[..., None, :]
            second = (
                second
                + cross
                + np.swapaxes(cross, -1, -2)
                + step[..., :, None] * offset[..., None, :]
            )
        else:
            second = second + (2 * first * offset + step * offset).sum(-1)
        return Moments(about, self.mass, first + step, second, self.points)

    def stacked(self) -> "Moments":
        """A stack of one cloud."""
        return Moments(
            self.about, self.mass[None], self.first[None], self.second[None], self.points[None]
        )

    def with_components(
        self,
        means: Float[Array, "G D"],
        covariances: Float[Array, "G D D"] | None = None,
        mass: float = 0.0,
    ) -> "Moments":
        """Full moments with G more components that have seen `mass` points each."""
        G, D = means.shape
        lead = self.mass.shape[:-1]
        second = np.zeros((*lead, G, D, D)) if covariances is None else mass * covariances
        return Moments(
            np.concatenate([self.about, means]),
            np.concatenate([self.mass, np.full((*lead, G), mass)], -1),
            np.concatenate([self.first, np.zeros((*lead, G, D))], -2),
            np.concatenate([self.second, second], -3),
            self.points,
        )

    def kept(self, keep: Bool[Array, " K"]) -> "Moments":
        """Full moments of some of the components."""
        return Moments(
            self.about[keep],
            self.mass[..., keep],
            self.first[..., keep, :],
            self.second[..., keep, :, :],
            self.points,
        )
