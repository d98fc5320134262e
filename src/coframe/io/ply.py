# SPDX-License-Identifier: MIT
"""PLY, the format of our own results."""

import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float
from plyfile import PlyData, PlyElement

from coframe import geometry
from coframe.io.files import atomic, foreign
from coframe.io.scan import NORMALS, Scan, of_columns, points_in_space
from coframe.io.table import table
from coframe.types import Array, Points

# [size] Vertices per block.
ROWS = 1_000_000
# [size, bytes] Text that is read at a time.
PIECE = 1 << 24
# [limit, bytes]
LONGEST_HEADER = 1 << 20
TYPES = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "float": "f4",
    "double": "f8",
}
TYPES |= {"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"}
TYPES |= {"float32": "f4", "float64": "f8", "int64": "i8", "uint64": "u8"}
WRITTEN = ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8")


def write(path: str | os.PathLike[str], points: Points, **columns: Array) -> None:
    """Binary PLY with double coordinates (survey coordinates need them) and one more property per
    column (N,).
    """
    dtype = [(axis, "f8") for axis in "xyz"] + [
        (name, written_type(column.dtype)) for name, column in columns.items()
    ]
    vertices = np.empty(len(points), dtype)
    for axis, values in zip("xyz", points_in_space(points).T, strict=True):
        vertices[axis] = values
    for name, column in columns.items():
        vertices[name] = column
    with atomic(path) as temporary:
        PlyData([PlyElement.describe(vertices, "vertex")], byte_order="<").write(str(temporary))


def write_scan(path: str | os.PathLike[str], scan: Scan) -> None:
    """A scan with all its columns."""
    columns = {
        "_".join(name.split()) or "_": column
        for name, column in scan.attributes().items()
        if column.ndim == 1
    }
    write(path, scan.points, **columns)


def written_type(dtype: np.dtype) -> str:
    """The PLY type for a column: 64-bit integers and booleans have none."""
    if dtype.kind == "b":
        return "u1"
    small = dtype.newbyteorder("=").str[1:]
    return small if small in WRITTEN else "f8"


def read(path: str | os.PathLike[str]) -> Array:
    """The vertices as a structured array with the file's own property names."""
    with open(path, "rb") as file:
        header = Header.read(file)
        if header.plain:
            return (
                np.concatenate(list(_tables(file, header, ROWS)))
                if header.vertices.count
                else np.empty(0, header.dtype)
            )
    return _by_plyfile(path, header)["vertex"].data


def count(path: str | os.PathLike[str]) -> int:
    """The vertices that a file promises."""
    with open(path, "rb") as file:
        return Header.read(file).vertices.count


def comments(path: str | os.PathLike[str]) -> list[str]:
    """The comments of the header."""
    with open(path, "rb") as file:
        lines = list(_header_lines(file))
    return [line.removeprefix("comment ") for line in lines if line.startswith("comment ")]


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """The vertices with all their properties; what the file has besides (faces) is left out."""
    return _scan(read(path), path)


def blocks(path: str | os.PathLike[str], rows: int = ROWS) -> Iterator[Scan]:
    """The vertices, so many at a time."""
    with open(path, "rb") as file:
        header = Header.read(file)
        if header.plain:
            yield from (_scan(part, path) for part in _tables(file, header, rows))
            return
    vertices = _by_plyfile(path, header)["vertex"].data
    yield from (
        _scan(vertices[begin : begin + rows], path) for begin in range(0, len(vertices), rows)
    )


def move(
    source: str | os.PathLike[str], target: str | os.PathLike[str], pose: Float[Array, "4 4"]
) -> None:
    """A copy of a PLY file with its vertices (and normals) moved, and all else as it was: faces,
    comments, order of bytes.
    """
    with open(source, "rb") as file:
        header = Header.read(file)
        begin = file.tell()
    if header.plain and not header.before:
        _move_first(source, target, pose, header, begin)
        return
    data = _by_plyfile(source, header)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        vertex = PlyElement.describe(
            _moved(data["vertex"].data, pose), "vertex", comments=data["vertex"].comments
        )
        elements = [vertex if element.name == "vertex" else element for element in data.elements]
        moved = PlyData(elements, data.text, data.byte_order, data.comments, data.obj_info)
        with atomic(target) as temporary:
            moved.write(str(temporary))


