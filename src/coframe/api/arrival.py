# SPDX-License-Identifier: MIT
"""EM over a new cloud and the past that it joins, of which only the cloud moves."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry
from coframe.align.recipe import ALIGN, AlignRecipe, Level
from coframe.align.sampling import draw_rows
from coframe.em import loop, mstep
from coframe.em.constraints import Constraints
from coframe.em.estep import EM_TOLERANCE, Cloud, Sweep
from coframe.em.joint import JointStep, softened
from coframe.em.localise import Pyramid, localise
from coframe.em.loop import Fit, Steps, Stopping
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.em.recipe import MODEL, ModelRecipe
from coframe.em.seeding import cloud_priors, log_visibility_prior, seed
from coframe.input.normalise import RADIUS
from coframe.input.options import Options
from coframe.types import Array

PAST = Constraints(fixed=(0,))  # of two clouds, the past and the new one


@dataclass(frozen=True)
class Arrival:
    """A new cloud, and the past as one cloud that never moves and whose posteriors are frozen."""

    cloud: Cloud
    past: Moments
    threads: int | None
    recipe: AlignRecipe = ALIGN

    def localise(
        self, pose: Float[Array, "1 D1 D1"], mixture: Mixture, rng: np.random.Generator
    ) -> Fit:
        """The pose of the cloud against a fixed mixture; reaches are compared by the likelihood."""
        recipe = self.recipe
        few = self.cloud.subset(draw_rows(len(self.cloud), recipe.first.points, rng))
        each = sorted({blur for blurs in recipe.blurs for blur in blurs})
        plain = replace(mixture, visibility=None)
        levels = Pyramid.of(plain, each, 1.0, recipe.model).levels
        blurred = dict(zip(each, levels, strict=True))
        pyramids = [Pyramid(tuple(blurred[blur] for blur in blurs), 1.0) for blurs in recipe.blurs]
        trials = [localise(pyramid, few, pose[0], recipe=recipe.localise) for pyramid in pyramids]
        best = max(trials, key=lambda found: found.value)
        poses = np.concatenate([geometry.identity(1, mixture.dimension), best.pose[None]])
        precisions = softened(mixture.covariances, recipe.model.slide, recipe.model)
        steps = self._steps(
            JointStep(PAST, precisions=precisions, recipe=recipe.model), fixed_mixture=True
        )
        stopping = self._stopping(recipe.first.iterations, recipe.first.tolerance)
        return self._batch(steps, poses, mixture, stopping)

    def new_surface(self, fit: Fit, rng: np.random.Generator) -> Mixture:
        """Components on what the mixture does not explain, as fine as the rest."""
        model = self.recipe.model
        sweep = Sweep([self.cloud], threads=self.threads)
        (assignment,) = sweep.assign(fit.poses[1:], fit.mixture)
        points = geometry.transform(fit.poses[1], self.cloud.restored(self.cloud.points))
        points = points[assignment.label < 0]
        D = points.shape[1]
        if len(points) < model.min_points:
            return Mixture(
                np.zeros((0, D)),
                np.zeros((0, D, D)),
                np.zeros(0),
                fit.mixture.outlier_density,
                np.zeros((1, 0)),
            )
        own = fit.moments.mass[1]
        typical = float((own**2).sum() / max(own.sum(), mstep.STARVED))
        count = max(1, round(len(points) / max(typical, model.min_points)))
        turn = geometry.random_rotation(rng, D)
        seeds = seed(points, 1, count, self.recipe.min_variance, turn, model)
        share = len(points) / len(self.cloud) / len(seeds) * (1 - model.outlier_share)
        weights = np.full(len(seeds), share)
        return replace(seeds, weights=weights, visibility=weights[None])

    def settle(self, localised: Fit, mixture: Mixture, options: Options) -> Fit:
        """Pose and mixture together, after a burn-in of new components.

        The mixture that is returned is that of the moments.
        """
        poses = localised.poses
        if len(mixture) > len(localised.mixture):
            burn_in = self._stopping(Level(1, 1, 1).burn_in, 0.0)
            steps = self._steps(loop.stay)
            mixture = self._batch(steps, poses, mixture, burn_in, accelerated=False).mixture
        steps = self._steps(JointStep(PAST, recipe=self.recipe.model))
        stopping = self._stopping(options.iterations, options.tolerance)
        fit = self._batch(steps, poses, mixture, stopping)
        mixture = steps.update(fit.moments, None, fit.mixture)
        return replace(fit, mixture=mixture, moments=fit.moments.recentred(mixture.means))

    def supported(self, fit: Fit, old: int) -> Bool[Array, " K"]:
        """All old components, and new ones that have points and exceed the uniform class."""
        mixture = fit.mixture
        least = np.log(max(mixture.outlier_density, np.finfo(float).tiny))
        dense = np.log(mixture.weights) + mixture.log_peaks > least
        few = fit.moments.mass[1] > mixture.dimension + 1
        return (np.arange(len(mixture)) < old) | (dense & few)

    def _steps(self, move: loop.PoseStep, *, fixed_mixture: bool = False) -> Steps:
        update = UpdateMixture(fixed_mixture, self.recipe.model)
        return Steps(
            self._expect,
            move,
            update,
            lambda poses, mixture: log_visibility_prior(mixture, self.recipe.model),
        )

    def _batch(
        self,
        steps: Steps,
        poses: Float[Array, "2 D1 D1"],
        mixture: Mixture,
        stopping: Stopping,
        accelerated: bool = True,
    ) -> Fit:
        return loop.batch(steps, poses, mixture, stopping, accelerated=accelerated)

    def _stopping(self, iterations: int, tolerance: float) -> Stopping:
        return Stopping(RADIUS, iterations, tolerance, self.recipe.min_gain)

    def _expect(
        self, poses: Float[Array, "2 D1 D1"], mixture: Mixture
    ) -> tuple[Moments, Float[Array, " 2"]]:
        """The E-step: the past as it always was, the cloud as the mixture sees it now."""
        sweep = Sweep([self.cloud], threads=self.threads, tolerance=EM_TOLERANCE)
        moments, log_likelihood = sweep.moments(poses[1:], mixture, full=True)
        past = self.past.recentred(mixture.means)
        # Constant while the mixture is frozen, so 0 will do.
        frozen = mixture.means is self.past.about
        old = 0.0 if frozen else _log_likelihood(past, mixture)
        return past.stacked().with_cloud(moments[0]), np.append(old, log_likelihood)


@dataclass(frozen=True)
class UpdateMixture:
    """The mixture step of an arrival, see `loop.MixtureStep`: priors of the new cloud alone."""

    fixed: bool  # whether means and covariances stay
    recipe: ModelRecipe = MODEL

    def __call__(
        self, moments: Moments, motions: Float[Array, "2 D1 D1"] | None, mixture: Mixture
    ) -> Mixture:
        moved = moments if motions is None else moments.moved(motions)
        visibility = cloud_priors(moved.mass[1:], recipe=self.recipe)
        mixture = replace(mixture, weights=visibility[0], visibility=visibility)
        if self.fixed:
            return mixture
        pooled = moved.pooled()
        means = mstep.means(pooled)
        covariances = mstep.covariances(pooled, means, 0.0, mixture.covariances)
        return replace(mixture, means=means, covariances=covariances)


def _log_likelihood(moments: Moments, mixture: Mixture) -> float:
    """The expected log-likelihood of the points behind the moments, their posteriors frozen.

    Without the priors.
    """
    scatter = (np.linalg.inv(mixture.covariances) * moments.second).sum()
    return float((moments.mass * mixture.log_peaks).sum() - scatter / 2)
