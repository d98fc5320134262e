# SPDX-License-Identifier: MIT
"""Relocalisation: where a segment of a sequence that began after a loss lies among the others.

One frame after a loss fits in many ways. A segment, tracked on its own, fits in few, and grows
until it fits in one. It is searched for near the pose of the loss first; then its merged points are
matched with submaps of all that was seen before (see `coframe.start`). A pose that is found must
not contradict what either side has seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.align.sampling import draw_rows
from coframe.em.estep import Cloud
from coframe.em.localise import Localisation, Pyramid, localise
from coframe.em.mixture import Mixture
from coframe.em.recipe import LOCALISE
from coframe.input.normalise import Summary
from coframe.input.source import InMemory
from coframe.sequence.keyframes import (
    MIN_KEYFRAMES,
    Keyframe,
    members,
    register_window,
    viewpoint_distance,
    window,
)
from coframe.sequence.options import TrackOptions
from coframe.sequence.recipe import SEQUENCE, SequenceRecipe
from coframe.start import features, graph, match
from coframe.start.features import ThinScan
from coframe.types import Array

# [guard] Cells of elevation are numbered within this many: a half circle has far fewer.
CELLS_PER_COLUMN = 1000

# [limit] Submaps that a segment is matched with: the nearest come first, and more take time only.
MAX_SUBMAPS = 16


@dataclass(frozen=True, eq=False)
class Submap:
    """What some key frames have seen, as the matcher takes it."""

    centre: Float[Array, " 3"]
    scan: ThinScan  # about the centre, in units of `spacing`
    spacing: float

    @classmethod
    def of(cls, keyframes: Sequence[Keyframe], spacing: float) -> "Submap":
        """Of key frames that have a common frame; `spacing` [user units]."""
        cloud = InMemory(np.concatenate([keyframe.points for keyframe in keyframes]))
        summary = Summary.of(cloud)
        scan = ThinScan.of(features.thin(cloud, summary, spacing) / spacing)
        return cls(summary.median, scan, spacing)


@dataclass(frozen=True, eq=False)
class Relocaliser:
    """What a search needs to know."""

    keyframes: Sequence[Keyframe]  # of all segments
    options: TrackOptions
    unit: float
    typical: float  # explained share of a frame
    rng: np.random.Generator
    # Submaps by the indices of their key frames: those of earlier searches; more are added.
    submaps: dict[tuple[int, ...], Submap]
    recipe: SequenceRecipe = SEQUENCE

    @property
    def submap_keyframes(self) -> int:
        """Key frames of a submap, at most: two windows of them."""
        return 2 * self.recipe.window

    def find(
        self, segment: int, proposal: Float[Array, "4 4"] | None
    ) -> tuple[int, Float[Array, "4 4"] | None]:
        """The segment that this one overlaps, the largest first, and the motion that carries it
        there.

        `proposal` is the motion that an earlier search found.
        """
        recipe = self.recipe
        own = members(self.keyframes, segment)
        last = self.keyframes[own[0]].pose
        latest = [self.keyframes[i] for i in own[-self.submap_keyframes :]]
        submap = Submap.of(latest, recipe.submap_spacing * self.unit)
        counts = np.bincount([keyframe.segment for keyframe in self.keyframes])
        for other in np.argsort(-counts, kind="stable").tolist():
            if other == segment or counts[other] < MIN_KEYFRAMES:
                continue
            theirs = members(self.keyframes, other)
            candidates = self._search_nearby(own, theirs, last)
            best = candidates[0]
            rival = max(
                (
                    candidate.explained
                    for candidate in candidates
                    if differ(candidate.pose @ last, best.pose @ last, self.unit, recipe)
                ),
                default=0.0,
            )
            required = max(recipe.min_explained * self.typical, recipe.rival_ratio * rival)
            if best.explained >= required:
                motion = self._refine(own, theirs, best.pose)
                if motion is not None:
                    return other, motion
            guesses = [candidate.pose for candidate in candidates]
            if proposal is not None:
                guesses.append(proposal)
            for chosen in self._submap_members(theirs, last):
                matched = match_submaps(
                    submap,
                    self._submap(chosen),
                    guesses,
                    partial(self._compatible, own, theirs),
                )
                motion = None if matched is None else self._refine(own, theirs, matched)
                if motion is not None:
                    return other, motion
        return -1, None

    def _submap_members(
        self, among: Int[Array, " m"], pose: Float[Array, "4 4"]
    ) -> list[tuple[int, ...]]:
        """The key frames of each submap, submaps that look at the scene most like `pose` first."""
        recipe = self.recipe
        poses = np.array([self.keyframes[i].pose for i in among])

        def distance(some: Array, to: Array) -> Array:
            return viewpoint_distance(some, to, self.unit)

        centres: list[int] = []
        for i in np.argsort(distance(poses, pose), kind="stable").tolist():
            if not centres or distance(poses[centres], poses[i]).min() > recipe.submap_distance:
                centres.append(i)
            if len(centres) == MAX_SUBMAPS:
                break
        near = [
            np.sort(np.argsort(distance(poses, poses[i]), kind="stable")[: self.submap_keyframes])
            for i in centres
        ]
        return list(dict.fromkeys(tuple(among[each].tolist()) for each in near))

    def _submap(self, chosen: tuple[int, ...]) -> Submap:
        """From the cache: submaps do not change while the sensor is lost elsewhere."""
        if chosen not in self.submaps:
            keyframes = [self.keyframes[i] for i in chosen]
            self.submaps[chosen] = Submap.of(keyframes, self.recipe.submap_spacing * self.unit)
        return self.submaps[chosen]

    def _search_nearby(
        self, own: Int[Array, " n"], theirs: Int[Array, " m"], last: Float[Array, "4 4"]
    ) -> list[Localisation]:
        """Candidates near the pose of the loss, best first: the sensor has turned and shifted a
        little since.
        """
        recipe = self.recipe
        mixture = self._mixture([self.keyframes[i] for i in self._window(theirs, last)])
        coarse = Pyramid.of(mixture, recipe.wide_blurs, self.unit, recipe.model)
        fine = Pyramid.of(mixture, recipe.blurs, self.unit, recipe.model)
        cloud = self._sample(own)
        few = cloud.subset(
            draw_rows(len(cloud), recipe.points // recipe.search_candidates, self.rng)
        )
        back = geometry.inverse(last)
        steps = LOCALISE.steps_per_blur * len(recipe.wide_blurs)
        starts = [last @ motion @ back for motion in self._unseen_motions()]
        first = sorted(
            (localise(coarse, few, start, steps) for start in starts),
            key=lambda each: -each.explained,
        )
        return sorted(
            (localise(fine, cloud, each.pose) for each in first[: recipe.search_candidates]),
            key=lambda each: -each.explained,
        )

    def _unseen_motions(self) -> list[Array]:
        """How a sensor may have moved while it was lost, in its own frame."""
        directions = np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
        shifts = self.recipe.search_shift * self.unit * directions
        return [
            geometry.exp(np.concatenate([self.recipe.search_turn * turn, shift]))
            for turn in directions
            for shift in shifts
        ]

    def _sample(self, own: Int[Array, " n"]) -> Cloud:
        """Points of the latest of these key frames, in the frame of their segment."""
        latest = [self.keyframes[i] for i in own[-self.submap_keyframes :]]
        points = np.concatenate([keyframe.points for keyframe in latest])
        return Cloud.of(points[draw_rows(len(points), 2 * self.recipe.points, self.rng)])

    def _refine(
        self, own: Int[Array, " n"], theirs: Int[Array, " m"], motion: Float[Array, "4 4"]
    ) -> Float[Array, "4 4"] | None:
        """The motion after EM against the other segment's mixture; None if what the two have seen
        contradicts it.
        """
        near = self._near(own, theirs, motion)
        target = Pyramid.of(self._mixture(near), self.recipe.blurs, self.unit, self.recipe.model)
        found = localise(target, self._sample(own), motion)
        return found.pose if self._compatible(own, theirs, found.pose) else None

    def _compatible(
        self, own: Int[Array, " n"], theirs: Int[Array, " m"], motion: Float[Array, "4 4"]
    ) -> bool:
        """Whether a motion contradicts nothing that the two segments have seen."""
        latest = [self.keyframes[i] for i in own[-self.submap_keyframes :]]
        near = self._near(own, theirs, motion)
        return conflict(latest, near, motion, self.recipe) < self.recipe.max_conflict

    def _near(
        self, own: Int[Array, " n"], theirs: Int[Array, " m"], motion: Float[Array, "4 4"]
    ) -> list[Keyframe]:
        """Key frames of the other segment around both ends of this one, after a motion."""
        ends = {
            i
            for j in (own[0], own[-1])
            for i in self._window(theirs, motion @ self.keyframes[j].pose)
        }
        return [self.keyframes[i] for i in sorted(ends)]

    def _mixture(self, keyframes: list[Keyframe]) -> Mixture:
        options = self.options
        return register_window(
            keyframes,
            options.components,
            self.unit,
            0,
            self.rng,
            options.threads,
            recipe=self.recipe.model,
        )[1]

    def _window(self, among: Int[Array, " m"], pose: Float[Array, "4 4"]) -> list[int]:
        return window(self.keyframes, among, pose, self.options.window, self.unit)


def differ(
    one: Float[Array, "4 4"],
    other: Float[Array, "4 4"],
    unit: float,
    recipe: SequenceRecipe = SEQUENCE,
) -> bool:
    """Whether two poses are different candidates."""
    return bool(viewpoint_distance(one[None], other, unit)[0] > recipe.same_view)


def match_submaps(
    one: Submap,
    other: Submap,
    guesses: Sequence[Float[Array, "4 4"]],
    compatible: Callable[[Float[Array, "4 4"]], bool],
) -> Float[Array, "4 4"] | None:
    """The motion that carries one submap onto the other, if there is clearly more evidence for it
    than for all others.

    Motions that are not compatible with what was seen do not count: a room fits on itself turned
    by half a turn, but its walls would hide what was seen.
    """
    a, b = one.scan, other.scan
    entered = [_in_scan_units(one, other, guess) for guess in guesses]
    edge = match.edge_between(a, b, (0, 1), [*entered, *match.find_motions(a, b)])
    left = [
        evidence
        for evidence in (edge.best, *edge.others)
        if compatible(_in_user_units(one, other, evidence.motion))
    ]
    if not left or not graph.unambiguous([replace(edge, best=left[0], others=tuple(left[1:]))]):
        return None
    return _in_user_units(one, other, left[0].motion)


def _in_scan_units(one: Submap, other: Submap, motion: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
    R = geometry.rotation(motion)
    shift = R @ one.centre + geometry.translation(motion) - other.centre
    return geometry.pose(R, (1 / other.spacing) * shift)


def _in_user_units(one: Submap, other: Submap, motion: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
    R = geometry.rotation(motion)
    shift = other.spacing * geometry.translation(motion)
    return geometry.pose(R, other.centre + shift - R @ one.centre)


def conflict(
    segment: Sequence[Keyframe],
    others: Sequence[Keyframe],
    motion: Float[Array, "4 4"],
    recipe: SequenceRecipe = SEQUENCE,
) -> float:
    """[share of the points in view] that should have hidden what was seen, the worse of both
    sides.
    """
    moved = geometry.transform(motion, np.concatenate([keyframe.points for keyframe in segment]))
    scene = np.concatenate([keyframe.points for keyframe in others])
    through = [hidden_share(k.cloud.points, scene, motion @ k.pose, recipe) for k in segment]
    back = [hidden_share(k.cloud.points, moved, k.pose, recipe) for k in others]
    return float(max(np.mean(through), np.mean(back)))


def hidden_share(
    frame: Float[Array, "N 3"],
    scene: Float[Array, "S 3"],
    pose: Float[Array, "4 4"],
    recipe: SequenceRecipe = SEQUENCE,
) -> float:
    """[share of the scene in the frame's view] that should hide what the frame saw: where it is
    large, the pose cannot be right.

    `frame`: points in the sensor's own frame, the sensor at the origin.
    """
    cells, distance = _directions(frame, recipe.direction_cell)
    inside = geometry.transform(geometry.inverse(pose), scene)
    scene_cells, scene_distance = _directions(inside, recipe.direction_cell)
    order = np.lexsort((distance, cells))
    names, first = np.unique(cells[order], return_index=True)
    nearest = distance[order][first]
    slot = np.minimum(np.searchsorted(names, scene_cells), len(names) - 1)
    in_view = names[slot] == scene_cells
    hiding = scene_distance < (1 - recipe.max_conflict) * nearest[slot]
    return float(hiding[in_view].sum() / max(in_view.sum(), 1))


def _directions(
    points: Float[Array, "N 3"], width: float
) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """The cell of each direction from the origin, as one number, and the distances."""
    x, y, z = points.T
    azimuth = np.floor(np.arctan2(x, z) / width).astype(np.int64)
    elevation = np.floor(np.arctan2(y, np.hypot(x, z)) / width).astype(np.int64)
    return azimuth * CELLS_PER_COLUMN + elevation, np.linalg.norm(points, axis=1)