def _move_first(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    pose: Float[Array, "4 4"],
    header: "Header",
    begin: int,
) -> None:
    """Where the vertices come first, what follows is copied as it is: plyfile takes 10 s for an
    ASCII scan of 40,000.
    """
    data, count = Path(source).read_bytes(), header.vertices.count
    if header.order:
        old = np.frombuffer(data, header.dtype, count, begin)
        new = _moved(old, pose)
        doubles = np.dtype(
            [(name, f"{header.order}{new.dtype[name].str[1:]}") for name in new.dtype.names or ()]
        )
        rows, rest = new.astype(doubles).tobytes(), data[begin + old.nbytes :]
    else:
        values, end = table(data, len(header.vertices.properties), rows=count, start=begin)
        if len(values) < count:
            raise ValueError(f"its header promises {count} vertices, it holds {len(values)}")
        new = _moved(typed(values, header.dtype), pose)
        texts = [map(str, new[name]) for name in new.dtype.names or ()]
        rows, rest = (
            "".join(" ".join(row) + "\n" for row in zip(*texts, strict=True)).encode(),
            data[end:].lstrip(b"\r\n"),
        )
    with atomic(target) as temporary:
        temporary.write_bytes(_with_doubles(data[:begin]) + rows + rest)


def _with_doubles(header: bytes) -> bytes:
    """The header of a file whose vertices come first, with doubles as their coordinates."""
    before, vertices, after = re.split(
        rb"(?<=[\r\n])(element\s+vertex\s[^\0]*?)(?=[\r\n](?:element\s|end_header))",
        header,
        maxsplit=1,
    )
    return (
        before
        + re.sub(rb"property\s+\w+\s+([xyz])(?=\s)", rb"property double \1", vertices + b"\n")[:-1]
        + after
    )


def _moved(old: Array, pose: Float[Array, "4 4"]) -> Array:
    """Vertices moved, their coordinates as doubles."""
    names = old.dtype.names or ()
    new = np.empty(
        len(old), [(name, "f8" if name in ("x", "y", "z") else old.dtype[name]) for name in names]
    )
    for name in names:
        new[name] = old[name]
    points = np.stack([new[axis] for axis in "xyz"], 1)
    for axis, values in zip("xyz", geometry.transform(pose, points).T, strict=True):
        new[axis] = values
    unit = [each[0] for each in NORMALS]
    if set(unit) <= set(names):
        turned = (
            np.stack([np.asarray(old[axis], float) for axis in unit], 1) @ geometry.rotation(pose).T
        )
        for axis, values in zip(unit, turned.T, strict=True):
            new[axis] = values
    return new


@dataclass(frozen=True)
class Element:
    """One kind of rows in a file: a name, their number, and (name, type) per property, the type
    None for lists.
    """

    name: str
    count: int
    properties: tuple[tuple[str, str | None], ...]

    @property
    def scalar(self) -> bool:
        return all(kind for _, kind in self.properties)

    @property
    def least(self) -> int:
        """Bytes that a row takes at least in a binary file; in text, two for every property."""
        return sum(np.dtype(kind).itemsize if kind else 1 for _, kind in self.properties)


@dataclass(frozen=True)
class Header:
    """What a PLY promises. plyfile knows the format better, but reads ASCII through Python objects,
    and the elements behind the vertices as well: seconds for a scan of 40,000 points with its
    faces, which `table.table` reads in 13 ms.
    """

    order: str  # "<", ">" or "" for ASCII
    elements: tuple[Element, ...]

    @classmethod
    def read(cls, file: BinaryIO) -> "Header":
        """Reads up to the first byte behind the header, and refuses promises that the file is too
        small to keep.
        """
        size = os.fstat(file.fileno()).st_size
        lines = [line.split() for line in _header_lines(file)]
        order: str | None = None
        elements: list[Element] = []
        for words in lines:
            if words[:1] == ["format"]:
                order = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}.get(
                    " ".join(words[1:2])
                )
            elif words[:1] == ["element"] and len(words) == 3:
                elements.append(Element(words[1], int(words[2]), ()))
            elif words[:1] == ["property"] and elements and len(words) in (3, 5):
                kind = None if words[1] == "list" else TYPES[words[1]]
                last = elements[-1]
                elements[-1] = Element(last.name, last.count, (*last.properties, (words[-1], kind)))
            elif words[:1] not in (["comment"], ["obj_info"], ["ply"], ["end_header"], []):
                raise ValueError(f"its header has the line {' '.join(words)[:60]!r}")
        if order is None:
            raise ValueError(
                "its header does not say ascii, binary_little_endian or binary_big_endian"
            )
        if "vertex" not in [element.name for element in elements]:
            raise ValueError("it has no vertices")
        header = cls(order, tuple(elements))
        for element in elements:
            row = element.least if order else 2 * len(element.properties)
            if (
                element.count < 0
                or (element.count and not row)
                or element.count * row > size - file.tell() + 1
            ):
                raise ValueError(
                    f"its header promises {element.count} rows of {element.name}, and it is {size}"
                    " bytes long"
                )
        return header

    @property
    def before(self) -> tuple[Element, ...]:
        """The elements before the vertices."""
        return self.elements[: [element.name for element in self.elements].index("vertex")]

    @property
    def vertices(self) -> Element:
        return self.elements[len(self.before)]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(
            [(name, f"{self.order or '='}{kind}") for name, kind in self.vertices.properties]
        )

    @property
    def plain(self) -> bool:
        """Whether the vertices are a table whose beginning is known without reading lists."""
        return self.vertices.scalar and (
            not self.before if not self.order else all(each.scalar for each in self.before)
        )


