# SPDX-License-Identifier: MIT
"""The errors of a trajectory against the true one: ATE and RPE of Sturm et al. (IROS 2012), and the
relative errors of KITTI (Geiger et al., CVPR 2012).
"""

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
# [format] KITTI: lengths of the stretches that are compared [m], and frames from the start of one
# to that of the next.
KITTI_LENGTHS = tuple(range(100, 900, 100))
KITTI_STEP = 10


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


def kitti_errors(
    estimate: Trajectory, truth: Trajectory, *, tolerance: float = TOLERANCE
) -> tuple[Errors, Errors]:
    """KITTI's relative errors: how far the motion over 100, 200, ... 800 m of the true path is from
    the true one, over that length.

    Parameters
    ----------
    estimate, truth
        Trajectories in metres, whose poses are matched by time.
    tolerance
        Times [s] further apart do not match.

    Returns
    -------
    tuple of Errors
        One for each stretch, in translation [%] and in rotation [degrees per metre]; their means
        are KITTI's figures.

    Raises
    ------
    InputError
        If the true path is shorter than 100 m.

    Examples
    --------
    >>> shift, turn = coframe.metrics.kitti_errors(path, truth)
    >>> shift.mean, turn.mean
    """
    i, j = _matched(estimate, truth, tolerance)
    P, Q = estimate.poses[i], truth.poses[j]
    steps = np.linalg.norm(np.diff(geometry.translation(Q), axis=0), axis=1)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    pairs = []
    for first in range(0, len(along), KITTI_STEP):
        for length in KITTI_LENGTHS:
            last = int(np.searchsorted(along, along[first] + length, side="right"))
            if last < len(along):
                pairs.append((first, last, length))
    if not pairs:
        raise InputError(
            f"truth: expected a path of at least {KITTI_LENGTHS[0]} m for KITTI's errors, found"
            f" {along[-1]:.4g}"
        )
    a, b, lengths = np.array(pairs).T
    motion, true_motion = geometry.inverse(P[a]) @ P[b], geometry.inverse(Q[a]) @ Q[b]
    error = geometry.inverse(motion) @ true_motion
    shift = np.linalg.norm(geometry.translation(error), axis=1) / lengths
    turn = geometry.angle(geometry.rotation(error)) / lengths
    return Errors(100 * shift), Errors(np.degrees(turn))


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
