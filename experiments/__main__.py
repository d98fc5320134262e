# SPDX-License-Identifier: MIT
"""Run experiments and write their report.

python -m experiments all --size toy          a minute, no data needed
python -m experiments multiview --size paper  one of them, on the published data
python -m experiments report                  RESULTS.md from experiments/results/*.json
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from coframe.io.files import atomic
from experiments import angle, desk, indirect, means, multiview, noise, outliers, removal, report, sections, tof

EXPERIMENTS = {each.NAME: each for each in (outliers, indirect, noise, angle, removal, multiview, sections, means, tof, desk)}
NOTES = {name: each.NOTES for name, each in EXPERIMENTS.items()}
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments" / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and do as it says."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=[*EXPERIMENTS, "all", "report"], metavar="NAME")
    parser.add_argument("--size", choices=("paper", "toy"), default="paper")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--realisations", type=int, help="of experiments that repeat; default: few")
    parser.add_argument("--output", type=Path, help="folder for JSON and pictures; default: experiments/results, toys: none")
    options = parser.parse_args(arguments)
    folder = options.output or (RESULTS if options.size == "paper" else None)
    names = list(EXPERIMENTS) if "all" in options.names else [name for name in options.names if name != "report"]
    for name in names:
        found = EXPERIMENTS[name].run(options.size, options.seed, realisations=options.realisations, folder=folder)
        show(found)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic(folder / f"{name}.json") as temporary:
                temporary.write_text(json.dumps(found, indent=1) + "\n")
    if "report" in options.names:
        target, link = (ROOT, "experiments/results") if options.output is None else (options.output, ".")
        target /= "RESULTS.md"
        with atomic(target) as temporary:
            temporary.write_text(report.text(options.output or RESULTS, NOTES, link))
        print(f"saved as {target}")


def show(found: dict) -> None:
    """A record on the screen."""
    print(f"\n{found['name']}: {found['title']} ({found['size']}, {found['seconds']:.1f} s)")
    for table in found["tables"]:
        print("\n".join(report.rows(table)), flush=True)
    for check in found["checks"]:
        print(f"{'holds' if check['holds'] else 'DOES NOT HOLD'}: {check['claim']} {check['detail']}", flush=True)


if __name__ == "__main__":
    main()
