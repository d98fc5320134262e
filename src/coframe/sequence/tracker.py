# SPDX-License-Identifier: MIT
"""`track`: a sequence in, the path of the sensor and a model of the scene out.

Each frame is placed against the mixture of a few key frames (`placement`). Every few frames one
becomes a key frame itself, and is registered jointly with those that see the same place, recent and
old (`backend`): so loops close as soon as the sensor comes back. Frames are remembered relative to
their key frame and follow when it moves. What comes after a loss is a part of its own until it is
found where it meets what was seen before (`places`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from coframe import geometry
from coframe.em import seeding
from coframe.em.estep import Cloud
from coframe.em.localise import Localisation, Pyramid, localise
from coframe.em.mixture import Mixture
from coframe.errors import InputError
from coframe.geometry import extent
from coframe.input.options import check_whole
from coframe.io.frames import Frame, FrameSource
from coframe.io.trajectory import Trajectory
from coframe.sequence import keyframes as backend
from coframe.sequence import places, relocalise, sampling
from coframe.sequence.keyframes import Keyframe
from coframe.sequence.places import Submap
from coframe.sequence.relocalise import FAR_REACHES, FIRST, FOUND, REACHES, Relocaliser
from coframe.threads import quiet_blas
from coframe.types import Array

LEAST_POINTS = 200  # a frame with fewer shows nothing
LARGEST = 1e30  # coordinates, and inverse extents: beyond, there is no unit of length
LOST = 0.6  # of the usual share: a frame that the model explains less than that is lost
GAP = 5.0  # times the usual time between frames: a sensor unseen for longer may be anywhere
PROBATION = 5  # key frames after parts have met, within which that may prove wrong
ALIKE = 0.08  # see `backend.apart`: key frames nearer than this look at the same place,
ENOUGH = 1  # and that many of them are kept
SETTLED = 300  # key frames that the last joint registration moves, at most,
SCENE = 3  # and how many times as many components it has
BALANCE = 0.7  # see `frames.by_surface`


@dataclass(frozen=True)
class TrackOptions:
    """How a sequence is tracked."""

    points: int = 1500  # of a frame
    components: int = 800  # of the mixture that frames are placed against
    every: int = 5  # frames from one key frame to the next
    window: int = 10  # key frames that are registered together
    iterations: int = 4  # of the joint registration at each key frame
    final: int = 4  # iterations of a last joint registration of all key frames; 0: none
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        least = {
            "points": 1,
            "components": 1,
            "every": 1,
            "window": 1,
            "iterations": 0,
            "final": 0,
            "seed": 0,
            "threads": 1,
        }
        check_whole(self, least)


@dataclass(frozen=True)
class PreparedFrame:
    """What is used of a frame."""

    time: float
    cloud: Cloud | None  # None where the frame shows too little
    extent: float


@dataclass(frozen=True)
class Meeting:
    """Where two parts became one, and how to undo it."""

    first: int  # key frame of the part that joined
    joined: int  # key frames that were there when it did
    poses: Float[Array, "M 4 4"]  # of the key frames before


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
class Track(Trajectory):
    """The path of a sensor, which frames were lost (their poses are the last known one), and what
    the model is made of.
    """

    lost: Bool[Array, " N"]
    explained: Float[Array, " N"]
    keyframes: tuple[Keyframe, ...]
    mixture: Mixture | None  # of the last window; None before the first frame

    def found(self) -> Trajectory:
        """The path without the lost frames."""
        return Trajectory(self.times[~self.lost], self.poses[~self.lost])

    def merged(self) -> Float[Array, "_ D"]:
        """The points of all key frames in the common frame."""
        return np.concatenate(
            [keyframe.points for keyframe in self.keyframes] or [np.zeros((0, 3))]
        )

    def model(self, components: int = 5000) -> Mixture:
        """A mixture of the whole scene, one component for each cell of a tree over the points of
        all key frames.
        """
        points = self.merged()
        if not len(points):
            raise InputError("model: expected frames that show something, found none")
        floor = backend.FLOOR * extent(points) ** 2
        return seeding.seed(points, 1, components, floor, np.eye(points.shape[1]))


@dataclass
class Tracker:
    """The state of a run. Frames are given to it one by one.

    A sequence has parts: a loss begins a new one, which is tracked on its own, in a frame of its
    own, until it is known where it meets another. The largest part is the common frame; frames of
    the others are lost.
    """

    options: TrackOptions = field(default_factory=TrackOptions)
    unit: float = 0.0  # extent of the first frame
    keyframes: list[Keyframe] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    # key frame of each frame; -1: it has no place, in no part
    base: list[int] = field(default_factory=list)
    # pose of each frame in that of its key frame
    relative: list[Array] = field(default_factory=list)
    explained: list[float] = field(default_factory=list)
    velocity: Array = field(default_factory=lambda: np.eye(4))
    usual: float = 1.0  # running mean of the explained share
    mixture: Mixture | None = None
    target: Pyramid | None = None
    since: int = 0  # frames since the last key frame
    part: int = -1  # the current one
    attempt: int = FIRST  # key frames of the part at which it is next looked for
    proposal: Array | None = None  # where it may meet the others, by the last look
    meeting: Meeting | None = None  # the last one, while it may prove wrong

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.options.seed)
        self._places: dict[tuple[int, ...], Submap] = {}

    def pose(self, index: int) -> Float[Array, "4 4"]:
        """Of a frame that has a place, as its key frame lies now."""
        return self.keyframes[self.base[index]].pose @ self.relative[index]

    def members(self, part: int) -> Int[Array, " n"]:
        """The key frames of a part."""
        return np.flatnonzero([keyframe.part == part for keyframe in self.keyframes])

    @property
    def main(self) -> int:
        """The largest part, the first of them."""
        return (
            int(np.argmax(np.bincount([keyframe.part for keyframe in self.keyframes])))
            if self.keyframes
            else 0
        )

    def prepared(self, index: int, frame: Frame) -> PreparedFrame:
        """Points drawn from a frame.

        It depends on nothing that was tracked, so that it may be done ahead.
        """
        if not _shows_something(frame):
            return PreparedFrame(frame.time, None, 0.0)
        rng = np.random.default_rng([self.options.seed, index])
        some = sampling.by_surface(frame, self.options.points, rng, balance=BALANCE)
        return PreparedFrame(
            frame.time,
            Cloud.of(some.points, some.weights / some.weights.mean()),
            extent(some.points),
        )

    def add(self, frame: PreparedFrame) -> Progress:
        """The next frame."""
        cloud, index = frame.cloud, len(self.times)
        placed = None if cloud is None else self._followed(cloud, frame.time) or self._begun(frame)
        self.times.append(frame.time)
        self.explained.append(0.0 if placed is None else placed.explained)
        self.base.append(-1)
        self.relative.append(np.eye(4))
        self.since += 1
        if cloud is not None and placed is not None:
            self._kept(index, cloud, placed)
        lost = self.base[index] < 0 or self.part != self.main
        return Progress(
            index, frame.time, self._known(index), self.explained[index], lost, len(self.keyframes)
        )

    def _followed(self, cloud: Cloud, time: float) -> Localisation | None:
        """The frame against the model, from a constant velocity; if that is no good, from farther
        away.
        """
        last = self._last()
        if self.target is None or last is None or self._unseen(time - self.times[last]):
            return None
        assert self.mixture is not None
        start = self.pose(last) @ self.velocity
        placed = localise(self.target, cloud, start)
        if placed.explained >= LOST * self.usual:
            return placed
        far = Pyramid.of(self.mixture, FAR_REACHES, self.unit)
        placed = max(
            (localise(far, cloud, each) for each in (start, self.pose(last))),
            key=lambda each: each.explained,
        )
        return placed if placed.explained >= FOUND * self.usual else None

    def _begun(self, frame: PreparedFrame) -> Localisation:
        """A new part, where the last one ended as far as is known."""
        members = self.members(self.part)
        if self.part != self.main and len(members) < FIRST:  # too little to be found again
            self.base = [-1 if base in members else base for base in self.base]
            del self.keyframes[len(self.keyframes) - len(members) :]
        self.unit = self.unit or frame.extent
        self.part = max((keyframe.part for keyframe in self.keyframes), default=-1) + 1
        self.target, self.mixture, self.velocity = None, None, np.eye(4)
        self.attempt, self.proposal, self.meeting = FIRST, None, None
        return Localisation(self._known(len(self.times) - 1), 0.0 if self.part else 1.0, 0)

    def _kept(self, index: int, cloud: Cloud, placed: Localisation) -> None:
        """What is remembered of a frame that was placed."""
        pose, last = placed.pose, self._last()
        consecutive = self.target is not None and last == index - 1
        self.velocity = geometry.inverse(self.pose(index - 1)) @ pose if consecutive else np.eye(4)
        if self.target is not None:
            self.usual += 0.1 * (placed.explained - self.usual)
        if self.since >= self.options.every or len(self.members(self.part)) < FIRST:
            self._keyframe(index, cloud, pose)
            pose = self.keyframes[-1].pose
        self.base[index] = len(self.keyframes) - 1
        self.relative[index] = geometry.inverse(self.keyframes[-1].pose) @ pose

    def _last(self) -> int | None:
        """The last frame that has a place. While there is a target, that is in the current part."""
        return next((i for i in range(len(self.base) - 1, -1, -1) if self.base[i] >= 0), None)

    def _known(self, index: int) -> Float[Array, "4 4"]:
        """The pose of a frame, or of the last one before it that has a place."""
        return next((self.pose(i) for i in range(index, -1, -1) if self.base[i] >= 0), np.eye(4))

    def _unseen(self, seconds: float) -> bool:
        """Whether the sensor may have moved on unseen in this time."""
        return len(self.times) > 2 and bool(seconds > GAP * np.median(np.diff(self.times[-20:])))

    def _joint(self, keyframes: list[Keyframe], iterations: int) -> tuple[list[Keyframe], Mixture]:
        options = self.options
        return backend.register_window(
            keyframes, options.components, self.unit, iterations, self.rng, options.threads
        )

    def _window(self, members: Int[Array, " n"], pose: Float[Array, "4 4"]) -> list[int]:
        """Of these key frames, the latest and those that look at the same place."""
        chosen = backend.window(
            [self.keyframes[i] for i in members], pose, self.options.window, self.unit
        )
        return members[chosen].tolist()

    def _keyframe(self, index: int, cloud: Cloud, pose: Float[Array, "4 4"]) -> None:
        self.keyframes.append(Keyframe(index, cloud, pose, self.part))
        self._model()
        self.since = 0
        if self.part != self.main:
            self._look()
        elif self.meeting is not None:
            self._doubt()
        else:
            self._thin_out()

    def _thin_out(self) -> None:
        """Take out the key frame that leaves the window if older ones look at the same place:
        memory follows the scene.
        """
        members = self.members(self.part)
        if len(members) < self.options.window + 2:
            return
        *older, gone = members[: -self.options.window].tolist()
        pose = self.keyframes[gone].pose
        away = backend.viewpoint_distance(
            np.array([self.keyframes[i].pose for i in older]), pose, self.unit
        )
        if (away < ALIKE).sum() < ENOUGH:
            return
        heir = older[int(np.argmin(away))]
        move = geometry.inverse(self.keyframes[heir].pose) @ pose
        for i, base in enumerate(self.base):
            if base == gone:
                self.base[i], self.relative[i] = heir, move @ self.relative[i]
            elif base > gone:
                self.base[i] = base - 1
        del self.keyframes[gone]
        self._places.clear()

    def _model(self) -> None:
        """Registers the last key frame with those that see the same; the mixture of them all is the
        new target.
        """
        chosen = self._window(self.members(self.part), self.keyframes[-1].pose)
        moved, self.mixture = self._joint(
            [self.keyframes[i] for i in chosen], self.options.iterations
        )
        for i, keyframe in zip(chosen, moved, strict=True):
            self.keyframes[i] = keyframe
        self.target = Pyramid.of(self.mixture, REACHES, self.unit)

    def _look(self) -> None:
        """Look for the current part in the others.

        Two looks, some frames apart, must find it in the same place.
        """
        members = self.members(self.part)
        if len(members) < self.attempt:
            return
        self.attempt = max(len(members) + 2, int(1.5 * len(members)))
        before, (other, motion) = self.proposal, self._search().met(self.part, self.proposal)
        if motion is None:
            return
        self.proposal, self.attempt = motion, len(members) + 1
        pose = self.keyframes[-1].pose
        if before is not None and not relocalise.apart(motion @ pose, before @ pose, self.unit):
            self._join(other, motion)

    def _search(self) -> Relocaliser:
        options = self.options
        unit, usual = self.unit, self.usual
        return Relocaliser(
            self.keyframes,
            options.window,
            options.components,
            unit,
            usual,
            self.rng,
            options.threads,
            self._places,
        )

    def _join(self, other: int, motion: Float[Array, "4 4"]) -> None:
        """The current part becomes one with another."""
        members = self.members(self.part)
        self.meeting = Meeting(
            int(members[0]),
            len(self.keyframes),
            np.array([keyframe.pose for keyframe in self.keyframes]),
        )
        for i in members:
            self.keyframes[i] = replace(
                self.keyframes[i], pose=motion @ self.keyframes[i].pose, part=other
            )
        self.part, self.proposal = other, None
        self._places.clear()
        self._model()

    def _doubt(self) -> None:
        """Whether what was seen since the parts met contradicts it: then they are two parts again."""
        meeting = self.meeting
        assert meeting is not None
        since = self.keyframes[meeting.joined :]
        old = self.members(self.part)
        near = [
            self.keyframes[i]
            for i in self._window(old[old < meeting.first], self.keyframes[-1].pose)
        ]
        if places.conflict(since[-PROBATION:], near, np.eye(4)) > places.CONTRADICTED:
            self._part_again(meeting)
        elif len(since) >= PROBATION:
            self.meeting = None

    def _part_again(self, meeting: Meeting) -> None:
        new = max(keyframe.part for keyframe in self.keyframes) + 1
        for i, keyframe in enumerate(self.keyframes):
            if i < meeting.first:
                self.keyframes[i] = replace(keyframe, pose=meeting.poses[i])
            else:
                self.keyframes[i] = replace(keyframe, part=new)
        self.part, self.meeting, self.proposal = new, None, None
        self.attempt = len(self.members(new)) + 2
        self._model()

    @quiet_blas()
    def settle(self) -> None:
        """A last joint registration of key frames from all over the common frame; those between
        them follow.
        """
        members = self.members(self.main)
        chosen = members[
            np.unique(
                np.linspace(0, len(members) - 1, min(len(members), SETTLED))
                .round()
                .astype(np.int64)
            )
        ]
        if len(chosen) < FIRST or not self.options.final:
            return
        options, some = self.options, [self.keyframes[i] for i in chosen]
        size = SCENE * options.components
        moved, _ = backend.register_window(
            some, size, self.unit, options.final, self.rng, options.threads
        )
        for begin, end, keyframe in zip(
            chosen, [*chosen[1:], len(self.keyframes)], moved, strict=True
        ):
            motion = keyframe.pose @ geometry.inverse(self.keyframes[begin].pose)
            for i in members[(members >= begin) & (members < end)]:
                self.keyframes[i] = replace(self.keyframes[i], pose=motion @ self.keyframes[i].pose)

    def result(self) -> Track:
        """What is known so far."""
        N = len(self.times)
        main = self.main
        lost = np.array([base < 0 or self.keyframes[base].part != main for base in self.base], bool)
        poses, last = np.zeros((N, 4, 4)), np.eye(4)
        for i in range(N):
            poses[i] = last = last if lost[i] else self.pose(i)
        return Track(
            np.array(self.times),
            poses,
            lost=lost,
            explained=np.array(self.explained),
            keyframes=tuple(keyframe for keyframe in self.keyframes if keyframe.part == main),
            mixture=self.mixture,
        )


def _shows_something(frame: Frame) -> bool:
    """Whether a frame has enough points, in different places."""
    if len(frame) < LEAST_POINTS:
        return False
    farthest, size = np.abs(frame.points).max(), extent(frame.points)
    return bool(farthest < LARGEST and size > max(8 * np.finfo(float).eps * farthest, 1 / LARGEST))


@quiet_blas()
def track(
    source: FrameSource,
    *,
    options: TrackOptions | None = None,
    on_frame: Callable[[Progress], bool | None] = lambda progress: False,
) -> Track:
    """The path of a sensor through a sequence of frames (see `open_frames`); pose i carries frame i
    into the first one's frame.

    Where the path breaks and its parts cannot be connected, poses are those of the largest part,
    and other frames are lost.

    on_frame: called after each frame; returning True ends the run with what is done.

    >>> path = coframe.track(coframe.open_frames("rgbd_dataset_freiburg1_desk"))
    >>> path.poses, path.lost
    """
    tracker = Tracker(TrackOptions() if options is None else options)
    for frame in source.prepared(tracker.prepared):
        if on_frame(tracker.add(frame)):
            break
    tracker.settle()
    return tracker.result()
