# SPDX-License-Identifier: MIT
"""GMMReg (Jian and Vemuri 2011): each cloud is a mixture with a Gaussian on every point, and the L2
distance between the two mixtures is minimised, first with wide Gaussians, then with narrow ones.

A rigid motion changes only the product of the mixtures, integral f g = mean of N(x_i - y_j; 0, 2
s^2) over all pairs. Its logarithm is climbed here, which has the same maxima and no scale.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from coframe import geometry
from coframe.baselines.iterate import Clouds, one_versus_all
from coframe.em.estep import Cloud, Sweep
from coframe.em.mixture import Mixture
from coframe.errors import InputError
from coframe.types import Array, Points, Pose, Poses

# [paper] Evaluations of every level but the last.
COARSE_EVALUATIONS = 10
# [0.1, unknown] Share of the extent: deviation s of the Gaussians in each level.
DEVIATIONS = (0.2, 0.05)
# [guard] Relative decrease of the cost, and largest entry of its gradient, at which a level ends.
STOP = {"ftol": 1e-13, "gtol": 1e-8}
# [guard] Density of the uniform class over the peak of a Gaussian, see `MixtureOverlap`.
SWALLOW = 1e12
# [guard] Share of the peak: pairs farther apart than where a Gaussian falls below this count as
# infinitely far.
NEGLECTED = 1e-10
# [guard, rad] Smallest angle that `left_jacobian` divides by.
SMALLEST_ANGLE = 1e-8


def gmmreg(
    clouds: Clouds,
    poses: Poses,
    *,
    iterations: int,
    deviations: Sequence[float] = DEVIATIONS,
    threads: int | None = None,
) -> Iterator[Poses]:
    """Every cloud onto the first by GMMReg.

    iterations: evaluations of the last level. deviations: of the Gaussians in each level, as shares
    of the largest cloud's extent.
    """
    levels = _levels(iterations, deviations)
    solve = partial(pairwise, levels=levels, threads=threads)
    # A coarse level that has settled does not end the run: the next one goes on from there.
    return one_versus_all(solve, clouds, poses, tolerance=-1.0)


def evaluations_in_all(iterations: int, deviations: Sequence[float] = DEVIATIONS) -> int:
    """The evaluations of all levels, at most."""
    return sum(evaluations for _, evaluations in _levels(iterations, deviations))


def _levels(iterations: int, deviations: Sequence[float]) -> list[tuple[float, int]]:
    if not all(0 < deviation < np.inf for deviation in deviations) or not len(deviations):
        raise InputError(
            f"deviations: expected shares of the extent above 0, found {deviations!r}; leave them"
            f" out for {DEVIATIONS}"
        )
    return [(s, COARSE_EVALUATIONS) for s in deviations[:-1]] + [(deviations[-1], iterations)]


def pairwise(
    source: Points,
    target: Float[Array, "K D"],
    motion: Pose,
    *,
    levels: Sequence[tuple[float, int]],
    threads: int | None = None,
) -> Iterator[Pose]:
    """Quasi-Newton climbs, level by level (deviation, evaluations)."""
    cloud = Cloud.of(target)
    for deviation, evaluations in levels:
        overlap = MixtureOverlap(geometry.transform(motion, source), cloud, deviation, threads)
        steps: list[Float[Array, " P"]] = []
        best = minimize(
            overlap.cost,
            np.zeros(geometry.degrees_of_freedom(source.shape[1])),
            jac=True,
            method="L-BFGS-B",
            callback=lambda twist, steps=steps: steps.append(twist.copy()),
            options={"maxfun": evaluations, "maxiter": evaluations, **STOP},
        )
        for twist in [*steps[:-1], best.x]:  # the optimiser may return a better point than its last
            yield geometry.exp(twist) @ motion
        motion = geometry.exp(best.x) @ motion


@dataclass(frozen=True)
class MixtureOverlap:
    """How much of two mixtures lies on each other, as a function of the twist that moves the first.

    The sums over all pairs are those of an E-step beside a uniform class so dense that it takes all
    but 1 / SWALLOW of every point: posteriors are then densities, up to that factor.
    """

    points: Points
    cloud: Cloud
    deviation: float
    threads: int | None = None

    def cost(self, twist: Float[Array, " P"]) -> tuple[float, Float[Array, " P"]]:
        """-log of the mean of exp(-|x_i - y_j|^2 / 4 s^2), and its gradient."""
        N, D = self.points.shape
        variance = 2 * self.deviation**2
        x = geometry.transform(geometry.exp(twist), self.points)
        density = SWALLOW * (2 * np.pi * variance) ** (-D / 2)
        mixture = Mixture.spheres(x, np.full(N, variance), np.full(N, 1 / N), density)
        sweep = Sweep([self.cloud], threads=self.threads, tolerance=NEGLECTED / SWALLOW)
        moments = sweep.moments(geometry.identity(1, D), mixture)[0][0]
        total = max(float(moments.mass.sum()), np.finfo(float).tiny)
        force = moments.first / variance / total  # d log / d x_i
        arm = x - twist[-D:]
        if D == 2:
            turn = np.array([(arm[:, 0] * force[:, 1] - arm[:, 1] * force[:, 0]).sum()])
        else:
            turn = np.cross(arm, force).sum(0) @ left_jacobian(twist[:3])
        return -np.log(total * SWALLOW / len(self.cloud)), -np.concatenate([turn, force.sum(0)])


def left_jacobian(omega: Float[Array, " 3"]) -> Float[Array, "3 3"]:
    """J with exp(omega + d) = exp(J d) exp(omega) for small d."""
    angle = max(float(np.linalg.norm(omega)), SMALLEST_ANGLE)
    W = np.cross(omega / angle, np.eye(3)).T  # columns: axis x e_i
    return np.asarray(
        np.eye(3) + (1 - np.cos(angle)) / angle * W + (1 - np.sin(angle) / angle) * W @ W
    )
