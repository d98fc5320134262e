# SPDX-License-Identifier: MIT
"""Tables: range scans around an object, without added noise and with 25 dB, from poses that are
as far off as the paper's start.
"""

from collections.abc import Sequence

import numpy as np

from coframe import geometry
from coframe.evaluate import metrics
from experiments import methods
from experiments.claims import Claim, below_each, standing
from experiments.models import available, scans
from experiments.problems import MULTIVIEW, NAMES, RAW, SHIFT, START, Disturbed, RangeScans
from experiments.record import Found, Record, Run, table
from experiments.trials import Job, Trial

NAME = "multiview"
TITLE = "Multi-view registration: mean rotation error in degrees"
SENTENCE = (
    "How far spheres can get depends on where they start, and the paper does not give its "
    "start: [the protocol](docs/reproducing.md#the-multi-view-protocol) has the sweep. "
    "Rotation errors below half a degree are those of the published poses as much as of a "
    "method, so the held-out residual of the whole, clean scans stands beside them."
)
NOISE_DB = 25.0
GATE = 0.015  # of the extent: what is farther apart is not the same surface
SEEDS = {"paper": tuple(range(10)), "toy": (0,)}
NOTES = (
    (
        "The paper gives neither the shift of the disturbance nor the number of realisations, and"
        " of its start it says only that it is a standard pair-wise ICP. Ours is as far from the"
        " published poses as the paper's, in the mean, each scan on its own. Records without"
        " digests began where a pairwise ICP ends."
    ),
    (
        "Start variance and fixed iterations of JRMPC-B were chosen on other scans"
        " (docs/reproducing.md), and JRMPC-I has the same; all other methods ran with their"
        " defaults."
    ),
    (
        "The displacement is how far the points lie from where the published poses put them, after"
        " the best common motion. The held-out residual needs no published poses: it tells how the"
        " whole, clean scans fit."
    ),
)
OTHER_START = (
    "All methods begin where a pairwise ICP ends that the paper does not describe, and MV-ICP, with"
    " fixed matches, stays there: its error is the start's, in the paper as here. Of those that"
    " leave it, MAICP on the bunny and MATrICP on the dragon are within 20 %. MAICP on the dragon"
    " is better than the paper's, which was given the closed loop alone; ours matches all pairs"
    " that overlap. MATrICP on the bunny depends on the number of points: with 5,000 a scan, the"
    " paper's most, it ended at 0.53 and 0.28 instead of 0.69 and 1.27 (docs/baselines.md)."
    " JRMPC-B, and JRMPC-I on the bunny, are behind the paper's by 0.2 to 0.4 degrees, as far as"
    " the published poses themselves are from the best fit (`register` has a third of their"
    " residual)."
)
OTHER_NOISE = (
    "JRMPC-B is within 20 % of the paper on both objects, MAICP on the bunny and, within its"
    " scatter, on the dragon. MV-ICP stays at the start, which is farther on the bunny than the"
    " paper's and nearer on the dragon. MATrICP is worse: at the true poses noise raises the share"
    " of matches that trimming keeps from 0.67 to 0.75 (bunny) and from 0.77 to 0.83 (dragon, seed"
    " 0), beyond the overlap, which pulls scans into each other; the original may search the"
    " overlap otherwise. JRMPC-I is better on the dragon: see above."
)
INCREMENTAL = (
    "With its variances held as those of JRMPC-B are, JRMPC-I is better on the dragon, by 0.1 to"
    " 0.2 degrees, and worse on the bunny. It goes through many more iterations, 30 after each"
    " scan. With variances that are free from the first one on, as a plain reading of its algorithm"
    " has them, it ended at 1.04 and 1.07 degrees, with noise at 2.62 and 3.23 (three seeds): the"
    " first pairs sink into each other. The paper does not say how JRMPC-I treats its variances;"
    " that they go back to the start's before each refinement was chosen on these scans (seed 0)."
)
FLATTENED = (
    "The rotations of JRMPC-B on the noisy dragon are better, its places are far worse: its points"
    " lie three times as far from theirs (table of displacements) and the surfaces three times as"
    " far apart (residuals), because round components let front and back sink into each other,"
    " which turns nothing. `register` first moves the points of a noisy scan onto planes through"
    " their neighbours. Without that (seed 0) its rotation error is 0.67 degrees instead of 1.60,"
    " but the displacement 6.4 instead of 3.5, and on the bunny the rotation error 1.09 instead of"
    " 0.35. From the published poses it ends at 1.56 as well, without sliding tangents at 1.50,"
    " with spheres at 1.12: the planes are what tilts the halves of the dragon."
)
CLEAN, NOISY = "Rotation error [deg] without added noise", "Rotation error [deg] with 25 dB noise"
KNOWN = {
    f"{CLEAN}: every figure within 20 % of the paper's": OTHER_START,
    f"{CLEAN}: JRMPC-B below JRMPC-I": INCREMENTAL,
    f"{NOISY}: JRMPC-B below JRMPC-I": INCREMENTAL,
    f"{NOISY}: register at or below every other method in every column": FLATTENED,
    f"{NOISY}: every figure within 20 % of the paper's": OTHER_NOISE,
}
FIRST = ["Raw-data", "Initialization"]
PAPER = {
    None: {
        "Raw-data": (3.45, 7.28, 10.77),
        "Initialization": (2.10, 4.37, 3.18),
        "MV-ICP": (1.54, 3.75, 2.45),
        "MAICP": (0.95, 1.95, 0.64),
        "MATrICP": (0.27, 0.62, 0.43),
        "JRMPC-B": (0.37, 0.47, 0.36),
        "JRMPC-I": (0.69, 0.73, 0.77),
    },
    NOISE_DB: {
        "Raw-data": (3.45, 7.28, 10.77),
        "Initialization": (2.42, 7.34, 6.88),
        "MV-ICP": (2.66, 7.37, 6.86),
        "MAICP": (2.87, 3.28, 4.13),
        "MATrICP": (2.37, 1.55, 1.92),
        "JRMPC-B": (1.07, 0.64, 1.18),
        "JRMPC-I": (1.41, 0.89, 1.69),
    },
}


