# SPDX-License-Identifier: MIT
"""Components that are hardly needed apart become one."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from coframe.em import mstep
from coframe.types import Array
from coframe.em.growth import PSEUDO, implied
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.result.registration import Registration

CHEAP = 0.05  # nats per point: components that may become one at this price do
NEIGHBOURS = 8  # that a component may become one with


def tidied(result: Registration, cost: float = CHEAP) -> Registration:
    """The registration with components merged that are hardly needed apart: at `cost` nats per point of theirs, at most.

    The price of a merger is that of Runnalls (2007), an upper bound of what the likelihood loses.
    """
    mixture, moments, into = result.mixture, result.moments, np.arange(len(result.mixture))
    while True:
        mass = moments.mass.sum(0)
        pairs = _cheap_pairs(mixture, mass, cost)
        if not len(pairs):
            break
        target = np.arange(len(mixture))
        target[pairs[:, 1]] = pairs[:, 0]
        kept = target == np.arange(len(mixture))
        number, meeting = (np.cumsum(kept) - 1)[target], mixture.means[target]
        total = _summed(implied(mixture, mass).recentred(meeting), number)
        means = mstep.means(total)
        covariances = mstep.covariances(total, means, 0.0, mixture.covariances[kept])
        weights = _gathered(mixture.weights[None], number)[0]
        visibility = None if mixture.visibility is None else _gathered(mixture.visibility, number)
        mixture = Mixture(means, covariances, weights, mixture.outlier_density, visibility)
        moments, into = _summed(moments.recentred(meeting), number).recentred(means), number[into]
    labels = tuple(np.append(into, -1)[label] for label in result.labels)
    return replace(result, mixture=mixture, moments=moments, labels=labels)


def _cheap_pairs(mixture: Mixture, mass: Float[Array, " K"], cost: float) -> Int[Array, "n 2"]:
    """Pairs of components that may be merged, cheapest first, none in two of them."""
    K = len(mixture)
    weight = mass + PSEUDO
    near = cKDTree(mixture.means).query(mixture.means, min(NEIGHBOURS + 1, K))[1].reshape(K, -1)
    i, j = np.repeat(np.arange(K), near.shape[1]), near.ravel()
    i, j = i[i < j], j[i < j]
    share = (weight[j] / (weight[i] + weight[j]))[:, None, None]
    d = mixture.means[j] - mixture.means[i]
    merged = (1 - share) * mixture.covariances[i] + share * mixture.covariances[j]
    merged = merged + share * (1 - share) * d[:, :, None] * d[:, None, :]
    log_det = -2 * mixture.log_peaks
    merged_log_det = np.linalg.slogdet(merged)[1] + mixture.dimension * np.log(2 * np.pi)
    price = (merged_log_det - (1 - share[:, 0, 0]) * log_det[i] - share[:, 0, 0] * log_det[j]) / 2
    free, pairs = np.ones(K, bool), []
    for n in np.argsort(price, kind="stable"):
        if price[n] > cost:
            break
        if free[i[n]] and free[j[n]]:
            free[[i[n], j[n]]] = False
            pairs.append((i[n], j[n]))
    return np.array(pairs, np.int64).reshape(-1, 2)


def _summed(moments: Moments, number: Int[Array, " K"]) -> Moments:
    """Moments whose components of the same number are added up; those are about the same point."""
    lead, (K, D) = moments.mass.shape[:-1], moments.about.shape
    about = np.zeros((number.max() + 1, D))
    about[number] = moments.about
    mass = _gathered(moments.mass.reshape(-1, K), number).reshape(*lead, -1)
    first = np.stack([_gathered(moments.first[..., d].reshape(-1, K), number) for d in range(D)], -1).reshape(*lead, -1, D)
    flat = moments.second.reshape(-1, K, D * D)
    second = np.stack([_gathered(flat[..., d], number) for d in range(D * D)], -1).reshape(*lead, -1, D, D)
    return Moments(about, mass, first, second, moments.points)


def _gathered(rows: Float[Array, "M K"], number: Int[Array, " K"]) -> Float[Array, "M G"]:
    """The columns that share a number, added up."""
    return np.stack([np.bincount(number, row) for row in rows])
