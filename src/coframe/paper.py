# SPDX-License-Identifier: MIT
"""JRMPC-B as published and as the authors run it, on the same kernels as everything else."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import em, geometry, mstep
from coframe.arrays import Array
from coframe.clouds import Frames, InputError, as_clouds
from coframe.em import Iteration
from coframe.estep import Cloud
from coframe.mixture import Mixture
from coframe.moments import Moments
from coframe.result import Registration, in_user_units
from coframe.start import poses as start_poses
from coframe.start import scale as start_scale
from coframe.sweeps import Sweep, quiet_blas

SMALLEST_VARIANCE = 1e-20  # of the squared extent: with epsilon = 0, a component on a single point would be singular


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
    on_iteration: Callable[[Iteration], bool | None] = em.carry_on,
) -> Registration:
    """Joint registration of multiple point clouds, batch version (Algorithm 1), with the authors' defaults.

    clouds: M arrays (N_j, D). means: (K, D), the start means x_k; see `coframe.start.means` for ways to choose them.
    variances: start variances sigma_k [unit^2], one or K; default: the squared diagonal of the box around everything.
    poses: start poses; default: identity rotations, clouds centred on the mean of the means.
    gamma: outliers per inlier; 0 leaves the outlier class out; default 1/K.
    epsilon: added to every variance [unit^2], the paper's epsilon^2.
    iterations: run, all of them unless `tolerance` (see `em.batch`) is set. fixed_variances: the first iterations that leave
    the variances alone, which the paper recommends for sets that are roughly aligned.

    >>> result = coframe.paper.batch(clouds, coframe.start.means.on_sphere(clouds, 300, rng), gamma=0.1)
    >>> result.poses, result.mixture.means, result.mixture.variances
    """
    clouds = as_clouds(clouds)
    means = np.asarray(means, float)
    _check(clouds, means, gamma, epsilon)
    poses = start_poses.by_centroid(clouds, means.mean(0)) if poses is None else np.asarray(poses, float)
    if variances is None:
        variances = start_scale.box_diagonal(clouds, poses, means)
    K, D = means.shape
    gamma = 1 / K if gamma is None else gamma
    variances = np.broadcast_to(np.asarray(variances, float), (K,))
    mixture = Mixture.spheres(means, variances, np.full(K, 1 / (K * (gamma + 1))), outlier_density(variances, gamma, D))

    frames, origin = Frames.of(clouds), means.mean(0)
    sweep = Sweep([Cloud.of(cloud) for cloud in frames.enter(clouds)], threads=threads)
    points = float(sweep.points.sum())
    phase = partial(
        em.batch,
        sweep.moments,
        radius=0.5,  # Frames scales the largest cloud to an extent of one
        on_iteration=lambda step: on_iteration(step.in_user_units(frames, origin, points)),
    )
    floor = max(epsilon / frames.scale**2, SMALLEST_VARIANCE)
    step = partial(maximization, gamma=gamma, floor=floor, update_priors=update_priors)
    poses, mixture = frames.enter_poses(poses, origin), frames.enter_mixture(mixture, origin)
    fixed = min(fixed_variances, iterations)
    fit = phase(partial(step, update_variances=False), poses, mixture, iterations=fixed)
    if fit.status is not em.Status.STOPPED:
        fit = phase(
            partial(step, update_variances=True),
            fit.poses,
            fit.mixture,
            iterations=iterations - fixed,
            tolerance=tolerance,
            history=fit.history,
        )
    names = [f"cloud {j}" for j in range(len(clouds))]
    return in_user_units(fit, sweep, clouds, names, frames, origin)


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
    """M-rigid-step, then M-GMM-step, each with what the one before it found. The paper knows no stride but a plain step's."""
    new_poses = mstep.poses(moments, poses, mixture)
    moments = moments.moved(new_poses @ geometry.inverse(poses))
    means = mstep.means(moments)
    variances = mstep.variances(moments, means, floor, mixture.variances) if update_variances else mixture.variances
    weights = mstep.priors(moments, gamma) if update_priors else mixture.weights
    return new_poses, Mixture.spheres(means, variances, weights, mixture.outlier_density)


def outlier_density(variances: Float[Array, " K"], gamma: float, dimension: int) -> float:
    """The uniform term of eq. (8), gamma / (h (gamma + 1)), with the authors' volume h = 2 / mean(1 / sigma_k).

    The paper's posterior drops the Gaussians' (2 pi)^(-D/2) but keeps 1 / h whole; over true densities the same posterior
    has a uniform term that is smaller by this factor.
    """
    h = 2 / np.mean(1 / variances)
    return float(gamma / (h * (gamma + 1)) / (2 * np.pi) ** (dimension / 2))


def _check(clouds: list[Float[Array, "_ D"]], means: Array, gamma: float | None, epsilon: float) -> None:
    D = clouds[0].shape[1]
    if means.ndim != 2 or means.shape[1] != D or not len(means):
        raise InputError(f"means: expected shape (K, {D}), one start mean a row, found shape {means.shape}")
    if not np.isfinite(means).all():
        raise InputError("means: expected finite coordinates, found NaN or infinity")
    if gamma is not None and not (np.isfinite(gamma) and gamma >= 0):
        raise InputError(f"gamma: expected outliers per inlier, a finite number of at least 0, found {gamma}")
    if not (np.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"epsilon: expected a finite variance of at least 0, found {epsilon}")
