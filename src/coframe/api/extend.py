# SPDX-License-Identifier: MIT
"""One more cloud in a registration, or one less, at a cost that does not grow with the clouds
already there.

The past is one set of moments, those that the mixture itself stands for: mass, mean and covariance
of each component. It takes part in EM as a cloud that never moves and whose posteriors are frozen.
A new cloud is placed against it, its own moments are added, and what it shows of new surface
becomes new components. Taking its moments off again gives back the mixture as it was. The poses of
the other clouds stay; `register` moves them all.
"""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align import schedule
from coframe.align.covariance import error_covariance
from coframe.align.verdict import LARGE, Verdict, farther, verdicts
from coframe.api.arrival import FLOOR, PAST, Arrival
from coframe.compute.places import Local
from coframe.em import mstep, seeding
from coframe.em.estep import Cloud, Sweep
from coframe.em.growth import PSEUDO, alone, components, implied, joined, only, with_components
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.errors import InputError
from coframe.geometry import extent
from coframe.input.checks import as_clouds, as_poses, as_weights, near
from coframe.input.normalise import Normalisation, Summary
from coframe.input.options import Options
from coframe.input.source import InMemory
from coframe.io import clouds as cloud_files
from coframe.io.scan import Scan
from coframe.result.labels import outlier_probability
from coframe.result.registration import Registration
from coframe.start import search
from coframe.threads import quiet_blas
from coframe.types import Array

STARTS = ("previous", "velocity", "match")
DEFAULTS = Options()


@quiet_blas()
def extend(
    result: Registration,
    cloud: Any,
    pose: Float[Array, "D1 D1"] | str = "previous",
    *,
    weights: Float[Array, " N"] | None = None,
    options: Options = DEFAULTS,
    name: str | None = None,
) -> Registration:
    """The registration with one more cloud. The other poses stay, and the mixture grows where the
    cloud shows new surface.

    cloud: (N, D), anything with `.points` or `.vertices`, or a file. pose: where to start; a
    matrix, "previous" (the pose of the last cloud), "velocity" (the last motion once more), or
    "match" (matched with the merged cloud, from anywhere). weights: of the points; only their
    ratios count.

    >>> result = coframe.extend(result, cloud)
    >>> result.poses[-1], result.verdicts[-1]
    """
    about: Mapping[str, Array] = {}
    file: Path | None = None
    if isinstance(cloud, str | PathLike):
        scan, file = _opened(cloud)
        cloud, name, about = (
            scan.points,
            scan.name if name is None else name,
            scan.numeric_attributes(),
        )
    M = len(result.clouds)
    name = f"cloud {M}" if name is None else name
    cloud = as_clouds([result.clouds[-1], cloud], names=[result.names[-1], name])[1]
    (weight,) = as_weights(None if weights is None else [weights], [cloud])
    start = _start(result, cloud, pose, options)
    rng = np.random.default_rng(options.seed)

    frames, origin = (
        Normalisation.about([Summary.of(InMemory(cloud, weight))]),
        result.mixture.means.mean(0),
    )
    before = replace(
        frames.enter_mixture(result.mixture, origin), visibility=result.mixture.weights[None]
    )
    (inner,) = frames.enter([cloud])
    counted = InMemory(inner, weight).counted()
    some = counted.take(schedule.chosen(len(counted.points), options.points, rng))
    drawn = schedule.prepared(some.points, some.weights)
    arrival = Arrival(drawn, implied(before, result.moments.mass.sum(0)), options.threads)
    placed = arrival.best(near(frames.enter_poses(start[None], origin), [name]), before, rng)
    seeds = arrival.new_surface(placed, rng)
    arrival = replace(
        arrival, past=with_components(arrival.past, seeds.means, seeds.covariances, PSEUDO)
    )
    fit = arrival.settled(placed, joined(before, seeds), options)
    kept = arrival.worthy(fit, len(before))
    fit = replace(fit, mixture=only(fit.mixture, kept), moments=components(fit.moments, kept))

    sweep = Sweep([Cloud.of(inner, weight)], threads=options.threads)
    (assignment,) = sweep.assign(fit.poses[1:], fit.mixture)
    independent = np.array([1.0, drawn.independent])
    covariance = frames.leave_covariance(
        error_covariance(fit.moments, fit.mixture, fit.poses, PAST, independent)[1:]
    )
    outer = frames.leave_mixture(fit.mixture, origin)
    old = with_components(result.moments, outer.means[len(before) :])
    moments = old.with_cloud(frames.leave_moments(fit.moments[1], origin)).recentred(outer.means)
    visibility = np.concatenate(
        [_old_priors(result, len(outer)), seeding.cloud_priors(moments.mass[-1:])]
    )
    extended = replace(
        result,
        clouds=(*result.clouds, cloud),
        names=(*result.names, name),
        poses=np.concatenate([result.poses, frames.leave_poses(fit.poses[1:], origin)]),
        mixture=replace(outer, weights=visibility.mean(0), visibility=visibility),
        moments=moments,
        outlier_probability=(
            *result.outlier_probability,
            outlier_probability(assignment, fit.mixture),
        ),
        labels=(*result.labels, assignment.label),
        pose_covariance=np.concatenate([result.pose_covariance, covariance]),
        status=fit.status,
        attributes=(*(result.attributes or ({},) * M), about) if result.attributes or about else (),
        files=(*result.files, str(file.absolute())) if result.files and file else (),
        groups=_joined_group(result, moments),
        sizes=(),  # of clouds that stay in their files, it is the points at hand that are extended
    )
    return replace(extended, verdicts=(*result.verdicts, _verdict(extended)))


