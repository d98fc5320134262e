# SPDX-License-Identifier: MIT
"""Figure: what becomes of the outliers.

Two of four sets, the deviations, the means on their way, the split, the removal.
"""

from typing import Any

import numpy as np

from coframe.data.simulate import SimulatedScene
from coframe.result.registration import Registration
from experiments import drawing, methods
from experiments.claims import Claim, mean_of
from experiments.record import Found, Record, Run, table
from experiments.simulated import FOUR, views

NAME = "removal"
TITLE = "Outliers told by the variance of their component (30 % outliers, one realisation)"
MODEL = "armadillo"
NOISE_DB, OUTLIERS = (10.0, 20.0), 0.3  # the paper says 10; its pictures look like 20
STEPS = (5, 15, 30, 100)  # iterations after which the means are shown; the last is the result
MULTIPLE = 2.0  # the paper's threshold, in medians
COLUMNS = ["outliers found", "inliers kept", "outliers before", "outliers after"]
SEEDS = {"paper": (0,), "toy": (0,)}
WIDE = (
    "At 10 dB the noise is as wide as the limbs: every component is as wide as the noise, and none"
    " stands out. At 20 dB it holds."
)
KNOWN = {"10 dB: removal leaves fewer outliers": WIDE, "10 dB: wide components hold outliers": WIDE}
NOTES = (
    "The threshold is 2 medians (2.5 in the authors' program), of variances, as in their program.",
    "`register` knows no wide components: its outliers are those of the uniform class.",
)


def measure(run: Run) -> Found:
    """One realisation of the paper's first experiment, looked at closely."""
    rows: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    sizes: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    figures: list[str] = []
    for noise_db in NOISE_DB[: 1 if run.toy else None]:
        label = f"{noise_db:.0f} dB"
        scene = views(MODEL, run.size, FOUR, noise_db, OUTLIERS, run.seeds[0])
        start, rng = methods.centred(scene.clouds), lambda: np.random.default_rng(run.seeds[0])
        trials = {n: methods.batch_from_nothing(scene.clouds, start, rng(), n) for n in STEPS}
        stages = {n: each.full for n, each in trials.items()}
        found = {
            "JRMPC-B": trials[STEPS[-1]],
            "register": methods.register(scene.clouds, start, rng()),
        }
        for method, trial in found.items():
            rows[f"{method}, {label}"] = split(trial.full, scene, MULTIPLE)
            seconds[f"{method}, {label}"] = trial.seconds
        shares[label] = list(outlying(stages[STEPS[-1]], scene))
        sizes[label] = [
            float(np.ptp(result.mixture.means, axis=0).max()) for result in stages.values()
        ]
        figures += run.figure(
            f"{NAME}-{label.replace(' ', '')}.png",
            lambda figure, scene=scene, stages=stages: draw(figure, scene, stages),
            width=7,
            height=7,
        )
    tables = [
        table("Shares of points", COLUMNS, rows, seconds=seconds, errors=False),
        table(
            "Share of outliers in components of JRMPC-B",
            ["above the threshold", "below it"],
            shares,
            errors=False,
        ),
        table(
            "Extent of the means of JRMPC-B",
            [f"after {n}" for n in STEPS],
            sizes,
            digits=2,
            errors=False,
        ),
    ]
    options = {
        "model": MODEL,
        "snr_db": NOISE_DB,
        "outliers": OUTLIERS,
        "threshold_medians": MULTIPLE,
    }
    return Found(tables, options, figures)


def claims(record: Record) -> list[Claim]:
    """What the paper says of its figure."""
    rows, shares, sizes = (mean_of(each) for each in record["tables"])
    found = []
    for label in shares:
        row = rows[f"JRMPC-B, {label}"]
        before, after = row["outliers before"], row["outliers after"]
        wide, narrow = shares[label].values()
        first, *_, last = sizes[label].values()
        found += [
            Claim(
                f"{label}: removal leaves fewer outliers",
                after < before,
                f"{before:.1%} before, {after:.1%} after",
            ),
            Claim(
                f"{label}: wide components hold outliers",
                wide > narrow,
                f"{wide:.0%} of their points, {narrow:.0%} of others",
            ),
            Claim(
                f"{label}: the means start in a small cell and grow to the size of the object",
                first < last,
            ),
        ]
    return found


def split(result: Registration, scene: SimulatedScene, multiple: float) -> list[float]:
    """Share of outliers that are removed, share of others that stay, share of outliers among all
    before and after.
    """
    inlier = np.concatenate(result.inliers(multiple if result.mixture.spherical else None))
    outlier = np.concatenate(scene.outliers)
    return [
        float(np.mean(~inlier[outlier])),
        float(np.mean(inlier[~outlier])),
        float(outlier.mean()),
        float(outlier[inlier].mean()),
    ]


def outlying(result: Registration, scene: SimulatedScene) -> tuple[float, float]:
    """The share of outliers among the points of unreliable components, and of reliable ones."""
    labels, outlier = np.concatenate(result.labels), np.concatenate(scene.outliers)
    good = result.reliable(MULTIPLE)
    explained = labels >= 0
    wide = explained & ~good[labels]
    fine = explained & good[labels]
    return float(outlier[wide].mean()) if wide.any() else 0.0, (
        float(outlier[fine].mean()) if fine.any() else 0.0
    )


def draw(figure: Any, scene: SimulatedScene, stages: dict[int, Registration]) -> None:
    """The nine panels of the paper's figure."""
    axes = figure.subplots(3, 3).ravel()
    last = stages[STEPS[-1]]
    for j in (0, 1):
        cloud, outlier = scene.clouds[j], scene.outliers[j]
        drawing.clouds(
            axes[j], [cloud[~outlier], cloud[outlier]], f"set {j + 1} and its outliers", size=1.5
        )
    axes[2].hist(np.sqrt(last.mixture.variances), bins=60, color="#1f77b4")
    axes[2].axvline(np.sqrt(MULTIPLE * np.median(last.mixture.variances)), color="#d62728")
    axes[2].set_title("deviations, threshold", fontsize="small")
    for panel, n in zip(axes[3:6], STEPS[:3], strict=True):
        drawing.clouds(panel, [stages[n].mixture.means], f"means after {n} iterations", size=1.5)
    good, means = last.reliable(MULTIPLE), last.mixture.means
    drawing.clouds(
        axes[6],
        [means[good], means[~good]],
        "means split",
        size=1.5,
        colours=("#1f77b4", "#d62728"),
    )
    drawing.clouds(axes[7], last.aligned(), "registered")
    drawing.clouds(axes[8], last.cleaned(MULTIPLE), "after removal")
