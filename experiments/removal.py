# SPDX-License-Identifier: MIT
"""Figure: what becomes of the outliers. Two of four sets, the deviations, the means on their way, the split, the removal."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from coframe import simulate
from coframe.simulate import Scene
from experiments import drawing, methods
from experiments.methods import Trial
from experiments.models import MODELS, model
from experiments.record import Record, claim, figure_file, record, table
from experiments.simulated import PAPER_COUNT, TOY_COUNT

NAME = "removal"
TITLE = "Outliers told by the variance of their component (30 % outliers, one realisation)"
MODEL = "armadillo"
NOISE_DB, OUTLIERS = (10.0, 20.0), 0.3  # the paper says 10; its pictures look like 20
STEPS = (5, 15, 30, 100)  # iterations after which the means are shown; the last is the result
MULTIPLE = 2.0  # the paper's threshold, in medians
NOTES = (
    "At 10 dB the noise is as wide as the limbs: every component is as wide as the noise, and none stands out.",
    "The threshold is 2 medians (2.5 in the authors' program), of variances, as in their program.",
    "`register` knows no wide components: its outliers are those of the uniform class.",
)


def run(size: str, seed: int, *, realisations: int | None = None, folder: Path | None = None) -> Record:
    """One realisation of the paper's first experiment, looked at closely."""
    began = time.perf_counter()
    rows, checks, figures, seconds = {}, [], [], {}
    for noise_db in NOISE_DB[: 1 if size == "toy" else None]:
        scene = views(size, seed, noise_db)
        start = methods.centred(scene.clouds)
        stages = {n: methods.batch_from_nothing(scene.clouds, start, np.random.default_rng(seed), n) for n in STEPS}
        found = {"JRMPC-B": stages[STEPS[-1]], "register": methods.register(scene.clouds, start, np.random.default_rng(seed))}
        for method, trial in found.items():
            rows[f"{method}, {noise_db:.0f} dB"] = split(trial, scene, MULTIPLE)
            seconds[f"{method}, {noise_db:.0f} dB"] = trial.seconds
        checks += claims(stages, scene, noise_db)
        name = f"{NAME}-{noise_db:.0f}dB.png"
        figures += figure_file(
            folder, name, lambda figure, scene=scene, stages=stages: draw(figure, scene, stages), width=7, height=7
        )
    columns = ["outliers found", "inliers kept", "outliers before", "outliers after"]
    return record(
        NAME,
        TITLE,
        size=size,
        seed=seed,
        realisations=1,
        options={"model": MODEL, "snr_db": NOISE_DB, "outliers": OUTLIERS, "steps": STEPS, "threshold_medians": MULTIPLE},
        began=began,
        tables=[table("Shares of points", columns, rows, seconds=seconds, errors=False)],
        checks=checks,
        figures=figures,
    )


def views(size: str, seed: int, noise_db: float) -> Scene:
    """One realisation."""
    rng = np.random.default_rng([seed, MODELS.index(MODEL), 0])
    count = TOY_COUNT if size == "toy" else PAPER_COUNT
    return simulate.paper_views(model(MODEL, size), count=count, noise_db=noise_db, outliers=OUTLIERS, rng=rng)


def claims(stages: dict[int, Trial], scene: Scene, noise_db: float) -> list[Record]:
    """What the paper says of its figure."""
    last = stages[STEPS[-1]]
    before, after = split(last, scene, MULTIPLE)[2:]
    sizes = {n: float(np.ptp(trial.result.mixture.means, axis=0).max()) for n, trial in stages.items()}
    wide, narrow = outlying(last, scene)
    return [
        claim(f"{noise_db:.0f} dB: removal leaves fewer outliers", after < before, f"{before:.1%} before, {after:.1%} after"),
        claim(
            f"{noise_db:.0f} dB: wide components hold outliers",
            wide > narrow,
            f"share of outliers above the threshold {wide:.0%}, below it {narrow:.0%}",
        ),
        claim(
            f"{noise_db:.0f} dB: the means start in a small cell and grow to the size of the object",
            sizes[STEPS[0]] < sizes[STEPS[-1]],
            ", ".join(f"{size:.2f} after {n}" for n, size in sizes.items()),
        ),
    ]


def split(trial: Trial, scene: Scene, multiple: float) -> list[float]:
    """Share of outliers that are removed, share of others that stay, share of outliers among all before and after."""
    inlier = np.concatenate(trial.result.inliers(multiple))
    outlier = np.concatenate(scene.outliers)
    return [
        float(np.mean(~inlier[outlier])),
        float(np.mean(inlier[~outlier])),
        float(outlier.mean()),
        float(outlier[inlier].mean()),
    ]


def outlying(trial: Trial, scene: Scene) -> tuple[float, float]:
    """The share of outliers among the points of unreliable components, and of reliable ones."""
    labels, outlier = np.concatenate(trial.result.labels), np.concatenate(scene.outliers)
    good = trial.result.reliable(MULTIPLE)
    explained = labels >= 0
    wide = explained & ~good[labels]
    fine = explained & good[labels]
    return float(outlier[wide].mean()) if wide.any() else 0.0, float(outlier[fine].mean()) if fine.any() else 0.0


def draw(figure: Any, scene: Scene, stages: dict[int, Trial]) -> None:
    """The nine panels of the paper's figure."""
    axes = figure.subplots(3, 3).ravel()
    last = stages[STEPS[-1]].result
    for j in (0, 1):
        cloud, outlier = scene.clouds[j], scene.outliers[j]
        drawing.clouds(axes[j], [cloud[~outlier], cloud[outlier]], f"set {j + 1} and its outliers", size=1.5)
    axes[2].hist(np.sqrt(last.mixture.variances), bins=60, color="#1f77b4")
    axes[2].axvline(np.sqrt(MULTIPLE * np.median(last.mixture.variances)), color="#d62728")
    axes[2].set_title("deviations, threshold", fontsize="small")
    for panel, n in zip(axes[3:6], STEPS[:3], strict=True):
        drawing.clouds(panel, [stages[n].result.mixture.means], f"means after {n} iterations", size=1.5)
    good, means = last.reliable(MULTIPLE), last.mixture.means
    drawing.clouds(axes[6], [means[good], means[~good]], "means split", size=1.5, colours=("#1f77b4", "#d62728"))
    drawing.clouds(axes[7], last.aligned(), "registered")
    drawing.clouds(axes[8], last.cleaned(MULTIPLE), "after removal")
