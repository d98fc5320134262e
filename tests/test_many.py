# SPDX-License-Identifier: MIT
"""Many clouds: what is alive at once grows as slowly as it can.

The largest arrays of a run are the moments (clouds x components) and the joint matrix (6M x 6M).
Each is there as often as it is needed, and no more.
"""

import io
import tracemalloc
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import coframe
from coframe import geometry
from coframe.align import schedule
from coframe.align.level import Run
from coframe.align.recipe import ALIGN, Level
from coframe.cli.show import verdict_table
from coframe.compute.per_cloud import Local
from coframe.data import simulate
from coframe.em import loop
from coframe.em.estep import Cloud, Sweep
from coframe.em.joint import DenseEquations
from coframe.em.loop import Fit, Steps, Stopping
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.em.mstep import MixtureStep
from coframe.input.normalise import Normalisation
from coframe.input.source import InMemory
from coframe.start import verify


def peak_of(work: Callable[[], Any]) -> int:
    """Bytes alive at the worst moment, beyond those alive before; compiled code is warm."""
    work()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def size_of(moments: Moments) -> int:
    return moments.mass.nbytes + moments.first.nbytes + moments.second.nbytes


def ellipsoids(K: int, rng: np.random.Generator) -> Mixture:
    means = rng.uniform(-0.5, 0.5, (K, 3))
    return Mixture(means, np.tile(np.diag([1e-2, 1e-2, 1e-3]), (K, 1, 1)), np.ones(K) / K, 0.1)


def test_sums_of_many_clouds_take_no_memory_of_their_own() -> None:
    """Beyond the moments that it returns, a sweep needs a table for each thread."""
    M, K, rng = 300, 200, np.random.default_rng(0)
    clouds = [Cloud.of(rng.uniform(-0.5, 0.5, (10, 3))) for _ in range(M)]
    mixture, poses = ellipsoids(K, rng), geometry.identity(M, 3)

    def sweep() -> Moments:
        return Sweep(clouds, threads=2).moments(poses, mixture)[0]

    assert peak_of(sweep) < 1.2 * size_of(sweep())


def joint_matrix(M: int, P: int = 6) -> tuple[DenseEquations, np.ndarray]:
    rng = np.random.default_rng(M)
    W = rng.normal(size=(M * P + 5, M * P))
    return DenseEquations(W.T @ W, rng.normal(size=(M, P))), np.ones((M, P), bool)


def test_the_joint_matrix_is_copied_once() -> None:
    """A step damps a copy; what LAPACK copies is its own."""
    equations, free = joint_matrix(120)
    extra = np.ones(free.shape)
    peak = peak_of(lambda: equations.solve(equations.gradient, extra, free, True))
    assert peak < 1.2 * equations.H.nbytes


def test_covariances_need_no_second_matrix_for_the_common_motion() -> None:
    """The matrix, damped, and its inverse. Of the products with the mean only the blocks."""
    equations, free = joint_matrix(120)
    peak = peak_of(lambda: equations.covariances(free, True))
    assert peak < 2.5 * equations.H.nbytes


