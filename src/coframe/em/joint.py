# SPDX-License-Identifier: MIT
"""Our M-rigid-step: all poses together, the means eliminated.

The paper moves each cloud against means that the cloud itself helped to place, so a cloud is held
back by its own points, the more so the more components there are. Here Q, the expected
log-likelihood given the posteriors, is maximised over all poses and all means at once. Given the
poses, the best mean of a component is the mean of what all clouds see of it; put in, Q is a
function of the poses alone:

    Q(xi) = -1/2 sum_jki alpha_jik |x_ji(xi_j) - m_k(xi)|^2_{P_k},   m_k(xi) = sum_ji alpha_jik
    x_ji(xi_j) / A_k

with x(xi) = exp(omega) (x - c) + c + tau, c the centre of the scene. One Gauss-Newton step needs
the moments only, whatever the number of points. The fixed points are the paper's. `em.batch` takes
back a step that lowers the likelihood.
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry
from coframe.em import joint_kernels, joint_sparse
from coframe.em.joint_sparse import Coupled
from coframe.em.moments import Moments
from coframe.geometry import about, lever
from coframe.types import Array

SLIDE = 5.0
LEAST_TANGENT = 0.01
CHUNK = 512  # components at a time: bounds the memory that many clouds take
TRACE = 1e-12  # of the stiffness that a cloud would have alone
# extents or radians of a step: what only a system without hold asks for, and a sum of squares
# survives
LONGEST = 1e4
ABSURD = 1e30  # extents or radians: no step, and the variance of no pose
# per squared extent and radian: the covariance of a pose that nothing holds is large, not infinite
LEAST_INFORMATION = 1e-20
LEAST_SHARED = 1.0  # points of a cloud on what others see, too: with less, nothing holds it
DAMPING = 1e-9  # of the diagonal: directions that no component holds do not run away
HEAVIER = 1e-6, 1e-3, 1.0  # where that is not enough


def softened(covariances: Float[Array, "K D D"], slide: float = SLIDE) -> Float[Array, "K D D"]:
    """Precisions that let points slide along the surface of a flat component.

    The tangential extent of a component says how long a patch of surface is, not how well its
    points are known; left at full strength it holds the clouds back from sliding into place. The
    flatter a component, the more its tangents give way: by `slide` times the ratio of its thickness
    to its width, squared; round components stay as they are.
    """
    values, vectors = np.empty(covariances.shape[:2]), np.empty(covariances.shape)
    joint_kernels.principal(covariances, values, vectors)
    thickness = values.min(1, keepdims=True)
    softness = np.where(
        values > thickness, np.clip(slide * thickness / values, LEAST_TANGENT, 1), 1
    )
    return (vectors * (softness / values)[:, None]) @ np.swapaxes(vectors, 1, 2)


@dataclass(frozen=True)
class Prior:
    """A soft belief about one pose, in the coordinates of the poses: where it is, and how well that
    is known.
    """

    cloud: int
    pose: Float[Array, "D1 D1"]
    # inverse covariance of (omega, tau): how the cloud is turned, and `place` is moved
    information: Float[Array, "P P"]
    place: Float[Array, " D"]  # in the cloud's own frame

    def where(self, pose: Float[Array, "D1 D1"]) -> Float[Array, " D"]:
        """Where a pose puts the place."""
        return geometry.rotation(pose) @ self.place + geometry.translation(pose)

    def error(self, pose: Float[Array, "D1 D1"]) -> Float[Array, " P"]:
        """(omega, tau) of a pose."""
        turn = geometry.log_rotation(geometry.rotation(pose) @ geometry.rotation(self.pose).T)
        return np.concatenate([turn, self.where(pose) - self.where(self.pose)])

    def pull(
        self, pose: Float[Array, "D1 D1"], centre: Float[Array, " D"]
    ) -> tuple[Float[Array, "P P"], Float[Array, " P"]]:
        """What it adds to the matrix and the gradient of its cloud's twist about a centre."""
        J = lever(self.where(pose) - centre)
        return J.T @ self.information @ J, J.T @ self.information @ self.error(pose)


