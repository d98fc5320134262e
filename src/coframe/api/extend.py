# SPDX-License-Identifier: MIT
"""One more cloud in a registration, or one less, at a cost that does not grow with the clouds.

The past is one set of moments, those that the mixture itself stands for: mass, mean and covariance
of each component. It takes part in EM as a cloud that never moves and whose posteriors are frozen.
A new cloud is placed against it, its own moments are added, and what it shows of new surface
becomes new components. Subtracting its moments again gives back the mixture as it was. The poses of
the other clouds do not change; `refine` moves them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align.covariance import error_covariance
from coframe.align.recipe import ALIGN, AlignRecipe
from coframe.align.sampling import draw_rows, prepare
from coframe.align.verdict import Verdict, in_comparison, verdicts
from coframe.api.arrival import PAST, Arrival
from coframe.compute.per_cloud import Local
from coframe.em import mstep
from coframe.em.estep import Cloud, Sweep
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.em.seeding import cloud_priors, round_covariances
from coframe.errors import InputError
from coframe.input.checks import as_clouds, as_name, as_poses, as_weights, check_near
from coframe.input.normalise import Normalisation, Summary
from coframe.input.options import DEFAULTS, Options, check_kind, check_options
from coframe.input.source import InMemory
from coframe.io import clouds as cloud_files
from coframe.io.scan import Scan
from coframe.result.labels import outlier_probability
from coframe.result.registration import Registration
from coframe.start import search
from coframe.threads import quiet_blas
from coframe.types import Array, Points, Pose

STARTS = ("previous", "velocity", "match")
# [guard] Smallest variance over that before a cloud was forgotten: what is left of a component
# that had more is a covariance, and no difference of rounded numbers.
MIN_LEFT = 1e-3


@quiet_blas()
def extend(
    result: Registration,
    cloud: Any,
    pose: Pose | str = "previous",
    *,
    weights: Float[Array, " N"] | None = None,
    options: Options = DEFAULTS,
    name: str | None = None,
    recipe: AlignRecipe = ALIGN,
) -> Registration:
    """The registration with one more cloud.

    The other poses do not change, and the mixture grows where the cloud shows new surface.

    Parameters
    ----------
    result : Registration
    cloud : (N, D) array, anything with `.points` or `.vertices`, or a file
    pose : (D+1, D+1) array or str
        Where to start: a pose, "previous" (that of the last cloud), "velocity" (the last motion
        once more), or "match" (matched with the merged cloud, from anywhere).
    weights : (N,) array, optional
        Of the points; only their ratios count.
    options : Options
    name : str, optional
    recipe : AlignRecipe
        Every tuned number; for experiments.

    Returns
    -------
    Registration

    Examples
    --------
    >>> result = coframe.extend(result, cloud)
    >>> result.poses[-1], result.verdicts[-1]
    """
    check_options(options)
    check_kind("result", result, Registration)
    check_kind("recipe", recipe, AlignRecipe, "an")
    attributes: Mapping[str, Array] = {}
    file: Path | None = None
    if isinstance(cloud, str | PathLike):
        scan, file = _read(cloud)
        name = _free_name(scan.name, result.names) if name is None else name
        cloud, attributes = scan.points, scan.numeric_attributes()
    M = len(result.clouds)
    name = _free_name(f"cloud {M}", result.names) if name is None else name
    name = as_name(name, result.names)
    cloud = as_clouds([result.clouds[-1], cloud], names=[result.names[-1], name])[1]
    (weight,) = as_weights(None if weights is None else [weights], [cloud])
    start = _start(result, cloud, pose, options)
    rng = np.random.default_rng(options.seed)

    # In internal coordinates: the cloud joins the past.
    frames = Normalisation.about([Summary.of(InMemory(cloud, weight))])
    origin = result.mixture.means.mean(0)
    before = frames.enter_mixture(result.mixture, origin)
    before = replace(before, visibility=result.mixture.weights[None])
    (inner,) = frames.enter([cloud])
    counted = InMemory(inner, weight).counted()
    some = counted.take(draw_rows(len(counted.points), options.points, rng))
    drawn = prepare(some.points, some.weights, recipe.denoise)
    pseudo = recipe.model.pseudo_points
    past = Moments.implied_by(before, result.moments.mass.sum(0), pseudo)
    arrival = Arrival(drawn, past, options.threads, recipe)
    first = check_near(frames.enter_poses(start[None], origin), [name])
    localised = arrival.localise(first, before, rng)
    seeds = arrival.new_surface(localised, rng)
    grown = past.with_components(seeds.means, seeds.covariances, pseudo)
    arrival = replace(arrival, past=grown)
    fit = arrival.settle(localised, before.joined(seeds), options)
    kept = arrival.supported(fit, len(before))
    fit = replace(fit, mixture=fit.mixture.kept(kept), moments=fit.moments.kept(kept))
    sweep = Sweep([Cloud.of(inner, weight)], threads=options.threads)
    (assignment,) = sweep.assign(fit.poses[1:], fit.mixture)
    independent = np.array([1.0, drawn.independent])
    covariance = error_covariance(fit.moments, fit.mixture, fit.poses, PAST, independent, recipe)

    # In the user's: the past has one more cloud.
    outer = frames.leave_mixture(fit.mixture, origin)
    old = result.moments.with_components(outer.means[len(before) :])
    moments = old.with_cloud(frames.leave_moments(fit.moments[1], origin)).recentred(outer.means)
    own = cloud_priors(moments.mass[-1:], recipe=recipe.model)
    visibility = np.concatenate([_old_priors(result, len(outer), recipe), own])
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
        pose_covariance=np.concatenate(
            [result.pose_covariance, frames.leave_covariance(covariance[1:])]
        ),
        status=fit.status if result.converged else result.status,
        attributes=_extended(result.attributes, attributes, M),
        files=(*result.files, str(file.absolute())) if result.files and file else (),
        groups=_joined_group(result, moments),
        sizes=(*result.sizes, len(cloud)) if result.sizes else (),
        options=options.record() | {"method": "extend"},
    )
    return replace(extended, verdicts=(*result.verdicts, _verdict(extended, recipe)))


def forget(result: Registration, cloud: int, *, recipe: AlignRecipe = ALIGN) -> Registration:
    """The registration without one of its clouds.

    Components that only this cloud saw are gone; no pose changes. After `extend`, forgetting the
    new cloud gives back the mixture from before.

    Parameters
    ----------
    result : Registration
    cloud : int
        Its index.
    recipe : AlignRecipe
        Every tuned number; for experiments.

    Returns
    -------
    Registration
    """
    check_kind("result", result, Registration)
    M = len(result.clouds)
    if not isinstance(cloud, Integral) or not 0 <= cloud < M:
        raise InputError(f"cloud: expected 0 to {M - 1}, found {cloud!r}")
    if M == 1:
        raise InputError("cloud: expected a registration with other clouds, found the last one")
    mixture, rest = result.mixture, result.moments.without_cloud(cloud)
    mass = rest.mass.sum(0)
    pseudo = recipe.model.pseudo_points
    implied = Moments.implied_by(mixture, result.moments.mass.sum(0), pseudo)
    left = implied - result.moments[cloud]
    means = mstep.means(left)
    covariances = mstep.covariances(left, means, 0.0, mixture.covariances)
    # A mixture that EM had not quite settled stands for slightly other moments than those of its
    # clouds; where little is left the difference may be no covariance at all, and the remaining
    # clouds alone decide.
    own_means = mstep.means(rest)
    own = mstep.covariances(rest, own_means, 0.0, mixture.covariances)
    own = round_covariances(own, pseudo, mass)
    smallest = np.linalg.eigvalsh(covariances)[:, 0]
    before = np.linalg.eigvalsh(mixture.covariances)[:, 0]
    broken = smallest < MIN_LEFT * before
    extent = max(map(geometry.extent, result.clouds))
    floor = recipe.min_variance * extent**2 * np.eye(mixture.dimension)
    means = np.where(broken[:, None], own_means, means)
    covariances = np.where(broken[:, None, None], own + floor, covariances)
    kept = mass > mstep.STARVED
    others = np.arange(M) != cloud
    # Component -> its new number; -1 stays.
    names = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    visibility = None
    if mixture.visibility is not None:
        rows = mixture.visibility[others]
        visibility = _rescaled(rows[:, kept], rows.sum(1))
    weights = mixture.weights[kept] if visibility is None else visibility.mean(0)

    def rest_of(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values[:cloud] + values[cloud + 1 :]

    def renumbered(j: int) -> int:
        return j - (j > cloud)

    groups = [tuple(renumbered(j) for j in group if j != cloud) for group in result.groups]
    return replace(
        result,
        clouds=rest_of(result.clouds),
        names=rest_of(result.names),
        poses=result.poses[others],
        mixture=Mixture(
            means[kept], covariances[kept], weights, mixture.outlier_density, visibility
        ),
        moments=rest.recentred(means).kept(kept),
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
        groups=tuple(group for group in groups if group),
        doubts=tuple(
            replace(doubt, cloud=renumbered(doubt.cloud))
            for doubt in result.doubts
            if doubt.cloud != cloud
        ),
        alternatives=tuple(
            replace(each, clouds=tuple(map(renumbered, each.clouds)))
            for each in result.alternatives
            if cloud not in each.clouds
        ),
    )


def _free_name(name: str, taken: Sequence[str]) -> str:
    """The name, with a number where another cloud has it already."""
    numbered = (f"{name} {number}" for number in count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def _read(path: str | PathLike[str]) -> tuple[Scan, Path]:
    scans, files = cloud_files.open_all([path])
    if len(scans) != 1:
        raise InputError(f"{path}: expected one cloud, found {len(scans)}; extend by one at a time")
    return scans[0], files[0]


def _extended(
    old: tuple[Mapping[str, Array], ...], new: Mapping[str, Array], count: int
) -> tuple[Mapping[str, Array], ...]:
    """The attributes of all clouds, none where no cloud has any."""
    return (*(old or ({},) * count), new) if old or new else ()


def _joined_group(result: Registration, moments: Moments) -> tuple[tuple[int, ...], ...]:
    """The groups, the new cloud in the one whose surface it lies on most."""
    new = len(result.clouds)
    if len(result.groups) < 2:
        return (tuple(range(new + 1)),)
    shared = [
        (moments.mass[-1] * (moments.mass[list(group)].sum(0) > 1)).sum() for group in result.groups
    ]
    joined = int(np.argmax(shared))
    return tuple((*group, new) if g == joined else group for g, group in enumerate(result.groups))


def _start(result: Registration, cloud: Points, pose: Pose | str, options: Options) -> Pose:
    """The pose to start from."""
    if not isinstance(pose, str):
        return as_poses([pose], 1, cloud.shape[1], name="pose")[0]
    if pose not in STARTS:
        choices = ", ".join(STARTS)
        raise InputError(f"pose: expected a matrix or one of {choices}, found {pose!r}")
    last = result.poses[-1]
    if pose == "match":
        return _match(result, cloud, options)
    if pose == "velocity" and len(result.poses) > 1:
        return last @ geometry.inverse(result.poses[-2]) @ last
    return last


def _match(result: Registration, cloud: Points, options: Options) -> Pose:
    """The pose that matching with the merged cloud finds.

    Where that finds nothing it is the last one, and the verdict will be weak or failed.
    """
    clouds = Local([InMemory(result.merged()), InMemory(cloud)], options.threads)
    rng = np.random.default_rng(options.seed)
    found = search.find_start(clouds, clouds.map(Summary.of), rng=rng, try_identity=False)
    scene, new = found.poses[0]
    return result.poses[-1] if len(found.groups) > 1 else geometry.inverse(scene) @ new


def _old_priors(result: Registration, count: int, recipe: AlignRecipe) -> Float[Array, "M K"]:
    """What the old clouds see: as before, and of new components as of those they never saw."""
    rows = result.visibility
    pseudo = recipe.model.pseudo_points
    unseen = pseudo / (result.moments.mass.sum(1, keepdims=True) + pseudo * count)
    longer = np.concatenate([rows, np.repeat(unseen, count - rows.shape[1], axis=1)], 1)
    return _rescaled(longer, rows.sum(1))


def _rescaled(rows: Float[Array, "M K"], total: Float[Array, " M"]) -> Float[Array, "M K"]:
    """The rows with given sums; those of clouds that see nothing stay zero."""
    return rows * (total / np.maximum(rows.sum(1), mstep.TINY))[:, None]


def _verdict(result: Registration, recipe: AlignRecipe) -> Verdict:
    """The verdict on the last cloud: does it lie where the others, taken together, do?"""
    others = result.moments.without_cloud(len(result.clouds) - 1).pooled()
    stack = others.stacked().with_cloud(result.moments[-1])
    verdict = verdicts(stack, result.mixture, recipe.verdict)[1]
    typical = float(np.median([other.residual for other in result.verdicts]))
    limit = recipe.verdict.weak_residual * max(typical, verdict.expected)
    if verdict.verdict == "aligned" and verdict.residual > limit:
        where = in_comparison(verdict.residual, typical)
        return replace(verdict, verdict="weak", reason=f"it lies {where}")
    return verdict
