# SPDX-License-Identifier: MIT
"""Start poses of clouds from a turntable: the turn from one to the next is known, its axis is not.

In the sensor's frame the same motion S, a turn about the axis, carries every cloud onto the one
before it. Each pair of neighbours that can be matched suggests an S; the one with the most evidence
of all neighbours places all clouds, also those that match none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coframe import geometry
from coframe.compute.checkpoint import Checkpoint
from coframe.compute.per_cloud import PerCloud
from coframe.errors import InputError
from coframe.input.normalise import Summary
from coframe.input.source import Source
from coframe.start import match
from coframe.start.recipe import START, StartRecipe
from coframe.start.search import Start, ThinScans
from coframe.start.verify import Evidence, Motion, motion_distance
from coframe.types import Pose

# [format] Where such start poses come from, as results say it.
TURNTABLE = "turntable"


@dataclass(frozen=True)
class _Turn:
    """A motion that a pair of neighbours suggests, in user coordinates, with its evidence."""

    motion: Pose
    weight: float


def find_start(
    clouds: PerCloud[Source],
    summaries: Sequence[Summary],
    degrees: float,
    *,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
    checkpoint: Checkpoint | None = None,
    recipe: StartRecipe = START,
) -> Start:
    """Start poses in the frame of the first cloud."""
    M, D = len(summaries), len(summaries[0].median)
    if D != 3:
        raise InputError(
            "turntable: expected clouds in space, found clouds in the plane; leave it out"
        )
    thin = ThinScans.of(clouds, summaries, recipe.points_3d, recipe)
    pairs = [(j + 1, j) for j in range(M - 1)]
    edges = match.match_pairs(
        thin.scans, pairs, on_pair=on_pair, checkpoint=checkpoint, recipe=recipe
    )
    found = [
        [
            _in_user_units(each, thin, edge.first)
            for each in (edge.best, *edge.others)
            if each.weight
        ]
        for edge in edges
    ]
    candidates = [_about_axis(turn.motion, degrees) for own in found for turn in own]
    if not candidates:
        raise InputError(
            "turntable: expected neighbours that overlap, found none that could be matched; give"
            " start poses, or clouds in the order of their turns"
        )

    def agreeing(motion: Pose) -> list[_Turn]:
        """Of each pair, the turn with most evidence that agrees with a motion."""
        kept = []
        for own, (first, _) in zip(found, pairs, strict=True):
            inner = _in_spacings(motion, thin, first)
            near = [
                turn
                for turn in own
                if motion_distance(inner, _in_spacings(turn.motion, thin, first), recipe)
                <= recipe.first_gate
            ]
            kept += [max(near, key=lambda turn: turn.weight)] if near else []
        return kept

    support = [sum(turn.weight for turn in agreeing(motion)) for motion in candidates]
    best = candidates[int(np.argmax(support))]
    if kept := agreeing(best):
        best = _about_axis(_mean(kept), degrees)
    poses = [np.eye(4)]
    for _ in range(M - 1):
        poses.append(poses[-1] @ best)
    return Start((np.array(poses),), (tuple(range(M)),), TURNTABLE, len(pairs))


def _in_user_units(evidence: Evidence, thin: ThinScans, first: int) -> _Turn:
    """A motion of scan `first` onto the one before it."""
    R, t = geometry.rotation(evidence.motion), geometry.translation(evidence.motion)
    shift = thin.spacing * t + thin.centres[first - 1] - R @ thin.centres[first]
    return _Turn(geometry.pose(R, shift), evidence.weight)


def _in_spacings(motion: Pose, thin: ThinScans, first: int) -> Motion:
    """The inverse of `_in_user_units`."""
    R, t = geometry.rotation(motion), geometry.translation(motion)
    return geometry.pose(R, (t + R @ thin.centres[first] - thin.centres[first - 1]) / thin.spacing)


def _about_axis(motion: Pose, degrees: float) -> Pose:
    """The turn by so many degrees about the axis of a motion, whose shift along it is left out."""
    R, t = geometry.rotation(motion), geometry.translation(motion)
    omega = geometry.log_rotation(R)
    axis = omega / max(float(np.linalg.norm(omega)), np.finfo(float).tiny)
    point = np.linalg.pinv(np.eye(3) - R, rcond=1e-6) @ (t - axis * (axis @ t))
    turn = geometry.exp_rotation(np.radians(abs(degrees)) * axis)
    return geometry.pose(turn, point - turn @ point)


def _mean(turns: Sequence[_Turn]) -> Pose:
    """The mean of turns that are near each other, weighted by their evidence."""
    weights = [turn.weight for turn in turns]
    motions = np.array([turn.motion for turn in turns])
    omega = np.average(geometry.log_rotation(geometry.rotation(motions)), axis=0, weights=weights)
    shift = np.average(geometry.translation(motions), axis=0, weights=weights)
    return geometry.pose(geometry.exp_rotation(omega), shift)
