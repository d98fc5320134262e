# SPDX-License-Identifier: MIT
"""The EM loop: when to go on, when to stop, what to remember.

The equations are in `estep` (posteriors as moments), `joint` (poses) and `mstep` (mixture).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from jaxtyping import Float, Shaped

from coframe import geometry
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.types import Array, Poses

# [guard] Nats per point: a likelihood that falls by less than this has only been rounded.
ROUNDING = 1e-9
# [guard] Over-relaxation of a pose step: near a step that leaves all of itself to the next, the
# secant method would have no bound.
MAX_STRIDE = 5.0


class Status(StrEnum):
    """How a run ended; `sentence` says it to the user."""

    CONVERGED = "converged"
    ITERATION_LIMIT = "iteration_limit"
    STOPPED = "stopped"

    @property
    def sentence(self) -> str:
        """What happened, and what to do about it."""
        return {
            Status.CONVERGED: "poses and likelihood have settled",
            Status.ITERATION_LIMIT: (
                "stopped at the iteration limit before settling; give better start poses, or, in"
                " Python, more iterations (Options.iterations)"
            ),
            Status.STOPPED: "stopped on request before settling; run it again for a full result",
        }[self]


@dataclass(frozen=True, eq=False)
class Iteration:
    """One turn of the loop: the state it started from, and how far it moved.

    Attributes
    ----------
    number : int
        From 0 on.
    log_likelihood : float
        Of its points under what this iteration started from, natural logarithm; NaN where there is
        no mixture.
    step : float
        Largest pose change of this iteration, as a share of the scene's radius.
    poses : (M, D+1, D+1) array
        The poses that this iteration ended with.
    points : float
        Number of points that it saw, weighted: those of a level, which may be some of all.
    """

    number: int
    log_likelihood: float
    step: float
    poses: Poses
    points: float


@dataclass(frozen=True)
class Fit:
    """What the loop found."""

    poses: Poses
    mixture: Mixture
    moments: Moments  # of every cloud, from an E-step with these poses and this mixture
    log_likelihood: Float[Array, " M"]  # of every cloud, from the same E-step
    history: tuple[Iteration, ...]
    status: Status
    # How many independent points a point of each cloud stands for: less than one where neighbours
    # share their noise.
    independent: Float[Array, " M"]
    # Of each pose's error, where a step after the loop has found the poses.
    covariance: Float[Array, "M P P"] | None = None


@dataclass(frozen=True)
class State:
    """Where the loop stands before an iteration: all that it needs to go on from there."""

    poses: Poses
    mixture: Mixture
    stride: float  # of the next step
    turns: int = 0  # iterations so far, rejected steps included
    best: float = -np.inf  # highest penalised log-likelihood so far
    twist: Float[Array, "M P"] | None = None  # the last step
    taken: float = 1.0  # the stride of the last step
    # Where the last step came from, while it may still be rejected.
    before: tuple[Poses, Mixture] | None = None
    history: tuple[Iteration, ...] = ()
    status: Status | None = None  # how the loop ended, once it has


# E-step over all clouds: poses and mixture -> moments and log-likelihood of every cloud.
Expectation = Callable[[Array, Mixture], tuple[Moments, Array]]
# Pose step: moments, poses, mixture and a stride -> new poses, and the motions that lead to them
# (None: nothing moves). Stride 0 asks for an exact M-step, under which the likelihood cannot fall;
# stride s >= 1 for an accelerated step, over-relaxed by s.
PoseStep = Callable[[Moments, Array, Mixture, float], tuple[Array, Array | None]]
# Mixture step: moments before the pose step, its motions, the old mixture -> the new mixture.
MixtureStep = Callable[[Moments, Array | None, Mixture], Mixture]


def no_penalty(poses: Poses, mixture: Mixture) -> float:
    """The logarithm of priors where there are none."""
    return 0.0


@dataclass(frozen=True)
class Steps:
    """What an iteration consists of."""

    expect: Expectation
    move: PoseStep
    update: MixtureStep
    penalty: Callable[[Array, Mixture], float] = no_penalty  # logarithm of the priors


@dataclass(frozen=True)
class Stopping:
    """When the loop ends.

    It stops when no point at distance `radius` from the scene's centre moves by more than
    tolerance * radius relative to the others in an iteration, and the log-likelihood per point
    gains less than `gain`; so neither units nor the number of points
    matter. Tolerance 0 runs all iterations.
    """

    radius: float  # distance of the outer points from the centre: turns angles into lengths
    iterations: int
    tolerance: float = 0.0  # share of the radius
    gain: float | None = None  # nats per point; None: `tolerance`


def carry_on(iteration: Iteration) -> bool:
    """The default callback: looks at nothing and stops nothing."""
    return False


def stay(moments: Moments, poses: Poses, mixture: Mixture, stride: float) -> tuple[Poses, None]:
    """A pose step that moves nothing, for burn-in."""
    return poses, None


def batch(
    steps: Steps,
    poses: Poses,
    mixture: Mixture,
    stopping: Stopping,
    *,
    accelerated: bool = False,
    history: tuple[Iteration, ...] = (),
    on_iteration: Callable[[Iteration], bool | None] = carry_on,
    state: State | None = None,
    on_state: Callable[[State], object] = lambda state: None,
) -> Fit:
    """Alternate E-step and M-step from the given poses and mixture. Algorithm 1.

    An `accelerated` run lengthens steps that keep their direction; one that lowers the likelihood
    (with the penalty) is rejected, and an exact M-step takes its place. `history` is that of an
    earlier phase, which this one continues. `on_iteration` may return True to stop. `on_state` is
    called with where the loop stands after each turn; given such a `state`, the loop goes on from
    there to the same result.
    """
    now = State(poses, mixture, float(accelerated), history=history) if state is None else state
    moments: Moments | None = None
    past: Moments | None = None  # those of `now.before`, where they are at hand
    while now.status is None and now.turns < stopping.iterations:
        moments = None  # makes room for new ones: with many clouds moments are large
        moments, log_likelihood = steps.expect(now.poses, now.mixture)
        value = float(log_likelihood.sum()) + steps.penalty(now.poses, now.mixture)
        points = float(moments.points.sum())
        if now.before and value < now.best - ROUNDING * points:
            poses, mixture = now.before
            if now.stride == 0:
                # Not even an exact step helps: what is not in Q (a floor, say) stands against it.
                now = replace(now, poses=poses, mixture=mixture, status=Status.CONVERGED)
                break
            past = steps.expect(poses, mixture)[0] if past is None else past
            poses, motions = steps.move(past, poses, mixture, 0.0)
            mixture = steps.update(past, motions, mixture)
            turns = now.turns + 1
            now = replace(now, poses=poses, mixture=mixture, stride=0.0, turns=turns, twist=None)
            on_state(now)
            continue
        past = moments if accelerated else None
        before = now.poses, now.mixture
        stride = max(now.stride, float(accelerated))
        poses, motions = steps.move(moments, now.poses, now.mixture, stride)
        mixture = steps.update(moments, motions, now.mixture)
        twist = relative_twists(now.poses, poses, mixture)
        moved = largest_step(twist, stopping.radius)
        step = Iteration(len(now.history), float(log_likelihood.sum()), moved, poses, points)
        gain = stopping.tolerance if stopping.gain is None else stopping.gain
        settled = moved < stopping.tolerance and value - now.best < gain * points
        stopped = on_iteration(step)
        now = State(
            poses,
            mixture,
            _next_stride(now, twist, stride) if accelerated else stride,
            now.turns + 1,
            value,
            twist,
            stride,
            before if accelerated else None,
            (*now.history, step),
            Status.STOPPED if stopped else Status.CONVERGED if settled else None,
        )
        on_state(now)
    now = replace(now, status=now.status or Status.ITERATION_LIMIT)
    on_state(now)
    moments = past = None
    moments, log_likelihood = steps.expect(now.poses, now.mixture)
    value = float(log_likelihood.sum()) + steps.penalty(now.poses, now.mixture)
    if now.before and value < now.best:  # the last step was too long
        now = replace(now, poses=now.before[0], mixture=now.before[1])
        moments = None
        moments, log_likelihood = steps.expect(now.poses, now.mixture)
    assert now.status is not None
    ones = np.ones(len(now.poses))
    return Fit(now.poses, now.mixture, moments, log_likelihood, now.history, now.status, ones)


def relative_twists(old: Poses, new: Poses, mixture: Mixture) -> Float[Array, "M P"]:
    """How the clouds turned and shifted about the scene's centre, less their common motion."""
    centre = mixture.centre
    motion = new @ geometry.inverse(old)
    turn = geometry.log_rotation(geometry.rotation(motion))
    shift = geometry.rotation(motion) @ centre + geometry.translation(motion) - centre
    twists = np.concatenate([turn, shift], 1)
    return twists - twists.mean(0)


