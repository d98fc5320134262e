# SPDX-License-Identifier: MIT
"""The EM loop: when to go on, when to stop, what to remember. The equations are in `estep`, `mstep` and `joint`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.arrays import Array
from coframe.clouds import Frames
from coframe.mixture import Mixture
from coframe.moments import Moments

FALL = 1e-9  # per point: a likelihood that falls by less than this has only been rounded
BOLDEST = 5.0  # over-relaxation of a pose step, at most


class Status(Enum):
    """How a run ended, with a sentence for the user."""

    CONVERGED = "poses and likelihood have settled"
    ITERATION_LIMIT = "stopped at the iteration limit before settling; allow more iterations, or start nearer"
    STOPPED = "stopped on request"


@dataclass(frozen=True)
class Iteration:
    """One turn of the loop: the state it started from, and how far it moved."""

    number: int
    log_likelihood: float  # of all points under what this iteration started from, natural log; NaN where there is no mixture
    step: float  # largest pose change of this iteration, as a share of the scene's radius
    poses: Float[Array, "M D1 D1"]  # that this iteration ended with

    def in_user_units(self, frames: Frames, origin: Float[Array, " D"], points: float) -> "Iteration":
        """The same iteration in the user's coordinates; densities, and so the likelihood, are then per user volume."""
        volume = points * len(origin) * np.log(frames.scale)
        return replace(self, log_likelihood=self.log_likelihood - volume, poses=frames.leave_poses(self.poses, origin))


@dataclass(frozen=True)
class Fit:
    """What the loop found."""

    poses: Float[Array, "M D1 D1"]
    mixture: Mixture
    moments: Moments  # of every cloud, from an E-step with these poses and this mixture
    log_likelihood: Float[Array, " M"]  # of every cloud, from the same E-step
    history: tuple[Iteration, ...]
    status: Status
    independent: Float[Array, " M"]  # points that a point of each cloud stands for: less than one where they share their noise


# An E-step over all clouds: poses and mixture -> the moments of every cloud, and its log-likelihood.
Expectation = Callable[[Array, Mixture], tuple[Moments, Array]]
# An M-step: moments, poses, mixture and a stride -> new poses and a new mixture. Stride 0 asks for a plain EM step, under which
# the likelihood cannot fall; a stride of 1 or more allows any step that usually helps, that many times as long.
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
) -> Fit:
    """Alternate E-step and M-step from the given poses and mixture. Algorithm 1.

    `radius` is the distance of the outer points from the scene's centre; it turns angles into lengths. The loop stops when
    no point of that distance moves by more than tolerance * radius relative to the others in an iteration and the
    log-likelihood per point gains less than `gain` (default: `tolerance`), both twice in a row, so that neither units nor the
    number of points matter; tolerance 0 runs all iterations. A `bold` run lengthens steps that keep their direction; one that
    lowers the likelihood (with `penalty`, the logarithm of the priors) is taken back, and a plain EM step takes its
    place. `history` is that of an earlier phase, which this one continues. `on_iteration` may return True to stop.
    """
    calm, stride, status = 0, float(bold), Status.ITERATION_LIMIT
    best, twist = -np.inf, None
    before: tuple[Moments, Array, Mixture] | None = None  # where the last step came from, while it may be taken back
    for _ in range(iterations):
        moments, log_likelihood = expect(poses, mixture)
        value, points = float(log_likelihood.sum()) + penalty(poses, mixture), float(moments.points.sum())
        if before and value < best - FALL * points:
            if stride == 0:  # not even a plain step helps: what is not in Q (a floor, say) stands against it
                (_, poses, mixture), status = before, Status.CONVERGED
                break
            poses, mixture = maximize(*before, 0.0)
            stride = 0.0
            continue
        gained, best = value - best, value
        before = (moments, poses, mixture) if bold else None
        stride = max(stride, float(bold))
        old = poses
        poses, mixture = maximize(moments, poses, mixture, stride)
        last, twist = twist, relative_twists(old, poses, mixture)
        stride = _next_stride(stride, last, twist) if bold else stride
        history = (*history, Iteration(len(history), float(log_likelihood.sum()), largest_step(twist, radius), poses))
        if on_iteration(history[-1]):
            status = Status.STOPPED
            break
        settled = history[-1].step < tolerance and gained < (tolerance if gain is None else gain) * points
        calm = calm + 1 if settled else 0
        if calm == 2:
            status = Status.CONVERGED
            break
    moments, log_likelihood = expect(poses, mixture)
    if before and float(log_likelihood.sum()) + penalty(poses, mixture) < best:  # the last step was too bold
        _, poses, mixture = before
        moments, log_likelihood = expect(poses, mixture)
    return Fit(poses, mixture, moments, log_likelihood, history, status, np.ones(len(poses)))


def relative_twists(old: Float[Array, "M D1 D1"], new: Float[Array, "M D1 D1"], mixture: Mixture) -> Float[Array, "M P"]:
    """How the clouds turned and shifted about the scene's centre, less the motion that they all share, which means nothing."""
    centre = np.average(mixture.means, axis=0, weights=mixture.weights)
    motion = new @ geometry.inverse(old)
    turn = geometry.log_rotation(geometry.rotation(motion))
    shift = geometry.rotation(motion) @ centre + geometry.translation(motion) - centre
    twists = np.concatenate([turn, shift], 1)
    return twists - twists.mean(0)


def largest_step(twists: Float[Array, "M P"], radius: float) -> float:
    """The longest way of a point at distance `radius` from the centre, as a share of the radius."""
    D = 2 if twists.shape[1] == 3 else 3
    return float((np.linalg.norm(twists[:, :-D], axis=1) + np.linalg.norm(twists[:, -D:], axis=1) / radius).max())


def _next_stride(stride: float, last: Float[Array, "M P"] | None, twists: Float[Array, "M P"]) -> float:
    """Longer while the steps keep their direction, shorter when they turn."""
    if last is None:
        return stride
    agreement = (last * twists).sum() / max(np.linalg.norm(last) * np.linalg.norm(twists), np.finfo(float).tiny)
    if agreement > 0.8:
        return min(1.4 * stride, BOLDEST)
    return max(1.0, 0.5 * stride) if agreement < 0.3 else stride
