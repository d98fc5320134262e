# SPDX-License-Identifier: MIT
"""Trials on all cores: one process each with one thread, what is kept is not run again."""

import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from experiments.trials import Job, Store

# [size] Processes at a time.
WORKERS = 2
# [display] Seconds between two lines of progress.
EVERY = 20.0
VARIABLES = ("OMP", "OPENBLAS", "MKL", "NUMBA")


@dataclass
class Clock:
    """How long trials take, by kind, and so what is left."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, job: Job, seconds: float) -> None:
        """A trial that is done."""
        self.seconds[job.kind].append(seconds)
        self.seconds[job.method].append(seconds)
        self.seconds[""].append(seconds)

    def of(self, job: Job) -> float:
        """What a trial will take: the mean of its kind, else of its method, else of all."""
        known = (self.seconds.get(key) for key in (job.kind, job.method, ""))
        return next((sum(each) / len(each) for each in known if each), 0.0)


def run(
    jobs: Iterable[Job], store: Store, *, seconds: float = float("inf"), workers: int = WORKERS
) -> list[Job]:
    """Run what is not kept yet, and start nothing after so many seconds. Returns what is left.

    The first realisation of everything comes first, so that a run that is cut short has all rows.
    A trial that fails does not stop the others: it is left, and its error printed.
    """
    wanted = sorted({job.key: job for job in jobs}.values(), key=lambda job: job.seed)
    clock, todo = Clock(), []
    for job in wanted:
        cost = store.cost(job)
        if cost is None:
            todo.append(job)
        else:
            clock.add(job, cost)
    print(f"{len(wanted)} trials, {len(wanted) - len(todo)} of them kept", flush=True)
    assert store.folder is not None
    return _pool(todo, store.folder, clock, seconds, workers) if todo else []


def _pool(
    todo: Sequence[Job], folder: Path, clock: Clock, seconds: float, workers: int
) -> list[Job]:
    began, shown, rest = time.monotonic(), time.monotonic(), list(todo)
    before = {name: os.environ.get(f"{name}_NUM_THREADS") for name in VARIABLES}
    os.environ |= {f"{name}_NUM_THREADS": "1" for name in VARIABLES}  # of processes started now
    running: dict[Future[float], Job] = {}
    left: list[Job] = []
    done = 0
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, context) as pool:
            while rest or running:
                while rest and len(running) < workers and time.monotonic() - began < seconds:
                    job = rest.pop(0)
                    running[pool.submit(work, job, folder)] = job
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    try:
                        clock.add(job, future.result())
                        done += 1
                    except Exception as error:
                        left.append(job)
                        print(f"{job.key}: failed: {error!r}", flush=True)
                if time.monotonic() - shown > EVERY or not rest:
                    shown = time.monotonic()
                    print(progress(done, [*rest, *running.values()], clock, began), flush=True)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[f"{name}_NUM_THREADS"]
            else:
                os.environ[f"{name}_NUM_THREADS"] = value
    return [*left, *rest]


def work(job: Job, folder: Path) -> float:
    """In a process of its own: run a job, keep it, and return its seconds of a processor."""
    return Store(folder).make(job)[1]


def progress(done: int, rest: Sequence[Job], clock: Clock, began: float) -> str:
    """How far it is, and the time that is left."""
    ahead = sum(map(clock.of, rest))
    passed = time.monotonic() - began
    spent = sum(clock.seconds[""])
    return (
        f"{done} trials done in {passed / 60:.1f} min, {len(rest)} to go: about"
        f" {ahead / 3600:.2f} h of a processor ({spent / 3600:.2f} h are done)"
    )
