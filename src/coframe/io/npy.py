# SPDX-License-Identifier: MIT
"""NumPy's NPY and NPZ files."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from coframe import geometry
from coframe.io import npz
from coframe.io.files import atomic, foreign
from coframe.io.scan import Scan, as_colours, of_columns
from coframe.types import Array

# [size] Points per block.
ROWS = 1_000_000


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """An (N, 2) or (N, 3) array, one with more columns, or a structured one with fields x, y, z."""
    return _scan(np.asarray(_mapped(path)), Path(path).stem)


def blocks(path: str | os.PathLike[str], rows: int = ROWS) -> Iterator[Scan]:
    """The rows, so many at a time."""
    mapped = _mapped(path)
    if not mapped.ndim:
        raise ValueError("it holds a single number")
    yield from (
        _scan(np.asarray(mapped[begin : begin + rows]), Path(path).stem)
        for begin in range(0, len(mapped), rows)
    )


def write_scan(path: str | os.PathLike[str], scan: Scan) -> None:
    """The coordinates alone."""
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.save(file, scan.points, allow_pickle=False)


def read_archive(path: str | os.PathLike[str]) -> list[Scan]:
    """Every array of an archive that is a cloud, in the order of their names.

    An array `points` (or `xyz`, `vertices`) is one cloud, and `colours`, `normals`, `intensity`
    beside it belong to it. Else each (N, 2) or (N, 3) array is a cloud of that name, and `poses`
    (M, 4, 4) are theirs when there are as many.
    """
    stem = Path(path).stem
    arrays = npz.read(path)
    for key in ("points", "xyz", "vertices"):
        if key in arrays and arrays[key].ndim == 2:
            return [_with_neighbours(_scan(arrays.pop(key), stem), arrays)]
    poses = arrays.pop("poses", None)
    clouds = {
        name: each
        for name, each in arrays.items()
        if each.ndim == 2 and each.shape[1] in (2, 3) and each.dtype.kind in "fiu"
    }
    if not clouds:
        raise ValueError(
            f"no array of it has shape (N, 2) or (N, 3); it holds {', '.join(arrays) or 'nothing'}"
        )
    scans = [_scan(each, name) for name, each in clouds.items()]
    if poses is None or poses.shape != (len(scans), 4, 4) or poses.dtype.kind != "f":
        return scans
    if not all(map(geometry.is_rigid, poses)):
        raise ValueError("its poses are not rotations and translations")
    return [
        Scan(scan.points, name=scan.name, pose=np.array(T, float))
        for scan, T in zip(scans, poses, strict=True)
    ]


def _mapped(path: str | os.PathLike[str]) -> Array:
    """The file as an array that is read where it is touched; a header that promises more than the
    file has is refused.
    """
    with open(path, "rb") as file:
        begin = file.read(12)
    # NumPy allocates the header before it reads it.
    if begin[6:7] > b"\x01" and int.from_bytes(begin[8:], "little") > os.stat(path).st_size:
        raise ValueError("its header is longer than the file")
    with foreign():
        return np.lib.format.open_memmap(path, mode="r")


def _scan(array: Shaped[Array, "..."], name: str) -> Scan:
    if array.dtype.names:
        return of_columns({key: array[key] for key in array.dtype.names}, name=name)
    if array.ndim != 2 or array.shape[1] < 2 or array.dtype.kind not in "fiu":
        raise ValueError(f"it holds {array.dtype} of shape {array.shape}, not one point a row")
    points = np.array(array[:, :3], np.float64)
    return Scan(
        points, columns={f"column{j + 1}": array[:, j] for j in range(3, array.shape[1])}, name=name
    )


def _with_neighbours(scan: Scan, arrays: dict[str, Array]) -> Scan:
    def rows(*names: str, shape: tuple[int, ...]) -> Array | None:
        found = [
            arrays[name]
            for name in names
            if name in arrays and arrays[name].shape == (len(scan), *shape)
        ]
        return found[0] if found and found[0].dtype.kind in "fiu" else None

    colours, normals = rows("colours", "colors", "rgb", shape=(3,)), rows("normals", shape=(3,))
    return Scan(
        scan.points,
        colours=None if colours is None else as_colours(colours),
        normals=None if normals is None else np.asarray(normals, np.float64),
        intensity=rows("intensity", shape=()),
        columns=scan.columns,
        name=scan.name,
    )
