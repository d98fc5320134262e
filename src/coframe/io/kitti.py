# SPDX-License-Identifier: MIT
"""The .bin files of KITTI: rows of four floats."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from coframe.io.files import atomic, write_rows
from coframe.io.scan import Scan, of_columns
from coframe.types import Array

# [size] Points per block.
ROWS = 1_000_000
# [format] Columns of a row, and its bytes.
COLUMNS = ("x", "y", "z", "intensity")
ROW_BYTES = 16


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """Rows of four floats: x, y, z and reflectance."""
    return _scan(np.fromfile(path, _row_type(path)), path)


def blocks(path: str | os.PathLike[str], rows: int = ROWS) -> Iterator[Scan]:
    """The points, so many at a time."""
    dtype = _row_type(path)
    with open(path, "rb") as file:
        while len(part := np.fromfile(file, dtype, rows)):
            yield _scan(part, path)


def write_scan(path: str | os.PathLike[str], scan: Scan) -> None:
    """Coordinates and intensity as floats; without an intensity, zeros."""
    rows = np.zeros((len(scan), 4), "<f4")
    rows[:, : scan.points.shape[1]] = scan.points
    rows[:, 3] = 0 if scan.intensity is None else scan.intensity
    with atomic(path) as temporary, temporary.open("wb") as file:
        write_rows(file, rows)


def _row_type(path: str | os.PathLike[str]) -> np.dtype:
    size = os.stat(path).st_size
    if size == 0 or size % ROW_BYTES:
        raise ValueError(f"its {size} bytes are not rows of four floats")
    return np.dtype([(name, "<f4") for name in COLUMNS])


def _scan(rows: Array, path: str | os.PathLike[str]) -> Scan:
    return of_columns({name: rows[name] for name in COLUMNS}, name=Path(path).stem)
