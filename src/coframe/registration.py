# SPDX-License-Identifier: MIT
"""`register`: clouds in, poses out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import em, geometry, joint, schedule
from coframe.arrays import Array
from coframe.clouds import Frames, InputError, as_clouds
from coframe.em import Iteration
from coframe.estep import Cloud
from coframe.joint import Constraints, Prior
from coframe.result import Registration, in_user_units
from coframe.schedule import Level, Runner
from coframe.sweeps import Sweep

MOTIONS = ("rigid", "translation", "yaw")
FLOOR = 1e-7  # of the squared extent: the variance below which no component falls


@dataclass(frozen=True)
class Options:
    """The few things one may want to change. Left alone, each does well on scans of any size and unit."""

    components: int = 1000  # K of the last level, at most one for every 8 points
    points: int = 3000  # per cloud that a level sees; where there are more, the repetitions of the last level see others
    iterations: int = 20  # of a fit in the last level, at most; fits are repeated until the poses have settled
    tolerance: float = 1e-4  # share of the scene's radius: poses that move less in an iteration have settled
    motion: str = "rigid"  # how clouds may move: "rigid", "translation", or "yaw" (turns about the common z axis only)
    seed: int = 0  # of the choice of points and components
    threads: int | None = None  # None: all cores; the result does not depend on it

    def __post_init__(self) -> None:
        if self.motion not in MOTIONS:
            raise InputError(f"motion: expected one of {', '.join(MOTIONS)}, found {self.motion!r}")
        for name in ("components", "points", "iterations"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: expected at least 1, found {getattr(self, name)}")


@dataclass(frozen=True)
class PosePrior:
    """A soft belief about the pose of one cloud: from a turntable, a GNSS receiver, a tracked scanner.

    `covariance` is that of (omega, tau): the cloud is turned by omega [rad] in the common frame, and its own origin is moved
    by tau [unit]. Infinite variances say that nothing is known.
    """

    cloud: int
    pose: Float[Array, "D1 D1"]
    covariance: Float[Array, "P P"]


DEFAULTS = Options()


def register(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"] | None = None,
    *,
    options: Options = DEFAULTS,
    weights: Sequence[Float[Array, " _"]] | None = None,
    fixed: Sequence[int] = (),
    priors: Sequence[PosePrior] = (),
    names: Sequence[str] | None = None,
    on_iteration: Callable[[Iteration], bool | None] = em.carry_on,
) -> Registration:
    """Bring the clouds into one common frame.

    clouds: M arrays (N_j, D), D = 2 or 3, or anything with `.points` or `.vertices`.
    poses: (M, D+1, D+1) where to start; pose j carries cloud j into the common frame, x = R v + t. Default: identity.
    weights: per cloud, the weight of each point (N_j,). fixed: clouds whose pose is known and stays. priors: poses that are
    known about. names: of the clouds, in messages and results. on_iteration: called after each iteration of each phase, of
    which several run side by side; returning True ends the phase.

    >>> result = coframe.register(clouds, poses=start)
    >>> result.poses, result.verdicts
    """
    clouds = as_clouds(clouds, names=names)
    M, D = len(clouds), clouds[0].shape[1]
    names = [f"cloud {j}" for j in range(M)] if names is None else names
    poses = geometry.identity(M, D) if poses is None else as_poses(poses, M, D)
    point_weights = as_weights(weights, clouds)
    _check_indices("fixed", fixed, M)
    _check_indices("priors", [prior.cloud for prior in priors], M)
    frames = Frames.of(clouds)
    origin = np.mean([geometry.transform(T, c[None])[0] for T, c in zip(poses, frames.centres, strict=True)], axis=0)
    inner = frames.enter(clouds)
    points = float(sum(map(len, clouds)))
    constraints = Constraints(tuple(fixed), options.motion, tuple(_internal(prior, frames, origin) for prior in priors))
    fit = schedule.coarse_to_fine(
        inner,
        point_weights,
        frames.enter_poses(poses, origin),
        Level(options.components, options.points, options.iterations, tolerance=options.tolerance),
        Runner(
            floor=FLOOR,
            rng=np.random.default_rng(options.seed),
            threads=options.threads,
            constraints=constraints,
            on_iteration=lambda step: on_iteration(step.in_user_units(frames, origin, points)),
        ),
    )
    sweep = Sweep([Cloud.of(c, w) for c, w in zip(inner, point_weights, strict=True)], threads=options.threads)
    return in_user_units(fit, sweep, clouds, names, frames, origin, constraints)


def _internal(prior: PosePrior, frames: Frames, origin: Float[Array, " D"]) -> Prior:
    """A prior about the cloud's own origin, in internal coordinates, where the cloud's centre is its origin."""
    D = len(origin)
    information = np.linalg.inv(np.asarray(prior.covariance, float)) if np.isfinite(prior.covariance).all() else None
    if information is None:  # independent entries, some of them unknown
        information = np.diag(1 / np.diagonal(np.asarray(prior.covariance, float)))
    pose = np.asarray(prior.pose, float)
    # tau at the cloud's own origin, from a twist at its centre: (omega, delta) -> (omega, scale delta - omega x R c)
    to_user = joint.lever(-geometry.rotation(pose) @ frames.centres[prior.cloud])
    to_user[:, -D:] *= frames.scale
    arrived = frames.only(prior.cloud).enter_poses(pose[None], origin)[0]
    return Prior(prior.cloud, arrived, to_user.T @ information @ to_user)


def as_weights(weights: Sequence[Any] | None, clouds: Sequence[Float[Array, "_ D"]]) -> list[Float[Array, " _"] | None]:
    """Weights per point, checked: one array a cloud, finite and not negative, not all zero."""
    if weights is None:
        return [None] * len(clouds)
    if len(weights) != len(clouds):
        raise InputError(f"weights: expected one array for each of {len(clouds)} clouds, found {len(weights)}")
    checked: list[Array | None] = []
    for j, (weight, cloud) in enumerate(zip(weights, clouds, strict=True)):
        array = np.asarray(weight, float)
        if array.shape != (len(cloud),):
            raise InputError(f"weights of cloud {j}: expected shape ({len(cloud)},), one a point, found shape {array.shape}")
        if not (np.isfinite(array).all() and (array >= 0).all() and array.any()):
            raise InputError(f"weights of cloud {j}: expected finite numbers of at least 0, not all 0, found others")
        checked.append(array)
    return checked


def _check_indices(name: str, indices: Sequence[int], count: int) -> None:
    bad = [i for i in indices if not 0 <= i < count]
    if bad:
        raise InputError(f"{name}: expected indices of clouds, 0 to {count - 1}, found {bad[0]}")


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
