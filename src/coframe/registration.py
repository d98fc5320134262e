# SPDX-License-Identifier: MIT
"""`register`: clouds in, poses out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import em, geometry, schedule
from coframe.arrays import Array
from coframe.clouds import Frames, InputError, as_clouds
from coframe.em import Iteration
from coframe.estep import Cloud
from coframe.result import Registration, in_user_units
from coframe.schedule import Level, Runner
from coframe.sweeps import Sweep

FLOOR = 1e-7  # of the squared extent: the variance below which no component falls


@dataclass(frozen=True)
class Options:
    """The few things one may want to change. Left alone, each is found from the data."""

    components: int = 1000  # K of the last level
    points: int = 3000  # per cloud, in the last level; further points would change the poses by less than their uncertainty
    iterations: int = 40  # of the last level, at most
    tolerance: float = 1e-4  # share of the scene's radius: poses that move less in an iteration have settled
    seed: int = 0  # of the choice of points
    threads: int | None = None  # None: all cores


DEFAULTS = Options()


def register(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"] | None = None,
    *,
    options: Options = DEFAULTS,
    fixed: Sequence[int] = (),
    on_iteration: Callable[[Iteration], bool | None] = em.carry_on,
) -> Registration:
    """Bring the clouds into one common frame.

    clouds: M arrays (N_j, D), D = 2 or 3, or anything with `.points` or `.vertices`.
    poses: (M, D+1, D+1) where to start; pose j carries cloud j into the common frame, x = R v + t. Default: identity.
    fixed: indices of clouds whose pose is known and stays.

    >>> result = coframe.register(clouds, poses=start)
    >>> result.poses, result.verdicts
    """
    clouds = as_clouds(clouds)
    D = clouds[0].shape[1]
    poses = geometry.identity(len(clouds), D) if poses is None else as_poses(poses, len(clouds), D)
    frames = Frames.of(clouds)
    origin = np.mean([geometry.transform(T, c[None])[0] for T, c in zip(poses, frames.centres, strict=True)], axis=0)
    inner = frames.enter(clouds)
    points = float(sum(map(len, clouds)))
    fit = schedule.coarse_to_fine(
        inner,
        frames.enter_poses(poses, origin),
        Level(options.components, options.points, options.iterations, tolerance=options.tolerance),
        Runner(
            floor=FLOOR,
            rng=np.random.default_rng(options.seed),
            threads=options.threads,
            fixed=tuple(fixed),
            on_iteration=lambda step: on_iteration(step.in_user_units(frames, origin, points)),
        ),
    )
    sweep = Sweep([Cloud.of(cloud) for cloud in inner], threads=options.threads)
    names = [f"cloud {j}" for j in range(len(clouds))]
    return in_user_units(fit, sweep, clouds, names, frames, origin, tuple(fixed))


def as_poses(poses: Any, count: int, dimension: int) -> Float[Array, "M D1 D1"]:
    """Start poses, checked: rigid motions, one per cloud."""
    poses = np.asarray(poses, float)
    expected = (count, dimension + 1, dimension + 1)
    if poses.shape != expected:
        raise InputError(f"poses: expected shape {expected}, one matrix a cloud, found shape {poses.shape}")
    R = geometry.rotation(poses)
    bad = [
        j
        for j in range(count)
        if not (
            np.isfinite(poses[j]).all() and np.abs(R[j] @ R[j].T - np.eye(dimension)).max() < 1e-3 and np.linalg.det(R[j]) > 0
        )
    ]
    if bad:
        raise InputError(f"poses: expected rotations and translations, found pose {bad[0]} = {poses[bad[0]].tolist()}")
    return geometry.pose(geometry.nearest_rotation(R), geometry.translation(poses))
