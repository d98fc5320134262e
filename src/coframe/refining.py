# SPDX-License-Identifier: MIT
"""All clouds of a registration moved together once more, from where they lie: what `extend` leaves alone."""

from dataclasses import replace

import numpy as np

from coframe import schedule
from coframe.classify import Labelled
from coframe.clouds import Frames, InputError
from coframe.doors import Options
from coframe.estep import Cloud
from coframe.levels import Level, Runner
from coframe.places import Here
from coframe.registration import FLOOR
from coframe.result import Registration, in_user_units, with_points
from coframe.schedule import Supply
from coframe.source import Loaded
from coframe.sweeps import Sweep, quiet_blas

PASSES = 2  # each with new components
DEFAULTS = Options()


@quiet_blas()
def refine(result: Registration, *, options: Options = DEFAULTS) -> Registration:
    """The registration after two passes of `register`'s last level over all its clouds.

    After some clouds were added by `extend`, which moves none of the others, this brings them all to where all want to be, at a
    fraction of the cost of `register`.

    >>> result = coframe.refine(coframe.extend(result, cloud))
    """
    if len(result.groups) > 1:
        raise InputError(f"result: expected clouds in one common frame, found {len(result.groups)} groups")
    clouds = list(result.clouds)
    frames = Frames.of(clouds)
    origin = frames.middle(result.poses)
    runner = Runner(floor=FLOOR, rng=np.random.default_rng(options.seed), threads=options.threads)
    last = Level(options.components, options.points, schedule.AGAIN, tolerance=options.tolerance)
    supply = Supply(Here(list(map(Loaded, clouds)), options.threads), [len(cloud) for cloud in clouds], frames)
    drawn = supply.drawn(options.points, runner.rng)
    fit = runner.fit(drawn, frames.enter_poses(result.poses, origin), last)
    for _ in range(PASSES - 1):
        fit = runner.fit(drawn, fit.poses, last, history=fit.history)
    sweep = Sweep([Cloud.of(cloud) for cloud in frames.enter(clouds)], threads=options.threads)
    found = [Labelled.of(each, fit.mixture) for each in sweep.assign(fit.poses, fit.mixture)]
    refined = in_user_units(fit, result.names, frames, origin, float(sum(map(len, clouds))))
    return replace(with_points(refined, clouds, found), attributes=result.attributes, files=result.files)
