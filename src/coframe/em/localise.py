# SPDX-License-Identifier: MIT
"""The pose of one cloud against a mixture that stays as it is: the front-end of `track`, the first
step of `extend`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em import seeding
from coframe.em.estep import Cloud, Components, Sweep
from coframe.em.joint_sparse import DAMPING
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.em.recipe import LOCALISE, MODEL, LocaliseRecipe, ModelRecipe
from coframe.geometry import levers
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
    precisions: Float[Array, "K D D"]


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
        values, axes = np.linalg.eigh(mixture.covariances)
        # Points may slide along flat components. The blur is added after the softening, so that
        # `joint.softened`, which also solves for the axes in another order, is of no use here.
        soft = np.clip(recipe.slide * values[:, :1] / values, recipe.min_tangent, 1)
        soft[:, 0] = 1
        levels = []
        for blur in blurs:
            variance = (blur * unit) ** 2
            wide = replace(
                mixture,
                covariances=mixture.covariances + variance * np.eye(mixture.dimension),
                visibility=None,
            )
            thinner = np.average(wide.log_peaks - mixture.log_peaks, weights=mixture.weights)
            wide = replace(wide, outlier_density=mixture.outlier_density * float(np.exp(thinner)))
            precisions = (axes * (soft / (values + variance))[:, None]) @ np.swapaxes(axes, 1, 2)
            levels.append(BlurredMixture(wide, Components.of(wide, full=True), precisions))
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
    # One thread: there is too little work to share, and the other cores read ahead.
    sweep = Sweep([cloud], threads=1, tolerance=TOLERANCE)
    D = cloud.dimension
    visibility = None
    explained, value, taken = 0.0, -np.inf, 0
    last_moments = None
    for number, level in enumerate(target.levels):
        last = number == len(target.levels) - 1
        for _ in range(steps - taken if last else recipe.steps_per_blur):
            seen = replace(level.mixture, visibility=visibility)
            moments, log_likelihood = sweep.moments(pose[None], seen, components=level.components)
            last_moments = moments[0]
            step = _step(last_moments, level.precisions)
            moved = geometry.exp(step) @ pose
            # Products of many motions leave the rotations, and a constant velocity doubles the
            # error in every frame.
            pose = geometry.pose(
                geometry.nearest_rotation(geometry.rotation(moved)), geometry.translation(moved)
            )
            value = float(log_likelihood[0]) + seeding.log_visibility_prior(seen)
            visibility = seeding.cloud_priors(moments.mass)
            explained = float(moments.mass.sum() / sweep.points[0])
            taken += 1
            length = float(np.linalg.norm(step[:-D]) + np.linalg.norm(step[-D:]) / target.unit)
            if length < recipe.step_tolerance:
                break
    return Localisation(pose, explained, taken, value, last_moments)


def _step(moments: Moments, precisions: Float[Array, "K D D"]) -> Float[Array, " P"]:
    """The twist (omega, tau) about the origin of one Gauss-Newton step on Q, the means fixed.

    The points of a component share its arm in the matrix, which only shapes the step, but not in
    the gradient.
    """
    seen = moments.mass > MIN_MASS
    mass = moments.mass[seen]
    first = moments.first[seen]
    about = moments.about[seen]
    P = precisions[seen]
    D = first.shape[1]
    J = levers(about + first / mass[:, None])
    PJ = (mass[:, None, None] * P) @ J
    H = J.reshape(-1, J.shape[2]).T @ PJ.reshape(-1, J.shape[2])
    force = (P @ first[..., None])[..., 0]
    # Sum over points of (P y) x^T.
    torque = force.T @ about + np.tensordot(P, moments.second[seen], ((0, 1), (0, 1)))
    turn = (
        [torque[1, 0] - torque[0, 1]]
        if D == 2
        else [torque[2, 1] - torque[1, 2], torque[0, 2] - torque[2, 0], torque[1, 0] - torque[0, 1]]
    )
    g = np.concatenate([turn, force.sum(0)])
    return -np.linalg.solve(H + np.diag(DAMPING * np.diagonal(H) + np.finfo(float).tiny), g)