def _header_lines(file: BinaryIO) -> Iterator[str]:
    start = file.read(5)
    ending = b"\r" if start[3:4] == b"\r" and start[4:5] != b"\n" else b"\n"
    if start[:3] != b"ply" or start[3:4] not in (b"\r", b"\n"):
        raise ValueError("it does not begin with the line 'ply'")
    text = start + file.read(LONGEST_HEADER)
    position = 0
    while (end := text.find(ending, position)) >= 0:
        line = text[position:end].decode("latin-1").strip()
        position = end + 1
        yield line
        if line == "end_header":
            file.seek(position)
            return
    raise ValueError("its header has no end")


def _tables(file: BinaryIO, header: Header, rows: int) -> Iterator[Array]:
    """The vertices of a plain file, so many at a time."""
    dtype, count = header.dtype, header.vertices.count
    if not header.order:
        yield from _ascii_tables(file, header, rows)
        return
    file.seek(sum(each.count * each.least for each in header.before), os.SEEK_CUR)
    for begin in range(0, count, rows):
        part = np.fromfile(file, dtype, min(rows, count - begin))
        if len(part) != min(rows, count - begin):
            raise ValueError(f"its header promises {count} vertices, it holds {begin + len(part)}")
        yield part


def _ascii_tables(file: BinaryIO, header: Header, rows: int) -> Iterator[Array]:
    names, count, done = header.dtype.names or (), header.vertices.count, 0
    left = b""
    while done < count:
        more = file.read(PIECE)
        text = left + more
        cut = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 if more else len(text)
        text, left = text[:cut], text[cut:]
        if not text and not more:
            raise ValueError(f"its header promises {count} vertices, it holds {done}")
        values, _ = table(text, len(names), rows=count - done)
        for begin in range(0, len(values), rows):
            part = values[begin : begin + rows]
            yield typed(part, header.dtype)
        done += len(values)


def typed(values: Float[Array, "N C"], dtype: np.dtype) -> Array:
    """Numbers read from text as the columns that the header promises."""
    part = np.empty(len(values), dtype)
    with np.errstate(over="ignore"):  # 1e300 as a float is infinite
        for name, column in zip(dtype.names or (), values.T, strict=True):
            kind = dtype[name]
            if kind.kind in "iu":
                limits = np.iinfo(kind)
                if not ((column >= limits.min) & (column <= limits.max)).all():
                    raise ValueError(f"property {name} has values that do not fit its type")
            part[name] = column
    return part


def _by_plyfile(path: str | os.PathLike[str], header: Header) -> PlyData:
    if not all(element.properties for element in header.elements if element.count):
        raise ValueError("it has rows without properties")
    with warnings.catch_warnings(), foreign():
        warnings.simplefilter("ignore")  # an element without entries is no reason to warn
        return PlyData.read(str(path))


def _scan(vertices: Array, path: str | os.PathLike[str]) -> Scan:
    # lists are not per-point numbers
    names = [name for name in vertices.dtype.names or () if vertices.dtype[name].kind != "O"]
    return of_columns({name: vertices[name] for name in names}, name=Path(path).stem)
