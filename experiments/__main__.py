# SPDX-License-Identifier: MIT
"""Run experiments, write their report, and fail where a claim does not come out as expected.

python -m experiments all --size toy              two minutes, no data needed
python -m experiments all report                  the paper's size, on the published data; goes on
                                                  from the trials that are kept
python -m experiments all --seconds 3000          a slice of it
python -m experiments multiview --seeds 0-4       one of them
python -m experiments report                      RESULTS.md, docs/results.md from records
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
    runner,
    sections,
    tof,
)
from experiments.claims import judged, surprises
from experiments.record import ROOT, Experiment, Record, Run, run
from experiments.trials import Store

EXPERIMENTS: dict[str, Experiment] = {
    each.NAME: each
    for each in (outliers, indirect, noise, angle, removal, multiview, sections, means, tof, desk)
}
RESULTS = ROOT / "experiments" / "results"
KEPT = ROOT / "build" / "experiments" / "trials"


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
        "--seeds", type=seeds, help="one for each realisation: 0-4, or 0,2,5; default: all"
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="folder for JSON and pictures; default: experiments/results, toys: none",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        help="folder for trials, from which an interrupted run goes on; default: "
        "build/experiments/trials, toys: none",
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start no trial after so many seconds"
    )
    parser.add_argument(
        "--workers", type=int, default=runner.WORKERS, help="trials side by side; default: 2"
    )
    options = parser.parse_args(arguments)
    paper = options.size == "paper"
    folder = options.output or (RESULTS if paper else None)
    store = Store(options.keep or (KEPT if paper else None))
    names = (
        list(EXPERIMENTS)
        if "all" in options.names
        else [name for name in options.names if name != "report"]
    )
    runs = {
        name: Run(
            options.size, options.seeds or EXPERIMENTS[name].SEEDS[options.size], folder, store
        )
        for name in names
    }
    asked = {name: EXPERIMENTS[name].jobs(each) for name, each in runs.items()}
    left: set[str] = set()
    if store.folder is not None and runs:
        rest = runner.run(
            [job for jobs in asked.values() for job in jobs],
            store,
            seconds=options.seconds,
            workers=options.workers,
        )
        left = {job.key for job in rest}
    failed = []
    for name, given in runs.items():
        each, missing = EXPERIMENTS[name], sum(job.key in left for job in asked[name])
        if missing:
            print(f"{name}: {missing} of {len(asked[name])} trials are missing; run it again")
            continue
        found = run(each, given)
        show(each, found)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic(folder / f"{name}.json") as temporary:
                temporary.write_text(json.dumps(found, indent=1) + "\n")
        failed += surprises(each, found)
    if "report" in options.names:
        records = report.read(options.output or RESULTS, EXPERIMENTS)
        for path, text in report.pages(records, EXPERIMENTS, options.output).items():
            with atomic(path) as temporary:
                temporary.write_text(text)
            print(f"saved as {path}")
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
