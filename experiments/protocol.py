# SPDX-License-Identifier: MIT
"""Which reading of the paper's multi-view protocol gives its figures: a sweep, kept as a record.

python -m experiments.protocol                     what is not recorded yet, then the record
python -m experiments.protocol --seconds 600       a slice of it

Each line of `readings()` is one way to read what the paper leaves open: the start, the start
variance, the iterations that leave it fixed, epsilon, K, gamma, the number of points. Runs are kept
in `build/experiments/protocol.jsonl`; the record is `experiments/results/protocol.json`.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from coframe import geometry, paper
from coframe.em.loop import Iteration
from coframe.evaluate import metrics
from coframe.io.files import atomic
from coframe.paper import initial
from experiments import methods, provenance
from experiments.multiview import after_best_turn, degrees
from experiments.problems import (
    NAMES,
    RAW,
    SHIFT,
    START,
    Disturbed,
    around,
    as_far_off,
    disturbance,
    disturbed,
    roughly,
)
from experiments.record import ROOT

KEPT = ROOT / "build" / "experiments" / "protocol.jsonl"
RECORD = ROOT / "experiments" / "results" / "protocol.json"
SHOWN = (50, 100, 200, 300, 500)  # iterations after which the error is taken
DISTURBED = "disturbed by "
AS_FAR, SHIFTED = "as far off as the paper's", "as far off, and shifted"


@dataclass(frozen=True)
class Reading:
    """One way to run the experiment. Lengths are shares of the extent of the largest scan."""

    method: str = "JRMPC-B"
    object: str = "bunny"
    noise_db: float | None = None
    seed: int = 0
    # "pairwise ICP", "ICP, 5 iterations", "raw" (the disturbed poses),
    # "published", or "disturbed by 2": published poses, each turned about the middle by up to twice
    # so many degrees; or all but the first turned as far as the paper's "Initialization" is off; or
    # these shifted, too, in proportion to the disturbance
    start: str = "pairwise ICP"
    means: str = "points"  # or "sphere"
    # A component of the start variance reaches so many times its share of the points.
    reach: float = 3.0
    fixed: int = 50  # iterations, the first ones, with the start's variances; JRMPC-I: percent
    iterations: int = 100  # JRMPC-I: refinements after each scan
    epsilon: float = 1e-6  # [extent^2]
    components: int = 4000
    gamma: float | None = None
    priors: bool = False  # whether they are updated
    points: int | None = None  # of each scan; None: 2000 to 5000, as in the paper


def readings() -> Iterator[Reading]:
    """The sweep, what decides most first: one object, then the best of it on the others."""
    base = Reading()
    yield base
    for start in ("published", *(f"{DISTURBED}{about:g}" for about in (0.5, 1, 2))):
        yield replace(base, start=start)
        yield replace(base, start=start, fixed=0)
    for components in (500, 1000, 2000, 8000):
        yield replace(base, components=components, iterations=200)
    for epsilon in (1e-8, 1e-5, 1e-4):
        yield replace(base, epsilon=epsilon, iterations=200)
    yield replace(base, gamma=0.1, iterations=200)
    yield replace(base, priors=True, iterations=200)
    for points in (2000, 5000):
        yield replace(base, points=points, iterations=200)
    yield replace(base, start="raw", fixed=0)
    same = replace(base, start=AS_FAR)
    for name in NAMES:
        yield replace(same, object=name)
        yield replace(same, object=name, fixed=0)
    for name in NAMES:
        yield replace(same, object=name, noise_db=25.0)
    incremental = replace(same, method="JRMPC-I", iterations=30)
    for name in NAMES:
        yield replace(incremental, object=name)
    for name in NAMES:
        yield replace(incremental, object=name, fixed=0)
    for name in NAMES:
        yield replace(same, object=name, seed=1)
    shifted = replace(base, start=SHIFTED)
    for name in NAMES:
        for noise_db in (None, 25.0):
            yield replace(shifted, object=name, noise_db=noise_db)
            yield replace(shifted, object=name, noise_db=noise_db, fixed=0)
        yield replace(shifted, object=name, points=5000, iterations=200)
    for reach, fixed in ((1.0, 50), (1.0, 20), (3.0, 20), (10.0, 50), (1.0, 0)):
        yield replace(shifted, reach=reach, fixed=fixed)
    near = replace(base, start=f"{DISTURBED}1", fixed=0)
    yield replace(near, iterations=300)
    for name, about in (("dragon", 2.2), ("happy buddha", 1.6)):  # near the paper's start
        yield replace(base, object=name, start=f"{DISTURBED}{about:g}", fixed=0)
        yield replace(base, object=name)
        yield replace(base, object=name, start="published", fixed=0)
        yield replace(base, object=name, start=f"{DISTURBED}{about:g}")
    for name, about in (("bunny", 1), ("dragon", 2.2), ("happy buddha", 1.6)):
        many = replace(base, object=name, start=f"{DISTURBED}{about:g}", points=5000)
        yield replace(many, iterations=200)
        yield replace(many, fixed=0)
    for name, about in (("bunny", 1.2), ("dragon", 3.7), ("happy buddha", 3.4)):
        noisy = replace(base, object=name, noise_db=25.0)
        yield replace(noisy, start=f"{DISTURBED}{about:g}", fixed=0)
        yield replace(noisy, start=f"{DISTURBED}{about:g}")
        yield noisy
    for start in ("pairwise ICP", "published"):
        for fixed in (0, 50):
            yield replace(incremental, start=start, fixed=fixed)
    for reach in (3.0, 10.0):
        for fixed in (0, 50, 100):
            yield replace(base, reach=reach, fixed=fixed, iterations=500)
        yield replace(base, reach=reach, fixed=200, iterations=300)
    yield replace(base, reach=30.0, fixed=0, iterations=500)


def drawn(name: str, seed: int, noise_db: float | None, points: int | None) -> Disturbed:
    """The problem of the table, or one with another number of points."""
    return disturbed(name, "paper", seed, noise_db, points and (points, points))


def start_poses(reading: Reading, given: Disturbed) -> np.ndarray:
    """Where a reading begins."""
    if reading.start == "pairwise ICP":
        return roughly(given.clouds, given.raw)
    if reading.start == "published":
        return given.truth
    if reading.start == "raw":
        return given.raw
    if reading.start.startswith("ICP, "):
        return roughly(given.clouds, given.raw, int(reading.start.split()[1]))
    if reading.start == AS_FAR:
        return given.start
    if reading.start == SHIFTED:
        noise_db = reading.noise_db
        shift = SHIFT * START[noise_db][reading.object] / RAW[reading.object]
        known = (given.clouds, given.truth, reading.object, noise_db, reading.seed)
        return as_far_off(*known, shift=shift)
    about = float(reading.start.removeprefix(DISTURBED))
    rng = np.random.default_rng([reading.seed, 1])
    centre = np.concatenate(
        [geometry.transform(T, cloud) for T, cloud in zip(given.truth, given.clouds, strict=True)]
    ).mean(0)
    turns = [around(disturbance(about, rng, shift=0.0), centre) for _ in given.clouds]
    return np.array(turns) @ given.truth


def run(reading: Reading) -> dict[str, Any]:
    """The errors of a reading on its way and at its end."""
    given = drawn(reading.object, reading.seed, reading.noise_db, reading.points)
    start, rng = start_poses(reading, given), np.random.default_rng(reading.seed)
    if reading.means == "sphere":
        means = initial.means_on_sphere(given.clouds, reading.components, rng)
        variance = initial.variance_of_distances(given.clouds, start, means, rng)
    else:
        means = initial.means_on_points(given.clouds, start, reading.components, rng)
        variance = methods.few_points(given.clouds, start, means, reading.reach)
    curve: dict[int, float] = {}

    def watch(step: Iteration) -> None:
        if step.number + 1 in SHOWN:
            curve[step.number + 1] = round(degrees(step.poses, given.truth), 3)

    known: dict[str, Any] = {
        "variances": variance,
        "poses": start,
        "epsilon": reading.epsilon,
        "gamma": reading.gamma,
        "update_priors": reading.priors,
        "threads": 1,
    }
    began = time.process_time()
    if reading.method == "JRMPC-B":
        known |= {"iterations": reading.iterations, "fixed_variances": reading.fixed}
        result = paper.batch(given.clouds, means, on_iteration=watch, **known)
    else:
        known |= {"refinements": reading.iterations, "fixed_share": reading.fixed / 100}
        result = paper.incremental(given.clouds, means, rng, **known)
    return {
        "start": degrees(start, given.truth),
        "sd": float(np.sqrt(variance)),
        "curve": curve,
        "error": degrees(result.poses, given.truth),
        "best turn": after_best_turn(result.poses, given.truth),
        "largest": float(metrics.rotation_errors(result.poses, given.truth).max()),
        "cpu": round(time.process_time() - began, 1),
    }


def kept() -> dict[str, dict[str, Any]]:
    """What has been run or recorded, by reading; with this code, where it has."""
    found = json.loads(RECORD.read_text())["rows"] if RECORD.exists() else []
    if KEPT.exists():
        found += [json.loads(line) for line in KEPT.read_text().splitlines()]
    found.sort(key=lambda row: row["digest"] == provenance.of_published())  # these last
    return {key(Reading(**row["reading"])): row for row in found}


def key(reading: Reading) -> str:
    """One for each reading."""
    return json.dumps(asdict(reading), sort_keys=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has not been run, then write the record."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.protocol",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=np.inf, help="start nothing after these")
    options = parser.parse_args(arguments)
    began, done, digest = time.monotonic(), kept(), provenance.of_published()
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    todo = [
        each
        for each in dict.fromkeys(readings())
        if key(each) not in done or done[key(each)]["digest"] != digest
    ]
    for count, reading in enumerate(todo):
        if time.monotonic() - began > options.seconds:
            break
        row = {"reading": asdict(reading), "digest": digest, **run(reading)}
        with KEPT.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{count + 1} of {len(todo)}: {row}", flush=True)
    done = kept()
    rows = [done[key(each)] for each in dict.fromkeys(readings()) if key(each) in done]
    with atomic(RECORD) as temporary:
        temporary.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def section(record: dict[str, Any], paper: Mapping[float | None, Mapping[str, Any]]) -> str:
    """The sweep as a table, the paper's figure beside each reading."""
    older = sum(row["digest"] != provenance.of_published() for row in record["rows"])
    lines = [
        "## protocol",
        "",
        "Readings of the multi-view protocol, `python -m experiments.protocol`"
        + (f" ({older} of them with older code than this)" if older else "")
        + ". Mean rotation errors in degrees: of the start, at the end relative to the first scan,"
        " and after the common turn that fits best. Seconds are of a processor.",
        "",
        "| method, object | start | reach, fixed, iterations | other | start error | error |"
        " best turn | paper | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        each, plain = Reading(**row["reading"]), Reading()
        noise = "" if each.noise_db is None else f", {each.noise_db:g} dB"
        fixed = f"{each.fixed} %" if each.method == "JRMPC-I" else f"{each.fixed}"
        other = [
            f"{name} {getattr(each, name):g}"
            for name in ("epsilon", "components", "gamma", "points", "seed")
            if getattr(each, name) != getattr(plain, name)
        ]
        other += ["priors updated"] * each.priors + ["means on a sphere"] * (each.means != "points")
        figure = paper[each.noise_db][each.method][NAMES.index(each.object)]
        lines.append(
            f"| {each.method}, {each.object}{noise} | {each.start} |"
            f" {each.reach:g}, {fixed}, {each.iterations} | {', '.join(other)} |"
            f" {row['start']:.2f} | {row['error']:.2f} | {row['best turn']:.2f} | {figure:.2f} |"
            f" {row['cpu']:.0f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