@dataclass(frozen=True)
class Constraints:
    """What is known of the poses beforehand."""

    fixed: tuple[int, ...] = ()  # clouds that stay where they are
    motion: str = "rigid"  # or "translation", or "yaw": turns about the common frame's z axis only
    priors: tuple[Prior, ...] = ()

    @property
    def gauge_free(self) -> bool:
        """Whether a motion that all clouds share changes nothing."""
        return not self.fixed and not self.priors

    def penalty(self, poses: Float[Array, "M D1 D1"]) -> float:
        """The logarithm of the priors' density, up to a constant."""
        errors = [(prior.error(poses[prior.cloud]), prior.information) for prior in self.priors]
        return -0.5 * float(sum(e @ L @ e for e, L in errors))

    def allowed(self, count: int, dimension: int) -> Bool[Array, " MP"]:
        """Which entries of the clouds' twists may differ from zero."""
        turns = dimension * (dimension - 1) // 2
        entries = np.ones(turns + dimension, bool)
        if self.motion == "translation":
            entries[:turns] = False
        elif self.motion == "yaw":
            entries[: turns - 1] = False
        return (~np.isin(np.arange(count), self.fixed)[:, None] & entries).ravel()


UNCONSTRAINED = Constraints()


def motions(
    moments: Moments,
    precisions: Float[Array, "K D D"],
    centre: Float[Array, " D"],
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
    *,
    stride: float = 1.0,
) -> Float[Array, "M D1 D1"]:
    """The motions of all clouds in the common frame that one Gauss-Newton step on Q asks for,
    `stride` times as long.
    """
    return about(
        geometry.exp(twists(moments, precisions, centre, poses, constraints, stride=stride)), centre
    )


def twists(
    moments: Moments,
    precisions: Float[Array, "K D D"],
    centre: Float[Array, " D"],
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
    *,
    score: Float[Array, "M P"] | None = None,
    stride: float = 1.0,
) -> Float[Array, "M P"]:
    """The same as twists about the centre, none absurd, less the motion that all clouds share where
    that is free.

    score: what pulls at the clouds instead of the gradient of -Q.
    """
    solve = step_of_many if joint_sparse.pays(*moments.mass.shape) else step
    found = stride * solve(moments, precisions, centre, poses, constraints, score=score)
    found = found * min(1.0, LONGEST / max(float(np.abs(found).max()), LONGEST))
    return found - found.mean(0) if constraints.gauge_free else found


def gradient(
    moments: Moments, precisions: Float[Array, "K D D"], centre: Float[Array, " D"]
) -> Float[Array, "M P"]:
    """The gradient of -Q at xi = 0, without priors."""
    if joint_sparse.pays(*moments.mass.shape):
        return _coupled(moments, precisions, centre).gradient
    return system(moments, precisions, centre)[1].reshape(len(moments.mass), -1)


def step(
    moments: Moments,
    precisions: Float[Array, "K D D"],
    centre: Float[Array, " D"],
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
    *,
    score: Float[Array, "M P"] | None = None,
) -> Float[Array, "M P"]:
    """The twists of all clouds that solve the system, with another gradient than its own where a
    score is given.
    """
    M, P = len(poses), geometry.degrees_of_freedom(len(centre))
    H, g = dense(moments, precisions, centre, poses, constraints)
    g = g if score is None else score.ravel()
    free = constraints.allowed(M, len(centre))
    H += np.diag(TRACE * stiffness(moments, precisions, centre).ravel())
    twists = np.zeros(M * P)
    twists[free] = -_solved(regular(H, P, constraints.gauge_free)[np.ix_(free, free)], g[free])
    return twists.reshape(M, P)


def step_of_many(
    moments: Moments,
    precisions: Float[Array, "K D D"],
    centre: Float[Array, " D"],
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
    *,
    score: Float[Array, "M P"] | None = None,
) -> Float[Array, "M P"]:
    """The same, of many clouds."""
    H = of_many(moments, precisions, centre, poses, constraints)
    g = H.gradient if score is None else score
    free = constraints.allowed(len(poses), len(centre)).reshape(g.shape) & H.held
    trace = TRACE * stiffness(moments, precisions, centre)
    for damping in (DAMPING, *HEAVIER):
        twists = -H.factored(
            trace, free, damping=damping, gauge_free=constraints.gauge_free
        ).solved(g)
        if (np.abs(twists) < ABSURD).all():  # false for NaN
            return twists
    return np.zeros_like(g)


