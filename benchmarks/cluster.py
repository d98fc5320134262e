# SPDX-License-Identifier: MIT
"""What a cluster costs: seconds per point, component, cloud and worker, bytes per iteration, and a
model of both.

Workers are processes on this machine, connected by TCP. Every run is compared, bit by bit, with one
on threads. The model's constants are measured here on one worker; runs on more workers check it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from benchmarks import record
from coframe import geometry, threads
from coframe.align.level import Run
from coframe.align.recipe import ALIGN, Level
from coframe.compute.cluster import Remote
from coframe.compute.per_cloud import Local
from coframe.data import simulate
from coframe.em.estep import EM_TOLERANCE, Cloud
from coframe.em.joint import System, softened
from coframe.em.mstep import MixtureStep
from coframe.input.normalise import Normalisation, Summary
from coframe.input.source import InMemory, Source
from coframe.result import labels
from coframe.result.labels import CloudView
from coframe.start import features

DENSE = 1000  # clouds up to which the dense system is solved for comparison
TURNS = 20  # iterations that are averaged over
WAYS = {  # of solving the joint step, and the title of each in the table
    "dense": "dense",
    "5%": "through the model, a cloud sees 5 % of the components",
    "50%": "50 %",
}


@contextmanager
def workers(count: int, folder: Path) -> Iterator[Any]:
    """A client of so many worker processes, of one thread each."""
    import distributed

    file, quiet = folder / f"scheduler-{count}.json", subprocess.DEVNULL
    dask = [sys.executable, "-m", "dask"]
    commands = [
        [
            *dask,
            "scheduler",
            "--port",
            "0",
            "--host",
            "127.0.0.1",
            "--no-dashboard",
            "--scheduler-file",
            str(file),
        ]
    ]
    own = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(folder)]
    commands += [[*dask, "worker", "--scheduler-file", str(file), *own]] * count
    processes = [subprocess.Popen(command, stdout=quiet, stderr=quiet) for command in commands]
    try:
        while not file.exists():
            time.sleep(0.05)
        with distributed.Client(
            scheduler_file=str(file), direct_to_workers=True, timeout=60
        ) as client:
            client.wait_for_workers(count, timeout=120)
            yield client
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Bytes that leave and reach this process through Dask's connections."""
    from distributed.comm import tcp

    bytes_of = {"out": 0, "in": 0}
    write, read = tcp.TCP.write, tcp.read_bytes_rw

    async def counting_write(self: Any, *arguments: Any, **options: Any) -> int:
        sent = await write(self, *arguments, **options)
        bytes_of["out"] += sent
        return sent

    async def counting_read(stream: Any, n: int) -> Any:
        bytes_of["in"] += n
        return await read(stream, n)

    tcp.TCP.write, tcp.read_bytes_rw = counting_write, counting_read
    try:
        yield bytes_of
    finally:
        tcp.TCP.write, tcp.read_bytes_rw = write, read


def best(function: Callable[[], object], times: int = 5) -> float:
    """Wall-clock seconds of the shortest of several runs."""
    return min(_clocked(function, time.perf_counter) for _ in range(times))


def busy(function: Callable[[], object], times: int = 3) -> float:
    """Processor seconds of the shortest of several runs: the load of the machine matters less."""
    return min(_clocked(function, time.process_time) for _ in range(times))


