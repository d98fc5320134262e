# SPDX-License-Identifier: MIT
"""The whole command from nothing: `python -m benchmarks.command`.

`coframe register SCANS --no-report` on the raw files of the Stanford bunny (10 scans), dragon and
happy buddha (15 each), as a user starts it: a process of its own, which imports, reads, finds start
poses, registers and writes its results. A first run, which compiles where that is still to be done,
does not count. The sets take turns, and the shortest time of several rounds counts.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import coframe
from benchmarks import record
from benchmarks.problems import CATALOGUE
from coframe.data import datasets
from coframe.evaluate import metrics


def run(paths: Sequence[Path], folder: Path) -> tuple[float, float]:
    """Run the command; seconds, and CPU seconds of the process and all its threads."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "coframe", "register", *map(str, paths)]
    command += ["-o", str(folder), "--no-report", "--quiet"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: a cloud failed
        sys.exit(f"exit code {process.returncode} of {' '.join(command)}")
    return seconds, usage.ru_utime + usage.ru_stime


def worst_rotation(folder: Path, truth: datasets.Dataset) -> float:
    """The largest rotation error [deg] of a result, relative to the first scan of the set."""
    result = coframe.load(folder)
    assert truth.poses is not None
    order = [list(result.names).index(path.stem) for path in truth.paths]
    return float(metrics.rotation_errors(result.poses[order], truth.poses).max())


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, run, print the table, save the record."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.command",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--problems", nargs="+", choices=CATALOGUE, default=list(CATALOGUE))
    parser.add_argument("--rounds", type=int, default=3)
    record.add_option(parser)
    options = parser.parse_args(arguments)
    try:
        sets = {name: datasets.load(CATALOGUE[name]) for name in options.problems}
    except coframe.InputError as error:
        sys.exit(str(error))
    seconds, cpu = dict.fromkeys(sets, np.inf), dict.fromkeys(sets, np.inf)
    worst: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out"
        run(next(iter(sets.values())).paths, output)
        for _ in range(options.rounds):
            for name, found in sets.items():
                took, busy = run(found.paths, output)
                seconds[name], cpu[name] = min(seconds[name], took), min(cpu[name], busy)
                worst[name] = worst_rotation(output, found)
                print(
                    f"{name:8s} {took:7.2f} s {busy:7.2f} s of CPU, worst rotation"
                    f" {worst[name]:.2f} deg",
                    flush=True,
                )
    points = {name: sum(map(len, found.clouds())) for name, found in sets.items()}
    rows = [
        [
            name,
            f"{len(sets[name].paths)}",
            f"{points[name]:,}",
            f"{seconds[name]:.1f} s",
            f"{cpu[name]:.1f} s",
            f"{worst[name]:.2f} deg",
        ]
        for name in sets
    ]
    what = (
        "`coframe register SCANS -o OUT --no-report` on raw scans without start poses, the shortest"
        f" time of {options.rounds} rounds; worst rotation against the published poses."
    )
    columns = ["", "scans", "points", "time", "CPU time", "worst rotation"]
    record.save("command", what, columns, rows, folder=options.records)


if __name__ == "__main__":
    main()
