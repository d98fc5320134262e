# SPDX-License-Identifier: MIT
"""Rigid coherent point drift (Myronenko and Song 2010) in the form of ECMPR (Horaud et al. 2011).

The points of one cloud are the means of a mixture that must explain the other cloud. As in the
paper's footnote, each component has a variance of its own.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.baselines import run
from coframe.baselines.icp import ITERATIONS
from coframe.baselines.run import OnIteration
from coframe.em import loop, mstep
from coframe.em.estep import Cloud, Sweep
from coframe.em.mixture import Mixture
from coframe.errors import InputError
from coframe.result.registration import Registration
from coframe.types import Array

OUTLIERS = 0.1  # CPD's w: the share of points that belong to no component
FLOOR = 1e-6  # of the squared extent: added to every variance, the paper's epsilon^2


def cpd(
    clouds: Iterable[Any],
    poses: Float[Array, "M D1 D1"],
    *,
    iterations: int = ITERATIONS,
    outliers: float = OUTLIERS,
    on_iteration: OnIteration = loop.carry_on,
) -> Registration:
    """Every cloud onto the first by CPD. outliers: the share w of points of the first cloud that
    the other does not explain.
    """
    if not 0 <= outliers < 1:
        raise InputError(
            f"outliers: expected a share of at least 0 and below 1, found {outliers!r}"
        )
    solve = partial(run.one_versus_all, partial(pairwise, outliers=outliers))
    return run.run(solve, clouds, poses, iterations=iterations, on_iteration=on_iteration)


def pairwise(
    source: Float[Array, "N D"],
    target: Float[Array, "K D"],
    motion: Float[Array, "D1 D1"],
    *,
    outliers: float = OUTLIERS,
) -> Iterator[Float[Array, "D1 D1"]]:
    """EM: what each point of the target says of each point of the source, then the motion, then the
    variances.
    """
    N, D = source.shape
    sweep, here = Sweep([Cloud.of(target)]), geometry.identity(1, D)
    weights, density = (
        np.full(N, (1 - outliers) / N),
        outliers / float(np.prod(np.ptp(target, axis=0))),
    )
    means = geometry.transform(motion, source)
    variances = np.full(N, start_variance(means, target))
    while True:
        stack, _ = sweep.moments(here, Mixture.spheres(means, variances, weights, density))
        moments = stack[0]
        virtual = means + moments.first / np.maximum(moments.mass, np.finfo(float).tiny)[:, None]
        motion = geometry.procrustes(source, virtual, moments.mass / variances)
        means = geometry.transform(motion, source)
        variances = mstep.variances(moments, means, FLOOR, variances)
        yield motion


def start_variance(means: Float[Array, "N D"], target: Float[Array, "K D"]) -> float:
    """The mean of the squared distances of all pairs, per coordinate: CPD's start."""
    return float(np.mean(means.var(0) + target.var(0) + (means.mean(0) - target.mean(0)) ** 2))
