# SPDX-License-Identifier: MIT
"""How long coframe takes to start.

    python -m benchmarks.startup [--against PYTHON] [--runs 15]

Every run is a fresh process, after one that fills the caches of the file system. `--against` names
the interpreter of another installation, whose runs alternate with ours.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import coframe

COMMANDS = {
    "coframe --help": ["-m", "coframe", "--help"],
    "coframe --version": ["-m", "coframe", "--version"],
    "import coframe": ["-c", "import coframe"],
    "python": ["-c", ""],
}


def seconds(python: str, arguments: list[str], folder: Path) -> float:
    """The wall-clock time of one process, run outside of any source tree."""
    environment = dict(os.environ)
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)  # It would lead to our code.
    began = time.perf_counter()
    subprocess.run(
        [python, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - began


def measure(pythons: list[str], runs: int, folder: Path) -> dict[str, list[float]]:
    """The median time [s] of each command under each interpreter."""
    found = {}
    for name, arguments in COMMANDS.items():
        times: list[list[float]] = [[] for _ in pythons]
        for run in range(runs + 1):
            for python, own in zip(pythons, times, strict=True):
                taken = seconds(python, arguments, folder)
                if run:
                    own.append(taken)
        found[name] = [median(own) for own in times]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="PYTHON", help="another installation")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--output", type=Path, default=Path("results/startup.json"))
    options = parser.parse_args()
    pythons = [sys.executable, *([options.against] if options.against else [])]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    found = measure(pythons, options.runs, options.output.parent)
    for name, medians in found.items():
        other = f"{medians[1]:8.3f} s, ratio {medians[0] / medians[1]:.2f}" if medians[1:] else ""
        print(f"{name:20s}{medians[0]:8.3f} s{other}")
    kinds = ["seconds", "seconds_against"]
    report = {
        "version": coframe.__version__,
        "runs": options.runs,
        "commands": {
            name: dict(zip(kinds, medians, strict=False)) for name, medians in found.items()
        },
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
