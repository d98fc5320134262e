# SPDX-License-Identifier: MIT
"""Table: rotation errors of maps between sets that no method estimates directly. 30 % outliers."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from coframe.data.simulate import SimulatedScene
from coframe.evaluate.metrics import frobenius_errors
from experiments.claims import Claim, below, below_each, mean_of, standing
from experiments.methods import ITERATIONS, PAIRWISE
from experiments.models import MODELS
from experiments.problems import FOUR, Views
from experiments.record import Found, Record, Run, table
from experiments.report import beside
from experiments.simulated import asked, runs
from experiments.trials import Job

NAME = "indirect"
TITLE = (
    "Indirect mappings V2 to V3 and V3 to V4 (SNR 10 dB as in the paper, and less noise; 30 %"
    " outliers)"
)
SENTENCE = (
    "Rotation errors of the two mappings and their standard deviation; a turn that is not "
    "undone at all is 0.247. The paper gives no radius of its outliers, on which ICP and "
    "SimReg depend."
)
MODELS_OF = {"paper": MODELS, "toy": MODELS[:1]}
SEEDS = {"paper": tuple(range(20)), "toy": (0, 1)}
NOISE_DB, OUTLIERS = 10.0, 0.3
# the paper's, as noise of each coordinate; as noise of all three together (14.8); as amplitude
LEVELS_DB = (
    10.0,
    15.0,
    20.0,
)
SHOWN_DB = (10.0, 20.0)  # with a table for each model
TOGETHER = "Mean of both mappings and all models"
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
NOTES = (
    (
        "The paper's text says 20 % outliers where the caption of the table says 30 %; these are"
        " with 30 %."
    ),
    "The row `start` is the error of poses that turn nothing: a turn by 10 degrees is 0.247.",
    "seqICP estimates these two mappings directly, and is in no row of the paper's table.",
    (
        "Which noise is the paper's 10 dB? If the noise of a coordinate has a tenth of the"
        " coordinates' variance, 10 dB of ours; if that is the noise of all three together, 14.8;"
        " if the deviations are meant, 20. By the factors between our figures and the paper's, the"
        " first fits best for every method but ICP, which no level explains. So the table is of the"
        " paper's protocol, and the much cleaner views that come with the authors' program"
        " (experiment `noise`) are not those of its table."
    ),
    "A single figure scatters by 0.02 to 0.15 over realisations. The paper has 100 of them.",
)
CHANCE = (
    "Single figures scatter by a third over realisations, and most of these differences are within"
    " that. In the mean over models and mappings, GMMReg and CPD are within 20 % of the paper. ICP"
    " and SimReg, which match every point with the nearest one, outliers included, are better than"
    " the paper's: they depend on how far the outliers lie, and the paper gives no radius. JRMPC-B"
    " is worse on the bunny only, where no method gets far from `start`; on lucy and armadillo it"
    " is near the paper's."
)
NO_SURFACE = (
    "At 10 dB the noise is as wide as the limbs: no surface is left for the thin components of"
    " `register`, and round, wide ones do as well or better. At 15 dB and less noise it has the"
    " lowest mean error."
)
SYMMETRIC = "The difference of two errors that scatter by more than the difference."
ONE_COLUMN = (
    "The lowest mean error over models and mappings, but not in every single column; within the"
    " scatter of the realisations."
)
BEST = "register at or below every other method in every column"
KNOWN = {
    f"{TOGETHER}: JRMPC-B below GMMReg at 20 dB": (
        "Wide kernels again, on the bunny most of all; not the paper's noise."
    ),
    f"{TOGETHER}: {BEST}": NO_SURFACE,
    f"{TOGETHER}: every figure within 20 % of the paper's": CHANCE,
    **{f"{name}, 10 dB: JRMPC-B has the most symmetric solution": SYMMETRIC for name in MODELS},
    **{f"{name}, 10 dB: {BEST}": NO_SURFACE for name in MODELS},
    **{f"{name}, 20 dB: {BEST}": ONE_COLUMN for name in MODELS},
    **{f"{name}, 10 dB: every figure within 20 % of the paper's": CHANCE for name in MODELS},
}


def jobs(run: Run) -> list[Job]:
    """Every method on the same views, at the paper's noise and at less."""
    given = [Views(run.size, name, FOUR, level, OUTLIERS) for name, level in settings(run.size)]
    return asked(run, given)


def settings(size: str) -> list[tuple[str, float]]:
    """Models and levels of noise."""
    levels = LEVELS_DB[:1] if size == "toy" else LEVELS_DB
    return [(name, level) for level in levels for name in MODELS_OF[size]]


