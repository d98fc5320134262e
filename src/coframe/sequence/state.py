# SPDX-License-Identifier: MIT
"""The state of a run in a file: a run that was interrupted goes on from it to the same result."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from coframe.clouds import InputError
from coframe.estep import Cloud
from coframe.io.files import atomic
from coframe.mixture import Mixture
from coframe.placement import Target
from coframe.sequence.backend import Keyframe
from coframe.sequence.search import REACHES
from coframe.sequence.tracking import Meeting, Tracker, TrackOptions

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
        "rows": np.concatenate([keyframe.cloud.rows for keyframe in keyframes] or [np.zeros((4, 0))], 1),
        "order": np.concatenate([keyframe.cloud.order for keyframe in keyframes] or [np.zeros(0, np.int64)]),
    }
    if tracker.mixture is not None:
        mixture = tracker.mixture
        state |= {"means": mixture.means, "covariances": mixture.covariances, "weights": mixture.weights}
        state |= {"outlier_density": np.array(mixture.outlier_density)}
    if tracker.proposal is not None:
        state["proposal"] = tracker.proposal
    if tracker.meeting is not None:
        meeting = tracker.meeting
        state |= {"meeting": np.array([meeting.first, meeting.joined], np.int64), "meeting_poses": meeting.poses}
    with atomic(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **state)


def load(path: str | os.PathLike[str]) -> Tracker:
    """The tracker that `save` wrote."""
    if not Path(path).is_file():
        raise InputError(f"{path}: expected the state of a run, found nothing")
    try:
        with np.load(path, allow_pickle=False) as file:
            state = {key: file[key] for key in file.files}
        return _restored(state)
    except (OSError, ValueError, KeyError, TypeError, IndexError, BadZipFile) as error:
        raise InputError(f"{path}: expected the state of a run, found something else ({error})") from None


def _restored(s: dict[str, Any]) -> Tracker:
    tracker = Tracker(TrackOptions(**json.loads(str(s["options"]))))
    tracker.rng.bit_generator.state = json.loads(str(s["rng"]))
    unit, usual, *counts = s["numbers"].tolist()
    tracker.unit, tracker.usual = unit, usual
    tracker.since, tracker.part, tracker.attempt = (int(count) for count in counts)
    tracker.velocity, tracker.times, tracker.base = s["velocity"], s["times"].tolist(), s["base"].tolist()
    tracker.relative, tracker.explained = list(s["relative"]), s["explained"].tolist()
    cuts = np.cumsum(s["sizes"])[:-1]
    rows, orders = np.split(s["rows"], cuts, axis=1), np.split(s["order"], cuts)
    tracker.keyframes = [
        Keyframe(int(index), Cloud(np.ascontiguousarray(row), order, 3), pose, int(part))
        for index, part, row, order, pose in zip(s["index"], s["parts"], rows, orders, s["poses"], strict=bool(len(s["index"])))
    ]
    if "means" in s:
        density = float(s["outlier_density"])
        tracker.mixture = Mixture(s["means"], s["covariances"], s["weights"], density)
        tracker.target = Target.of(tracker.mixture, REACHES, tracker.unit)
    tracker.proposal = s.get("proposal")
    if "meeting" in s:
        tracker.meeting = Meeting(int(s["meeting"][0]), int(s["meeting"][1]), s["meeting_poses"])
    return tracker
