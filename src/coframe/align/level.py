# SPDX-License-Identifier: MIT
"""One level of a registration: a mixture of a given size is seeded, and EM runs on it.

The mixture is seeded from the clouds under their current poses, so its components are as thick as
the misalignment that is really there: no start variance has to be guessed. After a burn-in with
fixed poses, poses and mixture move together. Which levels follow each other is in `schedule`.

Everything is in internal coordinates (see `Normalisation`); every length comes from the data.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from coframe import geometry
from coframe.align import sampling
from coframe.align.evidence import Surface, draw_surfaces
from coframe.align.recipe import ALIGN, AlignRecipe, Level
from coframe.compute.checkpoint import Checkpoint
from coframe.compute.per_cloud import PerCloud
from coframe.em import loop
from coframe.em.constraints import UNCONSTRAINED, Constraints
from coframe.em.estep import EM_TOLERANCE, Cloud
from coframe.em.joint import JointStep
from coframe.em.loop import Fit, Iteration, Steps, Stopping
from coframe.em.mixture import Mixture
from coframe.em.mstep import MixtureStep
from coframe.em.seeding import log_visibility_prior, outlier_density, seed, typical_log_density
from coframe.input.normalise import RADIUS, Normalisation
from coframe.input.source import Source
from coframe.threads import available_cores
from coframe.types import Points, Pose, Poses

# [size] Points per component that seed a mixture, at most: bounds the time, and more points seed
# the same mixture but for chance.
SEEDS = 256

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """What all levels of one registration share."""

    clouds: PerCloud[Source]
    counts: Sequence[int]  # points of each cloud that count
    frames: Normalisation
    last: Level
    rng: np.random.Generator
    threads: int | None = None
    constraints: Constraints = UNCONSTRAINED
    on_iteration: Callable[[Iteration], bool | None] = loop.carry_on
    # Called with the share of the work that is done, as far as it can be foreseen.
    on_progress: Callable[[float], object] = lambda share: None
    checkpoint: Checkpoint | None = None
    recipe: AlignRecipe = ALIGN

    def draw(self, count: int) -> PerCloud[Cloud]:
        """At most `count` random points of each cloud, denoised where it is noisy."""
        rows = [sampling.draw_rows(available, count, self.rng) for available in self.counts]
        shared = (self.recipe.denoise,)
        return self.clouds.map_keep(sampling.draw_cloud, rows, self.frames.each(), shared=shared)

    def surfaces(self) -> list[Surface]:
        """Patches of each cloud, by which hypotheses are compared: the same ones for all."""
        return draw_surfaces(self.clouds, self.counts, self.frames, self.last.points, self.recipe)

    def thin(self, clouds: PerCloud[Cloud], count: int) -> PerCloud[Cloud]:
        """At most `count` random points of each drawn cloud, in the same kd order."""
        rows = [sampling.draw_rows(size, count, self.rng) for size in clouds.map(len)]
        return clouds.map_keep(Cloud.subset, rows)

    def log_prior(self, poses: Poses, mixture: Mixture) -> float:
        """The logarithm of all priors, on poses and mixture."""
        return self.constraints.penalty(poses) + log_visibility_prior(mixture, self.recipe.model)

    def value(self, fit: Fit) -> float:
        """The penalised log-likelihood per point of a fit."""
        total = fit.log_likelihood.sum() + self.log_prior(fit.poses, fit.mixture)
        return float(total / fit.moments.points.sum())

    def map(self, tasks: Sequence[Callable[["Run"], T]]) -> list[T]:
        """Several tasks side by side, each with a generator of its own.

        So the results do not depend on the number of threads.
        """
        threads = available_cores() if self.threads is None else self.threads
        each = max(1, threads // len(tasks))
        stopped = threading.Event()

        def on_iteration(step: Iteration) -> bool | None:
            if stopped.is_set():
                raise KeyboardInterrupt
            return self.on_iteration(step)

        own = replace(self, threads=each, on_iteration=on_iteration)
        runs = [replace(own, rng=rng) for rng in self.rng.spawn(len(tasks))]
        with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
            try:
                return list(pool.map(lambda task, run: task(run), tasks, runs))
            except BaseException:
                stopped.set()  # Ctrl-C reaches this thread only.
                raise

    def fit(
        self,
        clouds: PerCloud[Cloud],
        poses: Poses,
        level: Level,
        *,
        deviation: float | None = None,
        history: tuple[Iteration, ...] = (),
    ) -> Fit:
        """Seed a mixture on the clouds under their poses, and run EM on it.

        `deviation`: the components are spheres of this standard deviation at first.
        """
        model = self.recipe.model
        floor = self.recipe.min_variance
        D = poses.shape[1] - 1
        sweep = clouds.sweep(threads=self.threads, tolerance=EM_TOLERANCE)
        points = _sample_points(clouds, poses, SEEDS * level.components)
        turn = geometry.random_rotation(self.rng, D)
        mixture = seed(points, len(clouds), level.components, floor, turn, model)
        if deviation is not None:
            spheres = np.tile(deviation**2 * np.eye(D), (len(mixture), 1, 1))
            mixture = replace(mixture, covariances=spheres, outlier_density=0.0)
            _, log_likelihood = sweep.moments(poses, mixture)
            density = typical_log_density(log_likelihood, sweep.points)
            mixture = replace(mixture, outlier_density=outlier_density(density, model))
        steps = Steps(
            partial(sweep.moments, full=True),
            JointStep(self.constraints, firm=level.spheres, recipe=model),
            MixtureStep(floor, level.spheres, model),
            self.log_prior,
        )
        batch = loop.batch if self.checkpoint is None else self.checkpoint.batch
        if level.burn_in:
            fixed = replace(steps, move=loop.stay)
            burnt = batch(fixed, poses, mixture, Stopping(RADIUS, level.burn_in))
            density = typical_log_density(burnt.log_likelihood, sweep.points)
            mixture = replace(burnt.mixture, outlier_density=outlier_density(density, model))
        fit = batch(
            steps,
            poses,
            mixture,
            Stopping(RADIUS, level.iterations, level.tolerance, self.recipe.min_gain),
            accelerated=True,
            history=history,
            on_iteration=self.on_iteration,
        )
        return replace(fit, independent=np.array(clouds.map(_independent)))


def _sample_points(clouds: PerCloud[Cloud], poses: Poses, most: int) -> Points:
    """The points of all clouds in the common frame; of more than `most`, evenly spread ones."""
    sizes = clouds.map(len)
    every = -(-sum(sizes) // most)
    firsts = np.cumsum([0, *sizes[:-1]]).tolist()
    rows = [slice(-first % every, None, every) for first in firsts]
    return np.concatenate(clouds.map(_moved_points, rows, list(poses)))


def _moved_points(cloud: Cloud, rows: slice, pose: Pose) -> Points:
    return geometry.transform(pose, cloud.points[rows])


def _independent(cloud: Cloud) -> float:
    return cloud.independent
