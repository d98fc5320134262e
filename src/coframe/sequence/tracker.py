# SPDX-License-Identifier: MIT
"""The state of a tracked sequence, and what each frame changes in it.

Each frame is localised against the mixture of a few key frames (`em.localise`). Every few frames
one becomes a key frame itself, and is registered jointly with those that see the same scene, recent
and old (`keyframes`): so loops close as soon as the sensor comes back. Frames are stored relative
to their key frame and follow when it moves. What comes after a loss is a segment of its own until
it is known how it overlaps what was seen before (`relocalise`); then the two are merged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.em.estep import Cloud
from coframe.em.localise import Localisation, Pyramid, localise
from coframe.em.mixture import Mixture
from coframe.geometry import extent
from coframe.io.frames import Frame
from coframe.sequence import degeneracy, keyframes, relocalise
from coframe.sequence.degeneracy import Hold
from coframe.sequence.keyframes import MIN_KEYFRAMES, Keyframe
from coframe.sequence.options import TrackOptions
from coframe.sequence.recipe import SEQUENCE, SequenceRecipe
from coframe.sequence.relocalise import Relocaliser, Submap
from coframe.sequence.sampling import sample_by_surface
from coframe.threads import quiet_blas
from coframe.types import Array, Pose

# [limit] Coordinates, and inverse extents: beyond, there is no unit of length.
LARGEST = 1e30
# [limit] Points of a frame; with fewer it counts as empty.
MIN_POINTS = 200
# [size] Points by which it is decided whether those of a frame coincide.
SIZED_POINTS = 1000
# [limit] Key frames that the last joint registration moves: bounds its time and memory.
FINAL_KEYFRAMES = 300
# [guard] Smallest extent of a frame over its largest coordinate, in units of rounding.
ROUNDINGS = 8


@dataclass(frozen=True, eq=False)
class PreparedFrame:
    """What is used of a frame."""

    time: float
    cloud: Cloud | None  # None where the frame shows too little
    extent: float
    # The points drawn, where they were measured at different times (see `Frame.offsets`).
    sample: Frame | None = None
    problem: str = ""  # why it could not be read


@dataclass(frozen=True, eq=False)
class Merge:
    """The last merge of two segments, and how to undo it."""

    first: int  # key frame of the segment that joined
    count: int  # key frames at that time
    poses: Float[Array, "M 4 4"]  # of the key frames before


@dataclass(frozen=True, eq=False)
class Progress:
    """What is known after a frame.

    Parameters
    ----------
    index, time
        Of the frame.
    pose
        Pose of the frame; where it is lost, the last one known.
    explained
        Share of its points that the model explains.
    lost
        Whether its pose is not known (yet) in the common frame.
    keyframes
        Number of key frames so far.
    """

    index: int
    time: float
    pose: Pose
    explained: float
    lost: bool
    keyframes: int


@dataclass(eq=False)
class Tracker:
    """The state of a run. Frames are given to it one by one.

    A loss begins a new segment, which is tracked on its own, in a frame of its own, until it is
    merged with another. The largest segment is the common frame; frames of the others are lost.
    The key frames of a map are the first segment, and the common frame then.
    """

    options: TrackOptions = field(default_factory=TrackOptions)
    recipe: SequenceRecipe = SEQUENCE
    map_keyframes: tuple[Keyframe, ...] = ()
    fixed_map: bool = False  # whether they stay where they are
    unit: float = 0.0  # extent of the first frame, or of the first one of the map
    keyframes: list[Keyframe] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    base: list[int] = field(default_factory=list)  # key frame of each frame; -1: it has no pose
    # Pose of each frame in the frame of its key frame.
    relative: list[Array] = field(default_factory=list)
    explained: list[float] = field(default_factory=list)
    # How each frame is held in its weakest direction: the direction in its own axes, the share of
    # the information in the strongest one, and whether it is undetermined (see `degeneracy`).
    weak_direction: list[Array] = field(default_factory=list)
    weak_ratio: list[float] = field(default_factory=list)
    undetermined: list[bool] = field(default_factory=list)
    # Of frames that could not be read, by their indices: why.
    problems: dict[int, str] = field(default_factory=dict)
    velocity: Array = field(default_factory=lambda: np.eye(4))
    typical: float = 1.0  # running mean of the explained share
    mixture: Mixture | None = None
    target: Pyramid | None = None
    since: int = 0  # frames since the last key frame
    # Frames since the last key frame that have a pose.
    recent: list[Keyframe] = field(default_factory=list)
    segment: int = -1  # the current one
    next_search: int = 0  # key frames of the segment at which it is next searched for
    proposal: Array | None = None  # motion of the segment that the last search found
    merge: Merge | None = None  # the last one, while it is on probation

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.options.seed)
        self.next_search = MIN_KEYFRAMES
        if self.map_keyframes:
            self.keyframes = list(self.map_keyframes)
            self.unit = extent(self.map_keyframes[0].cloud.points)
        self._submaps: dict[tuple[int, ...], Submap] = {}

    def pose(self, index: int) -> Float[Array, "4 4"]:
        """Of a frame that has a key frame, by the present pose of that."""
        return self.keyframes[self.base[index]].pose @ self.relative[index]

    def members(self, segment: int) -> Int[Array, " n"]:
        """Indices of the key frames of a segment."""
        return keyframes.members(self.keyframes, segment)

    @property
    def main(self) -> int:
        """The segment of the map, or the largest one, the first of them."""
        if self.map_keyframes or not self.keyframes:
            return 0
        return int(np.argmax(np.bincount([keyframe.segment for keyframe in self.keyframes])))

    def prepare(self, index: int, frame: Frame) -> PreparedFrame:
        """Draw points from a frame.

        It depends on nothing that was tracked, so that it may be done ahead.
        """
        if not _shows_something(frame):
            return PreparedFrame(frame.time, None, 0.0, problem=frame.problem)
        rng = np.random.default_rng([self.options.seed, index])
        some = sample_by_surface(
            frame,
            self.options.points,
            rng,
            balance=self.recipe.direction_balance,
            resolution=self.recipe.direction_resolution,
        )
        cloud = Cloud.of(some.points, some.weights / some.weights.mean())
        sample = None if some.offsets is None else some
        return PreparedFrame(frame.time, cloud, extent(some.points), sample)

    def add(self, frame: PreparedFrame) -> Progress:
        """Localise the next frame, and make it a key frame if it is time for one."""
        cloud, index = frame.cloud, len(self.times)
        if frame.problem:
            self.problems[index] = frame.problem
        found = None
        if cloud is not None:
            cloud, found = self._localise(cloud, frame)
            found = found or self._begin_segment(frame)
        self.times.append(frame.time)
        self.explained.append(0.0 if found is None else found.explained)
        hold = self._hold(found)
        self.weak_direction.append(hold.direction)
        self.weak_ratio.append(hold.ratio)
        self.undetermined.append(hold.free)
        self.base.append(-1)
        self.relative.append(np.eye(4))
        self.since += 1
        if cloud is not None and found is not None:
            self._store(index, cloud, found)
        lost = self.base[index] < 0 or self.segment != self.main
        pose, explained = self._last_pose(index), self.explained[index]
        return Progress(index, frame.time, pose, explained, lost, len(self.keyframes))

    def _localise(self, cloud: Cloud, frame: PreparedFrame) -> tuple[Cloud, Localisation | None]:
        """The frame against the model, from a constant velocity; None if it is lost.

        Where points were measured at different times, they are moved to the time of the frame, by
        the last velocity first, then by that which this frame has shown. Returns the cloud used.
        """
        last = self._last()
        if self.target is None or last is None:
            return cloud, None
        elapsed = frame.time - self.times[last]
        if self._after_gap(elapsed):
            return cloud, None
        before = self.pose(last)
        if frame.sample is not None and elapsed > 0:
            cloud = deskewed(frame.sample, self.velocity, elapsed)
        found = self._search_pose(cloud, before, before @ self.velocity)
        if frame.sample is not None and elapsed > 0 and found is not None:
            motion = geometry.inverse(before) @ found.pose
            cloud = deskewed(frame.sample, motion, elapsed)
            found = self._search_pose(cloud, before, found.pose)
        return cloud, found

    def _hold(self, found: Localisation | None) -> Hold:
        """How a frame is held by the model in its weakest direction."""
        if found is None or found.moments is None or self.mixture is None:
            return Hold(np.array([0.0, 0.0, 1.0]), 1.0, False)
        frames = min(len(self.members(self.segment)), self.options.window)
        return degeneracy.weakest(found.moments, self.mixture, found.pose, frames)

    def _search_pose(self, cloud: Cloud, last: Pose, start: Pose) -> Localisation | None:
        """A frame from a start pose; if that fails, from there and from the last pose with wider
        blurs; None if it is lost.
        """
        assert self.target is not None
        assert self.mixture is not None
        found = localise(self.target, cloud, start)
        if found.explained >= self.recipe.min_explained * self.typical:
            return found
        blurs, model = self.recipe.relocalisation_blurs, self.recipe.model
        wide = Pyramid.of(self.mixture, blurs, self.unit, model)
        found = max(
            (localise(wide, cloud, each) for each in (start, last)),
            key=lambda each: each.explained,
        )
        return found if found.explained >= self.recipe.min_explained * self.typical else None

    def _begin_segment(self, frame: PreparedFrame) -> Localisation:
        """A new segment, which begins at the last known pose."""
        members = self.members(self.segment)
        # A segment of too few key frames could not be found again.
        if self.segment != self.main and len(members) < MIN_KEYFRAMES:
            self.base = [-1 if base in members else base for base in self.base]
            del self.keyframes[len(self.keyframes) - len(members) :]
        self.recent.clear()
        self.unit = self.unit or frame.extent
        self.segment = max((keyframe.segment for keyframe in self.keyframes), default=-1) + 1
        self.target = None
        self.mixture = None
        self.velocity = np.eye(4)
        self.next_search = MIN_KEYFRAMES
        self.proposal = None
        self.merge = None
        pose = self._last_pose(len(self.times) - 1)
        return Localisation(pose, 0.0 if self.segment else 1.0, 0)

    def _store(self, index: int, cloud: Cloud, found: Localisation) -> None:
        """What is kept of a frame that was localised."""
        pose = found.pose
        consecutive = self.target is not None and self._last() == index - 1
        self.velocity = geometry.inverse(self.pose(index - 1)) @ pose if consecutive else np.eye(4)
        if self.target is not None:
            self.typical += self.recipe.explained_rate * (found.explained - self.typical)
        first = len(self.members(self.segment)) < MIN_KEYFRAMES
        frame = Keyframe(index, cloud, pose, self.segment)
        if self.since >= self.options.every or first:
            self._add_keyframe(frame)
            pose = self.keyframes[-1].pose
        else:
            self.recent.append(frame)
        self.base[index] = len(self.keyframes) - 1
        self.relative[index] = geometry.inverse(self.keyframes[-1].pose) @ pose

    def _last(self) -> int | None:
        """The last frame that has a pose. While there is a target, it is in the current segment."""
        return next((i for i in range(len(self.base) - 1, -1, -1) if self.base[i] >= 0), None)

    def _last_pose(self, index: int) -> Float[Array, "4 4"]:
        """The pose of a frame, or of the last one before it that has a pose."""
        return next((self.pose(i) for i in range(index, -1, -1) if self.base[i] >= 0), np.eye(4))

    def _after_gap(self, seconds: float) -> bool:
        """Whether the sensor may have moved on unseen in this time."""
        if len(self.times) <= 2:
            return False
        frames = round(2 / self.recipe.explained_rate)  # of a mean over as long a time
        usual = np.median(np.diff(self.times[-frames:]))
        return bool(seconds > self.recipe.max_gap * usual)

    def _window(self, among: Int[Array, " n"], pose: Float[Array, "4 4"]) -> list[int]:
        count = self.options.window
        return keyframes.window(self.keyframes, among, pose, count, self.unit)

    def _add_keyframe(self, keyframe: Keyframe) -> None:
        self.keyframes.append(keyframe)
        self._update_model()
        self._localise_again()
        self.since = 0
        # A segment that has become the largest goes on with what it has found until then.
        if self.segment != self.main or self.proposal is not None:
            self._search()
        elif self.merge is not None:
            self._check_merge(self.merge)
        else:
            self._drop_redundant()

    def _localise_again(self) -> None:
        """The frames before the last key frame against the model that has it: when they came, what
        they were the first to see was missing.
        """
        assert self.target is not None
        finest = replace(self.target, levels=self.target.levels[-1:])
        for frame in self.recent:
            found = localise(finest, frame.cloud, self.pose(frame.index))
            if found.explained >= self.recipe.min_explained * self.typical:
                base = self.keyframes[self.base[frame.index]].pose
                self.relative[frame.index] = geometry.inverse(base) @ found.pose
        self.recent.clear()

    def _drop_redundant(self) -> None:
        """Drop the key frame that leaves the window if older ones look at the same scene: memory
        follows the scene.
        """
        members = self.members(self.segment)
        if len(members) < self.options.window + 2:
            return
        *older, dropped = members[: -self.options.window].tolist()
        pose = self.keyframes[dropped].pose
        poses = np.array([self.keyframes[i].pose for i in older])
        distance = keyframes.viewpoint_distance(poses, pose, self.unit)
        if distance.min() >= self.recipe.same_view:
            return
        heir = older[int(np.argmin(distance))]
        motion = geometry.inverse(self.keyframes[heir].pose) @ pose
        for i, base in enumerate(self.base):
            if base == dropped:
                self.base[i] = heir
                self.relative[i] = motion @ self.relative[i]
            elif base > dropped:
                self.base[i] = base - 1
        del self.keyframes[dropped]
        self._submaps.clear()

    def _fixed(self, chosen: Sequence[int]) -> list[int]:
        """Which of the chosen key frames a joint registration leaves where they are."""
        return [n for n, i in enumerate(chosen) if self.fixed_map and self.keyframes[i].index < 0]

    def _update_model(self) -> None:
        """Register the last key frame with those that see the same; the mixture of them all is the
        new target.
        """
        options = self.options
        chosen = self._window(self.members(self.segment), self.keyframes[-1].pose)
        moved, self.mixture = keyframes.register_window(
            [self.keyframes[i] for i in chosen],
            options.components,
            self.unit,
            options.iterations,
            self.rng,
            options.threads,
            self._fixed(chosen),
            self.recipe.model,
        )
        for i, keyframe in zip(chosen, moved, strict=True):
            self.keyframes[i] = keyframe
        self.target = frame_target(self.mixture, self.unit, self.recipe)

    def _search(self) -> None:
        """Search for the current segment in the others, and merge it if two searches in a row, some
        frames apart, agree.
        """
        recipe = self.recipe
        count = len(self.members(self.segment))
        if count < self.next_search:
            return
        self.next_search = _grown(count)
        before = self.proposal
        relocaliser = Relocaliser(
            self.keyframes, self.options, self.unit, self.typical, self.rng, self._submaps, recipe
        )
        other, motion = relocaliser.find(self.segment, before)
        if motion is None:
            return
        self.proposal = motion
        self.next_search = count + 1
        pose = self.keyframes[-1].pose
        if before is not None and not relocalise.differ(
            motion @ pose, before @ pose, self.unit, recipe
        ):
            self._merge_into(other, motion)

    def _merge_into(self, other: int, motion: Float[Array, "4 4"]) -> None:
        """Move the current segment into another."""
        members = self.members(self.segment)
        poses = np.array([keyframe.pose for keyframe in self.keyframes])
        self.merge = Merge(int(members[0]), len(self.keyframes), poses)
        for i in members:
            keyframe = self.keyframes[i]
            self.keyframes[i] = replace(keyframe, pose=motion @ keyframe.pose, segment=other)
        self.segment = other
        self.proposal = None
        self._submaps.clear()
        self._update_model()

    def _check_merge(self, merge: Merge) -> None:
        """Undo a merge that contradicts what was seen since."""
        recipe = self.recipe
        # As long as the recent half of a window still has key frames from before.
        probation = self.recipe.window // 2
        since = self.keyframes[merge.count :]
        members = self.members(self.segment)
        older = self._window(members[members < merge.first], self.keyframes[-1].pose)
        near = [self.keyframes[i] for i in older]
        found = relocalise.conflict(since[-probation:], near, np.eye(4), recipe)
        if found > recipe.max_conflict:
            self._undo(merge)
        elif len(since) >= probation:
            self.merge = None

    def _undo(self, merge: Merge) -> None:
        new = max(keyframe.segment for keyframe in self.keyframes) + 1
        for i, keyframe in enumerate(self.keyframes):
            if i < merge.first:
                self.keyframes[i] = replace(keyframe, pose=merge.poses[i])
            else:
                self.keyframes[i] = replace(keyframe, segment=new)
        self.segment = new
        self.merge = None
        self.proposal = None
        self.next_search = _grown(len(self.members(new)))
        self._update_model()

    @quiet_blas()
    def settle(self) -> None:
        """Register key frames from all over the common frame jointly once more; those between them
        follow.
        """
        options, recipe = self.options, self.recipe
        members = self.members(self.main)
        count = min(len(members), FINAL_KEYFRAMES)
        even = np.linspace(0, len(members) - 1, count).round().astype(np.int64)
        chosen = members[np.unique(even)]
        if len(chosen) < MIN_KEYFRAMES or not options.final:
            return
        moved, _ = keyframes.register_window(
            [self.keyframes[i] for i in chosen],
            recipe.final_components * options.components,
            self.unit,
            options.final,
            self.rng,
            options.threads,
            self._fixed(chosen.tolist()),
            recipe.model,
        )
        ends = [*chosen[1:], len(self.keyframes)]
        for begin, end, keyframe in zip(chosen, ends, moved, strict=True):
            motion = keyframe.pose @ geometry.inverse(self.keyframes[begin].pose)
            for i in members[(members >= begin) & (members < end)]:
                self.keyframes[i] = replace(self.keyframes[i], pose=motion @ self.keyframes[i].pose)


def frame_target(mixture: Mixture, unit: float, recipe: SequenceRecipe) -> Pyramid:
    """What frames are localised against: the blurs of the recipe, and below them as many as it
    takes to the thickness of a typical component.

    While the blur is wider than the surface is thick, it decides how much a point counts, and a
    frame is as inaccurate as the blur is wide.
    """
    thinnest = mixture.principal_axes[0][:, 0]
    thickness = float(np.sqrt(max(np.median(thinnest), 0.0))) / unit
    smallest = np.sqrt(ALIGN.min_variance)  # no component is thinner
    blurs = list(recipe.blurs)
    while blurs[-1] > max(thickness, smallest):
        blurs.append(blurs[-1] / ALIGN.reach_ratio)
    return Pyramid.of(mixture, blurs, unit, recipe.model)


def deskewed(sample: Frame, motion: Pose, elapsed: float) -> Cloud:
    """The points of a frame as they were at its time, if its sensor moved at a constant speed, by
    `motion` in the time `elapsed` [s] before.
    """
    assert sample.offsets is not None
    shares = sample.offsets / elapsed
    motions = geometry.exp(shares[:, None] * geometry.log(motion))
    turned = np.einsum("nij,nj->ni", geometry.rotation(motions), sample.points)
    points = turned + geometry.translation(motions)
    return Cloud.of(points, sample.weights / sample.weights.mean())


def _grown(keyframes: int) -> int:
    """The key frames of a segment after which it is searched for again: half as many more, and
    two at least, so that it has something new to say.
    """
    return keyframes + max(2, keyframes // 2)


def _shows_something(frame: Frame) -> bool:
    """Whether a frame has enough points that do not coincide."""
    if len(frame) < MIN_POINTS:
        return False
    some = frame.points[:: max(1, len(frame) // SIZED_POINTS)]
    farthest, size = max(frame.points.max(), -frame.points.min()), extent(some)
    smallest = max(ROUNDINGS * np.finfo(float).eps * farthest, 1 / LARGEST)
    return bool(farthest < LARGEST and size > smallest)
