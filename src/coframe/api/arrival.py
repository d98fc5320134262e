# SPDX-License-Identifier: MIT
"""EM over a new cloud and the past that it comes to, of which only the cloud moves: the work of
`extend`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry
from coframe.align import level, schedule
from coframe.em import joint, loop, mstep, seeding
from coframe.em.estep import Cloud, Sweep
from coframe.em.growth import alone
from coframe.em.joint import Constraints
from coframe.em.localise import Localisation, Pyramid, localise
from coframe.em.loop import Fit
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.input.options import Options
from coframe.types import Array

FLOOR = 1e-7  # of the squared extent, as in `register`
# of the extent: how far off a cloud may start
REACHES = (
    (0.0,),
    (0.02, 0.0),
    (0.05, 0.017, 0.0),
    (0.15, 0.05, 0.017, 0.0),
)
FEW = 400  # points that try a reach
STEPS, LAST = 5, 5  # of a trial: for each reach, and more for the last where there is hope
SETTLING = 3  # iterations with all points, from the best trial
MATURING = 3  # iterations with the pose held, for new components
PAST = Constraints(fixed=(0,))  # of two clouds, the past and the new one


@dataclass(frozen=True)
class Arrival:
    """A new cloud and the past that it comes to:

    EM over these two, of which only the cloud moves.
    """

    cloud: Cloud
    past: Moments
    threads: int | None

    def expect(
        self, poses: Float[Array, "2 D1 D1"], mixture: Mixture
    ) -> tuple[Moments, Float[Array, " 2"]]:
        """The E-step: the past as it always was, the cloud as the mixture sees it now."""
        sweep = Sweep([self.cloud], threads=self.threads, tolerance=level.TOLERANCE)
        moments, log_likelihood = sweep.moments(poses[1:], mixture, full=True)
        past = self.past.recentred(mixture.means)
        held = mixture.means is self.past.about  # what does not change need not be known
        old = 0.0 if held else _log_likelihood(past, mixture)
        return alone(past).with_cloud(moments[0]), np.append(old, log_likelihood)

    def run(
        self,
        poses: Float[Array, "2 D1 D1"],
        mixture: Mixture,
        step: "Step",
        iterations: int,
        tolerance: float,
    ) -> Fit:
        return loop.batch(
            self.expect,
            step,
            poses,
            mixture,
            radius=level.RADIUS,
            iterations=iterations,
            tolerance=tolerance,
            gain=level.GAIN,
            bold=not step.hold,
            penalty=lambda poses, mixture: seeding.log_visibility_prior(mixture),
        )

    def best(
        self, pose: Float[Array, "1 D1 D1"], mixture: Mixture, rng: np.random.Generator
    ) -> Fit:
        """The cloud in its place, the mixture as it is: tried with components of different reach,
        by the likelihood.
        """
        few = schedule.some_of(self.cloud, schedule.chosen(len(self.cloud), FEW, rng))
        each = sorted({reach for reaches in REACHES for reach in reaches})
        by_reach = dict(
            zip(each, Pyramid.of(replace(mixture, visibility=None), each, 1.0).levels, strict=True)
        )

        def trial(
            reaches: Sequence[float], start: Float[Array, "D1 D1"], steps: int
        ) -> Localisation:
            return localise(
                Pyramid(tuple(by_reach[reach] for reach in reaches), 1.0),
                few,
                start,
                steps,
                each=STEPS,
            )

        trials = [trial(reaches, pose[0], STEPS * len(reaches)) for reaches in REACHES]
        hope = max(found.value for found in trials) - schedule.HOPELESS * len(few)
        trials = [trial((0.0,), found.pose, LAST) for found in trials if found.value >= hope]
        best = max(trials, key=lambda found: found.value)
        poses = np.concatenate([geometry.identity(1, mixture.dimension), best.pose[None]])
        return self.run(poses, mixture, Step.against(mixture), SETTLING, 1e-3)

    def new_surface(self, fit: Fit, rng: np.random.Generator) -> Mixture:
        """Components on what the mixture does not explain, as fine as the rest."""
        sweep = Sweep([self.cloud], threads=self.threads)
        (assignment,) = sweep.assign(fit.poses[1:], fit.mixture)
        points = geometry.transform(fit.poses[1], self.cloud.restored(self.cloud.points))[
            assignment.label < 0
        ]
        D = points.shape[1]
        if len(points) < seeding.LEAST_POINTS:
            return Mixture(
                np.zeros((0, D)),
                np.zeros((0, D, D)),
                np.zeros(0),
                fit.mixture.outlier_density,
                np.zeros((1, 0)),
            )
        own = fit.moments.mass[1]
        typical = float((own**2).sum() / max(own.sum(), mstep.STARVED))
        count = max(1, round(len(points) / max(typical, seeding.LEAST_POINTS)))
        seeds = seeding.seed(points, 1, count, FLOOR, geometry.random_rotation(rng, D))
        share = len(points) / len(self.cloud) / len(seeds) * (1 - seeding.OUTLIERS)
        return replace(
            seeds, weights=np.full(len(seeds), share), visibility=np.full((1, len(seeds)), share)
        )

    def settled(self, placed: Fit, mixture: Mixture, options: Options) -> Fit:
        """Pose and mixture together, after new components have found their shape; the mixture is
        that of the moments.
        """
        poses = placed.poses
        if len(mixture) > len(placed.mixture):
            mixture = self.run(poses, mixture, Step(hold=True), MATURING, 0.0).mixture
        fit = self.run(poses, mixture, Step(), options.iterations, options.tolerance)
        _, mixture = Step(hold=True)(fit.moments, fit.poses, fit.mixture, 0.0)
        return replace(fit, mixture=mixture, moments=fit.moments.recentred(mixture.means))

    def worthy(self, fit: Fit, old: int) -> Bool[Array, " K"]:
        """All old components, and new ones that a few points support and that are denser than the
        uniform class.
        """
        mixture = fit.mixture
        dense = np.log(mixture.weights) + mixture.log_peaks > np.log(
            max(mixture.outlier_density, np.finfo(float).tiny)
        )
        return (np.arange(len(mixture)) < old) | (
            dense & (fit.moments.mass[1] > mixture.dimension + 1)
        )


@dataclass(frozen=True)
class Step:
    """The M-step of an arrival."""

    hold: bool = False  # leave the pose alone
    frozen: Float[Array, "K D D"] | None = None  # leave the mixture alone; its precisions, softened

    @classmethod
    def against(cls, mixture: Mixture) -> "Step":
        """Only the pose moves."""
        return cls(frozen=joint.softened(mixture.covariances))

    def __call__(
        self, moments: Moments, poses: Float[Array, "2 D1 D1"], mixture: Mixture, stride: float
    ) -> tuple[Float[Array, "2 D1 D1"], Mixture]:
        if not self.hold:
            motions = self._motions(moments, poses, mixture, stride)
            poses, moments = motions @ poses, moments.moved(motions)
        visibility = seeding.cloud_priors(moments.mass[1:])
        mixture = replace(mixture, weights=visibility[0], visibility=visibility)
        if self.frozen is not None:
            return poses, mixture
        pooled = moments.pooled()
        means = mstep.means(pooled)
        return poses, replace(
            mixture,
            means=means,
            covariances=mstep.covariances(pooled, means, 0.0, mixture.covariances),
        )

    def _motions(
        self, moments: Moments, poses: Array, mixture: Mixture, stride: float
    ) -> Float[Array, "2 D1 D1"]:
        if stride > 0 and self.frozen is not None:
            precisions = self.frozen
        elif stride > 0:
            precisions = joint.softened(mixture.covariances)
        else:
            precisions = np.linalg.inv(mixture.covariances)
        centre = np.average(mixture.means, axis=0, weights=mixture.weights)
        return joint.motions(moments, precisions, centre, poses, PAST, stride=max(stride, 1.0))


def _log_likelihood(moments: Moments, mixture: Mixture) -> float:
    """The expected log-likelihood of the points behind the moments, their posteriors frozen;
    without the priors.
    """
    scatter = (np.linalg.inv(mixture.covariances) * moments.second).sum()
    return float((moments.mass * mixture.log_peaks).sum() - scatter / 2)
