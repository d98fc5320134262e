# SPDX-License-Identifier: MIT
"""Figure: where the means end in JRMPC-B and in JRMPC-I, whose old means reach no new surface."""

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from coframe.result.registration import Registration
from experiments import drawing, methods, multiview
from experiments.claims import Claim, mean_of
from experiments.models import available
from experiments.record import Found, Record, Run, table

NAME = "means"
TITLE = "Distribution of the means, batch and incremental"
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
    names = available(("bunny", "dragon"), run.size)[: 1 if run.toy else None]
    results = {name: {method: solved(run, name, method) for method in SHOWN} for name in names}
    rows: dict[str, list[float]] = {
        method: [
            near_first_two(results[name][method], results[name][method].mixture.means)
            for name in names
        ]
        for method in SHOWN
    }
    rows["points"] = [
        near_first_two(each["JRMPC-B"], each["JRMPC-B"].merged()) for each in results.values()
    ]
    figures = run.figure(
        f"{NAME}.png", lambda figure: draw(figure, results), width=7, height=3.2 * len(names)
    )
    each = table(
        "Share of the means that lie on the first two scans", names, rows, digits=3, errors=False
    )
    return Found([each], dict(multiview.SETTINGS[run.size]), figures)


def claims(record: Record) -> list[Claim]:
    """The paper's reading of its figure."""
    rows = mean_of(record["tables"][0])
    batch, incremental = rows["JRMPC-B"], rows["JRMPC-I"]
    holds = all(batch[name] < incremental[name] for name in batch)
    detail = "; ".join(f"{name}: {batch[name]:.3f} and {incremental[name]:.3f}" for name in batch)
    return [Claim("the means of JRMPC-I are biased towards the first sets", holds, detail)]


def solved(run: Run, name: str, method: str) -> Registration:
    """A run with its mixture, which is not kept."""
    given = multiview.problem(name, run.size, run.seeds[0], None)
    solve = methods.joint(multiview.SETTINGS[run.size]["components"])[method]
    return solve(given.clouds, given.start, np.random.default_rng(run.seeds[0])).full


def near_first_two(result: Registration, points: np.ndarray) -> float:
    """The share of points that lie within `NEAR` of a point of the first two clouds."""
    distance, _ = cKDTree(np.concatenate(result.aligned()[:2])).query(points)
    return float(np.mean(distance < NEAR))


def draw(figure: Any, results: Record) -> None:
    """A row for each object, batch on the left."""
    axes = figure.subplots(len(results), 2, squeeze=False)
    for row, (name, each) in zip(axes, results.items(), strict=True):
        for panel, method in zip(row, SHOWN, strict=True):
            drawing.clouds(panel, [each[method].mixture.means], f"{name}, {method}", size=1.5)
