# SPDX-License-Identifier: MIT
"""Pose files: `coframe-poses/1`, JSON with one entry per cloud."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe.arrays import Array
from coframe.clouds import InputError
from coframe.io.files import atomic

FORMAT = "coframe-poses/1"


def write(
    path: str | os.PathLike[str],
    names: Sequence[str],
    poses: Float[Array, "M D1 D1"],
    *,
    details: Sequence[Mapping[str, Any]] | None = None,
    **header: Any,
) -> None:
    """Names and poses in user coordinates with full digits; `details` adds keys per cloud, `header` keys for the whole."""
    clouds = [
        {"name": name, "pose": pose.tolist(), **(details[j] if details else {})}
        for j, (name, pose) in enumerate(zip(names, poses, strict=True))
    ]
    with atomic(path) as temporary:
        temporary.write_text(json.dumps({"format": FORMAT, "clouds": clouds, **header}, indent=1) + "\n")


def read(path: str | os.PathLike[str]) -> dict[str, Float[Array, "D1 D1"]]:
    """The poses by name."""
    try:
        content = json.loads(Path(path).read_text())
        if content["format"] != FORMAT:
            raise InputError(f"{path}: expected format {FORMAT!r}, found {content['format']!r}")
        return {cloud["name"]: np.array(cloud["pose"], float) for cloud in content["clouds"]}
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: expected a {FORMAT} file, found something else ({error})") from None
