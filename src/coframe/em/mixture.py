# SPDX-License-Identifier: MIT
"""The central Gaussian mixture from which every point of every cloud is drawn. Eq. (1)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from coframe.types import Array


@dataclass(frozen=True)
class Mixture:
    """K Gaussians and a uniform class in the common frame.

    The weights p_k are those of the inlier classes: sum_k p_k = 1 / (1 + gamma). `outlier_density`
    is the whole uniform term of eq. (1), p_{K+1} U(h), in points per unit volume; zero means that
    there is no outlier class. With `visibility`, cloud j has priors p_jk of its own, which say what
    it sees of the model; the weights are then their average.
    """

    means: Float[Array, "K D"]
    covariances: Float[Array, "K D D"]
    weights: Float[Array, " K"]
    outlier_density: float
    visibility: Float[Array, "M K"] | None = None  # p_jk

    @classmethod
    def spheres(
        cls,
        means: Float[Array, "K D"],
        variances: Float[Array, " K"],
        weights: Float[Array, " K"],
        outlier_density: float,
    ) -> "Mixture":
        """A mixture of isotropic Gaussians, covariance sigma_k I."""
        return cls(
            means, variances[:, None, None] * np.eye(means.shape[1]), weights, outlier_density
        )

    @property
    def dimension(self) -> int:
        return self.means.shape[1]

    def __len__(self) -> int:
        """K, the number of Gaussians."""
        return len(self.means)

    @cached_property
    def variances(self) -> Float[Array, " K"]:
        """Variance per coordinate, trace(Sigma_k) / D; the paper's sigma_k when the covariances are
        spheres.
        """
        if self.spherical:  # to the last bit, which a mean of three equal numbers need not give
            return self.covariances[:, 0, 0]
        return np.trace(self.covariances, axis1=1, axis2=2) / self.dimension

    @cached_property
    def spherical(self) -> bool:
        """Whether every covariance is exactly a multiple of the identity."""
        return np.array_equal(
            self.covariances, self.covariances[:, :1, :1] * np.eye(self.dimension)
        )

    @cached_property
    def log_peaks(self) -> Float[Array, " K"]:
        """The logarithm of each Gaussian's density at its own mean, without its weight."""
        half_log_det = np.log(
            np.diagonal(np.linalg.cholesky(self.covariances), axis1=1, axis2=2)
        ).sum(1)
        return -half_log_det - self.dimension / 2 * np.log(2 * np.pi)
