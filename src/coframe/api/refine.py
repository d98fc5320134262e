# SPDX-License-Identifier: MIT
"""`refine`: all clouds of a registration moved together once more, from where they are."""

from dataclasses import replace

import numpy as np

from coframe.align.level import Run
from coframe.align.recipe import ALIGN, AlignRecipe, Level
from coframe.align.verdict import downgrade
from coframe.errors import InputError
from coframe.input.given import open_clouds
from coframe.input.normalise import Normalisation
from coframe.input.options import DEFAULTS, Options, check_kind, check_options
from coframe.result.assemble import Solution, assemble
from coframe.result.registration import Registration
from coframe.threads import quiet_blas


@quiet_blas()
def refine(
    result: Registration, *, options: Options = DEFAULTS, recipe: AlignRecipe = ALIGN
) -> Registration:
    """The registration after two passes of `register`'s last level over all its clouds.

    After some clouds were added by `extend`, which moves none of the others, this brings them all
    to where the whole fits best, at a fraction of the cost of `register`.

    Parameters
    ----------
    result : Registration
        With all clouds in one common frame.
    options : Options
    recipe : AlignRecipe
        Every tuned number; for experiments.

    Returns
    -------
    Registration

    Examples
    --------
    >>> result = coframe.refine(coframe.extend(result, cloud))
    """
    check_options(options)
    check_kind("result", result, Registration)
    check_kind("recipe", recipe, AlignRecipe, "an")
    if len(result.groups) > 1:
        raise InputError(
            f"result: expected clouds in one common frame, found {len(result.groups)} groups;"
            " register them again with scans that connect the groups"
        )
    with open_clouds(result.clouds, None, None, threads=options.threads) as given:
        frames = Normalisation.about(given.summaries)
        origin = frames.middle(result.poses)
        level = Level(
            options.components,
            options.points,
            recipe.repeat_iterations,
            tolerance=options.tolerance,
        )
        rng = np.random.default_rng(options.seed)
        run = Run(*given.drawn, frames, level, rng, options.threads, recipe=recipe)
        drawn = run.draw(options.points)
        fit = run.fit(drawn, frames.enter_poses(result.poses, origin), level)
        for _ in range(recipe.repetitions - 1):
            fit = run.fit(drawn, fit.poses, level, history=fit.history)
        solution = Solution(fit, frames, origin, range(len(result.poses)))
        refined = assemble(given, [solution], recipe=recipe)
    return replace(
        refined,
        names=result.names,
        verdicts=downgrade(
            refined.verdicts, {doubt.cloud: doubt.reason for doubt in result.doubts}
        ),
        start=result.start,
        pairs_tried=result.pairs_tried,
        doubts=result.doubts,
        alternatives=result.alternatives,
        warnings=result.warnings,
        attributes=result.attributes,
        files=result.files,
        sizes=result.sizes,
        options=options.record() | {"method": "refine"},
    )