def dense(
    moments: Moments,
    precisions: Float[Array, "K D D"],
    centre: Float[Array, " D"],
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
) -> tuple[Float[Array, "MP MP"], Float[Array, " MP"]]:
    """Matrix and gradient, priors included."""
    P = geometry.degrees_of_freedom(len(centre))
    H, g = system(moments, precisions, centre)
    for prior in constraints.priors:
        j = slice(P * prior.cloud, P * prior.cloud + P)
        information, gradient = prior.pull(poses[prior.cloud], centre)
        H[j, j] += information
        g[j] += gradient
    return H, g


def of_many(
    moments: Moments,
    precisions: Float[Array, "K D D"],
    centre: Float[Array, " D"],
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
) -> Coupled:
    """The same, of so many clouds that H is not written down."""
    H = _coupled(moments, precisions, centre)
    for prior in constraints.priors:
        information, gradient = prior.pull(poses[prior.cloud], centre)
        H.own[prior.cloud] += information
        H.gradient[prior.cloud] += gradient
    return H


def _coupled(
    moments: Moments, precisions: Float[Array, "K D D"], centre: Float[Array, " D"]
) -> Coupled:
    return Coupled.of(
        moments.mass,
        *in_space(moments, precisions, centre),
        [2, 3, 4] if len(centre) == 2 else list(range(6)),
    )


def stiffness(
    moments: Moments, precisions: Float[Array, "K D D"], centre: Float[Array, " D"]
) -> Float[Array, "M P"]:
    """About how hard the means would hold each cloud if it had no part in them: what the diagonal
    of H cannot exceed.

    Of a cloud that shares no component, H is nothing but rounding. A trace of this keeps such a
    cloud from being thrown away.
    """
    D, P = len(centre), geometry.degrees_of_freedom(len(centre))
    firmness, arm = np.trace(precisions, axis1=1, axis2=2), ((moments.about - centre) ** 2).sum(1)
    return np.repeat(
        np.stack([moments.mass @ (firmness * arm), moments.mass @ firmness], 1), [P - D, D], axis=1
    )


def regular(H: Float[Array, "MP MP"], P: int, gauge_free: bool) -> Float[Array, "MP MP"]:
    """H with a little damping and, where that is free, with a stiffness against the motion that all
    clouds share.

    That motion changes nothing (the mixture follows it), and without the stiffness H would be
    singular.
    """
    M = len(H) // P
    H = H + np.diag(DAMPING * np.diagonal(H) + np.finfo(float).tiny)
    if gauge_free:
        common = np.tile(np.eye(P), (M, 1)) / np.sqrt(M)
        H = H + np.diagonal(H).mean() * common @ common.T
    return H


def _solved(H: Float[Array, "n n"], right: Float[Array, "..."]) -> Float[Array, "..."]:
    """H^-1 right. Where rounding has left H singular, as with clouds of very different sizes, each
    of its rows counts alike and directions that hold nothing are left as soft as rounding
    allows."""
    with suppress(np.linalg.LinAlgError):
        found = np.asarray(np.linalg.solve(H, right))
        if (np.abs(found) < ABSURD).all():  # false for NaN
            return found
    unit = 1 / np.sqrt(np.maximum(np.diagonal(H), LEAST_INFORMATION))
    values, vectors = np.linalg.eigh(unit[:, None] * H * unit)
    values = np.maximum(values, len(H) * np.finfo(float).eps * max(values[-1], 1.0))
    inverse = unit[:, None] * ((vectors / values) @ vectors.T) * unit
    return np.asarray(inverse @ right)


def covariance(
    H: Float[Array, "MP MP"], dimension: int, constraints: Constraints
) -> Float[Array, "MP MP"]:
    """The covariance of the twists of all clouds: zero where they may not move, and for the motion
    they share if it is free.
    """
    P = geometry.degrees_of_freedom(dimension)
    M = len(H) // P
    free = constraints.allowed(M, dimension)
    result = np.zeros_like(H)
    held = regular(H + LEAST_INFORMATION * np.eye(len(H)), P, constraints.gauge_free)[
        np.ix_(free, free)
    ]
    result[np.ix_(free, free)] = _solved(held, np.eye(len(held)))
    if constraints.gauge_free:
        mean = np.tile(np.eye(P), (M, M)) / M
        result = result - mean @ result - result @ mean + mean @ result @ mean
    return (result + result.T) / 2


