# SPDX-License-Identifier: MIT
"""One cloud at a time against all at once: JRMPC-I as published, `coframe.extend`, and their batch
versions on the same scans.

    python -m benchmarks.incremental [--seeds 0 1 2] [--noise clean 25]

The set-up is that of the paper's two multi-view tables (`experiments.multiview`): scans of bunny
and dragon, 2000 to 5000 points each, clean or with 25 dB of noise, from poses that pairwise ICP
brought near. JRMPC-B and JRMPC-I have the paper's settings: K = 4000 components on points of the
roughly aligned scans, variances that hold a few points each, fixed for the first half of the
iterations of every batch run; JRMPC-I runs 50 iterations on the first two scans, then for each scan
K/M components started anew, one integration and 30 batch iterations.

`extend` starts from a registration of some scans and adds the others: every third one, or the
second half in its order. "+ refine" then moves all scans together once. Seconds are CPU time, of
the whole run, but of `extend` for each added scan. Judged are the mean rotation error against the
published poses, and the residual of the whole, clean scans.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from benchmarks import record
from benchmarks.record import ROOT, machine
from coframe.evaluate import metrics
from coframe.paper import initial
from experiments import methods
from experiments import multiview as setup
from experiments.models import scans

COMPONENTS = 4000  # the paper's K
ITERATIONS = 100  # of JRMPC-B
HELD = 0.5  # share of the iterations with fixed variances
PROBLEMS = ("bunny", "dragon")
NOISE = {"clean": None, "25": setup.NOISE_DB}
GROUPS = ("register", "extend", "JRMPC-B", "JRMPC-I")
ADDED: dict[str, Callable[[int], list[int]]] = {
    "every third": lambda count: list(range(1, count, 3)),
    "second half": lambda count: list(range(count // 2, count)),
}
Found = dict[str, tuple[np.ndarray, float]]  # method -> poses, CPU seconds


def published(
    clouds: Sequence[np.ndarray], poses: np.ndarray, seed: int, method: str, threads: int | None
) -> Found:
    """JRMPC-B or JRMPC-I."""
    rng, began = np.random.default_rng(seed), time.process_time()
    means = initial.means_on_points(clouds, poses, COMPONENTS, rng)
    given: dict[str, Any] = {
        "poses": poses,
        "variances": methods.few_points(clouds, poses, means),
        "threads": threads,
    }
    if method == "JRMPC-I":
        result = coframe.paper.incremental(clouds, means, rng, fixed_share=HELD, **given)
    else:
        fixed = round(HELD * ITERATIONS)
        result = coframe.paper.batch(
            clouds, means, iterations=ITERATIONS, fixed_variances=fixed, **given
        )
    return {method: (result.poses, time.process_time() - began)}


def register(clouds: Sequence[np.ndarray], poses: np.ndarray, options: coframe.Options) -> Found:
    began = time.process_time()
    result = coframe.register(clouds, poses, options=options)
    return {"register": (result.poses, time.process_time() - began)}


def extend(
    clouds: Sequence[np.ndarray], poses: np.ndarray, options: coframe.Options, which: str
) -> Found:
    """Poses, and seconds for each scan that was added: by `extend` alone, and with a refinement in
    the end.
    """
    added = ADDED[which](len(clouds))
    order = [j for j in range(len(clouds)) if j not in added] + added
    first = len(clouds) - len(added)
    result = coframe.register(
        [clouds[j] for j in order[:first]], poses[order[:first]], options=options
    )
    # the starts of the others, in the frame that register chose
    moved = result.poses[0] @ np.linalg.inv(poses[0])
    began = time.process_time()
    for j in added:
        result = coframe.extend(result, clouds[j], moved @ poses[j], options=options)
    alone = time.process_time() - began
    refined = coframe.refine(result, options=options)
    whole, back = time.process_time() - began, np.argsort(order)
    return {
        f"extend, {which}": (result.poses[back], alone / len(added)),
        f"extend, {which}, + refine": (refined.poses[back], whole / len(added)),
    }


def rows(
    name: str,
    noise_db: float | None,
    seed: int = 0,
    groups: Sequence[str] = GROUPS,
    threads: int | None = None,
) -> Iterator[dict[str, Any]]:
    """The figures of each method on one problem, one after the other."""
    whole, truth = scans(name, "paper")
    surfaces = [metrics.Surface.of(scan) for scan in whole]
    given = setup.problem(name, "paper", seed, noise_db)
    options = coframe.Options(seed=seed, threads=threads)
    runs: dict[str, Callable[[], Found]] = {
        "register": lambda: register(given.clouds, given.start, options),
        **{
            f"extend, {which}": partial(extend, given.clouds, given.start, options, which)
            for which in ADDED
        },
        "JRMPC-B": lambda: published(given.clouds, given.start, seed, "JRMPC-B", threads),
        "JRMPC-I": lambda: published(given.clouds, given.start, seed, "JRMPC-I", threads),
    }
    for run in [run for group, run in runs.items() if group.split(",")[0] in groups]:
        for method, (poses, seconds) in run().items():
            yield {
                "problem": name,
                "noise_db": noise_db,
                "seed": seed,
                "method": method,
                "rotation_deg": setup.degrees(poses, given.truth),
                "residual": setup.residual(surfaces, setup.on_scans(poses, given, truth)),
                "cpu_seconds": seconds,
            }


def summary(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over the seeds; of ratios to `register`, where it ran, those of
    each seed.
    """
    batch = {
        (row["problem"], row["noise_db"], row["seed"]): row
        for row in found
        if row["method"] == "register"
    }
    lines = []
    for key in dict.fromkeys((row["problem"], row["noise_db"], row["method"]) for row in found):
        some = [row for row in found if (row["problem"], row["noise_db"], row["method"]) == key]
        line: dict[str, Any] = {
            **dict(zip(("problem", "noise_db", "method"), key, strict=True)),
            "seeds": len(some),
        }
        values = {
            name: [row[name] for row in some]
            for name in ("rotation_deg", "residual", "cpu_seconds")
        }
        beside = [(row, batch.get((row["problem"], row["noise_db"], row["seed"]))) for row in some]
        for name in ("residual", "cpu_seconds"):
            values[f"{name}_ratio"] = [row[name] / other[name] for row, other in beside if other]
        line |= {
            name: (float(np.mean(each)), float(np.std(each)))
            for name, each in values.items()
            if each
        }
        lines.append(line)
    return lines


