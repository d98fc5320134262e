# SPDX-License-Identifier: MIT
"""What the experiments on simulated views share: the same views for every method, and errors over all realisations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coframe import simulate
from experiments.measures import frobenius_errors
from coframe.simulate import Scene
from experiments import methods
from experiments.methods import Method, Trial
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

    def seconds(self) -> dict[str, float]:
        """The mean time of a trial, by method."""
        return {name: float(np.mean([trial.seconds for trial in trials])) for name, trials in self.trials.items()}


def rmse(poses: np.ndarray, scene: Scene) -> float:
    """The root of the mean squared Frobenius error of the rotations, relative to the first set, over the other sets."""
    return float(np.sqrt(np.mean(frobenius_errors(poses, scene.poses)[1:] ** 2)))


def runs(
    name: str,
    contestants: Mapping[str, Method],
    *,
    size: str,
    seed: int,
    realisations: int,
    degrees: Sequence[float] = (0.0, 10.0, 20.0, 30.0),
    noise_db: float | None,
    outliers: float,
) -> Runs:
    """Views of a model as in the paper, `realisations` times, and what each method makes of them."""
    points = model(name, size)
    scenes, trials = [], {method: [] for method in contestants}
    for k in range(realisations):
        rng = np.random.default_rng([seed, MODELS.index(name), k])
        count = TOY_COUNT if size == "toy" else PAPER_COUNT
        scene = simulate.paper_views(points, degrees, count, noise_db=noise_db, outliers=outliers, rng=rng)
        start = methods.centred(scene.clouds)
        scenes.append(scene)
        for method, run in contestants.items():
            trials[method].append(run(scene.clouds, start, np.random.default_rng([seed, k])))
    return Runs(scenes, trials)
