# SPDX-License-Identifier: MIT
"""All clouds of a registration moved together once more, from where they lie: what `extend` leaves
alone.
"""

from dataclasses import replace

import numpy as np

from coframe.align import schedule
from coframe.align.level import Level, Runner
from coframe.align.schedule import Supply
from coframe.align.verdict import doubted
from coframe.api.register import FLOOR
from coframe.em.estep import Cloud, Sweep
from coframe.errors import InputError
from coframe.input import given as opening
from coframe.input.normalise import Normalisation
from coframe.input.options import Options
from coframe.result.labels import PointLabels
from coframe.result.registration import Registration, in_user_units, with_points
from coframe.threads import quiet_blas

PASSES = 2  # each with new components
DEFAULTS = Options()


@quiet_blas()
def refine(result: Registration, *, options: Options = DEFAULTS) -> Registration:
    """The registration after two passes of `register`'s last level over all its clouds.

    After some clouds were added by `extend`, which moves none of the others, this brings them all
    to where all want to be, at a fraction of the cost of `register`.

    >>> result = coframe.refine(coframe.extend(result, cloud))
    """
    if len(result.groups) > 1:
        raise InputError(
            f"result: expected clouds in one common frame, found {len(result.groups)} groups"
        )
    given = opening.arrays(result.clouds, None, result.names, threads=options.threads)
    clouds, frames = [cloud.points for cloud in given.held], Normalisation.about(given.summaries)
    origin = frames.middle(result.poses)
    runner = Runner(floor=FLOOR, rng=np.random.default_rng(options.seed), threads=options.threads)
    last = Level(options.components, options.points, schedule.AGAIN, tolerance=options.tolerance)
    drawn = Supply(given.clouds, [summary.count for summary in given.summaries], frames).drawn(
        options.points, runner.rng
    )
    fit = runner.fit(drawn, frames.enter_poses(result.poses, origin), last)
    for _ in range(PASSES - 1):
        fit = runner.fit(drawn, fit.poses, last, history=fit.history)
    sweep = Sweep([Cloud.of(cloud) for cloud in frames.enter(clouds)], threads=options.threads)
    found = [PointLabels.of(each, fit.mixture) for each in sweep.assign(fit.poses, fit.mixture)]
    refined = with_points(in_user_units(fit, result.names, frames, origin), clouds, found)
    return replace(
        refined,
        verdicts=doubted(refined.verdicts, {doubt.cloud: doubt.reason for doubt in result.doubts}),
        start=result.start,
        pairs_tried=result.pairs_tried,
        doubts=result.doubts,
        warnings=result.warnings,
        attributes=result.attributes,
        files=result.files,
        options=options.record() | {"method": "refine"},
    )
