# SPDX-License-Identifier: MIT
"""The state of a run in a file: a run that was interrupted goes on from it to the same result."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from coframe.em.estep import Cloud
from coframe.em.localise import Pyramid
from coframe.em.mixture import Mixture
from coframe.errors import LARGEST_NUMBER, InputError
from coframe.geometry import is_rigid
from coframe.io import npz
from coframe.io.files import atomic
from coframe.sequence.keyframes import Keyframe
from coframe.sequence.relocalise import REACHES
from coframe.sequence.tracker import Meeting, Tracker, TrackOptions
from coframe.types import Array

INDICES = ("base", "index", "parts", "sizes", "order")
NUMBERS = ("unit", "usual", "since", "part", "attempt")


def save(tracker: Tracker, path: str | os.PathLike[str]) -> None:
    """Write the whole state; `load` goes on from there to the same result."""
    keyframes = tracker.keyframes
    state: dict[str, Any] = {
        "options": json.dumps(asdict(tracker.options)),
        "rng": json.dumps(tracker.rng.bit_generator.state),
        "numbers": np.array([float(getattr(tracker, name)) for name in NUMBERS]),
        "velocity": tracker.velocity,
        "times": np.array(tracker.times),
        "base": np.array(tracker.base, np.int64),
        "relative": np.array(tracker.relative).reshape(-1, 4, 4),
        "explained": np.array(tracker.explained),
        "index": np.array([keyframe.index for keyframe in keyframes], np.int64),
        "parts": np.array([keyframe.part for keyframe in keyframes], np.int64),
        "poses": np.array([keyframe.pose for keyframe in keyframes]).reshape(-1, 4, 4),
        "sizes": np.array([len(keyframe.cloud) for keyframe in keyframes], np.int64),
        "rows": np.concatenate(
            [keyframe.cloud.rows for keyframe in keyframes] or [np.zeros((4, 0))], 1
        ),
        "order": np.concatenate(
            [keyframe.cloud.order for keyframe in keyframes] or [np.zeros(0, np.int64)]
        ),
    }
    if tracker.mixture is not None:
        mixture = tracker.mixture
        state |= {
            "means": mixture.means,
            "covariances": mixture.covariances,
            "weights": mixture.weights,
        }
        state |= {"outlier_density": np.array(mixture.outlier_density)}
    if tracker.proposal is not None:
        state["proposal"] = tracker.proposal
    if tracker.meeting is not None:
        meeting = tracker.meeting
        state |= {
            "meeting": np.array([meeting.first, meeting.joined], np.int64),
            "meeting_poses": meeting.poses,
        }
    with atomic(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **state)


def load(path: str | os.PathLike[str]) -> Tracker:
    """The tracker that `save` wrote."""
    if not Path(path).is_file():
        raise InputError(f"{path}: expected the state of a run, found nothing")
    try:
        state = npz.read(path)
        _check(state)
        return _restored(state)
    except (
        OSError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path}: expected the state of a run, found something else ({reason})"
        ) from None


def _restored(s: dict[str, Any]) -> Tracker:
    tracker = Tracker(TrackOptions(**json.loads(str(s["options"]))))
    tracker.rng.bit_generator.state = json.loads(str(s["rng"]))
    unit, usual, *counts = s["numbers"].tolist()
    tracker.unit, tracker.usual = unit, usual
    tracker.since, tracker.part, tracker.attempt = (int(count) for count in counts)
    tracker.velocity, tracker.times, tracker.base = (
        s["velocity"],
        s["times"].tolist(),
        s["base"].tolist(),
    )
    tracker.relative, tracker.explained = list(s["relative"]), s["explained"].tolist()
    cuts = np.cumsum(s["sizes"])[:-1]
    rows, orders = np.split(s["rows"], cuts, axis=1), np.split(s["order"], cuts)
    tracker.keyframes = [
        Keyframe(int(index), Cloud(np.ascontiguousarray(row), order, 3), pose, int(part))
        for index, part, row, order, pose in zip(
            s["index"], s["parts"], rows, orders, s["poses"], strict=bool(len(s["index"]))
        )
    ]
    if "means" in s:
        density = float(s["outlier_density"])
        tracker.mixture = Mixture(s["means"], s["covariances"], s["weights"], density)
        tracker.target = Pyramid.of(tracker.mixture, REACHES, tracker.unit)
    tracker.proposal = s.get("proposal")
    if "meeting" in s:
        tracker.meeting = Meeting(int(s["meeting"][0]), int(s["meeting"][1]), s["meeting_poses"])
    return tracker


def _check(s: dict[str, Array]) -> None:
    """A ValueError where the numbers are not those of a run."""
    frames = {"times": "N", "base": "N", "relative": "N 4 4", "explained": "N"}
    keyframes = {
        "index": "F",
        "parts": "F",
        "poses": "F 4 4",
        "sizes": "F",
        "rows": "4 S",
        "order": "S",
    }
    meeting = {"meeting": "2", "meeting_poses": "G 4 4"} if "meeting" in s else {}
    proposal = {"proposal": "4 4"} if "proposal" in s else {}
    mixture = (
        {"means": "K 3", "covariances": "K 3 3", "weights": "K", "outlier_density": ""}
        if "means" in s
        else {}
    )
    npz.numbers(
        s,
        {
            "numbers": "5",
            "velocity": "4 4",
            **frames,
            **keyframes,
            **mixture,
            **meeting,
            **proposal,
        },
    )
    ends = np.cumsum(s["sizes"])
    if (
        (s["sizes"] < 1).any()
        or s["rows"].shape[1] != (ends[-1] if len(ends) else 0)
        or any(s[n].dtype != int for n in INDICES)
    ):
        raise ValueError("its key frames have other points than it says")
    for part, size in zip(np.split(s["order"], ends[:-1]), s["sizes"], strict=bool(len(ends))):
        if not np.array_equal(np.sort(part), np.arange(size)):
            raise ValueError("the points of a key frame are in no order")
    met = s.get("meeting", np.zeros(2, np.int64))
    if (
        not ((s["parts"] >= 0) & (s["parts"] <= len(s["times"]))).all()
        or not 0 <= met[0] <= met[1] <= len(ends)
        or met[0] > len(s.get("meeting_poses", s["poses"]))
    ):
        raise ValueError("its parts are none")
    if not ((s["base"] >= -1) & (s["base"] < len(ends))).all():  # -1: a frame without a place
        raise ValueError("a frame belongs to a key frame that it has not")
    if not all(
        is_rigid(pose) for name in ("poses", "relative") for pose in s[name]
    ) or not is_rigid(s["velocity"]):
        raise ValueError("its poses are not rotations and translations")
    if len(ends) and not ("means" in s and 0 < s["numbers"][0] <= LARGEST_NUMBER):
        raise ValueError("it has no model")
    if mixture and (
        not s["weights"].sum() > 0 or min(s["weights"].min(), s["outlier_density"]) < 0
    ):
        raise ValueError("its model has no weights")
    if mixture and np.linalg.eigvalsh(s["covariances"]).min() <= 0:
        raise ValueError("a component of its model has no positive variance")
