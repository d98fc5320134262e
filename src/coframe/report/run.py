# SPDX-License-Identifier: MIT
"""How a result came about: what the report says beyond the result itself."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from coframe.errors import InputError, one_line
from coframe.io.files import as_json, atomic, read_small
from coframe.io.manifest import Manifest
from coframe.types import Poses

FORMAT = "coframe-run/1"
FILE = "run.json"


def versions() -> dict[str, str]:
    """Versions of everything that can change a digit of the result."""
    packages = {name: version(name) for name in ("coframe", "numpy", "scipy", "numba")}
    return packages | {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


@dataclass(frozen=True)
class Run:
    """How a registration was run; what is unknown stays empty."""

    command: str = ""  # as typed
    options: Mapping[str, Any] = field(default_factory=dict)  # the seed among them
    versions: Mapping[str, str] = field(default_factory=versions)
    seconds: float | None = None  # wall clock, reading and writing included
    start: Poses | None = None  # poses before the first iteration
    made: str = ""  # when, as 2026-11-18 14:05

    @property
    def unit(self) -> str:
        """The unit of the clouds, as the user named it; "" where that is unknown."""
        return str(self.options.get("unit") or "")

    def within(self, tolerance: float) -> str:
        """Words for a tolerance, as the user wrote it."""
        return f"within {self.options.get('distance_tolerance') or f'{tolerance:.3g}'}"

    @property
    def title(self) -> str:
        """What the report is called: the user's project."""
        project = str(self.options.get("project") or "")
        return f"{project}: coframe report" if project else "coframe report"

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write run.json, from which the report can be written again."""
        path = Path(folder) / FILE
        content = asdict(self) | {
            "format": FORMAT,
            "start": None if self.start is None else self.start.tolist(),
        }
        with atomic(path) as temporary:
            temporary.write_text(as_json(content) + "\n")
        return path


def load(folder: str | os.PathLike[str], shape: tuple[int, ...]) -> Run:
    """The run that `Run.save` wrote, or an empty one if there is no file; `shape`: of the poses."""
    path = Path(folder) / FILE
    if not os.path.lexists(path):
        return Run(versions={})
    manifest = Manifest.read(folder)
    if manifest is not None:
        manifest.check(folder, [FILE])
    try:
        content = json.loads(read_small(path))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        start = None if content["start"] is None else np.array(content["start"], float)
        if start is not None and (start.shape != shape or not np.isfinite(start).all()):
            raise ValueError(f"start poses of shape {start.shape}, not {shape}")
        seconds = None if content["seconds"] is None else float(content["seconds"])
        return Run(
            str(content["command"]),
            dict(content["options"]),
            dict(content["versions"]),
            seconds,
            start,
            str(content.get("made", "")),
        )
    except InputError:
        raise
    except (OSError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{path}: expected a {FORMAT} file, found something else ({one_line(error)});"
            " delete it to write a report without it"
        ) from None
