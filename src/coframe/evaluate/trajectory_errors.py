# SPDX-License-Identifier: MIT
"""The errors of a trajectory against the true one: ATE and RPE of Sturm et al. (IROS 2012)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.errors import InputError
from coframe.io.trajectory import Trajectory
from coframe.types import Array

# [format] [s] Time stamps further apart do not belong together (Sturm et al.).
TOLERANCE = 0.02
# [limit] Pairs of poses, at least: with fewer no rigid motion aligns them.
LEAST_PAIRS = 3


@dataclass(frozen=True, eq=False)
class Errors:
    """An error for each pose (or pair of poses), and figures over all of them."""

    values: Float[Array, " n"]

    @property
    def rmse(self) -> float:
        return float(np.sqrt((self.values**2).mean()))

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def median(self) -> float:
        return float(np.median(self.values))

    @property
    def largest(self) -> float:
        return float(self.values.max())

    def summary(self) -> dict[str, float]:
        """All figures by name."""
        return {name: getattr(self, name) for name in ("rmse", "mean", "median", "largest")}


def associate(
    first: Float[Array, " N"], second: Float[Array, " M"], tolerance: float = TOLERANCE
) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
    """Indices of times that belong together, nearest pairs first, each time at most once; `second`
    is rising.
    """
    start = np.searchsorted(second, first - tolerance)
    stop = np.searchsorted(second, first + tolerance, side="right")
    i = np.repeat(np.arange(len(first)), stop - start)
    j = np.concatenate(
        [np.arange(a, b) for a, b in zip(start, stop, strict=True)] or [np.empty(0, np.int64)]
    )
    order = np.argsort(np.abs(first[i] - second[j]), kind="stable")
    pairs = []
    used_i = np.zeros(len(first), bool)
    used_j = np.zeros(len(second), bool)
    for a, b in zip(i[order], j[order], strict=True):
        if not (used_i[a] or used_j[b]):
            used_i[a] = used_j[b] = True
            pairs.append((a, b))
    chosen = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    return chosen[:, 0], chosen[:, 1]


def aligned(estimate: Trajectory, truth: Trajectory, tolerance: float = TOLERANCE) -> Trajectory:
    """The estimate after the rigid motion that brings its positions nearest to the true ones (Horn,
    Umeyama).
    """
    i, j = _matched(estimate, truth, tolerance)
    source, target = geometry.translation(estimate.poses[i]), geometry.translation(truth.poses[j])
    return estimate.moved(geometry.procrustes(source, target, np.ones(len(i))))


def absolute_errors(
    estimate: Trajectory, truth: Trajectory, tolerance: float = TOLERANCE
) -> Errors:
    """ATE: the distances between true positions and those of the aligned estimate.

    Parameters
    ----------
    estimate, truth
        Trajectories, whose poses are matched by time.
    tolerance
        Times [s] further apart do not match.

    Returns
    -------
    Errors
        One for each matched pose, in the unit of the poses.

    Raises
    ------
    InputError
        If fewer than three poses match.

    Examples
    --------
    >>> coframe.metrics.absolute_errors(path, truth).rmse
    """
    i, j = _matched(estimate, truth, tolerance)
    positions = geometry.translation(aligned(estimate, truth, tolerance).poses[i])
    return Errors(np.linalg.norm(positions - geometry.translation(truth.poses[j]), axis=1))


def relative_errors(
    estimate: Trajectory,
    truth: Trajectory,
    *,
    frames: int | None = None,
    seconds: float | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[Errors, Errors]:
    """RPE: how far the motion over an interval is from the true one.

    Parameters
    ----------
    estimate, truth
        Trajectories, whose poses are matched by time.
    frames
        Every pose starts an interval of so many frames. Default: 1.
    seconds
        Instead of frames: an interval of so many seconds, to the nearest pose.
    tolerance
        Times [s] further apart do not match.

    Returns
    -------
    tuple of Errors
        In translation [unit of the poses] and in rotation [degrees].

    Raises
    ------
    InputError
        If no interval fits, or both frames and seconds are given.

    Examples
    --------
    >>> shift, turn = coframe.metrics.relative_errors(path, truth, seconds=1.0)
    """
    if frames is not None and seconds is not None:
        raise InputError("relative_errors: expected frames or seconds, found both")
    i, j = _matched(estimate, truth, tolerance)
    if seconds is None:
        step = 1 if frames is None else frames
        a = np.arange(len(i) - step)
        b = a + step
    else:
        a, b = associate(estimate.times[i] + seconds, estimate.times[i], tolerance)
    if len(a) == 0 or (seconds is None and step < 1):
        raise InputError(
            "relative_errors: expected an interval of at least one frame that fits into the"
            " trajectory"
        )
    P, Q = estimate.poses[i], truth.poses[j]
    motion, true_motion = geometry.inverse(P[a]) @ P[b], geometry.inverse(Q[a]) @ Q[b]
    error = geometry.inverse(true_motion) @ motion
    shift, turn = geometry.translation(error), geometry.angle(geometry.rotation(error))
    return Errors(np.linalg.norm(shift, axis=1)), Errors(np.degrees(turn))


def _matched(
    estimate: Trajectory, truth: Trajectory, tolerance: float
) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
    i, j = associate(estimate.times, truth.times, tolerance)
    if len(i) < LEAST_PAIRS:
        raise InputError(
            f"truth: expected at least {LEAST_PAIRS} poses within {tolerance} s of the estimate's,"
            f" found {len(i)}"
        )
    return i, j