def show(line: dict[str, Any]) -> None:
    """One line of the table, with the paper's rotation error."""
    noise = line["noise_db"]
    paper = setup.PAPER[noise].get(line["method"])
    theirs = "" if paper is None else f"  (paper {paper[setup.NAMES.index(line['problem'])]:.2f})"

    def spread(name: str, digits: int) -> str:
        return " +- ".join(f"{value:.{digits}f}" for value in line[name]) if name in line else "-"

    print(
        f"{line['problem']:7s} {'clean' if noise is None else f'{noise:g} dB':6s}"
        f" {line['method']:30s} {spread('rotation_deg', 2):>14s} deg  residual"
        f" {spread('residual', 3)} ({spread('residual_ratio', 2)} x)  CPU"
        f" {spread('cpu_seconds', 2)} s ({spread('cpu_seconds_ratio', 3)} x){theirs}",
        flush=True,
    )


TABLES = {  # record: figure, digits, title, what
    "incremental-rotation": ("rotation_deg", 2, "rotation error [deg]", "Mean rotation error."),
    "incremental-residual": (
        "residual",
        3,
        "residual [1e-3 of the extent]",
        "Held-out residual of the whole, clean scans.",
    ),
    "incremental-ratio": (
        "residual_ratio",
        2,
        "residual / that of `register`",
        "Residual of `extend` over that of `register` on all scans.",
    ),
    "incremental-cpu": (
        "cpu_seconds_ratio",
        3,
        "CPU of one added scan / that of `register`",
        "Processor time of one added scan over that of `register` on all scans.",
    ),
}


def tabulate(lines: Sequence[dict[str, Any]], folder: Path) -> None:
    """The four tables of docs/sequences.md."""
    problems = list(dict.fromkeys((line["problem"], line["noise_db"]) for line in lines))
    heads = [name if noise is None else f"{name}, {noise:g} dB" for name, noise in problems]
    for record_name, (key, digits, title, what) in TABLES.items():
        table: dict[str, list[str]] = {}
        for line in lines:
            beside = "ratio" in key
            if key not in line or (beside and not line["method"].startswith("extend")):
                continue
            if key.startswith("cpu") and "refine" in line["method"]:
                continue
            mean, deviation = line[key]
            cell = f"{mean:.{digits}f}"
            if line["seeds"] > 1:
                cell += f" ± {deviation:.{digits}f}"
            paper = setup.PAPER[line["noise_db"]].get(line["method"])
            if key == "rotation_deg" and paper is not None:
                cell += f" ({paper[setup.NAMES.index(line['problem'])]:.2f})"
            row = table.setdefault(line["method"], [""] * len(problems))
            row[problems.index((line["problem"], line["noise_db"]))] = cell
        rows = [[method, *row] for method, row in table.items()]
        record.save(record_name, what, [title, *heads], rows, folder=folder)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.incremental", description=__doc__)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--noise", nargs="+", choices=NOISE, default=list(NOISE))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "incremental.json")
    record.add_option(parser)
    options = parser.parse_args(arguments)
    found: list[dict[str, Any]] = []
    report = {
        "options": {**vars(options), "output": str(options.output)}
        | {"records": str(options.records)},
        "machine": machine(),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for name in options.problems:
            for noise in options.noise:
                for row in rows(name, NOISE[noise], seed, options.methods, options.threads):
                    found.append(row)
                    print(row, flush=True)
                    whole = {**report, "rows": found, "summary": summary(found)}
                    options.output.write_text(json.dumps(whole, indent=1) + "\n")
    for line in summary(found):
        show(line)
    tabulate(summary(found), options.records)


if __name__ == "__main__":
    main()
