# SPDX-License-Identifier: MIT
"""Figure: cross-sections of the registered scans. The cleaner the line, the better the poses."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from coframe import geometry
from coframe.evaluate import metrics
from experiments import drawing, multiview
from experiments.claims import Claim, standing
from experiments.models import scans
from experiments.problems import MULTIVIEW, RangeScans
from experiments.record import Found, Record, Run, table
from experiments.trials import Job

NAME = "sections"
TITLE = "Cross-sections and integrated models of the scans, without added noise"
SENTENCE = "The thinner the line, the better the poses."
SHOWN = ("Initialization", "MAICP", "MATrICP", "JRMPC-B", "JRMPC-I", "register")
HALF = 0.003  # of the extent: half the thickness of the slice
LEAST = 5  # points of a cell of the section that say how thick it is
CELL = 0.03  # of the extent
PIXELS = 110  # of an integrated model, along its longer side
SEEDS = multiview.SEEDS
KNOWN: dict[str, str] = {}
NOTES = (
    "All points of the scans within the slice are shown, not only those that were registered.",
)


def jobs(run: Run) -> list[Job]:
    """Those of the multi-view table that are shown."""
    return [
        Job(RangeScans(run.size, name, None), method, seed)
        for name in multiview.objects(run.size)
        for method in SHOWN[1:]
        for seed in run.seeds
    ]


def measure(run: Run) -> Found:
    """The slices, all scan points within them, and how thick the line is."""
    names = multiview.objects(run.size)
    slices = {
        name: {method: [section(run, name, method, seed) for seed in run.seeds] for method in SHOWN}
        for name in names
    }
    rows = {
        method: [[1e3 * thickness(each) for each in slices[name][method]] for name in names]
        for method in SHOWN
    }
    figures = run.figure(
        f"{NAME}.png",
        lambda figure: draw(figure, slices),
        width=2.2 * len(SHOWN),
        height=2.2 * len(names),
    )
    figures += run.figure(
        "integrated.png",
        lambda figure: draw_integrated(figure, run, names),
        width=1.7 * len(SHOWN),
        height=1.9 * len(names),
    )
    options = {"half_thickness": HALF, "cell": CELL, **MULTIVIEW[run.size]}
    return Found(
        [table("Thickness of the line [1e-3 of the extent]", names, rows)], options, figures
    )


def shown(record: Record) -> list[Record]:
    """What the short page shows."""
    return list(record["tables"])


def claims(record: Record) -> list[Claim]:
    """The thinner the line, the better."""
    return standing(record["tables"])


def placed(run: Run, name: str, method: str, seed: int) -> np.ndarray:
    """The poses of the whole scans, in the published frame of the first one."""
    given = RangeScans(run.size, name, None).given(seed)
    found = multiview.trial(run, name, method, seed, None)
    published = scans(name, run.size)[1]
    poses = multiview.on_scans(found.poses, given, published)
    return published[0] @ geometry.inverse(poses[0]) @ poses


def section(run: Run, name: str, method: str, seed: int) -> list[np.ndarray]:
    """The points (n, 3) of each scan near a plane through the middle, across the second axis."""
    whole, published = scans(name, run.size)
    poses = placed(run, name, method, seed)
    height = np.median(
        np.concatenate(
            [geometry.transform(T, scan) for T, scan in zip(published, whole, strict=True)]
        )[:, 1]
    )
    moved = [geometry.transform(T, scan) for T, scan in zip(poses, whole, strict=True)]
    return [points[np.abs(points[:, 1] - height) < HALF] for points in moved]


def thickness(groups: list[np.ndarray]) -> float:
    """The median over cells of the smaller standard deviation of the points in a cell."""
    points = np.concatenate(groups)[:, [0, 2]]
    _, cells = np.unique(np.floor(points / CELL).astype(int), axis=0, return_inverse=True)
    deviations = [
        np.sqrt(max(np.linalg.eigvalsh(np.cov(points[cells.ravel() == c].T))[0], 0.0))
        for c in range(cells.max() + 1)
        if np.sum(cells == c) >= LEAST
    ]
    return float(np.median(deviations)) if deviations else float("nan")


def draw(figure: Any, slices: Record) -> None:
    """The first realisation: a row for each object, a column for each method."""
    axes = figure.subplots(len(slices), len(SHOWN), squeeze=False)
    for row, (name, each) in zip(axes, slices.items(), strict=True):
        for panel, method in zip(row, SHOWN, strict=True):
            drawing.clouds(panel, each[method][0], f"{name}, {method}", along=1, size=0.6)


def draw_integrated(figure: Any, run: Run, names: Sequence[str]) -> None:
    """All points of all scans as one surface, the first realisation."""
    axes = figure.subplots(len(names), len(SHOWN), squeeze=False)
    for row, name in zip(axes, names, strict=True):
        surfaces = [metrics.Surface.of(scan) for scan in scans(name, run.size)[0]]
        for panel, method in zip(row, SHOWN, strict=True):
            poses = placed(run, name, method, run.seeds[0])
            both = list(zip(poses, surfaces, strict=True))
            points = np.concatenate([geometry.transform(T, each.points) for T, each in both])
            normals = np.concatenate([each.normals @ T[:3, :3].T for T, each in both])
            drawing.surface(panel, points, normals, f"{name}, {method}", PIXELS)
