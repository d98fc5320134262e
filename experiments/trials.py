# SPDX-License-Identifier: MIT
"""One call of a method, and a store of such calls, from which an interrupted run goes on."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from coframe.io.files import atomic
from coframe.result.registration import Registration
from experiments import provenance


@dataclass(frozen=True)
class Trial:
    """What a method found."""

    poses: np.ndarray  # (M, 4, 4)
    history: np.ndarray  # (I, M, 4, 4): the poses after each iteration
    seconds: float  # of a processor, in the iterations
    # what is asked of some trials: "means" (K, 3) and "variances" (K,) of spheres, "labels" and
    # "inliers" of all points, cloud after cloud; "times" (M,) of the frames of a path
    more: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Registration, seconds: float) -> "Trial":
        """From a registration and the time it took."""
        more = {
            "means": result.mixture.means,
            "variances": result.mixture.variances if result.mixture.spherical else np.empty(0),
            "labels": np.concatenate(result.labels),
            "inliers": np.concatenate(result.inliers()),
        }
        return cls(result.poses, np.array([step.poses for step in result.history]), seconds, more)

    def without_model(self) -> "Trial":
        """Poses only, which is all that most tables need."""
        return Trial(self.poses, self.history, self.seconds)


def trial(run: Callable[[], Registration]) -> Trial:
    """Run and take the time."""
    began = time.process_time()
    result = run()
    return Trial.of(result, time.process_time() - began)


class Problem(Protocol):
    """What methods are tried on; a frozen dataclass of `experiments.problems`."""

    @property
    def key(self) -> str:
        """One for each problem, part of the name of a file."""

    def solve(self, method: str, seed: int) -> Trial:
        """What a method makes of one realisation."""


@dataclass(frozen=True)
class Job:
    """A trial that an experiment asks for."""

    problem: Problem
    method: str
    seed: int
    model: bool = False  # whether the mixture and the labels are kept, too

    @property
    def kind(self) -> str:
        """Jobs of a kind take about as long as each other."""
        return f"{self.problem.key} {self.method}"

    @property
    def key(self) -> str:
        """One for each job, and the name of its file."""
        words = f"{self.problem.key}-{self.seed}-{self.method}{'-model' * self.model}"
        return re.sub(r"[ ,/]+", "_", words)

    @property
    def digest(self) -> str:
        """Of the code that the trial depends on."""
        return provenance.of_method(self.method)

    def solve(self) -> Trial:
        """Run it."""
        found = self.problem.solve(self.method, self.seed)
        return found if self.model or "times" in found.more else found.without_model()


@dataclass
class Store:
    """Trials by their job, in memory and, with a folder, on disk.

    On disk, each lies in a folder named after the digest of the code that it depends on, so that a
    trial of older code is never taken for one of this code.
    """

    folder: Path | None = None
    found: dict[str, Trial] = field(default_factory=dict)

    def get(self, job: Job) -> Trial:
        """The trial of a job, made where it is not there yet."""
        if job.key not in self.found:
            path = self.path(job)
            if path is not None and path.exists():
                self.found[job.key] = read(path)[0]
            else:
                self.found[job.key] = self.make(job)[0]
        return self.found[job.key]

    def make(self, job: Job) -> tuple[Trial, float]:
        """Run a job and keep it. Also the seconds of a processor for all of it."""
        began = time.process_time()
        made = job.solve()
        whole = time.process_time() - began
        path = self.path(job)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic(path) as temporary, temporary.open("wb") as file:
                parts: dict[str, Any] = {f"more_{name}": a for name, a in made.more.items()}
                parts |= {"poses": made.poses, "history": made.history}
                np.savez_compressed(file, seconds=made.seconds, whole=whole, **parts)
        return made, whole

    def path(self, job: Job) -> Path | None:
        """Where a trial is kept."""
        return None if self.folder is None else self.folder / job.digest / f"{job.key}.npz"

    def cost(self, job: Job) -> float | None:
        """The seconds of a processor that a kept trial took; None of one that is not there."""
        path = self.path(job)
        return read(path)[1] if path is not None and path.exists() else None


def read(path: Path) -> tuple[Trial, float]:
    """A trial that was kept, and the seconds of a processor for all of it."""
    with np.load(path, allow_pickle=False) as file:
        more = {name.removeprefix("more_"): file[name] for name in file if name[:5] == "more_"}
        found = Trial(file["poses"], file["history"], float(file["seconds"]), more)
        return found, float(file["whole"])
