# SPDX-License-Identifier: MIT
"""Figure: cross-sections of the registered scans. The cleaner the line, the better the poses."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from coframe import geometry
from experiments import drawing, multiview
from experiments.models import available, scans
from experiments.record import Record, figure_file, record, table

NAME = "sections"
TITLE = "Cross-sections of the registered scans, without added noise"
SHOWN = ("Initialization", "MAICP", "MATrICP", "JRMPC-B", "JRMPC-I", "register")
HALF = 0.003  # of the extent: half the thickness of the slice
LEAST = 5  # points of a cell of the section that say how thick it is
CELL = 0.03  # of the extent
NOTES = ("All points of the scans within the slice are shown, not only those that were registered.",)


def run(size: str, seed: int, *, realisations: int | None = None, folder: Path | None = None) -> Record:
    """The slices, all scan points within them, and how thick the line is."""
    began = time.perf_counter()
    names = available(multiview.NAMES, size)[: 1 if size == "toy" else None]
    slices = {name: {method: section(name, method, size, seed) for method in SHOWN} for name in names}
    rows = {method: [1e3 * thickness(slices[name][method]) for name in names] for method in SHOWN}
    figures = figure_file(
        folder, f"{NAME}.png", lambda figure: draw(figure, slices), width=2.2 * len(SHOWN), height=2.2 * len(names)
    )
    return record(
        NAME,
        TITLE,
        size=size,
        seed=seed,
        realisations=1,
        options={"half_thickness": HALF, "cell": CELL, **multiview.SETTINGS[size]},
        began=began,
        tables=[table("Thickness of the line [1e-3 of the extent]", names, rows)],
        figures=figures,
    )


def section(name: str, method: str, size: str, seed: int) -> list[np.ndarray]:
    """The points (n, 3) of each whole scan near a plane through the middle of the object, across its second axis."""
    given, trials = multiview.solved(name, size, seed, None)
    whole, published = scans(name, size)
    poses = multiview.on_scans(multiview.poses_of(method, given, trials), given, published)
    poses = published[0] @ geometry.inverse(poses[0]) @ poses  # all methods in the frame of the same scan
    height = np.median(np.concatenate([geometry.transform(T, scan) for T, scan in zip(published, whole, strict=True)])[:, 1])
    placed = [geometry.transform(T, scan) for T, scan in zip(poses, whole, strict=True)]
    return [points[np.abs(points[:, 1] - height) < HALF] for points in placed]


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
    """A row for each object, a column for each method."""
    axes = figure.subplots(len(slices), len(SHOWN), squeeze=False)
    for row, (name, each) in zip(axes, slices.items(), strict=True):
        for panel, method in zip(row, SHOWN, strict=True):
            drawing.clouds(panel, each[method], f"{name}, {method}", along=1, size=0.6)