def largest_step(twists: Float[Array, "M P"], radius: float) -> float:
    """The longest path of a point at distance `radius` from the centre [share of the radius]."""
    D = 2 if twists.shape[1] == 3 else 3
    turns = np.linalg.norm(twists[:, :-D], axis=1)
    shifts = np.linalg.norm(twists[:, -D:], axis=1)
    return float((turns + shifts / radius).max())


def _next_stride(now: State, twist: Float[Array, "M P"], stride: float) -> float:
    """The over-relaxation that would end at the fixed point if each step kept its direction.

    Where a step that was over-relaxed by s leaves a share r of itself to the next, a stride of
    s / (1 - r) leaves nothing: the secant method, along the last step.
    """
    if now.twist is None:
        return 1.0
    last, new = now.twist / now.taken, twist / stride
    remaining = (last * new).sum() / max((last * last).sum(), np.finfo(float).tiny)
    return max(1.0, now.taken / max(1 - remaining, now.taken / MAX_STRIDE))


def history_to_arrays(history: Sequence[Iteration]) -> dict[str, Shaped[Array, "..."]]:
    """Iterations as named arrays, for files."""
    numbers = [[step.number, step.log_likelihood, step.step, step.points] for step in history]
    return {
        "history": np.array(numbers).reshape(-1, 4),
        "history_poses": np.array([step.poses for step in history]),
    }


def history_from_arrays(arrays: Mapping[str, Shaped[Array, "..."]]) -> tuple[Iteration, ...]:
    """The inverse of `history_to_arrays`."""
    rows = zip(arrays["history"].tolist(), arrays["history_poses"], strict=True)
    return tuple(
        Iteration(int(number), log_likelihood, step, poses, points)
        for (number, log_likelihood, step, points), poses in rows
    )
