# SPDX-License-Identifier: MIT
"""The E-step: what each point says about each component, as moments (fast) or as posteriors (dense, for inspection).

Eqs. (8) and (9), with the true density of eq. (1): the Gaussians keep their factor (2 pi)^(-D/2), which the paper drops.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from coframe.em import joint_kernels, kernels
from coframe.types import Array
from coframe.em.mixture import Mixture

LOG2E = 1 / np.log(2)
TOLERANCE = 1e-9  # of a point's posterior mass may be lost to skipped components; see kernels.py


def log_densities(points: Float[Array, "N D"], mixture: Mixture) -> Float[Array, "N K"]:
    """log p_k N(x_i; mu_k, Sigma_k), every pair, literally. Eq. (9)."""
    d = points[:, None] - mixture.means
    mahalanobis = np.einsum("nki,nki->nk", d, np.linalg.solve(mixture.covariances, d[..., None])[..., 0])
    with np.errstate(divide="ignore"):  # a component of weight zero explains nothing
        return np.log(mixture.weights) + mixture.log_peaks - mahalanobis / 2


def posteriors(points: Float[Array, "N D"], mixture: Mixture) -> Float[Array, "N K1"]:
    """alpha_ik of points in the common frame, the last column the uniform class; rows sum to one. Eq. (8).

    Dense and in the log domain, so that far points get their limit instead of 0 / 0. For inspection: N x K numbers.
    """
    with np.errstate(divide="ignore"):
        outlier = np.full((len(points), 1), np.log(mixture.outlier_density))
    terms = np.concatenate([log_densities(points, mixture), outlier], 1)
    alpha = np.exp(terms - terms.max(1, keepdims=True))
    return alpha / alpha.sum(1, keepdims=True)


@dataclass(frozen=True)
class Cloud:
    """A cloud as the kernels want it: rows x, y, z, weight, in kd order. A 2-D cloud lies in the plane z = 0."""

    rows: Float[Array, "4 N"]
    order: Int[Array, " N"]  # rows[:, i] is point order[i]
    dimension: int
    independent: float = 1.0  # points that each one stands for: less than one where neighbours share their noise

    @classmethod
    def of(cls, points: Float[Array, "N D"], weights: Float[Array, " N"] | None = None, independent: float = 1.0) -> "Cloud":
        """Sort the points once: a rigid motion keeps near points near, so the order serves for the whole run."""
        N, D = points.shape
        order = kernels.kd_order(np.ascontiguousarray(points), kernels.LEAF)
        rows = np.zeros((4, N))
        rows[:D] = points[order].T
        rows[3] = 1 if weights is None else weights[order]
        return cls(rows, order, D, independent)

    def __len__(self) -> int:
        return self.rows.shape[1]

    @property
    def points(self) -> Float[Array, "N D"]:
        """The points, in kd order."""
        return self.rows[: self.dimension].T

    def restored(self, values: Array) -> Array:
        """Values computed in kd order, back in the order of the points."""
        out = np.empty_like(values)
        out[self.order] = values
        return out


@dataclass(frozen=True)
class Components:
    """A mixture as the kernels want it, in kd order and padded to whole blocks. A function of the mixture alone."""

    order: Int[Array, " K"]  # column i is component order[i]
    log_peaks: Float[Array, " K"]  # log of each Gaussian's density at its own mean, in kd order
    geometry: Float[Array, "R Kp"]  # means, then the coefficients of the exponent in base 2
    reach: Float[Array, "6 Kp"]  # how far an ellipsoid reaches: variances along x, y, z, and a slab that holds it
    stiffest: Float[Array, " Kp"]  # a lower bound of the exponent's (negative) coefficients over all directions
    boxes: Float[Array, "9 B"]  # per block: box of the means (6), widest reach (3)

    @classmethod
    def of(cls, mixture: Mixture, full: bool) -> "Components":
        K, D = mixture.means.shape
        padding = -K % kernels.CELL
        order = kernels.kd_order(np.ascontiguousarray(mixture.means), kernels.CELL)
        take = np.concatenate([order, np.repeat(order[-1:], padding)])
        means = np.zeros((3, K + padding))
        means[:D] = mixture.means[take].T
        covariances = mixture.covariances[take]
        boxes = np.zeros((9, (K + padding) // kernels.CELL))
        boxes[0:6:2], boxes[1:6:2] = _by_block(means).min(2), _by_block(means).max(2)
        if full:
            form, reach, stiffest, log_det = _ellipsoids(covariances, take)
            boxes[6:9] = _by_block(reach[:3]).max(2)
        else:
            form, reach, stiffest, log_det = _spheres(covariances, take)
            boxes[6] = _by_block(form).max(2)
        log_peaks = (-log_det[:K] - D * np.log(2 * np.pi)) / 2
        return cls(order, log_peaks, np.concatenate([means, form]), reach, stiffest, boxes)

    @property
    def full(self) -> bool:
        """Whether these are ellipsoids."""
        return len(self.geometry) == kernels.FULL_ROWS

    def weighted(self, weights: Float[Array, "M K"]) -> tuple[Float[Array, "M Kp"], Float[Array, "M B"]]:
        """log2 of p_jk times the peak density, and its largest value per block: what differs between clouds."""
        log_weight = np.full((len(weights), self.geometry.shape[1]), kernels.NOTHING)
        with np.errstate(divide="ignore"):  # a component of weight zero explains nothing
            log_weight[:, : len(self.order)] = LOG2E * (np.log(weights[:, self.order]) + self.log_peaks)
        np.maximum(log_weight, kernels.NOTHING, out=log_weight)
        return log_weight, _by_block(log_weight).max(2)


def _spheres(covariances: Float[Array, "Kp D D"], names: Int[Array, " Kp"]) -> tuple[Array, Array, Array, Array]:
    """The exponent's coefficient (1, Kp), no reach (the kernel needs none), the coefficient again, and log det (Kp,)."""
    variances = covariances[:, 0, 0]
    if not (variances > 0).all():
        bad = int(np.argmin(variances > 0))
        raise ValueError(f"variance of component {names[bad]} is not positive: {variances[bad]}")
    coefficient = -LOG2E / 2 / variances
    return coefficient[None], np.zeros((6, len(variances))), coefficient, covariances.shape[1] * np.log(variances)


