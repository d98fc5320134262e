# SPDX-License-Identifier: MIT
"""How well targets fit: residuals with their standard deviations, and a test of all of them.

With C the covariance of the poses, A_i the derivative of observation i and V_i its variance, a
residual of the adjustment has the covariance V_i - A_i C A_i^T; the difference of a check point,
which took no part in it, has V_i + A_i C A_i^T.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align.covariance import information_system
from coframe.align.recipe import ALIGN, AlignRecipe
from coframe.align.residuals import Adjustment, TargetResidual
from coframe.em.constraints import Constraints, SharedPoint
from coframe.em.joint import DenseEquations
from coframe.em.loop import Fit
from coframe.input.normalise import Normalisation
from coframe.input.targets import Point, Survey
from coframe.types import Array

# [guard] Share of an observation's variance that is left of its residual, however little checks it.
LEAST_LEFT = 1e-6


def adjusted(
    survey: Survey,
    names: Sequence[str],
    group: Sequence[int],
    fit: Fit,
    frames: Normalisation,
    origin: Float[Array, " D"],
    constraints: Constraints,
    recipe: AlignRecipe = ALIGN,
) -> Adjustment | None:
    """The residuals of a fit of a group of clouds; None where its targets tie nothing."""
    if not constraints.targets:
        return None
    system = information_system(
        fit.moments, fit.mixture, fit.poses, constraints, fit.independent, recipe
    )
    equations = system.equations
    assert isinstance(equations, DenseEquations)  # targets couple clouds
    C = equations.inverse(system.allowed, constraints.gauge_free)
    adjustment = _Errors(C, system.centre, fit)
    referenced = any(target.known is not None for target in constraints.targets)
    found = []
    for point, target in zip(
        survey.points, survey.internal(frames, origin, group, constraints.motion), strict=True
    ):
        found += _residuals(point, target, names, group, frames, origin, adjustment, referenced)
    chi_square = 2 * sum(target.energy(fit.poses) for target in constraints.targets)
    redundancy = sum(map(adjustment.redundancy, constraints.targets))
    return Adjustment(tuple(found), float(chi_square), float(redundancy))


def joined(parts: Sequence[Adjustment | None]) -> Adjustment | None:
    """Those of several groups as one."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return Adjustment(
        tuple(each for part in known for each in part.residuals),
        sum(part.chi_square for part in known),
        sum(part.redundancy for part in known),
    )


@dataclass(frozen=True)
class _Errors:
    """What errors of poses do to points."""

    C: Float[Array, "MP MP"]
    centre: Float[Array, " D"]
    fit: Fit

    def rows(self, clouds: Sequence[int] | Array, x: Float[Array, "n D"]) -> Float[Array, "n D MP"]:
        """How points of clouds move with all twists."""
        n, D = x.shape
        P = geometry.degrees_of_freedom(D)
        A = np.zeros((n, D, len(self.C)))
        for i, (j, lever) in enumerate(zip(clouds, geometry.levers(x - self.centre), strict=True)):
            A[i, :, P * j : P * j + P] = lever
        return A

    def covariance(self, A: Float[Array, "n D MP"]) -> Float[Array, "n D D"]:
        return np.asarray(A @ self.C @ np.swapaxes(A, 1, 2))

    def spread(self, target: SharedPoint) -> tuple[Float[Array, "n D D"], Float[Array, "D D"]]:
        """Covariances of x_i - y and of y - X about their true values; see `SharedPoint`."""
        A = self.rows(target.clouds, target.where(self.fit.poses))
        B = np.einsum("i,idm->dm", target.shares, A)
        own = np.eye(A.shape[1]) / (target.weights.sum() + target.known_weight)
        return self.covariance(A - B) + own, B @ self.C @ B.T + own

    def redundancy(self, target: SharedPoint) -> float:
        """Expected value of the target's share in chi-square."""
        D = target.points.shape[1]
        own, known = self.spread(target)
        found = sum(
            D - weight * np.trace(spread)
            for weight, spread in zip(target.weights, own, strict=True)
        )
        if target.known is not None and np.isfinite(target.known_weight):
            found += D - target.known_weight * np.trace(known)
        return max(float(found), 0.0)


def _residuals(
    point: Point,
    target: SharedPoint | None,
    names: Sequence[str],
    group: Sequence[int],
    frames: Normalisation,
    origin: Float[Array, " D"],
    errors: _Errors,
    referenced: bool,
) -> list[TargetResidual]:
    """Of one point; none where there is nothing to compare with."""
    poses = errors.fit.poses
    own = [i for i, j in enumerate(point.clouds) if j in group]
    if not own:
        return []
    members = list(group)
    clouds = np.array([members.index(point.clouds[i]) for i in own])
    inner = (point.positions[own] - frames.centres[clouds]) / frames.scale
    variances = (np.array(point.sds)[own] / frames.scale) ** 2
    x = np.einsum("nij,nj->ni", geometry.rotation(poses[clouds]), inner)
    x = x + geometry.translation(poses[clouds])
    unit = np.eye(x.shape[1])
    if point.known is not None:
        if not referenced:
            return []
        difference = x - (point.known - origin) / frames.scale
        chance = (variances + (point.known_sd / frames.scale) ** 2)[:, None, None] * unit
        sign = 1.0 if point.role == "check" else -1.0
        covariance = chance + sign * errors.covariance(errors.rows(clouds, x))
    elif target is not None:
        difference = x - target.best(poses)
        chance = variances[:, None, None] * unit
        covariance = chance - errors.spread(target)[0]
    else:
        return []
    left = np.maximum(
        np.diagonal(covariance, axis1=1, axis2=2),
        LEAST_LEFT * np.diagonal(chance, axis1=1, axis2=2),
    )
    return [
        TargetResidual(
            point.name,
            names[point.clouds[i]],
            point.role,
            tuple((frames.scale * d).tolist()),
            tuple((frames.scale * np.sqrt(v)).tolist()),
        )
        for i, d, v in zip(own, difference, left, strict=True)
    ]
