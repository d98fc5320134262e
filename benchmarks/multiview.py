# SPDX-License-Identifier: MIT
"""coframe, Open3D and MeshLib on the same scans from the same starts, in one run: `make peers`,
then `make bench`.

The problems: the range scans of the Stanford bunny (10), dragon and happy buddha (15 each), and
virtual scans of armadillo (12) and lucy (15), 3,000 random points of each, from starts turned by up
to 8 degrees and moved by up to 4 mm (armadillo and lucy: 0.004 of their length) along each axis.
The time is that of the registration alone, with all it needs besides points and start poses
(spacing, normals), on as many cores as it wishes; imports and compilation come before. It is the
best of several rounds, in which the methods take turns so that a noisy moment hits them alike.
CPU seconds, of all threads, tell more where other programs run.

The result is judged on the full scans, of which the methods saw about a tenth: rotation and
translation against the published poses, relative to the first scan; and the residual, which needs
no truth, the median distance of points to the surface of the other scans. Where a result has a
smaller residual than the published poses, the angle between them is no longer an error. The true
poses of armadillo and lucy are exact: their figure is the angle.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from benchmarks import problems, record
from benchmarks.peers import SETTINGS, Peer
from benchmarks.problems import ALL, DEGREES, EXACT, POINTS, SCANNER, SHIFT
from benchmarks.record import ROOT, machine
from coframe.evaluate import metrics

GATE = 0.002  # of the residual, in metres: what is farther apart is not the same surface
OURS = "coframe"

# clouds, start -> poses, seconds, CPU seconds
Method = Callable[[Sequence[np.ndarray], np.ndarray], tuple[np.ndarray, float, float]]


def judge(
    surfaces: Sequence[metrics.Surface], poses: np.ndarray, truth: np.ndarray
) -> dict[str, float | None]:
    """The figures of one result.

    The first scan is the frame and does not count; lengths are in the unit of the scans.
    """
    angles = metrics.rotation_errors(poses, truth)[1:]
    return {
        "rotation_deg": float(angles.mean()),
        "worst_deg": float(angles.max()),
        "translation": float(metrics.translation_errors(poses, truth)[1:].mean()),
        "residual": metrics.agreement(surfaces, poses, GATE).residual,
    }


def ours(clouds: Sequence[np.ndarray], start: np.ndarray | None) -> tuple[np.ndarray, float, float]:
    """coframe as anyone would call it: no option."""
    began, busy = time.perf_counter(), time.process_time()
    result = coframe.register(clouds, poses=start)
    return result.poses, time.perf_counter() - began, time.process_time() - busy


def in_turns(
    methods: dict[str, Method], clouds: Sequence[np.ndarray], start: np.ndarray, rounds: int
) -> dict[str, tuple[np.ndarray, float, float]]:
    """The poses that each method finds in the first round, and its shortest times of all rounds."""
    poses: dict[str, np.ndarray] = {}
    seconds, cpu = dict.fromkeys(methods, np.inf), dict.fromkeys(methods, np.inf)
    for _ in range(rounds):
        for name, register in methods.items():
            found, took, busy = register(clouds, start)
            poses.setdefault(name, found)
            seconds[name], cpu[name] = min(seconds[name], took), min(cpu[name], busy)
    return {name: (poses[name], seconds[name], cpu[name]) for name in methods}


def compare(
    names: Sequence[str],
    methods: Callable[[str], dict[str, Method]],
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Run and judge everything; print and return a row for each problem, seed and method, and for
    the poses as published. `methods` gives those of a problem.
    """
    rows, warm = [], False
    for name in names:
        scans, truth = problems.scans(name)
        surfaces = [metrics.Surface.of(scan) for scan in scans]
        rows.append(
            {
                "problem": name,
                "seed": None,
                "method": "published poses",
                **judge(surfaces, truth, truth),
                "seconds": None,
                "cpu": None,
            }
        )
        show(rows[-1])
        for seed in options.seeds:
            clouds, start = problems.disturbed(scans, truth, seed, noise_db=options.noise)
            if not warm:
                in_turns(methods(name), clouds, start, 1)
                warm = True
            found = in_turns(methods(name), clouds, start, options.rounds)
            for method, (poses, seconds, cpu) in found.items():
                row = {"problem": name, "seed": seed, "method": method}
                row |= {**judge(surfaces, poses, truth), "seconds": seconds, "cpu": cpu}
                rows.append(row)
                show(row)
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Over the seeds of each problem and method: the worst of the worst scans, the mean of all
    else.
    """
    measured = [row for row in rows if row["seed"] is not None]
    out = []
    for name, method in dict.fromkeys((row["problem"], row["method"]) for row in measured):
        some = [row for row in measured if (row["problem"], row["method"]) == (name, method)]
        line: dict[str, Any] = {"problem": name, "seed": "all", "method": method}
        for key in ("rotation_deg", "worst_deg", "translation", "residual", "seconds", "cpu"):
            values = [row[key] for row in some]
            line[key] = (
                None
                if None in values
                else float(np.max(values) if key == "worst_deg" else np.mean(values))
            )
        out.append(line)
    return out


def ratios(lines: Sequence[dict[str, Any]], key: str) -> dict[str, dict[str, float]]:
    """By peer and problem, how many times our time (or another figure, `key`) it took; "mean" is
    the geometric mean over the problems.
    """
    times = {(line["method"], line["problem"]): line[key] for line in lines}
    found: dict[str, dict[str, float]] = {}
    for (name, problem), value in times.items():
        if name != OURS and (OURS, problem) in times:
            found.setdefault(name, {})[problem] = value / times[OURS, problem]
    for each in found.values():
        each["mean"] = float(np.exp(np.mean(np.log(list(each.values())))))
    return found


def tabulate(lines: Sequence[dict[str, Any]], folder: Path) -> None:
    """The table of docs/performance.md: accuracy and time by problem and method, and each peer's
    time as a multiple of ours.
    """

    def cell(line: dict[str, Any]) -> str:
        if line["problem"] in EXACT:
            figure = f"{line['rotation_deg']:.3f} deg"
        else:
            figure = "-" if line["residual"] is None else f"{1e6 * line['residual']:.0f} um"
        return f"{figure}, {line['seconds']:.2f} s ({line['cpu']:.2f} s)"

    names = list(dict.fromkeys(line["method"] for line in lines))
    cells = {(line["problem"], line["method"]): cell(line) for line in lines}
    wall, cpu = ratios(lines, "seconds"), ratios(lines, "cpu")

    def compared(problem: str) -> list[str]:
        return [f"{wall[name][problem]:.2f} ({cpu[name][problem]:.2f})" for name in wall]

    problems = list(dict.fromkeys(line["problem"] for line in lines))
    rows = [
        [problem, *(cells[problem, name] for name in names), *compared(problem)]
        for problem in problems
    ]
    if wall:
        rows.append(["geometric mean", *("" for _ in names), *compared("mean")])
    what = (
        "Held-out residual (armadillo, lucy: mean rotation error), time and, in brackets, CPU time,"
        " mean over the seeds; and the time of the peers as a multiple of coframe's."
    )
    columns = ["", *names, *(f"{name} / {OURS}" for name in wall)]
    record.save("multiview", what, columns, rows, folder=folder)


HEAD = (
    "problem    seed  method            rotation deg     worst   shift mm   residual um   seconds"
    "       CPU"
)


def show(row: dict[str, Any]) -> None:
    """One line of the table."""

    def number(key: str, width: int, digits: int, scale: float = 1.0) -> str:
        return f"{'-':>{width}}" if row[key] is None else f"{row[key] * scale:{width}.{digits}f}"

    print(
        f"{row['problem']:10s} {'' if row['seed'] is None else row['seed']!s:>4s} "
        f" {row['method']:16s}"
        f"{number('rotation_deg', 14, 3)}{number('worst_deg', 10, 3)}"
        f"{number('translation', 11, 3, 1e3)}{number('residual', 14, 1, 1e6)}"
        f"{number('seconds', 10, 2)}{number('cpu', 10, 2)}",
        flush=True,
    )


def peers_python() -> Path:
    """The interpreter of the peers' environment."""
    folder = ROOT / ".venv-peers"
    for path in (folder / "bin" / "python", folder / "Scripts" / "python.exe"):
        if path.exists():
            return path
    sys.exit(f"the peers are not installed ({folder} is missing): run `make peers` first")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, run, print the table, save the JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multiview",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--problems", nargs="+", choices=ALL, default=ALL)
    parser.add_argument(
        "--methods", nargs="+", choices=[OURS, *SETTINGS], default=[OURS, *SETTINGS]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--noise",
        type=float,
        metavar="DB",
        help="add noise, so many dB below the signal (25 is much)",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each method runs; the shortest time counts"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="default: results/multiview.json, with the noise in its name",
    )
    record.add_option(parser)
    options = parser.parse_args(arguments)
    suffix = "" if options.noise is None else f"-{options.noise:g}dB"
    output = options.output or ROOT / "results" / f"multiview{suffix}.json"

    settings = {
        name: SETTINGS[name]["clean" if options.noise is None else "noisy"] for name in SETTINGS
    }
    report: dict[str, Any] = {
        "options": {
            **vars(options),
            "output": str(output),
            "records": str(options.records),
            "points": POINTS,
            "degrees": DEGREES,
            "shift": SHIFT,
            "gate": GATE,
        },
        "settings": {name: settings[name] for name in options.methods if name in settings},
        "machine": machine(),
        "versions": (
            {"python": platform.python_version()}
            | {name: version(name) for name in ("coframe", "numpy", "scipy", "numba")}
        ),
    }
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name in options.methods:
            if name == OURS:
                continue
            try:
                peers[name] = stack.enter_context(Peer(name, peers_python()))
            except RuntimeError as error:
                sys.exit(str(error))
            report["versions"][name] = peers[name].version

        def methods(problem: str) -> dict[str, Method]:
            found: dict[str, Method] = {}
            for name in options.methods:
                if name == OURS:
                    found[name] = ours
                    continue
                chosen = settings[name]
                if name == "MeshLib":
                    chosen = chosen | {"scanner": SCANNER[problem]}
                found[name] = partial(peers[name].register, settings=chosen)
            return found

        about = report["machine"]
        print(
            f"\n{about['cpu']}, {about['cores']} cores, load {about['load_at_start']} at the start"
        )
        print(
            f"{'clean scans' if options.noise is None else f'noise at {options.noise:g} dB'}, best"
            f" time of {options.rounds}\n"
        )
        print(HEAD)
        report["rows"] = compare(options.problems, methods, options)
    report["summary"] = summary(report["rows"])
    print(f"\n{HEAD}")
    for row in report["summary"]:
        show(row)
    for key in ("seconds", "cpu"):
        for name, each in ratios(report["summary"], key).items():
            listed = ", ".join(f"{problem} {ratio:.2f}" for problem, ratio in each.items())
            print(f"{name}, multiple of our {key}: {listed}")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nsaved as {output}")
    if options.noise is None:
        tabulate(report["summary"], options.records)


if __name__ == "__main__":
    main()
