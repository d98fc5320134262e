# SPDX-License-Identifier: MIT
"""JRMPC-B as published and as the authors run it, on the same kernels as everything else."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em import loop, mstep
from coframe.em.estep import Cloud, Sweep
from coframe.em.loop import Iteration, Status, Steps, Stopping
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.errors import LARGEST_NUMBER, InputError
from coframe.input.checks import as_poses, numbers
from coframe.input.given import open_clouds
from coframe.input.normalise import RADIUS, Normalisation
from coframe.input.options import check_callables
from coframe.paper import initial
from coframe.result.assemble import Solution, assemble
from coframe.result.registration import Registration
from coframe.threads import quiet_blas
from coframe.types import Array, Poses

# [guard] Share of the squared extent: with epsilon = 0, a component on a single point would be
# singular.
SMALLEST_VARIANCE = 1e-20


@quiet_blas()
def batch(
    clouds: Iterable[Any] | str | PathLike[str],
    means: Float[Array, "K D"],
    *,
    variances: Float[Array, " K"] | float | None = None,
    poses: Poses | None = None,
    gamma: float | None = None,
    epsilon: float = 1e-6,
    iterations: int = 100,
    update_priors: bool = False,
    fixed_variances: int = 0,
    tolerance: float = 0.0,
    threads: int | None = None,
    on_iteration: Callable[[Iteration], bool | None] = loop.carry_on,
) -> Registration:
    """Joint registration of multiple point clouds, batch version (Algorithm 1).

    Parameters
    ----------
    clouds : iterable, str or path
        M arrays (N_j, D), or files.
    means : (K, D) array
        The start means x_k; see `coframe.paper.initial` for ways to choose them.
    variances : float or (K,) array, optional
        Start variances sigma_k [unit^2]; default: the squared diagonal of the box around all.
    poses : (M, D+1, D+1) array, optional
        Start poses; default: identity rotations, clouds centred on the mean of the means.
    gamma : float, optional
        Outliers per inlier; 0 leaves the outlier class out. Default: 1 / K.
    epsilon : float
        Added to every variance [unit^2], the paper's epsilon^2.
    iterations : int
        All of them are run unless `tolerance` is set.
    update_priors : bool
        Whether the p_k change.
    fixed_variances : int
        The first iterations that leave the variances alone, which the paper recommends for sets
        that are roughly aligned.
    tolerance : float
        Share of the scene's radius: poses that move less have settled; see `loop.Stopping`.
    threads : int, optional
        Default: all cores; the result does not depend on it.
    on_iteration : callable
        Called after each iteration; returning True ends the run.

    Returns
    -------
    Registration

    Examples
    --------
    >>> means = coframe.paper.initial.means_on_sphere(clouds, 300, rng)
    >>> result = coframe.paper.batch(clouds, means, gamma=0.1)
    >>> result.poses, result.mixture.means, result.mixture.variances
    """
    check_callables(on_iteration=on_iteration)
    with open_clouds(clouds, None, None, threads=threads, keep_strays=True) as given:
        points = [cloud.points for cloud in given.loaded]
        means = numbers("means", means)
        _check(points, means, gamma, epsilon)
        K, D = means.shape
        if poses is None:
            poses = initial.poses_by_centroid(points, means.mean(0))
        else:
            poses = as_poses(poses, len(points), D)
        if variances is None:
            variances = initial.variance_of_box(points, poses, means)
        gamma = 1 / K if gamma is None else gamma
        variances = _as_variances(variances, K)
        weights = np.full(K, 1 / (K * (gamma + 1)))
        density = outlier_density(variances, gamma, D)
        mixture = Mixture.spheres(means, variances, weights, density)

        frames, origin = Normalisation.about(given.summaries), means.mean(0)
        poses, mixture = frames.enter_poses(poses, origin), frames.enter_mixture(mixture, origin)
        sweep = Sweep([Cloud.of(cloud) for cloud in frames.enter(points)], threads=threads)
        floor = max(epsilon / frames.scale**2, SMALLEST_VARIANCE)
        steps = Steps(sweep.moments, move, UpdateSpheres(gamma, floor, update_priors))

        def in_user_units(step: Iteration) -> bool | None:
            return on_iteration(frames.leave_iteration(step, origin))

        fixed = min(fixed_variances, iterations)
        stopping = Stopping(RADIUS, iterations - fixed, tolerance)
        history: tuple[Iteration, ...] = ()
        if fixed:
            fit = loop.batch(
                replace(steps, update=UpdateSpheres(gamma, floor, update_priors, False)),
                poses,
                mixture,
                Stopping(RADIUS, fixed),
                on_iteration=in_user_units,
            )
            poses, mixture, history = fit.poses, fit.mixture, fit.history
        if not fixed or fit.status is not Status.STOPPED:
            fit = loop.batch(
                steps, poses, mixture, stopping, history=history, on_iteration=in_user_units
            )
        if not fit.moments.full:
            full, _ = sweep.moments(fit.poses, fit.mixture, full=True)
            fit = replace(fit, moments=full)
        return assemble(given, [Solution(fit, frames, origin, range(len(points)))])


def move(moments: Moments, poses: Poses, mixture: Mixture, stride: float) -> tuple[Poses, Poses]:
    """M-rigid-step: each cloud by itself. The paper has exact steps only, whatever the stride."""
    new = mstep.poses(moments, poses, mixture)
    return new, new @ geometry.inverse(poses)


@dataclass(frozen=True)
class UpdateSpheres:
    """M-GMM-step, see `loop.MixtureStep`: means, then variances about them, then priors."""

    gamma: float
    floor: float  # epsilon^2
    update_priors: bool
    update_variances: bool = True

    def __call__(self, moments: Moments, motions: Poses | None, mixture: Mixture) -> Mixture:
        """The mixture of the moments after the motions."""
        moved = moments if motions is None else moments.moved(motions)
        means, variances, weights = mstep.means(moved), mixture.variances, mixture.weights
        if self.update_variances:
            variances = mstep.variances(moved, means, self.floor, mixture.variances)
        if self.update_priors:
            weights = mstep.priors(moved, self.gamma)
        return Mixture.spheres(means, variances, weights, mixture.outlier_density)


def outlier_density(variances: Float[Array, " K"], gamma: float, dimension: int) -> float:
    """The uniform term of eq. (8), gamma / (h (gamma + 1)), with h = 2 / mean(1 / sigma_k).

    That is the authors' volume. The paper's posterior drops the Gaussians' (2 pi)^(-D/2) but keeps
    1 / h whole; over true densities the same posterior has a uniform term that is smaller by this
    factor.
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
