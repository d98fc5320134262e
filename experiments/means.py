# SPDX-License-Identifier: MIT
"""Figure: where the means end in JRMPC-B and in JRMPC-I, whose old means reach no new surface."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from coframe import geometry
from experiments import drawing
from experiments.claims import Claim, mean_of
from experiments.models import available
from experiments.problems import MULTIVIEW, RangeScans
from experiments.record import Found, Record, Run, table
from experiments.trials import Job

NAME = "means"
TITLE = "Distribution of the means, batch and incremental"
SENTENCE = "Without growing, the means of JRMPC-I stay with the first scans."
SHOWN = ("JRMPC-B", "JRMPC-I")
NEAR = 0.01  # of the extent
SEEDS = {"paper": (0,), "toy": (0,)}
KNOWN: dict[str, str] = {}
NOTES = (
    (
        "The row `points` is the same share of all points. With K = 4000 there is a mean for about"
        " ten points."
    ),
)


def measure(run: Run) -> Found:
    """The means of runs as behind the multi-view table, and their share on the first two scans."""
    seed = run.seeds[0]
    names = shown_objects(run.size)
    problems = {name: RangeScans(run.size, name, None) for name in names}
    results = {
        name: {m: run.store.get(Job(problems[name], m, seed, model=True)) for m in SHOWN}
        for name in names
    }
    placed = {
        name: {
            method: [
                geometry.transform(T, cloud)
                for T, cloud in zip(each.poses, problems[name].given(seed).clouds, strict=True)
            ]
            for method, each in results[name].items()
        }
        for name in names
    }
    rows: dict[str, list[float]] = {
        method: [
            near_first_two(placed[name][method], results[name][method].more["means"])
            for name in names
        ]
        for method in SHOWN
    }
    rows["points"] = [
        near_first_two(placed[name]["JRMPC-B"], np.concatenate(placed[name]["JRMPC-B"]))
        for name in names
    ]
    figures = run.figure(
        f"{NAME}.png", lambda figure: draw(figure, results), width=7, height=3.2 * len(names)
    )
    each = table(
        "Share of the means that lie on the first two scans", names, rows, digits=3, errors=False
    )
    return Found([each], dict(MULTIVIEW[run.size]), figures)


def shown(record: Record) -> list[Record]:
    """What the short page shows."""
    return list(record["tables"])


def claims(record: Record) -> list[Claim]:
    """The paper's reading of its figure."""
    rows = mean_of(record["tables"][0])
    batch, incremental = rows["JRMPC-B"], rows["JRMPC-I"]
    holds = all(batch[name] < incremental[name] for name in batch)
    detail = "; ".join(f"{name}: {batch[name]:.3f} and {incremental[name]:.3f}" for name in batch)
    return [Claim("the means of JRMPC-I are biased towards the first sets", holds, detail)]


def shown_objects(size: str) -> list[str]:
    """The paper's two, those that are there; one, at toy size."""
    return available(("bunny", "dragon"), size)[: 1 if size == "toy" else None]


def jobs(run: Run) -> list[Job]:
    """Trials of the multi-view table, with their mixtures."""
    return [
        Job(RangeScans(run.size, name, None), method, run.seeds[0], model=True)
        for name in shown_objects(run.size)
        for method in SHOWN
    ]


def near_first_two(placed: Sequence[np.ndarray], points: np.ndarray) -> float:
    """The share of points that lie within `NEAR` of a point of the first two clouds."""
    distance, _ = cKDTree(np.concatenate(placed[:2])).query(points)
    return float(np.mean(distance < NEAR))


def draw(figure: Any, results: Record) -> None:
    """A row for each object, batch on the left."""
    axes = figure.subplots(len(results), 2, squeeze=False)
    for row, (name, each) in zip(axes, results.items(), strict=True):
        for panel, method in zip(row, SHOWN, strict=True):
            drawing.clouds(panel, [each[method].more["means"]], f"{name}, {method}", size=1.5)