def forget(result: Registration, cloud: int) -> Registration:
    """The registration without one of its clouds. Components that only this cloud saw are gone; no
    pose changes.

    After `extend`, forgetting the new cloud gives back the mixture from before.
    """
    M = len(result.clouds)
    if not 0 <= cloud < M:
        raise InputError(f"cloud: expected 0 to {M - 1}, found {cloud}")
    if M == 1:
        raise InputError("cloud: expected a registration with other clouds, found the last one")
    mixture, rest = result.mixture, result.moments.without_cloud(cloud)
    mass = rest.mass.sum(0)
    left = implied(mixture, result.moments.mass.sum(0)) - result.moments[cloud]
    means = mstep.means(left)
    covariances = mstep.covariances(left, means, 0.0, mixture.covariances)
    # A mixture that EM had not quite settled stands for slightly other moments than those of its
    # clouds; where little is left the difference may be no covariance at all, and the remaining
    # clouds alone decide.
    own_means = mstep.means(rest)
    own = seeding.round_covariances(
        mstep.covariances(rest, own_means, 0.0, mixture.covariances), PSEUDO, mass
    )
    smallest, before = (
        np.linalg.eigvalsh(covariances)[:, 0],
        np.linalg.eigvalsh(mixture.covariances)[:, 0],
    )
    broken = smallest < 1e-3 * before
    floor = FLOOR * max(map(extent, result.clouds)) ** 2 * np.eye(mixture.dimension)
    means = np.where(broken[:, None], own_means, means)
    covariances = np.where(broken[:, None, None], own + floor, covariances)

    kept = mass > mstep.STARVED
    others = np.arange(M) != cloud
    # component -> its new number; -1 stays
    names = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    visibility = None
    if mixture.visibility is not None:
        visibility = _rescaled(
            mixture.visibility[others][:, kept], mixture.visibility[others].sum(1)
        )
    weights = mixture.weights[kept] if visibility is None else visibility.mean(0)

    def rest_of(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values[:cloud] + values[cloud + 1 :]

    return replace(
        result,
        clouds=rest_of(result.clouds),
        names=rest_of(result.names),
        poses=result.poses[others],
        mixture=Mixture(
            means[kept], covariances[kept], weights, mixture.outlier_density, visibility
        ),
        moments=components(rest.recentred(means), kept),
        outlier_probability=rest_of(result.outlier_probability),
        labels=tuple(names[label] for label in rest_of(result.labels)),
        verdicts=rest_of(result.verdicts),
        pose_covariance=result.pose_covariance[others],
        history=tuple(
            replace(step, poses=np.delete(step.poses, cloud, 0))
            for step in result.history
            if len(step.poses) == M
        ),
        attributes=rest_of(result.attributes),
        files=rest_of(result.files),
        sizes=rest_of(result.sizes),
        groups=tuple(
            who
            for group in result.groups
            if (who := tuple(j - (j > cloud) for j in group if j != cloud))
        ),
        doubts=tuple(
            replace(d, cloud=d.cloud - (d.cloud > cloud)) for d in result.doubts if d.cloud != cloud
        ),
    )


def _opened(path: str | PathLike[str]) -> tuple[Scan, Path]:
    scans, files = cloud_files.open_all([path])
    if len(scans) != 1:
        raise InputError(f"{path}: expected one cloud, found {len(scans)}")
    return scans[0], files[0]


def _joined_group(result: Registration, moments: Moments) -> tuple[tuple[int, ...], ...]:
    """The groups, the new cloud in the one whose surface it lies on most."""
    if len(result.groups) < 2:
        return (tuple(range(len(moments.mass))),)
    shared = [
        (moments.mass[-1] * (moments.mass[list(group)].sum(0) > 1)).sum() for group in result.groups
    ]
    return tuple(
        (*group, len(result.clouds)) if g == np.argmax(shared) else group
        for g, group in enumerate(result.groups)
    )


def _start(
    result: Registration,
    cloud: Float[Array, "N D"],
    pose: Float[Array, "D1 D1"] | str,
    options: Options,
) -> Float[Array, "D1 D1"]:
    if not isinstance(pose, str):
        return as_poses(np.asarray(pose)[None], 1, cloud.shape[1], name="pose")[0]
    if pose not in STARTS:
        raise InputError(f"pose: expected a matrix or one of {', '.join(STARTS)}, found {pose!r}")
    last = result.poses[-1]
    if pose == "match":
        return _matched(result, cloud, options)
    return (
        last @ geometry.inverse(result.poses[-2]) @ last
        if pose == "velocity" and len(result.poses) > 1
        else last
    )


def _matched(
    result: Registration, cloud: Float[Array, "N D"], options: Options
) -> Float[Array, "D1 D1"]:
    """The pose that matching with the merged cloud finds; where that finds nothing, the last one,
    and the verdict tells.
    """
    clouds = Local([InMemory(result.merged()), InMemory(cloud)], options.threads)
    found = search.find_start(
        clouds, clouds.map(Summary.of), rng=np.random.default_rng(options.seed), look=False
    )
    scene, new = found.poses[0]
    return result.poses[-1] if len(found.groups) > 1 else geometry.inverse(scene) @ new


def _old_priors(result: Registration, count: int) -> Float[Array, "M K"]:
    """What the old clouds see: the same as before, and of new components as little as of those they
    never saw.
    """
    rows = result.mixture.visibility
    if rows is None:
        rows = np.tile(result.mixture.weights, (len(result.poses), 1))
    unseen = seeding.SMOOTHING / (
        result.moments.mass.sum(1, keepdims=True) + seeding.SMOOTHING * count
    )
    longer = np.concatenate([rows, np.repeat(unseen, count - rows.shape[1], axis=1)], 1)
    return _rescaled(longer, rows.sum(1))


def _rescaled(rows: Float[Array, "M K"], total: Float[Array, " M"]) -> Float[Array, "M K"]:
    """The rows with given sums; those of clouds that see nothing stay zero."""
    return rows * (total / np.maximum(rows.sum(1), mstep.TINY))[:, None]


def _verdict(result: Registration) -> Verdict:
    """The verdict on the last cloud: does it lie where the others, taken together, do, and as near
    as is usual among them?
    """
    stack = alone(result.moments.without_cloud(len(result.clouds) - 1).pooled()).with_cloud(
        result.moments[-1]
    )
    verdict = verdicts(stack, result.mixture)[1]
    typical = float(np.median([other.residual for other in result.verdicts]))
    if verdict.verdict == "aligned" and verdict.residual > LARGE * max(typical, verdict.expected):
        return replace(
            verdict, verdict="weak", reason=f"it lies {farther(verdict.residual, typical)}"
        )
    return verdict
