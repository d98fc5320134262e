# SPDX-License-Identifier: MIT
"""Where parts of a sequence meet: a part that began after a loss, matched with what was seen
before, from anywhere.

A single frame after a loss fits in many places. A part of a sequence, tracked on its own, fits in
few, and grows until it does in one: its merged points are matched with those of each place (see
`coframe.start`), and the evidence for and against counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.input.normalise import Summary
from coframe.input.source import InMemory
from coframe.sequence import keyframes as backend
from coframe.sequence.keyframes import Keyframe
from coframe.start import features, graph, match
from coframe.start.features import ThinScan
from coframe.start.match import MatcherProcess
from coframe.types import Array

SIDE = 0.04  # of the unit: spacing of the points that are matched
MEMBERS = 20  # key frames of a place, at most
APART = 0.3  # see `backend.apart`: places are no nearer to each other
MOST = 16  # places that a part is matched with, at most
CELL = 0.05  # rad
IN_FRONT = 0.9  # of the distance of what was seen: nearer than that, it would have been hidden
# share of what is in view that should hide what was seen: with more, two parts do not fit
CONTRADICTED = 0.1


@dataclass(frozen=True)
class Submap:
    """What some key frames have seen, as the matcher wants it."""

    members: tuple[int, ...]  # of a list of key frames
    centre: Float[Array, " 3"]
    scan: ThinScan  # about the centre, in units of `side`
    side: float

    @classmethod
    def of(cls, keyframes: Sequence[Keyframe], members: Sequence[int], unit: float) -> "Submap":
        """What these members of the list have seen, in their common frame."""
        cloud, side = InMemory(np.concatenate([keyframes[i].points for i in members])), SIDE * unit
        summary = Summary.of(cloud)
        scan = ThinScan.of(features.thin(cloud, summary, side) / side)
        return cls(tuple(int(i) for i in members), summary.median, scan, side)


def around(
    keyframes: Sequence[Keyframe], pose: Float[Array, "4 4"], unit: float
) -> list[list[int]]:
    """The members of all places, those that look most like `pose` first."""
    poses = np.array([keyframe.pose for keyframe in keyframes])
    chosen: list[int] = []
    for i in np.argsort(backend.viewpoint_distance(poses, pose, unit), kind="stable"):
        if not chosen or backend.viewpoint_distance(poses[chosen], poses[i], unit).min() > APART:
            chosen.append(int(i))
        if len(chosen) == MOST:
            break
    near = [
        np.sort(
            np.argsort(backend.viewpoint_distance(poses, poses[i], unit), kind="stable")[:MEMBERS]
        )
        for i in chosen
    ]
    return [list(members) for members in dict.fromkeys(tuple(each.tolist()) for each in near)]


def match_submaps(
    part: Submap, place: Submap, guesses: Sequence[Float[Array, "4 4"]], solver: MatcherProcess
) -> Float[Array, "4 4"] | None:
    """The motion that carries the part onto the place, if there is clearly more evidence for one
    than for all others.
    """
    a, b = part.scan, place.scan
    entered = [_between(part, place, guess, 1 / place.side) for guess in guesses]
    edge = match.edge_between(
        a, b, (0, 1), [*entered, *(solver.motions(*match.correspondences(a, b)) or [])]
    )
    if not graph.unambiguous([edge]):
        return None
    R = geometry.rotation(edge.best.motion)
    shift = place.side * geometry.translation(edge.best.motion)
    return geometry.pose(R, place.centre + shift - R @ part.centre)


def _between(
    part: Submap, place: Submap, motion: Float[Array, "4 4"], scale: float
) -> Float[Array, "4 4"]:
    """A motion of the part in the scans' coordinates."""
    R = geometry.rotation(motion)
    return geometry.pose(R, scale * (R @ part.centre + geometry.translation(motion) - place.centre))


def conflict(
    part: Sequence[Keyframe], others: Sequence[Keyframe], motion: Float[Array, "4 4"]
) -> float:
    """The share of what each side has in view that should have hidden what it saw, the worse of
    both sides.
    """
    moved = geometry.transform(motion, np.concatenate([keyframe.points for keyframe in part]))
    scene = np.concatenate([keyframe.points for keyframe in others])
    through = [seen_through(each.cloud.points, scene, motion @ each.pose) for each in part]
    back = [seen_through(each.cloud.points, moved, each.pose) for each in others]
    return float(max(np.mean(through), np.mean(back)))


def seen_through(
    frame: Float[Array, "N 3"], scene: Float[Array, "S 3"], pose: Float[Array, "4 4"]
) -> float:
    """The share of the scene in the frame's view that should hide what the frame saw: a pose cannot
    be right where it is large.

    frame: points in the sensor's own frame, the sensor at the origin. Directions are told apart by
    `CELL`.
    """
    cells, distance = _directions(frame)
    others, reach = _directions(geometry.transform(geometry.inverse(pose), scene))
    order = np.lexsort((distance, cells))
    names, first = np.unique(cells[order], return_index=True)
    nearest = distance[order][first]
    place = np.minimum(np.searchsorted(names, others), len(names) - 1)
    looked_at = names[place] == others
    return float((reach < IN_FRONT * nearest[place])[looked_at].sum() / max(looked_at.sum(), 1))


def _directions(points: Float[Array, "N 3"]) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """The cell of each direction from the origin, as one number, and the distances."""
    x, y, z = points.T
    azimuth, elevation = np.arctan2(x, z), np.arctan2(y, np.hypot(x, z))
    cells = np.floor(azimuth / CELL).astype(np.int64) * 1000 + np.floor(elevation / CELL).astype(
        np.int64
    )
    return cells, np.linalg.norm(points, axis=1)
