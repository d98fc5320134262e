# SPDX-License-Identifier: MIT
"""Speed and memory of the engine, as ratios against peers measured in the same run: `make bench`.

Times are the best of several runs, interleaved so that a noisy moment hits every contestant alike.
`--only` runs a part.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from benchmarks import record
from coframe import geometry, paper
from coframe.data import simulate
from coframe.em.estep import Cloud, Sweep
from coframe.em.mixture import Mixture
from coframe.paper import initial

SIZES = ((4, 1500, 900), (15, 4000, 4000))  # clouds, points a cloud, components
DEVIATIONS = (0.1, 0.03, 0.01, 0.003)  # of the object's size
GAMMA = 0.1

LIMIT = "limit of the machine, 1 thread"
# What the E-step of spheres needs of the units that multiply, for a pair: 4 for the exponent
# (|x - mu|^2 h + l), 10 for the polynomial of 2^x, 8 for the moments (a, a d, a |d|^2). Additions
# and comparisons run beside them, in units of their own on the machines that we know.
MULTIPLICATIONS = 22
CHAINS = 12  # of dependent multiplications, enough to fill every unit; their sums fit in registers


def widest() -> int:
    """Doubles in the widest vector of this machine."""
    features = binding.get_host_cpu_features()
    return 8 if features.get("avx512f") else 4 if features.get("avx") else 2


@intrinsic
def _multiply_add(typingctx, rounds, factor):
    """CHAINS x `widest` chains of `rounds` fused multiply-adds, side by side in registers."""

    def codegen(context, builder, signature, args):
        lanes = widest()
        vector = ir.VectorType(ir.DoubleType(), lanes)
        kind = ir.FunctionType(vector, [vector] * 3)
        name = f"llvm.fmuladd.v{lanes}f64"
        fma = cgutils.get_or_insert_function(builder.module, kind, name)
        spread = ir.Constant(vector, [0.0] * lanes)
        for lane in range(lanes):
            spread = builder.insert_element(spread, args[1], ir.Constant(ir.IntType(32), lane))
        sums = [builder.alloca(vector) for _ in range(CHAINS)]
        for k, each in enumerate(sums):
            builder.store(ir.Constant(vector, [1.0 + k] * lanes), each)
        counter = builder.alloca(ir.IntType(64))
        builder.store(ir.Constant(ir.IntType(64), 0), counter)
        body, done = builder.append_basic_block("body"), builder.append_basic_block("done")
        builder.branch(body)
        builder.position_at_end(body)
        for each in sums:
            builder.store(builder.call(fma, [builder.load(each), spread, spread]), each)
        count = builder.add(builder.load(counter), ir.Constant(ir.IntType(64), 1))
        builder.store(count, counter)
        builder.cbranch(builder.icmp_signed("<", count, args[0]), body, done)
        builder.position_at_end(done)
        total = builder.load(sums[0])
        for each in sums[1:]:
            total = builder.fadd(total, builder.load(each))
        result = builder.extract_element(total, ir.Constant(ir.IntType(32), 0))
        for lane in range(1, lanes):
            part = builder.extract_element(total, ir.Constant(ir.IntType(32), lane))
            result = builder.fadd(result, part)
        return result

    return types.float64(types.int64, types.float64), codegen


@njit(nogil=True)
def multiply_add(rounds, factor):
    """Fused multiply-adds as fast as the machine can do them."""
    return _multiply_add(rounds, factor)


def best(
    contestants: dict[str, Callable[[], object]], seconds: float = 3.0, least: int = 3
) -> dict[str, float]:
    """The shortest time of each contestant, rounds interleaved, for about `seconds` in all and at
    least `least` rounds.
    """
    for run in contestants.values():
        run()
    times = dict.fromkeys(contestants, np.inf)
    start, rounds = time.perf_counter(), 0
    while rounds < least or time.perf_counter() - start < seconds:
        for name, run in contestants.items():
            # until the idle BLAS threads of the contestant before have stopped spinning
            time.sleep(0.02)
            began = time.perf_counter()
            run()
            times[name] = min(times[name], time.perf_counter() - began)
        rounds += 1
    return times


def naive(points: np.ndarray, mixture: Mixture) -> tuple[np.ndarray, ...]:
    """The E-step as one writes it first: (N, K, 3) differences."""
    d = points[:, None] - mixture.means
    beta = (
        mixture.weights * mixture.variances**-1.5 * np.exp(-(d**2).sum(2) / (2 * mixture.variances))
    )
    alpha = beta / (beta.sum(1, keepdims=True) + mixture.outlier_density)
    return alpha.sum(0), alpha.T @ points, (alpha * (d**2).sum(2)).sum(0)


def chunked(points: np.ndarray, mixture: Mixture, size: int = 64) -> tuple[np.ndarray, ...]:
    """The E-step as a careful NumPy user writes it: distances by matrix product, in chunks that
    stay in cache.
    """
    mu, half = mixture.means, 0.5 / mixture.variances
    constant = np.log(mixture.weights) - 1.5 * np.log(mixture.variances) - half * (mu**2).sum(1)
    mass, first, second = np.zeros(len(mu)), np.zeros((len(mu), 3)), np.zeros(len(mu))
    for i in range(0, len(points), size):
        x = points[i : i + size]
        square = (x**2).sum(1)
        beta = x @ (mu * (2 * half)[:, None]).T
        beta -= square[:, None] * half
        beta += constant
        np.exp(beta, out=beta)
        beta /= beta.sum(1)[:, None] + mixture.outlier_density
        mass += beta.sum(0)
        first += beta.T @ x
        second += square @ beta
    return mass, first, second


def pypi_jrmpc(clouds: Sequence[np.ndarray], means: np.ndarray, iterations: int) -> object:
    """The `jrmpc` package, numpy backend, set to the authors' start variance and to one precision
    with ours.
    """
    from jrmpc.numpy import jrmpc

    return jrmpc(
        [cloud.T for cloud in clouds],
        X=means.T,
        gamma=GAMMA,
        Q_factor=1.0,
        max_num_iter=iterations,
        epsilon=1e-6,
    )


def dense(folder: Path) -> None:
    """ns per point-component pair when every pair is evaluated."""
    table: dict[str, list[str]] = {}
    for M, N, K in SIZES:
        clouds, mixture = problem(M, N, K, 0.03)
        pairs = M * N * K
        ours = {t: Sweep([Cloud.of(c) for c in clouds], threads=t, tolerance=None) for t in (1, 2)}
        poses = geometry.identity(M, 3)
        # The slow contestants get as many points as make a run of about a second; the figure is per
        # pair.
        few = max(1, int(2e7 / K / N))
        some = clouds[:few] if few < M else clouds
        share = sum(map(len, some)) / (M * N)
        rounds = pairs * MULTIPLICATIONS // (CHAINS * widest())
        times = best(
            {
                LIMIT: lambda: multiply_add(rounds, 0.5),
                "coframe, 1 thread": lambda: ours[1].moments(poses, mixture),
                "coframe, 2 threads": lambda: ours[2].moments(poses, mixture),
                "coframe, 1 thread, full covariances": (
                    lambda: ours[1].moments(poses, mixture, full=True)
                ),
                "NumPy, chunked": lambda: [chunked(c, mixture) for c in some],
                "NumPy, naive": lambda: [
                    naive(part, mixture) for c in some for part in np.array_split(c, 4)
                ],
                "jrmpc from PyPI": lambda: pypi_jrmpc(some, mixture.means, 1),
            }
        )
        title(f"Every pair, M={M} N={N} K={K}")
        base = times["coframe, 1 thread"] / pairs
        for name, seconds in times.items():
            every = name.startswith("coframe") or name == LIMIT
            each = seconds / (pairs if every else pairs * share)
            print(f"  {name:38s} {each * 1e9:7.2f} ns/pair   {each / base:6.2f} x the time of ours")
            table.setdefault(name, []).append(f"{each * 1e9:.2f} ns, {each / base:.2f} x")
    columns = ["", *(f"{M} clouds of {N:,} points, K = {K}" for M, N, K in SIZES)]
    what = (
        "Time per pair of point and component where every pair is evaluated, and as a multiple of"
        f" coframe's on one thread. The limit: {MULTIPLICATIONS} fused multiply-adds for a pair, as"
        f" fast as one core does them with nothing else to do, {widest()} in a vector."
    )
    record.save(
        "estep-dense", what, columns, [[n, *row] for n, row in table.items()], folder=folder
    )


def pruned(folder: Path) -> None:
    """What skipping buys, by the components' standard deviation."""
    rows = []
    for M, N, K in SIZES:
        title(f"Skipping, M={M} N={N} K={K}: milliseconds per E-step")
        poses = geometry.identity(M, 3)
        for deviation in DEVIATIONS:
            clouds, mixture = problem(M, N, K, deviation)
            sorted_clouds = [Cloud.of(c) for c in clouds]
            dense = Sweep(sorted_clouds, threads=1, tolerance=None)
            one, two = (Sweep(sorted_clouds, threads=t) for t in (1, 2))
            times = best(
                {
                    "dense": lambda sweep=dense, mixture=mixture: sweep.moments(poses, mixture),
                    "one": lambda sweep=one, mixture=mixture: sweep.moments(poses, mixture),
                    "two": lambda sweep=two, mixture=mixture: sweep.moments(poses, mixture),
                }
            )
            print(
                f"  std {deviation:<6g} dense {times['dense'] * 1e3:8.2f}   pruned"
                f" {times['one'] * 1e3:8.2f} ({times['dense'] / times['one']:5.1f}x)   2 threads"
                f" {times['two'] * 1e3:8.2f} ({times['one'] / times['two']:4.2f}x)  "
                f" {one.pairs / (M * N * K):6.1%} of the pairs"
            )
            rows.append(
                [
                    f"{M} x {N:,}, {K}",
                    f"{deviation:g}",
                    f"{times['dense'] * 1e3:.2f} ms",
                    f"{times['one'] * 1e3:.2f} ms ({times['dense'] / times['one']:.1f} x)",
                    f"{times['two'] * 1e3:.2f} ms ({times['one'] / times['two']:.2f} x)",
                    f"{100 * one.pairs / (M * N * K):.1f} %",
                ]
            )
    columns = ["clouds x points, K", "deviation", "every pair", "skipping"]
    columns += ["skipping, 2 threads", "pairs evaluated"]
    what = "Milliseconds per E-step; the deviation is a share of the object's size."
    record.save("estep-skipping", what, columns, rows, folder=folder)


