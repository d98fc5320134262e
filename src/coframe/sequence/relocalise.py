# SPDX-License-Identifier: MIT
"""Where is a part of a sequence that began after a loss?

Near the place of the loss first, then in all places seen before.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.align.sampling import draw_rows
from coframe.em.estep import Cloud
from coframe.em.localise import Localisation, Pyramid, localise
from coframe.em.mixture import Mixture
from coframe.sequence import keyframes as backend
from coframe.sequence import places
from coframe.sequence.keyframes import Keyframe
from coframe.sequence.places import Submap
from coframe.start.match import MatcherProcess
from coframe.types import Array

REACHES = (0.025, 0.008, 0.004)  # of the unit: how far off a frame may be, then nearer
FAR_REACHES = (0.1, 0.04, *REACHES)  # after a loss
FIRST = 3  # frames of a part are key frames at once: a mixture of a single frame is too thin a hold
# of the usual share: what is found from farther away must be explained better than what is merely
# not lost,
FOUND = 0.65
RIVAL = 1.15  # and so much better than in any other place
# rad, and of the unit: how a lost sensor may have moved, in either direction of each axis
TURN, SHIFT = (
    0.3,
    0.12,
)
HOPES = 5  # of a search, that are looked at closely
GLIMPSE, PART = 300, 3000  # points of a part, for a first look and for a closer one
DIFFERENT = 0.1  # of the unit: placements further apart than this are not the same


@dataclass(frozen=True)
class Relocaliser:
    """What a look needs to know."""

    keyframes: Sequence[Keyframe]  # of all parts
    window: int  # key frames that are looked at together
    components: int
    unit: float
    usual: float  # explained share of a frame
    rng: np.random.Generator
    threads: int | None
    places: dict[tuple[int, ...], Submap]  # those known from earlier looks; more are added

    def met(
        self, part: int, proposal: Float[Array, "4 4"] | None
    ) -> tuple[int, Float[Array, "4 4"] | None]:
        """The part that this one meets, the largest first, and the motion that carries it there.

        `proposal` is where it may lie by an earlier look.
        """
        members = self.members(part)
        last = self.keyframes[members[0]].pose
        own = Submap.of(self.keyframes, members[-places.MEMBERS :].tolist(), self.unit)
        counts = np.bincount([keyframe.part for keyframe in self.keyframes])
        with closing(MatcherProcess()) as solver:
            for other in np.argsort(-counts, kind="stable").tolist():
                if other == part or counts[other] < FIRST:
                    continue
                theirs = self.members(other)
                guesses = self._guessed(members, theirs, last)
                best = guesses[0]
                rival = max(
                    (
                        g.explained
                        for g in guesses
                        if apart(g.pose @ last, best.pose @ last, self.unit)
                    ),
                    default=0.0,
                )
                if best.explained >= max(FOUND * self.usual, RIVAL * rival):
                    motion = self._refined(members, theirs, best.pose)
                    if motion is not None:
                        return other, motion
                motions = [guess.pose for guess in guesses] + (
                    [] if proposal is None else [proposal]
                )
                for chosen in places.around([self.keyframes[i] for i in theirs], last, self.unit):
                    seen = self._place(theirs[chosen].tolist())
                    motion = places.match_submaps(own, seen, motions, solver)
                    if (
                        motion is not None
                        and (motion := self._refined(members, theirs, motion)) is not None
                    ):
                        return other, motion
        return -1, None

    def _place(self, members: list[int]) -> Submap:
        """Places stay as they are while the sensor is lost elsewhere."""
        key = tuple(members)
        if key not in self.places:
            self.places[key] = Submap.of(self.keyframes, members, self.unit)
        return self.places[key]

    def _guessed(
        self, members: Int[Array, " n"], theirs: Int[Array, " m"], last: Float[Array, "4 4"]
    ) -> list[Localisation]:
        """What is found from near by, best first: the sensor has turned and shifted a little since
        it was seen last.
        """
        near = [self.keyframes[i] for i in self._window(theirs, last)]
        mixture = self._mixture(near)
        rough, fine = (
            Pyramid.of(mixture, FAR_REACHES[:2], self.unit),
            Pyramid.of(mixture, FAR_REACHES[1:], self.unit),
        )
        cloud = self._merged(members)
        few = cloud.subset(draw_rows(len(cloud), GLIMPSE, self.rng))
        back = geometry.inverse(last)
        starts = [last @ motion @ back for motion in self._motions()]
        hopes = sorted(
            (localise(rough, few, start, 4) for start in starts), key=lambda each: -each.explained
        )
        return sorted(
            (localise(fine, cloud, hope.pose) for hope in hopes[:HOPES]),
            key=lambda each: -each.explained,
        )

    def _motions(self) -> list[Array]:
        """How a sensor may have moved unseen, in its own frame."""
        directions = np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
        shifts = SHIFT * self.unit * directions
        return [
            geometry.exp(np.concatenate([TURN * turn, shift]))
            for turn in directions
            for shift in shifts
        ]

    def _merged(self, members: Int[Array, " n"]) -> Cloud:
        """Points of the latest of these key frames, in the frame of their part."""
        latest = [self.keyframes[i] for i in members[-places.MEMBERS :]]
        points = np.concatenate([keyframe.points for keyframe in latest])
        return Cloud.of(points[draw_rows(len(points), PART, self.rng)])

    def _refined(
        self, members: Int[Array, " n"], theirs: Int[Array, " m"], motion: Float[Array, "4 4"]
    ) -> Float[Array, "4 4"] | None:
        """The motion after EM against the other part's mixture; None if what the two have seen
        contradicts it.
        """
        ends = {
            i
            for j in (members[0], members[-1])
            for i in self._window(theirs, motion @ self.keyframes[j].pose)
        }
        near = [self.keyframes[i] for i in sorted(ends)]
        target = Pyramid.of(self._mixture(near), FAR_REACHES[1:], self.unit)
        placed = localise(target, self._merged(members), motion)
        part = [self.keyframes[i] for i in members[-places.MEMBERS :]]
        conflict = places.conflict(part, near, placed.pose)
        return placed.pose if conflict < places.CONTRADICTED else None

    def members(self, part: int) -> Int[Array, " n"]:
        """The key frames of a part."""
        return np.flatnonzero([keyframe.part == part for keyframe in self.keyframes])

    def _mixture(self, keyframes: list[Keyframe]) -> Mixture:
        return backend.register_window(
            keyframes, self.components, self.unit, 0, self.rng, self.threads
        )[1]

    def _window(self, members: Int[Array, " n"], pose: Float[Array, "4 4"]) -> list[int]:
        chosen = backend.window([self.keyframes[i] for i in members], pose, self.window, self.unit)
        return members[chosen].tolist()


def apart(one: Float[Array, "4 4"], other: Float[Array, "4 4"], unit: float) -> bool:
    """Whether two poses look at different places."""
    return bool(backend.viewpoint_distance(one[None], other, unit)[0] > DIFFERENT)
