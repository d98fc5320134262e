# SPDX-License-Identifier: MIT
"""coframe and Open3D from nothing, on the same raw scans, in one run: `make peers`, then `python -m
benchmarks.from_nothing`.

The problems: all points of the range scans of the Stanford bunny (10) and dragon (15), and on
request of the virtual scans of armadillo (12) and lucy (15), every scan turned by a random rotation
of up to 180 degrees and moved, no poses. Open3D: voxels, FPFH and RANSAC for all pairs,
point-to-plane ICP for each, then a pose graph over the pairs, as its tutorials do; its voxel is set
by hand, coframe is given nothing. A run succeeds when every scan is within `SUCCESS` degrees of the
published poses, relative to the first scan, and roughly when all are within `ROUGH`: good enough to
refine. The judge is that of `benchmarks.multiview`.
"""

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from benchmarks import problems, record
from benchmarks.multiview import HEAD, OURS, Method, judge, ours, peers_python, show
from benchmarks.peers import Peer
from benchmarks.problems import EXACT, PUBLISHED
from benchmarks.record import ROOT, machine
from coframe import geometry
from coframe.evaluate import metrics

SUCCESS = {"bunny": 0.6, "dragon": 1.0, "armadillo": 0.2, "lucy": 0.2}  # degrees, of the worst scan
ROUGH = 5.0
PEER = "Open3D global"
SETTINGS = {"voxel": 0.003}  # metres


def scattered(
    scans: Sequence[np.ndarray], truth: np.ndarray, seed: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Every scan turned by up to 180 degrees and moved by up to three times its extent, and the
    poses that carry it back.
    """
    rng = np.random.default_rng(seed)
    reach = 3 * max(float(np.ptp(scan, axis=0).max()) for scan in scans)
    motions = np.array(
        [
            geometry.pose(geometry.random_rotation(rng, 3), rng.uniform(-reach, reach, 3))
            for _ in scans
        ]
    )
    clouds = [geometry.transform(motion, scan) for motion, scan in zip(motions, scans, strict=True)]
    return clouds, truth @ geometry.inverse(motions)


def compare(
    names: Sequence[str], methods: dict[str, Method], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Run and judge everything; print and return a row for each problem, seed and method."""
    rows = []
    for name in names:
        scans, truth = problems.scans(name)
        for seed in seeds:
            clouds, poses = scattered(scans, truth, seed)
            surfaces = [metrics.Surface.of(cloud) for cloud in clouds]
            for method, register in methods.items():
                found, seconds, cpu = register(clouds, geometry.identity(len(clouds), 3))
                row = {
                    "problem": name,
                    "seed": seed,
                    "method": method,
                    "seconds": seconds,
                    "cpu": cpu,
                    **judge(surfaces, found, poses),
                }
                row["success"], row["rough"] = (
                    bool(row["worst_deg"] <= SUCCESS[name]),
                    bool(row["worst_deg"] <= ROUGH),
                )
                show(row)
                rows.append(row)
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each problem and method: how often it succeeded, and its median time."""
    keys = dict.fromkeys((row["problem"], row["method"]) for row in rows)
    result = []
    for problem, method in keys:
        runs = [row for row in rows if (row["problem"], row["method"]) == (problem, method)]
        seconds = float(np.median([row["seconds"] for row in runs]))
        counts = {
            "successes": sum(row["success"] for row in runs),
            "rough": sum(row["rough"] for row in runs),
        }
        result.append(
            {"problem": problem, "method": method, "runs": len(runs), **counts, "seconds": seconds}
        )
    return result


def tabulate(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """The tables of docs/start.md: coframe alone, or beside Open3D."""
    keys = list(dict.fromkeys((row["problem"], row["method"]) for row in rows))
    alone = {method for _, method in keys} == {OURS}
    table = []
    for problem, method in keys:
        runs = [row for row in rows if (row["problem"], row["method"]) == (problem, method)]
        digits = 3 if problem in EXACT else 2
        worst = ", ".join(f"{row['worst_deg']:.{digits}f}" for row in runs) + " deg"
        mean = ", ".join(f"{row['rotation_deg']:.{digits}f}" for row in runs) + " deg"
        lengths = [row["residual"] for row in runs]
        known = problem not in EXACT and None not in lengths
        residual = ", ".join(f"{1e6 * length:.0f}" for length in lengths) + " um" if known else ""
        if alone:
            table.append([problem, worst, mean, residual])
        else:
            share = f"{sum(row['success'] for row in runs)} of {len(runs)}"
            seconds = f"{np.median([row['seconds'] for row in runs]):.0f} s"
            table.append([f"{problem}, {method}", share, worst, residual, seconds])
    if alone:
        what, name = "Raw scans in random poses, no option.", "from_nothing"
        columns = ["problem", "worst rotation", "mean rotation", "held-out residual"]
    else:
        what, name = "Raw scans in random poses.", "from_nothing-peers"
        columns = ["", "succeeds", "worst rotation", "held-out residual", "median time"]
    record.save(name, what, columns, table, folder=folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, run, print the table, save the JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.from_nothing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--problems", nargs="+", choices=[*PUBLISHED, *EXACT], default=PUBLISHED)
    parser.add_argument("--methods", nargs="+", choices=[OURS, PEER], default=[OURS, PEER])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--output", type=Path, metavar="FILE", default=ROOT / "results" / "from_nothing.json"
    )
    record.add_option(parser)
    options = parser.parse_args(arguments)
    report: dict[str, Any] = {
        "options": {**vars(options), "output": str(options.output), "records": str(options.records)}
        | {"success": SUCCESS},
        "settings": {PEER: SETTINGS},
        "machine": machine(),
        "versions": {"python": platform.python_version(), "coframe": version("coframe")},
    }
    methods: dict[str, Method] = {}
    if OURS in options.methods:
        methods[OURS] = lambda clouds, start: ours(clouds, None)
    peer = None
    if PEER in options.methods:
        try:
            peer = Peer(PEER, peers_python())
        except RuntimeError as error:
            sys.exit(str(error))
        methods[PEER] = partial(peer.register, settings=SETTINGS)
        report["versions"][PEER] = peer.version
    if OURS in methods:  # compiled before it is timed
        rng = np.random.default_rng(0)
        coframe.register(
            [rng.normal(size=(200, 3)) for _ in range(2)],
            options=coframe.Options(start="identity", iterations=2),
        )
    about = report["machine"]
    print(f"\n{about['cpu']}, {about['cores']} cores, load {about['load_at_start']} at the start\n")
    print(HEAD)
    report["rows"] = compare(options.problems, methods, options.seeds)
    report["summary"] = summary(report["rows"])
    print()
    for row in report["summary"]:
        share = f"{row['successes']} of {row['runs']} succeed, {row['rough']} roughly"
        print(f"{row['problem']:8s} {row['method']:16s} {share}   {row['seconds']:7.1f} s")
    if peer is not None:
        peer.__exit__()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nsaved as {options.output}")
    tabulate(report["rows"], options.records)


if __name__ == "__main__":
    main()
