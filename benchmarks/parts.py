# SPDX-License-Identifier: MIT
"""Parts of sets, and starts that are far off: is `register` right, and does it warn where not?

    python -m benchmarks.parts [--seeds 0 1] [--start auto|identity]

Half a turn around a thin body is harder than a whole one: front and back gain by lying on top of
each other, and few views say otherwise. Whole sets, halves and every second scan of the bunny and
the dragon (published poses) and of the armadillo and lucy (exact ones), 3,000 points a scan, starts
up to 8 and 20 degrees off. A row has the largest error of any scan against any other; beyond 2
degrees (published poses are off by half a one) it is wrong. `--start identity` shows what matching
in doubt is worth.
"""

import argparse
import time

import numpy as np

import coframe
from benchmarks import problems

WRONG = 2.0  # degrees


def parts(count: int) -> dict[str, list[int]]:
    """Which scans."""
    every = list(range(count))
    half = count // 2
    return {
        "all": every,
        "first half": every[:half],
        "second half": every[half:],
        "every second": every[::2],
    }


def largest(poses: np.ndarray, truth: np.ndarray) -> float:
    """The largest rotation error [deg] of any scan relative to any other."""
    return max(
        float(coframe.metrics.rotation_errors(poses, truth, j).max()) for j in range(len(truth))
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--start", choices=["auto", "identity"], default="auto")
    arguments = parser.parse_args()
    options = coframe.Options(start=arguments.start)
    wrong = unsaid = count = 0
    print("set        part          scans seed  start deg   error deg   seconds  pairs  said")
    for name in (*problems.PUBLISHED, *problems.EXACT):
        scans, truth = problems.scans(name)
        shift = 0.02 * float(np.ptp(scans[0], axis=0).max())
        for part, rows in parts(len(scans)).items():
            for seed, degrees in (
                (seed, degrees) for seed in arguments.seeds for degrees in (8.0, 20.0)
            ):
                some, true = [scans[j] for j in rows], truth[rows]
                clouds, start = problems.disturbed(some, true, seed, degrees=degrees, shift=shift)
                began = time.perf_counter()
                result = coframe.register(clouds, start, options=options)
                seconds, error = time.perf_counter() - began, largest(result.poses, true)
                doubtful = [
                    verdict.verdict for verdict in result.verdicts if verdict.verdict != "aligned"
                ]
                said = (
                    f"{len(doubtful)} not aligned"
                    if doubtful
                    else "doubt"
                    if result.warnings
                    else "aligned"
                )
                count, wrong, unsaid = (
                    count + 1,
                    wrong + (error > WRONG),
                    unsaid + (error > WRONG and said == "aligned"),
                )
                print(
                    f"{name:<10} {part:<13} {len(rows):>5} {seed:>4} {largest(start, true):>10.1f}"
                    f" {error:>11.2f} {seconds:>9.1f} {result.pairs_tried:>6}  {said}",
                    flush=True,
                )
    print(f"{wrong} of {count} wrong, {unsaid} of them called aligned")


if __name__ == "__main__":
    main()
