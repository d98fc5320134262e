# SPDX-License-Identifier: MIT
"""From coarse to fine: which mixtures a registration goes through, and how each begins.

A level is a mixture of a given size on a given number of points. It is seeded from the clouds as they lie, so its components
are as thick as the misalignment that is really there: no start variance has to be guessed. It matures for a few iterations with
the poses held, because young components straddle what they will later separate and would push the clouds apart; then poses and
mixture move together. What cannot be known beforehand is how far the clouds must be allowed to move at first, so several first
phases are tried on few points, and the likelihood of a common model says which one was right.

Everything is in internal coordinates (see `Frames`); every length comes from the data.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int

from coframe import assess, em, geometry, joint, kernels, mstep, surface
from coframe.arrays import Array
from coframe.clouds import Frames
from coframe.em import Fit, Iteration, Status
from coframe.estep import Cloud
from coframe.joint import UNCONSTRAINED, Constraints
from coframe.journal import Journal
from coframe.mixture import Mixture
from coframe.moments import Moments
from coframe.places import Place
from coframe.source import Rows, Source
from coframe.sweeps import available_cores

T = TypeVar("T")

OUTLIERS = 0.03  # share of outliers that a level assumes until it knows better
ROUNDNESS = 0.1  # pseudo-points that draw each covariance towards a sphere, so that none is singular
SMOOTHING = 0.3  # pseudo-points per component in a cloud's own priors
RADIUS = 0.5  # of the scene: Frames scales the largest cloud to an extent of one
TOLERANCE = 1e-6  # posterior mass that the kernels may skip: far below what a level is worth
GAIN = 0.005  # nats per point and iteration: more gain than this, and the mixture still changes enough to move poses
ROUNDING = 1e-12  # of the radius: poses that differ by less are the same, however certain
LEAST_POINTS = 8  # per component
SEEDS = 256  # per component: where there are more points, so many are enough to seed a mixture


@dataclass(frozen=True)
class Level:
    """One size of mixture."""

    components: int
    points: int  # per cloud, at most
    iterations: int
    maturing: int = 4  # iterations with the poses held, after seeding
    tolerance: float = 1e-4  # of the radius: poses that move less have settled
    spheres: bool = (
        False  # spheres with priors common to all clouds pull clouds together from far away; else ellipsoids, own priors
    )


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
        covariances = rounded(covariances, np.inf if self.spheres else ROUNDNESS, pooled.mass)
        visibility = priors(moments.mass, common=self.spheres)
        covariances = covariances + self.floor * np.eye(len(means[0]))
        return poses, replace(mixture, means=means, covariances=covariances, weights=visibility.mean(0), visibility=visibility)

    def _motions(self, moments: Moments, poses: Array, mixture: Mixture, stride: float) -> Float[Array, "M D1 D1"]:
        slide = stride > 0 and not self.spheres
        precisions = joint.softened(mixture.covariances) if slide else np.linalg.inv(mixture.covariances)
        centre = np.average(mixture.means, axis=0, weights=mixture.weights)
        return joint.motions(moments, precisions, centre, poses, self.constraints, stride=max(stride, 1.0))


def rounded(covariances: Float[Array, "K D D"], pseudo_points: float, mass: Float[Array, " K"]) -> Float[Array, "K D D"]:
    """Covariances drawn towards spheres of the same trace, as by so many extra points."""
    D = covariances.shape[1]
    spheres = (np.trace(covariances, axis1=1, axis2=2) / D)[:, None, None] * np.eye(D)
    share = 1.0 if np.isinf(pseudo_points) else (pseudo_points / (mass + pseudo_points))[:, None, None]
    return covariances + share * (spheres - covariances)


def priors(mass: Float[Array, "M K"], *, common: bool = False) -> Float[Array, "M K"]:
    """p_jk: what each cloud sees of the model, from its own posterior masses.

    With one p_k for all clouds, the likelihood rewards clouds for piling onto each other, and partial views slide.
    """
    if common:
        mass = np.broadcast_to(mass.mean(0), mass.shape)
    smoothed = mass + SMOOTHING
    return smoothed / smoothed.sum(1, keepdims=True) * (1 - OUTLIERS)


def log_visibility_prior(mixture: Mixture) -> float:
    """The logarithm of the Dirichlet prior behind `priors`, up to a constant."""
    return 0.0 if mixture.visibility is None else SMOOTHING * float(np.log(mixture.visibility).sum())


def seeded(points: Float[Array, "N D"], clouds: int, components: int, floor: float, turn: Float[Array, "D D"]) -> Mixture:
    """A mixture of about `components` Gaussians, one for each cell of a balanced tree over the points.

    The tree cuts along the axes of the points turned by `turn`: other turns, other cells.
    """
    N, D = points.shape
    leaf = max(LEAST_POINTS, -(-N // components))
    order = kernels.kd_order(points @ turn.T, leaf)
    starts = np.arange(0, N, leaf)
    count = np.diff(np.append(starts, N))[:, None]
    means = np.add.reduceat(points[order], starts) / count
    d = points[order] - np.repeat(means, count[:, 0], axis=0)
    covariances = np.add.reduceat(d[:, :, None] * d[:, None, :], starts) / count[..., None] + floor * np.eye(D)
    covariances = rounded(covariances, ROUNDNESS, count[:, 0].astype(float))
    visibility = np.full((clouds, len(means)), (1 - OUTLIERS) / len(means))
    mixture = Mixture(means, covariances, visibility[0], 0.0, visibility)
    return replace(
        mixture, outlier_density=outlier_density(float(np.mean(np.log(mixture.weights) + mixture.log_peaks)) - D / 2)
    )


def outlier_density(log_density: float) -> float:
    """The density of a uniform class that acts, given the mean log-density of the points: its share over their volume.

    That volume is the one of a uniform distribution with the same entropy: a thin shell around the surface, not the box around
    it, in which a uniform density would be too low ever to explain anything.
    """
    return float(OUTLIERS * np.exp(log_density))


def typical(log_likelihood: Float[Array, " M"], points: Float[Array, " M"]) -> float:
    """The mean log-density of a cloud's points, in the median over clouds: one that does not belong changes little."""
    return float(np.median(log_likelihood / points))


