# SPDX-License-Identifier: MIT
"""Where is one cloud?

Its pose against a mixture that stays as it is: the front-end of `track`, the first step of
`extend`.
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
from coframe.em.recipe import MODEL
from coframe.geometry import levers
from coframe.types import Array

TOLERANCE = 1e-4  # posterior mass that the kernels may skip
STEPS = 2  # of a reach before the next
MOST_STEPS = 12
# of the unit: a step below the first ends a reach, one below the second ends the last
NEARLY, SETTLED = (
    1e-3,
    2e-4,
)


@dataclass(frozen=True)
class BlurredMixture:
    """The mixture as seen from one reach: every component blurred by it."""

    mixture: Mixture
    components: Components  # of the mixture, made once for all sweeps
    precisions: Float[Array, "K D D"]


@dataclass(frozen=True)
class Pyramid:
    """What clouds are placed against: a mixture, from the farthest reach to the nearest."""

    levels: tuple[BlurredMixture, ...]
    unit: float  # length of the scene, in the user's units

    @classmethod
    def of(cls, mixture: Mixture, reaches: Sequence[float], unit: float) -> "Pyramid":
        """`reaches`: standard deviations that are added to the components, far to near [unit]."""
        values, axes = np.linalg.eigh(mixture.covariances)
        # points slide along flat components
        soft = np.clip(MODEL.slide * values[:, :1] / values, MODEL.min_tangent, 1)
        soft[:, 0] = 1
        levels = []
        for reach in reaches:
            variance = (reach * unit) ** 2
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


@dataclass(frozen=True)
class Localisation:
    """Where a cloud was found."""

    pose: Float[Array, "D1 D1"]
    explained: float  # share of the points that the mixture explains
    steps: int
    # log-likelihood of the points and of the cloud's own priors, one step before
    value: float = -np.inf


def localise(
    target: Pyramid,
    cloud: Cloud,
    pose: Float[Array, "D1 D1"],
    steps: int = MOST_STEPS,
    *,
    each: int = STEPS,
) -> Localisation:
    """EM over the pose of one cloud: Gauss-Newton steps on Q, with components of shrinking reach.

    At most `steps` in all, `each` for a reach but the last.
    """
    # too little work to share; the other cores read ahead
    sweep = Sweep([cloud], threads=1, tolerance=TOLERANCE)
    D = cloud.dimension
    visibility, explained, value, taken = None, 0.0, -np.inf, 0
    for number, level in enumerate(target.levels):
        last = number == len(target.levels) - 1
        for _ in range(steps - taken if last else each):
            seen = replace(level.mixture, visibility=visibility)
            moments, log_likelihood = sweep.moments(pose[None], seen, components=level.components)
            step = _step(moments[0], level.precisions)
            moved = geometry.exp(step) @ pose
            # Products of many motions leave the rotations, and a constant velocity doubles the
            # error in every frame.
            pose = geometry.pose(
                geometry.nearest_rotation(geometry.rotation(moved)), geometry.translation(moved)
            )
            value = float(log_likelihood[0]) + seeding.log_visibility_prior(seen)
            visibility, explained = (
                seeding.cloud_priors(moments.mass),
                float(moments.mass.sum() / sweep.points[0]),
            )
            taken += 1
            length = float(np.linalg.norm(step[:-D]) + np.linalg.norm(step[-D:]) / target.unit)
            if length < (SETTLED if last else NEARLY):
                break
    return Localisation(pose, explained, taken, value)


def _step(moments: Moments, precisions: Float[Array, "K D D"]) -> Float[Array, " P"]:
    """The twist (omega, tau) about the origin of one Gauss-Newton step on Q, the means fixed.

    The points of a component share its arm in the matrix, which only shapes the step, but not in
    the gradient.
    """
    seen = moments.mass > 1e-3
    mass, first, about, P = (
        moments.mass[seen],
        moments.first[seen],
        moments.about[seen],
        precisions[seen],
    )
    D = first.shape[1]
    J = levers(about + first / mass[:, None])
    PJ = (mass[:, None, None] * P) @ J
    H = J.reshape(-1, J.shape[2]).T @ PJ.reshape(-1, J.shape[2])
    force = (P @ first[..., None])[..., 0]
    # sum over points of (P y) x^T
    torque = force.T @ about + np.tensordot(P, moments.second[seen], ((0, 1), (0, 1)))
    turn = (
        [torque[1, 0] - torque[0, 1]]
        if D == 2
        else [torque[2, 1] - torque[1, 2], torque[0, 2] - torque[2, 0], torque[1, 0] - torque[0, 1]]
    )
    g = np.concatenate([turn, force.sum(0)])
    return -np.linalg.solve(H + np.diag(DAMPING * np.diagonal(H) + np.finfo(float).tiny), g)
