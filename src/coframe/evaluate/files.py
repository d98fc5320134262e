# SPDX-License-Identifier: MIT
"""Results in files against true poses in files: the arithmetic of `coframe evaluate`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coframe import geometry
from coframe.errors import InputError
from coframe.evaluate import metrics, trajectory_errors
from coframe.io import poses as pose_files
from coframe.io import trajectory
from coframe.io.files import read_small
from coframe.types import Points, Pose, Poses


def evaluate_poses(
    file: Path, truth: Path, clouds: Sequence[Points] | None = None
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


def _relative(poses: Poses, first: int, cloud: int) -> Pose:
    return geometry.inverse(poses[first]) @ poses[cloud]


def evaluate_trajectory(file: Path, truth: Path) -> dict[str, Any]:
    """Errors of a trajectory in the format of TUM, poses matched by time.

    Parameters
    ----------
    file, truth
        The estimate and the true trajectory.

    Returns
    -------
    dict
        "poses" and how many of them "matched"; "ate" [unit], "rpe" [unit] and "rpe_deg" from one
        frame to the next: "rmse", "mean", "median" and "largest" of each.

    Raises
    ------
    InputError
        If fewer than three poses match.
    """
    estimate, true = trajectory.read_tum(file), trajectory.read_tum(truth)
    shift, turn = trajectory_errors.relative_errors(estimate, true)
    ate = trajectory_errors.absolute_errors(estimate, true)
    return {
        "poses": len(estimate),
        "matched": len(ate.values),
        "ate": ate.summary(),
        "rpe": shift.summary(),
        "rpe_deg": turn.summary(),
    }


def _groups(file: Path, names: list[str]) -> list[list[int]]:
    """Clouds that have a common frame, as our own files say; all, in those of others."""
    try:
        groups = json.loads(read_small(file))["groups"]
        return [[names.index(name) for name in group] for group in groups] or [
            list(range(len(names)))
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return [list(range(len(names)))]
