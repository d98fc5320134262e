# SPDX-License-Identifier: MIT
"""Not in the paper: the noise of the views that its authors publish, beside ours at a given SNR."""

import numpy as np
from scipy.spatial import cKDTree

from coframe.data import datasets, simulate
from experiments.claims import Claim, mean_of
from experiments.models import model
from experiments.problems import PAPER_COUNT, TOY_COUNT
from experiments.record import Found, Record, Run, table
from experiments.trials import Job

NAME = "noise"
TITLE = "Noise of the authors' own views beside ours"
SENTENCE = "Not in the paper."
LEVELS_DB = (10.0, 15.0, 20.0, 25.0, 30.0)
NEIGHBOURS = 20
OUTLIERS = 0.3
AUTHORS = "the authors' cut views"
SEEDS = {"paper": (0,), "toy": (0,)}
KNOWN = {
    "the authors' views are as noisy as ours at 10 dB": (
        "The views that come with the authors' program are of some other setting than the paper's"
        " table: at 20 dB, about their thickness, our figures are farther from the table than at 10"
        " (experiment `indirect`)."
    )
}
NOTES = (
    (
        "The thickness of a cloud is the median over its points of the smallest standard deviation"
        " of a point's 20 neighbours, over the mean standard deviation of the coordinates. Noise"
        " makes it larger, and so do outliers and sparse sampling."
    ),
    (
        "An SNR of 10 dB as we define it (noise variance = mean coordinate variance / 10) makes"
        " thicker clouds than any of the four that come with the authors' program."
    ),
)


def jobs(run: Run) -> list[Job]:
    """None: only views are looked at."""
    return []


def measure(run: Run) -> Found:
    """The four views of each level, and the authors' four."""
    count = TOY_COUNT if run.toy else PAPER_COUNT
    rows = (
        {}
        if run.toy
        else {AUTHORS: [thickness(cloud) for cloud in datasets.load("cut views").clouds()]}
    )
    for noise_db in LEVELS_DB:
        rng = np.random.default_rng(run.seeds[0])
        views = simulate.paper_views(
            model("bunny", run.size), count=count, noise_db=noise_db, outliers=OUTLIERS, rng=rng
        )
        rows[f"ours, {noise_db:.0f} dB"] = [thickness(cloud) for cloud in views.clouds]
    options = {"levels_db": LEVELS_DB, "outliers": OUTLIERS, "neighbours": NEIGHBOURS}
    return Found(
        [table("Thickness", [f"view {j}" for j in range(1, 5)], rows, errors=False)], options
    )


def shown(record: Record) -> list[Record]:
    """What the short page shows."""
    return []


def claims(record: Record) -> list[Claim]:
    """The definition of the SNR would be the authors' if their views were as thick as ours."""
    rows = {name: list(row.values()) for name, row in mean_of(record["tables"][0]).items()}
    if AUTHORS not in rows:
        return []
    theirs, ours = max(rows[AUTHORS]), min(rows[f"ours, {LEVELS_DB[0]:.0f} dB"])
    return [
        Claim(
            "the authors' views are as noisy as ours at 10 dB",
            theirs >= ours,
            f"{theirs:.3f} and {ours:.3f}",
        )
    ]


def thickness(cloud: np.ndarray) -> float:
    """The median smallest deviation of neighbourhoods over the mean deviation of coordinates."""
    patches = cloud[cKDTree(cloud).query(cloud, NEIGHBOURS)[1]]
    patches -= patches.mean(1, keepdims=True)
    smallest = np.linalg.eigvalsh(patches.swapaxes(1, 2) @ patches / NEIGHBOURS)[:, 0]
    return float(np.median(np.sqrt(np.maximum(smallest, 0.0))) / cloud.std(0).mean())
