# SPDX-License-Identifier: MIT
"""What the experiments on simulated views share: the same views for every method, and errors over all realisations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from coframe import metrics, simulate
from coframe.simulate import Scene
from experiments import methods
from experiments.methods import PAIRWISE, Trial
from experiments.models import MODELS, model

TOY_COUNT, PAPER_COUNT = (250, 350), (1000, 2000)  # points of a view


@dataclass(frozen=True)
class Runs:
    """The trials of every method on the same scenes."""

    scenes: list[Scene]
    trials: dict[str, list[Trial]]  # by method, in the order of the scenes

    def over(self, measure: Callable[[Trial, Scene], float]) -> dict[str, np.ndarray]:
        """A figure of every trial, by method."""
        return {
            name: np.array([measure(trial, scene) for trial, scene in zip(trials, self.scenes, strict=True)])
            for name, trials in self.trials.items()
        }

    def start(self, measure: Callable[[np.ndarray, Scene], float]) -> float:
        """The mean of a figure of the start poses: what a method that moves nothing would get."""
        return float(np.mean([measure(methods.centred(scene.clouds), scene) for scene in self.scenes]))

    def seconds(self) -> dict[str, float]:
        """The mean time of a trial, by method."""
        return {name: float(np.mean([trial.seconds for trial in trials])) for name, trials in self.trials.items()}


def rmse(poses: np.ndarray, scene: Scene) -> float:
    """The root of the mean squared Frobenius error of the rotations, relative to the first set, over the other sets."""
    return metrics.rotation_rmse(poses, scene.poses)


def runs(
    name: str,
    contestants: Sequence[str] = tuple(PAIRWISE),
    *,
    size: str,
    seed: int,
    realisations: int,
    degrees: tuple[float, ...] = (0.0, 10.0, 20.0, 30.0),
    noise_db: float,
    outliers: float,
) -> Runs:
    """Views of a model as in the paper, `realisations` times, and what each method makes of them."""
    setup = (name, size, degrees, noise_db, outliers)
    scenes = [views(*setup, seed, k) for k in range(realisations)]
    return Runs(scenes, {m: [solved(m, *setup, seed, k) for k in range(realisations)] for m in contestants})


@cache
def views(
    name: str, size: str, degrees: tuple[float, ...], noise_db: float, outliers: float, seed: int, realisation: int
) -> Scene:
    """One realisation."""
    rng = np.random.default_rng([seed, MODELS.index(name), realisation])
    count = TOY_COUNT if size == "toy" else PAPER_COUNT
    return simulate.paper_views(model(name, size), degrees, count, noise_db=noise_db, outliers=outliers, rng=rng)


@cache
def solved(method: str, *setup: Any) -> Trial:
    """A method on one realisation. Kept: figure and table ask for the same ones."""
    scene = views(*setup)
    return PAIRWISE[method](scene.clouds, methods.centred(scene.clouds), np.random.default_rng(setup[-2:]))
