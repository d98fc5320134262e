# SPDX-License-Identifier: MIT
"""A run of `track` as arrays, for its checkpoint and its result, and the checks of what is read
back.

Nobody vouches for a file: what is inconsistent raises a ValueError that says so.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from coframe.em.estep import Cloud
from coframe.em.mixture import Mixture
from coframe.errors import LARGEST_NUMBER, InputError
from coframe.geometry import is_rigid
from coframe.io import npz
from coframe.sequence.keyframes import Keyframe
from coframe.sequence.tracker import Merge, Tracker, frame_target
from coframe.types import Array

Arrays = dict[str, Array]
# [format] The scalars of a tracker that the array "numbers" holds, in this order.
NUMBERS = ("unit", "typical", "since", "segment", "next_search")
# [format] Prefix of the arrays of the frames since the last key frame.
RECENT = "recent_"
UNREADABLE = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError)


@contextmanager
def refusing(path: object, what: str, advice: str) -> Iterator[None]:
    """One sentence about a file that is not what it should be."""
    try:
        yield
    except (*UNREADABLE, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path}: expected {what}, found something else ({reason}); {advice}"
        ) from None


def pack(tracker: Tracker) -> Arrays:
    """The whole state of a tracker; `restore` goes on from it to the same result."""
    state = {
        "rng": np.array(json.dumps(tracker.rng.bit_generator.state)),
        "numbers": np.array([float(getattr(tracker, name)) for name in NUMBERS]),
        "velocity": tracker.velocity,
        "times": np.array(tracker.times),
        "base": np.array(tracker.base, np.int64),
        "relative": np.array(tracker.relative).reshape(-1, 4, 4),
        "explained": np.array(tracker.explained),
        "weak_direction": np.array(tracker.weak_direction).reshape(-1, 3),
        "weak_ratio": np.array(tracker.weak_ratio),
        "undetermined": np.array(tracker.undetermined, float),
        "problems": np.array(json.dumps(list(tracker.problems.items()))),
        **pack_keyframes(tracker.keyframes),
        **{RECENT + name: value for name, value in pack_keyframes(tracker.recent).items()},
        **({} if tracker.mixture is None else tracker.mixture.to_arrays()),
    }
    if tracker.proposal is not None:
        state["proposal"] = tracker.proposal
    if tracker.merge is not None:
        state["merge"] = np.array([tracker.merge.first, tracker.merge.count], np.int64)
        state["merge_poses"] = tracker.merge.poses
    return state


def restore(tracker: Tracker, state: Mapping[str, Array]) -> None:
    """Put a new tracker into the state that `pack` found another one in."""
    shapes = {"times": "N", "base": "N", "relative": "N 4 4", "explained": "N"}
    shapes |= {"weak_direction": "N 3", "weak_ratio": "N", "undetermined": "N"}
    shapes |= {"numbers": f"{len(NUMBERS)}", "velocity": "4 4"}
    if "proposal" in state:
        shapes["proposal"] = "4 4"
    if "merge" in state:
        shapes |= {"merge": "2", "merge_poses": "G 4 4"}
    npz.numbers(state, shapes)
    keyframes = unpack_keyframes(state, len(state["times"]))
    recent = unpack_keyframes(
        {
            name.removeprefix(RECENT): value
            for name, value in state.items()
            if name.startswith(RECENT)
        },
        len(state["times"]),
    )
    mixture = unpack_mixture(state)
    _check_indices(state, "base")
    if not ((state["base"] >= -1) & (state["base"] < len(keyframes))).all():
        raise ValueError("a frame refers to a key frame that does not exist")
    if any(frame.index < 0 or state["base"][frame.index] < 0 for frame in recent):
        raise ValueError("a frame since the last key frame has no pose")
    check_motions("the motions of its frames", [*state["relative"], state["velocity"]])
    unit, typical, since, segment, next_search = state["numbers"].tolist()
    if keyframes and (mixture is None or not 0 < unit <= LARGEST_NUMBER):
        raise ValueError("it has key frames, but no mixture or no unit of length")
    if "merge" in state:
        first, count = state["merge"].tolist()
        if not 0 <= first <= min(count, len(state["merge_poses"])) or count > len(keyframes):
            raise ValueError("its last merge of segments refers to key frames that do not exist")
        tracker.merge = Merge(int(first), int(count), state["merge_poses"])
    tracker.rng.bit_generator.state = json.loads(str(state["rng"]))
    tracker.unit, tracker.typical = unit, typical
    tracker.since, tracker.segment, tracker.next_search = int(since), int(segment), int(next_search)
    tracker.velocity = state["velocity"]
    tracker.times = state["times"].tolist()
    tracker.base = state["base"].tolist()
    tracker.relative = list(state["relative"])
    tracker.explained = state["explained"].tolist()
    tracker.weak_direction = list(state["weak_direction"])
    tracker.weak_ratio = state["weak_ratio"].tolist()
    tracker.undetermined = state["undetermined"].astype(bool).tolist()
    tracker.problems = unpack_problems(state["problems"], len(tracker.times))
    tracker.keyframes = keyframes
    tracker.recent = recent
    tracker.proposal = state.get("proposal")
    tracker.mixture = mixture
    if mixture is not None:
        tracker.target = frame_target(mixture, tracker.unit, tracker.recipe)


def pack_keyframes(keyframes: Sequence[Keyframe]) -> Arrays:
    clouds = [keyframe.cloud for keyframe in keyframes]
    return {
        "index": np.array([keyframe.index for keyframe in keyframes], np.int64),
        "segments": np.array([keyframe.segment for keyframe in keyframes], np.int64),
        "keyframe_poses": np.array([keyframe.pose for keyframe in keyframes]).reshape(-1, 4, 4),
        "sizes": np.array([len(cloud) for cloud in clouds], np.int64),
        "rows": np.concatenate([cloud.rows for cloud in clouds] or [np.zeros((4, 0))], 1),
        "order": np.concatenate([cloud.order for cloud in clouds] or [np.zeros(0, np.int64)]),
    }


def unpack_keyframes(s: Mapping[str, Array], frames: int) -> list[Keyframe]:
    """The key frames of a sequence of so many frames."""
    shapes = {"index": "F", "segments": "F", "keyframe_poses": "F 4 4", "sizes": "F"}
    npz.numbers(s, {**shapes, "rows": "4 S", "order": "S"})
    _check_indices(s, "index", "segments", "sizes", "order")
    points = s["rows"].shape[1]
    if not ((s["sizes"] >= 1) & (s["sizes"] <= points)).all() or s["sizes"].sum() != points:
        raise ValueError("the numbers of points of its key frames do not add up")
    if not ((s["index"] >= -1) & (s["index"] < frames)).all():
        raise ValueError("a key frame refers to a frame that does not exist")
    if not ((s["segments"] >= 0) & (s["segments"] <= frames)).all():
        raise ValueError("a key frame has a segment that the sequence cannot have")
    check_motions("the poses of its key frames", s["keyframe_poses"])
    cuts = np.cumsum(s["sizes"])[:-1]
    keyframes = []
    for i, size in enumerate(s["sizes"]):
        part = slice(cuts[i - 1] if i else 0, cuts[i] if i < len(cuts) else None)
        order = s["order"][part]
        if not np.array_equal(np.sort(order), np.arange(size)):
            raise ValueError("the order of a key frame's points is no permutation")
        cloud = Cloud(np.ascontiguousarray(s["rows"][:, part]), order, 3)
        index, segment = int(s["index"][i]), int(s["segments"][i])
        keyframes.append(Keyframe(index, cloud, s["keyframe_poses"][i], segment))
    return keyframes


def unpack_mixture(s: Mapping[str, Array]) -> Mixture | None:
    if "means" not in s:
        return None
    shapes = {"means": "K 3", "covariances": "K 3 3", "weights": "K", "outlier_density": ""}
    if "visibility" in s and s["visibility"].size:
        shapes["visibility"] = "M K"
    npz.numbers(s, shapes)
    if not s["weights"].sum() > 0 or min(s["weights"].min(), s["outlier_density"]) < 0:
        raise ValueError("the weights of its mixture are negative or sum to 0")
    if np.linalg.eigvalsh(s["covariances"]).min() <= 0:
        raise ValueError("a component of its mixture has no positive variance")
    return Mixture.from_arrays(s)


def unpack_problems(packed: Array, frames: int) -> dict[int, str]:
    """Why frames could not be read, by their indices."""
    found = {int(index): str(reason) for index, reason in json.loads(str(packed))}
    if not all(0 <= index < frames for index in found):
        raise ValueError("a frame that could not be read does not exist")
    return found


def _check_indices(state: Mapping[str, Array], *names: str) -> None:
    for name in names:
        if state[name].dtype != int:
            raise ValueError(f"{name} holds numbers that are not whole")


def check_motions(what: str, poses: Sequence[Array] | Array) -> None:
    if not all(is_rigid(pose) for pose in poses):
        raise ValueError(f"{what} are not rotations and translations")
