# SPDX-License-Identifier: MIT
"""From coarse to fine: which levels a registration goes through.

What cannot be known beforehand is how far the clouds must be allowed to move at first, so several
first phases are tried on few points, and the likelihood of a common model says which one was right.
See `levels` for what a level is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.align import denoise
from coframe.align.covariance import pose_covariance
from coframe.align.level import RADIUS, Level, Runner
from coframe.compute.places import PerCloud
from coframe.em import loop
from coframe.em.estep import Cloud
from coframe.em.joint import Constraints
from coframe.em.loop import Fit, Status
from coframe.input.normalise import Normalisation
from coframe.input.source import Rows, Source
from coframe.types import Array

ROUNDING = 1e-12  # of the radius: poses that differ by less are the same, however certain
FIRST = Level(100, 400, 20, maturing=0, tolerance=2e-3, spheres=True)
ENOUGH = 6000  # points of all clouds together in the first phase: few clouds bring more of theirs
# of the first phase's spheres, as shares of the extent; None: no such phase
DEVIATIONS = (
    None,
    0.02,
    0.05,
    0.15,
)
TRIALS = (
    Level(200, 1000, 12, maturing=3, tolerance=1e-3),
    Level(400, 1500, 10, maturing=4, tolerance=5e-4),
)
HOPELESS = 0.2  # nats per point behind the best: a trial is given up
ELSEWHERE = 0.035  # of the radius: trials that are so far apart have ended in different places
# nats per point behind the best: a trial that has ended elsewhere and may be right instead,
RIVAL = 0.1
LONELY = 0.15  # the same, where no trial agrees with the best
# nats per point: by less, poses from elsewhere win by chance; where they were needed it was 0.05 to
# 0.24
CLEARLY = 0.03
CHAINS = 2  # that go through the last level side by side,
# each again and again with new components (and other points, where there are more), until that
# changes little
LINKS = 2
MOST_LINKS = 10  # but not for ever
AGAIN = 8  # iterations of such a repetition
MORE = 4  # times as many points in the end, where there are as many: beyond, nothing was gained
# standard deviations: poses that differ by less are the same but for the chance of where components
# lie
SAME = 4.0
# shares of the time that are over after the trials and after the last level, about
TRIED, REPEATED = (
    0.35,
    0.85,
)


@dataclass(frozen=True)
class Supply:
    """Where levels get their points from: the clouds, how many points of each count, and their
    frames.
    """

    clouds: PerCloud[Source]
    counts: Sequence[int]
    frames: Normalisation

    def drawn(self, count: int, rng: np.random.Generator) -> PerCloud[Cloud]:
        """At most `count` random points of each cloud, free of noise where the cloud itself can
        tell.
        """
        rows = [chosen(available, count, rng) for available in self.counts]
        return self.clouds.map_keep(_drawn, rows, self.frames.each())


def coarse_to_fine(
    supply: Supply,
    poses: Float[Array, "M D1 D1"],
    last: Level,
    runner: Runner,
    elsewhere: Callable[[], Sequence[Float[Array, "M D1 D1"]]] = tuple,
) -> tuple[Fit, bool]:
    """The whole schedule: several first phases, trials on growing models, and the last level from
    the best of them.

    `elsewhere` is asked for other start poses where the trials leave doubt; then the two best ideas
    both go through the last level, whose larger model tells them apart better. Beside the fit:
    whether it did.

    Where the cuts between components fall is chance, and moves the poses by about as much as the
    noise of the points does; and old components hold on to their points. So the last level is
    repeated with new ones until that moves the poses no more than such chance does, and the last
    poses are averaged. Clouds with more points than a level needs have the last word with several
    times as many.
    """
    drawn = supply.drawn(last.points, runner.rng)
    starts = best_starts(drawn, poses, runner, elsewhere)
    more = any(count > last.points for count in supply.counts)

    def chain(runner: Runner, start: Fit) -> list[Fit]:
        fits = [runner.fit(drawn, start.poses, last, history=start.history)]
        calm = 0
        told(fits, calm)
        while calm < LINKS and len(fits) <= MOST_LINKS and fits[-1].status is not Status.STOPPED:
            points = supply.drawn(last.points, runner.rng) if more else drawn
            fits.append(
                runner.fit(
                    points,
                    fits[-1].poses,
                    replace(last, iterations=AGAIN),
                    history=fits[-1].history,
                )
            )
            calm = calm + 1 if apart(fits[-2], fits[-1], runner.constraints) < SAME else 0
            told(fits, calm)
        return fits

    def told(fits: list[Fit], calm: int) -> None:
        runner.on_progress(TRIED + (REPEATED - TRIED) * len(fits) / (len(fits) + LINKS - calm))

    chains = runner.map(
        [partial(chain, start=start) for start in [starts[0]] * CHAINS + starts[1:]]
    )
    best, *others = sorted(chains, key=lambda fits: runner.value(fits[-1]), reverse=True)
    decided = not rivals([best[-1], *(fits[-1] for fits in others)], runner, CLEARLY)
    ends = [
        fit.poses
        for fits in chains
        if apart(fits[-1], best[-1], runner.constraints) < SAME
        for fit in fits[-LINKS:]
    ]
    # what they leave free, each chain has chosen for itself
    if runner.constraints.priors or not ends:
        ends = [best[-1].poses]
    poses = averaged(ends, runner.constraints.gauge_free)
    if more:
        many = supply.drawn(MORE * last.points, runner.rng)
        end = runner.fit(many, poses, replace(last, iterations=AGAIN), history=best[-1].history)
    else:
        end = runner.fit(drawn, poses, replace(last, iterations=0), history=best[-1].history)
    settled = len(best) > LINKS and all(
        apart(a, b, runner.constraints) < SAME for a, b in pairwise(best[-LINKS - 1 :])
    )
    status = best[-1].status
    if status is not Status.STOPPED:
        status = Status.CONVERGED if settled else Status.ITERATION_LIMIT
    return replace(end, status=status), decided


def best_starts(
    clouds: PerCloud[Cloud],
    poses: Float[Array, "M D1 D1"],
    runner: Runner,
    elsewhere: Callable[[], Sequence[Float[Array, "M D1 D1"]]] = tuple,
) -> list[Fit]:
    """Try first phases of different reach on few points, and keep the one whose model explains the
    clouds best.

    Where the start is near enough, they all end in one place. Where they end apart and explain the
    clouds about equally well, none may have found it: on a thin body, say, clouds of its front and
    its back gain by lying on top of each other. Then what `elsewhere` knows is tried beside them,
    and the second best is kept, too.
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
    second = [] if best.status is Status.STOPPED else rivals(fits, runner, RIVAL, LONELY)
    others = elsewhere() if second else ()
    if others:
        best, *matched = trials([best, *(replace(best, poses=each) for each in others)], TRIALS[-1])
        other = max(matched, key=runner.value)
        best, *second = (
            (other, best) if runner.value(other) > runner.value(best) + CLEARLY else (best, other)
        )
    runner.on_progress(TRIED)
    return [best, *second[:1]]


