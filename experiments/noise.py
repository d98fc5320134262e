# SPDX-License-Identifier: MIT
"""Not in the paper: how noisy are the views that its authors publish, beside ours at a given SNR?"""

import time
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from coframe import datasets, simulate
from experiments.models import model
from experiments.record import Record, claim, record, table
from experiments.simulated import PAPER_COUNT, TOY_COUNT

NAME = "noise"
TITLE = "Noise of the authors' own views beside ours"
LEVELS_DB = (10.0, 15.0, 20.0, 25.0, 30.0)
NEIGHBOURS = 20
OUTLIERS = 0.3
NOTES = (
    "The thickness of a cloud is the median over its points of the smallest standard deviation of a point's 20 neighbours, "
    "over the mean standard deviation of the coordinates. Noise makes it larger, and so do outliers and sparse sampling.",
    "An SNR of 10 dB as we define it (noise variance = mean coordinate variance / 10) makes thicker clouds than any of the "
    "four that come with the authors' program. If these are of the paper's kind, its 10 dB are 20 dB or more of ours.",
)


def run(size: str, seed: int, *, realisations: int | None = None, folder: Path | None = None) -> Record:
    """The four views of each level, and the authors' four."""
    began = time.perf_counter()
    count = TOY_COUNT if size == "toy" else PAPER_COUNT
    rows = {}
    if size == "paper":
        rows["the authors' cut views"] = [thickness(cloud) for cloud in datasets.cut_views().clouds()]
    for noise_db in LEVELS_DB:
        rng = np.random.default_rng(seed)
        views = simulate.paper_views(model("bunny", size), count=count, noise_db=noise_db, outliers=OUTLIERS, rng=rng)
        rows[f"ours, {noise_db:.0f} dB"] = [thickness(cloud) for cloud in views.clouds]
    checks = []
    if size == "paper":
        theirs, ours = max(rows["the authors' cut views"]), min(rows[f"ours, {LEVELS_DB[0]:.0f} dB"])
        checks = [claim("the authors' views are as noisy as ours at 10 dB", theirs >= ours, f"{theirs:.3f} and {ours:.3f}")]
    return record(
        NAME,
        TITLE,
        size=size,
        seed=seed,
        realisations=1,
        options={"levels_db": LEVELS_DB, "outliers": OUTLIERS, "neighbours": NEIGHBOURS},
        began=began,
        tables=[table("Thickness", [f"view {j}" for j in range(1, 5)], rows, errors=False)],
        checks=checks,
    )


def thickness(cloud: np.ndarray) -> float:
    """The median smallest deviation of a neighbourhood, over the mean deviation of the coordinates."""
    patches = cloud[cKDTree(cloud).query(cloud, NEIGHBOURS)[1]]
    patches -= patches.mean(1, keepdims=True)
    smallest = np.linalg.eigvalsh(patches.swapaxes(1, 2) @ patches / NEIGHBOURS)[:, 0]
    return float(np.median(np.sqrt(np.maximum(smallest, 0.0))) / cloud.std(0).mean())
