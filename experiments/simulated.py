# SPDX-License-Identifier: MIT
"""What the experiments on simulated views share: views, and errors over all realisations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from coframe.data import simulate
from coframe.data.simulate import SimulatedScene
from coframe.evaluate import metrics
from experiments import methods
from experiments.methods import PAIRWISE
from experiments.models import MODELS, model
from experiments.record import Run
from experiments.trials import Trial

TOY_COUNT, PAPER_COUNT = (250, 350), (1000, 2000)  # points of a view
FOUR = (0.0, 10.0, 20.0, 30.0)  # degrees

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


def runs(
    run: Run,
    name: str,
    contestants: Sequence[str] = tuple(PAIRWISE),
    *,
    degrees: tuple[float, ...] = FOUR,
    noise_db: float,
    outliers: float,
) -> Runs:
    """Views of a model as in the paper, one scene for each seed, and the trials of each method."""
    scenes = [views(name, run.size, degrees, noise_db, outliers, seed) for seed in run.seeds]
    setup = (
        f"{run.size}-{name}-{'_'.join(f'{d:g}' for d in degrees)}deg-{noise_db:g}dB-{outliers:g}"
    )

    def solved(method: str, scene: SimulatedScene, seed: int) -> Trial:
        start, rng = methods.centred(scene.clouds), np.random.default_rng(seed)
        key = f"{setup}-{seed}-{method.split()[0]}"
        return run.store.get(key, lambda: PAIRWISE[method](scene.clouds, start, rng))

    return Runs(
        scenes,
        {
            m: [solved(m, *each) for each in zip(scenes, run.seeds, strict=True)]
            for m in contestants
        },
    )


@cache
def views(
    name: str, size: str, degrees: tuple[float, ...], noise_db: float, outliers: float, seed: int
) -> SimulatedScene:
    """One realisation."""
    rng = np.random.default_rng([seed, MODELS.index(name)])
    count = TOY_COUNT if size == "toy" else PAPER_COUNT
    return simulate.paper_views(
        model(name, size), degrees, count, noise_db=noise_db, outliers=outliers, rng=rng
    )