def degrees(poses: np.ndarray, truth: np.ndarray) -> float:
    """The mean angle between true and estimated rotations, relative to the first scan."""
    return float(metrics.rotation_errors(poses, truth)[1:].mean())


def after_best_turn(poses: np.ndarray, truth: np.ndarray) -> float:
    """The mean angle over all scans after the common turn that fits best: no scan is the reference.

    The paper averages "over all point-sets" and does not say which frame they are compared in.
    """
    turns = geometry.rotation(truth) @ geometry.rotation(poses).swapaxes(1, 2)
    u, _, v = np.linalg.svd(turns.sum(0))
    common = u @ np.diag([1.0, 1.0, np.linalg.det(u @ v)]) @ v
    cosines = (np.einsum("ab,jab->j", common, turns) - 1) / 2
    return float(np.degrees(np.arccos(np.clip(cosines, -1, 1))).mean())


def residual(surfaces: Sequence[metrics.Surface], poses: np.ndarray, gate: float = GATE) -> float:
    """The held-out residual in thousandths of the extent, NaN where no two scans overlap."""
    found = metrics.agreement(surfaces, poses, gate).residual
    return float("nan") if found is None else 1e3 * found


def displacement(poses: np.ndarray, given: Disturbed) -> float:
    """RMS distance of points from their published positions after the best common motion, 1e-3."""
    found = np.concatenate(
        [geometry.transform(T, cloud) for T, cloud in zip(poses, given.clouds, strict=True)]
    )
    true = np.concatenate(
        [geometry.transform(T, cloud) for T, cloud in zip(given.truth, given.clouds, strict=True)]
    )
    common = geometry.procrustes(found, true, np.ones(len(found)))
    return float(1e3 * np.sqrt(((geometry.transform(common, found) - true) ** 2).sum(1).mean()))


def on_scans(poses: np.ndarray, given: Disturbed, published: np.ndarray) -> np.ndarray:
    """Poses of the disturbed clouds as poses of the whole scans that they were drawn from."""
    return poses @ geometry.inverse(given.truth) @ published


def trial(run: Run, name: str, method: str, seed: int, noise_db: float | None) -> Trial:
    """What a method, or one of the two starts, makes of a problem."""
    scans_of = RangeScans(run.size, name, noise_db)
    if method in FIRST:
        given = scans_of.given(seed)
        start = {"Raw-data": given.raw, "Initialization": given.start}[method]
        return Trial(start, np.empty((0, *start.shape)), np.nan)
    return run.store.get(Job(scans_of, method, seed))


