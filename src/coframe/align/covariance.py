# SPDX-License-Identifier: MIT
"""How far off the poses may be: chance, and what the model itself may have done.

One convention holds for results and priors (`Registration.pose_covariance`, `PosePrior`): the error
of pose j is (omega, tau); the cloud is turned by omega [rad] about a point of its own, and that
point is shifted by tau, both in the common frame. The point is the cloud's median, which is the
origin of its internal coordinates.
"""

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align.recipe import ALIGN, AlignRecipe
from coframe.em.constraints import Constraints
from coframe.em.joint import System, softened
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.types import Array, Poses

# [guard] Share of a component's precision that is left however few points have seen it.
LEAST_CERTAIN = 1e-6


def pose_covariance(
    moments: Moments,
    mixture: Mixture,
    poses: Poses,
    constraints: Constraints,
    independent: Float[Array, " M"] | None = None,
    recipe: AlignRecipe = ALIGN,
) -> Float[Array, "M P P"]:
    """The covariance of each pose's error by chance.

    It is the inverse of the information that the profile likelihood has about the poses, in the
    gauge of the average cloud (or of fixed clouds and priors): a common motion of all clouds is no
    error. `independent` is how many independent points a point of each cloud stands for.
    """
    system = information_system(moments, mixture, poses, constraints, independent, recipe)
    return about_clouds(system.covariances(), system.centre, poses)


def error_covariance(
    moments: Moments,
    mixture: Mixture,
    poses: Poses,
    constraints: Constraints,
    independent: Float[Array, " M"] | None = None,
    recipe: AlignRecipe = ALIGN,
) -> Float[Array, "M P P"]:
    """What a result says of its poses: C_j + b_j b_j^T.

    C is `pose_covariance`; b is `tangential_bias`, taken for an error of unknown sign.
    """
    b = tangential_bias(moments, mixture, poses, constraints, recipe)
    system = information_system(moments, mixture, poses, constraints, independent, recipe)
    chance = system.covariances()
    return about_clouds(chance + b[:, :, None] * b[:, None, :], system.centre, poses)


def tangential_bias(
    moments: Moments,
    mixture: Mixture,
    poses: Poses,
    constraints: Constraints,
    recipe: AlignRecipe = ALIGN,
) -> Float[Array, "M P"]:
    """First-order pose bias from the tangential stiffness of components that a cloud sees in part.

    As twists about the centre, b = -H(P~)^-1 (g(P) - g(P~)), P the precisions, P~ those softened
    along the tangents by the squared ratio of thickness to width. A cloud that sees a component in
    part (at the limb of a body, at an edge) is drawn along the surface towards the mean of what all
    see. No noise does that, and more points do not average it out.
    """
    centre = mixture.centre
    firm = np.linalg.inv(mixture.covariances)
    soft = softened(mixture.covariances, 1.0, recipe.model)
    gradients = [
        System(moments, P, centre, poses, recipe=recipe.model).bare_gradient() for P in (firm, soft)
    ]
    system = System(moments, soft, centre, poses, constraints, recipe.model)
    return system.twists(score=gradients[0] - gradients[1])


def information_system(
    moments: Moments,
    mixture: Mixture,
    poses: Poses,
    constraints: Constraints,
    independent: Float[Array, " M"] | None,
    recipe: AlignRecipe,
) -> System:
    """The information about all poses.

    Of the scatter of n points a fitted plane takes D: precisions are smaller by that much.
    """
    counting = moments if independent is None else moments.scaled(independent)
    mass = np.maximum(moments.mass.sum(0), np.finfo(float).tiny)
    left = np.maximum(1 - mixture.dimension / mass, LEAST_CERTAIN)
    precisions = left[:, None, None] * np.linalg.inv(mixture.covariances)
    return System(counting, precisions, mixture.centre, poses, constraints, recipe.model)


def about_clouds(
    covariances: Float[Array, "M P P"], centre: Float[Array, " D"], poses: Poses
) -> Float[Array, "M P P"]:
    """From covariances of twists about the centre to those of twists about each cloud's origin.

    Covariances of poses that hardly anything constrains are differences of large numbers: what
    rounding made negative is zero.
    """
    levers = [geometry.lever(origin - centre) for origin in geometry.translation(poses)]
    found = np.stack([J @ C @ J.T for J, C in zip(levers, covariances, strict=True)])
    values, vectors = np.linalg.eigh(found)
    clipped = (vectors * np.maximum(values, 0)[:, None]) @ np.swapaxes(vectors, 1, 2)
    return np.where((values[:, 0] < 0)[:, None, None], clipped, found)
