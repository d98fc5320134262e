# SPDX-License-Identifier: MIT
"""The points of legacy VTK files (`# vtk DataFile`), in text or binary; what else they hold is left
out.
"""

import os
import re
from pathlib import Path

import numpy as np

from coframe.io.scan import Scan
from coframe.io.table import table

# [format] The types of coordinates that the format has, big-endian in binary files.
TYPES = {"float": ">f4", "double": ">f8", "int": ">i4", "long": ">i8"}
# [limit, bytes] The points begin within this.
HEAD = 1 << 16


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """The points of a POLYDATA, UNSTRUCTURED_GRID or STRUCTURED_GRID."""
    content = Path(path).read_bytes()
    found = re.search(rb"\nPOINTS[ \t]+(\d+)[ \t]+(\w+)[ \t]*\r?\n", content[:HEAD], re.IGNORECASE)
    form = re.search(rb"\n(ASCII|BINARY)[ \t]*\r?\n", content[:HEAD], re.IGNORECASE)
    if found is None or form is None:
        raise ValueError("it has no line POINTS with their number and type")
    count, kind = int(found[1]), found[2].decode().lower()
    if kind not in TYPES:
        raise ValueError(f"its points are of type {kind}")
    dtype = np.dtype(TYPES[kind])
    left = len(content) - found.end()
    if 3 * count * (dtype.itemsize if form[1].upper() == b"BINARY" else 2) > left + 1:
        raise ValueError(f"it promises {count} points and is too short for them")
    if form[1].upper() == b"BINARY":
        values = np.frombuffer(content, dtype, 3 * count, found.end())
    else:  # any number of coordinates a line
        words = memoryview(content)[found.end() :].tobytes().split(maxsplit=3 * count)
        if len(words) < 3 * count:
            raise ValueError(f"it promises {count} points and has {len(words) // 3}")
        values = table(b"\n".join(words[: 3 * count]), 1)[0]
    return Scan(np.asarray(values, np.float64).reshape(count, 3), name=Path(path).stem)
