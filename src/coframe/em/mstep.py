# SPDX-License-Identifier: MIT
"""The paper's M-step, one function per equation. Everything is a function of moments; no point is
seen here.

`moments` are stacked, one set of sums per cloud, in the common frame (see `Moments`).
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.em.recipe import MODEL, ModelRecipe
from coframe.em.seeding import cloud_priors, round_covariances
from coframe.types import Array, Poses

# [guard] Points: with less posterior mass a component, or a cloud, stays as it is.
STARVED = 1e-12
# [guard] In place of a mass of zero.
TINY = np.finfo(float).tiny


def virtual_points(moments: Moments, poses: Poses) -> Float[Array, "M K D"]:
    """w_jk, the mean of what cloud j has to say of component k, in the cloud's own frame.

    Eq. (11).
    """
    seen = moments.about + moments.first / np.maximum(moments.mass, TINY)[..., None]
    return (seen - geometry.translation(poses)[:, None]) @ geometry.rotation(poses)


def poses(moments: Moments, poses: Poses, mixture: Mixture) -> Poses:
    """R_j, t_j that carry the virtual points onto the means, weighted by lambda_jk^2 = A_jk /
    sigma_k. Eqs. (12) to (14).
    """
    new = geometry.procrustes(
        virtual_points(moments, poses), mixture.means, moments.mass / mixture.variances
    )
    return np.where((moments.mass.sum(1) > STARVED)[:, None, None], new, poses)


def means(moments: Moments) -> Float[Array, "K D"]:
    """mu_k. Eq. (15)."""
    pooled = moments.pooled()
    fed = (pooled.mass > STARVED)[:, None]
    return pooled.about + np.where(fed, pooled.first, 0) / np.where(fed, pooled.mass[:, None], 1)


def variances(
    moments: Moments, means: Float[Array, "K D"], floor: float, old: Float[Array, " K"]
) -> Float[Array, " K"]:
    """sigma_k about the new means, plus floor = epsilon^2. Eq. (16)."""
    pooled = moments.pooled().recentred(means)
    scatter = np.trace(pooled.second, axis1=1, axis2=2) if pooled.full else pooled.second
    new = np.maximum(scatter, 0) / (means.shape[1] * np.maximum(pooled.mass, STARVED)) + floor
    return np.where(pooled.mass > STARVED, new, old)


def covariances(
    moments: Moments, means: Float[Array, "K D"], floor: float, old: Float[Array, "K D D"]
) -> Float[Array, "K D D"]:
    """Sigma_k about the new means, plus floor on the diagonal: eq. (16) before it is restricted to
    spheres.
    """
    pooled = moments.pooled().recentred(means)
    new = pooled.second / np.maximum(pooled.mass, STARVED)[:, None, None] + floor * np.eye(
        means.shape[1]
    )
    return np.where((pooled.mass > STARVED)[:, None, None], new, old)


def priors(moments: Moments, gamma: float) -> Float[Array, " K"]:
    """p_k = A_k / eta with eta = (gamma + 1)(N - outlier mass). Eqs. (18) and (19)."""
    mass = moments.pooled().mass
    return mass / ((gamma + 1) * max(float(mass.sum()), STARVED))


@dataclass(frozen=True)
class MixtureStep:
    """The mixture step of `register` (see `loop.MixtureStep`): ellipsoids, priors per cloud."""

    floor: float  # variance added to every component
    spheres: bool = False  # spheres, with priors common to all clouds
    recipe: ModelRecipe = MODEL

    def __call__(self, moments: Moments, motions: Poses | None, mixture: Mixture) -> Mixture:
        """Means, covariances and priors of the moments after the motions."""
        pooled = moments.pooled() if motions is None else moments.moved_and_pooled(motions)
        new = means(pooled)
        shapes = covariances(pooled, new, 0.0, mixture.covariances)
        roundness = np.inf if self.spheres else self.recipe.pseudo_points
        shapes = round_covariances(shapes, roundness, pooled.mass)
        visibility = cloud_priors(moments.mass, common=self.spheres, recipe=self.recipe)
        shapes = shapes + self.floor * np.eye(len(new[0]))
        return replace(
            mixture,
            means=new,
            covariances=shapes,
            weights=visibility.mean(0),
            visibility=visibility,
        )
