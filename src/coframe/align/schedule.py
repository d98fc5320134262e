# SPDX-License-Identifier: MIT
"""From coarse to fine: which levels a registration goes through.

How far the clouds must be allowed to move at first cannot be known beforehand. So the start poses
and what planes make of them (`planes`) are tried on few points (`trials`). To leave the start must
be earned: a candidate wins if its clouds contradict each other clearly less where they share
territory (`evidence`). Only where they share none does the likelihood of a common model decide,
which pays for overlap. The last level then starts from the best trial (`finish`). See `level` for
what a level is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Int

from coframe import geometry
from coframe.align import planes, surface
from coframe.align.covariance import pose_covariance
from coframe.align.evidence import (
    Agreement,
    Surface,
    agreement,
    any_at_odds,
    at_odds,
    contradicting,
    lead,
)
from coframe.align.level import Run
from coframe.align.recipe import ALIGN, AlignRecipe, Level
from coframe.compute.per_cloud import PerCloud
from coframe.em import loop
from coframe.em.constraints import Constraints
from coframe.em.estep import Cloud
from coframe.em.loop import Fit, Iteration, Status
from coframe.input.normalise import RADIUS
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
    surfaces: Sequence[Surface]  # by which they are compared
    best: Fit
    # Fits that ended elsewhere and do not contradict themselves clearly more.
    rivals: list[Fit]
    # Clouds that contradict the others clearly more than is typical, or share nothing with them.
    suspects: tuple[int, ...] = ()

    @property
    def doubtful(self) -> bool:
        """Whether the best fit may be wrong."""
        return bool(self.rivals or self.suspects)


@dataclass(frozen=True)
class Chain:
    """Repetitions of the last level, each from the poses of the one before."""

    last: Fit
    poses: list[Poses]  # of the last repetitions
    settled: bool  # whether they left the poses unchanged


def trials(run: Run, starts: Sequence[Poses], drawn: PerCloud[Cloud] | None = None) -> Trials:
    """Try start poses, and poses near them at which the planes of the clouds meet, on few points.

    Candidates are in the order in which they are believed: the first start as it is, then with ever
    more freedom to move; then other starts.
    """
    recipe = run.recipe
    drawn = run.draw(run.last.points) if drawn is None else drawn
    surfaces = run.surfaces()
    gates = [(starts[0], gate) for gate in recipe.gates]
    gates += [(start, recipe.gates[0]) for start in starts[1:]]
    if run.constraints.targets:
        gates = []  # planes know nothing of targets, whose poses are good
    settle = partial(planes.settle, surfaces, constraints=run.constraints, threads=run.threads)
    candidates = [starts[0], *(settle(start, gate) for start, gate in gates)]
    found = [agreement(surfaces, each, recipe.evidence, run.threads) for each in candidates]
    if all(each.silent for each in found):
        attracted = run.map(_attractions(run, drawn, starts[0], recipe.reaches))
        candidates = [*starts, *(fit.poses for fit in attracted)]
    elif gates and all(any_at_odds(each, recipe.evidence) for each in found):
        # Planes may not have found a place where all agree, as on thin bodies. Spheres may; not the
        # widest ones, which draw clouds onto each other. To try them needs no proof.
        attracted = run.map(_attractions(run, drawn, starts[0], recipe.reaches[:-1]))
        candidates += [fit.poses for fit in attracted]
    fits = run.map(_refinements(run, drawn, candidates, recipe.trials[0]))
    for done, level in enumerate(recipe.trials[1:], 1):
        run.on_progress(TRIED * done / len(recipe.trials))
        fits = [fits[k] for k in choose(run, surfaces, fits).possible]
        poses, histories = [fit.poses for fit in fits], [fit.history for fit in fits]
        fits = run.map(_refinements(run, drawn, poses, level, histories))
    return _ranked(run, drawn, surfaces, fits, starts[0])


def check_start(run: Run, poses: Poses) -> tuple[Int[Array, "_ 2"], ...]:
    """Per cloud and block of its patches: territory and contradictions near start poses."""
    surfaces = run.surfaces()
    near = planes.settle(surfaces, poses, run.recipe.gates[0], run.constraints, run.threads)
    return agreement(surfaces, near, run.recipe.evidence, run.threads).blocks


def _attractions(
    run: Run, drawn: PerCloud[Cloud], start: Poses, reaches: Sequence[float | None]
) -> list[Callable[[Run], Fit]]:
    """Tasks with a level of spheres, which attract from far away, and where there are no planes."""
    recipe = run.recipe
    few = run.thin(drawn, max(recipe.first.points, -(-recipe.first_points // len(drawn))))

    def task(deviation: float) -> Callable[[Run], Fit]:
        return lambda run: run.fit(few, start, recipe.first, deviation=deviation)

    return [task(reach) for reach in reaches if reach]


def beside(run: Run, found: Trials, others: Sequence[Poses]) -> Trials:
    """The trials with other start poses beside the best one; these must win clearly."""
    if not others:
        return found
    settle = partial(
        planes.settle, found.surfaces, constraints=run.constraints, threads=run.threads
    )
    candidates = [settle(poses, run.recipe.gates[0]) for poses in others]
    tasks = _refinements(run, found.drawn, candidates, run.recipe.trials[-1])
    fits = [found.best, *run.map(tasks)]
    return _ranked(run, found.drawn, found.surfaces, fits, found.best.poses)


def _refinements(
    run: Run,
    drawn: PerCloud[Cloud],
    candidates: Sequence[Poses],
    level: Level,
    histories: Sequence[tuple[Iteration, ...]] = (),
) -> list[Callable[[Run], Fit]]:
    """For each candidate the task that takes it through a level, on the same points."""
    some = run.thin(drawn, level.points)

    def task(poses: Poses, history: tuple[Iteration, ...]) -> Callable[[Run], Fit]:
        return lambda run: run.fit(some, poses, level, history=history)

    past = histories or [()] * len(candidates)
    return [task(*each) for each in zip(candidates, past, strict=True)]


def _ranked(
    run: Run,
    drawn: PerCloud[Cloud],
    surfaces: Sequence[Surface],
    fits: Sequence[Fit],
    start: Poses,
) -> Trials:
    """The best fit, those that may be right as well, and clouds that do not fit.

    Where the best fit has no fewer contradictions than the poses that the fits started from, these
    stay: where little holds the clouds, coarse components drag them along.
    """
    recipe = run.recipe.evidence
    chosen = choose(run, surfaces, fits)
    best = fits[chosen.best]
    if best.status is Status.STOPPED:
        return Trials(drawn, surfaces, best, [])
    before, after = agreement(surfaces, start, recipe, run.threads), chosen.agreement
    if not before.silent and lead(before, after) >= 0:
        best, after = replace(best, poses=start), before
    others = [fits[k] for k in chosen.possible if _apart(best, fits[k], run.recipe)]
    others.sort(key=run.value, reverse=True)
    suspects = {*contradicting(after, recipe), *after.isolated}
    return Trials(drawn, surfaces, best, others, tuple(sorted(suspects)))


@dataclass(frozen=True)
class Choice:
    """Which of several fits is best, and which are not clearly worse, the best among them."""

    best: int
    possible: list[int]  # the best one first
    agreement: Agreement  # of the best


def choose(run: Run, surfaces: Sequence[Surface], fits: Sequence[Fit]) -> Choice:
    """Choose between fits, the one that needs least to be believed first.

    Another one must have a clearly smaller share of contradictions than the first; of those that
    have, the first that no later one improves on. Where evidence does not decide, the first stays,
    unless clouds share too little territory: then the likelihood decides, as it does between fits
    in the same place.
    """
    recipe = run.recipe.evidence
    found = [agreement(surfaces, fit.poses, recipe, run.threads) for fit in fits]
    odds = [at_odds(each, recipe) for each in found]

    def beats(k: int, other: int) -> bool:
        """Clearly fewer contradictions, or fewer, and no cloud at odds where the other has one."""
        z = lead(found[k], found[other])
        return z > recipe.clear or (z > 0 and odds[other] and not odds[k])

    def likelier(k: int, other: int) -> bool:
        """Whether the likelihood decides between two fits, and for the first."""
        silent = found[k].silent or found[other].silent
        alike = silent or not _apart(fits[other], fits[k], run.recipe)
        return alike and not beats(other, k) and run.value(fits[k]) > run.value(fits[other])

    earned = [k for k in range(1, len(fits)) if beats(k, 0)]
    best = earned[0] if earned else 0
    for k in earned:  # with the start refuted, less is needed
        if lead(found[k], found[best]) > recipe.free:
            best = k
    for k in range(len(fits)):
        if k != best and likelier(k, best):
            best = k
    for k in range(len(fits)):  # the first may have had too little territory to be refuted
        if beats(k, best):
            best = k
    others = [k for k in range(len(fits)) if k != best and not beats(best, k)]
    return Choice(best, [best, *others], found[best])


def finish(run: Run, found: Trials) -> tuple[Fit, list[Poses]]:
    """The last level from the best trial, and from its best rival where the start is in doubt.

    Where the cuts between components fall is chance, and moves the poses by about as much as the
    noise of the points does; and old components keep their points. So the last level is repeated
    with new components until that moves the poses no more than such chance does, and the last poses
    are averaged. Where little holds the clouds, components keep them where coarser ones had dragged
    them. So only one repetition starts from the best trial itself, the others from where the planes
    of the clouds meet near it. So near to each other, overlap is the same: of ends that differ by
    more than chance the likelier one is taken, unless it contradicts itself clearly more.
    Clouds with more points than a level needs end with several times as many. Also returns the
    poses of candidates that ended elsewhere and are not clearly worse.
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

    near = [found.best] * (recipe.repetitions - 1)
    if not run.constraints.targets:  # of which planes know nothing
        near = [_near_planes(run, found, each) for each in near]
    starts = [found.best, *near, *found.rivals[:1]]
    chains = run.map([partial(repeat, start=start) for start in starts])
    own = chains[: recipe.repetitions]
    own.sort(key=lambda chain: run.value(chain.last), reverse=True)
    chains = own + chains[recipe.repetitions :]
    chosen = choose(run, found.surfaces, [chain.last for chain in chains])
    best = chains[chosen.best]
    possible = [chains[k].last for k in chosen.possible]
    rivals = [fit.poses for fit in possible if _apart(best.last, fit, recipe)]
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
    del chains, own, best, possible  # makes room
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
    return replace(end, status=status), rivals


def _near_planes(run: Run, found: Trials, fit: Fit) -> Fit:
    """A fit as a start: with the poses near its own at which the planes of the clouds meet.

    No farther away than what is still the same place.
    """
    gate = run.recipe.distinct * RADIUS
    near = planes.settle(found.surfaces, fit.poses, gate, run.constraints, run.threads)
    return replace(fit, poses=near)


def _apart(one: Fit, other: Fit, recipe: AlignRecipe) -> bool:
    """Whether two fits ended in different places."""
    twists = loop.relative_twists(one.poses, other.poses, one.mixture)
    return bool(loop.largest_step(twists, RADIUS) > recipe.distinct)


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
