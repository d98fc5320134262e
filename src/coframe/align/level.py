# SPDX-License-Identifier: MIT
"""A level of a registration: a mixture of a given size on a given number of points, how it begins,
and its M-step.

It is seeded from the clouds as they lie, so its components are as thick as the misalignment that is
really there: no start variance has to be guessed. It matures for a few iterations with the poses
held, because young components straddle what they will later separate and would push the clouds
apart; then poses and mixture move together. Which levels follow each other is said in `schedule`.

Everything is in internal coordinates (see `Normalisation`); every length comes from the data.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.compute.checkpoint import Checkpoint
from coframe.compute.places import PerCloud
from coframe.em import joint, loop, mstep
from coframe.em.estep import Cloud
from coframe.em.joint import UNCONSTRAINED, Constraints
from coframe.em.loop import Fit, Iteration
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.em.seeding import (
    ROUNDNESS,
    cloud_priors,
    log_visibility_prior,
    outlier_density,
    round_covariances,
    seed,
    typical_log_density,
)
from coframe.threads import available_cores
from coframe.types import Array

T = TypeVar("T")


RADIUS = 0.5  # of the scene: Normalisation scales the largest cloud to an extent of one
TOLERANCE = 1e-6  # posterior mass that the kernels may skip: far below what a level is worth
# nats per point and iteration: more gain than this, and the mixture still changes enough to move
# poses
GAIN = 0.005

SEEDS = 256  # per component: where there are more points, so many are enough to seed a mixture


@dataclass(frozen=True)
class Level:
    """One size of mixture."""

    components: int
    points: int  # per cloud, at most
    iterations: int
    maturing: int = 4  # iterations with the poses held, after seeding
    tolerance: float = 1e-4  # of the radius: poses that move less have settled
    # with priors common to all clouds they pull from far away; else ellipsoids, and a cloud's own
    # priors
    spheres: bool = False


@dataclass(frozen=True)
class Step:
    """The M-step of a level."""

    floor: float  # variance added to every component
    spheres: bool = False
    hold: bool = False  # leave the poses alone
    constraints: Constraints = UNCONSTRAINED

    def __call__(
        self, moments: Moments, poses: Float[Array, "M D1 D1"], mixture: Mixture, stride: float
    ) -> tuple[Float[Array, "M D1 D1"], Mixture]:
        """All poses together (see `joint`), then means, covariances and each cloud's priors."""
        if self.hold:
            pooled = moments.pooled()
        else:
            motions = self._motions(moments, poses, mixture, stride)
            poses, pooled = motions @ poses, moments.moved_and_pooled(motions)
        means = mstep.means(pooled)
        covariances = mstep.covariances(pooled, means, 0.0, mixture.covariances)
        covariances = round_covariances(
            covariances, np.inf if self.spheres else ROUNDNESS, pooled.mass
        )
        visibility = cloud_priors(moments.mass, common=self.spheres)
        covariances = covariances + self.floor * np.eye(len(means[0]))
        return poses, replace(
            mixture,
            means=means,
            covariances=covariances,
            weights=visibility.mean(0),
            visibility=visibility,
        )

    def _motions(
        self, moments: Moments, poses: Array, mixture: Mixture, stride: float
    ) -> Float[Array, "M D1 D1"]:
        slide = stride > 0 and not self.spheres
        precisions = (
            joint.softened(mixture.covariances) if slide else np.linalg.inv(mixture.covariances)
        )
        centre = np.average(mixture.means, axis=0, weights=mixture.weights)
        return joint.motions(
            moments, precisions, centre, poses, self.constraints, stride=max(stride, 1.0)
        )


