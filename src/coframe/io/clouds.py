# SPDX-License-Identifier: MIT
"""Reading clouds: PLY, NumPy and text."""

import os
import re
import warnings
from pathlib import Path

import numpy as np
from jaxtyping import Float
from plyfile import PlyParseError

from coframe.arrays import Array
from coframe.clouds import InputError
from coframe.io import ply

TEXT = (".txt", ".xyz", ".csv", ".asc")
FORMATS = (".ply", ".npy", *TEXT)


def read(path: str | os.PathLike[str]) -> Float[Array, "N D"]:
    """The coordinates of a cloud: those of a PLY's vertices, an (N, 2) or (N, 3) array, or the first columns of a text file."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: expected a file, found {'a folder' if path.is_dir() else 'nothing'}")
    try:
        if path.suffix.lower() == ".ply":
            vertices = ply.read(path)
            return np.stack([np.asarray(vertices[axis], float) for axis in "xyz"], 1)
        if path.suffix.lower() == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), float)
        if path.suffix.lower() in TEXT:
            return _read_text(path)
    except (OSError, EOFError, ValueError, KeyError, PlyParseError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: expected a cloud in {path.suffix} format, found something else ({reason})") from None
    raise InputError(f"{path}: expected one of {', '.join(FORMATS)}, found {path.suffix or 'no suffix'}")


def _read_text(path: Path) -> Float[Array, "N D"]:
    """Numbers in columns, apart by commas, semicolons or white space; lines that start with a letter or # are headers."""
    with path.open() as lines, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there are no numbers is said below
        rows = (re.sub(r"[,;]", " ", line) for line in lines if line.strip() and line.lstrip()[0] in "+-.0123456789")
        table = np.loadtxt(rows, ndmin=2, dtype=float)
    if not table.size:
        raise ValueError("no line of it starts with a number")
    return table[:, :3]


def natural(name: str) -> list[tuple[int, str]]:
    """A sort key that puts scan2 before scan10."""
    return [(int(part), "") if part.isdigit() else (-1, part.lower()) for part in re.split(r"(\d+)", name) if part]
