# SPDX-License-Identifier: MIT
"""What all baselines share: the door, the loop and the end.

A method is written as a generator that yields all poses after each of its iterations, a pairwise
one as a generator of the motion between two clouds. It sees clouds that are centred and scaled to
an extent of one (see `Normalisation`), and knows neither units nor when to stop.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from numbers import Integral
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.api.judge import judge
from coframe.em import loop
from coframe.em.loop import Iteration, Status
from coframe.errors import InputError
from coframe.input.checks import as_clouds, as_poses
from coframe.input.normalise import Normalisation
from coframe.result.registration import Registration
from coframe.threads import quiet_blas
from coframe.types import Array

RADIUS = 0.5  # of the scene: Normalisation scales the largest cloud to an extent of one
TOLERANCE = 1e-6  # of the radius: poses that move less have settled

# clouds and start poses -> the poses after each iteration
Solver = Callable[
    [Sequence[Float[Array, "_ D"]], Float[Array, "M D1 D1"]], Iterator[Float[Array, "M D1 D1"]]
]
# source, target and a start -> the motion that carries the source onto the target, after each
# iteration
Pairwise = Callable[
    [Float[Array, "N D"], Float[Array, "K D"], Float[Array, "D1 D1"]],
    Iterator[Float[Array, "D1 D1"]],
]
OnIteration = Callable[[Iteration], bool | None]


class Method(Protocol):
    """A baseline: clouds (N_j, D) and start poses (M, D+1, D+1) in, a registration out."""

    def __call__(
        self,
        clouds: Iterable[Any],
        poses: Float[Array, "M D1 D1"],
        *,
        iterations: int = ...,
        on_iteration: OnIteration = ...,
    ) -> Registration: ...


@quiet_blas()
def run(
    solve: Solver,
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"],
    *,
    iterations: int,
    tolerance: float = TOLERANCE,
    on_iteration: OnIteration = loop.carry_on,
) -> Registration:
    """Check, centre and scale; iterate until the poses settle or the limit is reached; judge the
    poses with `hold`.
    """
    if not isinstance(iterations, Integral) or isinstance(iterations, bool) or iterations < 1:
        raise InputError(f"iterations: expected a whole number of at least 1, found {iterations!r}")
    given = as_clouds(clouds)
    poses = as_poses(poses, len(given), given[0].shape[1])
    frames = Normalisation.of(given)
    origin = frames.middle(poses)
    last = frames.enter_poses(poses, origin)
    history: list[Iteration] = []
    points = float(sum(map(len, given)))
    status = Status.CONVERGED
    for new in settled(solve(frames.enter(given), last), last, tolerance):
        step = Iteration(len(history), float("nan"), moved(last, new), new, points)
        history.append(frames.leave_iteration(step, origin))
        last = new
        if on_iteration(history[-1]):
            status = Status.STOPPED
            break
        if len(history) == iterations:
            status = Status.ITERATION_LIMIT
            break
    found = history[-1].poses if history else poses
    return judge(given, found, release=False, history=history, status=status)


def moved(old: Float[Array, "*B D1 D1"], new: Float[Array, "*B D1 D1"]) -> float:
    """The longest way of a point at the scene's radius, as a share of the radius."""
    twists = geometry.log(new @ geometry.inverse(old))
    return loop.largest_step(twists.reshape(-1, twists.shape[-1]), RADIUS)


def settled(
    steps: Iterator[Float[Array, "*B D1 D1"]], start: Float[Array, "*B D1 D1"], tolerance: float
) -> Iterator[Float[Array, "*B D1 D1"]]:
    """The steps up to the first that changes nothing."""
    last = start
    for new in steps:
        yield new
        if moved(last, new) <= tolerance:
            return
        last = new


def in_step(
    runs: Sequence[Iterator[Float[Array, "D1 D1"]]],
    starts: Float[Array, "E D1 D1"],
    tolerance: float = TOLERANCE,
) -> Iterator[Float[Array, "E D1 D1"]]:
    """Several pairwise runs, each an iteration further at a time; one that has settled stays where
    it is.
    """
    going = [settled(each, start, tolerance) for each, start in zip(runs, starts, strict=True)]
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
    pairwise: Pairwise, clouds: Sequence[Float[Array, "_ D"]], poses: Float[Array, "M D1 D1"]
) -> Iterator[Float[Array, "M D1 D1"]]:
    """Every cloud onto the first."""
    starts = geometry.inverse(poses[0]) @ poses[1:]
    runs = [
        pairwise(cloud, clouds[0], start) for cloud, start in zip(clouds[1:], starts, strict=True)
    ]
    for motions in in_step(runs, starts):
        yield np.concatenate([poses[:1], poses[0] @ motions])


def sequential(
    pairwise: Pairwise, clouds: Sequence[Float[Array, "_ D"]], poses: Float[Array, "M D1 D1"]
) -> Iterator[Float[Array, "M D1 D1"]]:
    """Every cloud onto the one before it."""
    starts = geometry.inverse(poses[:-1]) @ poses[1:]
    runs = [
        pairwise(b, a, start) for a, b, start in zip(clouds[:-1], clouds[1:], starts, strict=True)
    ]
    for motions in in_step(runs, starts):
        yield np.array(list(accumulate([poses[0], *motions], np.matmul)))
