# SPDX-License-Identifier: MIT
"""How the time of `register` grows with points, clouds and components: `python -m
benchmarks.growth`.

One of the three grows, the others stay: views of a simulated body from all around, from starts
turned by up to 2 degrees and moved by up to 1 % of its size, default options. The components alone
are also measured in one E-step that evaluates every pair and in one that skips. Of several runs the
shortest counts. Exponents are slopes of straight lines through the logarithms, of all sizes and of
the largest three, whose slope says what more of the same would cost.

CPU time is that of all threads: other programs hardly change it.
"""

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

import coframe
from benchmarks import record
from benchmarks.estep import problem
from coframe import geometry
from coframe.data import simulate
from coframe.em.estep import Cloud, Sweep

NOISE_DB = 45.0
START_DEGREES = 2.0  # by which starts are turned, at most
START_SHIFT = 0.01  # [size of the body] by which they are moved along each axis, at most
POINTS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)  # of each of 4 clouds
CLOUDS = (2, 5, 10, 30, 100, 300, 1_000)  # of 1,000 points each
COMPONENTS = (100, 300, 1_000, 3_000, 10_000)
FEW_CLOUDS = 4  # where points or components grow
FEW_POINTS = 1_000  # of each, where clouds grow
COMPONENT_POINTS = 10_000  # of each, where components grow
SWEPT = 15, 4_000  # clouds, and points of each, in an E-step
LARGEST = 3  # sizes that the second exponent is fitted to


def views(clouds: int, points: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Views from all around a body, and start poses near the true ones."""
    rng = np.random.default_rng(0)
    degrees = 360 * (clouds - 1) / clouds if clouds > FEW_CLOUDS else 90.0
    scene = simulate.scene(clouds, points, degrees=degrees, noise_db=NOISE_DB, rng=rng)
    turns = np.array([geometry.random_rotation(rng, 3, START_DEGREES) for _ in range(clouds)])
    shifts = rng.uniform(-START_SHIFT, START_SHIFT, (clouds, 3))
    return list(scene.clouds), geometry.pose(turns, shifts) @ scene.poses


def timed(run: Callable[[], object], *, least: float = 1.0) -> tuple[float, float]:
    """Shortest seconds and CPU seconds of runs that together last at least so long [s]."""
    wall, cpu, began = np.inf, np.inf, time.perf_counter()
    while wall == np.inf or time.perf_counter() - began < least:
        start, busy = time.perf_counter(), time.process_time()
        run()
        cpu = min(cpu, time.process_time() - busy)
        wall = min(wall, time.perf_counter() - start)
    return wall, cpu


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """b of the best a size^b, in the mean square of logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def registered(clouds: int, points: int, components: int | None = None) -> tuple[float, float]:
    """Time of one registration."""
    given, start = views(clouds, points)
    options = coframe.Options()
    if components is not None:
        options = coframe.Options(components=components)
    return timed(lambda: coframe.register(given, start, options=options))


def swept(components: int, *, dense: bool) -> tuple[float, float]:
    """Time of one E-step, with deviations as large as the distance between components."""
    M, N = SWEPT
    clouds, mixture = problem(M, N, components, 1 / np.sqrt(components))
    sorted_clouds = [Cloud.of(cloud) for cloud in clouds]
    sweep = Sweep(sorted_clouds, tolerance=None) if dense else Sweep(sorted_clouds)
    poses = geometry.identity(M, 3)
    return timed(lambda: sweep.moments(poses, mixture))


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, measure, print, save the records."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--points", nargs="+", type=int, default=POINTS, metavar="N")
    parser.add_argument("--clouds", nargs="+", type=int, default=CLOUDS, metavar="M")
    parser.add_argument("--components", nargs="+", type=int, default=COMPONENTS, metavar="K")
    record.add_option(parser)
    options = parser.parse_args(arguments)
    registered(2, FEW_POINTS)  # compiles
    what: dict[str, tuple[Sequence[int], Callable[[int], tuple[float, float]]]] = {
        f"register, points of each of {FEW_CLOUDS} clouds": (
            options.points,
            lambda n: registered(FEW_CLOUDS, n),
        ),
        f"register, clouds of {FEW_POINTS:,} points": (
            options.clouds,
            lambda n: registered(n, FEW_POINTS),
        ),
        f"register, components, {FEW_CLOUDS} clouds of {COMPONENT_POINTS:,} points": (
            options.components,
            lambda n: registered(FEW_CLOUDS, COMPONENT_POINTS, n),
        ),
        "E-step of every pair, components": (
            options.components,
            lambda n: swept(n, dense=True),
        ),
        "E-step that skips, components": (
            options.components,
            lambda n: swept(n, dense=False),
        ),
    }
    rows, exponents = [], []
    for name, (sizes, run) in what.items():
        print(f"\n{name}", flush=True)
        found = []
        for size in sizes:
            found.append(run(size))
            wall, cpu = found[-1]
            print(f"{size:>10,} {wall:10.4f} s {cpu:10.4f} s of CPU", flush=True)
            rows.append([name, f"{size:,}", f"{wall:.3g} s", f"{cpu:.3g} s"])
        if len(sizes) < 2:
            continue
        wall, cpu = zip(*found, strict=True)
        line = [name]
        for few in (slice(None), slice(-LARGEST, None)):
            line += [f"{exponent(sizes[few], times[few]):.2f}" for times in (wall, cpu)]
        print(f"exponents {', '.join(line[1:])}")
        exponents.append(line)
    about = "Shortest of several runs; see the top of the program for the problems."
    columns = ["what grows", "to", "time", "CPU time"]
    record.save("growth", about, columns, rows, folder=options.records)
    about = "Exponents b of time = a size^b, fitted to the table above."
    columns = ["what grows", "time", "CPU time", f"time, largest {LARGEST}"]
    columns += [f"CPU time, largest {LARGEST}"]
    record.save("growth-exponents", about, columns, exponents, folder=options.records)


if __name__ == "__main__":
    main()
