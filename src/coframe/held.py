# SPDX-License-Identifier: MIT
"""`hold`: poses from elsewhere, judged as if they were ours.

A mixture is fitted to the clouds as they lie under the given poses, which stay as they are. Verdicts, covariances, outliers and
visibility follow from it as they do in `register`, so that results of different programs can be compared.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import schedule
from coframe.arrays import Array
from coframe.clouds import Frames, InputError, as_clouds
from coframe.doors import Options, as_poses
from coframe.em import Iteration, Status
from coframe.estep import Cloud
from coframe.export import described
from coframe.io import clouds as cloud_files
from coframe.registration import FLOOR
from coframe.result import Registration, in_user_units
from coframe.schedule import Level, Runner
from coframe.sweeps import Sweep, quiet_blas

MATURING = 12  # iterations: as many as a repetition of register's last level has in all
DEFAULTS = Options()


@quiet_blas()
def hold(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"],
    *,
    options: Options = DEFAULTS,
    names: Sequence[str] | None = None,
    history: Sequence[Iteration] = (),
    status: Status = Status.CONVERGED,
) -> Registration:
    """Clouds under poses that are known, with verdicts, covariances, outliers and a model: is that result good?

    clouds: M arrays (N_j, D), or files, as for `register`. poses: (M, D+1, D+1), x = R v + t; they are not changed. options:
    `components`, `points`, `seed` and `threads` count. history, status: of the program that found the poses, if known.

    >>> result = coframe.hold(clouds, poses_of_another_program)
    >>> [verdict.verdict for verdict in result.verdicts]
    """
    if not isinstance(options, Options):
        raise InputError(f"options: expected coframe.Options, found {type(options).__name__}")
    clouds = clouds if isinstance(clouds, np.ndarray) else list(clouds)
    if len(clouds) and all(isinstance(cloud, str | PathLike) for cloud in clouds):
        scans, files = cloud_files.open_all(clouds)
        names = [scan.name for scan in scans] if names is None else names
        points = [scan.points for scan in scans]
        return described(hold(points, poses, options=options, names=names, history=history, status=status), scans, files)
    clouds = as_clouds(clouds, names=names)
    M, D = len(clouds), clouds[0].shape[1]
    poses = as_poses(poses, M, D)
    frames = Frames.of(clouds)
    origin = frames.middle(poses)
    inner = frames.enter(clouds)
    runner = Runner(floor=FLOOR, rng=np.random.default_rng(options.seed), threads=options.threads)
    drawn = schedule.drawn_points(inner, [np.ones(len(cloud)) for cloud in clouds], options.points, runner.rng)
    level = Level(options.components, options.points, iterations=0, maturing=MATURING)
    fit = runner.fit(drawn, frames.enter_poses(poses, origin), level)
    sweep = Sweep([Cloud.of(cloud) for cloud in inner], threads=options.threads)
    names = [f"cloud {j}" for j in range(M)] if names is None else names
    result = in_user_units(fit, sweep, clouds, names, frames, origin)
    return replace(result, poses=poses, history=tuple(history), status=status)
