# SPDX-License-Identifier: MIT
"""Figure: ten views of a time-of-flight camera, front and top, before and after the removal of outliers. K = 450."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coframe import datasets, geometry, metrics, simulate
from experiments import drawing, methods
from experiments.methods import Method, Trial
from experiments.multiview import residual
from experiments.record import Record, below, figure_file, record, table

NAME = "tof"
NOTES = ("The paper shows pictures only; the residual is ours, on all points of the views.",)
TITLE = "Time-of-flight scene (EXBI, 10 views)"
SETTINGS = {
    "paper": {"components": 450, "points": 5000, "iterations": 100},
    "toy": {"components": 60, "points": 300, "iterations": 30},
}
GATE = 0.03  # of the extent: the camera's noise is a hundredth of it
SHOWN = 6000  # points of a picture


def views(size: str) -> list[np.ndarray]:
    """The clouds, in units of their largest extent, those that show nothing left out."""
    if size == "toy":
        return simulate.scene(4, 600, degrees=30.0, outliers=0.05, rng=np.random.default_rng(0)).clouds
    clouds = [cloud[np.isfinite(cloud).all(1)] for cloud in datasets.tof().clouds()]
    unit = max(simulate.extent(cloud) for cloud in clouds)
    return [cloud / unit for cloud in clouds]


def contestants(settings: Record) -> dict[str, Method]:
    """The paper's methods and ours. Sequential ICP is the start of all others."""
    return {
        "MV-ICP": methods.baseline("mv-icp"),
        "MAICP": methods.baseline("maicp"),
        "MATrICP": methods.baseline("matricp"),
        "JRMPC-B": partial(methods.batch_from_rough, components=settings["components"], iterations=settings["iterations"]),
        "register": methods.register,
    }


def run(size: str, seed: int, *, realisations: int | None = None, folder: Path | None = None) -> Record:
    """All methods from the poses of sequential ICP; without a truth, the gap between the surfaces is the measure."""
    began, settings = time.perf_counter(), SETTINGS[size]
    rng = np.random.default_rng(seed)
    whole = views(size)
    clouds = [cloud[rng.choice(len(cloud), min(settings["points"], len(cloud)), replace=False)] for cloud in whole]
    as_they_lie = geometry.identity(len(clouds), 3)
    trials: dict[str, Trial] = {"seqICP": methods.baseline("icp sequential")(clouds, as_they_lie, rng)}
    for name, method in contestants(settings).items():
        trials[name] = method(clouds, trials["seqICP"].poses, np.random.default_rng(seed))
    surfaces = [metrics.Surface.of(cloud) for cloud in whole]
    rows = {name: [residual(surfaces, trial.poses, GATE)] for name, trial in trials.items()}
    each = table(
        "Held-out residual [1e-3 of the extent]", ["EXBI"], rows, seconds={n: t.seconds for n, t in trials.items()}, digits=3
    )
    kept = {name: float(np.concatenate(trials[name].result.inliers()).mean()) for name in ("JRMPC-B", "register")}
    figures = figure_file(folder, f"{NAME}.png", lambda figure: draw(figure, trials), width=14, height=4)
    return record(
        NAME,
        TITLE,
        size=size,
        seed=seed,
        realisations=1,
        options={"gate": GATE, **settings},
        began=began,
        tables=[each, table("Points kept after removal", ["share"], {n: [v] for n, v in kept.items()}, errors=False)],
        checks=[
            below(each, "JRMPC-B", ["seqICP", "MV-ICP", "MAICP", "MATrICP"], "JRMPC-B registers better than the others do")
        ],
        figures=figures,
    )


def draw(figure: Any, trials: dict[str, Trial]) -> None:
    """Front view above, top view below; the last column of JRMPC-B and of ours is after removal."""
    panels = {name: trial.result.aligned() for name, trial in trials.items()}
    panels |= {f"{name}, cleaned": trials[name].result.cleaned() for name in ("JRMPC-B", "register")}
    axes = figure.subplots(2, len(panels))
    for column, (name, clouds) in zip(axes.T, panels.items(), strict=True):
        every = max(1, sum(map(len, clouds)) // SHOWN)
        some = [cloud[::every] for cloud in clouds]
        drawing.clouds(column[0], some, name, along=2, size=0.7)
        drawing.clouds(column[1], some, "", along=1, size=0.7)
