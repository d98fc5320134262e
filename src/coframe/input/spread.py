# SPDX-License-Identifier: MIT
"""Points of a large cloud spread evenly over its surface.

A terrestrial scanner turns by equal angles: most of its points lie on the ground around the tripod.
Fits draw some thousand points of a cloud. Of a large one, they draw from points that were thinned
by a grid, so that a wall far away counts as much as the same area nearby.
"""

import numpy as np
from jaxtyping import Float, Int

from coframe.input.normalise import Summary
from coframe.input.source import InMemory, OnDisk, Source
from coframe.types import Array, Points

# [size] Points of a cloud that fits draw from, at most. Smaller clouds are left as they are: those
# of a depth camera or of one turn of a lidar are.
MOST = 500_000
# [size] Bits of the number of a cell along an axis, at first: three axes fit into 63 bits.
BITS = 20
# [guard] Shares of the extent by which the grid begins before the points and ends behind them.
# Coordinates of files are multiples of a step. No simple fraction of the extent is one of these, so
# that no points lie on the border of a cell, where a unit or an offset would decide by rounding.
BEFORE, AFTER = (np.sqrt(5) - 2) / 8, (np.sqrt(3) - 1) / 8


def spread(cloud: Source, summary: Summary, most: int = MOST) -> Source:
    """At most `most` points that count, the first one in each cell of a grid; all of a small cloud,
    and of one of which most points coincide.

    Cells become twice as large until they are few enough. So the points do not depend on the size
    of the blocks in which the cloud is read.
    """
    extent = float((summary.high - summary.low).max())
    low, side = summary.low - BEFORE * extent, (1 + BEFORE + AFTER) * extent / 2**BITS
    if summary.count <= most or side == 0:
        return cloud
    cells = np.empty(0, np.int64)
    points = np.empty((0, cloud.shape[1]))
    weights = None
    bits = BITS
    for block in cloud.counted().blocks():
        some = InMemory(block.points, block.weights)
        cell = _cells(some.points, low, side, bits)
        if some.weights is not None:
            old = np.empty(0) if weights is None else weights
            weights = np.concatenate([old, some.weights])
        cells, points = np.concatenate([cells, cell]), np.concatenate([points, some.points])
        while True:
            first = np.sort(np.unique(cells, return_index=True)[1])
            cells, points = cells[first], points[first]
            weights = None if weights is None else weights[first]
            if len(cells) <= most or bits == 0:
                break
            bits -= 1
            cells = _coarser(cells, cloud.shape[1])
    if len(points) < most / 2 ** cloud.shape[1]:  # Fewer are left only where points coincide.
        return cloud
    even = InMemory(points, weights)
    if isinstance(cloud, InMemory):
        return even
    return OnDisk.write(cloud.path.with_name(f"{cloud.path.name}-even"), even.blocks())


def count_of(cloud: Source) -> int:
    """The points that count."""
    return cloud.counted().shape[0]


def _cells(points: Points, low: Float[Array, " D"], side: float, bits: int) -> Int[Array, " N"]:
    """The number of the cell of each point: `BITS` bits for each axis, of which `bits` are used."""
    axes = np.clip(np.floor((points - low) / side), 0, 2**BITS - 1).astype(np.int64)
    axes >>= BITS - bits
    cell = np.zeros(len(points), np.int64)
    for axis in axes.T:
        cell = (cell << BITS) | axis
    return cell


def _coarser(cells: Int[Array, " N"], dimension: int) -> Int[Array, " N"]:
    """The cells of twice the size."""
    found = np.zeros_like(cells)
    for i in reversed(range(dimension)):
        axis = (cells >> (BITS * i)) & (2**BITS - 1)
        found = (found << BITS) | (axis >> 1)
    return found
