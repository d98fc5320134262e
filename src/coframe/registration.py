# SPDX-License-Identifier: MIT
"""`register`: clouds in, poses out."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import em, geometry, schedule
from coframe.arrays import Array
from coframe.clouds import Frames, InputError, as_clouds
from coframe.doors import Options, PosePrior, as_fixed, as_poses, as_priors, as_weights
from coframe.em import Iteration
from coframe.estep import Cloud
from coframe.joint import Constraints
from coframe.result import Registration, in_user_units
from coframe.schedule import Level, Runner
from coframe.sweeps import Sweep, quiet_blas

FLOOR = 1e-7  # of the squared extent: the variance below which no component falls
DEFAULTS = Options()


@quiet_blas()
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
    weights: per cloud, the weight of each point (N_j,); only their ratios count. fixed: clouds whose pose is known and stays.
    priors: poses that are known about. names: of the clouds, in messages and results. on_iteration: called after each
    iteration of each phase, of which several run side by side; returning True ends the phase.

    >>> result = coframe.register(clouds, poses=start)
    >>> result.poses, result.verdicts
    """
    if not isinstance(options, Options):
        raise InputError(f"options: expected coframe.Options, found {type(options).__name__}")
    clouds = as_clouds(clouds, names=names)
    M, D = len(clouds), clouds[0].shape[1]
    names = [f"cloud {j}" for j in range(M)] if names is None else names
    poses = geometry.identity(M, D) if poses is None else as_poses(poses, M, D)
    point_weights = as_weights(weights, clouds)
    counting = [weight > 0 for weight in point_weights]

    frames = Frames.of([cloud[count] for cloud, count in zip(clouds, counting, strict=True)])
    origin = np.mean([geometry.transform(T, c[None])[0] for T, c in zip(poses, frames.centres, strict=True)], axis=0)
    inner = frames.enter(clouds)
    points = float(sum(map(len, clouds)))
    constraints = Constraints(as_fixed(fixed, M), options.motion, as_priors(priors, frames, origin))
    fit = schedule.coarse_to_fine(
        [cloud[count] for cloud, count in zip(inner, counting, strict=True)],
        [weight[count] for weight, count in zip(point_weights, counting, strict=True)],
        frames.enter_poses(poses, origin),
        Level(options.components, options.points, options.iterations, tolerance=options.tolerance),
        Runner(
            floor=FLOOR,
            rng=np.random.default_rng(options.seed),
            threads=options.threads,
            constraints=constraints,
            on_iteration=(
                em.carry_on
                if on_iteration is em.carry_on
                else lambda step: on_iteration(step.in_user_units(frames, origin, points))
            ),
        ),
    )
    sweep = Sweep([Cloud.of(c, w) for c, w in zip(inner, point_weights, strict=True)], threads=options.threads)
    return in_user_units(fit, sweep, clouds, names, frames, origin, constraints)
