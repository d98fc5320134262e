# SPDX-License-Identifier: MIT
"""`track`: a sequence in, the path of the sensor and a model of the scene out.

Each frame is placed against the mixture of a few key frames (`frontend`). Every few frames one becomes a key frame itself, and
is registered jointly with those that see the same place, recent and old (`backend`): so loops close as soon as the sensor comes
back. Frames are remembered relative to their key frame and follow when it moves.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry
from coframe.arrays import Array
from coframe.clouds import InputError, extent
from coframe.estep import Cloud
from coframe.mixture import Mixture
from coframe.sequence import backend, frames, frontend
from coframe.sequence.backend import Keyframe
from coframe.sequence.frames import Frame
from coframe.sequence.frontend import Placement, Target
from coframe.sweeps import quiet_blas
from coframe.trajectory import Trajectory

REACHES = (0.025, 0.008, 0.004)  # of the unit: how far off a frame may be, then nearer
FAR_REACHES = (0.1, 0.04, *REACHES)  # after a loss
LEAST_POINTS = 200  # a frame with fewer shows nothing
LOST = 0.4  # of the usual share: a frame that the model explains less than that is lost
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
        for name in ("points", "components", "every", "window"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: expected a whole number of at least 1, found {getattr(self, name)!r}")


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

    def add(self, frame: Frame) -> Progress:
        """The next frame."""
        with quiet_blas():
            return self._add(frame)

    def _add(self, frame: Frame) -> Progress:
        empty = len(frame) < LEAST_POINTS
        cloud = None if empty else self._cloud(frame)
        last = self.pose(len(self.times) - 1) if self.times else np.eye(4)
        if cloud is None:
            placed, lost = Placement(last, 0.0, 0), True
        elif self.target is None:
            self.unit = extent(frame.points)
            placed, lost = Placement(last, 1.0, 0), False
        else:
            placed, lost = self._placed(cloud, last)
        self.velocity = np.eye(4) if lost or not self.times or self.lost[-1] else geometry.inverse(last) @ placed.pose
        pose = last if lost else placed.pose
        self.since += 1
        if cloud is not None and not lost and (not self.keyframes or self.since >= self.options.every):
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

    def _cloud(self, frame: Frame) -> Cloud:
        some = frames.by_surface(frame, self.options.points, self.rng, balance=BALANCE)
        return Cloud.of(some.points, some.weights / some.weights.mean())

    def _placed(self, cloud: Cloud, last: Float[Array, "4 4"]) -> tuple[Placement, bool]:
        """The frame against the model: from a constant velocity, from standing still, and after a loss from farther away."""
        assert self.target is not None
        placed = frontend.place(self.target, cloud, last @ self.velocity, self.options.threads)
        if placed.explained >= LOST * self.usual and not self.lost[-1]:
            return placed, False
        placed = max([placed, *self._searched(cloud, last)], key=lambda each: each.explained)
        # What comes back after a loss must fit nearly as well as what was tracked.
        return placed, placed.explained < (LOST + 1) / 2 * self.usual

    def _searched(self, cloud: Cloud, last: Float[Array, "4 4"]) -> list[Placement]:
        """Placements from a far reach: where the sensor was last, and against key frames all over the path."""
        assert self.mixture is not None
        far = Target.of(self.mixture, FAR_REACHES, self.unit)
        found = [frontend.place(far, cloud, start, self.options.threads) for start in (last, last @ self.velocity)]
        if max(each.explained for each in found) >= (LOST + 1) / 2 * self.usual:
            return found
        for pose in self._elsewhere(last):
            near = [self.keyframes[i] for i in backend.window(self.keyframes, pose, self.options.window, self.unit)]
            _, mixture = self._joint(near, 0)
            target = Target.of(mixture, FAR_REACHES, self.unit)
            found.append(frontend.place(target, cloud, pose, self.options.threads))
        return found

    def _elsewhere(self, last: Float[Array, "4 4"], most: int = 6) -> list[Array]:
        """Poses of key frames, far from each other, nearest to the last one first."""
        poses = np.array([keyframe.pose for keyframe in self.keyframes])
        chosen: list[Array] = []
        for i in np.argsort(backend.apart(poses, last, self.unit), kind="stable"):
            if not chosen or backend.apart(np.array(chosen), poses[i], self.unit).min() > 0.3:
                chosen.append(poses[i])
        return chosen[:most]

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


def track(
    source: Iterable[Frame],
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
    for frame in source:
        if on_frame(tracker.add(frame)):
            break
    return tracker.result()
