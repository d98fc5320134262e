# SPDX-License-Identifier: MIT
"""The camera of a depth sequence: where data sets keep it, and the forms that they write it in."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coframe.errors import InputError, one_line
from coframe.io import depth, images
from coframe.io.depth import Intrinsics
from coframe.io.files import as_path, read_small

# [format] Files that describe a depth camera, the first found is taken. Of two cameras, that of the
# depth images comes first.
FILES = (
    "intrinsics.json",
    "intrinsic.json",
    "camera_intrinsic.json",
    "camera_intrinsics.json",
    "camera.json",
    "camera_info.json",
    "cam_params.json",
    "depth_intrinsics.txt",
    "intrinsic/intrinsic_depth.txt",
    "intrinsic_depth.txt",
    "intrinsics.txt",
    "intrinsic.txt",
    "camera-intrinsics.txt",
    "camera_intrinsics.txt",
    "camera.txt",
    "K.txt",
    "camera.yaml",
    "camera.yml",
)
# [format] Names of a matrix of intrinsics in JSON.
MATRICES = ("intrinsic_matrix", "camera_matrix", "depth_camera_matrix", "intrinsics", "K", "k")
# [format] Names of the depth scale, in lower case; else 1000 values a metre.
SCALES = ("scale", "depth_scale", "depth_factor", "depthmapfactor", "depth_map_factor")
# [format] Data sets whose cameras are known, by a pattern of their folders' names.
KNOWN = (
    (r"freiburg1", depth.TUM_FR1),
    (r"freiburg2", depth.TUM_FR2),
    (r"freiburg3", depth.TUM_FR3),
    (r"icl|living.?room.?traj|office.?room.?traj|lr.?kt\d|of.?kt\d", depth.ICL),
)
BAD_FILE = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError)


def find(folders: Iterable[Path]) -> Intrinsics | None:
    """The camera of the first file of `FILES` in one of the folders; None without one."""
    for folder in folders:
        for name in FILES:
            if (folder / name).is_file():
                return read(folder / name)
    return None


def by_name(folder: Path) -> Intrinsics | None:
    """The camera of a known data set, by the name of the folder or of the one above it."""
    path = folder.resolve()
    for pattern, camera in KNOWN:
        if any(re.search(pattern, name, re.IGNORECASE) for name in (path.name, path.parent.name)):
            return camera
    return None


def read(path: str | os.PathLike[str]) -> Intrinsics:
    """Read a camera from a file.

    Parameters
    ----------
    path
        JSON or YAML with fx, fy, cx and cy (also under "camera", as "Camera.fx", or as a matrix of
        nine numbers, by rows, or by columns as Open3D has it); text with a 3 x 3 or 4 x 4 matrix,
        or with the numbers fx, fy, cx, cy and perhaps the scale. "scale" or "depth_scale" are
        values per metre, 1000 if absent; below 1, metres per value.

    Returns
    -------
    Intrinsics
        The camera.

    Raises
    ------
    InputError
        If the file holds something else.

    Examples
    --------
    >>> coframe.io.camera.read("scene/camera_intrinsic.json")
    """
    path = as_path(path)
    try:
        text = read_small(path).decode("utf-8-sig")
        values = _named(json.loads(text)) if path.suffix == ".json" else _of_text(text)
        if "preset" in values:
            return depth.PRESETS[str(values["preset"])]
        camera = Intrinsics(*(float(values[name]) for name in ("fx", "fy", "cx", "cy", "scale")))
        _check(camera)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: expected a file, found nothing; check the path") from None
    except BAD_FILE as error:
        raise InputError(
            f"{path}: expected fx, fy, cx, cy and scale, or a preset of"
            f" {', '.join(depth.PRESETS)}; found something else ({one_line(error)})"
        ) from None
    return camera


def _check(camera: Intrinsics) -> None:
    largest = images.FARTHEST
    if not all(1 / largest < abs(value) < largest for value in (camera.fx, camera.fy)):
        raise ValueError("fx and fy are no focal lengths in pixels")
    if not 1 / largest < camera.scale < largest:
        raise ValueError("the scale is not positive")
    if not max(abs(camera.cx), abs(camera.cy)) < largest:
        raise ValueError("cx and cy are no pixels")


def _named(content: Mapping[str, Any]) -> dict[str, Any]:
    """fx, fy, cx, cy and scale, or a preset, from an object of JSON."""
    inner = content.get("camera")
    content = {**content, **inner} if isinstance(inner, Mapping) else content
    content = {re.sub(r"^camera\.", "", key, flags=re.IGNORECASE): content[key] for key in content}
    if "preset" in content:
        return {"preset": content["preset"]}
    scales = [float(content[key]) for key in content if key.lower() in SCALES]
    scale = scales[0] if scales else Intrinsics.scale
    if 0 < scale < 1:
        scale = 1 / scale
    if "fx" in content:
        return {name: content[name] for name in ("fx", "fy", "cx", "cy")} | {"scale": scale}
    for name in MATRICES:
        if name in content:
            matrix = content[name]
            matrix = matrix["data"] if isinstance(matrix, Mapping) else matrix
            return _of_matrix(np.array(matrix, float)) | {"scale": scale}
    raise KeyError("no fx and no matrix")


def _of_matrix(values: np.ndarray) -> dict[str, float]:
    if values.size == 16:
        values = values.reshape(4, 4)[:3, :3]
    K = values.reshape(3, 3)
    if K[0, 2] == 0 and K[1, 2] == 0 and (K[2, 0] or K[2, 1]):
        K = K.T  # by columns, as Open3D writes it
    return {"fx": K[0, 0], "fy": K[1, 1], "cx": K[0, 2], "cy": K[1, 2]}


def _of_text(text: str) -> dict[str, Any]:
    """Of lines `name: value` or `name = value`, or of plain numbers."""
    named = dict(
        re.findall(r"^\s*([A-Za-z_.]+)\s*[:=]\s*([-+.\deE]+)\s*;?\s*(?:#.*)?$", text, re.M)
    )
    if named:
        return _named(named)
    lines = [line.partition("#")[0] for line in text.splitlines()]
    numbers = np.array(" ".join(lines).replace(",", " ").split(), float)
    if numbers.size in (9, 16):
        return _of_matrix(numbers) | {"scale": Intrinsics.scale}
    if numbers.size not in (4, 5):
        raise ValueError(f"it has {numbers.size} numbers, not 4, 5, 9 or 16")
    scale = numbers[4] if numbers.size == 5 else Intrinsics.scale
    return dict(zip(("fx", "fy", "cx", "cy"), numbers[:4], strict=True)) | {"scale": scale}
