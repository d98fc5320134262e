# SPDX-License-Identifier: MIT
"""PLY, the format of our own results."""

import os

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
    vertices: Array = PlyData.read(str(path))["vertex"].data
    return vertices
