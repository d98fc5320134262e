# SPDX-License-Identifier: MIT
"""PLY, the format of our own results."""

import os
import warnings
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from jaxtyping import Float
from plyfile import PlyData, PlyElement

from coframe.arrays import Array
from coframe.io.files import atomic


def write(path: str | os.PathLike[str], points: Float[Array, "N D"], **columns: Array) -> None:
    """Binary PLY with double coordinates (survey coordinates need them) and one more property per column (N,)."""
    N, D = points.shape
    coordinates = np.zeros((N, 3))
    coordinates[:, :D] = points
    dtype = [(axis, "f8") for axis in "xyz"] + [(name, column.dtype.str) for name, column in columns.items()]
    vertices = np.empty(N, dtype)
    for axis, values in zip("xyz", coordinates.T, strict=True):
        vertices[axis] = values
    for name, column in columns.items():
        vertices[name] = column
    with atomic(path) as temporary:
        PlyData([PlyElement.describe(vertices, "vertex")], byte_order="<").write(str(temporary))


def read(path: str | os.PathLike[str]) -> Array:
    """The vertices as a structured array with the file's own property names."""
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an element without entries is no reason to warn
        header = PlyHeader(file)
        if header.plain_ascii_vertices is None:
            vertices: Array = PlyData.read(str(path))["vertex"].data
        else:
            vertices = np.loadtxt(file, header.plain_ascii_vertices, max_rows=header.vertices, ndmin=1)
            if len(vertices) != header.vertices:
                raise ValueError(f"its header promises {header.vertices} vertices, it holds {len(vertices)}")
    return vertices


class PlyHeader:
    """Just enough of a header to see whether the vertices are a plain ASCII table at its start.

    plyfile reads ASCII through Python objects, and the elements behind the vertices as well: four seconds for a scan of 40,000
    points with its faces or grid, which NumPy reads in 30 ms.
    """

    def __init__(self, file: BinaryIO) -> None:
        lines = [line.split() for line in _header_lines(file)]
        elements = [words for words in lines if words[:1] == [b"element"]]
        properties = [words for words in lines[lines.index(elements[0]) :] if words[:1] == [b"property"]] if elements else []
        end = lines.index(elements[1]) - lines.index(elements[0]) - 1 if len(elements) > 1 else len(properties)
        own = properties[:end]
        ascii_first = [b"format", b"ascii", b"1.0"] in lines and bool(elements) and elements[0][1:2] == [b"vertex"]
        scalar = bool(own) and all(len(words) == 3 and words[1].decode() in TYPES for words in own)
        self.vertices = int(elements[0][2]) if ascii_first else 0
        self.plain_ascii_vertices: list[tuple[str, str]] | None = None
        if ascii_first and scalar and self.vertices:
            self.plain_ascii_vertices = [(words[2].decode(), TYPES[words[1].decode()]) for words in own]


def _header_lines(file: BinaryIO) -> Iterator[bytes]:
    for line in file:
        yield line
        if line.strip() == b"end_header":
            return


TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4", "double": "f8"}
TYPES |= {"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"}
TYPES |= {"float32": "f4", "float64": "f8"}
