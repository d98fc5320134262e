# SPDX-License-Identifier: MIT
"""`hold`: poses from elsewhere, judged as if they were ours.

A mixture is fitted to the clouds as they lie under the given poses, which stay as they are.
Verdicts, covariances, outliers and visibility follow from it as they do in `register`, so that
results of different programs can be compared. But a mixture takes the thickness of a misalignment
for that of the surface. So the clouds are then let go: those that leave were not where they belong.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe.align import schedule
from coframe.align.covariance import pose_covariance
from coframe.align.level import RADIUS, Level, Runner
from coframe.align.schedule import Supply
from coframe.align.verdict import Verdict
from coframe.api.register import FLOOR
from coframe.em import loop
from coframe.em.estep import Cloud, Sweep
from coframe.em.joint import UNCONSTRAINED
from coframe.em.loop import Fit, Iteration, Status
from coframe.errors import InputError
from coframe.input import given as opening
from coframe.input.checks import as_poses
from coframe.input.normalise import Normalisation
from coframe.input.options import Options
from coframe.io import clouds as cloud_files
from coframe.result.export import described
from coframe.result.labels import PointLabels
from coframe.result.registration import Registration, in_user_units, with_points
from coframe.threads import quiet_blas
from coframe.types import Array

MATURING = 12  # iterations: as many as a repetition of register's last level has in all
DEFAULTS = Options()
LEFT = 0.01  # of the scene's radius: a cloud that moves farther when it is let go was not in place,
GONE = 0.1  # and was not aligned at all;
CHANCE = 6.0  # standard deviations of its pose: less is chance


@quiet_blas()
def judge(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"],
    *,
    options: Options = DEFAULTS,
    release: bool = True,
    names: Sequence[str] | None = None,
    history: Sequence[Iteration] = (),
    status: Status = Status.CONVERGED,
) -> Registration:
    """Clouds under poses that are known, with verdicts, covariances, outliers and a model: is that
    result good?

    clouds: M arrays (N_j, D), or files, as for `register`. poses: (M, D+1, D+1), x = R v + t; they
    are not changed. options: `components`, `points`, `seed` and `threads` count. release: whether
    to try where the clouds go when they are let go, and say so in the verdicts; without it, clouds
    that are all equally wrong may be called aligned. history, status: of the program that found the
    poses, if known.

    >>> result = coframe.judge(clouds, poses_of_another_program)
    >>> [verdict.verdict for verdict in result.verdicts]
    """
    if not isinstance(options, Options):
        raise InputError(f"options: expected coframe.Options, found {type(options).__name__}")
    clouds = clouds if isinstance(clouds, np.ndarray) else list(clouds)
    if len(clouds) and all(isinstance(cloud, str | PathLike) for cloud in clouds):
        scans, files = cloud_files.open_all(clouds)
        names = [scan.name for scan in scans] if names is None else names
        points = [scan.points for scan in scans]
        told: dict[str, Any] = {"names": names, "history": history, "status": status}
        return described(
            judge(points, poses, options=options, release=release, **told), scans, files
        )
    given = opening.arrays(clouds, None, names, threads=options.threads)
    clouds = [cloud.points for cloud in given.held]
    poses = as_poses(poses, len(clouds), given.dimension)
    frames = Normalisation.about(given.summaries)
    origin = frames.middle(poses)
    runner = Runner(floor=FLOOR, rng=np.random.default_rng(options.seed), threads=options.threads)
    drawn = Supply(given.clouds, [summary.count for summary in given.summaries], frames).drawn(
        options.points, runner.rng
    )
    level = Level(options.components, options.points, iterations=0, maturing=MATURING)
    fit = runner.fit(drawn, frames.enter_poses(poses, origin), level)
    result = in_user_units(fit, given.names, frames, origin)
    found = Sweep(
        [Cloud.of(cloud) for cloud in frames.enter(clouds)], threads=options.threads
    ).assign(fit.poses, fit.mixture)
    result = with_points(result, clouds, [PointLabels.of(each, fit.mixture) for each in found])
    if release:
        free, *_ = schedule.best_starts(drawn, fit.poses, runner)
        result = replace(result, verdicts=tuple(_after(fit, free, result.verdicts)))
    return replace(
        result, poses=poses, history=tuple(history), status=status, options=options.record()
    )


def _after(fit: Fit, free: Fit, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts, with what became of each cloud when it was let go.

    Most clouds are taken to have stayed.
    """
    twists = loop.relative_twists(fit.poses, free.poses, fit.mixture)
    twists = twists - np.median(twists, axis=0)
    covariance = pose_covariance(
        free.moments, free.mixture, free.poses, UNCONSTRAINED, fit.independent
    )
    deviations = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0))
    for verdict, twist, deviation in zip(verdicts, twists, deviations, strict=True):
        way = loop.largest_step(twist[None], RADIUS)
        chance = CHANCE * loop.largest_step(deviation[None], RADIUS)
        if way <= max(LEFT, chance) or verdict.verdict == "failed":
            yield verdict
            continue
        turn = np.degrees(np.linalg.norm(twist[: -fit.mixture.dimension]))
        reason = (
            f"let go, it turns by {turn:.2g} degrees and its points move by up to"
            f" {way * RADIUS:.1%} of the extent"
        )
        yield replace(
            verdict, verdict="failed" if way > max(GONE, chance) else "weak", reason=reason
        )
