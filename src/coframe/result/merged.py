# SPDX-License-Identifier: MIT
"""Merged clouds as PLY: all points in the common frame, in one file (merged.ply) or in one a cloud (merged-0000.ply ...).

A row is a point: where it is, which cloud it is of, what the model says of it, and colours, intensity and normals where the
clouds have them. The rows are written block by block, so that clouds larger than memory can be merged.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float, Int, Shaped

from coframe import geometry
from coframe.types import Array
from coframe.io import ply
from coframe.input.source import Loaded

NAME = "merged.ply"
COLOURS, NORMALS = ("red", "green", "blue"), ("nx", "ny", "nz")
GREY = 128  # of clouds without colours beside others that have some
KINDS = {"f8": "double", "f4": "float", "i4": "int", "u4": "uint", "i2": "short", "u2": "ushort", "i1": "char", "u1": "uchar"}


def row_of(columns: Sequence[Mapping[str, np.dtype]], dimension: int) -> np.dtype:
    """The type of a row, given the columns of every cloud: colours where one has them, the rest where all have them."""
    found = [("x", "<f8"), ("y", "<f8"), ("z", "<f8"), ("cloud", "<i4"), ("outlier_probability", "<f4"), ("component", "<i4")]
    if any(set(COLOURS) <= set(each) for each in columns):
        found += [(name, "|u1") for name in COLOURS]
    if columns and all("intensity" in each for each in columns):
        kind = ply.written_type(np.result_type(*(each["intensity"] for each in columns)))
        found.append(("intensity", f"<{kind}"))
    if columns and dimension == 3 and all(set(NORMALS) <= set(each) for each in columns):
        found += [(name, "<f4") for name in NORMALS]
    return np.dtype(found)


def rows(
    block: Loaded,
    cloud: int,
    pose: Float[Array, "D1 D1"],
    outlier_probability: Float[Array, " N"],
    labels: Int[Array, " N"],
    row: np.dtype,
) -> Shaped[Array, " N"]:
    """The rows of some points of one cloud."""
    table = np.zeros(len(block.points), row)
    for axis, values in zip("xyz", geometry.transform(pose, block.points).T, strict=False):
        table[axis] = values
    table["cloud"], table["outlier_probability"], table["component"] = cloud, outlier_probability, labels
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
    return np.concatenate([ply.read(path) for path in parts]) if all(path.is_file() for path in parts) else None
