# SPDX-License-Identifier: MIT
"""."""

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em import joint
from coframe.em.joint import Constraints
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.types import Array


def _certain(moments: Moments, mixture: Mixture) -> Float[Array, "K D D"]:
    """Precisions of the components less what was spent on them: of the scatter of n points, a
    fitted plane takes D.
    """
    mass = moments.mass.sum(0)
    left = np.maximum(1 - mixture.dimension / np.maximum(mass, np.finfo(float).tiny), 1e-6)
    return left[:, None, None] * np.linalg.inv(mixture.covariances)


def pose_covariance(
    moments: Moments,
    mixture: Mixture,
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
    independent: Float[Array, " M"] | None = None,
) -> Float[Array, "M P P"]:
    """The covariance of each pose's error (omega, tau): omega turns cloud j about its origin, tau
    moves that origin.

    It is the inverse of the information that the profile likelihood holds about the poses, in the
    gauge of the average cloud (or of fixed clouds and priors): a common motion of all clouds is no
    error. `independent` is how many points a point of each cloud stands for, where they share their
    noise.
    """
    centre = np.average(mixture.means, axis=0, weights=mixture.weights)
    return _at_places(
        _chance(moments, mixture, centre, poses, constraints, independent), centre, poses
    )


def _chance(
    moments: Moments,
    mixture: Mixture,
    centre: Float[Array, " D"],
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
    independent: Float[Array, " M"] | None,
) -> Float[Array, "M P P"]:
    """`pose_covariance`, of twists about the centre."""
    counting = moments if independent is None else moments.scaled(independent)
    return joint.own_covariances(counting, _certain(moments, mixture), centre, poses, constraints)


def _at_places(
    covariances: Float[Array, "M P P"], centre: Float[Array, " D"], poses: Float[Array, "M D1 D1"]
) -> Float[Array, "M P P"]:
    """From covariances of twists about the centre to those of twists about each cloud's origin."""
    levers = [geometry.lever(place - centre) for place in geometry.translation(poses)]
    return _positive(
        np.stack([J @ block @ J.T for J, block in zip(levers, covariances, strict=True)])
    )


def pull(
    moments: Moments,
    mixture: Mixture,
    centre: Float[Array, " D"],
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
) -> Float[Array, "M P"]:
    """How far the tangents of flat components would draw the clouds from where the normals put
    them: twists about the centre

        b = -H(P~)^-1 (g(P) - g(P~)),   P the precisions, P~ those that slide.

    A cloud that sees a component in part (at the limb of a body, at an edge) is drawn along the
    surface towards the mean of what all see. No noise does that, and more points do not average it
    out.
    """
    firm, loose = np.linalg.inv(mixture.covariances), joint.softened(mixture.covariances, slide=1.0)
    score = joint.gradient(moments, firm, centre) - joint.gradient(moments, loose, centre)
    return joint.twists(moments, loose, centre, poses, constraints, score=score)


def error_covariance(
    moments: Moments,
    mixture: Mixture,
    poses: Float[Array, "M D1 D1"],
    constraints: Constraints,
    independent: Float[Array, " M"] | None = None,
) -> Float[Array, "M P P"]:
    """What a result says of its poses: `pose_covariance`, which is chance alone, and what the model
    itself may have done.

    C_j + b_j b_j^T, b the motion by which the tangents of the components pull the clouds (`pull`),
    taken for an error of unknown sign.
    """
    centre = np.average(mixture.means, axis=0, weights=mixture.weights)
    chance = _chance(moments, mixture, centre, poses, constraints, independent)
    b = pull(moments, mixture, centre, poses, constraints)
    return _at_places(chance + b[:, :, None] * b[:, None, :], centre, poses)


def _positive(covariances: Float[Array, "M P P"]) -> Float[Array, "M P P"]:
    """Covariances of poses that hardly anything holds are differences of large numbers: what
    rounding made negative is zero.
    """
    values, vectors = np.linalg.eigh(covariances)
    broken = values[:, 0] < 0
    clipped = (vectors * np.maximum(values, 0)[:, None]) @ np.swapaxes(vectors, 1, 2)
    return np.where(broken[:, None, None], clipped, covariances)
