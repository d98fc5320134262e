# SPDX-License-Identifier: MIT
"""The EM loop: when to go on, when to stop, what to remember.

The equations are in `estep`, `mstep` and `joint`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.types import Array

FALL = 1e-9  # per point: a likelihood that falls by less than this has only been rounded
BOLDEST = 5.0  # over-relaxation of a pose step, at most


class Status(Enum):
    """How a run ended, with a sentence for the user."""

    CONVERGED = "poses and likelihood have settled"
    ITERATION_LIMIT = (
        "stopped at the iteration limit before settling; allow more iterations, or start nearer"
    )
    STOPPED = "stopped on request"


@dataclass(frozen=True)
class Iteration:
    """One turn of the loop: the state it started from, and how far it moved."""

    number: int
    # of its points under what this iteration started from, natural log; NaN where there is no
    # mixture
    log_likelihood: float
    step: float  # largest pose change of this iteration, as a share of the scene's radius
    poses: Float[Array, "M D1 D1"]  # that this iteration ended with
    points: float  # that it saw, weighted: those of a level, which may be some of all


@dataclass(frozen=True)
class Fit:
    """What the loop found."""

    poses: Float[Array, "M D1 D1"]
    mixture: Mixture
    moments: Moments  # of every cloud, from an E-step with these poses and this mixture
    log_likelihood: Float[Array, " M"]  # of every cloud, from the same E-step
    history: tuple[Iteration, ...]
    status: Status
    # points that a point of each cloud stands for: less than one where they share their noise
    independent: Float[Array, " M"]


@dataclass(frozen=True)
class State:
    """Where the loop stands before an iteration: all that it needs to go on from there."""

    poses: Float[Array, "M D1 D1"]
    mixture: Mixture
    stride: float  # of the next step
    turns: int = 0  # iterations behind it, steps that were taken back included
    calm: int = 0  # the last of them, in a row, that changed little
    best: float = -np.inf  # penalised log-likelihood, the highest so far
    twist: Float[Array, "M P"] | None = None  # the last step
    # where it came from, while it may be taken back
    before: tuple[Float[Array, "M D1 D1"], Mixture] | None = None
    history: tuple[Iteration, ...] = ()
    status: Status | None = None  # how the loop ended, once it has


# An E-step over all clouds: poses and mixture -> the moments of every cloud, and its
# log-likelihood.
Expectation = Callable[[Array, Mixture], tuple[Moments, Array]]
# An M-step: moments, poses, mixture and a stride -> new poses and a new mixture. Stride 0 asks for
# a plain EM step, under which the likelihood cannot fall; a stride of 1 or more allows any step
# that usually helps, that many times as long.
Maximization = Callable[[Moments, Array, Mixture, float], tuple[Array, Mixture]]


def carry_on(iteration: Iteration) -> bool:
    """The default callback: looks at nothing and stops nothing."""
    return False


def batch(
    expect: Expectation,
    maximize: Maximization,
    poses: Float[Array, "M D1 D1"],
    mixture: Mixture,
    *,
    radius: float,
    iterations: int,
    tolerance: float = 0.0,
    gain: float | None = None,
    bold: bool = False,
    penalty: Callable[[Array, Mixture], float] = lambda poses, mixture: 0.0,
    history: tuple[Iteration, ...] = (),
    on_iteration: Callable[[Iteration], bool | None] = carry_on,
    state: State | None = None,
    on_state: Callable[[State], object] = lambda state: None,
) -> Fit:
    """Alternate E-step and M-step from the given poses and mixture. Algorithm 1.

    `radius` is the distance of the outer points from the scene's centre; it turns angles into
    lengths. The loop stops when no point of that distance moves by more than tolerance * radius
    relative to the others in an iteration and the log-likelihood per point gains less than `gain`
    (default: `tolerance`), both twice in a row, so that neither units nor the number of points
    matter; tolerance 0 runs all iterations. A `bold` run lengthens steps that keep their direction;
    one that lowers the likelihood (with `penalty`, the logarithm of the priors) is taken back, and
    a plain EM step takes its place. `history` is that of an earlier phase, which this one
    continues. `on_iteration` may return True to stop. `on_state` is told where the loop stands
    after each turn; given such a `state`, the loop goes on from there to the same result.
    """
    now = State(poses, mixture, float(bold), history=history) if state is None else state
    past: Moments | None = None  # those of `now.before`, where they are at hand
    while now.status is None and now.turns < iterations:
        moments, log_likelihood = expect(now.poses, now.mixture)
        value, points = (
            float(log_likelihood.sum()) + penalty(now.poses, now.mixture),
            float(moments.points.sum()),
        )
        if now.before and value < now.best - FALL * points:
            poses, mixture = now.before
            # not even a plain step helps: what is not in Q (a floor, say) stands against it
            if now.stride == 0:
                now = replace(now, poses=poses, mixture=mixture, status=Status.CONVERGED)
                break
            past = expect(poses, mixture)[0] if past is None else past
            poses, mixture = maximize(past, poses, mixture, 0.0)
            now = replace(now, poses=poses, mixture=mixture, stride=0.0, turns=now.turns + 1)
            on_state(now)
            continue
        past, before = moments, (now.poses, now.mixture)
        stride = max(now.stride, float(bold))
        poses, mixture = maximize(moments, now.poses, now.mixture, stride)
        twist = relative_twists(now.poses, poses, mixture)
        step = Iteration(
            len(now.history),
            float(log_likelihood.sum()),
            largest_step(twist, radius),
            poses,
            points,
        )
        settled = (
            step.step < tolerance
            and value - now.best < (tolerance if gain is None else gain) * points
        )
        calm = now.calm + 1 if settled else 0
        now = State(
            poses,
            mixture,
            _next_stride(stride, now.twist, twist) if bold else stride,
            now.turns + 1,
            calm,
            value,
            twist,
            before if bold else None,
            (*now.history, step),
            Status.STOPPED if on_iteration(step) else Status.CONVERGED if calm == 2 else None,
        )
        on_state(now)
    now = replace(now, status=now.status or Status.ITERATION_LIMIT)
    on_state(now)
    moments, log_likelihood = expect(now.poses, now.mixture)
    # the last step was too bold
    if now.before and float(log_likelihood.sum()) + penalty(now.poses, now.mixture) < now.best:
        now = replace(now, poses=now.before[0], mixture=now.before[1])
        moments, log_likelihood = expect(now.poses, now.mixture)
    assert now.status is not None
    return Fit(
        now.poses,
        now.mixture,
        moments,
        log_likelihood,
        now.history,
        now.status,
        np.ones(len(now.poses)),
    )


def relative_twists(
    old: Float[Array, "M D1 D1"], new: Float[Array, "M D1 D1"], mixture: Mixture
) -> Float[Array, "M P"]:
    """How the clouds turned and shifted about the scene's centre, less the motion that they all
    share, which means nothing.
    """
    centre = np.average(mixture.means, axis=0, weights=mixture.weights)
    motion = new @ geometry.inverse(old)
    turn = geometry.log_rotation(geometry.rotation(motion))
    shift = geometry.rotation(motion) @ centre + geometry.translation(motion) - centre
    twists = np.concatenate([turn, shift], 1)
    return twists - twists.mean(0)


def largest_step(twists: Float[Array, "M P"], radius: float) -> float:
    """The longest way of a point at distance `radius` from the centre, as a share of the radius."""
    D = 2 if twists.shape[1] == 3 else 3
    return float(
        (
            np.linalg.norm(twists[:, :-D], axis=1) + np.linalg.norm(twists[:, -D:], axis=1) / radius
        ).max()
    )


def _next_stride(
    stride: float, last: Float[Array, "M P"] | None, twists: Float[Array, "M P"]
) -> float:
    """Longer while the steps keep their direction, shorter when they turn."""
    if last is None:
        return stride
    agreement = (last * twists).sum() / max(
        np.linalg.norm(last) * np.linalg.norm(twists), np.finfo(float).tiny
    )
    if agreement > 0.8:
        return min(1.4 * stride, BOLDEST)
    return max(1.0, 0.5 * stride) if agreement < 0.3 else stride
