# SPDX-License-Identifier: MIT
"""Figure: ten views of a time-of-flight camera, front and top, before and after the removal of
outliers. K = 450.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from coframe import geometry
from coframe.evaluate import metrics
from experiments import drawing
from experiments.claims import Claim, below, standing
from experiments.multiview import residual
from experiments.problems import DEPTH, Depth
from experiments.record import Found, Record, Run, table
from experiments.trials import Job, Trial

NAME = "tof"
NOTES = ("The paper shows pictures only; the residual is ours, on all points of the views.",)
TITLE = "Time-of-flight scene (EXBI, 10 views)"
SENTENCE = "The paper judges by eye; the residual is ours, on all points of the views."
SEEDS = {"paper": (0,), "toy": (0,)}
KNOWN = {
    "JRMPC-B registers better than the others do": (
        "By the residual it is better than seqICP and MV-ICP, and 4 % behind MAICP and MATrICP."
        " With K = 450 for 50,000 points a component is a patch of some centimetres, wider than the"
        " residual that is left. The paper judges by eye, and our MAICP is given all pairs that"
        " overlap."
    )
}
GATE = 0.03  # of the extent: the camera's noise is a hundredth of it
SHOWN = 5000  # points of a picture
METHODS = ("seqICP", "MV-ICP", "MAICP", "MATrICP", "JRMPC-B", "JRMPC-I", "register")
CLEANED = ("JRMPC-B", "register")  # shown after the removal of outliers, too
UNSHOWN = ("MV-ICP", "JRMPC-I", "register")  # before it, for want of space


def jobs(run: Run) -> list[Job]:
    """Every method, and the start of all: sequential ICP. Pictures need labels."""
    return [
        Job(Depth(run.size), method, seed, model=method in CLEANED)
        for method in METHODS
        for seed in run.seeds
    ]


def measure(run: Run) -> Found:
    """All methods from the poses of sequential ICP; without a truth, the gap between the surfaces
    is the measure.

    A seed draws the points of the views and the means of JRMPC-B. The picture is of the first.
    """
    surfaces = [metrics.Surface.of(cloud) for cloud in Depth(run.size).whole()]
    trials: dict[str, list[Trial]] = {method: [] for method in METHODS}
    for job in jobs(run):
        trials[job.method].append(run.store.get(job))
    rows = {m: [[residual(surfaces, t.poses, GATE) for t in each]] for m, each in trials.items()}
    seconds = {m: float(np.mean([t.seconds for t in each])) for m, each in trials.items()}
    kept = {m: [[float(t.more["inliers"].mean()) for t in trials[m]]] for m in CLEANED}
    tables = [
        table("Held-out residual [1e-3 of the extent]", ["EXBI"], rows, seconds=seconds),
        table("Points kept after removal", ["share"], kept, errors=False),
    ]
    first = {method: each[0] for method, each in trials.items()}
    clouds = Depth(run.size).clouds(run.seeds[0])
    figures = run.figure(
        f"{NAME}.png", lambda figure: draw(figure, clouds, first), width=13, height=4
    )
    return Found(tables, {"gate": GATE, **DEPTH[run.size]}, figures)


def shown(record: Record) -> list[Record]:
    """What the short page shows."""
    return list(record["tables"])


def claims(record: Record) -> list[Claim]:
    """What the paper shows in pictures."""
    rivals = ["seqICP", "MV-ICP", "MAICP", "MATrICP"]
    text = "JRMPC-B registers better than the others do"
    return [below(record["tables"][0], "JRMPC-B", rivals, text), *standing(record["tables"])]


def draw(figure: Any, clouds: Sequence[np.ndarray], trials: dict[str, Trial]) -> None:
    """Front view above, top view below; the last columns are after removal."""
    panels = {
        name: [geometry.transform(T, cloud) for T, cloud in zip(trial.poses, clouds, strict=True)]
        for name, trial in trials.items()
    }
    for name in UNSHOWN:
        panels.pop(name)
    ends = np.cumsum([len(cloud) for cloud in clouds])[:-1]
    for name in CLEANED:
        kept = np.split(trials[name].more["inliers"], ends)
        placed = [
            geometry.transform(T, cloud)
            for T, cloud in zip(trials[name].poses, clouds, strict=True)
        ]
        panels[f"{name}, cleaned"] = [cloud[keep] for cloud, keep in zip(placed, kept, strict=True)]
    axes = figure.subplots(2, len(panels))
    for column, (name, placed) in zip(axes.T, panels.items(), strict=True):
        every = max(1, sum(map(len, placed)) // SHOWN)
        some = [cloud[::every] for cloud in placed]
        drawing.clouds(column[0], some, name, along=2, size=0.7)
        drawing.clouds(column[1], some, "", along=1, size=0.7)
