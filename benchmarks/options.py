# SPDX-License-Identifier: MIT
"""What each option of `register` changes: one at a time, on the full scans of the Stanford bunny,
from starts 8 degrees off.

`python -m benchmarks.options` prints mean and worst rotation against the published
poses, the held-out residual of `benchmarks.multiview`, and the time beside that of the defaults in
the same run.
"""

import argparse
import time

import coframe
from benchmarks import problems
from benchmarks.multiview import judge
from coframe import Options
from coframe.evaluate import metrics

CHANGES = (
    {},
    {"components": 100},
    {"components": 300},
    {"components": 3000},
    {"points": 500},
    {"points": 1000},
    {"points": 10_000},
    {"iterations": 5},
    {"iterations": 60},
    {"tolerance": 1e-3},
    {"tolerance": 1e-5},
    {"seed": 1},
    {"seed": 2},
)


def main() -> None:
    """Run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    scans, truth = problems.scans("bunny")
    surfaces, (scans, start) = (
        [metrics.Surface.of(scan) for scan in scans],
        problems.disturbed(scans, truth, 0, points=None),
    )
    coframe.register(scans[:2], start[:2])  # compiles
    base = None
    for change in CHANGES:
        times = []
        for _ in range(arguments.rounds):
            began = time.perf_counter()
            result = coframe.register(scans, start, options=Options(**change))
            times.append(time.perf_counter() - began)
        base = base or min(times)
        figures = judge(surfaces, result.poses, truth)
        label = ", ".join(f"{name} {value:g}" for name, value in change.items()) or "defaults"
        angles = f"{figures['rotation_deg']:.3f} deg, worst {figures['worst_deg']:.3f}"
        print(
            f"{label:>16}: {angles}, residual {1e6 * (figures['residual'] or 0):.1f} um,"
            f" {min(times) / base:.2f} x",
            flush=True,
        )


if __name__ == "__main__":
    main()
