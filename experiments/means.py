# SPDX-License-Identifier: MIT
"""Figure: where the means end in JRMPC-B and in JRMPC-I, whose old means cannot move on to new surface."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from experiments import drawing, multiview
from experiments.methods import Trial
from experiments.models import available
from experiments.record import Record, claim, figure_file, record, table

NAME = "means"
TITLE = "Distribution of the means, batch and incremental"
SHOWN = ("JRMPC-B", "JRMPC-I")
NEAR = 0.01  # of the extent
NOTES = ("The row `points` is the same share of all points. With K = 4000 there is a mean for about ten points.",)


def run(size: str, seed: int, *, realisations: int | None = None, folder: Path | None = None) -> Record:
    """The means of the runs behind the multi-view table, and what share of them lies on the first two scans."""
    began = time.perf_counter()
    names = available(("bunny", "dragon"), size)[: 1 if size == "toy" else None]
    trials = {name: multiview.solved(name, size, seed, None)[1] for name in names}
    rows = {method: [first_two(trials[name][method]) for name in names] for method in SHOWN}
    rows["points"] = [share_of_points(trials[name]["JRMPC-B"]) for name in names]
    figures = figure_file(folder, f"{NAME}.png", lambda figure: draw(figure, trials), width=7, height=3.2 * len(names))
    return record(
        NAME,
        TITLE,
        size=size,
        seed=seed,
        realisations=1,
        options=dict(multiview.SETTINGS[size]),
        began=began,
        tables=[table("Share of the means that lie on the first two scans", names, rows, digits=3, errors=False)],
        checks=[
            claim(
                "the means of JRMPC-I are biased towards the first sets",
                all(b < i for b, i in zip(rows["JRMPC-B"], rows["JRMPC-I"], strict=True)),
                "; ".join(f"{n}: {b:.3f} and {i:.3f}" for n, b, i in zip(names, rows["JRMPC-B"], rows["JRMPC-I"], strict=True)),
            )
        ],
        figures=figures,
    )


def first_two(trial: Trial) -> float:
    """The share of the means that lie within `NEAR` of a point of the first two clouds."""
    return near_first_two(trial, trial.result.mixture.means)


def share_of_points(trial: Trial) -> float:
    """The same share of all points."""
    return near_first_two(trial, trial.result.merged())


def near_first_two(trial: Trial, points: np.ndarray) -> float:
    """The share of points that lie within `NEAR` of a point of the first two clouds."""
    distance, _ = cKDTree(np.concatenate(trial.result.aligned()[:2])).query(points)
    return float(np.mean(distance < NEAR))


def draw(figure: Any, trials: Record) -> None:
    """A row for each object, batch on the left."""
    axes = figure.subplots(len(trials), 2, squeeze=False)
    for row, (name, each) in zip(axes, trials.items(), strict=True):
        for panel, method in zip(row, SHOWN, strict=True):
            drawing.clouds(panel, [each[method].result.mixture.means], f"{name}, {method}", size=1.5)
