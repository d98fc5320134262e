# SPDX-License-Identifier: MIT
"""Depth images as clouds."""

import json
import os
import warnings
from dataclasses import fields
from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from coframe.errors import InputError, one_line, optional
from coframe.io import depth
from coframe.io.files import as_path, foreign, read_small, regular
from coframe.io.scan import Scan
from coframe.types import Array

SIDECAR = "intrinsics.json"
BAD_FILE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
)
# [limit, pixels]
LARGEST = 100_000_000
# [limit, bytes] Of the file of an image: twice as many as the largest one has uncompressed.
LARGEST_FILE = 8 * LARGEST
# [limit, pixels, and stored values per metre] No camera has more.
FARTHEST = 1e9


def read_depth(path: str | os.PathLike[str]) -> Shaped[Array, "H W"]:
    """The stored values of a depth image with one channel."""
    pillow = optional("PIL.Image", "images", "depth images")
    # From an open file, pillow allocates any length that a damaged file promises.
    with regular(path) as file:
        content = BytesIO(file.read(LARGEST_FILE + 1))
    if content.getbuffer().nbytes > LARGEST_FILE:
        raise ValueError(f"it has more than {LARGEST_FILE >> 20} MB")
    with foreign(), warnings.catch_warnings():
        warnings.simplefilter("error")  # pillow only warns of images that unpack without bound
        with pillow.open(content) as image:
            if image.width * image.height > LARGEST:
                raise ValueError(f"it has {image.width} x {image.height} pixels")
            values = np.asarray(image)
    if values.ndim != 2 or values.dtype.kind not in "uif":
        raise ValueError(
            f"it has {values.shape[-1] if values.ndim == 3 else 1} channels of {values.dtype}, not"
            " one of depths"
        )
    return values


def read_scan(path: str | os.PathLike[str], intrinsics: depth.Intrinsics | None = None) -> Scan:
    """The points that a depth image sees; `intrinsics` are by default those of intrinsics.json
    beside it or a folder above.
    """
    camera = find_intrinsics(path) if intrinsics is None else intrinsics
    return Scan(depth.points(read_depth(path), camera), name=Path(path).stem)


def find_intrinsics(path: str | os.PathLike[str]) -> depth.Intrinsics:
    """The camera of an image, from the nearest intrinsics.json: its five numbers, or `{"preset":
    "freiburg1"}`.
    """
    camera = intrinsics_of_folder(Path(path).absolute().parent)
    if camera is None:
        raise InputError(
            f"{path}: expected the camera's intrinsics for a depth image, found no {SIDECAR} beside"
            " it; write one there with fx, fy, cx, cy and scale (values per metre), or leave it out"
        )
    return camera


def intrinsics_of_folder(folder: Path) -> depth.Intrinsics | None:
    """The camera of intrinsics.json in a folder or the one above; None where there is no such
    file.
    """
    for file in (folder / SIDECAR, folder.absolute().parent / SIDECAR):
        if file.is_file():
            return read_intrinsics(file)
    return None


def read_intrinsics(file: str | os.PathLike[str]) -> depth.Intrinsics:
    """The camera that an intrinsics file describes."""
    file = as_path(file)
    try:
        content = json.loads(read_small(file))
        if "preset" in content:
            return depth.PRESETS[content["preset"]]
        numbers = {
            key: float(value)
            for key, value in content.items()
            if key in {each.name for each in fields(depth.Intrinsics)}
        }
        camera = depth.Intrinsics(**numbers)
        if not all(
            1 / FARTHEST < value < FARTHEST for value in (camera.fx, camera.fy, camera.scale)
        ):
            raise ValueError("fx, fy and scale are not all positive")
        if not max(abs(camera.cx), abs(camera.cy)) < FARTHEST:
            raise ValueError("cx and cy are pixels")
    except InputError:
        raise
    except BAD_FILE as error:
        presets = ", ".join(depth.PRESETS)
        raise InputError(
            f"{file}: expected fx, fy, cx, cy and scale, or a preset of {presets}; found something"
            f" else ({one_line(error)})"
        ) from None
    return camera