def own_covariances(
    moments: Moments,
    precisions: Float[Array, "K D D"],
    centre: Float[Array, " D"],
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
) -> Float[Array, "M P P"]:
    """The blocks of `covariance` that belong to each cloud by itself.

    Clouds that nothing holds are no part of the average that takes the place of a fixed one: it
    would be as uncertain as they.
    """
    D, P = len(centre), geometry.degrees_of_freedom(len(centre))
    held = shared(moments) > LEAST_SHARED
    if constraints.gauge_free and not held.all():
        own = np.tile(np.diag(constraints.allowed(1, D) / LEAST_INFORMATION), (len(poses), 1, 1))
        if held.any():
            own[held] = own_covariances(
                moments.only(held), precisions, centre, poses[held], constraints
            )
        return own
    if joint_sparse.pays(*moments.mass.shape):
        many = of_many(moments, precisions, centre, poses, constraints)
        least = np.full(many.gradient.shape, LEAST_INFORMATION)
        free = constraints.allowed(len(poses), D).reshape(least.shape)
        return many.factored(
            least, free, damping=DAMPING, gauge_free=constraints.gauge_free
        ).blocks()
    H, _ = dense(moments, precisions, centre, poses, constraints)
    whole = covariance(H, D, constraints)
    return np.stack([whole[P * j : P * j + P, P * j : P * j + P] for j in range(len(poses))])


def shared(moments: Moments) -> Float[Array, " M"]:
    """How many points of each cloud lie on what others see, too: what holds it, in the sense of H."""
    total = np.maximum(moments.mass.sum(0), np.finfo(float).tiny)
    return (moments.mass * (1 - moments.mass / total)).sum(1)


def in_space(
    moments: Moments, precisions: Float[Array, "K D D"], centre: Float[Array, " D"]
) -> tuple[
    Float[Array, "M K 3"], Float[Array, "M K 3 3"], Float[Array, "K 3"], Float[Array, "K 3 3"]
]:
    """First and second moments, the arms from the centre to the means, and precisions; of the
    plane, as that of z = 0.
    """
    M, K, D = moments.first.shape
    if D == 3:
        return moments.first, moments.second, moments.about - centre, precisions
    first, second, arm, P = (
        np.zeros((M, K, 3)),
        np.zeros((M, K, 3, 3)),
        np.zeros((K, 3)),
        np.tile(np.eye(3), (K, 1, 1)),
    )
    first[..., :D], second[..., :D, :D] = moments.first, moments.second
    arm[:, :D], P[:, :D, :D] = moments.about - centre, precisions
    return first, second, arm, P


def system(
    moments: Moments, precisions: Float[Array, "K D D"], centre: Float[Array, " D"]
) -> tuple[Float[Array, "MP MP"], Float[Array, " MP"]]:
    """Gauss-Newton matrix and gradient of -Q at xi = 0, twists (omega, tau) of all clouds in a row."""
    M, K, D = moments.first.shape
    first, second, arm, P = in_space(moments, precisions, centre)
    own, g, H = np.zeros((M, 6, 6)), np.zeros(6 * M), np.zeros((6 * M, 6 * M))
    for start in range(0, K, CHUNK):
        stop = min(start + CHUNK, K)
        W = np.empty((3 * (stop - start), 6 * M))
        joint_kernels.joint_blocks(moments.mass, first, second, arm, P, start, stop, own, g, W)
        H -= W.T @ W
    each, block = np.arange(M), np.arange(6)
    own += np.swapaxes(own, 1, 2)  # only the upper triangles were built
    own[:, block, block] /= 2
    H.reshape(M, 6, M, 6)[each, :, each] += own
    if D == 2:  # the plane's motions: about z, along x and y
        plane = (6 * np.arange(M)[:, None] + [2, 3, 4]).ravel()
        H, g = H[np.ix_(plane, plane)], g[plane]
    return H, g
