# SPDX-License-Identifier: MIT
"""Clouds on the workers of a Dask cluster: they stay there, and only sums come back.

Every result is a task whose inputs are tasks, back to the file that a worker read or the array that
was sent to it. So Dask itself recomputes what was on a lost worker, to the same bits: no task
depends on where it runs or on what ran before.
"""

import asyncio
import queue
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Shaped
from threadpoolctl import threadpool_limits

from coframe.compute.per_cloud import Pair, PerCloud
from coframe.em.estep import Cloud, Sweep
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.errors import InputError, one_line, optional
from coframe.types import Array, Poses

T = TypeVar("T", covariant=True)
S = TypeVar("S")
Client = Any  # distributed.Client, and its futures: an optional library has no types here
Future = Any

# [size] Clouds in a task, at most.
TOGETHER = 16
# [size] Tasks for every thread of the cluster, where there are as many clouds; each prepares the
# mixture for itself.
ROUNDS = 1
# [size] Pairs of scans in a task, at most.
PAIRS = 32
# [limit] Seconds that a run waits for a worker where none is left, or for a lost scheduler.
WITHOUT_WORKERS = 30.0
# [size] Seconds from one look at the workers to the next, while results are awaited.
LOOK = 0.5


class Remote(PerCloud[T]):
    """Items on workers; a future stands for a list of the items of a few clouds."""

    def __init__(
        self, client: Client, lists: Sequence[Future], where: Sequence[tuple[int, int]]
    ) -> None:
        self.client = client
        self.lists = list(lists)
        self.where = list(where)  # of each item: which list, and where in it

    @classmethod
    def sent(cls, client: Client, items: Sequence[T]) -> "Remote[T]":
        """Items from here, sent once.

        The scheduler keeps a copy of them, in case that a worker is lost.
        """
        parts = list(parted(len(items), client))
        lists = submit_all(client, _listed, [[items[i] for i in part] for part in parts])
        return cls(
            client, lists, [(n, i) for n, part in enumerate(parts) for i in range(len(part))]
        )

    def __len__(self) -> int:
        return len(self.where)

    def map(
        self, function: Callable[..., S], *columns: Sequence[Any], shared: tuple[Any, ...] = ()
    ) -> list[S]:
        places, tasks = self._called(function, columns, shared)
        found: list[Any] = [None] * len(self)
        for positions, answers in zip(places, collect(self.client, tasks), strict=True):
            for position, answer in zip(positions, answers, strict=True):
                found[position] = answer
        return found

    def map_keep(
        self, function: Callable[..., S], *columns: Sequence[Any], shared: tuple[Any, ...] = ()
    ) -> "Remote[S]":
        places, tasks = self._called(function, columns, shared)
        where = {
            position: (n, i)
            for n, positions in enumerate(places)
            for i, position in enumerate(positions)
        }
        return Remote(self.client, tasks, [where[position] for position in range(len(self))])

    def map_pairs(
        self,
        function: Callable[..., S],
        pairs: Sequence[Pair],
        *columns: Sequence[Any],
        on_result: Callable[[int, S], object] = lambda number, result: None,
    ) -> list[S]:
        together: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, (a, b) in enumerate(pairs):
            together[self.where[a][0], self.where[b][0]].append(number)
        parts = [
            (*both, members[begin : begin + PAIRS])
            for both, members in together.items()
            for begin in range(0, len(members), PAIRS)
        ]
        ones, others = (
            [self.lists[one] for one, _, _ in parts],
            [self.lists[other] for _, other, _ in parts],
        )
        which = [
            [(self.where[pairs[n][0]][1], self.where[pairs[n][1]][1]) for n in part]
            for _, _, part in parts
        ]
        rows = [[[column[n] for column in columns] for n in part] for _, _, part in parts]
        calls = submit_all(
            self.client, _called_on_pairs, ones, others, [function] * len(parts), which, rows
        )
        tasks = dict(zip(calls, (part for _, _, part in parts), strict=True))
        found: list[Any] = [None] * len(pairs)
        for task, answers in collect_as_completed(self.client, list(tasks)):
            for number, answer in zip(tasks[task], answers, strict=True):
                found[number] = answer
                on_result(number, answer)
        return found

    def subset(self, which: Sequence[int]) -> "Remote[T]":
        return Remote(self.client, self.lists, [self.where[j] for j in which])

    def sweep(self, *, threads: int | None, tolerance: float) -> "RemoteSweep":
        return RemoteSweep(self, tolerance)

    def by_list(self) -> dict[int, list[int]]:
        """The positions of the items of each list that has some."""
        found: dict[int, list[int]] = defaultdict(list)
        for position, (n, _) in enumerate(self.where):
            found[n].append(position)
        return found

    def _called(
        self,
        function: Callable[..., Any],
        columns: Sequence[Sequence[Any]],
        shared: tuple[Any, ...],
    ) -> tuple[list[list[int]], list[Future]]:
        """For each list, the positions of its items and the task that maps the function."""
        common = submit(self.client, _listed, list(shared)) if shared else []
        by_list = self.by_list()
        lists, places = [self.lists[n] for n in by_list], list(by_list.values())
        which = [[self.where[position][1] for position in positions] for positions in places]
        rows = [
            [[column[position] for column in columns] for position in positions]
            for positions in places
        ]
        repeated = [function] * len(lists), [common] * len(lists)
        return places, submit_all(
            self.client, _called_on_each, lists, repeated[0], which, rows, repeated[1]
        )