def whole_run(folder: Path, iterations: int = 100) -> None:
    """JRMPC-B from start to end on four partial views, ours against the package from PyPI with the
    same K.
    """
    clouds, name = four_views()
    rng = np.random.default_rng(0)
    means = initial.means_on_sphere(clouds, initial.component_count(clouds), rng)
    ours = {
        f"coframe, {t} thread{'s' * (t > 1)}": lambda t=t: paper.batch(
            clouds, means, gamma=GAMMA, iterations=iterations, threads=t
        )
        for t in (1, 2)
    }
    peer = {"jrmpc from PyPI": lambda: pypi_jrmpc(clouds, means, iterations)}
    times = best(ours | peer, seconds=0, least=2)
    title(f"A whole run, {iterations} iterations, {name}, K={len(means)}")
    base, rows = times["coframe, 2 threads"], []
    for contestant, seconds in times.items():
        rows.append([contestant, f"{seconds:.2f} s", f"{seconds / base:.1f} x"])
        print(f"  {contestant:20s} {seconds:8.3f} s   {seconds / base:7.1f} x of ours (2 threads)")
    what = (
        f"JRMPC-B from start to end, {iterations} iterations, {name}, K = {len(means)}; time, and"
        " as a multiple of coframe's on two threads."
    )
    record.save("estep-paper", what, ["", "time", "multiple"], rows, folder=folder)


