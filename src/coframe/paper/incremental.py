# SPDX-License-Identifier: MIT
"""JRMPC-I: one cloud after the other, as published."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align.covariance import pose_covariance
from coframe.align.verdict import verdicts
from coframe.em.constraints import Constraints
from coframe.em.estep import Cloud, Sweep
from coframe.em.loop import Status
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.errors import InputError
from coframe.input.checks import as_clouds, as_name, as_poses
from coframe.input.normalise import Normalisation
from coframe.paper import initial
from coframe.paper.batch import SMALLEST_VARIANCE, UpdateSpheres, batch, move
from coframe.result.labels import outlier_probability
from coframe.result.registration import Registration
from coframe.threads import quiet_blas
from coframe.types import Array, Points, Pose, Poses


@quiet_blas()
def integrate(
    result: Registration,
    cloud: Any,
    pose: Pose | None = None,
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
    """One more cloud in a registration of spheres, whose poses do not change (Algorithm 2).

    The past enters as its pooled moments, and each iteration adds those of the new cloud to them:
    means, variances and priors are exactly those of all points together, the posteriors of the old
    ones frozen. The paper's own update formulas differ from that by misprints (see docs/method.md).

    Parameters
    ----------
    result : Registration
        As from `batch`.
    cloud : (N, D) array
    pose : (D+1, D+1) array, optional
        Where to start; default: the pose of the last cloud.
    gamma, epsilon, update_priors, threads
        As in `batch`, whose result this continues.
    iterations : int
    rejected : int
        Components that are given up first, degenerate ones (variance epsilon) before others chosen
        by `rng`, and start anew on points of the new cloud.
    rng : numpy.random.Generator, optional
        Needed where components are rejected.
    name : str, optional

    Returns
    -------
    Registration

    Examples
    --------
    >>> result = coframe.paper.integrate(result, cloud, gamma=0.1)
    """
    name = f"cloud {len(result.clouds)}" if name is None else as_name(name, result.names)
    cloud = as_clouds([result.clouds[-1], cloud], names=[result.names[-1], name])[1]
    if not result.mixture.spherical:
        raise InputError(
            "result: expected a mixture of spheres, as from paper.batch, found ellipsoids; use"
            " coframe.extend"
        )
    D = cloud.shape[1]
    pose = result.poses[-1] if pose is None else as_poses([pose], 1, D, name="pose")[0]
    gamma = 1 / len(result.mixture) if gamma is None else gamma

    frames = Normalisation(np.median(cloud, axis=0)[None], geometry.extent(cloud))
    origin = result.mixture.means.mean(0)
    mixture = frames.enter_mixture(result.mixture, origin)
    stack = frames.enter_moments(result.moments, origin)
    poses = frames.enter_poses(pose[None], origin)
    floor = max(epsilon / frames.scale**2, SMALLEST_VARIANCE)
    inner = Cloud.of(frames.enter([cloud])[0])
    if rejected:
        if rng is None:
            raise InputError(
                "rng: expected a random generator when components are rejected, found none; pass"
                " numpy.random.default_rng(0)"
            )
        seeds = geometry.transform(poses[0], inner.restored(inner.points))
        mixture, stack = _reject(mixture, stack, seeds, rejected, floor, rng)
    past = stack.pooled()
    sweep = Sweep([inner], threads=threads)
    update = UpdateSpheres(gamma, floor, update_priors)
    moments, _ = sweep.moments(poses, mixture, full=True)
    new = moments[0]  # without iterations, what the old mixture says of the cloud
    for _ in range(iterations):
        poses, motions = move(moments, poses, mixture, 0.0)
        new = moments.moved(motions)[0]
        mixture = update(past + new, None, mixture)
        moments, _ = sweep.moments(poses, mixture, full=True)
    (assignment,) = sweep.assign(poses, mixture)
    both = np.concatenate([geometry.identity(1, D), poses])
    stacked = past.stacked().with_cloud(new)
    covariance = pose_covariance(stacked, mixture, both, Constraints(fixed=(0,)))[1:]
    leave = partial(frames.leave_moments, origin=origin)
    outer = frames.leave_mixture(mixture, origin)
    moments = leave(stack).with_cloud(leave(new)).recentred(outer.means)
    probability = outlier_probability(assignment, mixture)
    return replace(
        result,
        clouds=(*result.clouds, cloud),
        names=(*result.names, name),
        poses=np.concatenate([result.poses, frames.leave_poses(poses, origin)]),
        mixture=outer,
        moments=moments,
        outlier_probability=(*result.outlier_probability, probability),
        labels=(*result.labels, assignment.label),
        verdicts=verdicts(moments, outer),
        pose_covariance=np.concatenate(
            [result.pose_covariance, frames.leave_covariance(covariance)]
        ),
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
    poses: Poses | None = None,
    gamma: float | None = None,
    epsilon: float = 1e-6,
    first_iterations: int = 50,
    integrations: int = 1,
    refinements: int = 30,
    rejected: int | None = None,
    fixed_share: float = 0.0,
    update_priors: bool = False,
    threads: int | None = None,
) -> Registration:
    """Joint registration of multiple point clouds, incremental version (JRMPC-I).

    As in the paper's multi-view experiments: the first two clouds are registered by `batch`; then
    each cloud is added by `integrate`, and all clouds so far are refined by `batch`.

    Parameters
    ----------
    clouds : iterable of (N_j, D) arrays
    means : (K, D) array
        The start means x_k.
    rng : numpy.random.Generator
        Chooses components that are rejected.
    variances, poses, gamma, epsilon, update_priors, threads
        As in `batch`.
    first_iterations : int
        Of `batch` on the first two clouds.
    integrations : int
        Iterations of `integrate`.
    refinements : int
        Iterations of `batch` after each cloud; with 0 no old pose changes any more.
    rejected : int, optional
        Components that start anew on each new cloud; default: K / M.
    fixed_share : float
        In this share of the iterations of each `batch` all variances are those of the start, the
        fixed and reasonable value that the paper recommends for sets that are roughly aligned; with
        0, each refinement goes on with the variances it finds.

    Returns
    -------
    Registration

    Examples
    --------
    >>> result = coframe.paper.incremental(clouds, means, rng, poses=start, variances=1e-4)
    """
    clouds = as_clouds(clouds)
    means = np.asarray(means, float)
    K, M = len(means), len(clouds)
    if poses is not None:
        as_poses(poses, M, clouds[0].shape[1])  # refused here, not halfway
    start = (
        initial.poses_by_centroid(clouds, means.mean(0))
        if poses is None
        else np.asarray(poses, float)
    )
    if not 0 <= fixed_share <= 1:
        raise InputError(
            f"fixed_share: expected a share of the iterations, 0 to 1, found {fixed_share}"
        )
    if fixed_share and variances is None:
        raise InputError(
            "variances: expected those of the start, to be kept fixed, found none; pass variances="
        )
    given: dict[str, Any] = {
        "gamma": gamma,
        "epsilon": epsilon,
        "update_priors": update_priors,
        "threads": threads,
    }

    def registered(
        count: int, means: Array, variances: Any, poses: Array, iterations: int
    ) -> Registration:
        fixed = round(fixed_share * iterations)
        known: dict[str, Any] = {
            "variances": variances,
            "poses": poses,
            "fixed_variances": fixed,
            "iterations": iterations,
        }
        return batch(clouds[:count], means, **known, **given)

    result = registered(2, means, variances, start[:2], first_iterations)
    rejected = K // M if rejected is None else rejected
    for m in range(2, M):
        result = integrate(
            result,
            clouds[m],
            start[m],
            iterations=integrations,
            rejected=rejected,
            rng=rng,
            **given,
        )
        if refinements:
            model = result.mixture
            result = registered(
                m + 1,
                model.means,
                variances if fixed_share else model.variances,
                result.poses,
                refinements,
            )
    return result


def _reject(
    mixture: Mixture,
    stack: Moments,
    points: Points,
    count: int,
    floor: float,
    rng: np.random.Generator,
) -> tuple[Mixture, Moments]:
    """Mixture and moments with some components given up and placed on random points of the new
    cloud instead.
    """
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
        np.where(kept.reshape(1, K, *[1] * (a.ndim - 2)), a, 0.0)
        for a in (stack.mass, stack.first, stack.second)
    )
    stack = Moments(stack.about, mass, first, second, stack.points).recentred(means)
    return Mixture.spheres(means, variances, mixture.weights, mixture.outlier_density), stack
