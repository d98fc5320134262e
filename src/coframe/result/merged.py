# SPDX-License-Identifier: MIT
"""Merged clouds as PLY: all points in the common frame, in one file (merged.ply) or in one a cloud
(merged-0000.ply ...).

A row is a point: where it is, which cloud it is of, what the model says of it, and colours,
intensity and normals where the clouds have them. The rows are written block by block, so that
clouds larger than memory can be merged.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float, Int, Shaped

from coframe import geometry
from coframe.input.given import Given
from coframe.input.source import InMemory
from coframe.io import ply
from coframe.io.files import atomic
from coframe.types import Array, Pose, Poses

NAME = "merged.ply"
COLOURS, NORMALS = ("red", "green", "blue"), ("nx", "ny", "nz")
GREY = 128  # of clouds without colours beside others that have some
KINDS = {
    "f8": "double",
    "f4": "float",
    "i4": "int",
    "u4": "uint",
    "i2": "short",
    "u2": "ushort",
    "i1": "char",
    "u1": "uchar",
}


def row_of(columns: Sequence[Mapping[str, np.dtype]], dimension: int) -> np.dtype:
    """The type of a row, given the columns of every cloud: colours where one has them, the rest
    where all have them.
    """
    found = [
        ("x", "<f8"),
        ("y", "<f8"),
        ("z", "<f8"),
        ("cloud", "<i4"),
        ("outlier_probability", "<f4"),
        ("component", "<i4"),
    ]
    if any(set(COLOURS) <= set(each) for each in columns):
        found += [(name, "|u1") for name in COLOURS]
    if columns and all("intensity" in each for each in columns):
        kind = ply.written_type(np.result_type(*(each["intensity"] for each in columns)))
        found.append(("intensity", f"<{kind}"))
    if columns and dimension == 3 and all(set(NORMALS) <= set(each) for each in columns):
        found += [(name, "<f4") for name in NORMALS]
    return np.dtype(found)


def rows(
    block: InMemory,
    cloud: int,
    pose: Pose,
    outlier_probability: Float[Array, " N"],
    labels: Int[Array, " N"],
    row: np.dtype,
) -> Shaped[Array, " N"]:
    """The rows of some points of one cloud."""
    table = np.zeros(len(block.points), row)
    for axis, values in zip("xyz", geometry.transform(pose, block.points).T, strict=False):
        table[axis] = values
    table["cloud"], table["outlier_probability"], table["component"] = (
        cloud,
        outlier_probability,
        labels,
    )
    names = row.names or ()
    for name in COLOURS if COLOURS[0] in names else ():
        table[name] = block.columns.get(name, GREY)
    if "intensity" in names:
        table["intensity"] = block.columns["intensity"]
    if NORMALS[0] in names:
        turned = np.stack([block.columns[name] for name in NORMALS], 1) @ geometry.rotation(pose).T
        for name, values in zip(NORMALS, turned.T, strict=True):
            table[name] = values
    return table


def begin(file: BinaryIO, row: np.dtype, count: int) -> None:
    """Write the header of a file of so many rows."""
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {count}"]
    lines += [f"property {KINDS[row[name].str[1:]]} {name}" for name in row.names or ()]
    file.write(("\n".join([*lines, "end_header"]) + "\n").encode())


def part(folder: str | os.PathLike[str], cloud: int) -> Path:
    """The file of one cloud, where each has its own."""
    return Path(folder) / f"merged-{cloud:04d}.ply"


def holds(folder: str | os.PathLike[str], sizes: Sequence[int]) -> bool:
    """Whether so many points of each cloud have been written to a folder."""
    try:
        if (Path(folder) / NAME).is_file():
            return ply.count(Path(folder) / NAME) == sum(sizes)
        return all(ply.count(part(folder, j)) == size for j, size in enumerate(sizes))
    except (OSError, ValueError, KeyError):
        return False


def read(folder: str | os.PathLike[str], clouds: int) -> Shaped[Array, " N"] | None:
    """All rows of a folder, from its one file or from one a cloud; None where there are none."""
    if (Path(folder) / NAME).is_file():
        return ply.read(Path(folder) / NAME)
    parts = [part(folder, j) for j in range(clouds)]
    return (
        np.concatenate([ply.read(path) for path in parts])
        if all(path.is_file() for path in parts)
        else None
    )


@dataclass(frozen=True)
class Target:
    """Where all points of a cloud are written to."""

    path: Path
    row: np.dtype  # see `row_of`
    cloud: int  # its number
    pose: Pose  # in user coordinates
    # in bytes, where its rows begin in a file that others write to as well; None: its own file
    offset: int | None = None

    @contextmanager
    def opened(self, count: int) -> Iterator[BinaryIO]:
        """The file at the place of the first row."""
        if self.offset is not None:
            with self.path.open("rb+") as file:
                file.seek(self.offset)
                yield file
            return
        with atomic(self.path) as temporary, temporary.open("wb") as file:
            begin(file, self.row, count)
            yield file


@contextmanager
def targets(given: Given, folder: Path | None, poses: Poses) -> Iterator[Sequence[Target | None]]:
    """Where the points of each cloud are to be written, under their poses."""
    row = row_of([summary.columns for summary in given.summaries], given.dimension)
    if folder is None:
        yield [None] * len(poses)
        return
    folder.mkdir(parents=True, exist_ok=True)
    if given.separate:
        (folder / NAME).unlink(missing_ok=True)
        yield [Target(part(folder.absolute(), j), row, j, pose) for j, pose in enumerate(poses)]
        for left in folder.glob(".merged-*"):  # by a worker that was lost
            left.unlink(missing_ok=True)
        return
    sizes = [summary.size for summary in given.summaries]
    with atomic(folder / NAME) as path:
        with path.open("wb") as file:
            begin(file, row, sum(sizes))
            first = file.tell()
        offsets = first + row.itemsize * np.cumsum([0, *sizes[:-1]])
        yield [Target(path, row, j, pose, int(offsets[j])) for j, pose in enumerate(poses)]
