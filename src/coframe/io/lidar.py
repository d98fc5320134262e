# SPDX-License-Identifier: MIT
"""Frames of spinning lidars: .bin files of any row, and the times of single points."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped

from coframe.errors import InputError
from coframe.io import clouds
from coframe.io.scan import Scan, of_columns
from coframe.types import Array

_XYZI = [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4")]
# [format] Rows of .bin files, the usual one first: KITTI and most others; nuScenes; rows with a
# ring and a time; Ouster as HeLiPR writes it; coordinates alone.
ROWS = (
    np.dtype(_XYZI),
    np.dtype([*_XYZI, ("ring", "<f4")]),
    np.dtype([*_XYZI, ("ring", "<f4"), ("time", "<f4")]),
    np.dtype([*_XYZI, ("t", "<u4"), ("reflectivity", "<u2"), ("ring", "<u2"), ("ambient", "<u2")]),
    np.dtype(_XYZI[:3]),
)
# [limit, m] No lidar sees farther.
FARTHEST = 1e4
# [format] Columns with the time of a point, in lower case.
TIMES = ("t", "time", "timestamp", "timestamps", "time_stamp", "offset_time", "time_offset")
# [limit, s] How long a frame lasts: from a thousandth of a second to one.
SHORTEST, LONGEST = 1e-3, 1.0


def read(path: Path) -> Scan:
    """The first scan of a file; of a .bin file, in the row that fits it best."""
    if path.suffix.lower() == ".bin" and path.is_file():
        return _read_bin(path)
    return clouds.read_scan(path)


def offsets(
    columns: Mapping[str, Shaped[Array, " N"]], time: float | None
) -> Float[Array, " N"] | None:
    """[s] When each point was measured, after the time of its frame; None without such a column.

    The unit is that in which the frame lasts from a thousandth of a second to one. Times of a
    clock, not of a frame, count from the frame's `time` if they are near it, else from the first.
    """
    for name, column in columns.items():
        if name.lower() not in TIMES or column.dtype.kind not in "fiu" or not len(column):
            continue
        values = column.astype(float)
        if not np.isfinite(values).all():
            continue
        span = float(np.ptp(values))
        for unit in (1.0, 1e-3, 1e-6, 1e-9):
            if not SHORTEST <= unit * span < LONGEST:
                continue
            first = values.min()
            if abs(unit * first) < LONGEST:
                return unit * values
            late = np.inf if time is None else unit * first - time
            return unit * (values - first) + (late if abs(late) < LONGEST else 0.0)
    return None


def _read_bin(path: Path) -> Scan:
    size = os.stat(path).st_size
    possible = [row for row in ROWS if size and size % row.itemsize == 0]
    if not possible:
        widths = ", ".join(str(row.itemsize) for row in ROWS)
        raise InputError(
            f"{path}: expected rows of {widths} bytes, found {size} bytes in all; leave it out, or"
            " convert it to PLY"
        )
    found = {row: np.fromfile(path, row) for row in possible}
    best = min(possible, key=lambda row: _roughness(found[row]))
    return of_columns({name: found[best][name] for name in best.names or ()}, name=path.stem)


def _roughness(rows: Array) -> float:
    """How far a point is from the next, over its distance: small only in rows read right."""
    points = np.stack([rows[name] for name in "xyz"], 1).astype(float)
    with np.errstate(invalid="ignore"):
        far = np.abs(points).max(1)
        good = far < FARTHEST
    if not good.mean() > 0.5:
        return np.inf
    points = points[good]
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    return float(np.median(steps) / max(np.median(far[good]), np.finfo(float).tiny))
