# SPDX-License-Identifier: MIT
"""From one iteration to a run: when a method has settled, and how a pairwise method serves many
clouds.

A method is a generator that yields all poses after each of its iterations, a pairwise one a
generator of the motion between two clouds. It sees clouds that are centred and scaled to an extent
of one (see `Normalisation`), and knows neither units nor when to stop.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em import loop
from coframe.input.normalise import RADIUS
from coframe.types import Array, Points, Pose, Poses

# [0.1, unknown] Share of the radius: poses that move less in an iteration have settled.
TOLERANCE = 1e-6

Clouds = Sequence[Float[Array, "_ D"]]
# Source, target and a start -> the motion that carries the source onto the target, after each
# iteration.
Pairwise = Callable[[Points, Float[Array, "K D"], Pose], Iterator[Pose]]


def largest_move(old: Float[Array, "*B D1 D1"], new: Float[Array, "*B D1 D1"]) -> float:
    """The longest way of a point at the scene's radius, as a share of the radius."""
    twists = geometry.log(new @ geometry.inverse(old))
    return loop.largest_step(twists.reshape(-1, twists.shape[-1]), RADIUS)


def until_settled(
    steps: Iterator[Float[Array, "*B D1 D1"]],
    start: Float[Array, "*B D1 D1"],
    tolerance: float = TOLERANCE,
) -> Iterator[Float[Array, "*B D1 D1"]]:
    """The steps up to the first that changes nothing."""
    last = start
    for new in steps:
        yield new
        if largest_move(last, new) <= tolerance:
            return
        last = new


def in_step(
    runs: Sequence[Iterator[Pose]], starts: Float[Array, "E D1 D1"], tolerance: float = TOLERANCE
) -> Iterator[Float[Array, "E D1 D1"]]:
    """Several pairwise runs, each an iteration further at a time.

    One that has settled waits for the others; a negative tolerance lets all run to their end.
    """
    pairs = zip(runs, starts, strict=True)
    going = [until_settled(each, start, tolerance) for each, start in pairs]
    motions = starts.copy()
    while True:
        steps = [next(each, None) for each in going]
        if all(step is None for step in steps):
            return
        for motion, step in zip(motions, steps, strict=True):
            if step is not None:
                motion[:] = step
        yield motions.copy()


def one_versus_all(
    pairwise: Pairwise, clouds: Clouds, poses: Poses, tolerance: float = TOLERANCE
) -> Iterator[Poses]:
    """Every cloud onto the first."""
    starts = geometry.inverse(poses[0]) @ poses[1:]
    runs = [
        pairwise(cloud, clouds[0], start) for cloud, start in zip(clouds[1:], starts, strict=True)
    ]
    for motions in in_step(runs, starts, tolerance):
        yield np.concatenate([poses[:1], poses[0] @ motions])


def one_after_another(pairwise: Pairwise, clouds: Clouds, poses: Poses) -> Iterator[Poses]:
    """Every cloud onto the one before it."""
    starts = geometry.inverse(poses[:-1]) @ poses[1:]
    runs = [
        pairwise(b, a, start) for a, b, start in zip(clouds[:-1], clouds[1:], starts, strict=True)
    ]
    for motions in in_step(runs, starts):
        yield np.array(list(accumulate([poses[0], *motions], np.matmul)))
