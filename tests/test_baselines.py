# SPDX-License-Identifier: MIT
"""Each baseline against a known answer: exact matches, literal sums, finite differences, motions
that agree.
"""

from itertools import islice

import numpy as np
import pytest
from scenes import random_poses, views

import coframe
from coframe import baselines, geometry
from coframe.baselines import averaged_icp, cpd, gmmreg, icp, iterate, overlap, simultaneous
from coframe.em import estep
from coframe.em.loop import Status
from coframe.em.mixture import Mixture
from coframe.evaluate import metrics
from coframe.evaluate.metrics import relative


def copies(
    D: int, M: int = 3, points: int = 150, degrees: float = 4.0
) -> tuple[list[np.ndarray], np.ndarray]:
    """The same points in M frames, in different orders, and the poses that bring them together."""
    rng = np.random.default_rng([7, D])
    (cloud,), _ = views(D, sizes=(points,), noise=0.0)
    truth = random_poses(rng, M, D, degrees, degrees / 400)
    return [
        geometry.transform(geometry.inverse(T), cloud[rng.permutation(points)]) for T in truth
    ], truth


@pytest.mark.parametrize("D", [2, 3])
@pytest.mark.parametrize("name", baselines.METHODS)
def test_exact_matches_give_the_exact_motion(name: str, D: int) -> None:
    degrees = 0.01 if name == "mv-icp" else 4.0  # whose matches must be right from the start
    clouds, truth = copies(D, points=150 if D == 3 else 60, degrees=degrees)
    result = baselines.run(name, clouds, geometry.identity(3, D), iterations=200)
    np.testing.assert_allclose(
        relative(result.poses), relative(truth), atol=5e-6 if name == "gmmreg" else 1e-6
    )
    assert len(result.history) == result.iterations > 0
    np.testing.assert_allclose(
        relative(result.history[-1].poses), relative(result.poses), atol=1e-12
    )


def test_neither_units_nor_survey_coordinates_matter() -> None:
    clouds, _ = copies(3)
    shift = np.array([4.5e5, 5.4e6, 100.0])
    far = geometry.pose(np.eye(3), -shift)
    here = relative(
        baselines.run("trimmed icp", clouds, geometry.identity(3, 3), iterations=5).poses
    )
    there = baselines.run(
        "trimmed icp",
        [1000 * cloud + shift for cloud in clouds],
        np.tile(far, (3, 1, 1)),
        iterations=5,
    ).poses
    there = relative(there @ geometry.inverse(far))  # of the clouds without the shift
    np.testing.assert_allclose(geometry.rotation(there), geometry.rotation(here), atol=1e-8)
    np.testing.assert_allclose(
        geometry.translation(there) / 1000, geometry.translation(here), atol=1e-8
    )


def test_iterations_and_callback_end_a_run() -> None:
    clouds, _ = copies(3, degrees=8.0)
    start = geometry.identity(3, 3)
    short = baselines.run("icp", clouds, start, iterations=2)
    assert (short.iterations, short.status) == (2, Status.ITERATION_LIMIT)
    stopped = baselines.run("icp", clouds, start, on_iteration=lambda step: step.number == 1)
    assert (stopped.iterations, stopped.status) == (2, Status.STOPPED)
    np.testing.assert_array_equal(stopped.poses, short.poses)
    assert baselines.run("icp", clouds, start).status is Status.CONVERGED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "iterations: expected"),
        ({"overlap": 1.5}, "overlap: expected a share"),
        ({"threads": 0}, "threads: expected"),
        ({"outliers": 0.1}, r"outliers: expected a setting of trimmed icp \(overlap\)"),
        ({"pairs": [(0, 1)]}, "pairs: expected a setting of trimmed icp"),
    ],
)
def test_bad_options_are_refused(options: dict, message: str) -> None:
    clouds, truth = copies(2)
    with pytest.raises(coframe.InputError, match=message):
        baselines.run("trimmed icp", clouds, truth, **options)
    with pytest.raises(coframe.InputError, match="poses: expected shape"):
        baselines.run("trimmed icp", clouds, truth[:2])


def test_unknown_methods_are_named() -> None:
    with pytest.raises(coframe.InputError, match=r"name: expected one of icp, .*found 'magic'"):
        baselines.run("magic", *copies(2))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cpd", {"outliers": 0.3}),
        ("gmmreg", {"deviations": (0.1,)}),
        ("maicp", {"pairs": [(0, 1), (1, 2)]}),
        ("pose graph", {"pairs": [(0, 1), (1, 2)]}),
    ],
)
def test_settings_reach_their_method(name: str, settings: dict) -> None:
    clouds, _ = copies(3)
    start = geometry.identity(3, 3)
    plain, other = (
        baselines.run(name, clouds, start, iterations=1, **each) for each in ({}, settings)
    )
    assert not np.array_equal(plain.poses, other.poses)


