# SPDX-License-Identifier: MIT
"""One call of a method, and a store of such calls, from which an interrupted run goes on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coframe.io.files import atomic
from coframe.result.registration import Registration


@dataclass(frozen=True)
class Trial:
    """What a method found."""

    poses: np.ndarray  # (M, 4, 4)
    history: np.ndarray  # (I, M, 4, 4): the poses after each iteration
    seconds: float  # of the iterations
    result: Registration | None = None  # not kept on disk

    @classmethod
    def of(cls, result: Registration, seconds: float) -> "Trial":
        """From a registration and the time it took."""
        return cls(result.poses, np.array([step.poses for step in result.history]), seconds, result)

    @property
    def full(self) -> Registration:
        """The whole result; only of a trial that this process ran."""
        if self.result is None:
            raise ValueError("this trial was read from disk, which keeps poses only")
        return self.result


def trial(run: Callable[[], Registration]) -> Trial:
    """Run and take the time."""
    began = time.perf_counter()
    result = run()
    return Trial.of(result, time.perf_counter() - began)


@dataclass
class Store:
    """Trials by their key, in memory and, with a folder, on disk.

    The folder is for one version of the code only.
    """

    folder: Path | None = None
    found: dict[str, Trial] = field(default_factory=dict)
    seconds: float = 0.0  # that trials took which were read and not run

    def get(self, key: str, make: Callable[[], Trial]) -> Trial:
        """The trial of this key, made where it is not there yet."""
        if key not in self.found:
            self.found[key] = (
                make() if self.folder is None else self._kept(self.folder / f"{key}.npz", make)
            )
        return self.found[key]

    def _kept(self, path: Path, make: Callable[[], Trial]) -> Trial:
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                self.seconds += float(file["whole"])
                return Trial(file["poses"], file["history"], float(file["seconds"]))
        began = time.perf_counter()
        made = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as temporary, temporary.open("wb") as file:
            whole = time.perf_counter() - began
            np.savez(
                file, poses=made.poses, history=made.history, seconds=made.seconds, whole=whole
            )
        return made
