# SPDX-License-Identifier: MIT
"""Our M-rigid-step: all poses together, the means eliminated.

The paper moves each cloud against means that the cloud itself helped to place, so a cloud is held back by its own points, the
more so the more components there are. Here Q, the expected log-likelihood given the posteriors, is maximised over all poses and
all means at once. Given the poses, the best mean of a component is the mean of what all clouds see of it; put in, Q is a
function of the poses alone:

    Q(xi) = -1/2 sum_jki alpha_jik |x_ji(xi_j) - m_k(xi)|^2_{P_k},   m_k(xi) = sum_ji alpha_jik x_ji(xi_j) / A_k

with x(xi) = exp(omega) (x - c) + c + tau, c the centre of the scene. One Gauss-Newton step needs the moments only, whatever the
number of points. It is still an EM step: Q never falls (a step that would lower it is shortened), and the fixed points are the
paper's.
"""

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry, kernels
from coframe.arrays import Array
from coframe.moments import Moments

SLIDE = 5.0
LEAST_TANGENT = 0.01
DAMPING = 1e-9  # of the diagonal: directions that no component holds do not run away


def softened(precisions: Float[Array, "K D D"]) -> Float[Array, "K D D"]:
    """Precisions that let points slide along the surface of a flat component.

    The tangential extent of a component says how long a patch of surface is, not how well its points are known; left at full
    strength it holds the clouds back from sliding into place. The flatter a component, the more its tangents give way: by
    SLIDE times the ratio of its thickness to its width, squared; round components stay as they are.
    """
    values, vectors = np.linalg.eigh(precisions)
    flatness = values[:, :-1] / values[:, -1:]  # (thickness / width)^2
    values[:, :-1] *= np.clip(SLIDE * flatness, LEAST_TANGENT, 1)
    return (vectors * values[:, None]) @ np.swapaxes(vectors, 1, 2)


def motions(
    moments: Moments,
    precisions: Float[Array, "K D D"],
    centre: Float[Array, " D"],
    *,
    fixed: tuple[int, ...] = (),
    stride: float = 1.0,
) -> Float[Array, "M D1 D1"]:
    """The motions of all clouds in the common frame that one Gauss-Newton step on Q asks for, `stride` times as long."""
    H, g = system(moments, precisions, centre)
    M, P = len(moments.mass), geometry.degrees_of_freedom(len(centre))
    H, free = regular(H, P, fixed)
    twists = np.zeros(M * P)
    twists[free] = -np.linalg.solve(H, g[free])
    twists = stride * twists.reshape(M, P)
    return about(geometry.exp(twists if fixed else twists - twists.mean(0)), centre)


def regular(H: Float[Array, "MP MP"], P: int, fixed: tuple[int, ...]) -> tuple[Float[Array, "F F"], Bool[Array, " MP"]]:
    """H without the fixed clouds; when there are none, with a stiffness against the motion that all clouds share.

    That motion changes nothing (the mixture follows it), and without the stiffness H would be singular.
    """
    M = len(H) // P
    H = H + np.diag(DAMPING * np.diagonal(H) + np.finfo(float).tiny)
    if not fixed:
        common = np.tile(np.eye(P), (M, 1)) / np.sqrt(M)
        return H + np.diagonal(H).mean() * common @ common.T, np.ones(M * P, bool)
    free = np.repeat(~np.isin(np.arange(M), fixed), P)
    return H[np.ix_(free, free)], free


def inverse(H: Float[Array, "MP MP"], P: int, fixed: tuple[int, ...]) -> Float[Array, "MP MP"]:
    """The covariance of the twists of all clouds: zero for fixed ones and, without any, for their common motion."""
    M = len(H) // P
    part, free = regular(H, P, fixed)
    covariance = np.zeros_like(H)
    covariance[np.ix_(free, free)] = np.linalg.inv(part)
    if not fixed:
        mean = np.tile(np.eye(P), (M, M)) / M
        covariance = covariance - mean @ covariance - covariance @ mean + mean @ covariance @ mean
    return covariance


def about(motions: Float[Array, "M D1 D1"], centre: Float[Array, " D"]) -> Float[Array, "M D1 D1"]:
    """Motions x -> R (x - c) + c + t, given x -> R x + t."""
    R = geometry.rotation(motions)
    return geometry.pose(R, geometry.translation(motions) + centre - R @ centre)


def system(
    moments: Moments, precisions: Float[Array, "K D D"], centre: Float[Array, " D"]
) -> tuple[Float[Array, "MP MP"], Float[Array, " MP"]]:
    """Gauss-Newton matrix and gradient of -Q at xi = 0, twists (omega, tau) of all clouds in a row."""
    M, K, D = moments.first.shape
    first, second = np.zeros((M, K, 3)), np.zeros((M, K, 3, 3))
    arm, P = np.zeros((K, 3)), np.tile(np.eye(3), (K, 1, 1))
    first[..., :D], second[..., :D, :D] = moments.first, moments.second
    arm[:, :D], P[:, :D, :D] = moments.about - centre, precisions
    H, g = np.zeros((6 * M, 6 * M)), np.zeros(6 * M)
    kernels.joint_system(moments.mass, first, second, arm, P, H, g)
    if D == 2:  # the plane's motions: about z, along x and y
        plane = (6 * np.arange(M)[:, None] + [2, 3, 4]).ravel()
        H, g = H[np.ix_(plane, plane)], g[plane]
    return H, g


def misfit(moments: Moments, precisions: Float[Array, "K D D"]) -> float:
    """-2 Q with the best means: the sum of squared Mahalanobis distances of the points to the means of their components."""
    pooled = moments.pooled()
    offset = pooled.first / np.maximum(pooled.mass, np.finfo(float).tiny)[:, None]
    scatter = pooled.second - pooled.first[:, :, None] * offset[:, None, :]
    return float((scatter * precisions).sum())
