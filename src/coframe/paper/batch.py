# SPDX-License-Identifier: MIT
"""JRMPC-B and JRMPC-I as published and as the authors run them, on the same kernels as everything
else.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em import loop, mstep
from coframe.em.estep import Cloud, Sweep
from coframe.em.loop import Iteration
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.errors import LARGEST_NUMBER, InputError
from coframe.input.checks import as_clouds, as_poses, numbers
from coframe.input.normalise import Normalisation
from coframe.paper import initial
from coframe.result.labels import PointLabels
from coframe.result.registration import Registration, in_user_units, with_points
from coframe.threads import quiet_blas
from coframe.types import Array

# of the squared extent: with epsilon = 0, a component on a single point would be singular
SMALLEST_VARIANCE = 1e-20


@quiet_blas()
def batch(
    clouds: Iterable[Any],
    means: Float[Array, "K D"],
    *,
    variances: Float[Array, " K"] | float | None = None,
    poses: Float[Array, "M D1 D1"] | None = None,
    gamma: float | None = None,
    epsilon: float = 1e-6,
    iterations: int = 100,
    update_priors: bool = False,
    fixed_variances: int = 0,
    tolerance: float = 0.0,
    threads: int | None = None,
    on_iteration: Callable[[Iteration], bool | None] = loop.carry_on,
) -> Registration:
    """Joint registration of multiple point clouds, batch version (Algorithm 1), with the authors'
    defaults.

    clouds: M arrays (N_j, D). means: (K, D), the start means x_k; see `coframe.start.means` for
    ways to choose them. variances: start variances sigma_k [unit^2], one or K; default: the squared
    diagonal of the box around everything. poses: start poses; default: identity rotations, clouds
    centred on the mean of the means. gamma: outliers per inlier; 0 leaves the outlier class out;
    default 1/K. epsilon: added to every variance [unit^2], the paper's epsilon^2.
    iterations: run, all of them unless `tolerance` (see `em.batch`) is set. fixed_variances: the
    first iterations that leave the variances alone, which the paper recommends for sets that are
    roughly aligned.

    >>> result = coframe.paper.batch(clouds, coframe.start.means.on_sphere(clouds, 300, rng), gamma=0.1)
    >>> result.poses, result.mixture.means, result.mixture.variances
    """
    clouds = as_clouds(clouds)
    means = np.asarray(means, float)
    _check(clouds, means, gamma, epsilon)
    K, D = means.shape
    poses = (
        initial.poses_by_centroid(clouds, means.mean(0))
        if poses is None
        else as_poses(poses, len(clouds), D)
    )
    if variances is None:
        variances = initial.variance_of_box(clouds, poses, means)
    gamma = 1 / K if gamma is None else gamma
    variances = _as_variances(variances, K)
    mixture = Mixture.spheres(
        means, variances, np.full(K, 1 / (K * (gamma + 1))), outlier_density(variances, gamma, D)
    )

    frames, origin = Normalisation.of(clouds), means.mean(0)
    sweep = Sweep([Cloud.of(cloud) for cloud in frames.enter(clouds)], threads=threads)
    phase = partial(
        loop.batch,
        sweep.moments,
        radius=0.5,  # Normalisation scales the largest cloud to an extent of one
        on_iteration=lambda step: on_iteration(frames.leave_iteration(step, origin)),
    )
    floor = max(epsilon / frames.scale**2, SMALLEST_VARIANCE)
    step = partial(maximization, gamma=gamma, floor=floor, update_priors=update_priors)
    poses, mixture = frames.enter_poses(poses, origin), frames.enter_mixture(mixture, origin)
    fixed = min(fixed_variances, iterations)
    fit = phase(partial(step, update_variances=False), poses, mixture, iterations=fixed)
    if fit.status is not loop.Status.STOPPED:
        fit = phase(
            partial(step, update_variances=True),
            fit.poses,
            fit.mixture,
            iterations=iterations - fixed,
            tolerance=tolerance,
            history=fit.history,
        )
    names = [f"cloud {j}" for j in range(len(clouds))]
    if not fit.moments.full:
        fit = replace(fit, moments=sweep.moments(fit.poses, fit.mixture, full=True)[0])
    result = in_user_units(fit, names, frames, origin)
    found = sweep.assign(fit.poses, fit.mixture)
    return with_points(result, clouds, [PointLabels.of(each, fit.mixture) for each in found])


def maximization(
    moments: Moments,
    poses: Float[Array, "M D1 D1"],
    mixture: Mixture,
    stride: float,
    *,
    gamma: float,
    floor: float,
    update_priors: bool,
    update_variances: bool,
) -> tuple[Float[Array, "M D1 D1"], Mixture]:
    """M-rigid-step, then M-GMM-step, each with what the one before it found.

    The paper knows no stride but a plain step's.
    """
    new_poses = mstep.poses(moments, poses, mixture)
    moments = moments.moved(new_poses @ geometry.inverse(poses))
    means = mstep.means(moments)
    variances = (
        mstep.variances(moments, means, floor, mixture.variances)
        if update_variances
        else mixture.variances
    )
    weights = mstep.priors(moments, gamma) if update_priors else mixture.weights
    return new_poses, Mixture.spheres(means, variances, weights, mixture.outlier_density)


def outlier_density(variances: Float[Array, " K"], gamma: float, dimension: int) -> float:
    """The uniform term of eq. (8), gamma / (h (gamma + 1)), with the authors' volume h = 2 / mean(1
    / sigma_k).

    The paper's posterior drops the Gaussians' (2 pi)^(-D/2) but keeps 1 / h whole; over true
    densities the same posterior has a uniform term that is smaller by this factor.
    """
    h = 2 / np.mean(1 / variances)
    return float(gamma / (h * (gamma + 1)) / (2 * np.pi) ** (dimension / 2))


def _check(
    clouds: list[Float[Array, "_ D"]], means: Array, gamma: float | None, epsilon: float
) -> None:
    D = clouds[0].shape[1]
    if means.ndim != 2 or means.shape[1] != D or not len(means):
        raise InputError(
            f"means: expected shape (K, {D}), one start mean a row, found shape {means.shape}"
        )
    if not np.isfinite(means).all():
        raise InputError("means: expected finite coordinates, found NaN or infinity")
    if gamma is not None and not (np.isfinite(gamma) and gamma >= 0):
        raise InputError(
            f"gamma: expected outliers per inlier, a finite number of at least 0, found {gamma}"
        )
    if not (np.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"epsilon: expected a finite variance of at least 0, found {epsilon}")


def _as_variances(value: Any, count: int) -> Float[Array, " K"]:
    variances = numbers("variances", value)
    if (
        variances.shape not in ((), (count,))
        or not ((variances > 0) & (variances <= LARGEST_NUMBER**2)).all()
    ):
        raise InputError(
            f"variances: expected one number above 0, or {count} of them, found shape"
            f" {variances.shape}"
        )
    return np.broadcast_to(variances, (count,))