def rivals(
    fits: Sequence[Fit], runner: Runner, margin: float, lonely: float | None = None
) -> list[Fit]:
    """Of fits, best first: those that are elsewhere than the best, and within a margin as good.

    lonely: the margin where none of them agrees with the best; default: the same.
    """
    best, *others = fits
    steps = [
        loop.largest_step(loop.relative_twists(best.poses, fit.poses, best.mixture), RADIUS)
        for fit in others
    ]
    agreed = min(steps, default=0.0) < ELSEWHERE
    least = runner.value(best) - (margin if agreed or lonely is None else lonely)
    return [
        fit
        for fit, step in zip(others, steps, strict=True)
        if step > ELSEWHERE and runner.value(fit) > least
    ]


def apart(a: Fit, b: Fit, constraints: Constraints) -> float:
    """How far the poses of two fits differ, in standard deviations of the poses."""
    difference = loop.relative_twists(a.poses, b.poses, b.mixture)
    covariance = pose_covariance(b.moments, b.mixture, b.poses, constraints)
    deviations = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0))
    return loop.largest_step(difference, RADIUS) / max(
        loop.largest_step(deviations, RADIUS), ROUNDING
    )


def averaged(
    results: Sequence[Float[Array, "M D1 D1"]], gauge_free: bool
) -> Float[Array, "M D1 D1"]:
    """The mean of poses that differ little, all brought into the gauge of the first where that is
    free.
    """
    twists = np.array([geometry.log(poses @ geometry.inverse(results[0])) for poses in results])
    if gauge_free:
        twists = twists - twists.mean(1, keepdims=True)
    return geometry.exp(twists.mean(0)) @ results[0]


def fewer(clouds: PerCloud[Cloud], count: int, rng: np.random.Generator) -> PerCloud[Cloud]:
    """At most `count` random points of each cloud, in the same kd order."""
    return clouds.map_keep(
        some_of, [chosen(available, count, rng) for available in clouds.map(len)]
    )


def chosen(available: int, count: int, rng: np.random.Generator) -> Int[Array, " n"] | slice:
    """At most `count` rows, in their order."""
    return (
        slice(None) if available <= count else np.sort(rng.choice(available, count, replace=False))
    )


# What is done where the clouds are.


def _drawn(cloud: Source, rows: Rows, frame: Normalisation) -> Cloud:
    some = cloud.counted().take(rows)
    return prepared(frame.enter([some.points])[0], some.weights)


def prepared(points: Float[Array, "N D"], weights: Float[Array, " N"] | None) -> Cloud:
    """Points as a level wants them: free of noise where they themselves can tell, and in order."""
    flat, independent = denoise.flattened(points)
    return Cloud.of(flat, weights, independent)


def some_of(cloud: Cloud, rows: Rows) -> Cloud:
    """Some points of a cloud, in the same kd order."""
    kept = np.ascontiguousarray(cloud.rows[:, rows])
    return replace(cloud, rows=kept, order=np.arange(kept.shape[1]))
