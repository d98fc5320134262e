# SPDX-License-Identifier: MIT
"""Results in files against true poses in files: the arithmetic of `coframe evaluate`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.errors import InputError
from coframe.evaluate import metrics, trajectory_errors
from coframe.io import poses as pose_files
from coframe.io import trajectory
from coframe.io.files import read_small
from coframe.types import Array, Pose, Poses


def evaluate_poses(
    file: Path, truth: Path, clouds: Sequence[Float[Array, "_ D"]] | None = None
) -> dict[str, Any]:
    """Errors of poses, each cloud relative to the first of its group.

    Parameters
    ----------
    file
        Poses in any format that is read, such as poses.json.
    truth
        True poses in any format, matched by name.
    clouds
        Points of each cloud in its own frame, if they are known.

    Returns
    -------
    dict
        "clouds": one record for each, with "name" and, where there is something to compare with,
        "rotation_deg", "translation", "relative_to" and, where points are known, "at_points": the
        root mean square error of its points; "rotation_deg", "translation" and "at_points": "mean",
        "median" and "largest" over these clouds.

    Raises
    ------
    InputError
        If the poses differ in size, or no two clouds are in one group.
    """
    known = pose_files.read(file)
    names = list(known)
    if len({pose.shape for pose in known.values()}) > 1:
        raise InputError(f"{file}: expected poses of one size, found several")
    found = np.array(list(known.values()))
    true = pose_files.read_for(truth, names)
    if found.shape != true.shape:
        raise InputError(f"{truth}: expected poses of size {found.shape[1]}, found {true.shape[1]}")
    rows: list[dict[str, Any]] = [{"name": name} for name in names]
    for group in _groups(file, names):
        angles = metrics.rotation_errors(found[group], true[group]).tolist()
        shifts = metrics.translation_errors(found[group], true[group]).tolist()
        for j, angle, shift in list(zip(group, angles, shifts, strict=True))[1:]:
            rows[j] |= {"rotation_deg": angle, "translation": shift, "relative_to": names[group[0]]}
            if clouds is not None:
                rows[j]["at_points"] = metrics.error_at_points(
                    _relative(found, group[0], j), _relative(true, group[0], j), clouds[j]
                )
    compared = [row for row in rows if "rotation_deg" in row]
    if not compared:
        raise InputError(
            f"{file}: expected two clouds or more in one group, found none; there is nothing to"
            " compare"
        )
    over_all: dict[str, Any] = {
        key: {
            "mean": float(np.mean([row[key] for row in compared])),
            "median": float(np.median([row[key] for row in compared])),
            "largest": float(max(row[key] for row in compared)),
        }
        for key in ("rotation_deg", "translation", "at_points")
        if key in compared[0]
    }
    return {"clouds": rows, **over_all}


def holds_trajectory(path: Path) -> bool:
    """Whether a file of poses is a trajectory: rows of TUM or KITTI without names of clouds, or our
    own with times.
    """
    try:
        text = read_small(path).decode("utf-8-sig").lstrip()
        if text[:1] == "{":
            return all("time" in cloud for cloud in json.loads(text)["clouds"])
        lines = [line for line in text.splitlines() if line.strip()]
        rows = [line for line in lines if line[0] not in "#%"]
        named = sum(line[0] == "#" for line in lines) >= len(rows)
        return bool(rows) and len(rows[0].replace(",", " ").split()) in (8, 12) and not named
    except (OSError, ValueError, KeyError, TypeError, RecursionError, InputError):
        return False


def _relative(poses: Poses, first: int, cloud: int) -> Pose:
    return geometry.inverse(poses[first]) @ poses[cloud]


def evaluate_trajectory(file: Path, truth: Path) -> dict[str, Any]:
    """Errors of a trajectory in the format of TUM or KITTI or of our own.

    Poses are matched by time. Where one side has no times (KITTI, frames without times), pose i of
    the truth is that of frame i.

    Parameters
    ----------
    file, truth
        The estimate and the true trajectory. Of a folder that `track` wrote, its trajectory.txt.

    Returns
    -------
    dict
        "poses" and how many of them "matched", and "by" what; "ate" [unit], "rpe" [unit] and
        "rpe_deg" from one frame to the next: "rmse", "mean", "median" and "largest" of each. Of
        paths of 100 m and more also "kitti": "translation_percent" and "rotation_deg_per_m".

    Raises
    ------
    InputError
        If fewer than three poses match.
    """
    estimate, true = trajectory.read(file), trajectory.read(truth)
    by = "time"
    numbers = _frame_numbers(file, len(estimate), len(true), truth)
    if numbers is not None:
        by = "number of the frame"
        estimate = trajectory.Trajectory(numbers.astype(float), estimate.poses)
        true = trajectory.Trajectory(np.arange(len(true), dtype=float), true.poses)
    shift, turn = trajectory_errors.relative_errors(estimate, true)
    ate = trajectory_errors.absolute_errors(estimate, true)
    content = {
        "poses": len(estimate),
        "matched": len(ate.values),
        "by": by,
        "ate": ate.summary(),
        "rpe": shift.summary(),
        "rpe_deg": turn.summary(),
    }
    try:
        over_length = trajectory_errors.kitti_errors(estimate, true)
    except InputError:  # too short
        return content
    kitti = {"translation_percent": over_length[0].mean, "rotation_deg_per_m": over_length[1].mean}
    return {**content, "kitti": kitti}


def _frame_numbers(file: Path, poses: int, true: int, truth: Path) -> Array | None:
    """The numbers of the frames of an estimate, where they say which true pose belongs to which:
    where one side has no times, and there is a true pose for every frame. Else None.
    """
    numbers, frames, timed = np.arange(poses), poses, _has_times(file)
    about = file.parent
    if (about / "track.json").is_file() and (about / "trajectory.json").is_file():
        try:
            record = json.loads(read_small(about / "track.json"))
            clouds = json.loads(read_small(about / "trajectory.json"))["clouds"]
            if len(clouds) == poses:
                numbers = np.array([int(cloud["frame"]) for cloud in clouds])
                frames, timed = int(record["of"]), bool(record["timed"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass  # a folder of something else
    if timed and _has_times(truth):
        return None
    if numbers.size and numbers.max() < true and true in (frames, len(numbers)):
        return numbers
    if not _has_times(truth):
        raise InputError(
            f"{truth}: expected {frames} poses, one for each frame, since it has no times, found"
            f" {true}"
        )
    return None


def _has_times(path: Path) -> bool:
    """Whether a trajectory has times: TUM's, or our own with them, but not KITTI's."""
    start = read_small(path).decode("utf-8-sig", "replace").lstrip()
    if start[:1] == "{":
        return '"time"' in start
    rows = (line.split() for line in start.splitlines() if line.strip() and line[0] not in "#%")
    return len(next(rows, [])) != 12


def _groups(file: Path, names: list[str]) -> list[list[int]]:
    """Clouds that have a common frame, as our own files say; all, in those of others."""
    try:
        groups = json.loads(read_small(file))["groups"]
        return [[names.index(name) for name in group] for group in groups] or [
            list(range(len(names)))
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return [list(range(len(names)))]
