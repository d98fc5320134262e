# SPDX-License-Identifier: MIT
"""Table: rotation error of the mappings between sets that no method estimates directly. 30 % outliers."""

from itertools import product

import numpy as np

from coframe.metrics import frobenius_errors
from coframe.simulate import Scene
from experiments.claims import Claim, below, below_each, mean_of, standing
from experiments.methods import ITERATIONS, PAIRWISE
from experiments.models import MODELS
from experiments.record import Found, Record, Run, table
from experiments.simulated import FOUR, runs

NAME = "indirect"
TITLE = "Indirect mappings V2 to V3 and V3 to V4 (SNR 10 dB as in the paper, and less noise; 30 % outliers)"
MODELS_OF = {"paper": MODELS, "toy": MODELS[:1]}
SEEDS = {"paper": (0, 1, 2, 3, 4), "toy": (0, 1)}
NOISE_DB, OUTLIERS = 10.0, 0.3
LEVELS_DB = (10.0, 15.0, 20.0)  # the paper's, as noise of each coordinate; as noise of all three together (14.8); as amplitude
DISTANCE = "Factor between our figures and the paper's (10 dB)"
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
NOTES = ()
KNOWN: dict[str, str] = {}


def measure(run: Run) -> Found:
    """Every method on the same views, at the paper's noise and at less."""
    levels = LEVELS_DB[:1] if run.toy else LEVELS_DB
    tables = [mappings(run, name, noise_db) for noise_db, name in product(levels, MODELS_OF[run.size])]
    if not run.toy:
        tables.append(distance(tables))
    return Found(tables, {"snr_db": levels, "outliers": OUTLIERS, "degrees": FOUR, "iterations": ITERATIONS})


def mappings(run: Run, name: str, noise_db: float) -> Record:
    """The errors of both mappings, and their standard deviation."""
    found = runs(run, name, noise_db=noise_db, outliers=OUTLIERS)
    measures = [lambda poses, scene, j=j: indirect(poses, scene, j) for j in (1, 2)]
    pairs = {"start": [found.start(each) for each in measures]}
    pairs |= {m: [found.over(each)[m] for each in measures] for m in PAIRWISE}
    rows = {m: [*errors, np.std(np.mean(errors, 1))] for m, errors in pairs.items()}
    paper = PAPER[name] if not run.toy and noise_db == NOISE_DB else None
    return table(f"{name}, {noise_db:.0f} dB", COLUMNS, rows, paper=paper, seconds=found.seconds())


def distance(tables: list[Record]) -> Record:
    """How far our figures at each level are from the paper's at its 10 dB: the factor, as a mean over models and mappings."""
    factors: dict[str, list[float]] = {method: [] for method in [*RIVALS, "JRMPC-B"]}
    for level, method in product(LEVELS_DB, factors):
        ratios = [
            ours / theirs
            for each in tables
            for name in PAPER
            if each["title"] == f"{name}, {level:.0f} dB"
            for ours, theirs in zip(list(mean_of(each)[method].values())[:2], PAPER[name][method][:2], strict=True)
        ]
        factors[method].append(float(np.exp(np.mean(np.abs(np.log(ratios))))))
    return table(DISTANCE, [f"{level:.0f} dB" for level in LEVELS_DB], factors, digits=2, errors=False)


def claims(record: Record) -> list[Claim]:
    """The lowest errors of the paper's methods, and the most symmetric ones."""
    found = []
    for each in (each for each in record["tables"] if each["errors"]):
        found += below_each(each, "JRMPC-B", RIVALS, " in both mappings", COLUMNS[:2])
        found.append(below(each, "JRMPC-B", RIVALS, f"{each['title']}: JRMPC-B has the most symmetric solution", COLUMNS[2:]))
    return found + standing(record["tables"])


def indirect(poses: np.ndarray, scene: Scene, j: int) -> float:
    """The Frobenius error of the rotation from set j to set j + 1."""
    return float(frobenius_errors(poses, scene.poses, reference=j)[j + 1])
