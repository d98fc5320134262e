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
from jaxtyping import Float

from coframe import geometry, kernels
from coframe.arrays import Array
from coframe.moments import Moments

DAMPING = 1e-9  # of the diagonal: directions that no component holds do not run away


def softened(precisions: Float[Array, "K D D"], tangents: float) -> Float[Array, "K D D"]:
    """Precisions whose all but largest eigenvalues are scaled by `tangents`: points may slide along their surface.

    A component's tangential extent says how long a patch of surface is, not how well its points are known; left at full
    strength it holds the clouds back from sliding into place.
    """
    values, vectors = np.linalg.eigh(precisions)
    values[:, :-1] *= tangents
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
    free = np.repeat(~np.isin(np.arange(M), fixed), P)
    scale = np.diagonal(H).mean()
    if not fixed:  # a motion that all clouds share changes nothing: forbid it, and H is regular
        gauge = np.tile(np.eye(P), (M, 1)) / np.sqrt(M)
        H = H + scale * gauge @ gauge.T
    H[np.diag_indices(M * P)] += DAMPING * np.diagonal(H) + np.finfo(float).tiny
    twist = np.zeros(M * P)
    twist[free] = -np.linalg.solve(H[np.ix_(free, free)], g[free])
    return about(geometry.exp(stride * twist.reshape(M, P)), centre)


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
