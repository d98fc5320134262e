# SPDX-License-Identifier: MIT
"""What the experiments on simulated views share: errors over all realisations."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from coframe.data.simulate import SimulatedScene
from coframe.evaluate import metrics
from experiments import methods
from experiments.methods import PAIRWISE
from experiments.problems import Views
from experiments.record import Run
from experiments.trials import Job, Trial

Measure = Callable[[np.ndarray, SimulatedScene], float]  # of poses


@dataclass(frozen=True)
class Runs:
    """The trials of every method on the same scenes."""

    scenes: list[SimulatedScene]
    trials: dict[str, list[Trial]]  # by method, in the order of the scenes

    def over(self, measure: Measure) -> dict[str, list[float]]:
        """A figure of every trial, by method."""
        return {
            name: [
                measure(trial.poses, scene)
                for trial, scene in zip(trials, self.scenes, strict=True)
            ]
            for name, trials in self.trials.items()
        }

    def start(self, measure: Measure) -> list[float]:
        """A figure of the start poses: what a method that moves nothing would get."""
        return [measure(methods.centred(scene.clouds), scene) for scene in self.scenes]

    def seconds(self) -> dict[str, float]:
        """The mean time of a trial, by method."""
        return {
            name: float(np.mean([trial.seconds for trial in trials]))
            for name, trials in self.trials.items()
        }


def rmse(poses: np.ndarray, scene: SimulatedScene) -> float:
    """The RMS Frobenius error of rotations relative to the first set, over the other sets."""
    return metrics.rotation_rmse(poses, scene.poses)


def asked(
    run: Run, given: Iterable[Views], contestants: Sequence[str] = tuple(PAIRWISE)
) -> list[Job]:
    """A trial for each problem, method and seed."""
    return [
        Job(each, method, seed) for each in given for method in contestants for seed in run.seeds
    ]


def runs(run: Run, given: Views, contestants: Sequence[str] = tuple(PAIRWISE)) -> Runs:
    """One scene for each seed, and the trials of each method."""
    return Runs(
        [given.scene(seed) for seed in run.seeds],
        {m: [run.store.get(Job(given, m, seed)) for seed in run.seeds] for m in contestants},
    )
