# SPDX-License-Identifier: MIT
"""GMMReg (Jian and Vemuri 2011): each cloud is a mixture with a Gaussian on every point, and the L2
distance between the two mixtures is minimised, first with wide Gaussians, then with narrow ones.

A rigid motion changes only the product of the mixtures, integral f g = mean of N(x_i - y_j; 0, 2
s^2) over all pairs. Its logarithm is climbed here, which has the same maxima and no scale.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from coframe import geometry
from coframe.baselines import run
from coframe.baselines.icp import ITERATIONS
from coframe.baselines.run import OnIteration
from coframe.em import loop
from coframe.em.estep import Cloud, Sweep
from coframe.em.mixture import Mixture
from coframe.errors import InputError
from coframe.result.registration import Registration
from coframe.types import Array

COARSE_EVALUATIONS = 10  # of the first level, as in the paper
DEVIATIONS = (0.2, 0.05)  # s of the two levels, as shares of the extent
SWALLOW = 1e12  # see `Overlap`
# of the peak: pairs farther apart than where a Gaussian falls below this count as infinitely far
NEGLECTED = 1e-10


def gmmreg(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"],
    *,
    iterations: int = ITERATIONS,
    deviations: Sequence[float] = DEVIATIONS,
    on_iteration: OnIteration = loop.carry_on,
) -> Registration:
    """Every cloud onto the first by GMMReg. iterations: evaluations of the last level; those before
    it have 10 each.

    deviations: of the Gaussians in each level, as shares of the largest cloud's extent.
    """
    if not all(0 < deviation < np.inf for deviation in deviations) or not len(deviations):
        raise InputError(f"deviations: expected shares of the extent above 0, found {deviations!r}")
    levels = [(s, COARSE_EVALUATIONS) for s in deviations[:-1]] + [(deviations[-1], iterations)]
    most = sum(evaluations for _, evaluations in levels)
    solve = partial(run.one_versus_all, partial(pairwise, levels=levels))
    return run.run(solve, clouds, poses, iterations=most, tolerance=-1.0, on_iteration=on_iteration)


def pairwise(
    source: Float[Array, "N D"],
    target: Float[Array, "K D"],
    motion: Float[Array, "D1 D1"],
    *,
    levels: Sequence[tuple[float, int]],
) -> Iterator[Float[Array, "D1 D1"]]:
    """Quasi-Newton climbs, level by level (deviation, evaluations)."""
    cloud = Cloud.of(target)
    for deviation, evaluations in levels:
        overlap = Overlap(geometry.transform(motion, source), cloud, deviation)
        steps: list[Float[Array, " P"]] = []
        best = minimize(
            overlap.cost,
            np.zeros(geometry.degrees_of_freedom(source.shape[1])),
            jac=True,
            method="L-BFGS-B",
            callback=lambda twist, steps=steps: steps.append(twist.copy()),
            options={"maxfun": evaluations, "maxiter": evaluations, "ftol": 1e-13, "gtol": 1e-8},
        )
        for twist in [*steps[:-1], best.x]:  # the optimiser may return a better point than its last
            yield geometry.exp(twist) @ motion
        motion = geometry.exp(best.x) @ motion


@dataclass(frozen=True)
class Overlap:
    """How much of two mixtures lies on each other, as a function of the twist that moves the first.

    The sums over all pairs are those of an E-step beside a uniform class so dense that it takes all
    but 1 / SWALLOW of every point: posteriors are then densities, up to that factor.
    """

    points: Float[Array, "N D"]
    cloud: Cloud
    deviation: float

    def cost(self, twist: Float[Array, " P"]) -> tuple[float, Float[Array, " P"]]:
        """-log of the mean of exp(-|x_i - y_j|^2 / 4 s^2), and its gradient."""
        N, D = self.points.shape
        variance = 2 * self.deviation**2
        x = geometry.transform(geometry.exp(twist), self.points)
        density = SWALLOW * (2 * np.pi * variance) ** (-D / 2)
        mixture = Mixture.spheres(x, np.full(N, variance), np.full(N, 1 / N), density)
        sweep = Sweep([self.cloud], tolerance=NEGLECTED / SWALLOW)
        moments = sweep.moments(geometry.identity(1, D), mixture)[0][0]
        total = max(float(moments.mass.sum()), np.finfo(float).tiny)
        pull = moments.first / variance / total  # d log / d x_i
        arm = x - twist[-D:]
        if D == 2:
            turn = np.array([(arm[:, 0] * pull[:, 1] - arm[:, 1] * pull[:, 0]).sum()])
        else:
            turn = np.cross(arm, pull).sum(0) @ left_jacobian(twist[:3])
        return -np.log(total * SWALLOW / len(self.cloud)), -np.concatenate([turn, pull.sum(0)])


def left_jacobian(omega: Float[Array, " 3"]) -> Float[Array, "3 3"]:
    """J with exp(omega + d) = exp(J d) exp(omega) for small d."""
    angle = max(float(np.linalg.norm(omega)), 1e-8)
    W = np.cross(omega / angle, np.eye(3)).T  # columns: axis x e_i
    return np.asarray(
        np.eye(3) + (1 - np.cos(angle)) / angle * W + (1 - np.sin(angle) / angle) * W @ W
    )