def objects(size: str) -> list[str]:
    """Those whose scans are there; one, at toy size."""
    return available(NAMES, size)[: 1 if size == "toy" else None]


def jobs(run: Run) -> list[Job]:
    """Every method on the same scans, clean and noisy."""
    return [
        Job(RangeScans(run.size, name, noise_db), method, seed)
        for name in objects(run.size)
        for noise_db in (None, NOISE_DB)
        for method in methods.joint(MULTIVIEW[run.size]["components"])
        for seed in run.seeds
    ]


def measure(run: Run) -> Found:
    """Every method on the same scans, clean and noisy."""
    names = objects(run.size)
    tables = [each for noise_db in (None, NOISE_DB) for each in tables_of(run, names, noise_db)]
    options = {
        "gate": GATE,
        "shift": SHIFT,
        "raw_degrees": RAW,
        "start_degrees": {str(noise_db): each for noise_db, each in START.items()},
        "noise_db": NOISE_DB,
    }
    options |= {"fixed_variances": methods.FIXED, "held": methods.HELD, **MULTIVIEW[run.size]}
    return Found(
        tables, options, missing=[] if run.toy else [name for name in NAMES if name not in names]
    )


def tables_of(run: Run, names: Sequence[str], noise_db: float | None) -> list[Record]:
    """Rotation errors, held-out residuals and displacements, a column for each object."""
    contestants = list(methods.joint(MULTIVIEW[run.size]["components"]))
    turns: dict[str, list[list[float]]] = {method: [] for method in [*FIRST, *contestants]}
    free: dict[str, list[list[float]]] = {method: [] for method in turns}
    gaps: dict[str, list[list[float]]] = {method: [] for method in turns}
    ways: dict[str, list[list[float]]] = {method: [] for method in turns}
    clock: dict[str, list[float]] = {method: [] for method in contestants}
    for name in names:
        whole, published = scans(name, run.size)
        surfaces = [metrics.Surface.of(scan) for scan in whole]
        given = [RangeScans(run.size, name, noise_db).given(seed) for seed in run.seeds]
        for method in turns:
            found = [trial(run, name, method, seed, noise_db) for seed in run.seeds]
            both = list(zip(found, given, strict=True))
            turns[method].append([degrees(each.poses, problem.truth) for each, problem in both])
            free[method].append(
                [after_best_turn(each.poses, problem.truth) for each, problem in both]
            )
            gaps[method].append(
                [
                    residual(surfaces, on_scans(each.poses, problem, published))
                    for each, problem in both
                ]
            )
            ways[method].append([displacement(each.poses, problem) for each, problem in both])
            if method in clock:
                clock[method] += [each.seconds for each in found]
    title = "without added noise" if noise_db is None else "with 25 dB noise"
    rows = {} if run.toy else PAPER[noise_db]
    paper = {
        m: [v for n, v in zip(NAMES, row, strict=True) if n in names] for m, row in rows.items()
    }
    seconds = {method: float(np.mean(each)) for method, each in clock.items()}
    return [
        table(
            f"Rotation error [deg] {title}", names, turns, paper=paper, seconds=seconds, digits=2
        ),
        table(f"After the best common turn [deg] {title}", names, free, digits=2),
        table(f"Held-out residual [1e-3 of the extent] {title}", names, gaps, digits=2),
        table(f"Displacement [1e-3 of the extent] {title}", names, ways, digits=1),
    ]


def shown(record: Record) -> list[Record]:
    """What the short page shows."""
    return [
        each
        for what in ("Rotation", "Held-out")
        for each in record["tables"]
        if what in each["title"]
    ]


def claims(record: Record) -> list[Claim]:
    """The paper's order: with noise, both forms of JRMPC below motion averaging."""
    clean, noisy = (each for each in record["tables"] if each["title"].startswith("Rotation"))
    found = below_each(clean, "JRMPC-B", ["MV-ICP", "MAICP", "JRMPC-I"])
    found += below_each(noisy, "JRMPC-B", ["MAICP", "MATrICP", "JRMPC-I"])
    found += below_each(noisy, "JRMPC-I", ["MAICP", "MATrICP"])
    return found + standing(record["tables"])