def _clocked(function: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    function()
    return clock() - began


def processor_time(client: Any, function: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of processor time that a call takes of all workers together, of the scheduler
    and of this process.
    """

    def now() -> np.ndarray:
        clock = time.process_time
        return np.array([sum(client.run(clock).values()), client.run_on_scheduler(clock), clock()])

    before = now()
    for _ in range(TURNS):
        function()
    return dict(
        zip(
            ("workers", "scheduler", "driver"),
            (1e3 * (now() - before) / TURNS).tolist(),
            strict=True,
        )
    )


def model_bytes(M: int, K: int, seen: float) -> dict[str, float]:
    """Bytes of an iteration in 3-D: the mixture once, poses and priors of each cloud; sums of the
    components that it sees.
    """
    return {"out": 8 * K * (3 + 9 + 1) + M * (8 * K + 128), "in": M * (seen * (8 * 10 + 4) + 16)}


def prepared(
    clouds: list[np.ndarray], poses: np.ndarray, K: int, points: int
) -> tuple[list[Cloud], np.ndarray, Any]:
    """Clouds, poses and a mixture that has gone through a few iterations."""
    frames = Normalisation.of(clouds)
    place = Local[Source](list(map(InMemory, clouds)), 2)
    level = Level(K, points, iterations=4, burn_in=0, tolerance=0.0)
    counts = list(map(len, clouds))
    run = Run(place, counts, frames, level, np.random.default_rng(0), threads=2)
    drawn = run.draw(points)
    fit = run.fit(drawn, frames.enter_poses(poses, np.zeros(3)), level)
    return drawn.items, fit.poses, fit.mixture


def joint_step(K: int, clouds: int, share: float, *, dense: bool = False) -> float:
    """Seconds of the M-step, on one thread, of clouds that each see a share of the components."""
    rng = np.random.default_rng(0)
    mass = rng.random((clouds, K)) * (rng.random((clouds, K)) < share) * 10
    first = rng.normal(size=(clouds, K, 3)) * 1e-3 * mass[..., None]
    second = np.eye(3) * 1e-4 * mass[..., None, None]
    means = rng.uniform(-0.5, 0.5, (K, 3))
    moments = coframe.Moments(means, mass, first, second, mass.sum(1) + 1)
    weights = np.full(K, 0.97 / K)
    mixture = coframe.Mixture(
        means, np.tile(1e-4 * np.eye(3), (K, 1, 1)), weights, 1.0, np.tile(weights, (clouds, 1))
    )
    return busy(lambda: m_step(moments, geometry.identity(clouds, 3), mixture, dense), 2)


def m_step(
    moments: coframe.Moments, poses: np.ndarray, mixture: coframe.Mixture, dense: bool
) -> None:
    """All poses, then the mixture."""
    precisions = softened(mixture.covariances, ALIGN.model.slide)
    recipe = replace(ALIGN.model, sparse=not dense)
    system = System(moments, precisions, mixture.centre, poses, recipe=recipe)
    MixtureStep(ALIGN.min_variance)(moments, system.motions(), mixture)


def joint_steps(K: int, counts: list[int]) -> dict[int, dict[str, float]]:
    """Milliseconds of the M-step, by the number of clouds: dense, and through the model with two
    shares of components seen.
    """
    found = {}
    for count in counts:
        found[count] = {f"{share:.0%}": 1e3 * joint_step(K, count, share) for share in (0.05, 0.5)}
        if count <= DENSE:
            found[count]["dense"] = 1e3 * joint_step(K, count, 0.5, dense=True)
        print(count, found[count], flush=True)
    return found


def per_point(cloud: np.ndarray, mixture: Any, pose: np.ndarray) -> dict[str, float]:
    """Nanoseconds per point of what touches all points, on one thread."""
    loaded = InMemory(cloud)
    view = CloudView(Normalisation.of([cloud]), pose, None)
    summary = Summary.of(loaded)
    return {
        "summary": 1e9 * busy(lambda: Summary.of(loaded), 3) / len(cloud),
        "cells": 1e9 * busy(lambda: features.touched(loaded, summary, 0.02), 3) / len(cloud),
        "classify": 1e9 * busy(lambda: labels.label_points(loaded, view, mixture), 2) / len(cloud),
    }


def tabulate(found: dict[str, Any], folder: Path) -> None:
    """The four tables of docs/scaling.md."""
    K, points = found["components"], found["all_points_ns"]
    driver = {count: times["5%"] for count, times in found["joint_ms"].items() if count <= 200}
    driver |= {
        count: times["dense"]
        for count, times in found["joint_ms"].items()
        if count <= 200 and "dense" in times
    }
    rows = [
        ["point of all", "median and extent, in memory", f"{points['summary'] / 1e3:.2f} us"],
        ["", "thinning for the start, each size of cells", f"{points['cells'] / 1e3:.2f} us"],
        ["", f"class and outlier probability, K = {K}", f"{points['classify'] / 1e3:.2f} us"],
        ["drawn point and iteration", f"E-step, K = {K}", f"{found['ns_per_point'] / 1e3:.2f} us"],
        [
            "pair of point and component that is not skipped",
            "E-step",
            f"{found['ns_per_pair']:.1f} ns",
        ],
        [
            "iteration",
            f"joint step and mixture on the driver, K = {K}: {', '.join(map(str, driver))} clouds",
            ", ".join(f"{ms:.0f}" for ms in driver.values()) + " ms",
        ],
    ]
    what = "Processor time of one thread."
    record.save("cluster-costs", what, ["per", "what", "time"], rows, folder=folder)
    rows = [
        [f"{count:,}", *(f"{times[way] / 1e3:.2g}" if way in times else "" for way in WAYS)]
        for count, times in found["joint_ms"].items()
    ]
    what = f"Joint step with the mixture, K = {K}, seconds of processor time of one thread."
    record.save("cluster-joint", what, ["clouds", *WAYS.values()], rows, folder=folder)
    model, runs = found["model_bytes"], found["runs"]
    rows = [
        [
            str(count),
            *(f"{way[key] / 1e3:.0f} kB" for key in ("out", "in") for way in (run["bytes"], model)),
        ]
        for count, run in runs.items()
    ]
    what = "Bytes of one iteration on the driver's connections."
    columns = ["workers", "out", "model", "in", "model"]
    record.save("cluster-bytes", what, columns, rows, folder=folder)
    rows = []
    for count, run in runs.items():
        whole, empty = run["cpu_ms"], run["cpu_ms_without_points"]
        figures = [whole["workers"], empty["workers"], whole["workers"] - empty["workers"]]
        figures += [whole["scheduler"], whole["driver"], run["iteration_ms"]]
        rows.append([str(count), *(f"{figure:.1f}" for figure in figures)])
    columns = [
        "workers",
        "E-step of all workers",
        "with 40 points a cloud",
        "difference: the points",
    ]
    columns += ["scheduler", "driver", "wall clock"]
    record.save("cluster-time", "Milliseconds of one iteration.", columns, rows, folder=folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clouds", type=int, default=16)
    parser.add_argument("--points", type=int, default=3000)
    parser.add_argument("--components", type=int, default=1000)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument(
        "--joint", type=int, nargs="*", default=[50, 100, 200, 400, 600, 1000, 3000]
    )
    parser.add_argument("--output", type=Path, default=Path("results/cluster.json"))
    record.add_option(parser)
    arguments = parser.parse_args()
    M, K = arguments.clouds, arguments.components
    scene = simulate.scene(
        M, 8000, degrees=360 * (M - 1) / M, noise_db=45.0, rng=np.random.default_rng(0)
    )
    with threads.quiet_blas():
        clouds, poses, mixture = prepared(scene.clouds, scene.poses, K, arguments.points)
        K = len(mixture)
        here = Local(clouds).sweep(threads=1, tolerance=EM_TOLERANCE)
        moments, likelihood = here.moments(poses, mixture, full=True)
        alone = busy(lambda: here.moments(poses, mixture, full=True))
        total, seen = sum(map(len, clouds)), float((moments.mass > 0).sum(1).mean())
        found: dict[str, Any] = {
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
            "clouds": M,
            "points": total,
            "components": K,
            "seen": seen,
            "pairs": here.pairs,
            "thread_ms": 1e3 * alone,
            "ns_per_point": 1e9 * alone / total,
            "ns_per_pair": 1e9 * alone / here.pairs,
            "all_points_ns": per_point(np.tile(scene.clouds[0], (30, 1)), mixture, poses[0]),
            "joint_ms": joint_steps(K, arguments.joint),
            "model_bytes": model_bytes(M, K, seen),
            "runs": {},
        }
        print(json.dumps(found, indent=1), flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for count in arguments.workers:
                with workers(count, Path(folder)) as client:
                    far = Remote.sent(client, clouds).sweep(threads=1, tolerance=EM_TOLERANCE)
                    tiny = Remote.sent(client, [Cloud.of(c.points[:40].copy()) for c in clouds])
                    empty = tiny.sweep(threads=1, tolerance=EM_TOLERANCE)
                    for sweep in (far, empty):
                        sweep.moments(poses, mixture, full=True)
                    again, same = far.moments(poses, mixture, full=True)
                    assert np.array_equal(again.mass, moments.mass)
                    assert np.array_equal(again.first, moments.first)
                    assert np.array_equal(again.second, moments.second)
                    assert np.array_equal(same, likelihood)
                    with counted() as bytes_of:
                        spent = processor_time(
                            client, lambda sweep=far: sweep.moments(poses, mixture, full=True)
                        )
                    found["runs"][count] = {
                        "iteration_ms": 1e3
                        * best(lambda sweep=far: sweep.moments(poses, mixture, full=True), 20),
                        "overhead_ms": 1e3
                        * best(lambda sweep=empty: sweep.moments(poses, mixture, full=True), 20),
                        "cpu_ms": spent,
                        "cpu_ms_without_points": processor_time(
                            client, lambda sweep=empty: sweep.moments(poses, mixture, full=True)
                        ),
                        "bytes": {way: total / TURNS for way, total in bytes_of.items()},
                    }
                    print(count, found["runs"][count], flush=True)
    print(json.dumps(found, indent=1))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=1))
    tabulate(found, arguments.records)


if __name__ == "__main__":
    main()
