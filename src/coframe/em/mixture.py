# SPDX-License-Identifier: MIT
"""The central Gaussian mixture from which every point of every cloud is drawn. Eq. (1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Shaped

from coframe.types import Array

FIELDS = ("means", "covariances", "weights", "outlier_density", "visibility")


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """K Gaussians and a uniform class in the common frame.

    Attributes
    ----------
    means : (K, D) array
        mu_k.
    covariances : (K, D, D) array
        Sigma_k.
    weights : (K,) array
        p_k of the inlier classes: sum_k p_k = 1 / (1 + gamma).
    outlier_density : float
        The whole uniform term of eq. (1), p_{K+1} U(h), in points per unit volume; zero means that
        there is no outlier class.
    visibility : (M, K) array or None
        p_jk, priors of each cloud of its own, which say what it sees of the model; the weights are
        then their average.
    """

    means: Float[Array, "K D"]
    covariances: Float[Array, "K D D"]
    weights: Float[Array, " K"]
    outlier_density: float
    visibility: Float[Array, "M K"] | None = None

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

    @property
    def centre(self) -> Float[Array, " D"]:
        """The weighted mean of the means: the centre of the scene."""
        return np.average(self.means, axis=0, weights=self.weights)

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
    def principal_axes(self) -> tuple[Float[Array, "K D"], Float[Array, "K D D"]]:
        """Variances along the axes of each component, rising, and the axes as columns."""
        values, axes = np.linalg.eigh(self.covariances)
        return values, axes

    @cached_property
    def log_peaks(self) -> Float[Array, " K"]:
        """The logarithm of each Gaussian's density at its own mean, without its weight."""
        half_log_det = np.log(
            np.diagonal(np.linalg.cholesky(self.covariances), axis1=1, axis2=2)
        ).sum(1)
        return -half_log_det - self.dimension / 2 * np.log(2 * np.pi)

    def __repr__(self) -> str:
        kind = "spheres" if self.spherical else "ellipsoids"
        return f"Mixture of {len(self)} {kind} in {self.dimension}-D"

    def joined(self, other: "Mixture") -> "Mixture":
        """The components of both, with the priors of one cloud."""
        weights = np.concatenate([self.weights, other.weights])
        weights = weights * (self.weights.sum() / weights.sum())
        return Mixture(
            np.concatenate([self.means, other.means]),
            np.concatenate([self.covariances, other.covariances]),
            weights,
            self.outlier_density,
            weights[None],
        )

    def kept(self, keep: Bool[Array, " K"]) -> "Mixture":
        """Some of the components, with the priors of one cloud."""
        weights = self.weights[keep] * (self.weights.sum() / self.weights[keep].sum())
        return Mixture(
            self.means[keep], self.covariances[keep], weights, self.outlier_density, weights[None]
        )

    def to_arrays(self, prefix: str = "") -> dict[str, Shaped[Array, "..."]]:
        """The mixture as named arrays, for files."""
        visibility = np.empty((0, 0)) if self.visibility is None else self.visibility
        values = (
            self.means,
            self.covariances,
            self.weights,
            np.array(self.outlier_density),
            visibility,
        )
        return {prefix + name: value for name, value in zip(FIELDS, values, strict=True)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Shaped[Array, "..."]], prefix: str = "") -> "Mixture":
        """The inverse of `to_arrays`."""
        means, covariances, weights, density = (arrays[prefix + name] for name in FIELDS[:4])
        visibility = arrays.get(prefix + FIELDS[4])
        if visibility is not None and not visibility.size:
            visibility = None
        return cls(means, covariances, weights, float(density), visibility)