@dataclass(frozen=True)
class Runner:
    """What all levels of a run share."""

    floor: float
    rng: np.random.Generator
    threads: int | None = None
    constraints: Constraints = UNCONSTRAINED
    on_iteration: Callable[[Iteration], bool | None] = em.carry_on
    on_progress: Callable[[float], object] = lambda share: None  # of the work, as far as it can be foreseen
    journal: Journal | None = None  # of what is done, for a run that may be interrupted

    def log_prior(self, poses: Float[Array, "M D1 D1"], mixture: Mixture) -> float:
        """The logarithm of all priors, on poses and mixture: what EM climbs together with the likelihood."""
        return self.constraints.penalty(poses) + log_visibility_prior(mixture)

    def value(self, fit: Fit) -> float:
        """What a fit is worth: its penalised log-likelihood per point."""
        return float((fit.log_likelihood.sum() + self.log_prior(fit.poses, fit.mixture)) / fit.moments.points.sum())

    def map(self, tasks: Sequence[Callable[["Runner"], T]]) -> list[T]:
        """Several tasks side by side, each with a generator of its own: the results do not depend on the threads."""
        threads = available_cores() if self.threads is None else self.threads
        runners = [replace(self, rng=rng, threads=max(1, threads // len(tasks))) for rng in self.rng.spawn(len(tasks))]
        with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
            return list(pool.map(lambda task, runner: task(runner), tasks, runners))

    def fit(
        self,
        clouds: Place[Cloud],
        poses: Float[Array, "M D1 D1"],
        level: Level,
        *,
        deviation: float | None = None,
        history: tuple[Iteration, ...] = (),
    ) -> Fit:
        """Seed a mixture on the clouds as they lie (as spheres of the given standard deviation, if any), and run EM on it."""
        D = poses.shape[1] - 1
        sweep = clouds.sweep(threads=self.threads, tolerance=TOLERANCE)
        moved = sampled(clouds, poses, SEEDS * level.components)
        turn = geometry.random_rotation(self.rng, D)
        mixture = seeded(moved, len(clouds), level.components, self.floor, turn)
        if deviation is not None:
            spheres = np.tile(deviation**2 * np.eye(D), (len(mixture), 1, 1))
            mixture = replace(mixture, covariances=spheres, outlier_density=0.0)
            _, log_likelihood = sweep.moments(poses, mixture)
            mixture = replace(mixture, outlier_density=outlier_density(typical(log_likelihood, sweep.points)))
        batch = em.batch if self.journal is None else self.journal.batch
        run = partial(batch, partial(sweep.moments, full=True), radius=RADIUS, penalty=self.log_prior)
        step = Step(self.floor, level.spheres, constraints=self.constraints)
        if level.maturing:
            held = run(replace(step, hold=True), poses, mixture, iterations=level.maturing)
            mixture = replace(held.mixture, outlier_density=outlier_density(typical(held.log_likelihood, sweep.points)))
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
        return replace(fit, independent=np.array(clouds.each(_independent)))


FIRST = Level(100, 400, 20, maturing=0, tolerance=2e-3, spheres=True)
ENOUGH = 6000  # points of all clouds together in the first phase: few clouds bring more of theirs
DEVIATIONS = (None, 0.02, 0.05, 0.15)  # of the first phase's spheres, as shares of the extent; None: no such phase
TRIALS = (Level(200, 1000, 12, maturing=3, tolerance=1e-3), Level(400, 1500, 10, maturing=4, tolerance=5e-4))
HOPELESS = 0.2  # nats per point behind the best: a trial is given up
ELSEWHERE = 0.035  # of the radius: trials that are so far apart have ended in different places
RIVAL = 0.1  # nats per point behind the best: a trial that has ended elsewhere and may be right instead,
LONELY = 0.15  # the same, where no trial agrees with the best
CLEARLY = 0.03  # nats per point: by less, poses from elsewhere win by chance; where they were needed it was 0.05 to 0.24
CHAINS = 2  # that go through the last level side by side,
LINKS = 2  # each again and again with new components (and other points, where there are more), until that changes little
MOST_LINKS = 10  # but not for ever
AGAIN = 8  # iterations of such a repetition
MORE = 4  # times as many points in the end, where there are as many: beyond, nothing was gained
SAME = 4.0  # standard deviations: poses that differ by less are the same but for the chance of where components lie
TRIED, REPEATED = 0.35, 0.85  # shares of the time that are over after the trials and after the last level, about


@dataclass(frozen=True)
class Supply:
    """Where levels get their points from: the clouds, how many points of each count, and their frames."""

    clouds: Place[Source]
    counts: Sequence[int]
    frames: Frames

    def drawn(self, count: int, rng: np.random.Generator) -> Place[Cloud]:
        """At most `count` random points of each cloud, free of noise where the cloud itself can tell."""
        rows = [chosen(available, count, rng) for available in self.counts]
        return self.clouds.keep(_drawn, rows, self.frames.each())


def coarse_to_fine(
    supply: Supply,
    poses: Float[Array, "M D1 D1"],
    last: Level,
    runner: Runner,
    elsewhere: Callable[[], Sequence[Float[Array, "M D1 D1"]]] = tuple,
) -> Fit:
    """The whole schedule: several first phases, trials on growing models, and the last level from the best of them.

    `elsewhere` is asked for other start poses where the trials leave doubt.

    Where the cuts between components fall is chance, and moves the poses by about as much as the noise of the points does;
    and old components hold on to their points. So the last level is repeated with new ones until that moves the poses no
    more than such chance does, and the last poses are averaged. Clouds with more points than a level needs have the last
    word with several times as many.
    """
    drawn = supply.drawn(last.points, runner.rng)
    start = best_start(drawn, poses, runner, elsewhere)
    more = any(count > last.points for count in supply.counts)

    def chain(runner: Runner) -> list[Fit]:
        fits = [runner.fit(drawn, start.poses, last, history=start.history)]
        calm = 0
        told(fits, calm)
        while calm < LINKS and len(fits) <= MOST_LINKS and fits[-1].status is not Status.STOPPED:
            points = supply.drawn(last.points, runner.rng) if more else drawn
            fits.append(runner.fit(points, fits[-1].poses, replace(last, iterations=AGAIN), history=fits[-1].history))
            calm = calm + 1 if apart(fits[-2], fits[-1], runner.constraints) < SAME else 0
            told(fits, calm)
        return fits

    def told(fits: list[Fit], calm: int) -> None:
        runner.on_progress(TRIED + (REPEATED - TRIED) * len(fits) / (len(fits) + LINKS - calm))

    chains = runner.map([chain] * CHAINS)
    best = max(chains, key=lambda fits: runner.value(fits[-1]))
    ends = [fit.poses for fits in chains if apart(fits[-1], best[-1], runner.constraints) < SAME for fit in fits[-LINKS:]]
    if runner.constraints.priors or not ends:  # what they leave free, each chain has chosen for itself
        ends = [best[-1].poses]
    poses = averaged(ends, runner.constraints.gauge_free)
    if more:
        many = supply.drawn(MORE * last.points, runner.rng)
        end = runner.fit(many, poses, replace(last, iterations=AGAIN), history=best[-1].history)
    else:
        end = runner.fit(drawn, poses, replace(last, iterations=0), history=best[-1].history)
    settled = len(best) > LINKS and all(apart(a, b, runner.constraints) < SAME for a, b in pairwise(best[-LINKS - 1 :]))
    status = best[-1].status
    if status is not Status.STOPPED:
        status = Status.CONVERGED if settled else Status.ITERATION_LIMIT
    return replace(end, status=status)


def best_start(
    clouds: Place[Cloud],
    poses: Float[Array, "M D1 D1"],
    runner: Runner,
    elsewhere: Callable[[], Sequence[Float[Array, "M D1 D1"]]] = tuple,
) -> Fit:
    """Try first phases of different reach on few points, and keep the one whose model explains the clouds best.

    Where the start is near enough, they all end in one place. Where they end apart and explain the clouds about equally well,
    none may have found it: on a thin body, say, clouds of its front and its back gain by lying on top of each other. Then
    what `elsewhere` knows is tried beside them.
    """
    few = fewer(clouds, max(FIRST.points, -(-ENOUGH // len(clouds))), runner.rng)

    def first(deviation: float | None) -> Callable[[Runner], Fit]:
        level = replace(FIRST, iterations=0) if deviation is None else FIRST
        return lambda runner: runner.fit(few, poses, level, deviation=deviation)

    def trials(begun: Sequence[Fit], level: Level) -> list[Fit]:
        def trial(fit: Fit) -> Callable[[Runner], Fit]:
            return lambda runner: runner.fit(some, fit.poses, level, history=fit.history)

        some = fewer(clouds, level.points, runner.rng)
        return runner.map([trial(fit) for fit in begun])

    fits = runner.map([first(deviation) for deviation in DEVIATIONS])
    for done, level in enumerate(TRIALS, 1):
        runner.on_progress(TRIED * done / (1 + len(TRIALS)))
        fits = sorted(trials(fits, level), key=runner.value, reverse=True)
        fits = [fit for fit in fits if runner.value(fit) > runner.value(fits[0]) - HOPELESS]
    best = fits[0]
    others = elsewhere() if best.status is not Status.STOPPED and rivals(fits, runner) else ()
    if others:
        best, *matched = trials([best, *(replace(best, poses=each) for each in others)], TRIALS[-1])
        other = max(matched, key=runner.value)
        best = other if runner.value(other) > runner.value(best) + CLEARLY else best
    runner.on_progress(TRIED)
    return best


def rivals(fits: Sequence[Fit], runner: Runner) -> list[Fit]:
    """Of fits, best first: those that are elsewhere than the best, and about as good."""
    best, *others = fits
    steps = [em.largest_step(em.relative_twists(best.poses, fit.poses, best.mixture), RADIUS) for fit in others]
    least = runner.value(best) - (RIVAL if min(steps, default=0.0) < ELSEWHERE else LONELY)
    return [fit for fit, step in zip(others, steps, strict=True) if step > ELSEWHERE and runner.value(fit) > least]


def apart(a: Fit, b: Fit, constraints: Constraints) -> float:
    """How far the poses of two fits differ, in standard deviations of the poses."""
    difference = em.relative_twists(a.poses, b.poses, b.mixture)
    covariance = assess.pose_covariance(b.moments, b.mixture, b.poses, constraints)
    deviations = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0))
    return em.largest_step(difference, RADIUS) / max(em.largest_step(deviations, RADIUS), ROUNDING)


def averaged(results: Sequence[Float[Array, "M D1 D1"]], gauge_free: bool) -> Float[Array, "M D1 D1"]:
    """The mean of poses that differ little, all brought into the gauge of the first where that is free."""
    twists = np.array([geometry.log(poses @ geometry.inverse(results[0])) for poses in results])
    if gauge_free:
        twists = twists - twists.mean(1, keepdims=True)
    return geometry.exp(twists.mean(0)) @ results[0]


def sampled(clouds: Place[Cloud], poses: Float[Array, "M D1 D1"], most: int) -> Float[Array, "N D"]:
    """The points of all clouds in the common frame; of more than `most`, some, evenly out of the order of each cloud."""
    sizes = clouds.each(len)
    every = -(-sum(sizes) // most)
    rows = [slice(-first % every, None, every) for first in np.cumsum([0, *sizes[:-1]]).tolist()]
    return np.concatenate(clouds.each(_moved, rows, list(poses)))


def fewer(clouds: Place[Cloud], count: int, rng: np.random.Generator) -> Place[Cloud]:
    """At most `count` random points of each cloud, in the same kd order."""
    return clouds.keep(some_of, [chosen(available, count, rng) for available in clouds.each(len)])


def chosen(available: int, count: int, rng: np.random.Generator) -> Int[Array, " n"] | slice:
    """At most `count` rows, in their order."""
    return slice(None) if available <= count else np.sort(rng.choice(available, count, replace=False))


# What is done where the clouds are.


def _drawn(cloud: Source, rows: Rows, frame: Frames) -> Cloud:
    some = cloud.counted().take(rows)
    return prepared(frame.enter([some.points])[0], some.weights)


def prepared(points: Float[Array, "N D"], weights: Float[Array, " N"] | None) -> Cloud:
    """Points as a level wants them: free of noise where they themselves can tell, and in order."""
    flat, independent = surface.flattened(points)
    return Cloud.of(flat, weights, independent)


def some_of(cloud: Cloud, rows: Rows) -> Cloud:
    """Some points of a cloud, in the same kd order."""
    kept = np.ascontiguousarray(cloud.rows[:, rows])
    return replace(cloud, rows=kept, order=np.arange(kept.shape[1]))


def _moved(cloud: Cloud, rows: slice, pose: Float[Array, "D1 D1"]) -> Float[Array, "N D"]:
    return geometry.transform(pose, cloud.points[rows])


def _independent(cloud: Cloud) -> float:
    return cloud.independent