def test_sequential_composes_and_one_versus_all_does_not() -> None:
    clouds, truth = copies(3, M=4)

    order = [id(cloud) for cloud in clouds]

    def true_motion(source, target, motion):
        a, b = order.index(id(source)), order.index(id(target))
        yield geometry.inverse(truth[b]) @ truth[a]

    for combine in (iterate.one_versus_all, iterate.one_after_another):
        (found,) = combine(true_motion, clouds, geometry.identity(4, 3))
        np.testing.assert_allclose(found, relative(truth), atol=1e-12)


def test_runs_in_step_wait_for_the_last() -> None:
    def going(steps: int):
        for i in range(1, steps + 1):
            yield geometry.pose(np.eye(2), np.array([float(i), 0.0]))

    found = list(iterate.in_step([going(1), going(3)], geometry.identity(2, 2)))
    assert [motions[:, 0, 2].tolist() for motions in found] == [[1, 1], [1, 2], [1, 3]]


def test_trimming_finds_the_overlap() -> None:
    distance = np.concatenate([np.full(60, 0.01), np.linspace(0.5, 1, 40)])
    order = np.random.default_rng(0).permutation(100)
    assert icp.best_overlap(distance[order]) == 0.6
    np.testing.assert_array_equal(icp.trimmed(distance[order], order), order < 60)


@pytest.mark.parametrize("D", [2, 3])
def test_trimmed_icp_ignores_what_the_other_cloud_does_not_see(D: int) -> None:
    (first, second), truth = copies(D, M=2, points=400, degrees=3.0)
    # of which the first cloud sees all
    second = second[(geometry.transform(truth[1], second)[:, 0] < 0.4)]
    first = first[(geometry.transform(truth[0], first)[:, 0] > -0.4)]
    start = geometry.identity(2, D)
    trimmed, plain = (
        baselines.run("trimmed icp", [first, second], start),
        baselines.run("icp", [first, second], start),
    )
    np.testing.assert_allclose(relative(trimmed.poses), relative(truth), atol=1e-6)
    assert metrics.rotation_errors(plain.poses, truth)[1] > 0.5


@pytest.mark.parametrize("D", [2, 3])
def test_cpd_is_em_with_a_variance_for_each_point(D: int) -> None:
    clouds, _ = views(D, sizes=(40, 30))
    source, target = clouds[0] / 2, clouds[1] / 2
    motion, variances = np.eye(D + 1), None
    density = 0.2 / np.prod(np.ptp(target, axis=0))
    for found in islice(cpd.pairwise(source, target, motion, outliers=0.2), 4):
        moved = geometry.transform(motion, source)
        d = ((target[:, None] - moved) ** 2).sum(-1)
        if variances is None:
            variances = np.full(len(source), d.mean() / D)
        alpha = estep.posteriors(
            target, Mixture.spheres(moved, variances, np.full(40, 0.8 / 40), density)
        )[:, :-1]
        virtual = alpha.T @ target / alpha.sum(0)[:, None]
        motion = geometry.procrustes(source, virtual, alpha.sum(0) / variances)
        d = ((target[:, None] - geometry.transform(motion, source)) ** 2).sum(-1)
        variances = (alpha * d).sum(0) / (D * alpha.sum(0)) + cpd.FLOOR
        np.testing.assert_allclose(found, motion, atol=1e-7)


@pytest.mark.parametrize("D", [2, 3])
def test_gmmreg_climbs_the_product_of_the_mixtures(D: int) -> None:
    (a, b), _ = views(D, sizes=(50, 40))
    rng = np.random.default_rng(D)
    product = gmmreg.MixtureOverlap(a / 2, estep.Cloud.of(b / 2), 0.1)
    for scale in (1e-9, 0.5, 2.0):
        twist = scale * rng.normal(size=geometry.degrees_of_freedom(D))
        twist[-D:] *= 0.1
        moved = geometry.transform(geometry.exp(twist), a / 2)
        literal = -np.log(np.exp(-((moved[:, None] - b / 2) ** 2).sum(-1) / (4 * 0.1**2)).mean())
        value, gradient = product.cost(twist)
        assert value == pytest.approx(literal, abs=1e-8)
        step = 1e-5 * np.eye(len(twist))
        differences = [
            (product.cost(twist + h)[0] - product.cost(twist - h)[0]) / 2e-5 for h in step
        ]
        np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-5)


def test_gmmreg_goes_on_to_its_last_level() -> None:
    (a, b), _ = views(3, sizes=(200, 180))
    start = geometry.identity(1, 3)

    def run(start: np.ndarray, *levels: tuple[float, int]) -> np.ndarray:
        motion = gmmreg.pairwise(a / 2, b / 2, start[0], levels=levels)
        return list(iterate.in_step([motion], start, -1.0))[-1]

    coarse = run(start, (0.2, 300))
    both, fine = run(coarse, (0.2, 10), (0.05, 100)), run(coarse, (0.05, 100))
    assert iterate.largest_move(fine, both) < 1e-3


