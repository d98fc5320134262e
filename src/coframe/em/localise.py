# SPDX-License-Identifier: MIT
"""The pose of one cloud against a mixture that stays as it is: the front-end of `track`, the first
step of `extend`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.em import kernels, localise_kernels, seeding
from coframe.em.estep import Cloud, Components
from coframe.em.joint_sparse import DAMPING
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.em.recipe import LOCALISE, MODEL, LocaliseRecipe, ModelRecipe
from coframe.types import Array, Pose

# [guard] Share of a point's posterior mass that the kernels may skip: far below what one frame or
# a trial on few points resolves.
TOLERANCE = 1e-4
# [guard] Points: components with less mass have no mean to step with, and no say in the step.
MIN_MASS = 1e-3


@dataclass(frozen=True, eq=False)
class BlurredMixture:
    """The mixture with one blur added to every component."""

    mixture: Mixture
    components: Components  # of the mixture, made once for all sweeps
    # Of the components, in their order and in space: of 2-D clouds, without any out of the plane.
    precisions: Float[Array, "K 3 3"]


@dataclass(frozen=True, eq=False)
class Pyramid:
    """What clouds are localised against: a mixture, from the widest blur to the narrowest."""

    levels: tuple[BlurredMixture, ...]
    unit: float  # length of the scene [user units]

    @classmethod
    def of(
        cls, mixture: Mixture, blurs: Sequence[float], unit: float, recipe: ModelRecipe = MODEL
    ) -> "Pyramid":
        """`blurs`: standard deviations that are added to the components, wide to narrow [unit]."""
        values, axes = mixture.principal_axes
        D = mixture.dimension
        # Points may slide along flat components. The blur is added after the softening, so that
        # `joint.softened`, which also solves for the axes in another order, is of no use here.
        soft = np.clip(recipe.slide * values[:, :1] / values, recipe.min_tangent, 1)
        soft[:, 0] = 1
        levels = []
        for blur in blurs:
            variance = (blur * unit) ** 2
            wide = replace(
                mixture,
                covariances=mixture.covariances + variance * np.eye(D),
                visibility=None,
            )
            thinner = np.average(wide.log_peaks - mixture.log_peaks, weights=mixture.weights)
            wide = replace(wide, outlier_density=mixture.outlier_density * float(np.exp(thinner)))
            components = Components.of(wide, full=True)
            along = (axes * (soft / (values + variance))[:, None]) @ np.swapaxes(axes, 1, 2)
            precisions = np.zeros((len(along), 3, 3))
            precisions[:, :D, :D] = along[components.order]
            levels.append(BlurredMixture(wide, components, precisions))
        return cls(tuple(levels), unit)


@dataclass(frozen=True, eq=False)
class Localisation:
    """The pose of a cloud, and how well the mixture explains the cloud there."""

    pose: Pose
    explained: float  # share of the points that the mixture explains
    steps: int
    # Log-likelihood of the points and of the cloud's own priors, one step before.
    value: float = -np.inf
    moments: Moments | None = None  # of the cloud, one step before


def localise(
    target: Pyramid,
    cloud: Cloud,
    pose: Pose,
    steps: int | None = None,
    *,
    recipe: LocaliseRecipe = LOCALISE,
) -> Localisation:
    """EM over the pose of one cloud: Gauss-Newton steps on Q, with components of shrinking blur.

    At most `steps` in all; by default as many as the recipe says.
    """
    steps = recipe.max_steps if steps is None else steps
    D = cloud.dimension
    first = target.levels[0]
    # The means are those of all levels, and so is their order.
    order = first.components.order
    K, padded = len(order), first.components.geometry.shape[1]
    weights = first.mixture.weights[order]
    log_weight, heaviest = np.empty(padded), np.empty(padded // kernels.CELL)
    sums = np.zeros((padded, kernels.FULL_SUMS))
    points = float(cloud.rows[3].sum())
    R, t = np.eye(3), np.zeros(3)
    R[:D, :D], t[:D] = geometry.rotation(pose), geometry.translation(pose)
    nothing = np.empty(0), np.empty(0, np.int64)
    log_likelihood, taken, seen = -np.inf, 0, weights
    for number, level in enumerate(target.levels):
        c = level.components
        last = number == len(target.levels) - 1
        for _ in range(steps - taken if last else recipe.steps_per_blur):
            seen = weights
            localise_kernels.weigh(seen, c.log_peaks, kernels.NOTHING, log_weight, heaviest)
            sums[:] = 0
            # One thread: there is too little work to share, and the other cores read ahead.
            log_likelihood, _ = kernels.sweep(
                cloud.rows, R, t, c.geometry, c.reach, c.stiffest, c.boxes, log_weight, heaviest,
                TOLERANCE, level.mixture.outlier_density, 0, len(cloud), sums, *nothing,
            )  # fmt: skip
            step = localise_kernels.newton(sums, c.geometry, level.precisions, MIN_MASS, DAMPING)
            turn, shift = localise_kernels.move(R, t, step)
            weights = seeding.cloud_priors(sums[None, :K, 0])[0]
            taken += 1
            if turn + shift / target.unit < recipe.step_tolerance:
                break
    moments = _moments(sums, order, first.mixture, points)
    # The first step is without priors of the cloud's own.
    own = None if taken <= 1 else seen[None]
    prior = seeding.log_visibility_prior(replace(first.mixture, visibility=own))
    found = geometry.pose(geometry.nearest_rotation(R[:D, :D]), t[:D])
    explained = float(moments.mass.sum() / points) if taken else 0.0
    value = float(log_likelihood) + prior
    return Localisation(found, explained, taken, value, moments if taken else None)


def _moments(
    sums: Float[Array, "Kp S"], order: Int[Array, " K"], mixture: Mixture, points: float
) -> Moments:
    """The sums of a sweep over one cloud, in the order of the mixture."""
    K, D = mixture.means.shape
    mass, first, second = np.empty(K), np.empty((K, D)), np.empty((K, D * D))
    kernels.collect(sums[None], order, mass, first, second)
    return Moments(mixture.means, mass, first, second.reshape(K, D, D), np.array(points))
