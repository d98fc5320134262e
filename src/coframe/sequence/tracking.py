# SPDX-License-Identifier: MIT
"""`track`: a sequence in, the path of the sensor and a model of the scene out.

Each frame is placed against the mixture of a few key frames (`frontend`). Every few frames one becomes a key frame itself, and
is registered jointly with those that see the same place, recent and old (`backend`): so loops close as soon as the sensor comes
back. Frames are remembered relative to their key frame and follow when it moves.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry, schedule
from coframe.arrays import Array
from coframe.clouds import LARGEST_NUMBER, InputError, extent
from coframe.estep import Cloud
from coframe.io import archive
from coframe.io.files import atomic
from coframe.io.scan import is_motion
from coframe.mixture import Mixture
from coframe.sequence import backend, frames, frontend
from coframe.sequence.backend import Keyframe
from coframe.sequence.frames import Frame, Frames
from coframe.sequence.frontend import Placement, Target
from coframe.sweeps import quiet_blas
from coframe.trajectory import Trajectory

REACHES = (0.025, 0.008, 0.004)  # of the unit: how far off a frame may be, then nearer
FAR_REACHES = (0.1, 0.04, *REACHES)  # after a loss
LEAST_POINTS = 200  # a frame with fewer shows nothing
LOST = 0.6  # of the usual share: a frame that the model explains less than that is lost
FOUND = 0.65  # of the usual share: what comes back after a loss must be explained better than what is merely not lost,
RIVAL = 1.15  # and so much better than in any other place
TURN, SHIFT = 0.3, 0.12  # rad, and of the unit: how a lost sensor may have moved, in either direction of each axis
GAP = 5.0  # times the usual time between frames: the sensor has moved on unseen
PLACES = 4  # of the path, where a lost sensor is looked for
HOPES = 5  # of a place, that are looked at closely
GLIMPSE = 300  # points for a first look
DIFFERENT = 0.1  # of the unit: placements further apart than this are not the same
FIRST = 3  # frames are key frames at once: a mixture of a single frame is too thin a hold
LARGEST = 1e30  # coordinates, and inverse extents: beyond, there is no unit of length
INDICES = ("base", "index", "sizes", "order")
BALANCE = 0.7  # see `frames.by_surface`


@dataclass(frozen=True)
class TrackOptions:
    """How a sequence is tracked."""

    points: int = 1500  # of a frame
    components: int = 1000  # of the mixture that frames are placed against
    every: int = 4  # frames from one key frame to the next
    window: int = 10  # key frames that are registered together
    iterations: int = 4  # of the joint registration at each key frame
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        least = {"points": 1, "components": 1, "every": 1, "window": 1, "iterations": 0, "seed": 0, "threads": 1}
        for name, smallest in least.items():
            value = getattr(self, name)
            if name == "threads" and value is None:
                continue
            if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < smallest:
                raise InputError(f"{name}: expected a whole number of at least {smallest}, found {value!r}")


@dataclass(frozen=True)
class Prepared:
    """What is used of a frame."""

    time: float
    cloud: Cloud | None  # None where the frame shows too little
    extent: float


@dataclass(frozen=True)
class Progress:
    """What is known after a frame."""

    index: int
    time: float
    pose: Float[Array, "D1 D1"]
    explained: float  # share of its points that the model explains
    lost: bool
    keyframes: int


@dataclass(frozen=True)
class Tracked(Trajectory):
    """The path of a sensor, which frames were lost (their poses are the last known one), and what the model is made of."""

    lost: Bool[Array, " N"]
    explained: Float[Array, " N"]
    keyframes: tuple[Keyframe, ...]
    mixture: Mixture | None  # of the last window; None before the first frame

    def found(self) -> Trajectory:
        """The path without the lost frames."""
        return Trajectory(self.times[~self.lost], self.poses[~self.lost])

    def merged(self) -> Float[Array, "_ D"]:
        """The points of all key frames in the common frame."""
        return np.concatenate([keyframe.points for keyframe in self.keyframes])

    def model(self, components: int = 5000) -> Mixture:
        """A mixture of the whole scene, one component for each cell of a tree over the points of all key frames."""
        points = self.merged()
        floor = backend.FLOOR * extent(points) ** 2
        return schedule.seeded(points, 1, components, floor, np.eye(points.shape[1]))


@dataclass
class Tracker:
    """The state of a run. Frames are given to it one by one."""

    options: TrackOptions = field(default_factory=TrackOptions)
    unit: float = 0.0  # extent of the first frame
    keyframes: list[Keyframe] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    base: list[int] = field(default_factory=list)  # key frame of each frame
    relative: list[Array] = field(default_factory=list)  # pose of each frame in that of its key frame
    lost: list[bool] = field(default_factory=list)
    explained: list[float] = field(default_factory=list)
    velocity: Array = field(default_factory=lambda: np.eye(4))
    usual: float = 1.0  # running mean of the explained share
    mixture: Mixture | None = None
    target: Target | None = None
    since: int = 0  # frames since the last key frame

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.options.seed)

    def pose(self, index: int) -> Float[Array, "4 4"]:
        """Of a frame, as its key frame lies now."""
        return self.keyframes[self.base[index]].pose @ self.relative[index] if self.keyframes else np.eye(4)

    def prepared(self, index: int, frame: Frame) -> Prepared:
        """Points drawn from a frame. It depends on nothing that was tracked, so that it may be done ahead."""
        if not _shows_something(frame):
            return Prepared(frame.time, None, 0.0)
        rng = np.random.default_rng([self.options.seed, index])
        some = frames.by_surface(frame, self.options.points, rng, balance=BALANCE)
        return Prepared(frame.time, Cloud.of(some.points, some.weights / some.weights.mean()), extent(some.points))

    def add(self, frame: Prepared) -> Progress:
        """The next frame."""
        cloud = frame.cloud
        last = self.pose(len(self.times) - 1) if self.times else np.eye(4)
        if cloud is None:
            placed, lost = Placement(last, 0.0, 0), True
        elif self.target is None:
            self.unit = frame.extent
            placed, lost = Placement(last, 1.0, 0), False
        else:
            placed, lost = self._placed(cloud, last, self._gap(frame.time))
        self.velocity = np.eye(4) if lost or not self.times or self.lost[-1] else geometry.inverse(last) @ placed.pose
        pose = last if lost else placed.pose
        self.since += 1
        due = self.since >= self.options.every or len(self.keyframes) < FIRST
        if cloud is not None and not lost and due:
            self._keyframe(cloud, pose)
            pose = self.keyframes[-1].pose
        self.times.append(frame.time)
        self.base.append(max(len(self.keyframes) - 1, 0))
        self.relative.append(geometry.inverse(self.keyframes[-1].pose) @ pose if self.keyframes else np.eye(4))
        self.lost.append(lost)
        self.explained.append(placed.explained)
        if not lost and self.target is not None and len(self.times) > 1:
            self.usual += 0.1 * (placed.explained - self.usual)
        return Progress(len(self.times) - 1, frame.time, pose, placed.explained, lost, len(self.keyframes))

    def _placed(self, cloud: Cloud, last: Float[Array, "4 4"], gap: bool) -> tuple[Placement, bool]:
        """The frame against the model, from a constant velocity; if that is no good, after a loss or a gap, from all over."""
        assert self.target is not None
        if not self.lost[-1] and not gap:
            placed = frontend.place(self.target, cloud, last @ self.velocity)
            if placed.explained >= LOST * self.usual:
                return placed, False
        found = sorted(self._searched(cloud, last), key=lambda each: -each.explained)
        best = found[0]
        others = [each for each in found if backend.apart(each.pose[None], best.pose, self.unit)[0] > DIFFERENT]
        rival = max((each.explained for each in others), default=0.0)
        return best, best.explained < max(FOUND * self.usual, RIVAL * rival)

    def _gap(self, time: float) -> bool:
        """Whether frames are missing before this time."""
        return len(self.times) > 2 and time - self.times[-1] > GAP * float(np.median(np.diff(self.times[-20:])))

    def _searched(self, cloud: Cloud, last: Float[Array, "4 4"]) -> list[Placement]:
        """Placements from a far reach: from where the sensor was last, turned and shifted, and from other parts of its path."""
        (few,) = schedule.fewer([cloud], GLIMPSE, self.rng)
        found = []
        for number, pose in enumerate(self._places(last)):
            near = [self.keyframes[i] for i in backend.window(self.keyframes, pose, self.options.window, self.unit)]
            mixture = self._joint(near, 0)[1]
            rough, fine = Target.of(mixture, FAR_REACHES[:2], self.unit), Target.of(mixture, FAR_REACHES[1:], self.unit)
            starts = [pose @ motion for motion in self._motions(shifts=number == 0)]
            hopes = sorted((frontend.place(rough, few, start, 4) for start in starts), key=lambda each: -each.explained)
            seen = np.concatenate([keyframe.points for keyframe in near])
            for hope in hopes[:HOPES]:
                placed = frontend.place(fine, cloud, hope.pose)
                through = frontend.seen_through(cloud.points, seen, placed.pose)
                found.append(replace(placed, explained=placed.explained * (1 - through)))
        return found

    def _motions(self, *, shifts: bool) -> list[Array]:
        """How a sensor may have moved unseen, in its own frame."""
        directions = np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
        places = SHIFT * self.unit * (directions if shifts else directions[:1])
        return [geometry.exp(np.concatenate([TURN * turn, shift])) for turn in directions for shift in places]

    def _places(self, last: Float[Array, "4 4"]) -> list[Array]:
        """The last pose, and those of key frames that look elsewhere, nearest first."""
        poses = np.array([keyframe.pose for keyframe in self.keyframes])
        chosen = [last]
        for i in np.argsort(backend.apart(poses, last, self.unit), kind="stable"):
            if backend.apart(np.array(chosen), poses[i], self.unit).min() > 0.3:
                chosen.append(poses[i])
        return chosen[:PLACES]

    def _joint(self, keyframes: list[Keyframe], iterations: int) -> tuple[list[Keyframe], Mixture]:
        options = self.options
        return backend.registered(keyframes, options.components, self.unit, iterations, self.rng, options.threads)

    def _keyframe(self, cloud: Cloud, pose: Float[Array, "4 4"]) -> None:
        self.keyframes.append(Keyframe(len(self.times), cloud, pose))
        chosen = backend.window(self.keyframes, pose, self.options.window, self.unit)
        moved, self.mixture = self._joint([self.keyframes[i] for i in chosen], self.options.iterations)
        for i, keyframe in zip(chosen, moved, strict=True):
            self.keyframes[i] = keyframe
        self.target = Target.of(self.mixture, REACHES, self.unit)
        self.since = 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state; `Tracker.load` goes on from there to the same result."""
        state: dict[str, Any] = {
            "options": json.dumps(asdict(self.options)),
            "rng": json.dumps(self.rng.bit_generator.state),
            "numbers": np.array([self.unit, self.usual, float(self.since)]),
            "velocity": self.velocity,
            "times": np.array(self.times),
            "base": np.array(self.base, np.int64),
            "relative": np.array(self.relative).reshape(-1, 4, 4),
            "lost": np.array(self.lost, bool),
            "explained": np.array(self.explained),
            "index": np.array([keyframe.index for keyframe in self.keyframes], np.int64),
            "poses": np.array([keyframe.pose for keyframe in self.keyframes]).reshape(-1, 4, 4),
            "sizes": np.array([len(keyframe.cloud) for keyframe in self.keyframes], np.int64),
            "rows": np.concatenate([keyframe.cloud.rows for keyframe in self.keyframes] or [np.zeros((4, 0))], 1),
            "order": np.concatenate([keyframe.cloud.order for keyframe in self.keyframes] or [np.zeros(0, np.int64)]),
        }
        if self.mixture is not None:
            state |= {"means": self.mixture.means, "covariances": self.mixture.covariances, "weights": self.mixture.weights}
            state |= {"outlier_density": np.array(self.mixture.outlier_density)}
        with atomic(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tracker":
        """The state that `save` wrote."""
        if not Path(path).is_file():
            raise InputError(f"{path}: expected the state of a run, found nothing")
        try:
            s = archive.read(path)
            _check_state(s)
            tracker = cls(TrackOptions(**json.loads(str(s["options"]))))
            tracker.rng.bit_generator.state = json.loads(str(s["rng"]))
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{path}: expected the state of a run, found something else ({reason})") from None
        tracker.unit, tracker.usual, tracker.since = float(s["numbers"][0]), float(s["numbers"][1]), int(s["numbers"][2])
        tracker.velocity, tracker.times, tracker.base = s["velocity"], s["times"].tolist(), s["base"].tolist()
        tracker.relative, tracker.lost, tracker.explained = list(s["relative"]), s["lost"].tolist(), s["explained"].tolist()
        cuts = np.cumsum(s["sizes"])[:-1]
        rows, orders = np.split(s["rows"], cuts, axis=1), np.split(s["order"], cuts)
        tracker.keyframes = [
            Keyframe(int(index), Cloud(np.ascontiguousarray(row), order, 3), pose)
            for index, row, order, pose in zip(s["index"], rows, orders, s["poses"], strict=bool(len(s["index"])))
        ]
        if "means" in s:
            density = float(s["outlier_density"])
            tracker.mixture = Mixture(s["means"], s["covariances"], s["weights"], density)
            tracker.target = Target.of(tracker.mixture, REACHES, tracker.unit)
        return tracker

    def result(self) -> Tracked:
        """What is known so far."""
        N = len(self.times)
        poses = np.array([self.pose(i) for i in range(N)]) if N else np.zeros((0, 4, 4))
        return Tracked(
            np.array(self.times),
            poses,
            lost=np.array(self.lost, bool),
            explained=np.array(self.explained),
            keyframes=tuple(self.keyframes),
            mixture=self.mixture,
        )


def _shows_something(frame: Frame) -> bool:
    """Whether a frame has enough points, in different places."""
    if len(frame) < LEAST_POINTS:
        return False
    farthest, size = np.abs(frame.points).max(), extent(frame.points)
    return bool(farthest < LARGEST and size > max(8 * np.finfo(float).eps * farthest, 1 / LARGEST))


def _check_state(s: dict[str, Array]) -> None:
    """A ValueError where the numbers are not those of a run."""
    frames = {"times": "N", "base": "N", "relative": "N 4 4", "lost": "N", "explained": "N"}
    keyframes = {"index": "F", "poses": "F 4 4", "sizes": "F", "rows": "4 S", "order": "S"}
    mixture = {"means": "K 3", "covariances": "K 3 3", "weights": "K", "outlier_density": ""} if "means" in s else {}
    archive.numbers(s, {"numbers": "3", "velocity": "4 4", **frames, **keyframes, **mixture})
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
    if len(s["base"]) and not (s["base"].min() >= 0 and s["base"].max() < max(len(ends), 1)):
        raise ValueError("a frame has no key frame")
    if not all(is_motion(pose) for name in ("poses", "relative") for pose in s[name]) or not is_motion(s["velocity"]):
        raise ValueError("its poses are not rotations and translations")
    if len(ends) and not ("means" in s and 0 < s["numbers"][0] <= LARGEST_NUMBER):
        raise ValueError("it has no model")
    if mixture and (not s["weights"].sum() > 0 or min(s["weights"].min(), s["outlier_density"]) < 0):
        raise ValueError("its model has no weights")
    if mixture and np.linalg.eigvalsh(s["covariances"]).min() <= 0:
        raise ValueError("a component of its model has no positive variance")


@quiet_blas()
def track(
    source: Frames,
    *,
    options: TrackOptions | None = None,
    on_frame: Callable[[Progress], bool | None] = lambda progress: False,
) -> Tracked:
    """The path of a sensor through a sequence of frames (see `open_frames`); pose i carries frame i into the first one's frame.

    on_frame: called after each frame; returning True ends the run with what is done.

    >>> path = coframe.track(coframe.open_frames("rgbd_dataset_freiburg1_desk"))
    >>> path.poses, path.lost
    """
    tracker = Tracker(TrackOptions() if options is None else options)
    for frame in source.prepared(tracker.prepared):
        if on_frame(tracker.add(frame)):
            break
    return tracker.result()
