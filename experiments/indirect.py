# SPDX-License-Identifier: MIT
"""Table: rotation error of the mappings between sets that no method estimates directly. 30 % outliers."""

import time
from itertools import product
from pathlib import Path

import numpy as np

from coframe.metrics import frobenius_errors
from coframe.simulate import Scene
from experiments.methods import ITERATIONS, PAIRWISE
from experiments.models import MODELS
from experiments.record import Record, below, below_each, record, table
from experiments.simulated import runs

NAME = "indirect"
TITLE = "Indirect mappings V2 to V3 and V3 to V4 (SNR 10 dB as in the paper, and 20 dB; 30 % outliers)"
SETTINGS = {"paper": {"models": MODELS, "realisations": 3}, "toy": {"models": ("bunny",), "realisations": 2}}
NOISE_DB, OUTLIERS = 10.0, 0.3
LESS_NOISE_DB = 20.0  # about what the authors' own views hold (docs/reproducing.md)
COLUMNS = ["V2 to V3", "V3 to V4", "standard deviation"]
RIVALS = ["ICP", "GMMReg", "CPD / ECMPR", "SimReg"]
PAPER = {  # V2 to V3, V3 to V4, standard deviation
    "bunny": {
        "ICP": (0.329, 0.423, 0.047),
        "GMMReg": (0.364, 0.303, 0.030),
        "CPD / ECMPR": (0.214, 0.242, 0.014),
        "SimReg": (0.333, 0.415, 0.041),
        "JRMPC-B": (0.181, 0.165, 0.008),
    },
    "lucy": {
        "ICP": (0.315, 0.297, 0.009),
        "GMMReg": (0.129, 0.110, 0.009),
        "CPD / ECMPR": (0.144, 0.109, 0.017),
        "SimReg": (0.354, 0.245, 0.055),
        "JRMPC-B": (0.068, 0.060, 0.004),
    },
    "armadillo": {
        "ICP": (0.263, 0.373, 0.055),
        "GMMReg": (0.228, 0.167, 0.031),
        "CPD / ECMPR": (0.222, 0.204, 0.009),
        "SimReg": (0.269, 0.301, 0.016),
        "JRMPC-B": (0.147, 0.147, 0.000),
    },
}
NOTES = (
    "The paper's text says 20 % outliers where the caption of the table says 30 %; these are with 30 %.",
    "The row `start` is the error of poses that turn nothing: a turn by 10 degrees is 0.247.",
    "seqICP estimates these two mappings directly, and is in no row of the paper's table.",
    "Why ours differs: at 10 dB by our definition the noise is as wide as the limbs (experiment `noise`: the authors' "
    "own views are far cleaner), all views are halves of the object cut at the same plane, and what is left to see is "
    "the cut. On the bunny every method stays near the start. At 20 dB the paper's order appears: JRMPC-B below ICP "
    "and CPD on all three models, and below GMMReg and SimReg on two.",
    "`register` fits thin, surface-aligned components. At 20 dB they pay; at 10 dB no surface is left for them, and "
    "the wide kernels of GMMReg and JRMPC-B do as well or better.",
    "The paper's ICP and SimReg are worse than ours, on lucy by a factor of 2 to 3. The paper gives no radius for its "
    "outliers, which may explain it.",
)


def run(size: str, seed: int, *, realisations: int | None = None, folder: Path | None = None) -> Record:
    """Every method on the same views."""
    began, settings = time.perf_counter(), SETTINGS[size] | ({"realisations": realisations} if realisations else {})
    tables, checks = [], []
    levels = [NOISE_DB] if size == "toy" else [NOISE_DB, LESS_NOISE_DB]
    for noise_db, name in product(levels, settings["models"]):
        found = runs(name, size=size, seed=seed, realisations=settings["realisations"], noise_db=noise_db, outliers=OUTLIERS)
        pairs = {
            m: [np.mean(found.over(lambda trial, scene, j=j: indirect(trial.poses, scene, j))[m]) for j in (1, 2)]
            for m in PAIRWISE
        }
        pairs = {"start": [found.start(lambda poses, scene, j=j: indirect(poses, scene, j)) for j in (1, 2)]} | pairs
        rows = {m: [*errors, np.std(errors)] for m, errors in pairs.items()}
        paper = PAPER[name] if size == "paper" and noise_db == NOISE_DB else None
        title = f"{name}, {noise_db:.0f} dB"
        each = table(title, COLUMNS, rows, paper=paper, seconds=found.seconds())
        tables.append(each)
        checks.append(
            below(each, "JRMPC-B", RIVALS, f"{title}: JRMPC-B has the lowest errors of the paper's methods", COLUMNS[:2])
        )
        checks += below_each(each, "JRMPC-B", RIVALS, " in both mappings", COLUMNS[:2])
        checks.append(below(each, "JRMPC-B", RIVALS, f"{title}: JRMPC-B has the most symmetric solution", COLUMNS[2:]))
    return record(
        NAME,
        TITLE,
        size=size,
        seed=seed,
        realisations=settings["realisations"],
        options={"snr_db": levels, "outliers": OUTLIERS, "degrees": [0, 10, 20, 30], "iterations": ITERATIONS, **settings},
        began=began,
        tables=tables,
        checks=checks,
    )


def indirect(poses: np.ndarray, scene: Scene, j: int) -> float:
    """The Frobenius error of the rotation from set j to set j + 1."""
    return float(frobenius_errors(poses, scene.poses, reference=j)[j + 1])
