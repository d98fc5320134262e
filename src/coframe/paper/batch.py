# SPDX-License-Identifier: MIT
"""JRMPC-B and JRMPC-I as published and as the authors run them, on the same kernels as everything else."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em import loop, mstep
from coframe.types import Array
from coframe.align.verdict import pose_covariance, verdicts
from coframe.result.labels import Labelled, outlier_probability
from coframe.input.checks import LARGEST_NUMBER, Frames, InputError, as_clouds, extent
from coframe.input.options import as_poses, numbers
from coframe.em.loop import Iteration, Status
from coframe.em.estep import Cloud
from coframe.em.joint import Constraints
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.result.registration import Registration, in_user_units, with_points
from coframe.paper import initial_poses as start_poses
from coframe.paper import initial_scale as start_scale
from coframe.em.sweeps import Sweep, quiet_blas

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
    on_iteration: Callable[[Iteration], bool | None] = loop.carry_on,
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
    K, D = means.shape
    poses = start_poses.by_centroid(clouds, means.mean(0)) if poses is None else as_poses(poses, len(clouds), D)
    if variances is None:
        variances = start_scale.box_diagonal(clouds, poses, means)
    gamma = 1 / K if gamma is None else gamma
    variances = _as_variances(variances, K)
    mixture = Mixture.spheres(means, variances, np.full(K, 1 / (K * (gamma + 1))), outlier_density(variances, gamma, D))

    frames, origin = Frames.of(clouds), means.mean(0)
    sweep = Sweep([Cloud.of(cloud) for cloud in frames.enter(clouds)], threads=threads)
    phase = partial(
        loop.batch,
        sweep.moments,
        radius=0.5,  # Frames scales the largest cloud to an extent of one
        on_iteration=lambda step: on_iteration(step.in_user_units(frames, origin)),
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
    return with_points(result, clouds, [Labelled.of(each, fit.mixture) for each in found])


@quiet_blas()
def integrate(
    result: Registration,
    cloud: Any,
    pose: Float[Array, "D1 D1"] | None = None,
    *,
    gamma: float | None = None,
    epsilon: float = 1e-6,
    iterations: int = 1,
    update_priors: bool = False,
    rejected: int = 0,
    rng: np.random.Generator | None = None,
    name: str | None = None,
    threads: int | None = None,
) -> Registration:
    """One more cloud in a registration of spheres, whose poses stay as they are (Algorithm 2).

    The past enters as its pooled moments, and each iteration adds those of the new cloud to them: means, variances and
    priors are exactly those of all points together, the posteriors of the old ones frozen. The paper's own update formulas
    differ from that by misprints (see docs/method.md).

    pose: where to start; default: the pose of the last cloud. gamma, epsilon: as in `batch`, whose result this continues.
    rejected: so many components are given up first, degenerate ones (variance epsilon) before others chosen by `rng`, and
    start anew on points of the new cloud.

    >>> result = coframe.paper.integrate(result, cloud, gamma=0.1)
    """
    name = f"cloud {len(result.clouds)}" if name is None else name
    cloud = as_clouds([result.clouds[-1], cloud], names=[result.names[-1], name])[1]
    if not result.mixture.spherical:
        raise InputError("result: expected a mixture of spheres, as from paper.batch, found ellipsoids; use coframe.extend")
    D = cloud.shape[1]
    pose = result.poses[-1] if pose is None else as_poses(np.asarray(pose)[None], 1, D, name="pose")[0]
    gamma = 1 / len(result.mixture) if gamma is None else gamma

    frames = Frames(np.median(cloud, axis=0)[None], extent(cloud))
    origin = result.mixture.means.mean(0)
    mixture = frames.enter_mixture(result.mixture, origin)
    stack = frames.enter_moments(result.moments, origin)
    poses = frames.enter_poses(pose[None], origin)
    floor = max(epsilon / frames.scale**2, SMALLEST_VARIANCE)
    inner = Cloud.of(frames.enter([cloud])[0])
    if rejected:
        if rng is None:
            raise InputError("rng: expected a random generator when components are rejected, found none")
        seeds = geometry.transform(poses[0], inner.restored(inner.points))
        mixture, stack = _rejected(mixture, stack, seeds, rejected, floor, rng)
    past = stack.pooled()
    sweep = Sweep([inner], threads=threads)
    moments, _ = sweep.moments(poses, mixture, full=True)
    for _ in range(iterations):
        new_poses = mstep.poses(moments, poses, mixture)
        moments = moments.moved(new_poses @ geometry.inverse(poses))
        poses, both = new_poses, past + moments[0]
        means = mstep.means(both)
        variances = mstep.variances(both, means, floor, mixture.variances)
        weights = mstep.priors(both, gamma) if update_priors else mixture.weights
        mixture = Mixture.spheres(means, variances, weights, mixture.outlier_density)
        last, (moments, _) = moments, sweep.moments(poses, mixture, full=True)
    new = last[0] if iterations else moments[0]  # the moments behind the mixture, or what the old mixture says of the cloud
    (assignment,) = sweep.assign(poses, mixture)
    pair = Constraints(fixed=(0,))
    two = replace(past, mass=past.mass[None], first=past.first[None], second=past.second[None], points=past.points[None])
    two_poses = np.concatenate([geometry.identity(1, D), poses])
    covariance = pose_covariance(two.with_cloud(new), mixture, two_poses, pair)[1:]
    leave = partial(frames.leave_moments, origin=origin)
    outer = frames.leave_mixture(mixture, origin)
    moments = leave(stack).with_cloud(leave(new)).recentred(outer.means)
    return replace(
        result,
        clouds=(*result.clouds, cloud),
        names=(*result.names, name),
        poses=np.concatenate([result.poses, frames.leave_poses(poses, origin)]),
        mixture=outer,
        moments=moments,
        outlier_probability=(*result.outlier_probability, outlier_probability(assignment, mixture)),
        labels=(*result.labels, assignment.label),
        verdicts=verdicts(moments, outer),
        pose_covariance=np.concatenate([result.pose_covariance, frames.leave_covariance(covariance)]),
        status=Status.ITERATION_LIMIT,
        groups=(tuple(range(len(result.clouds) + 1)),),
        attributes=(*result.attributes, {}) if result.attributes else (),
        files=(),
        sizes=(),
    )


def incremental(
    clouds: Iterable[Any],
    means: Float[Array, "K D"],
    rng: np.random.Generator,
    *,
    variances: Float[Array, " K"] | float | None = None,
    poses: Float[Array, "M D1 D1"] | None = None,
    gamma: float | None = None,
    epsilon: float = 1e-6,
    first_iterations: int = 50,
    integrations: int = 1,
    refinements: int = 30,
    rejected: int | None = None,
    held: float = 0.0,
    update_priors: bool = False,
    threads: int | None = None,
) -> Registration:
    """Joint registration of multiple point clouds, incremental version (JRMPC-I), as in the paper's multi-view experiments.

    The first two clouds are registered by `batch` (first_iterations); then each cloud is added by `integrate` (integrations),
    with `rejected` components (default K/M) started anew on it, and all clouds so far are refined by `batch` (refinements).
    With refinements = 0 no old pose changes any more. held: in this share of the iterations of each `batch` all variances are
    those of the start, the fixed and reasonable value that the paper recommends for sets that are roughly aligned; with 0,
    each refinement goes on with the variances it finds. Start poses: identity rotations, clouds centred on the mean of the
    means, as in `batch`.

    >>> result = coframe.paper.incremental(clouds, means, rng, poses=start, variances=1e-4)
    """
    clouds = as_clouds(clouds)
    means = np.asarray(means, float)
    K, M = len(means), len(clouds)
    if poses is not None:
        as_poses(poses, M, clouds[0].shape[1])  # refused here, not halfway
    start = start_poses.by_centroid(clouds, means.mean(0)) if poses is None else np.asarray(poses, float)
    if not 0 <= held <= 1:
        raise InputError(f"held: expected a share of the iterations, 0 to 1, found {held}")
    if held and variances is None:
        raise InputError("variances: expected those of the start, which are to be held, found none")
    given: dict[str, Any] = {"gamma": gamma, "epsilon": epsilon, "update_priors": update_priors, "threads": threads}

    def registered(count: int, means: Array, variances: Any, poses: Array, iterations: int) -> Registration:
        fixed = round(held * iterations)
        known: dict[str, Any] = {"variances": variances, "poses": poses, "fixed_variances": fixed, "iterations": iterations}
        return batch(clouds[:count], means, **known, **given)

    result = registered(2, means, variances, start[:2], first_iterations)
    rejected = K // M if rejected is None else rejected
    for m in range(2, M):
        result = integrate(result, clouds[m], start[m], iterations=integrations, rejected=rejected, rng=rng, **given)
        if refinements:
            model = result.mixture
            result = registered(m + 1, model.means, variances if held else model.variances, result.poses, refinements)
    return result


def _rejected(
    mixture: Mixture, stack: Moments, points: Float[Array, "N D"], count: int, floor: float, rng: np.random.Generator
) -> tuple[Mixture, Moments]:
    """Mixture and moments with some components given up and placed on random points of the new cloud instead."""
    K = len(mixture)
    if not 0 <= count <= min(K, len(points)):
        raise InputError(f"rejected: expected 0 to {min(K, len(points))} components, found {count}")
    degenerate = mixture.variances <= floor * (1 + 1e-9)
    gone = np.lexsort((rng.random(K), ~degenerate))[:count]
    kept = np.ones(K, bool)
    kept[gone] = False
    means, variances = mixture.means.copy(), mixture.variances.copy()
    means[gone] = points[rng.choice(len(points), count, replace=False)]
    variances[gone] = np.median(mixture.variances[kept]) if kept.any() else variances[gone]
    mass, first, second = (
        np.where(kept.reshape(1, K, *[1] * (a.ndim - 2)), a, 0.0) for a in (stack.mass, stack.first, stack.second)
    )
    stack = Moments(stack.about, mass, first, second, stack.points).recentred(means)
    return Mixture.spheres(means, variances, mixture.weights, mixture.outlier_density), stack


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


def _as_variances(value: Any, count: int) -> Float[Array, " K"]:
    variances = numbers("variances", value)
    if variances.shape not in ((), (count,)) or not ((variances > 0) & (variances <= LARGEST_NUMBER**2)).all():
        raise InputError(f"variances: expected one number above 0, or {count} of them, found shape {variances.shape}")
    return np.broadcast_to(variances, (count,))
