# SPDX-License-Identifier: MIT
"""NPZ archives that nobody vouches for: what they unpack to is bounded, and what they hold is what
was asked for.
"""

import io
import os
import zipfile
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from coframe.io.files import foreign, regular
from coframe.types import Array

# [limit] Factor by which an archive may grow when unpacked.
LARGEST_RATIO = 100
# [limit, bytes] Size to which every archive may grow.
FREE = 1 << 28


def read(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Every array of an archive by its name; a ValueError where one is not as promised."""
    with regular(path) as file:
        return _read(cast("io.IOBase", file), os.fstat(file.fileno()).st_size)


def read_bytes(content: bytes) -> dict[str, Array]:
    """`read` for an archive in memory."""
    return _read(io.BytesIO(content), len(content))


def _read(source: io.IOBase, size: int) -> dict[str, Array]:
    with foreign(), zipfile.ZipFile(cast("Any", source)) as archive:
        members = archive.infolist()
        packed = sum(member.compress_size for member in members)
        unpacked = sum(member.file_size for member in members)
        if packed > size or unpacked > max(FREE, LARGEST_RATIO * size):
            raise ValueError(f"it would unpack {packed} bytes of {size} to {unpacked}")
        return {
            member.removesuffix(".npy"): _member(archive, member)
            for member in archive.namelist()
            if member.endswith(".npy")
        }


def numbers(arrays: Mapping[str, Array], shapes: Mapping[str, str]) -> dict[str, int]:
    """Check that the named arrays hold finite real numbers of these shapes; returns what each
    letter stands for.

    >>> numbers(state, {"poses": "M 4 4", "times": "M"})
    {'M': 7}
    """
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in arrays:
            raise ValueError(f"it has no {name}")
        array, letters = arrays[name], shape.split()
        fits = array.ndim == len(letters)
        for letter, length in zip(letters, array.shape, strict=False):
            fits = fits and length == (
                int(letter) if letter.isdecimal() else sizes.setdefault(letter, length)
            )
        if not fits or array.dtype.kind not in "fiub" or not np.isfinite(array).all():
            raise ValueError(
                f"{name} is {array.dtype} of shape {array.shape}, not finite numbers of shape"
                f" ({', '.join(letters)})"
            )
    return sizes


def _member(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, by_columns, dtype = read_header(file)
        content = file.read()
    if dtype.hasobject or int(np.prod(shape, dtype=object)) * dtype.itemsize != len(content):
        raise ValueError(f"{name} promises other numbers than it holds")
    array = np.ndarray(shape, dtype, content, order="F" if by_columns else "C")
    # The kernels take numbers in the byte order of this machine only.
    return array.astype(dtype.newbyteorder("="), order="C")