def memory(_: Path, M: int = 20, N: int = 100_000, K: int = 5000) -> None:
    """Peak resident memory of a run with two million points, in a process of its own."""
    code = f"from benchmarks.estep import memory_run; memory_run({M}, {N}, {K})"
    report = json.loads(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
    )
    title(f"Memory, {M * N:,} points, K={K}")
    print(
        f"  peak {report['peak'] / 1e9:.2f} GB resident; {report['seconds']:.0f} s for"
        f" {report['iterations']} iterations"
    )


def memory_run(M: int, N: int, K: int, iterations: int = 5) -> None:
    """The run itself; prints JSON."""
    rng = np.random.default_rng(0)
    surface = simulate.shape(N, rng).points
    clouds = [surface + 0.001 * rng.normal(size=surface.shape) for _ in range(M)]
    del surface
    began = time.perf_counter()
    means = initial.means_on_points(clouds[:1], geometry.identity(1, 3), K, rng)
    paper.batch(clouds, means, variances=0.01**2, gamma=GAMMA, iterations=iterations)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    print(
        json.dumps({"peak": peak, "seconds": time.perf_counter() - began, "iterations": iterations})
    )


def problem(M: int, N: int, K: int, deviation: float) -> tuple[list[np.ndarray], Mixture]:
    """M clouds of N points on the demo's shape (size 1), and K components of one deviation."""
    rng = np.random.default_rng(0)
    clouds = [simulate.shape(N, rng).points for _ in range(M)]
    weights = np.full(K, 1 / K / (1 + GAMMA))
    return clouds, Mixture.spheres(
        simulate.shape(K, rng).points, np.full(K, deviation**2), weights, GAMMA / (1 + GAMMA)
    )


def four_views() -> tuple[list[np.ndarray], str]:
    """The JRMPC authors' cutView clouds when their data is there, else four simulated views of the
    same size.
    """
    import os

    folder = (
        Path(os.environ.get("COFRAME_DATA", Path(__file__).parents[2] / "shared" / "data"))
        / "jrmpc_synthetic"
    )
    if folder.is_dir():
        return [
            np.loadtxt(folder / f"cutView{i}.txt") for i in range(1, 5)
        ], "the authors' cutView clouds"
    scene = simulate.scene(4, 1000, noise_db=30.0, outliers=0.2, rng=np.random.default_rng(0))
    return list(scene.clouds), "four simulated views"


def title(text: str) -> None:
    print(f"\n{text}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"dense": dense, "skipping": pruned, "paper": whole_run, "memory": memory}
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    record.add_option(parser)
    options = parser.parse_args()
    for part in options.only:
        parts[part](options.records)
