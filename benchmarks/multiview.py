# SPDX-License-Identifier: MIT
"""coframe, Open3D and MeshLib on the same scans from the same starts, in one run: `make peers`,
then `make bench`.

The problems: the range scans of the Stanford bunny (10) and dragon (15), 3,000 random points of
each, from starts turned by up to 8 degrees and moved by up to 4 mm along each axis. The time is
that of the registration alone, with all it needs besides points and start poses (spacing, normals),
on as many cores as it wishes; imports and compilation come before. It is the best of several
rounds, in which the methods take turns so that a noisy moment hits them alike.

The result is judged on the full scans, of which the methods saw about a tenth: rotation and
translation against the published poses, relative to the first scan; and the residual, which needs
no truth, the median distance of points to the surface of the other scans. Where a result has a
smaller residual than the published poses, the angle between them is no longer an error.
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
from benchmarks.problems import DEGREES, POINTS, PUBLISHED, SHIFT
from benchmarks.record import ROOT, machine
from coframe.evaluate import metrics

GATE = 0.002  # of the residual, in metres: what is farther apart is not the same surface
OURS = "coframe"

# clouds, start -> poses, seconds
Method = Callable[[Sequence[np.ndarray], np.ndarray], tuple[np.ndarray, float]]


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


def ours(clouds: Sequence[np.ndarray], start: np.ndarray) -> tuple[np.ndarray, float]:
    """coframe as anyone would call it: no option."""
    began = time.perf_counter()
    result = coframe.register(clouds, poses=start)
    return result.poses, time.perf_counter() - began


def in_turns(
    methods: dict[str, Method], clouds: Sequence[np.ndarray], start: np.ndarray, rounds: int
) -> dict[str, Any]:
    """The poses that each method finds in the first round, and its shortest time of all rounds."""
    poses: dict[str, np.ndarray] = {}
    seconds = dict.fromkeys(methods, np.inf)
    for _ in range(rounds):
        for name, register in methods.items():
            found, took = register(clouds, start)
            poses.setdefault(name, found)
            seconds[name] = min(seconds[name], took)
    return {name: (poses[name], seconds[name]) for name in methods}


def compare(
    names: Sequence[str], methods: dict[str, Method], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Run and judge everything; print and return a row for each problem, seed and method, and for
    the poses as published.
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
            }
        )
        show(rows[-1])
        for seed in options.seeds:
            clouds, start = problems.disturbed(scans, truth, seed, noise_db=options.noise)
            if not warm:
                in_turns(methods, clouds, start, 1)
                warm = True
            for method, (poses, seconds) in in_turns(
                methods, clouds, start, options.rounds
            ).items():
                figures = judge(surfaces, poses, truth)
                rows.append(
                    {"problem": name, "seed": seed, "method": method, **figures, "seconds": seconds}
                )
                show(rows[-1])
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
        for key in ("rotation_deg", "worst_deg", "translation", "residual", "seconds"):
            values = [row[key] for row in some]
            line[key] = (
                None
                if None in values
                else float(np.max(values) if key == "worst_deg" else np.mean(values))
            )
        out.append(line)
    return out


def tabulate(lines: Sequence[dict[str, Any]], folder: Path) -> None:
    """The table of docs/performance.md: residual and time by problem and method."""
    names = list(dict.fromkeys(line["method"] for line in lines))
    cells = {
        (
            line["problem"],
            line["method"],
        ): f"{1e6 * line['residual']:.0f} um, {line['seconds']:.2f} s"
        for line in lines
        if line["residual"] is not None
    }
    rows = [
        [problem, *(cells.get((problem, name), "") for name in names)]
        for problem in dict.fromkeys(line["problem"] for line in lines)
    ]
    what = "Held-out residual and time, mean over the seeds."
    record.save("multiview", what, ["", *names], rows, folder=folder)


HEAD = "problem  seed  method            rotation deg     worst   shift mm   residual um   seconds"


def show(row: dict[str, Any]) -> None:
    """One line of the table."""

    def number(key: str, width: int, digits: int, scale: float = 1.0) -> str:
        return f"{'-':>{width}}" if row[key] is None else f"{row[key] * scale:{width}.{digits}f}"

    print(
        f"{row['problem']:8s} {'' if row['seed'] is None else row['seed']!s:>4s} "
        f" {row['method']:16s}"
        f"{number('rotation_deg', 14, 3)}{number('worst_deg', 10, 3)}"
        f"{number('translation', 11, 3, 1e3)}{number('residual', 14, 1, 1e6)}"
        f"{number('seconds', 10, 2)}",
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
    parser.add_argument("--problems", nargs="+", choices=PUBLISHED, default=PUBLISHED)
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
        methods: dict[str, Method] = {}
        for name in options.methods:
            if name == OURS:
                methods[name] = ours
                continue
            try:
                peer = stack.enter_context(Peer(name, peers_python()))
            except RuntimeError as error:
                sys.exit(str(error))
            methods[name] = partial(peer.register, settings=settings[name])
            report["versions"][name] = peer.version
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
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nsaved as {output}")
    if options.noise is None:
        tabulate(report["summary"], options.records)


if __name__ == "__main__":
    main()
