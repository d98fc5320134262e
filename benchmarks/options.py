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
from benchmarks import problems, record
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
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    record.add_option(parser)
    arguments = parser.parse_args()
    scans, truth = problems.scans("bunny")
    surfaces = [metrics.Surface.of(scan) for scan in scans]
    scans, start = problems.disturbed(scans, truth, 0, points=None)
    coframe.register(scans[:2], start[:2])  # compiles
    base = None
    rows = []
    for change in CHANGES:
        times = []
        for _ in range(arguments.rounds):
            began = time.perf_counter()
            result = coframe.register(scans, start, options=Options(**change))
            times.append(time.perf_counter() - began)
        base = base or min(times)
        figures = judge(surfaces, result.poses, truth)
        label = ", ".join(f"`{name}={value:g}`" for name, value in change.items()) or "none"
        angles = [f"{figures[key]:.3f} deg" for key in ("rotation_deg", "worst_deg")]
        residual = f"{1e6 * (figures['residual'] or 0):.1f} um"
        rows.append([label, *angles, residual, f"{min(times) / base:.1f}"])
        print("  ".join(rows[-1]), flush=True)
    columns = ["change", "mean rotation", "worst", "residual", "time"]
    what = "One option changed at a time, ten full scans of the bunny."
    record.save("options", what, columns, rows, folder=arguments.records)


if __name__ == "__main__":
    main()