@dataclass(frozen=True)
class Runner:
    """What all levels of a run share."""

    floor: float
    rng: np.random.Generator
    threads: int | None = None
    constraints: Constraints = UNCONSTRAINED
    on_iteration: Callable[[Iteration], bool | None] = loop.carry_on
    # of the work, as far as it can be foreseen
    on_progress: Callable[[float], object] = lambda share: None
    checkpoint: Checkpoint | None = None  # of what is done, for a run that may be interrupted

    def log_prior(self, poses: Float[Array, "M D1 D1"], mixture: Mixture) -> float:
        """The logarithm of all priors, on poses and mixture: what EM climbs together with the
        likelihood.
        """
        return self.constraints.penalty(poses) + log_visibility_prior(mixture)

    def value(self, fit: Fit) -> float:
        """What a fit is worth: its penalised log-likelihood per point."""
        return float(
            (fit.log_likelihood.sum() + self.log_prior(fit.poses, fit.mixture))
            / fit.moments.points.sum()
        )

    def map(self, tasks: Sequence[Callable[["Runner"], T]]) -> list[T]:
        """Several tasks side by side, each with a generator of its own: the results do not depend
        on the threads.
        """
        threads = available_cores() if self.threads is None else self.threads
        runners = [
            replace(self, rng=rng, threads=max(1, threads // len(tasks)))
            for rng in self.rng.spawn(len(tasks))
        ]
        with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
            return list(pool.map(lambda task, runner: task(runner), tasks, runners))

    def fit(
        self,
        clouds: PerCloud[Cloud],
        poses: Float[Array, "M D1 D1"],
        level: Level,
        *,
        deviation: float | None = None,
        history: tuple[Iteration, ...] = (),
    ) -> Fit:
        """Seed a mixture on the clouds as they lie (as spheres of the given standard deviation, if
        any), and run EM on it.
        """
        D = poses.shape[1] - 1
        sweep = clouds.sweep(threads=self.threads, tolerance=TOLERANCE)
        moved = sampled(clouds, poses, SEEDS * level.components)
        turn = geometry.random_rotation(self.rng, D)
        mixture = seed(moved, len(clouds), level.components, self.floor, turn)
        if deviation is not None:
            spheres = np.tile(deviation**2 * np.eye(D), (len(mixture), 1, 1))
            mixture = replace(mixture, covariances=spheres, outlier_density=0.0)
            _, log_likelihood = sweep.moments(poses, mixture)
            mixture = replace(
                mixture,
                outlier_density=outlier_density(typical_log_density(log_likelihood, sweep.points)),
            )
        batch = loop.batch if self.checkpoint is None else self.checkpoint.batch
        run = partial(
            batch, partial(sweep.moments, full=True), radius=RADIUS, penalty=self.log_prior
        )
        step = Step(self.floor, level.spheres, constraints=self.constraints)
        if level.maturing:
            held = run(replace(step, hold=True), poses, mixture, iterations=level.maturing)
            mixture = replace(
                held.mixture,
                outlier_density=outlier_density(
                    typical_log_density(held.log_likelihood, sweep.points)
                ),
            )
        fit = run(
            step,
            poses,
            mixture,
            bold=True,
            iterations=level.iterations,
            tolerance=level.tolerance,
            gain=GAIN,
            history=history,
            on_iteration=self.on_iteration,
        )
        return replace(fit, independent=np.array(clouds.map(_independent)))


def sampled(
    clouds: PerCloud[Cloud], poses: Float[Array, "M D1 D1"], most: int
) -> Float[Array, "N D"]:
    """The points of all clouds in the common frame; of more than `most`, some, evenly out of the
    order of each cloud.
    """
    sizes = clouds.map(len)
    every = -(-sum(sizes) // most)
    rows = [slice(-first % every, None, every) for first in np.cumsum([0, *sizes[:-1]]).tolist()]
    return np.concatenate(clouds.map(_moved, rows, list(poses)))


# What is done where the clouds are.


def _moved(cloud: Cloud, rows: slice, pose: Float[Array, "D1 D1"]) -> Float[Array, "N D"]:
    return geometry.transform(pose, cloud.points[rows])


def _independent(cloud: Cloud) -> float:
    return cloud.independent