class RemoteSweep:
    """An E-step over prepared clouds on workers: to the last bit what `Sweep` finds for the same
    clouds.
    """

    def __init__(self, clouds: "Remote[Any]", tolerance: float) -> None:
        self.clouds = clouds
        self.tolerance = tolerance
        sizes = clouds.map(_size)
        self.points = np.array([weight for _, weight in sizes])
        self.total = sum(count for count, _ in sizes)

    def moments(
        self, poses: Poses, mixture: Mixture, *, full: bool | None = None
    ) -> tuple[Moments, Float[Array, " M"]]:
        """See `Sweep.moments`.

        A cloud's sums travel without the components that it does not see.
        """
        full = not mixture.spherical if full is None else full
        client, lists, where = self.clouds.client, self.clouds.lists, self.clouds.where
        common = submit(
            client, _listed, [replace(mixture, visibility=None), full, self.total, self.tolerance]
        )
        places = self.clouds.by_list()
        which = [[where[position][1] for position in positions] for positions in places.values()]
        own = [
            None if mixture.visibility is None else mixture.visibility[positions]
            for positions in places.values()
        ]
        moved = [poses[positions] for positions in places.values()]
        tasks = submit_all(
            client, _moments, [lists[n] for n in places], which, moved, own, [common] * len(places)
        )
        K, D = mixture.means.shape
        M, width = len(self.clouds), 1 + D + (D * (D + 1) // 2 if full else 1)
        sums, log_likelihood = np.zeros((M, K, width)), np.empty(M)
        for positions, packed in zip(places.values(), collect(client, tasks), strict=True):
            packed.into(sums, positions)
            log_likelihood[positions] = packed.log_likelihood
        return _unpacked(sums, mixture.means, full, self.points), log_likelihood


@dataclass(frozen=True)
class Packed:
    """The sums of a few clouds, of the components with some mass."""

    counts: Shaped[Array, " m"]  # of such components, per cloud
    components: Shaped[Array, " n"]
    # mass, first moments, second moments (the upper triangle, or the trace)
    sums: Float[Array, "n width"]
    log_likelihood: Float[Array, " m"]

    @classmethod
    def of(cls, moments: Moments, log_likelihood: Float[Array, " m"]) -> "Packed":
        D = moments.about.shape[1]
        cloud, component = np.nonzero(moments.mass)
        second = moments.second[cloud, component]
        second = second[:, *np.triu_indices(D)] if moments.full else second[:, None]
        sums = np.concatenate(
            [moments.mass[cloud, component, None], moments.first[cloud, component], second], 1
        )
        return cls(
            np.bincount(cloud, minlength=len(moments.mass)),
            component.astype(np.uint32),
            sums,
            log_likelihood,
        )

    def into(self, sums: Float[Array, "M K width"], clouds: Sequence[int]) -> None:
        """Put the sums where they belong."""
        sums[np.repeat(clouds, self.counts), self.components] = self.sums

    @property
    def nbytes(self) -> int:
        return (
            self.counts.nbytes
            + self.components.nbytes
            + self.sums.nbytes
            + self.log_likelihood.nbytes
        )


def _unpacked(
    sums: Float[Array, "M K width"],
    about: Float[Array, "K D"],
    full: bool,
    points: Float[Array, " M"],
) -> Moments:
    D = about.shape[1]
    mass, first, second = (
        np.ascontiguousarray(sums[..., 0]),
        np.ascontiguousarray(sums[..., 1 : 1 + D]),
        sums[..., 1 + D :],
    )
    if not full:
        return Moments(about, mass, first, np.ascontiguousarray(second[..., 0]), points)
    matrices = np.empty((*mass.shape, D, D))
    i, j = np.triu_indices(D)
    matrices[..., i, j] = second
    matrices[..., j, i] = second
    return Moments(about, mass, first, matrices, points)


def check_client(client: Any) -> Client:
    """Refuse what is no client of a Dask cluster.

    Connect the client with `direct_to_workers=True` where it can reach the workers: sums then
    bypass the scheduler.
    """
    if not all(hasattr(client, name) for name in ("submit", "gather", "nthreads")):
        kind = type(client).__name__
        raise InputError(f"cluster: expected a client of dask.distributed, found {kind}")
    return client


def parted(count: int, client: Client) -> Iterator[range]:
    """A few consecutive clouds at a time: some tasks for every thread of the cluster."""
    threads = max(1, sum(client.nthreads().values()))
    size = max(1, min(TOGETHER, -(-count // (ROUNDS * threads))))
    return (range(begin, min(begin + size, count)) for begin in range(0, count, size))


def submit(client: Client, function: Callable[..., Any], *arguments: Any) -> Future:
    """A task."""
    with _named(client):
        return client.submit(function, *arguments, pure=False)


def submit_all(
    client: Client, function: Callable[..., Any], *columns: Sequence[Any]
) -> list[Future]:
    """Tasks, one for each row of the columns, in one message."""
    with _named(client):
        return client.map(function, *columns, pure=False)


def collect(client: Client, tasks: Sequence[Future]) -> list[Any]:
    """The results of tasks, in their order.

    Raises InputError when there has been no worker for a while (see `patience`), or no scheduler.
    """
    with _named(client):
        results = asyncio.run_coroutine_threadsafe(
            client.gather(list(tasks), asynchronous=True), client.loop.asyncio_loop
        )
        watch = Watch(client)
        try:
            while not wait_for([results], LOOK).done:
                watch.look()
            return results.result()
        finally:
            results.cancel()


def collect_as_completed(client: Client, tasks: Sequence[Future]) -> Iterator[tuple[Future, Any]]:
    """Tasks and their results, in the order in which they are done; see `collect`."""
    done: queue.SimpleQueue[Future] = queue.SimpleQueue()
    for task in tasks:
        task.add_done_callback(done.put)
    watch = Watch(client)
    left = len(tasks)
    while left:
        try:
            task = done.get(timeout=LOOK)
        except queue.Empty:
            watch.look()
            continue
        left -= 1
        yield task, collect(client, [task])[0]


class Watch:
    """Whether a cluster has workers: without any, results would be awaited without end."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seconds = patience()
        self.seen = time.monotonic()

    def look(self) -> None:
        """Raise InputError when no worker has been seen for too long."""
        found: dict[str, int] | None = None
        with suppress(OSError, RuntimeError):  # A lost scheduler does not answer.
            if self.client.status == "running":
                found = self.client.sync(
                    self.client.scheduler.ncores, callback_timeout=self.seconds
                )
        if found:
            self.seen = time.monotonic()
        elif time.monotonic() - self.seen > self.seconds:
            if found is None:
                raise _lost_scheduler(self.client)
            raise InputError(
                f"cluster: expected workers at {_address(self.client)}, found none for"
                f" {self.seconds:g} s; start some, and go on with --resume"
            )


def patience() -> float:
    """Seconds that a run waits for a worker: `coframe.without-workers` of Dask's configuration."""
    dask = optional("dask", "cluster", "clusters")
    given = dask.config.get("coframe.without-workers", WITHOUT_WORKERS)
    return float(dask.utils.parse_timedelta(given))


@contextmanager
def _named(client: Client) -> Iterator[None]:
    """Errors of the cluster itself in one sentence; those of tasks pass."""
    distributed = optional("distributed", "cluster", "clusters")
    try:
        yield
    except InputError:
        raise
    except distributed.KilledWorker as error:
        raise InputError(
            "cluster: expected workers with enough memory, found that several died at one task"
            f" ({one_line(error)})"
        ) from None
    except (Exception, asyncio.CancelledError) as error:
        lost = isinstance(error, asyncio.CancelledError | CancelledError)
        if lost or client.status != "running":
            raise _lost_scheduler(client) from None
        raise


def _lost_scheduler(client: Client) -> InputError:
    return InputError(
        f"cluster: expected the scheduler at {_address(client)}, found that the connection is lost;"
        " start it again, and go on with --resume"
    )


def _address(client: Client) -> str:
    return client.scheduler.address if client.scheduler is not None else "its address"


# What workers do. They and the driver must have the same kernels: the same version of coframe and
# its dependencies.


def _listed(items: list[Any]) -> list[Any]:
    return items


def _called_on_each(
    items: list[Any],
    function: Callable[..., Any],
    which: list[int],
    rows: list[list[Any]],
    shared: list[Any],
) -> list[Any]:
    _quiet()
    return [function(items[i], *row, *shared) for i, row in zip(which, rows, strict=True)]


def _called_on_pairs(
    one: list[Any],
    other: list[Any],
    function: Callable[..., Any],
    which: list[Pair],
    rows: list[list[Any]],
) -> list[Any]:
    _quiet()
    return [function(one[a], other[b], *row) for (a, b), row in zip(which, rows, strict=True)]


def _size(cloud: Cloud) -> tuple[int, float]:
    return len(cloud), float(cloud.rows[3].sum())


def _moments(
    clouds: list[Cloud],
    which: list[int],
    poses: Float[Array, "m D1 D1"],
    own: Float[Array, "m K"] | None,
    common: list[Any],
) -> Packed:
    mixture, full, total, tolerance = common
    sweep = Sweep([clouds[i] for i in which], threads=1, tolerance=tolerance, total=total)
    return Packed.of(*sweep.moments(poses, replace(mixture, visibility=own), full=full))


@cache
def _quiet() -> None:
    """BLAS on one thread, as in `register`, so that its sums have the same bits."""
    threadpool_limits(1, user_api="blas")
