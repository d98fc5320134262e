# SPDX-License-Identifier: MIT
"""The path of a sensor: files of TUM, KITTI and our own, and interpolation.

Pose i carries what the sensor saw at time i into the common frame: x = R v + t.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation, Slerp

from coframe import geometry
from coframe.errors import LARGEST_NUMBER, InputError
from coframe.geometry import is_rigid
from coframe.io import poses as pose_files
from coframe.io.files import as_path, atomic, read_small
from coframe.io.scan import in_space
from coframe.io.table import table
from coframe.types import Array

# [guard] A quaternion that is shorter has no direction.
SHORTEST = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """Poses of a sensor over time.

    Parameters
    ----------
    times
        Times of the poses [s], rising.
    poses
        Pose i carries what the sensor saw at time i into the common frame.

    Examples
    --------
    >>> path = coframe.Trajectory(times, poses)
    >>> path.length, path.at(times + 0.01)
    """

    times: Float[Array, " N"]
    poses: Float[Array, "N 4 4"]

    def __repr__(self) -> str:
        span = f"{self.times[0]:.3f} to {self.times[-1]:.3f} s" if len(self) else "none"
        return f"Trajectory of {len(self)} poses\n  times: {span}\n  length: {self.length:.4g}"

    def __len__(self) -> int:
        return len(self.times)

    @property
    def length(self) -> float:
        """Length of the path, in the units of the poses."""
        return float(
            np.linalg.norm(np.diff(geometry.translation(self.poses), axis=0), axis=1).sum()
        )

    def at(self, times: Float[Array, " T"]) -> Float[Array, "T 4 4"]:
        """Poses at other times: translations on straight lines, rotations at constant speed.

        Parameters
        ----------
        times
            Times [s] within those of the trajectory.

        Returns
        -------
        array of shape (T, 4, 4)
            One pose for each time.

        Raises
        ------
        InputError
            If a time is outside, or there are fewer than two poses.
        """
        if len(self) < 2:
            raise InputError(
                f"trajectory: expected at least two poses to interpolate, found {len(self)}"
            )
        outside = (times < self.times[0]) | (times > self.times[-1])
        if outside.any():
            span = f"{self.times[0]:.6f} to {self.times[-1]:.6f}"
            raise InputError(f"times: expected times from {span}, found {times[outside][0]:.6f}")
        turning = Slerp(self.times, Rotation.from_matrix(geometry.rotation(self.poses)))
        turns = turning(times).as_matrix()
        translations = [
            np.interp(times, self.times, coordinate)
            for coordinate in geometry.translation(self.poses).T
        ]
        return geometry.pose(turns, np.stack(translations, 1))

    def moved(self, motion: Float[Array, "4 4"]) -> "Trajectory":
        """The same path in another common frame."""
        return Trajectory(self.times, motion @ self.poses)


def read_tum(path: str | os.PathLike[str]) -> Trajectory:
    """Read the format of TUM RGB-D: `time tx ty tz qx qy qz qw` a line, # before comments."""
    table = _table(path, 8, "time tx ty tz qx qy qz qw")
    if (np.linalg.norm(table[:, 4:], axis=1) < SHORTEST).any():
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
    """Read the format of KITTI: the first three rows of a pose, twelve numbers, a line.

    The format knows no times: without `times`, pose i is at i seconds.
    """
    table = _table(path, 12, "the twelve numbers of a 3 x 4 matrix")
    if times is not None and len(times) != len(table):
        raise InputError(
            f"times: expected {len(table)}, one for each pose of {path}, found {len(times)}"
        )
    poses = np.tile(np.eye(4), (len(table), 1, 1))
    poses[:, :3] = table.reshape(-1, 3, 4)
    if not all(is_rigid(pose) for pose in poses):
        raise InputError(f"{path}: expected rigid motions, found a matrix that is no rotation")
    poses[:, :3, :3] = geometry.nearest_rotation(geometry.rotation(poses))
    return Trajectory(np.arange(len(table), dtype=float) if times is None else times, poses)


def write_kitti(path: str | os.PathLike[str], trajectory: Trajectory) -> None:
    """Write the poses in the format of KITTI, without the times."""
    with atomic(path) as temporary:
        np.savetxt(temporary, trajectory.poses[:, :3].reshape(-1, 12), fmt="%.9e")


def read(path: str | os.PathLike[str]) -> Trajectory:
    """Read a trajectory in any format that is known: TUM (eight numbers a line), KITTI (twelve), or
    coframe-poses/1 as `track` writes it.

    KITTI and poses of other programs have no times: pose i is at i seconds.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    Trajectory
        Poses in the order of their times.

    Raises
    ------
    InputError
        If the file holds something else.

    Examples
    --------
    >>> coframe.io.trajectory.read("poses/00.txt")
    """
    path = as_path(path)
    try:
        start = read_small(path).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return read_tum(path)  # which says what is wrong
    if start[:1] == b"{":
        return _read_json(path, start)
    lines = (line.split(b"#")[0].replace(b",", b" ").split() for line in start.splitlines())
    first = next((words for words in lines if words), [])
    return read_kitti(path) if len(first) == 12 else read_tum(path)


def _read_json(path: Path, text: bytes) -> Trajectory:
    named = pose_files.read(path)
    poses = np.array([in_space(pose) for pose in named.values()])
    try:
        rows = json.loads(text)["clouds"]
        times = np.array([float(row["time"]) for row in rows])
    except (ValueError, KeyError, TypeError):
        times = np.arange(len(poses), dtype=float)
    if len(times) != len(poses) or not (np.diff(times) > 0).all():
        raise InputError(f"{path}: expected rising times, one for each pose, found others")
    return Trajectory(times, poses)


def write_json(
    path: str | os.PathLike[str],
    trajectory: Trajectory,
    names: Sequence[str],
    frames: Sequence[int],
) -> None:
    """Write poses as coframe-poses/1, each with the name, the number and the time of its frame."""
    details = [
        {"frame": int(frame), "time": float(time)}
        for frame, time in zip(frames, trajectory.times, strict=True)
    ]
    pose_files.write(path, names, trajectory.poses, details=details)


def _table(path: str | os.PathLike[str], columns: int, meaning: str) -> Float[Array, "N C"]:
    """Rows of numbers, read as those of `io.poses` are."""
    path = as_path(path)
    try:
        values, _ = table(read_small(path).removeprefix(b"\xef\xbb\xbf"), columns)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: expected a file, found nothing; check the path") from None
    except OSError as error:
        raise InputError(
            f"{path}: expected a file that can be read, found one that cannot ({error.strerror})"
        ) from None
    except ValueError as error:
        raise InputError(
            f"{path}: expected {meaning} a line, found something else ({error})"
        ) from None
    if not values.size or not (np.abs(values) <= LARGEST_NUMBER).all():
        found = "NaN or a number without bound" if values.size else "no numbers"
        raise InputError(f"{path}: expected {meaning} a line, found {found}")
    return values
