# SPDX-License-Identifier: MIT
"""."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from coframe.em import kernels
from coframe.em.mixture import Mixture
from coframe.types import Array

OUTLIERS = 0.03  # share of outliers that a level assumes until it knows better


# pseudo-points that draw each covariance towards a sphere, so that none is singular
ROUNDNESS = 0.1


SMOOTHING = 0.3  # pseudo-points per component in a cloud's own priors


LEAST_POINTS = 8  # per component


def round_covariances(
    covariances: Float[Array, "K D D"], pseudo_points: float, mass: Float[Array, " K"]
) -> Float[Array, "K D D"]:
    """Covariances drawn towards spheres of the same trace, as by so many extra points."""
    D = covariances.shape[1]
    spheres = (np.trace(covariances, axis1=1, axis2=2) / D)[:, None, None] * np.eye(D)
    share = (
        1.0 if np.isinf(pseudo_points) else (pseudo_points / (mass + pseudo_points))[:, None, None]
    )
    return covariances + share * (spheres - covariances)


def cloud_priors(mass: Float[Array, "M K"], *, common: bool = False) -> Float[Array, "M K"]:
    """p_jk: what each cloud sees of the model, from its own posterior masses.

    With one p_k for all clouds, the likelihood rewards clouds for piling onto each other, and
    partial views slide.
    """
    if common:
        mass = np.broadcast_to(mass.mean(0), mass.shape)
    smoothed = mass + SMOOTHING
    return smoothed / smoothed.sum(1, keepdims=True) * (1 - OUTLIERS)


def log_visibility_prior(mixture: Mixture) -> float:
    """The logarithm of the Dirichlet prior behind `cloud_priors`, up to a constant."""
    return (
        0.0 if mixture.visibility is None else SMOOTHING * float(np.log(mixture.visibility).sum())
    )


def seed(
    points: Float[Array, "N D"],
    clouds: int,
    components: int,
    floor: float,
    turn: Float[Array, "D D"],
) -> Mixture:
    """A mixture of about `components` Gaussians, one for each cell of a balanced tree over the
    points.

    The tree cuts along the axes of the points turned by `turn`: other turns, other cells.
    """
    N, D = points.shape
    leaf = max(LEAST_POINTS, -(-N // components))
    order = kernels.kd_order(points @ turn.T, leaf)
    starts = np.arange(0, N, leaf)
    count = np.diff(np.append(starts, N))[:, None]
    means = np.add.reduceat(points[order], starts) / count
    d = points[order] - np.repeat(means, count[:, 0], axis=0)
    covariances = np.add.reduceat(d[:, :, None] * d[:, None, :], starts) / count[
        ..., None
    ] + floor * np.eye(D)
    covariances = round_covariances(covariances, ROUNDNESS, count[:, 0].astype(float))
    visibility = np.full((clouds, len(means)), (1 - OUTLIERS) / len(means))
    mixture = Mixture(means, covariances, visibility[0], 0.0, visibility)
    return replace(
        mixture,
        outlier_density=outlier_density(
            float(np.mean(np.log(mixture.weights) + mixture.log_peaks)) - D / 2
        ),
    )


def outlier_density(log_density: float) -> float:
    """The density of a uniform class that acts, given the mean log-density of the points: its share
    over their volume.

    That volume is the one of a uniform distribution with the same entropy: a thin shell around the
    surface, not the box around it, in which a uniform density would be too low ever to explain
    anything.
    """
    return float(OUTLIERS * np.exp(log_density))


def typical_log_density(log_likelihood: Float[Array, " M"], points: Float[Array, " M"]) -> float:
    """The mean log-density of a cloud's points, in the median over clouds: one that does not belong
    changes little.
    """
    return float(np.median(log_likelihood / points))