@pytest.mark.parametrize("P", [3, 6])
@pytest.mark.parametrize("gauge_free", [True, False])
def test_blocks_of_the_covariance_are_those_of_the_whole(P: int, gauge_free: bool) -> None:
    equations, free = joint_matrix(7, P)
    free[1, 0] = False
    H = equations.regularised(np.full(7 * P, 1e-20), gauge_free)
    inside = np.flatnonzero(free)
    whole = np.zeros_like(H)
    whole[np.ix_(inside, inside)] = np.linalg.inv(H[np.ix_(inside, inside)])
    if gauge_free:
        mean = np.tile(np.eye(P), (7, 7)) / 7
        rest = np.eye(7 * P) - mean
        whole = rest @ whole @ rest
    blocks = equations.covariances(free, gauge_free)
    for j, block in enumerate(blocks):
        own = slice(P * j, P * j + P)
        np.testing.assert_allclose(block, whole[own, own], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("accelerated", [True, False])
def test_an_iteration_keeps_no_moments_that_it_cannot_need(accelerated: bool) -> None:
    """Those before the last step, while it may be rejected; none where no step can be."""
    rng = np.random.default_rng(0)
    sweep = Sweep([Cloud.of(rng.uniform(-0.5, 0.5, (50, 3))) for _ in range(3)], threads=1)
    alive: list[weakref.ref[Moments]] = []
    most = 0

    def expect(poses: np.ndarray, mixture: Mixture) -> tuple[Moments, np.ndarray]:
        nonlocal most
        most = max(most, sum(each() is not None for each in alive))
        moments, log_likelihood = sweep.moments(poses, mixture, full=True)
        alive.append(weakref.ref(moments))
        return moments, log_likelihood

    steps = Steps(expect, loop.stay, MixtureStep(1e-6))
    stopping = Stopping(0.5, 5)
    loop.batch(
        steps, geometry.identity(3, 3), ellipsoids(20, rng), stopping, accelerated=accelerated
    )
    assert len(alive) == 6
    assert most == accelerated


def test_repetitions_of_the_last_level_leave_only_poses(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a fit begins, only the last ones of the other chains are still there with moments."""
    rng = np.random.default_rng(0)
    surface = simulate.shape(500, rng).points
    clouds = [rng.choice(surface, 60, replace=False) for _ in range(3)]
    frames = Normalisation.of(clouds)
    level = Level(10, 60, 1, burn_in=1)
    recipe = replace(ALIGN, same_sigmas=0.0, max_repetitions=4)
    sources = Local([InMemory(cloud) for cloud in clouds])
    run = Run(sources, [60] * 3, frames, level, rng, 1, recipe=recipe)
    drawn = run.draw(60)
    start = run.fit(drawn, frames.enter_poses(geometry.identity(3, 3), np.zeros(3)), level)
    alive: list[weakref.ref[Moments]] = []
    counts = []
    fit = Run.fit

    def watched(self: Run, *arguments: Any, **options: Any) -> Fit:
        counts.append(sum(each() is not None for each in alive))
        found = fit(self, *arguments, **options)
        alive.append(weakref.ref(found.moments))
        return found

    monkeypatch.setattr(Run, "fit", watched)
    schedule.finish(run, schedule.Trials(drawn, run.surfaces(), start, []))
    assert len(counts) == recipe.repetitions * (1 + recipe.max_repetitions) + 1
    assert max(counts) == recipe.repetitions - 1
    assert counts[-1] == 0


def test_distances_of_many_motions_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    some, others = (
        geometry.pose(
            np.array([geometry.random_rotation(rng, 3, 40.0) for _ in range(20)]),
            rng.normal(size=(20, 3)),
        )
        for _ in range(2)
    )
    each = [verify.motion_distance(a, b) for a, b in zip(some, others, strict=True)]
    np.testing.assert_allclose(verify.motion_distances(some, others), each, rtol=1e-12)


@pytest.mark.parametrize("weak", [0, 3])
def test_the_table_of_many_clouds_lists_those_in_trouble(weak: int) -> None:
    good = coframe.Verdict("aligned", "", 0.9, 1.0, 0.1, 0.1)
    bad = coframe.Verdict("weak", "it is far off", 0.2, 1.0, 0.3, 0.1)
    verdicts = (bad,) * weak + (good,) * (500 - weak)
    names = tuple(f"scan_{j:03d}" for j in range(500))
    result = SimpleNamespace(names=names, counts=(9,) * 500, verdicts=verdicts)
    console = Console(file=io.StringIO(), width=100)
    console.print(verdict_table(result))  # type: ignore[arg-type]
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("scan_") == weak
    assert f"{500 - weak} of 500 clouds are aligned" in text
