# SPDX-License-Identifier: MIT
"""Run experiments, write their report, and fail where a claim does not come out as expected.

python -m experiments all --size toy                          a minute, no data needed
python -m experiments multiview --size paper --seeds 0-4      one of them, on the published data
python -m experiments report                                  RESULTS.md from
experiments/results/*.json
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from coframe.io.files import atomic
from experiments import (
    angle,
    desk,
    indirect,
    means,
    multiview,
    noise,
    outliers,
    removal,
    report,
    sections,
    tof,
)
from experiments.claims import judged, surprises
from experiments.record import ROOT, Experiment, Record, Run, code, run
from experiments.trials import Store

EXPERIMENTS: dict[str, Experiment] = {
    each.NAME: each
    for each in (outliers, indirect, noise, angle, removal, multiview, sections, means, tof, desk)
}
RESULTS = ROOT / "experiments" / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and do as it says. Every record is written before anything fails."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", choices=[*EXPERIMENTS, "all", "report"], metavar="NAME")
    parser.add_argument("--size", choices=("paper", "toy"), default="paper")
    parser.add_argument(
        "--seeds", type=seeds, help="one for each realisation: 0-4, or 0,2,5; default: 0-4 or 0"
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="folder for JSON and pictures; default: experiments/results, toys: none",
    )
    parser.add_argument(
        "--keep", type=Path, help="folder for trials: an interrupted run goes on from them"
    )
    options = parser.parse_args(arguments)
    folder = options.output or (RESULTS if options.size == "paper" else None)
    store = Store(options.keep / code() if options.keep else None)
    names = (
        list(EXPERIMENTS)
        if "all" in options.names
        else [name for name in options.names if name != "report"]
    )
    failed = []
    for name in names:
        each = EXPERIMENTS[name]
        found = run(
            each, Run(options.size, options.seeds or each.SEEDS[options.size], folder, store)
        )
        show(each, found)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic(folder / f"{name}.json") as temporary:
                temporary.write_text(json.dumps(found, indent=1) + "\n")
        failed += surprises(each, found)
    if "report" in options.names:
        target, link = (
            (ROOT, "experiments/results") if options.output is None else (options.output, ".")
        )
        records = report.read(options.output or RESULTS, EXPERIMENTS)
        target /= "RESULTS.md"
        with atomic(target) as temporary:
            temporary.write_text(report.text(records, EXPERIMENTS, link))
        print(f"saved as {target}")
        failed += [
            each for name, found in records.items() for each in surprises(EXPERIMENTS[name], found)
        ]
    if failed:
        sys.exit("\n".join(dict.fromkeys(failed)))


def seeds(text: str) -> tuple[int, ...]:
    """0-4 or 0,2,5.

    >>> seeds("0-2,7")
    (0, 1, 2, 7)
    """
    ranges = [part.split("-") for part in text.split(",")]
    return tuple(seed for part in ranges for seed in range(int(part[0]), int(part[-1]) + 1))


def show(experiment: Experiment, found: Record) -> None:
    """A record on the screen."""
    print(f"\n{found['name']}: {found['title']} ({found['size']}, {found['seconds']:.1f} s)")
    for table in found["tables"]:
        print("\n".join(report.rows(table)), flush=True)
    for verdict in judged(experiment, found):
        claim = verdict.claim
        print(
            f"{'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.text} {claim.detail}",
            flush=True,
        )


if __name__ == "__main__":
    main()
