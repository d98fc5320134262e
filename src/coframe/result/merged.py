# SPDX-License-Identifier: MIT
"""Merged clouds as PLY: all points in the common frame, in one file (merged.ply) or in one a cloud
(merged-0000.ply ...).

A row is a point: where it is, which cloud it is of, what the model says of it, and colours,
intensity and normals where the clouds have them. The rows are written block by block, so that
clouds larger than memory can be merged.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float, Int, Shaped

from coframe import geometry
from coframe.compute.checkpoint import digest
from coframe.input.given import Given
from coframe.input.source import InMemory
from coframe.io import ply
from coframe.io.files import atomic
from coframe.io.transaction import locked
from coframe.types import Array, Pose, Poses

NAME = "merged.ply"
KEY = "coframe poses"
# Where points are written to before the rest of their result is known.
POINTS = ".coframe-points"
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


def key_of(poses: Poses) -> str:
    """What the header of a file says of the poses that its points were moved by."""
    return f"{KEY} {digest(poses)}"


def begin(file: BinaryIO, row: np.dtype, count: int, key: str = "") -> None:
    """Write the header of a file of so many rows."""
    lines = ["ply", "format binary_little_endian 1.0", *([f"comment {key}"] if key else [])]
    lines += [f"element vertex {count}"]
    lines += [f"property {KINDS[row[name].str[1:]]} {name}" for name in row.names or ()]
    file.write(("\n".join([*lines, "end_header"]) + "\n").encode())


def part(folder: str | os.PathLike[str], cloud: int) -> Path:
    """The file of one cloud, where each has its own."""
    return Path(folder) / f"merged-{cloud:04d}.ply"


def is_name(name: str) -> bool:
    """Whether this is the name of a file of merged points."""
    return name == NAME or re.fullmatch(r"merged-\d{4,}\.ply", name) is not None


def check_poses(folder: Path, poses: Poses) -> None:
    """A ValueError where merged.ply says that its points were moved by other poses."""
    said = [line for line in ply.comments(folder / NAME) if line.startswith(KEY)]
    if said and said != [key_of(poses)]:
        raise ValueError(f"state.npz and {NAME} are of different results")


def take(folder: Path, new: Path, sizes: Sequence[int], poses: Poses) -> bool:
    """Add all points, where they have been written to a folder under these poses, to its new
    result; they stay where they are as well.
    """
    for where in (folder / POINTS, folder):
        for names in ([NAME], [part(where, j).name for j in range(len(sizes))]):
            if _holds([where / name for name in names], sizes, key_of(poses)):
                for name in names:
                    _link(where / name, new / name)
                return True
    return False


def _holds(paths: Sequence[Path], sizes: Sequence[int], key: str) -> bool:
    """Whether files hold so many points of each cloud, moved by the poses of the key."""
    counts = [sum(sizes)] if len(paths) == 1 else sizes
    try:
        return all(
            ply.count(path) == count and key in ply.comments(path)
            for path, count in zip(paths, counts, strict=True)
        )
    except (OSError, ValueError, KeyError):
        return False


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # Not every file system has links.
        shutil.copyfile(source, target)


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
    key: str = ""  # see `key_of`

    @contextmanager
    def opened(self, count: int) -> Iterator[BinaryIO]:
        """The file at the place of the first row."""
        if self.offset is not None:
            with self.path.open("rb+") as file:
                file.seek(self.offset)
                yield file
            return
        with atomic(self.path) as temporary, temporary.open("wb") as file:
            begin(file, self.row, count, self.key)
            yield file


@contextmanager
def targets(given: Given, folder: Path | None, poses: Poses) -> Iterator[Sequence[Target | None]]:
    """Where the points of each cloud are to be written, under their poses.

    They stay hidden in the folder until their result is saved there.
    """
    row = row_of([summary.columns for summary in given.summaries], given.dimension)
    if folder is None:
        yield [None] * len(poses)
        return
    with locked(folder), _emptied(folder.absolute() / POINTS) as hidden:
        key = key_of(poses)
        if given.separate:
            yield [Target(part(hidden, j), row, j, pose, key=key) for j, pose in enumerate(poses)]
            return
        sizes = [summary.size for summary in given.summaries]
        with atomic(hidden / NAME) as path:
            with path.open("wb") as file:
                begin(file, row, sum(sizes), key)
                first = file.tell()
            offsets = first + row.itemsize * np.cumsum([0, *sizes[:-1]])
            yield [Target(path, row, j, pose, int(offsets[j])) for j, pose in enumerate(poses)]


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    """A folder without what an earlier run left in it; gone when the block ends badly."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
