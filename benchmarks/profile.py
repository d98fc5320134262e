# SPDX-License-Identifier: MIT
"""Where the time of `register` goes: `python -m benchmarks.profile bunny dragon`.

Real runs with default options, each after one that compiles everything. A stage is a function of
the library; its time is that between call and return in the thread that called `register`, and its
processor time that of all threads meanwhile, so their ratio says how many cores were busy. Stages
that run in other threads are listed apart, with the sum of their own processor times.

While other programs run, wall times say little. What the thread that called `register` needs by
itself, no other core can help with; the rest is shared among them.
"""

import argparse
import importlib
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

import coframe
from benchmarks import problems

# Functions of the library, by module; a name with a dot is a method.
STAGES = {
    "coframe.input.given": ["open_clouds"],
    "coframe.api.problem": [
        "Problem.start",
        "Problem.choose",
        "Problem.match_beside",
        "Problem.annotate",
    ],
    "coframe.start.search": [
        "find_start",
        "ThinScans.of",
        "_Search._check_identity",
        "_Search._match",
        "_Search._find_matched",
        "_Search._connect_groups",
    ],
    "coframe.start.features": ["find_spacing", "thin", "describe"],
    "coframe.start.patches": ["Patches.of"],
    "coframe.start.match": ["candidate_pairs", "match_pairs", "find_motions"],
    "coframe.start.verify": ["verify"],
    "coframe.start.assembly": ["consistent"],
    "coframe.start.graph": ["solve_graph"],
    "coframe.align.schedule": ["trials", "beside", "finish", "choose"],
    "coframe.align.level": ["Run.draw", "Run.surfaces", "Run.thin", "Run.map", "Run.fit"],
    "coframe.align.evidence": ["agreement"],
    "coframe.align.planes": ["settle"],
    "coframe.align.surface": ["refine", "find_surface", "equations_of"],
    "coframe.align.freedom": ["review"],
    "coframe.align.covariance": ["pose_covariance", "error_covariance"],
    "coframe.em.seeding": ["seed"],
    "coframe.em.loop": ["batch"],
    "coframe.em.estep": ["Sweep.moments"],
    "coframe.result.assemble": ["assemble"],
}
# Stages that take less of the time than this are not shown.
LEAST = 0.005


class Clock:
    """Times of stages, by the path of stages that called them."""

    def __init__(self) -> None:
        self.main = threading.get_ident()
        self.path: tuple[str, ...] = ()
        self.stages: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        self.threads: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
        self.lock = threading.Lock()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a clock."""

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if threading.get_ident() != self.main:
                began = time.thread_time()
                try:
                    return function(*args, **options)
                finally:
                    with self.lock:
                        self.threads[name][0] += 1
                        self.threads[name][1] += time.thread_time() - began
            before, self.path = self.path, (*self.path, name)
            wall, busy = time.perf_counter(), time.process_time()
            try:
                return function(*args, **options)
            finally:
                found = self.stages[self.path]
                found[0] += 1
                found[1] += time.perf_counter() - wall
                found[2] += time.process_time() - busy
                self.path = before

        return call

    def watch(self, stages: dict[str, list[str]]) -> None:
        """Put a clock on every stage, under each name that modules know it by."""
        for module, names in stages.items():
            for name in names:
                home: Any = importlib.import_module(module)
                *owner, last = name.split(".")
                for part in owner:
                    home = getattr(home, part)
                function = vars(home).get(last)
                if function is None:
                    print(f"no stage {module}.{name} any more", file=sys.stderr)
                elif isinstance(function, classmethod):
                    setattr(home, last, classmethod(self.timed(name, function.__func__)))
                elif owner:
                    setattr(home, last, self.timed(name, function))
                else:
                    short = f"{module.rsplit('.', 1)[1]}.{name}"
                    self._replace(function, self.timed(short, function))

    def _replace(self, old: Any, new: Any) -> None:
        for name, module in list(sys.modules.items()):
            if name.startswith("coframe"):
                for key, value in list(vars(module).items()):
                    if value is old:
                        setattr(module, key, new)

    def show(self, seconds: float) -> None:
        """Print stages as a tree in order of calls, then those of other threads."""
        print(f"{'stage':52s}{'calls':>7s}{'wall s':>9s}{'CPU s':>9s}{'share':>8s}")
        number = {path: k for k, path in enumerate(self.stages)}
        order = sorted(
            self.stages,
            key=lambda path: [number.get(path[: k + 1], -1) for k in range(len(path))],
        )
        for path in order:
            calls, wall, busy = self.stages[path]
            if wall >= LEAST * seconds:
                name = "  " * (len(path) - 1) + path[-1]
                print(f"{name:52s}{calls:7.0f}{wall:9.2f}{busy:9.2f}{wall / seconds:8.1%}")
        for name, (calls, busy) in sorted(self.threads.items(), key=lambda each: -each[1][1]):
            if busy >= LEAST * seconds:
                print(f"{'in threads: ' + name:52s}{calls:7.0f}{'':9s}{busy:9.2f}")

    def reset(self) -> None:
        """Forget all times."""
        self.stages.clear()
        self.threads.clear()


def clouds_of(name: str, points: int | None) -> tuple[list[np.ndarray], np.ndarray | None]:
    """All points of a set and no start poses; or so many points of each scan, and starts near the
    true poses.
    """
    scans, poses = problems.scans(name)
    if points is None:
        return scans, None
    return problems.disturbed(scans, poses, 0, points=points)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, run, print the shares."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("problems", nargs="*", default=list(problems.CATALOGUE), metavar="SET")
    parser.add_argument(
        "--points",
        type=int,
        help="of each scan, from starts near the truth; default: all, no start",
    )
    parser.add_argument("--threads", type=int, help="default: all cores")
    options = parser.parse_args(arguments)
    clock = Clock()
    chosen = coframe.Options(threads=options.threads)
    clouds, start = clouds_of(options.problems[0], options.points or 3000)
    coframe.register([cloud[::3] for cloud in clouds])  # compiles
    clock.watch(STAGES)
    for name in options.problems:
        clouds, start = clouds_of(name, options.points)
        clock.reset()
        wall, busy, own = time.perf_counter(), time.process_time(), time.thread_time()
        coframe.register(clouds, poses=start, options=chosen)
        wall, busy = time.perf_counter() - wall, time.process_time() - busy
        own = time.thread_time() - own
        print(f"\n{name}: {wall:.2f} s, {busy / wall:.2f} cores busy")
        print(f"{busy:.2f} s of CPU, {own:.2f} s of it in the thread that called\n")
        clock.show(wall)


if __name__ == "__main__":
    main()
