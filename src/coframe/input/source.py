# SPDX-License-Identifier: MIT
"""One cloud, wherever its points are: in memory, or in a file that is read a block at a time.

What is asked of all points of a cloud (its median, its extent, a thinned copy, the class of every
point) is computed block by block, in a way that gives the same bits however large the blocks are.
So clouds that do not fit into memory need no second set of algorithms.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from coframe.compute.checkpoint import digest
from coframe.io.files import write_rows
from coframe.types import Array, Points

# [size] Points of a block: a whole number of the kernels' blocks.
ROWS = 1 << 18


Rows = slice | Int[Array, " n"]


@dataclass(frozen=True)
class InMemory:
    """A cloud in memory, or a block of one."""

    points: Points  # v, as given
    weights: Float[Array, " N"] | None = None  # None: all points count alike
    # whatever else belongs to the points
    columns: Mapping[str, Shaped[Array, " N"]] = field(default_factory=dict)
    rows: int = ROWS  # of a block

    @property
    def shape(self) -> tuple[int, int]:
        return self.points.shape

    def take(self, rows: Rows) -> "InMemory":
        """Some of the points, with all that belongs to them."""
        weights = None if self.weights is None else self.weights[rows]
        return InMemory(
            self.points[rows],
            weights,
            {name: column[rows] for name, column in self.columns.items()},
        )

    def blocks(self) -> Iterator["InMemory"]:
        """The points in their order, so many at a time."""
        begins = range(0, len(self.points), self.rows)
        return (self.take(slice(begin, begin + self.rows)) for begin in begins)

    def counted(self) -> "InMemory":
        """Without the points of weight zero."""
        return self if self.weights is None else self.take(np.flatnonzero(self.weights > 0))


@dataclass(frozen=True)
class OnDisk:
    """A cloud in a file of equal rows: the coordinates, and what else belongs to a point.

    It is read, not mapped: pages of a map count as memory of the process for as long as there is
    room.
    """

    path: Path
    dtype: np.dtype
    shape: tuple[int, int]
    near: "OnDisk | None" = None  # the same without strays, where there are any,
    median: Float[Array, " D"] | None = None  # and what these lie further from
    reach: float = np.inf  # than that
    rows: int = ROWS  # of a block

    @classmethod
    def write(cls, path: Path, blocks: Iterator[InMemory]) -> "OnDisk":
        """Store a cloud that comes in blocks; columns that the first block lacks are left out."""
        dtype, count = None, 0
        with path.open("wb") as file:
            for block in blocks:
                if dtype is None:
                    columns = [(name, column.dtype) for name, column in block.columns.items()]
                    dtype = np.dtype([("points", np.float64, block.shape[1:]), *columns])
                rows = np.empty(len(block.points), dtype)
                rows["points"] = block.points
                for name in (dtype.names or ())[1:]:
                    rows[name] = block.columns[name]
                write_rows(file, rows)
                count += len(rows)
        if dtype is None:
            dtype = np.dtype([("points", np.float64, (3,))])
        return cls(path, dtype, (count, dtype["points"].shape[0]))

    def take(self, rows: Rows) -> InMemory:
        """Some of the points, with all that belongs to them."""
        size = self.dtype.itemsize
        if isinstance(rows, slice):
            begin, end, step = rows.indices(self.shape[0])
            if step == 1:
                with self.path.open("rb", buffering=0) as file:
                    file.seek(begin * size)
                    return self._loaded(np.fromfile(file, self.dtype, max(0, end - begin)))
            rows = np.arange(begin, end, step)
        found = bytearray(size * len(rows))
        view = memoryview(found)
        with self.path.open("rb", buffering=0) as file:
            for i, row in enumerate(rows.tolist()):
                file.seek(row * size)
                file.readinto(view[i * size : (i + 1) * size])
        return self._loaded(np.frombuffer(found, self.dtype))

    def blocks(self) -> Iterator[InMemory]:
        """The points in their order, so many at a time."""
        begins = range(0, self.shape[0], self.rows)
        return (self.take(slice(begin, begin + self.rows)) for begin in begins)

    def counted(self) -> "OnDisk":
        """Without strays: a stored cloud has no other weights."""
        return self if self.near is None else self.near

    def _loaded(self, rows: Shaped[Array, " n"]) -> InMemory:
        columns = {name: rows[name] for name in (self.dtype.names or ())[1:]}
        points = np.ascontiguousarray(rows["points"])
        weights = (
            None
            if self.median is None
            else np.where(stray(points, self.median, self.reach), 0.0, 1.0)
        )
        return InMemory(points, weights, columns)


Source = InMemory | OnDisk


def stray(points: Points, median: Float[Array, " D"], reach: float) -> Bool[Array, " N"]:
    """Which points lie so far from the median of their cloud that their squares would drown the
    others'.
    """
    return np.asarray(np.abs(points - median).max(1) > reach)


def without_strays(cloud: Source, median: Float[Array, " D"], reach: float) -> Source:
    """A cloud without weights in which strays count as nothing; as it is where none are there, or
    little else.
    """
    found = sum(int(stray(block.points, median, reach).sum()) for block in cloud.blocks())
    if not found or cloud.shape[0] - found <= cloud.shape[1]:
        return cloud
    if isinstance(cloud, InMemory):
        return replace(cloud, weights=np.where(stray(cloud.points, median, reach), 0.0, 1.0))
    marked = replace(cloud, median=median, reach=reach)
    return replace(
        marked,
        near=OnDisk.write(
            cloud.path.with_name(f"{cloud.path.name}-near"), map(InMemory.counted, marked.blocks())
        ),
    )


def cloud_digest(cloud: Source) -> tuple[str, str]:
    """Names for what the points of a cloud are, and for their weights, wherever the cloud is."""
    found = hashlib.blake2b(f"{np.dtype(np.float64).str}{cloud.shape}".encode(), digest_size=20)
    for block in cloud.blocks():
        found.update(np.ascontiguousarray(block.points).data)
    weights = cloud.weights if isinstance(cloud, InMemory) else None
    return found.hexdigest(), "" if weights is None else digest(weights)
