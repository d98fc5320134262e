# SPDX-License-Identifier: MIT
"""`judge`: is this alignment, whoever made it, right?

A mixture is fitted to the clouds under the given poses, which do not change. Verdicts, covariances,
outliers and visibility follow from it as they do in `register`, so that results of different
programs can be compared. But a mixture takes the thickness of a misalignment for that of the
surface. So the clouds are then refined freely: those that move away were not where they belong.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from coframe.align import schedule
from coframe.align.covariance import pose_covariance
from coframe.align.level import Run
from coframe.align.recipe import ALIGN, AlignRecipe, Level
from coframe.align.verdict import Verdict
from coframe.em import loop
from coframe.em.constraints import UNCONSTRAINED
from coframe.em.loop import Fit, Iteration, Status
from coframe.input.checks import as_poses
from coframe.input.given import open_clouds
from coframe.input.normalise import RADIUS, Normalisation
from coframe.input.options import DEFAULTS, Options, check_kind, check_options
from coframe.result.assemble import Solution, assemble
from coframe.result.registration import Registration
from coframe.threads import quiet_blas
from coframe.types import Poses


@quiet_blas()
def judge(
    clouds: Iterable[Any] | str | PathLike[str],
    poses: Poses,
    *,
    options: Options = DEFAULTS,
    release: bool = True,
    names: Sequence[str] | None = None,
    history: Sequence[Iteration] = (),
    status: Status = Status.CONVERGED,
    recipe: AlignRecipe = ALIGN,
) -> Registration:
    """Verdicts, covariances, outliers and a model for clouds under known poses.

    Parameters
    ----------
    clouds : iterable, str or path
        M arrays (N_j, D), or files, as for `register`.
    poses : (M, D+1, D+1) array
        x = R v + t; they are not changed.
    options : Options
        `components`, `points`, `seed` and `threads` count.
    release : bool
        Whether to refine the clouds freely and say in the verdicts which of them move away;
        without it, clouds that are all equally wrong may be called aligned.
    names : sequence of str, optional
    history, status
        Of the program that found the poses, if known.
    recipe : AlignRecipe
        Every tuned number; for experiments.

    Returns
    -------
    Registration

    Examples
    --------
    >>> result = coframe.judge(clouds, poses_of_another_program)
    >>> [verdict.verdict for verdict in result.verdicts]
    """
    check_options(options)
    check_kind("recipe", recipe, AlignRecipe, "an")
    with open_clouds(clouds, None, names, threads=options.threads) as given:
        poses = as_poses(poses, len(given.names), given.dimension)
        frames = Normalisation.about(given.summaries)
        origin = frames.middle(poses)
        level = Level(options.components, options.points, 0, burn_in=recipe.judge_burn_in)
        rng = np.random.default_rng(options.seed)
        run = Run(*given.drawn, frames, level, rng, options.threads, recipe=recipe)
        drawn = run.draw(options.points)
        fit = run.fit(drawn, frames.enter_poses(poses, origin), level)
        solution = Solution(fit, frames, origin, range(len(poses)))
        result = assemble(given, [solution], recipe=recipe)
        if release:
            free = schedule.trials(run, [fit.poses], drawn).best
            result = replace(result, verdicts=tuple(_compare(fit, free, result.verdicts, recipe)))
        return replace(
            result, poses=poses, history=tuple(history), status=status, options=options.record()
        )


def _compare(
    fit: Fit, free: Fit, verdicts: Sequence[Verdict], recipe: AlignRecipe
) -> Iterator[Verdict]:
    """The verdicts, given how free refinement moved each cloud. Most clouds are taken to stay."""
    twists = loop.relative_twists(fit.poses, free.poses, fit.mixture)
    twists = twists - np.median(twists, axis=0)
    covariance = pose_covariance(
        free.moments, free.mixture, free.poses, UNCONSTRAINED, fit.independent, recipe
    )
    deviations = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0))
    for verdict, twist, deviation in zip(verdicts, twists, deviations, strict=True):
        shift = loop.largest_step(twist[None], RADIUS)
        chance = recipe.same_sigmas * loop.largest_step(deviation[None], RADIUS)
        if shift <= max(recipe.verdict.weak_shift, chance) or verdict.verdict == "failed":
            yield verdict
            continue
        turn = np.degrees(np.linalg.norm(twist[: -fit.mixture.dimension]))
        failed = shift > max(recipe.evidence.distinct / RADIUS, chance)
        reason = (
            f"free refinement turns it by {turn:.3g} degrees and moves its points by up to"
            f" {shift * RADIUS:.1%} of the extent"
        )
        yield replace(verdict, verdict="failed" if failed else "weak", reason=reason)
