# SPDX-License-Identifier: MIT
"""The E-step: what each point says about each component, as moments (fast) or as posteriors (dense,
for inspection).

Eqs. (8) and (9), with the true density of eq. (1): the Gaussians keep their factor (2 pi)^(-D/2),
which the paper drops.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.em import joint_kernels, kernels
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.threads import available_cores, pool
from coframe.types import Array, Points, Poses

# [format] The kernels take exponents in base 2.
LOG2E = 1 / np.log(2)
# [guard] Share of a point's posterior mass that may be lost to skipped components; see `kernels`.
TOLERANCE = 1e-9
# [guard] The same while EM runs: far below what a level resolves.
EM_TOLERANCE = 1e-6
# [size] Pieces of a sweep beyond one per cloud: enough to keep many threads busy, few enough to sum
# quickly.
TASKS = 64
# [size] Points: zeroing and adding up the sums of a task costs as much as some hundred points.
SMALLEST_TASK = 4096


def log_densities(points: Points, mixture: Mixture) -> Float[Array, "N K"]:
    """log p_k N(x_i; mu_k, Sigma_k), every pair, literally. Eq. (9)."""
    d = points[:, None] - mixture.means
    mahalanobis = np.einsum(
        "nki,nki->nk", d, np.linalg.solve(mixture.covariances, d[..., None])[..., 0]
    )
    with np.errstate(divide="ignore"):  # a component of weight zero explains nothing
        return np.log(mixture.weights) + mixture.log_peaks - mahalanobis / 2


def posteriors(points: Points, mixture: Mixture) -> Float[Array, "N K1"]:
    """alpha_ik of points in the common frame, the last column the uniform class; rows sum to one.
    Eq. (8).

    Dense and in the log domain, so that far points get their limit instead of 0 / 0. For
    inspection: N x K numbers.
    """
    with np.errstate(divide="ignore"):
        outlier = np.full((len(points), 1), np.log(mixture.outlier_density))
    terms = np.concatenate([log_densities(points, mixture), outlier], 1)
    alpha = np.exp(terms - terms.max(1, keepdims=True))
    return alpha / alpha.sum(1, keepdims=True)


@dataclass(frozen=True)
class Cloud:
    """A cloud as the kernels want it: rows x, y, z, weight, in kd order.

    A 2-D cloud lies in the plane z = 0.
    """

    rows: Float[Array, "4 N"]
    order: Int[Array, " N"]  # rows[:, i] is point order[i]
    dimension: int
    # points that each one stands for: less than one where neighbours share their noise
    independent: float = 1.0

    @classmethod
    def of(
        cls, points: Points, weights: Float[Array, " N"] | None = None, independent: float = 1.0
    ) -> "Cloud":
        """Sort the points once: a rigid motion keeps near points near, so the order serves for the
        whole run.
        """
        N, D = points.shape
        order = kernels.kd_order(np.ascontiguousarray(points), kernels.LEAF)
        rows = np.zeros((4, N))
        rows[:D] = points[order].T
        rows[3] = 1 if weights is None else weights[order]
        return cls(rows, order, D, independent)

    def __len__(self) -> int:
        return self.rows.shape[1]

    @property
    def points(self) -> Points:
        """The points, in kd order."""
        return self.rows[: self.dimension].T

    def subset(self, rows: Int[Array, " n"] | slice) -> "Cloud":
        """Some of the points, in the same kd order."""
        kept = np.ascontiguousarray(self.rows[:, rows])
        return replace(self, rows=kept, order=np.arange(kept.shape[1]))

    def restored(self, values: Array) -> Array:
        """Values computed in kd order, back in the order of the points."""
        out = np.empty_like(values)
        out[self.order] = values
        return out


@dataclass(frozen=True)
class Components:
    """A mixture as the kernels want it, in kd order and padded to whole blocks.

    A function of the mixture alone.
    """

    order: Int[Array, " K"]  # column i is component order[i]
    log_peaks: Float[Array, " K"]  # log of each Gaussian's density at its own mean, in kd order
    geometry: Float[Array, "R Kp"]  # means, then the coefficients of the exponent in base 2
    # how far an ellipsoid reaches: variances along x, y, z, and a slab that holds it
    reach: Float[Array, "6 Kp"]
    # a lower bound of the exponent's (negative) coefficients over all directions
    stiffest: Float[Array, " Kp"]
    boxes: Float[Array, "9 B"]  # per block: box of the means (6), widest reach (3)

    @classmethod
    def of(cls, mixture: Mixture, full: bool) -> "Components":
        K, D = mixture.means.shape
        padding = -K % kernels.CELL
        order = kernels.kd_order(np.ascontiguousarray(mixture.means), kernels.CELL)
        take = np.concatenate([order, np.repeat(order[-1:], padding)])
        means = np.zeros((3, K + padding))
        means[:D] = mixture.means[take].T
        covariances = mixture.covariances[take]
        boxes = np.zeros((9, (K + padding) // kernels.CELL))
        boxes[0:6:2], boxes[1:6:2] = _by_block(means).min(2), _by_block(means).max(2)
        if full:
            form, reach, stiffest, log_det = _ellipsoids(covariances, take)
            boxes[6:9] = _by_block(reach[:3]).max(2)
        else:
            form, reach, stiffest, log_det = _spheres(covariances, take)
            boxes[6] = _by_block(form).max(2)
        log_peaks = (-log_det[:K] - D * np.log(2 * np.pi)) / 2
        return cls(order, log_peaks, np.concatenate([means, form]), reach, stiffest, boxes)

    @property
    def full(self) -> bool:
        """Whether these are ellipsoids."""
        return len(self.geometry) == kernels.FULL_ROWS

    def weighted(
        self, weights: Float[Array, "M K"]
    ) -> tuple[Float[Array, "M Kp"], Float[Array, "M B"]]:
        """log2 of p_jk times the peak density, and its largest value per block: what differs
        between clouds.
        """
        log_weight = np.full((len(weights), self.geometry.shape[1]), kernels.NOTHING)
        with np.errstate(divide="ignore"):  # a component of weight zero explains nothing
            log_weight[:, : len(self.order)] = LOG2E * (
                np.log(weights[:, self.order]) + self.log_peaks
            )
        np.maximum(log_weight, kernels.NOTHING, out=log_weight)
        return log_weight, _by_block(log_weight).max(2)


def _spheres(
    covariances: Float[Array, "Kp D D"], names: Int[Array, " Kp"]
) -> tuple[Array, Array, Array, Array]:
    """The exponent's coefficient (1, Kp), no reach (the kernel needs none), the coefficient again,
    and log det (Kp,).
    """
    variances = covariances[:, 0, 0]
    if not (variances > 0).all():
        bad = int(np.argmin(variances > 0))
        raise ValueError(f"variance of component {names[bad]} is not positive: {variances[bad]}")
    coefficient = -LOG2E / 2 / variances
    return (
        coefficient[None],
        np.zeros((6, len(variances))),
        coefficient,
        covariances.shape[1] * np.log(variances),
    )


def _ellipsoids(
    covariances: Float[Array, "Kp D D"], names: Int[Array, " Kp"]
) -> tuple[Array, Array, Array, Array]:
    """The exponent's coefficients (6, Kp), reach (6, Kp), a bound of the exponent over directions
    (Kp,), and log det (Kp,).
    """
    D = covariances.shape[1]
    padded = np.tile(np.eye(3), (len(covariances), 1, 1))
    padded[:, :D, :D] = covariances
    Q = np.empty_like(padded)
    log_det, bad = joint_kernels.invert(padded, Q)
    if bad >= 0:
        raise ValueError(
            f"covariance of component {names[bad]} is not positive definite:"
            f" {covariances[bad].tolist()}"
        )
    each, stiff = np.arange(len(Q)), np.argmax(np.diagonal(Q, axis1=1, axis2=2), 1)
    # P e / sqrt(e . P e), see `_surviving_components`
    slab = Q[each, stiff] / np.sqrt(Q[each, stiff, stiff])[:, None]
    reach = np.concatenate([np.diagonal(padded, axis1=1, axis2=2), slab], 1).T.copy()
    Q *= -LOG2E / 2
    # Off-diagonal terms appear once in the kernel's sum, hence twice the matrix entry.
    form = np.stack(
        [Q[:, 0, 0], 2 * Q[:, 0, 1], 2 * Q[:, 0, 2], Q[:, 1, 1], 2 * Q[:, 1, 2], Q[:, 2, 2]]
    )
    return form, reach, np.trace(Q, axis1=1, axis2=2), log_det


def _by_block(rows: Float[Array, "R Kp"]) -> Float[Array, "R B L"]:
    return rows.reshape(len(rows), -1, kernels.CELL)


@dataclass(frozen=True)
class Assignment:
    """What an E-step says of each point of one cloud."""

    density: Float[Array, " N"]  # of the whole mixture at the point, uniform class included
    label: Int[Array, " N"]  # the most probable component, -1 for the uniform class


class Sweep:
    """All clouds on this machine's threads.

    `pairs` counts the point-component pairs that the last sweep evaluated.
    """

    def __init__(
        self,
        clouds: Sequence[Cloud],
        *,
        threads: int | None = None,
        tolerance: float | None = TOLERANCE,
        total: int | None = None,
    ) -> None:
        """`total`: points of all clouds, where these are some of them; pieces are cut as in a sweep
        over all.
        """
        self.clouds = list(clouds)
        self.threads = available_cores() if threads is None else threads
        self.tolerance = tolerance or -1.0  # the kernel's word for "skip nothing"
        self.points = np.array([cloud.rows[3].sum() for cloud in self.clouds])
        self.pairs = 0
        size = max(
            SMALLEST_TASK, -(-(sum(map(len, self.clouds)) if total is None else total) // TASKS)
        )
        self._tasks = [
            (j, start, stop)
            for j, cloud in enumerate(self.clouds)
            for start, stop in _pieces(len(cloud), size)
        ]
        self._bounds = np.searchsorted(
            [j for j, _, _ in self._tasks], np.arange(len(self.clouds) + 1)
        )
        # Where the sums of a task are kept until those of its cloud are added up; -1: nowhere,
        # since it is the only one of its cloud.
        several = np.repeat(np.diff(self._bounds) > 1, np.diff(self._bounds))
        self._kept = np.where(several, np.cumsum(several) - 1, -1)
        self._sums = np.empty((0, 0, 0))  # kept between sweeps: fresh pages cost more than the sums

    def moments(
        self,
        poses: Poses,
        mixture: Mixture,
        *,
        full: bool | None = None,
        components: Components | None = None,
    ) -> tuple[Moments, Float[Array, " M"]]:
        """The moments of every cloud under its pose, stacked, and the log-likelihood of every
        cloud.

        `full` asks for second moments as matrices even of spheres; `components` are those of the
        mixture, where they are known.
        """
        if components is None:
            full = not mixture.spherical if full is None else full
            components = Components.of(mixture, full)
        full = components.full
        M, (K, D) = len(self.clouds), mixture.means.shape
        mass, first, second = (
            np.empty((M, K)),
            np.empty((M, K, D)),
            np.empty((M, K, D * D if full else 1)),
        )

        def collect(j: int, sums: Float[Array, "T Kp S"]) -> None:
            kernels.collect(sums, components.order, mass[j], first[j], second[j])

        self._run(poses, mixture, components, collect=collect)
        second = second.reshape((M, K, D, D) if full else (M, K))
        return Moments(mixture.means, mass, first, second, self.points), self._log_likelihood()

    def assign(self, poses: Poses, mixture: Mixture) -> list[Assignment]:
        """Each point's density under the mixture and its most probable component."""
        components = Components.of(mixture, not mixture.spherical)
        raw = [(np.empty(len(cloud)), np.empty(len(cloud), np.int64)) for cloud in self.clouds]
        self._run(poses, mixture, components, points=raw)
        # kernel index -> component; -1 picks the last entry
        names = np.concatenate([components.order, [-1]])
        return [
            Assignment(cloud.restored(density), cloud.restored(names[label]))
            for cloud, (density, label) in zip(self.clouds, raw, strict=True)
        ]

    def _run(
        self,
        poses: Array,
        mixture: Mixture,
        components: Components,
        *,
        points: list[tuple[Array, Array]] | None = None,
        collect: Callable[[int, Array], None] = lambda cloud, sums: None,
    ) -> None:
        """Sweep over all clouds; `collect` is called with each cloud and the sums of its tasks.

        The sums of a cloud's only task are collected at once, from a table that each thread uses
        again and again and that stays in its cache: many clouds take no memory here.
        """
        D = mixture.dimension
        sums = kernels.FULL_SUMS if components.full else kernels.SPHERE_SUMS
        size = (components.geometry.shape[1], sums)
        shape = (int(self._kept.max()) + 1, *size)
        if self._sums.shape != shape:
            self._sums = np.empty(shape)
        R, t = np.tile(np.eye(3), (len(poses), 1, 1)), np.zeros((len(poses), 3))
        R[:, :D, :D], t[:, :D] = geometry.rotation(poses), geometry.translation(poses)
        weights = mixture.weights[None] if mixture.visibility is None else mixture.visibility
        log_weights, heaviest = components.weighted(weights)
        self._results = [(0.0, 0)] * len(self._tasks)
        nothing = np.empty(0), np.empty(0, np.int64)

        def task(i: int, table: Float[Array, "1 Kp S"]) -> None:
            j, start, stop = self._tasks[i]
            own = j if len(weights) > 1 else 0
            density, label = points[j] if points else nothing
            only = self._kept[i] < 0
            sums = table[0] if only else self._sums[self._kept[i]]
            sums[:] = 0
            self._results[i] = kernels.sweep(
                self.clouds[j].rows, R[j], t[j],
                components.geometry, components.reach, components.stiffest, components.boxes,
                log_weights[own], heaviest[own], self.tolerance, mixture.outlier_density,
                start, stop, sums, density, label,
            )  # fmt: skip
            if only:
                collect(j, table)

        def add_up(n: int, table: Float[Array, "1 Kp S"]) -> None:
            a, b = self._bounds[cut[n]], self._bounds[cut[n] + 1]
            collect(cut[n], self._sums[self._kept[a] : self._kept[b - 1] + 1])

        self._map(task, len(self._tasks), size)
        cut = np.flatnonzero(np.diff(self._bounds) > 1).tolist()
        self._map(add_up, len(cut), size)
        self.pairs = sum(pairs for _, pairs in self._results)

    def _log_likelihood(self) -> Float[Array, " M"]:
        each = np.array([log_likelihood for log_likelihood, _ in self._results])
        return np.array([each[a:b].sum() for a, b in itertools.pairwise(self._bounds)])

    def _map(self, task: Callable[[int, Array], None], count: int, size: tuple[int, int]) -> None:
        """Run the tasks on the threads, each taking the next one when it is free.

        Each thread passes them a table of its own.
        """
        take = itertools.count().__next__

        def work() -> None:
            table = np.empty((1, *size))
            while (i := take()) < count:
                task(i, table)

        helpers = [pool(self.threads).submit(work) for _ in range(min(self.threads, count) - 1)]
        work()
        for helper in helpers:
            helper.result()


def _pieces(count: int, size: int) -> list[tuple[int, int]]:
    """A range cut into even pieces of about `size`, each but the last of whole blocks."""
    blocks = -(-count // kernels.LEAF)
    pieces = max(1, round(count / size))
    cuts = [kernels.LEAF * (blocks * i // pieces) for i in range(pieces)]
    return list(itertools.pairwise([*cuts, count]))
