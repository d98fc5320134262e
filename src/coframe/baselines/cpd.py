# SPDX-License-Identifier: MIT
"""Rigid coherent point drift (Myronenko and Song 2010) in the form of ECMPR (Horaud et al. 2011).

The points of one cloud are the means of a mixture that must explain the other cloud. As in the
paper's footnote, each component has a variance of its own.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.baselines.iterate import Clouds, one_versus_all
from coframe.em import mstep
from coframe.em.estep import Cloud, Sweep
from coframe.em.mixture import Mixture
from coframe.errors import InputError
from coframe.types import Array, Points, Pose, Poses

# [0.1, unknown] CPD's w: the share of points that belong to no component.
OUTLIERS = 0.1
# [paper: epsilon^2] Share of the squared extent that is added to every variance.
FLOOR = 1e-6


def cpd(
    clouds: Clouds, poses: Poses, *, outliers: float = OUTLIERS, threads: int | None = None
) -> Iterator[Poses]:
    """Every cloud onto the first by CPD.

    outliers: the share w of points of the first cloud that the other does not explain.
    """
    if not 0 <= outliers < 1:
        raise InputError(
            f"outliers: expected a share of at least 0 and below 1, found {outliers!r}; leave it"
            f" out for {OUTLIERS}"
        )
    return one_versus_all(partial(pairwise, outliers=outliers, threads=threads), clouds, poses)


def pairwise(
    source: Points,
    target: Float[Array, "K D"],
    motion: Pose,
    *,
    outliers: float = OUTLIERS,
    threads: int | None = None,
) -> Iterator[Pose]:
    """EM: what each point of the target says of each point of the source, then the motion, then the
    variances.
    """
    N, D = source.shape
    sweep = Sweep([Cloud.of(target)], threads=threads)
    unmoved = geometry.identity(1, D)
    weights = np.full(N, (1 - outliers) / N)
    density = outliers / float(np.prod(np.ptp(target, axis=0)))
    means = geometry.transform(motion, source)
    variances = np.full(N, start_variance(means, target))
    while True:
        stack, _ = sweep.moments(unmoved, Mixture.spheres(means, variances, weights, density))
        moments = stack[0]
        virtual = means + moments.first / np.maximum(moments.mass, np.finfo(float).tiny)[:, None]
        motion = geometry.procrustes(source, virtual, moments.mass / variances)
        means = geometry.transform(motion, source)
        variances = mstep.variances(moments, means, FLOOR, variances)
        yield motion


def start_variance(means: Points, target: Float[Array, "K D"]) -> float:
    """The mean of the squared distances of all pairs, per coordinate: CPD's start."""
    return float(np.mean(means.var(0) + target.var(0) + (means.mean(0) - target.mean(0)) ** 2))
