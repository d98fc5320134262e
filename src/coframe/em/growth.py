# SPDX-License-Identifier: MIT
"""Mixtures and moments with more components than before, or fewer."""

import numpy as np
from jaxtyping import Bool, Float

from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.types import Array

PSEUDO = 0.1  # points that each component is worth beyond those it has seen: none is ever singular


def implied(mixture: Mixture, mass: Float[Array, " K"]) -> Moments:
    """The moments that a mixture stands for when its components have seen so many points; they
    count as no points of EM.
    """
    mass = mass + PSEUDO
    second = mass[:, None, None] * mixture.covariances
    return Moments(mixture.means, mass, np.zeros_like(mixture.means), second, np.zeros(()))


def with_components(
    moments: Moments,
    means: Float[Array, "G D"],
    covariances: Float[Array, "G D D"] | None = None,
    mass: float = 0.0,
) -> Moments:
    """Moments with more components, which have seen nothing, or so much as said."""
    G, D = means.shape
    lead = moments.mass.shape[:-1]
    second = np.zeros((*lead, G, D, D)) if covariances is None else mass * covariances
    return Moments(
        np.concatenate([moments.about, means]),
        np.concatenate([moments.mass, np.full((*lead, G), mass)], -1),
        np.concatenate([moments.first, np.zeros((*lead, G, D))], -2),
        np.concatenate([moments.second, second], -3),
        moments.points,
    )


def components(moments: Moments, kept: Bool[Array, " K"]) -> Moments:
    """Moments of some of the components."""
    first, second = moments.first[..., kept, :], moments.second[..., kept, :, :]
    return Moments(moments.about[kept], moments.mass[..., kept], first, second, moments.points)


def joined(mixture: Mixture, seeds: Mixture) -> Mixture:
    """The components of both, with one cloud's priors."""
    weights = np.concatenate([mixture.weights, seeds.weights])
    weights = weights * (mixture.weights.sum() / weights.sum())
    means, covariances = (
        np.concatenate([mixture.means, seeds.means]),
        np.concatenate([mixture.covariances, seeds.covariances]),
    )
    return Mixture(means, covariances, weights, mixture.outlier_density, weights[None])


def only(mixture: Mixture, kept: Bool[Array, " K"]) -> Mixture:
    """Some of the components, with one cloud's priors."""
    weights = mixture.weights[kept] * (mixture.weights.sum() / mixture.weights[kept].sum())
    return Mixture(
        mixture.means[kept],
        mixture.covariances[kept],
        weights,
        mixture.outlier_density,
        weights[None],
    )


def alone(moments: Moments) -> Moments:
    """A stack of one cloud."""
    return Moments(
        moments.about,
        moments.mass[None],
        moments.first[None],
        moments.second[None],
        moments.points[None],
    )