def measure(run: Run) -> Found:
    """Every method on the same views, at the paper's noise and at less."""
    levels = list(dict.fromkeys(level for _, level in settings(run.size)))
    found = {
        level: [mappings(run, name, level) for name in MODELS_OF[run.size]] for level in levels
    }
    tables = [together(found, None if run.toy else PAPER)] + ([] if run.toy else [distance(found)])
    tables += [each for level in levels if level in SHOWN_DB for each in found[level]]
    return Found(
        tables, {"snr_db": levels, "outliers": OUTLIERS, "degrees": FOUR, "iterations": ITERATIONS}
    )


def mappings(run: Run, name: str, noise_db: float) -> Record:
    """The errors of both mappings, and their standard deviation."""
    found = runs(run, Views(run.size, name, FOUR, noise_db, OUTLIERS))
    measures = [lambda poses, scene, j=j: indirect(poses, scene, j) for j in (1, 2)]
    pairs = {"start": [found.start(each) for each in measures]}
    pairs |= {m: [found.over(each)[m] for each in measures] for m in PAIRWISE}
    rows = {m: [*errors, np.std(np.mean(errors, 1))] for m, errors in pairs.items()}
    paper = PAPER[name] if not run.toy and noise_db == NOISE_DB else None
    return table(f"{name}, {noise_db:.0f} dB", COLUMNS, rows, paper=paper, seconds=found.seconds())


def together(
    found: Mapping[float, Sequence[Record]],
    paper: Mapping[str, Mapping[str, Sequence[float]]] | None,
) -> Record:
    """The mean over models and mappings, a column for each level of noise, the paper's first."""
    rows = {
        method: [
            np.mean([both(each, method) for each in tables], axis=0) for tables in found.values()
        ]
        for method in PAIRWISE
    }
    theirs = {
        method: [
            float(np.mean([each[method][:2] for each in paper.values()])),
            *[None] * (len(found) - 1),
        ]
        for method in ([*RIVALS, "JRMPC-B"] if paper else [])
    }
    return table(TOGETHER, [f"{level:.0f} dB" for level in found], rows, paper=theirs)


def both(each: Record, method: str) -> list[float]:
    """The mean of the two mappings, for each realisation."""
    (row,) = [row for row in each["rows"] if row["method"] == method]
    return np.mean(row["each"][:2], axis=0).tolist()


def distance(found: Mapping[float, Sequence[Record]]) -> Record:
    """How far our figures at each level are from the paper's at its 10 dB: the factor, as a mean
    over models and mappings.
    """
    factors: dict[str, list[float]] = {method: [] for method in [*RIVALS, "JRMPC-B"]}
    for tables, method in product(found.values(), factors):
        ratios = [
            ours / theirs
            for name, each in zip(PAPER, tables, strict=True)
            for ours, theirs in zip(
                list(mean_of(each)[method].values())[:2], PAPER[name][method][:2], strict=True
            )
        ]
        factors[method].append(float(np.exp(np.mean(np.abs(np.log(ratios))))))
    return table(DISTANCE, [f"{level:.0f} dB" for level in found], factors, digits=2, errors=False)


def shown(record: Record) -> list[Record]:
    """What the short page shows."""
    first = [each for each in record["tables"] if each["title"].endswith(f"{NOISE_DB:.0f} dB")]
    names = [each["title"].split(",")[0] for each in first]
    short = [{**each, "columns": ["V2-V3", "V3-V4", "s.d."]} for each in first]
    return [
        beside(short, f"{NOISE_DB:.0f} dB, as in the paper", names),
        *([] if record["size"] == "toy" else record["tables"][:1]),
    ]


def claims(record: Record) -> list[Claim]:
    """The lowest errors of the paper's methods, and the most symmetric ones."""
    found, first = [], record["tables"][0]
    for level in (level for level in SHOWN_DB if f"{level:.0f} dB" in first["columns"]):
        found += below_each(first, "JRMPC-B", RIVALS, f" at {level:.0f} dB", [f"{level:.0f} dB"])
    for each in (each for each in record["tables"] if "standard deviation" in each["columns"]):
        found.append(
            below(
                each,
                "JRMPC-B",
                RIVALS,
                f"{each['title']}: JRMPC-B has the most symmetric solution",
                COLUMNS[2:],
            )
        )
    return found + standing(record["tables"])


def indirect(poses: np.ndarray, scene: SimulatedScene, j: int) -> float:
    """The Frobenius error of the rotation from set j to set j + 1."""
    return float(frobenius_errors(poses, scene.poses, reference=j)[j + 1])
