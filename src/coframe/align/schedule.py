# SPDX-License-Identifier: MIT
"""From coarse to fine: which levels a registration goes through.

How far the clouds must be allowed to move at first cannot be known beforehand. So several reaches
are tried on few points, and the likelihood of a common model tells which one was right (`trials`).
The last level then starts from the best of them (`finish`). See `level` for what a level is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Int

from coframe import geometry
from coframe.align import surface
from coframe.align.covariance import pose_covariance
from coframe.align.level import Run
from coframe.align.recipe import ALIGN, AlignRecipe, Level
from coframe.compute.per_cloud import PerCloud
from coframe.em import estep, loop
from coframe.em.constraints import Constraints
from coframe.em.estep import Cloud
from coframe.em.loop import Fit, Status
from coframe.input.normalise import RADIUS, Normalisation
from coframe.input.source import Source
from coframe.types import Array, Poses

# [guard] Share of the radius: poses that differ by less are the same, however certain they are.
ROUNDING = 1e-12
# [size] Share of the time after the trials, for progress bars.
TRIED = 0.35
# [size] Share of the time after the repetitions of the last level, for progress bars.
REPEATED = 0.85


@dataclass(frozen=True)
class Trials:
    """Candidates for the last level, best first."""

    drawn: PerCloud[Cloud]  # the points that they were drawn from
    best: Fit
    # Fits that ended elsewhere and explain the clouds about as well: more than none means that the
    # start is in doubt.
    rivals: list[Fit]

    @property
    def doubtful(self) -> bool:
        """Whether poses that differ explain the clouds about as well."""
        return bool(self.rivals)


@dataclass(frozen=True)
class Chain:
    """Repetitions of the last level, each from the poses of the one before."""

    last: Fit
    poses: list[Poses]  # of the last repetitions
    settled: bool  # whether they left the poses unchanged


def trials(run: Run, poses: Poses, drawn: PerCloud[Cloud] | None = None) -> Trials:
    """Try first phases of different reach on few points.

    Where the start is near enough, they all end in one place. Where they end apart and explain the
    clouds about equally well, none may have found it: on a thin body, say, clouds of its front and
    its back gain by lying on top of each other.
    """
    recipe = run.recipe
    drawn = run.draw(run.last.points) if drawn is None else drawn
    each = max(recipe.first.points, -(-recipe.first_points // len(drawn)))
    few = run.thin(drawn, each)

    def first_phase(deviation: float | None) -> Callable[[Run], Fit]:
        level = replace(recipe.first, iterations=0) if deviation is None else recipe.first
        return lambda run: run.fit(few, poses, level, deviation=deviation)

    fits = run.map([first_phase(deviation) for deviation in recipe.reaches])
    for done, level in enumerate(recipe.trials, 1):
        run.on_progress(TRIED * done / (1 + len(recipe.trials)))
        refined = run.map(_refinements(run, drawn, fits, level))
        fits = sorted(refined, key=run.value, reverse=True)
        fits = [fit for fit in fits if run.value(fit) > run.value(fits[0]) - recipe.max_deficit]
    if fits[0].status is Status.STOPPED:
        return Trials(drawn, fits[0], [])
    return Trials(drawn, fits[0], rivals(fits, run, recipe.max_deficit))


def beside(run: Run, found: Trials, others: Sequence[Poses]) -> Trials:
    """The trials with other start poses beside the best one; these must win clearly."""
    if not others:
        return found
    candidates = [found.best, *(replace(found.best, poses=poses) for poses in others)]
    best, *rest = run.map(_refinements(run, found.drawn, candidates, run.recipe.trials[-1]))
    other = max(rest, key=run.value)
    if run.value(other) > run.value(best) + run.recipe.min_lead:
        best, other = other, best
    return replace(found, best=best, rivals=[other])


def finish(run: Run, found: Trials) -> tuple[Fit, bool]:
    """The last level from the best trial, and from its best rival where the start is in doubt.

    Where the cuts between components fall is chance, and moves the poses by about as much as the
    noise of the points does; and old components keep their points. So the last level is repeated
    with new components until that moves the poses no more than such chance does, and the last poses
    are averaged. Clouds with more points than a level needs end with several times as many. Also
    returns whether the best candidate clearly won.
    """
    recipe, last, drawn = run.recipe, run.last, found.drawn
    run.on_progress(TRIED)
    more = any(count > last.points for count in run.counts)
    again = replace(last, iterations=recipe.repeat_iterations)

    def repeat(own: Run, start: Fit) -> Chain:
        fit = own.fit(drawn, start.poses, last, history=start.history)
        poses = [fit.poses]
        unchanged = 0
        report(len(poses), unchanged)
        while (
            unchanged < recipe.repetitions
            and len(poses) <= recipe.max_repetitions
            and fit.status is not Status.STOPPED
        ):
            points = own.draw(last.points) if more else drawn
            history = fit.history
            del fit  # makes room for the next: with many clouds its moments are large
            fit = own.fit(points, poses[-1], again, history=history)
            poses.append(fit.poses)
            unchanged = unchanged + 1 if same(poses[-2], fit) else 0
            report(len(poses), unchanged)
        return Chain(fit, poses[-recipe.repetitions :], unchanged >= recipe.repetitions)

    def report(fits: int, unchanged: int) -> None:
        share = fits / (fits + recipe.repetitions - unchanged)
        run.on_progress(TRIED + (REPEATED - TRIED) * share)

    def same(poses: Poses, fit: Fit) -> bool:
        deviation = pose_deviation(fit, run.constraints, recipe)
        return pose_distance(poses, fit, deviation) < recipe.same_sigmas

    starts = [found.best] * recipe.repetitions + found.rivals[:1]
    chains = run.map([partial(repeat, start=start) for start in starts])
    best, *others = sorted(chains, key=lambda chain: run.value(chain.last), reverse=True)
    decided = not rivals([best.last, *(chain.last for chain in others)], run, recipe.min_lead)
    deviation = pose_deviation(best.last, run.constraints, recipe)
    ends = [
        poses
        for chain in chains
        if pose_distance(chain.last.poses, best.last, deviation) < recipe.same_sigmas
        for poses in chain.poses
    ]
    if run.constraints.priors or not ends:  # what priors leave free, each chain chose for itself
        ends = [best.last.poses]
    poses = average_poses(ends, run.constraints.gauge_free)
    history, status, settled = best.last.history, best.last.status, best.settled
    del chains, best, others  # makes room
    if more:
        many = run.draw(recipe.more_points * last.points)
        end = run.fit(many, poses, again, history=history)
        poses, history = end.poses, end.history
        status = Status.STOPPED if end.status is Status.STOPPED else status
    else:
        many = drawn
    refined = None
    if status is not Status.STOPPED:
        status = Status.CONVERGED if settled else Status.ITERATION_LIMIT
        refined = surface.refine(run, poses, (recipe.more_points if more else 1) * last.points)
    if refined is not None:
        end = run.fit(many, refined.poses, replace(last, iterations=0), history=history)
        end = replace(end, covariance=refined.covariance)
    elif not more:
        end = run.fit(many, poses, replace(last, iterations=0), history=history)
    return replace(end, status=status), decided


def validate(run: Run, poses: Poses) -> float:
    """How well a coarse model, fitted from start poses to some points, explains others.

    The mean log-likelihood of a point left out [nats].
    """
    run = replace(run, on_iteration=loop.carry_on)
    level = run.recipe.trials[-1]
    rows = [run.rng.permutation(count)[: 2 * level.points] for count in run.counts]
    frames = run.frames.each()
    some, others = (run.clouds.map_keep(_half, rows, frames, shared=(first,)) for first in (0, 1))
    fit = run.fit(some, poses, level)
    sweep = others.sweep(threads=run.threads, tolerance=estep.TOLERANCE)
    _, log_likelihood = sweep.moments(fit.poses, fit.mixture)
    return float(log_likelihood.sum() / sweep.points.sum())


def rivals(fits: Sequence[Fit], run: Run, deficit: float) -> list[Fit]:
    """Of fits, best first: those that ended elsewhere than the best, within a deficit of it."""
    best, *others = fits
    twists = [loop.relative_twists(best.poses, fit.poses, best.mixture) for fit in others]
    steps = [loop.largest_step(twist, RADIUS) for twist in twists]
    least = run.value(best) - deficit
    return [
        fit
        for fit, step in zip(others, steps, strict=True)
        if step > run.recipe.distinct and run.value(fit) > least
    ]


def pose_deviation(fit: Fit, constraints: Constraints, recipe: AlignRecipe = ALIGN) -> float:
    """The standard deviation of the least certain pose [share of the radius]."""
    covariance = pose_covariance(fit.moments, fit.mixture, fit.poses, constraints, recipe=recipe)
    deviations = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0))
    return max(loop.largest_step(deviations, RADIUS), ROUNDING)


def pose_distance(poses: Poses, fit: Fit, deviation: float) -> float:
    """How far other poses differ from those of a fit, in standard deviations of the latter."""
    difference = loop.relative_twists(poses, fit.poses, fit.mixture)
    return loop.largest_step(difference, RADIUS) / deviation


def average_poses(results: Sequence[Poses], gauge_free: bool) -> Poses:
    """The mean of poses that differ little, in the gauge of the first where that is free."""
    twists = np.array([geometry.log(poses @ geometry.inverse(results[0])) for poses in results])
    if gauge_free:
        twists = twists - twists.mean(1, keepdims=True)
    return geometry.exp(twists.mean(0)) @ results[0]


def _refinements(
    run: Run, drawn: PerCloud[Cloud], fits: Sequence[Fit], level: Level
) -> list[Callable[[Run], Fit]]:
    """For each trial the task that takes it through a level, on the same points."""
    some = run.thin(drawn, level.points)

    def refinement(fit: Fit) -> Callable[[Run], Fit]:
        return lambda run: run.fit(some, fit.poses, level, history=fit.history)

    return [refinement(fit) for fit in fits]


def _half(cloud: Source, rows: Int[Array, " n"], frame: Normalisation, first: int) -> Cloud:
    """Every second one of some points, so that another half is left to validate with."""
    return Cloud.of(frame.enter([cloud.counted().take(rows).points])[0][first::2])
