# SPDX-License-Identifier: MIT
"""The path of a sensor: TUM and KITTI files, interpolation, and the errors of Sturm et al. (IROS
2012).

Pose i carries what the sensor saw at time i into the common frame: x = R v + t.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation, Slerp

from coframe import geometry
from coframe.errors import LARGEST_NUMBER, InputError
from coframe.io.files import atomic
from coframe.types import Array


@dataclass(frozen=True)
class Trajectory:
    """Poses of a sensor over time."""

    times: Float[Array, " N"]  # s, rising
    poses: Float[Array, "N 4 4"]

    def __len__(self) -> int:
        return len(self.times)

    @property
    def length(self) -> float:
        """The way travelled, in the units of the poses."""
        return float(
            np.linalg.norm(np.diff(geometry.translation(self.poses), axis=0), axis=1).sum()
        )

    def at(self, times: Float[Array, " T"]) -> Float[Array, "T 4 4"]:
        """Poses in between: translations on straight lines, rotations at constant speed."""
        if len(self) < 2:
            raise InputError(
                f"trajectory: expected at least two poses to interpolate, found {len(self)}"
            )
        outside = (times < self.times[0]) | (times > self.times[-1])
        if outside.any():
            span = f"{self.times[0]:.6f} to {self.times[-1]:.6f}"
            raise InputError(f"times: expected times from {span}, found {times[outside][0]:.6f}")
        turns = Slerp(self.times, Rotation.from_matrix(geometry.rotation(self.poses)))(
            times
        ).as_matrix()
        places = [
            np.interp(times, self.times, coordinate)
            for coordinate in geometry.translation(self.poses).T
        ]
        return geometry.pose(turns, np.stack(places, 1))

    def moved(self, motion: Float[Array, "4 4"]) -> "Trajectory":
        """The same path in another common frame."""
        return Trajectory(self.times, motion @ self.poses)


def read_tum(path: str | os.PathLike[str]) -> Trajectory:
    """A trajectory in the format of TUM RGB-D:

    `time tx ty tz qx qy qz qw` a line, # before comments.
    """
    table = _table(path, 8, "time tx ty tz qx qy qz qw")
    if (np.linalg.norm(table[:, 4:], axis=1) < 1e-6).any():
        raise InputError(f"{path}: expected quaternions, found one of length 0")
    if len(table) > 1 and not (np.diff(table[:, 0]) > 0).all():
        later = int(np.argmin(np.diff(table[:, 0]) > 0)) + 1
        raise InputError(
            f"{path}: expected rising times, found {table[later, 0]:.6f} after"
            f" {table[later - 1, 0]:.6f}"
        )
    return Trajectory(
        table[:, 0], geometry.pose(Rotation.from_quat(table[:, 4:]).as_matrix(), table[:, 1:4])
    )


def write_tum(
    path: str | os.PathLike[str], trajectory: Trajectory, comments: Sequence[str] = ()
) -> None:
    """Write a trajectory in the format of TUM RGB-D, with microseconds and nine digits."""
    turns = Rotation.from_matrix(geometry.rotation(trajectory.poses)).as_quat()
    rows = np.column_stack([trajectory.times, geometry.translation(trajectory.poses), turns])
    with atomic(path) as temporary:
        header = "\n".join([*comments, "timestamp tx ty tz qx qy qz qw"])
        np.savetxt(temporary, rows, fmt=["%.6f", *["%.9f"] * 7], header=header, encoding="utf-8")


def read_kitti(path: str | os.PathLike[str], times: Float[Array, " N"] | None = None) -> Trajectory:
    """A trajectory in the format of KITTI: the first three rows of a pose, twelve numbers, a line.

    The format knows no times: without `times`, pose i is at i seconds.
    """
    table = _table(path, 12, "the twelve numbers of a 3 x 4 matrix")
    if times is not None and len(times) != len(table):
        raise InputError(
            f"times: expected {len(table)}, one for each pose of {path}, found {len(times)}"
        )
    poses = np.tile(np.eye(4), (len(table), 1, 1))
    poses[:, :3] = table.reshape(-1, 3, 4)
    R = geometry.rotation(poses)
    if np.abs(R @ np.swapaxes(R, 1, 2) - np.eye(3)).max() > 1e-3 or (np.linalg.det(R) < 0).any():
        raise InputError(f"{path}: expected rigid motions, found a matrix that is no rotation")
    poses[:, :3, :3] = geometry.nearest_rotation(R)
    return Trajectory(np.arange(len(table), dtype=float) if times is None else times, poses)


def write_kitti(path: str | os.PathLike[str], trajectory: Trajectory) -> None:
    """Write the poses in the format of KITTI, without the times."""
    with atomic(path) as temporary:
        np.savetxt(temporary, trajectory.poses[:, :3].reshape(-1, 12), fmt="%.9e")


def _table(path: str | os.PathLike[str], columns: int, meaning: str) -> Float[Array, "N C"]:
    path = Path(path)
    if not path.is_file():
        raise InputError(
            f"{path}: expected a file, found {'a folder' if path.is_dir() else 'nothing'}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that there are no numbers is said below
            table = np.loadtxt(path, ndmin=2, encoding="utf-8")
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path}: expected {meaning} a line, found something else ({reason})"
        ) from None
    usable = bool((np.abs(table) <= LARGEST_NUMBER).all())
    if not table.size or table.shape[1] != columns or not usable:
        found = f"{table.shape[1]} numbers" if table.size else "no numbers"
        raise InputError(
            f"{path}: expected {meaning} a line, found"
            f" {found if usable else 'NaN or a number without bound'}"
        )
    return table
