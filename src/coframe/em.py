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


class Status(Enum):
    """How a run ended, with a sentence for the user."""

    CONVERGED = "poses and likelihood have settled"
    ITERATION_LIMIT = "stopped at the iteration limit before settling; allow more iterations, or start nearer"
    STOPPED = "stopped on request"


@dataclass(frozen=True)
class Iteration:
    """One turn of the loop: the state it started from, and how far it moved."""

    number: int  # 0 is the E-step of the start
    log_likelihood: float  # of all points under the poses and mixture that this iteration started from, natural log
    step: float  # largest pose change of this iteration, as a share of the scene's extent
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


# An E-step over all clouds: poses and mixture -> the moments of every cloud, and its log-likelihood.
Expectation = Callable[[Array, Mixture], tuple[Moments, Array]]
# An M-step: moments, poses and mixture -> new poses, the moments moved along, and a new mixture.
Maximization = Callable[[Moments, Array, Mixture], tuple[Array, Moments, Mixture]]


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
    history: tuple[Iteration, ...] = (),
    on_iteration: Callable[[Iteration], bool | None] = carry_on,
) -> Fit:
    """Alternate E-step and M-step from the given poses and mixture. Algorithm 1.

    `radius` is the distance of the outer points from the scene's centre; it turns angles into lengths. The loop stops when
    no point of that distance moves by more than tolerance * radius relative to the others in an iteration and the
    log-likelihood per point gains less than `tolerance`, both twice in a row, so that neither units nor the number of points
    matter; tolerance 0 runs all iterations. `history` is that of an earlier phase, which this one continues.
    `on_iteration` may return True to stop.
    """
    calm = 0
    status = Status.ITERATION_LIMIT
    for number in range(len(history), len(history) + iterations):
        moments, log_likelihood = expect(poses, mixture)
        old = poses
        poses, moments, mixture = maximize(moments, poses, mixture)
        step = largest_step(old, poses, mixture, radius)
        history = (*history, Iteration(number, float(log_likelihood.sum()), step, poses))
        if on_iteration(history[-1]):
            status = Status.STOPPED
            break
        calm = calm + 1 if _settled(history, float(moments.points.sum()), tolerance) else 0
        if calm == 2:
            status = Status.CONVERGED
            break
    return Fit(poses, mixture, *expect(poses, mixture), history, status)


def largest_step(old: Float[Array, "M D1 D1"], new: Float[Array, "M D1 D1"], mixture: Mixture, radius: float) -> float:
    """How far the clouds moved relative to each other, as a share of the radius: turns at arm's length, and shifts.

    A motion that all clouds and the mixture share changes nothing, so the average motion of the clouds is taken out first.
    """
    centre = np.average(mixture.means, axis=0, weights=mixture.weights)
    motion = new @ geometry.inverse(old)
    turn = geometry.log_rotation(geometry.rotation(motion))
    shift = geometry.rotation(motion) @ centre + geometry.translation(motion) - centre
    turn, shift = turn - turn.mean(0), shift - shift.mean(0)
    return float((np.linalg.norm(turn, axis=1) + np.linalg.norm(shift, axis=1) / radius).max())


def _settled(history: tuple[Iteration, ...], points: float, tolerance: float) -> bool:
    if len(history) < 2 or tolerance <= 0:
        return False
    gain = abs(history[-1].log_likelihood - history[-2].log_likelihood) / points
    return history[-1].step < tolerance and gain < tolerance
