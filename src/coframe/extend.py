# SPDX-License-Identifier: MIT
"""One more cloud in a registration, or one less, at a cost that does not grow with the clouds already there.

The past is one set of moments, those that the mixture itself stands for: mass, mean and covariance of each component. It takes
part in EM as a cloud that never moves and whose posteriors are frozen. A new cloud is placed against it, its own moments are
added, and what it shows of new surface becomes new components. Taking its moments off again gives back the mixture as it was.
The poses of the other clouds stay; `register` moves them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

from coframe import em, geometry, joint, mstep, schedule
from coframe.arrays import Array
from coframe.assess import LARGE, Verdict, pose_covariance, verdicts
from coframe.classify import outlier_probability
from coframe.clouds import Frames, InputError, Summary, as_clouds, extent
from coframe.doors import Options, as_poses, as_weights
from coframe.em import Fit
from coframe.estep import Cloud
from coframe.export import columns
from coframe.io import clouds as cloud_files
from coframe.io.scan import Scan
from coframe.joint import Constraints
from coframe.mixture import Mixture
from coframe.moments import Moments
from coframe.placement import Target, place
from coframe.places import Here
from coframe.result import Registration
from coframe.source import Loaded
from coframe.start import nothing
from coframe.sweeps import Sweep, quiet_blas

FLOOR = 1e-7  # of the squared extent, as in `register`
PSEUDO = 0.1  # points that each component is worth beyond those it has seen: none is ever singular
STARTS = ("previous", "velocity", "match")
REACHES = ((0.0,), (0.02, 0.0), (0.05, 0.017, 0.0), (0.15, 0.05, 0.017, 0.0))  # of the extent: how far off a cloud may start
FEW = 400  # points that try a reach
STEPS, LAST = 5, 5  # of a trial: for each reach, and more for the last
SETTLING = 3  # iterations with all points, from the best trial
MATURING = 3  # iterations with the pose held, for new components
CHEAP = 0.05  # nats per point: components that may become one at this price do
NEIGHBOURS = 8  # that a component may become one with
PAST = Constraints(fixed=(0,))  # of two clouds, the past and the new one
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
    """The registration with one more cloud. The other poses stay, and the mixture grows where the cloud shows new surface.

    cloud: (N, D), anything with `.points` or `.vertices`, or a file. pose: where to start; a matrix, "previous" (the pose of
    the last cloud), "velocity" (the last motion once more), or "match" (matched with the merged cloud, from anywhere).
    weights: of the points; only their ratios count.

    >>> result = coframe.extend(result, cloud)
    >>> result.poses[-1], result.verdicts[-1]
    """
    about: Mapping[str, Array] = {}
    file: Path | None = None
    if isinstance(cloud, str | PathLike):
        scan, file = _opened(cloud)
        cloud, name, about = scan.points, scan.name if name is None else name, columns(scan)
    M = len(result.clouds)
    name = f"cloud {M}" if name is None else name
    cloud = as_clouds([result.clouds[-1], cloud], names=[result.names[-1], name])[1]
    (weight,) = as_weights(None if weights is None else [weights], [cloud])
    start = _start(result, cloud, pose, options)
    rng = np.random.default_rng(options.seed)

    frames, origin = Frames(np.median(cloud, axis=0)[None], extent(cloud)), result.mixture.means.mean(0)
    before = replace(frames.enter_mixture(result.mixture, origin), visibility=result.mixture.weights[None])
    (inner,) = frames.enter([cloud])
    some = Loaded(inner, weight).take(schedule.chosen(len(inner), options.points, rng))
    drawn = schedule.prepared(some.points, some.weights)
    arrival = Arrival(drawn, implied(before, result.moments.mass.sum(0)), options.threads)
    placed = arrival.best(frames.enter_poses(start[None], origin), before, rng)
    seeds = arrival.new_surface(placed, rng)
    arrival = replace(arrival, past=with_components(arrival.past, seeds.means, seeds.covariances, PSEUDO))
    fit = arrival.settled(placed, joined(before, seeds), options)
    kept = arrival.worthy(fit, len(before))
    fit = replace(fit, mixture=only(fit.mixture, kept), moments=components(fit.moments, kept))

    sweep = Sweep([Cloud.of(inner, weight)], threads=options.threads)
    (assignment,) = sweep.assign(fit.poses[1:], fit.mixture)
    covariance = frames.leave_covariance(pose_covariance(fit.moments, fit.mixture, fit.poses, PAST)[1:])
    outer = frames.leave_mixture(fit.mixture, origin)
    old = with_components(result.moments, outer.means[len(before) :])
    moments = old.with_cloud(frames.leave_moments(fit.moments[1], origin)).recentred(outer.means)
    visibility = np.concatenate([_old_priors(result, len(outer)), schedule.priors(moments.mass[-1:])])
    extended = replace(
        result,
        clouds=(*result.clouds, cloud),
        names=(*result.names, name),
        poses=np.concatenate([result.poses, frames.leave_poses(fit.poses[1:], origin)]),
        mixture=replace(outer, weights=visibility.mean(0), visibility=visibility),
        moments=moments,
        outlier_probability=(*result.outlier_probability, outlier_probability(assignment, fit.mixture)),
        labels=(*result.labels, assignment.label),
        pose_covariance=np.concatenate([result.pose_covariance, covariance]),
        status=fit.status,
        attributes=(*(result.attributes or ({},) * M), about) if result.attributes or about else (),
        files=(*result.files, str(file.absolute())) if result.files and file else (),
        groups=_joined_group(result, moments),
    )
    return replace(extended, verdicts=(*result.verdicts, _verdict(extended)))


def forget(result: Registration, cloud: int) -> Registration:
    """The registration without one of its clouds. Components that only this cloud saw are gone; no pose changes.

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
    # A mixture that EM had not quite settled stands for slightly other moments than those of its clouds; where little is left
    # the difference may be no covariance at all, and the remaining clouds alone decide.
    own_means = mstep.means(rest)
    own = schedule.rounded(mstep.covariances(rest, own_means, 0.0, mixture.covariances), PSEUDO, mass)
    smallest, before = np.linalg.eigvalsh(covariances)[:, 0], np.linalg.eigvalsh(mixture.covariances)[:, 0]
    broken = smallest < 1e-3 * before
    floor = FLOOR * max(map(extent, result.clouds)) ** 2 * np.eye(mixture.dimension)
    means = np.where(broken[:, None], own_means, means)
    covariances = np.where(broken[:, None, None], own + floor, covariances)

    kept = mass > mstep.STARVED
    others = np.arange(M) != cloud
    names = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # component -> its new number; -1 stays
    visibility = None
    if mixture.visibility is not None:
        visibility = mixture.visibility[others][:, kept]
        visibility = visibility * (mixture.visibility[others].sum(1) / visibility.sum(1))[:, None]
    weights = mixture.weights[kept] if visibility is None else visibility.mean(0)

    def rest_of(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values[:cloud] + values[cloud + 1 :]

    return replace(
        result,
        clouds=rest_of(result.clouds),
        names=rest_of(result.names),
        poses=result.poses[others],
        mixture=Mixture(means[kept], covariances[kept], weights, mixture.outlier_density, visibility),
        moments=components(rest.recentred(means), kept),
        outlier_probability=rest_of(result.outlier_probability),
        labels=tuple(names[label] for label in rest_of(result.labels)),
        verdicts=rest_of(result.verdicts),
        pose_covariance=result.pose_covariance[others],
        history=tuple(replace(step, poses=np.delete(step.poses, cloud, 0)) for step in result.history if len(step.poses) == M),
        attributes=rest_of(result.attributes),
        files=rest_of(result.files),
        groups=tuple(who for group in result.groups if (who := tuple(j - (j > cloud) for j in group if j != cloud))),
        doubts=tuple(replace(d, cloud=d.cloud - (d.cloud > cloud)) for d in result.doubts if d.cloud != cloud),
    )


def tidied(result: Registration, cost: float = CHEAP) -> Registration:
    """The registration with components merged that are hardly needed apart: at `cost` nats per point of theirs, at most.

    The price of a merger is that of Runnalls (2007), an upper bound of what the likelihood loses.
    """
    mixture, moments, into = result.mixture, result.moments, np.arange(len(result.mixture))
    while True:
        mass = moments.mass.sum(0)
        pairs = _cheap_pairs(mixture, mass, cost)
        if not len(pairs):
            break
        target = np.arange(len(mixture))
        target[pairs[:, 1]] = pairs[:, 0]
        kept = target == np.arange(len(mixture))
        number, meeting = (np.cumsum(kept) - 1)[target], mixture.means[target]
        total = _summed(implied(mixture, mass).recentred(meeting), number)
        means = mstep.means(total)
        covariances = mstep.covariances(total, means, 0.0, mixture.covariances[kept])
        weights = _gathered(mixture.weights[None], number)[0]
        visibility = None if mixture.visibility is None else _gathered(mixture.visibility, number)
        mixture = Mixture(means, covariances, weights, mixture.outlier_density, visibility)
        moments, into = _summed(moments.recentred(meeting), number).recentred(means), number[into]
    labels = tuple(np.append(into, -1)[label] for label in result.labels)
    return replace(result, mixture=mixture, moments=moments, labels=labels)


@dataclass(frozen=True)
class Arrival:
    """A new cloud and the past that it comes to: EM over these two, of which only the cloud moves."""

    cloud: Cloud
    past: Moments
    threads: int | None

    def expect(self, poses: Float[Array, "2 D1 D1"], mixture: Mixture) -> tuple[Moments, Float[Array, " 2"]]:
        """The E-step: the past as it always was, the cloud as the mixture sees it now."""
        sweep = Sweep([self.cloud], threads=self.threads, tolerance=schedule.TOLERANCE)
        moments, log_likelihood = sweep.moments(poses[1:], mixture, full=True)
        past = self.past.recentred(mixture.means)
        held = mixture.means is self.past.about  # what does not change need not be known
        old = 0.0 if held else _log_likelihood(past, mixture)
        return _alone(past).with_cloud(moments[0]), np.append(old, log_likelihood)

    def run(self, poses: Float[Array, "2 D1 D1"], mixture: Mixture, step: "Step", iterations: int, tolerance: float) -> Fit:
        return em.batch(
            self.expect,
            step,
            poses,
            mixture,
            radius=schedule.RADIUS,
            iterations=iterations,
            tolerance=tolerance,
            gain=schedule.GAIN,
            bold=not step.hold,
            penalty=lambda poses, mixture: schedule.log_visibility_prior(mixture),
        )

    def best(self, pose: Float[Array, "1 D1 D1"], mixture: Mixture, rng: np.random.Generator) -> Fit:
        """The cloud in its place, the mixture as it is: tried with components of different reach, by the likelihood."""
        few = schedule.some_of(self.cloud, schedule.chosen(len(self.cloud), FEW, rng))
        start = replace(mixture, visibility=None)
        trials = [
            place(Target.of(start, reaches, 1.0), few, pose[0], STEPS * len(reaches) + LAST, each=STEPS) for reaches in REACHES
        ]
        best = max(trials, key=lambda trial: trial.value)
        poses = np.concatenate([geometry.identity(1, mixture.dimension), best.pose[None]])
        return self.run(poses, mixture, Step.against(mixture), SETTLING, 1e-3)

    def new_surface(self, fit: Fit, rng: np.random.Generator) -> Mixture:
        """Components on what the mixture does not explain, as fine as the rest."""
        sweep = Sweep([self.cloud], threads=self.threads)
        (assignment,) = sweep.assign(fit.poses[1:], fit.mixture)
        points = geometry.transform(fit.poses[1], self.cloud.restored(self.cloud.points))[assignment.label < 0]
        D = points.shape[1]
        if len(points) < schedule.LEAST_POINTS:
            return Mixture(np.zeros((0, D)), np.zeros((0, D, D)), np.zeros(0), fit.mixture.outlier_density, np.zeros((1, 0)))
        own = fit.moments.mass[1]
        typical = float((own**2).sum() / max(own.sum(), mstep.STARVED))
        count = max(1, round(len(points) / max(typical, schedule.LEAST_POINTS)))
        seeds = schedule.seeded(points, 1, count, FLOOR, geometry.random_rotation(rng, D))
        share = len(points) / len(self.cloud) / len(seeds) * (1 - schedule.OUTLIERS)
        return replace(seeds, weights=np.full(len(seeds), share), visibility=np.full((1, len(seeds)), share))

    def settled(self, placed: Fit, mixture: Mixture, options: Options) -> Fit:
        """Pose and mixture together, after new components have found their shape; the mixture is that of the moments."""
        poses = placed.poses
        if len(mixture) > len(placed.mixture):
            mixture = self.run(poses, mixture, Step(hold=True), MATURING, 0.0).mixture
        fit = self.run(poses, mixture, Step(), options.iterations, options.tolerance)
        _, mixture = Step(hold=True)(fit.moments, fit.poses, fit.mixture, 0.0)
        return replace(fit, mixture=mixture, moments=fit.moments.recentred(mixture.means))

    def worthy(self, fit: Fit, old: int) -> Bool[Array, " K"]:
        """All old components, and new ones that a few points support and that are denser than the uniform class."""
        mixture = fit.mixture
        dense = np.log(mixture.weights) + mixture.log_peaks > np.log(max(mixture.outlier_density, np.finfo(float).tiny))
        return (np.arange(len(mixture)) < old) | (dense & (fit.moments.mass[1] > mixture.dimension + 1))


@dataclass(frozen=True)
class Step:
    """The M-step of an arrival."""

    hold: bool = False  # leave the pose alone
    frozen: Float[Array, "K D D"] | None = None  # leave the mixture alone; its precisions, softened

    @classmethod
    def against(cls, mixture: Mixture) -> "Step":
        """Only the pose moves."""
        return cls(frozen=joint.softened(mixture.covariances))

    def __call__(
        self, moments: Moments, poses: Float[Array, "2 D1 D1"], mixture: Mixture, stride: float
    ) -> tuple[Float[Array, "2 D1 D1"], Mixture]:
        if not self.hold:
            motions = self._motions(moments, poses, mixture, stride)
            poses, moments = motions @ poses, moments.moved(motions)
        visibility = schedule.priors(moments.mass[1:])
        mixture = replace(mixture, weights=visibility[0], visibility=visibility)
        if self.frozen is not None:
            return poses, mixture
        pooled = moments.pooled()
        means = mstep.means(pooled)
        return poses, replace(mixture, means=means, covariances=mstep.covariances(pooled, means, 0.0, mixture.covariances))

    def _motions(self, moments: Moments, poses: Array, mixture: Mixture, stride: float) -> Float[Array, "2 D1 D1"]:
        if stride > 0 and self.frozen is not None:
            precisions = self.frozen
        elif stride > 0:
            precisions = joint.softened(mixture.covariances)
        else:
            precisions = np.linalg.inv(mixture.covariances)
        centre = np.average(mixture.means, axis=0, weights=mixture.weights)
        return joint.motions(moments, precisions, centre, poses, PAST, stride=max(stride, 1.0))


def implied(mixture: Mixture, mass: Float[Array, " K"]) -> Moments:
    """The moments that a mixture stands for when its components have seen so many points; they count as no points of EM."""
    mass = mass + PSEUDO
    second = mass[:, None, None] * mixture.covariances
    return Moments(mixture.means, mass, np.zeros_like(mixture.means), second, np.zeros(()))


def with_components(
    moments: Moments, means: Float[Array, "G D"], covariances: Float[Array, "G D D"] | None = None, mass: float = 0.0
) -> Moments:
    """Moments with more components, which have seen nothing, or so much as said."""
    G, D = means.shape
    lead = moments.mass.shape[:-1]
    second = np.zeros((*lead, G, D, D)) if covariances is None else mass * covariances
    return Moments(
        np.concatenate([moments.about, means]),
        np.concatenate([moments.mass, np.full((*lead, G), mass)], -1),
        np.concatenate([moments.first, np.zeros((*lead, G, D))], -2),
        np.concatenate([moments.second, second], -3),
        moments.points,
    )


def components(moments: Moments, kept: Bool[Array, " K"]) -> Moments:
    """Moments of some of the components."""
    first, second = moments.first[..., kept, :], moments.second[..., kept, :, :]
    return Moments(moments.about[kept], moments.mass[..., kept], first, second, moments.points)


def joined(mixture: Mixture, seeds: Mixture) -> Mixture:
    """The components of both, with one cloud's priors."""
    weights = np.concatenate([mixture.weights, seeds.weights])
    weights = weights * (mixture.weights.sum() / weights.sum())
    means, covariances = np.concatenate([mixture.means, seeds.means]), np.concatenate([mixture.covariances, seeds.covariances])
    return Mixture(means, covariances, weights, mixture.outlier_density, weights[None])


def only(mixture: Mixture, kept: Bool[Array, " K"]) -> Mixture:
    """Some of the components, with one cloud's priors."""
    weights = mixture.weights[kept] * (mixture.weights.sum() / mixture.weights[kept].sum())
    return Mixture(mixture.means[kept], mixture.covariances[kept], weights, mixture.outlier_density, weights[None])


def _log_likelihood(moments: Moments, mixture: Mixture) -> float:
    """The expected log-likelihood of the points behind the moments, their posteriors frozen; without the priors."""
    scatter = np.trace(np.linalg.solve(mixture.covariances, moments.second), axis1=1, axis2=2)
    return float((moments.mass * mixture.log_peaks).sum() - scatter.sum() / 2)


def _alone(moments: Moments) -> Moments:
    """A stack of one cloud."""
    return Moments(moments.about, moments.mass[None], moments.first[None], moments.second[None], moments.points[None])


def _opened(path: str | PathLike[str]) -> tuple[Scan, Path]:
    scans, files = cloud_files.open_all([path])
    if len(scans) != 1:
        raise InputError(f"{path}: expected one cloud, found {len(scans)}")
    return scans[0], files[0]


def _joined_group(result: Registration, moments: Moments) -> tuple[tuple[int, ...], ...]:
    """The groups, the new cloud in the one whose surface it lies on most."""
    if len(result.groups) < 2:
        return (tuple(range(len(moments.mass))),)
    shared = [(moments.mass[-1] * (moments.mass[list(group)].sum(0) > 1)).sum() for group in result.groups]
    return tuple((*group, len(result.clouds)) if g == np.argmax(shared) else group for g, group in enumerate(result.groups))


def _start(
    result: Registration, cloud: Float[Array, "N D"], pose: Float[Array, "D1 D1"] | str, options: Options
) -> Float[Array, "D1 D1"]:
    if not isinstance(pose, str):
        return as_poses(np.asarray(pose)[None], 1, cloud.shape[1], name="pose")[0]
    if pose not in STARTS:
        raise InputError(f"pose: expected a matrix or one of {', '.join(STARTS)}, found {pose!r}")
    last = result.poses[-1]
    if pose == "match":
        return _matched(result, cloud, options)
    return last @ geometry.inverse(result.poses[-2]) @ last if pose == "velocity" and len(result.poses) > 1 else last


def _matched(result: Registration, cloud: Float[Array, "N D"], options: Options) -> Float[Array, "D1 D1"]:
    """The pose that matching with the merged cloud finds; where that finds nothing, the last one, and the verdict tells."""
    clouds = Here([Loaded(result.merged()), Loaded(cloud)], options.threads)
    found = nothing.start(clouds, clouds.each(Summary.of), rng=np.random.default_rng(options.seed), look=False)
    scene, new = found.poses[0]
    return result.poses[-1] if len(found.groups) > 1 else geometry.inverse(scene) @ new


def _old_priors(result: Registration, count: int) -> Float[Array, "M K"]:
    """What the old clouds see: the same as before, and of new components as little as of those they never saw."""
    rows = result.mixture.visibility
    if rows is None:
        rows = np.tile(result.mixture.weights, (len(result.poses), 1))
    unseen = schedule.SMOOTHING / (result.moments.mass.sum(1, keepdims=True) + schedule.SMOOTHING * count)
    longer = np.concatenate([rows, np.repeat(unseen, count - rows.shape[1], axis=1)], 1)
    return longer * (rows.sum(1) / longer.sum(1))[:, None]


def _verdict(result: Registration) -> Verdict:
    """The verdict on the last cloud: does it lie where the others, taken together, do, and as near as is usual among them?"""
    stack = _alone(result.moments.without_cloud(len(result.clouds) - 1).pooled()).with_cloud(result.moments[-1])
    verdict = verdicts(stack, result.mixture)[1]
    typical = float(np.median([other.residual for other in result.verdicts]))
    if verdict.verdict == "aligned" and verdict.residual > LARGE * max(typical, verdict.expected):
        reason = f"{verdict.residual / typical:.1f} x as far from the other clouds as is typical here"
        return replace(verdict, verdict="weak", reason=reason)
    return verdict


def _cheap_pairs(mixture: Mixture, mass: Float[Array, " K"], cost: float) -> Int[Array, "n 2"]:
    """Pairs of components that may be merged, cheapest first, none in two of them."""
    K = len(mixture)
    weight = mass + PSEUDO
    near = cKDTree(mixture.means).query(mixture.means, min(NEIGHBOURS + 1, K))[1].reshape(K, -1)
    i, j = np.repeat(np.arange(K), near.shape[1]), near.ravel()
    i, j = i[i < j], j[i < j]
    share = (weight[j] / (weight[i] + weight[j]))[:, None, None]
    d = mixture.means[j] - mixture.means[i]
    merged = (1 - share) * mixture.covariances[i] + share * mixture.covariances[j]
    merged = merged + share * (1 - share) * d[:, :, None] * d[:, None, :]
    log_det = -2 * mixture.log_peaks
    merged_log_det = np.linalg.slogdet(merged)[1] + mixture.dimension * np.log(2 * np.pi)
    price = (merged_log_det - (1 - share[:, 0, 0]) * log_det[i] - share[:, 0, 0] * log_det[j]) / 2
    free, pairs = np.ones(K, bool), []
    for n in np.argsort(price, kind="stable"):
        if price[n] > cost:
            break
        if free[i[n]] and free[j[n]]:
            free[[i[n], j[n]]] = False
            pairs.append((i[n], j[n]))
    return np.array(pairs, np.int64).reshape(-1, 2)


def _summed(moments: Moments, number: Int[Array, " K"]) -> Moments:
    """Moments whose components of the same number are added up; those are about the same point."""
    lead, (K, D) = moments.mass.shape[:-1], moments.about.shape
    about = np.zeros((number.max() + 1, D))
    about[number] = moments.about
    mass = _gathered(moments.mass.reshape(-1, K), number).reshape(*lead, -1)
    first = np.stack([_gathered(moments.first[..., d].reshape(-1, K), number) for d in range(D)], -1).reshape(*lead, -1, D)
    flat = moments.second.reshape(-1, K, D * D)
    second = np.stack([_gathered(flat[..., d], number) for d in range(D * D)], -1).reshape(*lead, -1, D, D)
    return Moments(about, mass, first, second, moments.points)


def _gathered(rows: Float[Array, "M K"], number: Int[Array, " K"]) -> Float[Array, "M G"]:
    """The columns that share a number, added up."""
    return np.stack([np.bincount(number, row) for row in rows])
