# SPDX-License-Identifier: MIT
"""PCD, the format of the Point Cloud Library: ascii, binary and binary_compressed."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from coframe.errors import optional
from coframe.geometry import pose as pose_of
from coframe.io.files import atomic, foreign
from coframe.io.ply import typed
from coframe.io.scan import Scan, in_space, of_columns, points_in_space
from coframe.io.table import table
from coframe.types import Array

# [size] Points per block.
ROWS = 1_000_000
# [0.1, unknown] Share of the extent: coordinates are written as doubles where floats would lose
# more.
FLOAT_LOSS = 1e-6
# [limit] Lines of a header, bytes of a line, entries of a field.
MOST_LINES = 1000
LONGEST_LINE = 1 << 16
MOST_ENTRIES = 1 << 16
KEYS = (
    "version",
    "fields",
    "size",
    "type",
    "count",
    "width",
    "height",
    "viewpoint",
    "points",
    "data",
)
# [format] LZF turns 3 bytes into 264 at best.
LEAST_RATIO = 300
KINDS = {("F", 4): "<f4", ("F", 8): "<f8"} | {
    (t, n): f"<{k}{n}" for t, k in (("I", "i"), ("U", "u")) for n in (1, 2, 4, 8)
}


@dataclass(frozen=True)
class Header:
    """What a PCD promises."""

    dtype: np.dtype
    points: int
    data: str
    # Carries the cloud into the world; None where it does not move it.
    viewpoint: Float[Array, "4 4"] | None

    @classmethod
    def read(cls, file: BinaryIO) -> "Header":
        """Reads up to the first byte behind the header, and refuses promises that the file is too
        small to keep.
        """
        words: dict[str, list[str]] = {}
        for _ in range(MOST_LINES):
            if not (text := file.readline(LONGEST_LINE)):
                break
            line = text.decode("latin-1").partition("#")[0].split()
            if line and line[0].lower() in KEYS:
                words[line[0].lower()] = line[1:]
            elif line:
                raise ValueError(f"its header has the line {' '.join(line)[:60]!r}")
            if line and line[0].lower() == "data":
                break
        for key in ("fields", "size", "type", "data"):
            if not words.get(key):
                raise ValueError(f"its header has no {key.upper()}")
        names, sizes, kinds = words["fields"], [int(size) for size in words["size"]], words["type"]
        counts = [int(count) for count in words.get("count", ["1"] * len(names))]
        if (
            not len(names) == len(sizes) == len(kinds) == len(counts)
            or min(counts) < 0
            or max(counts) > MOST_ENTRIES
        ):
            raise ValueError("its header gives FIELDS, SIZE, TYPE and COUNT of different lengths")
        formats = [KINDS[kind.upper(), size] for kind, size in zip(kinds, sizes, strict=True)]
        unique = [
            name if name != "_" and names.count(name) == 1 else f"{name}{j}"
            for j, name in enumerate(names)
        ]
        dtype = np.dtype(
            [
                (n, f) if c == 1 else (n, f, (c,))
                for n, f, c in zip(unique, formats, counts, strict=True)
            ]
        )
        area = int(words.get("width", ["0"])[0]) * int(words.get("height", ["1"])[0])
        points = int(words["points"][0]) if words.get("points") else area
        data = words["data"][0].lower()
        if data not in ("ascii", "binary", "binary_compressed"):
            raise ValueError(f"its DATA is {data[:40]!r}, not ascii, binary or binary_compressed")
        size = os.fstat(file.fileno()).st_size - file.tell()
        row = {
            "ascii": 2 * sum(counts),
            "binary": dtype.itemsize,
            "binary_compressed": dtype.itemsize / LEAST_RATIO,
        }[data]
        if points < 0 or (points and not row) or points * row > size + 1:
            raise ValueError(f"its header promises {points} points, and {size} bytes follow it")
        return cls(dtype, points, data, _viewpoint(words.get("viewpoint", [])))


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """All points, organised or not, row by row; a ray without a return is a row of NaN."""
    with open(path, "rb") as file:
        header = Header.read(file)
        if header.data == "binary":
            points = np.fromfile(file, header.dtype, header.points)
        elif header.data == "ascii":
            points = _ascii(file.read(), header)
        else:
            points = _decompressed(file, header)
    if len(points) != header.points:
        raise ValueError(f"its header promises {header.points} points, it holds {len(points)}")
    return _scan(points, header, path)


def read_pose(path: str | os.PathLike[str]) -> Float[Array, "4 4"] | None:
    """The viewpoint, without the points."""
    with open(path, "rb") as file:
        return Header.read(file).viewpoint


def blocks(path: str | os.PathLike[str], rows: int = ROWS) -> Iterator[Scan]:
    """The points, so many at a time; compressed and ascii files are read at once."""
    with open(path, "rb") as file:
        header = Header.read(file)
        if header.data == "binary":
            for begin in range(0, header.points, rows):
                yield _scan(
                    np.fromfile(file, header.dtype, min(rows, header.points - begin)), header, path
                )
            return
    scan = read_scan(path)
    yield from (scan[begin : begin + rows] for begin in range(0, len(scan), rows))


def write_scan(path: str | os.PathLike[str], scan: Scan) -> None:
    """Binary, with packed colours as PCL has them, and the pose as viewpoint.

    Coordinates, normals and intensity are floats, the only kind that PCL and Open3D read; doubles
    where floats would cost more than a millionth of the extent, as in survey coordinates.
    """
    N = len(scan)
    points = points_in_space(scan.points)
    columns: dict[str, Array] = dict(zip("xyz", points.T, strict=True))
    for name, column in scan.attributes().items():
        if (
            column.ndim == 1
            and name not in ("red", "green", "blue")
            and column.dtype.kind in "fiub"
        ):
            columns[
                {"nx": "normal_x", "ny": "normal_y", "nz": "normal_z"}.get(
                    name, "_".join(name.split())
                )
            ] = column
    extent = float(np.ptp(points, axis=0).max()) if N else 0.0
    if N and np.abs(points).max() * 2.0**-24 <= FLOAT_LOSS * extent:
        floats = {"x", "y", "z", "normal_x", "normal_y", "normal_z", "intensity"}
        columns = {
            name: column.astype("<f4") if name in floats else column
            for name, column in columns.items()
        }
    if scan.colours is not None:
        red, green, blue = scan.colours.astype("<u4").T
        columns["rgb"] = (red << 16 | green << 8 | blue).view("<f4")
    dtype = np.dtype(
        [
            (n, c.astype("u1").dtype if c.dtype.kind == "b" else c.dtype.newbyteorder("<"))
            for n, c in columns.items()
        ]
    )
    table = np.empty(N, dtype)
    for name, column in columns.items():
        table[name] = column
    kinds = [dtype[name] for name in columns]
    lines = [
        "# .PCD v0.7 - Point Cloud Data file format",
        "VERSION 0.7",
        "FIELDS " + " ".join(columns),
        "SIZE " + " ".join(str(kind.itemsize) for kind in kinds),
        "TYPE " + " ".join({"f": "F", "i": "I", "u": "U"}[kind.kind] for kind in kinds),
        "COUNT " + " ".join("1" for _ in kinds),
        f"WIDTH {N}",
        "HEIGHT 1",
        "VIEWPOINT " + _viewpoint_text(scan.pose),
        f"POINTS {N}",
        "DATA binary",
    ]
    with atomic(path) as temporary, temporary.open("wb") as file:
        file.write(("\n".join(lines) + "\n").encode())
        file.write(table.tobytes())


def _ascii(text: bytes, header: Header) -> Array:
    flat = np.dtype(
        [
            (f"{n}.{k}", header.dtype[n].base)
            for n in header.dtype.names or ()
            for k in range(int(np.prod(header.dtype[n].shape)))
        ]
    )
    values, _ = table(text, len(flat.names or ()), rows=header.points)
    return typed(values, flat).view(header.dtype)


def _decompressed(file: BinaryIO, header: Header) -> Array:
    """Columns, one behind the other, under LZF; two lengths come first."""
    compressed, whole = (int(length) for length in np.frombuffer(file.read(8), "<u4"))
    if whole != header.points * header.dtype.itemsize:
        raise ValueError(
            f"its header promises {header.points} points, it holds {whole} bytes of them"
        )
    # `read` allocates as much as is asked for.
    if compressed > os.fstat(file.fileno()).st_size - file.tell():
        raise ValueError(
            f"its compressed data is promised to be {compressed} bytes long, and is not"
        )
    packed = file.read(compressed)
    points = np.empty(header.points, header.dtype)
    if whole:
        lzf = optional("lzf", "pcd", "compressed PCD files")
        try:
            with foreign():
                text = lzf.decompress(packed, whole)
        except ValueError:
            # pypcd4 stores data that does not shrink without compression.
            text = packed if compressed == whole else None
        if text is None or len(text) != whole:
            raise ValueError("its compressed data is damaged")
        position = 0
        for name in header.dtype.names or ():
            column = header.dtype[name]
            part = np.frombuffer(
                text, column.base, header.points * int(np.prod(column.shape)), position
            )
            points[name] = part.reshape(header.points, *column.shape)
            position += header.points * column.itemsize
    return points


def _scan(points: Array, header: Header, path: str | os.PathLike[str]) -> Scan:
    names = points.dtype.names or ()
    columns = {
        name: points[name]
        for name in names
        if points.dtype[name].shape == () and not name.startswith("_")
    }
    return of_columns(columns, name=Path(path).stem, pose=header.viewpoint)


def _viewpoint(words: list[str]) -> Float[Array, "4 4"] | None:
    numbers = np.array(words, float)
    if numbers.shape != (7,) or not np.isfinite(numbers).all() or not numbers[3:].any():
        return None
    T = pose_of(Rotation.from_quat(numbers[[4, 5, 6, 3]]).as_matrix(), numbers[:3])
    return None if np.array_equal(T, np.eye(4)) else T


def _viewpoint_text(pose: Float[Array, "4 4"] | None) -> str:
    T = np.eye(4) if pose is None else in_space(pose)
    x, y, z, w = Rotation.from_matrix(T[:3, :3]).as_quat(canonical=True)
    return " ".join(repr(float(number)) for number in (*T[:3, 3], w, x, y, z))
