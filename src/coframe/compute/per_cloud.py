# SPDX-License-Identifier: MIT
"""A sequence with one item per cloud, on this machine (`Local`) or on workers (`cluster.Remote`).

A registration asks the same of every cloud, and no cloud's result depends on another cloud. So all
it needs is to map a function over the items, and to have the results here or to keep them where the
items are. The functions are the same everywhere, and so are the results, to the last bit.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from jaxtyping import Float

from coframe.em.estep import Cloud, Sweep
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.threads import available_cores
from coframe.types import Array, Poses

T = TypeVar("T", covariant=True)
S = TypeVar("S")
Pair = tuple[int, int]


@runtime_checkable
class EStep(Protocol):
    """An E-step over all clouds, wherever they are."""

    @property
    def points(self) -> Float[Array, " M"]:
        """The (weighted) number of points of each cloud."""

    def moments(
        self, poses: Poses, mixture: Mixture, *, full: bool | None = None
    ) -> tuple[Moments, Float[Array, " M"]]:
        """See `Sweep.moments`."""


@runtime_checkable
class PerCloud(Protocol[T]):
    """One item for each cloud."""

    def __len__(self) -> int: ...

    def map(
        self, function: Callable[..., S], *columns: Sequence[Any], shared: tuple[Any, ...] = ()
    ) -> list[S]:
        """function(item, *row, *shared) for every item and its row of the columns."""

    def map_keep(
        self, function: Callable[..., S], *columns: Sequence[Any], shared: tuple[Any, ...] = ()
    ) -> "PerCloud[S]":
        """As `map`; the results stay where the items are."""

    def map_pairs(
        self,
        function: Callable[..., S],
        pairs: Sequence[Pair],
        *columns: Sequence[Any],
        on_result: Callable[[int, S], object] = lambda number, result: None,
    ) -> list[S]:
        """function(one, other, *row) for pairs of items.

        `on_result` is called with the number of a pair and its result as soon as that is known.
        """

    def subset(self, which: Sequence[int]) -> "PerCloud[T]":
        """Some of the items."""

    def sweep(self, *, threads: int | None, tolerance: float) -> EStep:
        """An E-step over items that are `estep.Cloud`s."""


class Local(PerCloud[T]):
    """Items on this machine."""

    def __init__(self, items: Sequence[T], threads: int | None = 1) -> None:
        self.items = list(items)
        self.threads = available_cores() if threads is None else threads

    def __len__(self) -> int:
        return len(self.items)

    def map(
        self, function: Callable[..., S], *columns: Sequence[Any], shared: tuple[Any, ...] = ()
    ) -> list[S]:
        rows = list(zip(self.items, *columns, strict=True))
        if self.threads == 1 or len(rows) < 2:
            return [function(*row, *shared) for row in rows]
        with ThreadPoolExecutor(min(self.threads, len(rows))) as pool:
            return list(pool.map(lambda row: function(*row, *shared), rows))

    def map_keep(
        self, function: Callable[..., S], *columns: Sequence[Any], shared: tuple[Any, ...] = ()
    ) -> "Local[S]":
        return Local(self.map(function, *columns, shared=shared), self.threads)

    def map_pairs(
        self,
        function: Callable[..., S],
        pairs: Sequence[Pair],
        *columns: Sequence[Any],
        on_result: Callable[[int, S], object] = lambda number, result: None,
    ) -> list[S]:
        lock = threading.Lock()

        def call(number: int, pair: Pair, *row: Any) -> S:
            result = function(self.items[pair[0]], self.items[pair[1]], *row)
            with lock:
                on_result(number, result)
            return result

        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(call, range(len(pairs)), pairs, *columns))

    def subset(self, which: Sequence[int]) -> "Local[T]":
        return Local([self.items[j] for j in which], self.threads)

    def sweep(self, *, threads: int | None, tolerance: float) -> Sweep:
        return Sweep(cast(list[Cloud], self.items), threads=threads, tolerance=tolerance)
