# SPDX-License-Identifier: MIT
"""Medians and other order statistics of numbers that come in blocks, exact to the bit."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float, Shaped

from coframe.types import Array

# [size] Bits of an order statistic that one pass over the points finds.
DIGIT = 16


def median(values: Callable[[], Iterator[Float[Array, " n"]]], count: int) -> float:
    """The median of numbers that come in blocks, each time that they are asked for."""
    ranks = [(count - 1) // 2, count // 2]
    return float(order_statistics(lambda: (block[:, None] for block in values()), ranks).mean())


def order_statistics(
    table: Callable[[], Iterator[Float[Array, "n C"]]], ranks: Sequence[int]
) -> Float[Array, "R C"]:
    """The entries of given ranks in every column of a table that comes in blocks. It is read four
    times.

    The bits of a float, with its sign turned about, are a whole number of the same order. A
    histogram of its first 16 bits tells with which of them the entry of a rank begins; one of the
    next 16 bits, among those that begin so, how it goes on.
    """
    wanted: dict[
        tuple[int, int], tuple[int, int]
    ] = {}  # (rank, column) -> digits known, rank among the entries with these
    for left in range(64 - DIGIT, -1, -DIGIT):
        histograms: dict[tuple[int, int], Array] = {}
        columns = 0
        for block in table():
            keys, columns = _ordered_bits(block), block.shape[1]
            if not wanted:
                wanted = {(rank, c): (0, rank) for rank in ranks for c in range(columns)}
            for prefix, c in {(prefix, c) for (_, c), (prefix, _) in wanted.items()}:
                key = keys[:, c]
                if left < 64 - DIGIT:
                    key = key[key >> np.uint64(left + DIGIT) == np.uint64(prefix)]
                digit = (key >> np.uint64(left) & np.uint64((1 << DIGIT) - 1)).astype(np.intp)
                count = np.bincount(digit, minlength=1 << DIGIT)
                histograms[prefix, c] = histograms.get((prefix, c), 0) + count
        for (rank, c), (prefix, among) in wanted.items():
            total = np.cumsum(histograms[prefix, c])
            place = int(np.searchsorted(total, among, side="right"))
            wanted[rank, c] = (
                prefix << DIGIT | place,
                among - (int(total[place - 1]) if place else 0),
            )
    bits = np.array([[wanted[rank, c][0] for c in range(columns)] for rank in ranks], np.uint64)
    top = np.uint64(1 << 63)
    return np.where(bits & top, bits ^ top, ~bits).view(np.float64)


def _ordered_bits(values: Float[Array, "n C"]) -> Shaped[Array, "n C"]:
    bits = np.ascontiguousarray(values).view(np.uint64)
    top = np.uint64(1 << 63)
    return np.where(bits & top, ~bits, bits | top)