RING = [(j, (j + 1) % 6) for j in range(6)] + [(0, 3), (1, 4)]


def measured(truth: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    twists = noise * rng.normal(size=(len(RING), geometry.degrees_of_freedom(truth.shape[1] - 1)))
    return np.array(
        [
            geometry.exp(e) @ geometry.inverse(truth[b]) @ truth[a]
            for (a, b), e in zip(RING, twists, strict=True)
        ]
    )


@pytest.mark.parametrize("D", [2, 3])
def test_averaging_motions_that_agree_is_exact(D: int) -> None:
    rng = np.random.default_rng(D)
    truth = random_poses(rng, 6, D)
    start = random_poses(rng, 6, D, 20.0, 0.1) @ truth
    found = averaged_icp.average_motions(start, RING, measured(truth, 0.0, rng), np.ones(len(RING)))
    np.testing.assert_allclose(relative(found), relative(truth), atol=1e-9)


@pytest.mark.parametrize("D", [2, 3])
def test_averaging_motions_that_differ_is_least_squares(D: int) -> None:
    rng = np.random.default_rng(10 + D)
    truth = random_poses(rng, 6, D)
    motions, weights = measured(truth, 0.02, rng), rng.uniform(0.5, 2, len(RING))

    def cost(poses: np.ndarray) -> float:
        a, b = np.array(RING).T
        return float(
            (
                weights
                * (geometry.log(poses[b] @ motions @ geometry.inverse(poses[a])) ** 2).sum(1)
            ).sum()
        )

    found = averaged_icp.average_motions(truth, RING, motions, weights)
    best = cost(found)
    assert best < cost(truth)
    for _ in range(20):  # to first order in the discrepancies, as the method is
        assert best < cost(random_poses(rng, 6, D, 0.2, 0.003) @ found)


def test_simultaneous_form_is_the_sum_of_squares() -> None:
    rng = np.random.default_rng(3)
    matches = [
        (a, b, rng.normal(size=(9, 3)), rng.normal(size=(9, 3)))
        for a, b in [(0, 1), (1, 2), (2, 3), (3, 0)]
    ]
    Q, P = quadratic = simultaneous.form(matches, 4)

    def literal(poses: np.ndarray) -> float:
        return sum(
            float(((geometry.transform(poses[a], p) - geometry.transform(poses[b], q)) ** 2).sum())
            for a, b, p, q in matches
        )

    poses = random_poses(rng, 4, 3)
    R = np.hstack(list(geometry.rotation(poses)))
    best = geometry.pose(geometry.rotation(poses), (R @ P).T)
    assert np.trace(R @ Q @ R.T) == pytest.approx(literal(best))
    assert all(
        literal(best) <= literal(random_poses(rng, 4, 3, 0.0, 0.1) @ best) for _ in range(10)
    )
    last = literal(best)
    for _ in range(30):
        poses = simultaneous.improved(poses, quadratic)
        assert literal(poses) <= last * (1 + 1e-12)
        last = literal(poses)


def test_mv_icp_keeps_its_matches_and_simreg_does_not() -> None:
    clouds, truth = copies(3, M=3, degrees=12.0)
    start = geometry.identity(3, 3)
    fixed, updated = (
        baselines.run("mv-icp", clouds, start),
        baselines.run("simreg", clouds, start, pairwise_iterations=0),
    )
    error = [metrics.rotation_errors(result.poses, truth)[1:].mean() for result in (fixed, updated)]
    assert error[1] < 1e-5 < 0.1 < error[0]


def test_clouds_that_overlap_are_found() -> None:
    angle = np.linspace(0, 2 * np.pi, 600, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    # each shares half of its points with either neighbour
    arcs = [np.roll(circle, -100 * j, axis=0)[:210] for j in range(6)]
    assert overlap.overlapping(arcs, geometry.identity(6, 2)) == sorted(
        (min(p), max(p)) for p in RING[:6]
    )
    apart = [arcs[0], arcs[3] + 5, arcs[3] + 9]
    assert len(overlap.overlapping(apart, geometry.identity(3, 2))) == 2  # a tree


@pytest.mark.parametrize("pairs", [[(0, 0)], [(0, 5)], [(0, 1)], [(0, 1, 2)]])
def test_bad_pairs_are_refused(pairs: list) -> None:
    clouds, truth = copies(2)
    with pytest.raises(coframe.InputError, match="pairs: expected"):
        overlap.as_pairs(pairs, clouds, truth)


def test_the_boundary_of_a_patch() -> None:
    rng = np.random.default_rng(0)
    patch = np.column_stack([rng.uniform(-1, 1, (4000, 2)), np.zeros(4000)])
    edge = overlap.boundary(patch)
    rim = np.abs(patch[:, :2]).max(1)
    assert edge[rim > 0.99].mean() > 0.9
    assert edge[rim < 0.9].mean() < 0.1