def _ellipsoids(covariances: Float[Array, "Kp D D"], names: Int[Array, " Kp"]) -> tuple[Array, Array, Array, Array]:
    """The exponent's coefficients (6, Kp), reach (6, Kp), a bound of the exponent over directions (Kp,), and log det (Kp,)."""
    D = covariances.shape[1]
    padded = np.tile(np.eye(3), (len(covariances), 1, 1))
    padded[:, :D, :D] = covariances
    Q = np.empty_like(padded)
    log_det, bad = joint_kernels.invert(padded, Q)
    if bad >= 0:
        raise ValueError(f"covariance of component {names[bad]} is not positive definite: {covariances[bad].tolist()}")
    each, stiff = np.arange(len(Q)), np.argmax(np.diagonal(Q, axis1=1, axis2=2), 1)
    slab = Q[each, stiff] / np.sqrt(Q[each, stiff, stiff])[:, None]  # P e / sqrt(e . P e), see `_surviving_components`
    reach = np.concatenate([np.diagonal(padded, axis1=1, axis2=2), slab], 1).T.copy()
    Q *= -LOG2E / 2
    # Off-diagonal terms appear once in the kernel's sum, hence twice the matrix entry.
    form = np.stack([Q[:, 0, 0], 2 * Q[:, 0, 1], 2 * Q[:, 0, 2], Q[:, 1, 1], 2 * Q[:, 1, 2], Q[:, 2, 2]])
    return form, reach, np.trace(Q, axis1=1, axis2=2), log_det


def _by_block(rows: Float[Array, "R Kp"]) -> Float[Array, "R B L"]:
    return rows.reshape(len(rows), -1, kernels.CELL)
