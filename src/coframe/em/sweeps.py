# SPDX-License-Identifier: MIT
"""Ways to sum the moments of all clouds. The EM loop does not know which one it has.

A sweep is cut into tasks by the sizes of the clouds alone, each task has its own sums, and these are added in the order of the
tasks: the result has the same bits for any number of threads.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import DTypeLike
from threadpoolctl import ThreadpoolController

from coframe import geometry
from coframe.em import kernels
from coframe.types import Array
from coframe.input.checks import InputError
from coframe.em.estep import TOLERANCE, Cloud, Components
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments

TASKS = 64  # pieces of a sweep beyond one per cloud: enough to keep many threads busy, few enough to sum quickly
SMALLEST_TASK = 4096  # points: zeroing and adding up the sums of a task costs as much as some hundred points


@dataclass(frozen=True)
class Assignment:
    """What an E-step says of each point of one cloud."""

    density: Float[Array, " N"]  # of the whole mixture at the point, uniform class included
    label: Int[Array, " N"]  # the most probable component, -1 for the uniform class


@dataclass(frozen=True)
class Dask:
    """The workers of a Dask cluster; see `dask`."""

    client: Any


def dask(client: Any) -> Dask:
    """For `register(clouds, sweep=dask(client))`: the workers of a `distributed.Client` do all that is done with points.

    Workers read files themselves, under the same paths as here; arrays are sent to them once. Each needs coframe in the same
    version. Connect the client with `direct_to_workers=True` where it can reach the workers: sums then bypass the scheduler.
    """
    if not all(hasattr(client, name) for name in ("submit", "gather", "nthreads")):
        raise InputError(f"sweep: expected a client of dask.distributed, found {type(client).__name__}")
    return Dask(client)


class Sweep:
    """All clouds on this machine's threads. `pairs` counts the point-component pairs that the last sweep evaluated."""

    def __init__(
        self,
        clouds: Sequence[Cloud],
        *,
        threads: int | None = None,
        dtype: DTypeLike = np.float64,
        tolerance: float | None = TOLERANCE,
        total: int | None = None,
    ) -> None:
        """`total`: points of all clouds, where these are some of them; pieces are cut as in a sweep over all."""
        self.clouds = list(clouds)
        self.threads = available_cores() if threads is None else threads
        self.dtype = np.dtype(dtype)
        self.tolerance = tolerance or -1.0  # the kernel's word for "skip nothing"
        self.points = np.array([cloud.rows[3].sum() for cloud in self.clouds])
        self.pairs = 0
        size = max(SMALLEST_TASK, -(-(sum(map(len, self.clouds)) if total is None else total) // TASKS))
        self._tasks = [(j, start, stop) for j, cloud in enumerate(self.clouds) for start, stop in _pieces(len(cloud), size)]
        self._sums = np.empty((0, 0, 0))  # kept between sweeps: fresh pages cost more than the sums

    def moments(
        self,
        poses: Float[Array, "M D1 D1"],
        mixture: Mixture,
        *,
        full: bool | None = None,
        components: Components | None = None,
    ) -> tuple[Moments, Float[Array, " M"]]:
        """The moments of every cloud under its pose, stacked, and the log-likelihood of every cloud.

        `full` asks for second moments as matrices even of spheres; `components` are those of the mixture, where they are known.
        """
        full = not mixture.spherical if full is None else full
        components = Components.of(mixture, full) if components is None else components
        full = components.full
        self._run(poses, mixture, components)
        M, (K, D) = len(self.clouds), mixture.means.shape
        mass, first, second = np.empty((M, K)), np.empty((M, K, D)), np.empty((M, K, D * D if full else 1))
        bounds = np.searchsorted([j for j, _, _ in self._tasks], np.arange(M + 1))

        def collect(j: int) -> None:
            kernels.collect(self._sums[bounds[j] : bounds[j + 1]], components.order, mass[j], first[j], second[j])

        self._map(collect, M)
        second = second.reshape((M, K, D, D) if full else (M, K))
        return Moments(mixture.means, mass, first, second, self.points), self._log_likelihood(bounds)

    def assign(self, poses: Float[Array, "M D1 D1"], mixture: Mixture) -> list[Assignment]:
        """Each point's density under the mixture and its most probable component."""
        components = Components.of(mixture, not mixture.spherical)
        raw = [(np.empty(len(cloud)), np.empty(len(cloud), np.int64)) for cloud in self.clouds]
        self._run(poses, mixture, components, raw)
        names = np.concatenate([components.order, [-1]])  # kernel index -> component; -1 picks the last entry
        return [
            Assignment(cloud.restored(density), cloud.restored(names[label]))
            for cloud, (density, label) in zip(self.clouds, raw, strict=True)
        ]

    def _run(
        self,
        poses: Array,
        mixture: Mixture,
        components: Components,
        points: list[tuple[Array, Array]] | None = None,
    ) -> None:
        D = mixture.dimension
        sums = kernels.FULL_SUMS if components.full else kernels.SPHERE_SUMS
        shape = (len(self._tasks), components.geometry.shape[1], sums)
        if self._sums.shape != shape:
            self._sums = np.empty(shape)
        R, t = np.tile(np.eye(3), (len(poses), 1, 1)), np.zeros((len(poses), 3))
        R[:, :D, :D], t[:, :D] = geometry.rotation(poses), geometry.translation(poses)
        weights = mixture.weights[None] if mixture.visibility is None else mixture.visibility
        log_weights, heaviest = components.weighted(weights)
        self._results = [(0.0, 0)] * len(self._tasks)
        nothing, kind = (np.empty(0), np.empty(0, np.int64)), np.empty(0, self.dtype)

        def task(i: int) -> None:
            j, start, stop = self._tasks[i]
            own = j if len(weights) > 1 else 0
            density, label = points[j] if points else nothing
            self._sums[i] = 0
            self._results[i] = kernels.sweep(
                self.clouds[j].rows, R[j], t[j], components.geometry, components.reach, components.stiffest, components.boxes,
                log_weights[own], heaviest[own], self.tolerance, mixture.outlier_density, start, stop,
                kind, self._sums[i], density, label,
            )  # fmt: skip

        self._map(task, len(self._tasks))
        self.pairs = sum(pairs for _, pairs in self._results)

    def _log_likelihood(self, bounds: Array) -> Float[Array, " M"]:
        each = np.array([log_likelihood for log_likelihood, _ in self._results])
        return np.array([each[a:b].sum() for a, b in itertools.pairwise(bounds)])

    def _map(self, task: Callable[[int], None], count: int) -> None:
        """Run the tasks on the threads, each taking the next one when it is free."""
        take = itertools.count().__next__

        def work() -> None:
            while (i := take()) < count:
                task(i)

        helpers = [_pool(self.threads).submit(work) for _ in range(min(self.threads, count) - 1)]
        work()
        for helper in helpers:
            helper.result()


def _pieces(count: int, size: int) -> list[tuple[int, int]]:
    """A range cut into even pieces of about `size`, each but the last of whole blocks."""
    blocks = -(-count // kernels.LEAF)
    pieces = max(1, round(count / size))
    cuts = [kernels.LEAF * (blocks * i // pieces) for i in range(pieces)]
    return list(itertools.pairwise([*cuts, count]))


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Quiet:
    """Limits are the whole process's: the first that comes sets them, and the last that goes lifts them."""

    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), 0

    def enter(self) -> None:
        with self.lock:
            if not self.users:
                self.limit = _controller().limit(limits=1, user_api="blas")
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.limit.restore_original_limits()


_quiet = _Quiet()


@contextmanager
def quiet_blas() -> Iterator[None]:
    """BLAS on one thread: its matrices are small here, and its idle threads spin on the cores that the kernels need."""
    _quiet.enter()
    try:
        yield
    finally:
        _quiet.leave()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="coframe")
