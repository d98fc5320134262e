# SPDX-License-Identifier: MIT
"""."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align.covariance import pose_covariance
from coframe.align.verdict import verdicts
from coframe.em import mstep
from coframe.em.estep import Cloud, Sweep
from coframe.em.joint import Constraints
from coframe.em.loop import Status
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.errors import InputError
from coframe.geometry import extent
from coframe.input.checks import as_clouds, as_poses
from coframe.input.normalise import Normalisation
from coframe.paper import initial
from coframe.paper.batch import SMALLEST_VARIANCE, batch
from coframe.result.labels import outlier_probability
from coframe.result.registration import Registration
from coframe.threads import quiet_blas
from coframe.types import Array


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

    The past enters as its pooled moments, and each iteration adds those of the new cloud to them:
    means, variances and priors are exactly those of all points together, the posteriors of the old
    ones frozen. The paper's own update formulas differ from that by misprints (see docs/method.md).

    pose: where to start; default: the pose of the last cloud. gamma, epsilon: as in `batch`, whose
    result this continues. rejected: so many components are given up first, degenerate ones
    (variance epsilon) before others chosen by `rng`, and start anew on points of the new cloud.

    >>> result = coframe.paper.integrate(result, cloud, gamma=0.1)
    """
    name = f"cloud {len(result.clouds)}" if name is None else name
    cloud = as_clouds([result.clouds[-1], cloud], names=[result.names[-1], name])[1]
    if not result.mixture.spherical:
        raise InputError(
            "result: expected a mixture of spheres, as from paper.batch, found ellipsoids; use"
            " coframe.extend"
        )
    D = cloud.shape[1]
    pose = (
        result.poses[-1] if pose is None else as_poses(np.asarray(pose)[None], 1, D, name="pose")[0]
    )
    gamma = 1 / len(result.mixture) if gamma is None else gamma

    frames = Normalisation(np.median(cloud, axis=0)[None], extent(cloud))
    origin = result.mixture.means.mean(0)
    mixture = frames.enter_mixture(result.mixture, origin)
    stack = frames.enter_moments(result.moments, origin)
    poses = frames.enter_poses(pose[None], origin)
    floor = max(epsilon / frames.scale**2, SMALLEST_VARIANCE)
    inner = Cloud.of(frames.enter([cloud])[0])
    if rejected:
        if rng is None:
            raise InputError(
                "rng: expected a random generator when components are rejected, found none"
            )
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
    # the moments behind the mixture, or what the old mixture says of the cloud
    new = last[0] if iterations else moments[0]
    (assignment,) = sweep.assign(poses, mixture)
    pair = Constraints(fixed=(0,))
    two = replace(
        past,
        mass=past.mass[None],
        first=past.first[None],
        second=past.second[None],
        points=past.points[None],
    )
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
    """Joint registration of multiple point clouds, incremental version (JRMPC-I), as in the paper's
    multi-view experiments.

    The first two clouds are registered by `batch` (first_iterations); then each cloud is added by
    `integrate` (integrations), with `rejected` components (default K/M) started anew on it, and all
    clouds so far are refined by `batch` (refinements). With refinements = 0 no old pose changes any
    more. held: in this share of the iterations of each `batch` all variances are those of the
    start, the fixed and reasonable value that the paper recommends for sets that are roughly
    aligned; with 0, each refinement goes on with the variances it finds. Start poses: identity
    rotations, clouds centred on the mean of the means, as in `batch`.

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
    if not 0 <= held <= 1:
        raise InputError(f"held: expected a share of the iterations, 0 to 1, found {held}")
    if held and variances is None:
        raise InputError("variances: expected those of the start, which are to be held, found none")
    given: dict[str, Any] = {
        "gamma": gamma,
        "epsilon": epsilon,
        "update_priors": update_priors,
        "threads": threads,
    }

    def registered(
        count: int, means: Array, variances: Any, poses: Array, iterations: int
    ) -> Registration:
        fixed = round(held * iterations)
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
                variances if held else model.variances,
                result.poses,
                refinements,
            )
    return result


def _rejected(
    mixture: Mixture,
    stack: Moments,
    points: Float[Array, "N D"],
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
