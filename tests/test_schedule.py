# SPDX-License-Identifier: MIT
"""The parts of the schedule: seeds, priors, averages, choices of points; and what a cloud says of
its own noise.
"""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
from scenes import random_poses

from coframe import geometry
from coframe.align import level, schedule
from coframe.align.evidence import Agreement
from coframe.align.level import Run
from coframe.align.recipe import ALIGN, Level
from coframe.align.sampling import denoise, draw_rows
from coframe.compute.per_cloud import Local
from coframe.data import simulate
from coframe.em import joint, seeding
from coframe.em.constraints import UNCONSTRAINED
from coframe.em.estep import Cloud
from coframe.em.recipe import MODEL
from coframe.evaluate import metrics
from coframe.input.normalise import Normalisation
from coframe.input.source import InMemory

each_dimension = pytest.mark.parametrize("D", [2, 3])
FLOOR = 1e-6


def some_points(D: int, count: int = 1003) -> np.ndarray:
    return np.random.default_rng(D).normal(size=(count, D)) + 5


def cells(count: int, K: int) -> np.ndarray:
    """How many points the cells of `seed` have: all the same, and the last one the rest."""
    leaf = -(-count // K)
    return np.append(np.full(K - 1, leaf), count - leaf * (K - 1))


@each_dimension
@pytest.mark.parametrize("turned", [False, True])
def test_every_point_belongs_to_a_seed(D: int, turned: bool) -> None:
    points = some_points(D)
    turn = geometry.random_rotation(np.random.default_rng(1), D) if turned else np.eye(D)
    mixture = seeding.seed(points, 3, 50, FLOOR, turn)
    K = len(mixture)
    assert 45 <= K <= 50
    count = cells(len(points), K)
    np.testing.assert_allclose(count @ mixture.means / len(points), points.mean(0), rtol=1e-12)
    spread = np.trace(mixture.covariances, axis1=1, axis2=2) - D * FLOOR + (mixture.means**2).sum(1)
    assert count @ spread == pytest.approx((points**2).sum(), rel=1e-9)
    assert mixture.visibility is not None
    assert mixture.visibility.shape == (3, K)
    np.testing.assert_allclose(mixture.visibility.sum(1), 1 - MODEL.outlier_share)
    np.testing.assert_allclose(mixture.weights.sum(), 1 - MODEL.outlier_share)
    assert np.linalg.eigvalsh(mixture.covariances).min() >= FLOOR


@each_dimension
def test_another_turn_gives_other_seeds(D: int) -> None:
    points = some_points(D)
    turns = [geometry.random_rotation(np.random.default_rng(seed), D) for seed in (1, 2, 2)]
    a, b, c = (seeding.seed(points, 3, 50, FLOOR, turn).means for turn in turns)
    assert np.abs(np.sort(a, 0) - np.sort(b, 0)).max() > 0.01
    np.testing.assert_array_equal(b, c)


def test_seeds_have_enough_points() -> None:
    assert (
        len(seeding.seed(some_points(3, 200), 3, 1000, FLOOR, np.eye(3))) == 200 / MODEL.min_points
    )


@each_dimension
def test_rounded(D: int) -> None:
    A = np.random.default_rng(0).normal(size=(4, D, D))
    covariances, mass = A @ A.swapaxes(1, 2), np.array([0.0, 1.0, 100.0, 1e12])
    rounded = seeding.round_covariances(covariances, 1.0, mass)
    trace = np.trace(covariances, axis1=1, axis2=2)
    np.testing.assert_allclose(np.trace(rounded, axis1=1, axis2=2), trace)
    spheres = trace[:, None, None] / D * np.eye(D)
    np.testing.assert_allclose(rounded[0], spheres[0])  # no points of its own
    np.testing.assert_allclose(rounded[1], (spheres[1] + covariances[1]) / 2)
    np.testing.assert_allclose(rounded[3], covariances[3], rtol=1e-9)
    np.testing.assert_allclose(
        seeding.round_covariances(covariances, np.inf, mass), spheres, atol=1e-12
    )
    np.testing.assert_allclose(seeding.round_covariances(covariances, 0.0, mass + 1), covariances)


def test_priors_are_what_each_cloud_sees() -> None:
    mass = np.random.default_rng(0).uniform(0, 50, (4, 9))
    mass[0, 0] = 0
    own, common = seeding.cloud_priors(mass), seeding.cloud_priors(mass, common=True)
    for priors in (own, common):
        np.testing.assert_allclose(priors.sum(1), 1 - MODEL.outlier_share)
        assert priors.min() > 0
    np.testing.assert_array_equal(common, np.tile(common[:1], (4, 1)))
    np.testing.assert_array_equal(np.argsort(own, 1), np.argsort(mass, 1))
    np.testing.assert_allclose(
        own[0, 3] / own[0, 0], (mass[0, 3] + MODEL.pseudo_points) / MODEL.pseudo_points
    )
    np.testing.assert_allclose(
        seeding.cloud_priors(1e9 * mass), 0.97 * mass / mass.sum(1, keepdims=True), atol=1e-9
    )


@each_dimension
def test_the_average_lies_in_the_middle(D: int) -> None:
    rng = np.random.default_rng(0)
    poses, step = (
        random_poses(rng, 4, D),
        0.01 * rng.normal(size=(4, geometry.degrees_of_freedom(D))),
    )
    three = [geometry.exp(s * step) @ poses for s in (-1, 0, 1)]
    np.testing.assert_allclose(
        schedule.average_poses(three, False), poses, atol=1e-3 * np.abs(step).max()
    )
    np.testing.assert_allclose(
        metrics.relative(schedule.average_poses(three, True)),
        metrics.relative(poses),
        atol=0.05 * np.abs(step).max(),
    )
    still = [np.concatenate([poses[:1], p[1:]]) for p in three]
    np.testing.assert_allclose(schedule.average_poses(still, False)[0], poses[0], atol=1e-15)


@each_dimension
def test_the_average_does_not_see_the_gauge(D: int) -> None:
    rng = np.random.default_rng(0)
    poses = random_poses(rng, 4, D)
    moved = [random_poses(rng, 1, D) @ poses for _ in range(3)]
    # in the gauge of the first
    np.testing.assert_allclose(schedule.average_poses(moved, True), moved[0], atol=1e-12)
    assert np.abs(schedule.average_poses(moved, False) - moved[0]).max() > 0.1


def test_what_is_refuted_by_another_fit_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fit has no territory, so that nothing refutes it and the likelihood decides."""

    def agreement(inside: int, wrong: int) -> Agreement:
        blocks = np.tile([inside, wrong], (40, 1))
        apart = 1 - np.eye(2, dtype=int)
        return Agreement(40 * (inside - wrong) * apart, 40 * wrong * apart, (blocks, blocks))

    found = [agreement(0, 0), agreement(20, 8), agreement(20, 0)]
    monkeypatch.setattr(schedule, "agreement", lambda _, poses, *__: found[poses])
    monkeypatch.setattr(schedule, "_apart", lambda one, other, _: one is not other)
    values = [0.0, 5.0, 3.0]
    run = SimpleNamespace(recipe=ALIGN, threads=1, value=lambda fit: values[fit.poses])
    fits = [SimpleNamespace(poses=k) for k in range(3)]
    # Without the check of shapes, which knows no stand-ins.
    assert inspect.unwrap(schedule.choose)(run, [], fits).best == 2  # type: ignore[arg-type]


def test_draw_rows() -> None:
    rng = np.random.default_rng(0)
    assert draw_rows(5, 5, rng) == slice(None)
    some = draw_rows(1000, 300, rng)
    assert len(np.unique(some)) == 300
    assert (np.diff(some) > 0).all()
    assert some.min() >= 0
    assert some.max() < 1000
    assert not np.array_equal(some, draw_rows(1000, 300, rng))
    assert abs(some.mean() - 500) < 60


def run_of(clouds: list[InMemory]) -> Run:
    """A run on clouds that are in internal coordinates already."""
    frames = Normalisation(np.zeros((len(clouds), 3)), 1.0)
    counts = [len(cloud.points) for cloud in clouds]
    return Run(Local(clouds), counts, frames, Level(1, 1, 1), np.random.default_rng(0))


@each_dimension
def test_fewer_points_keep_their_order_and_weight(D: int) -> None:
    points = some_points(D, 400)
    cloud = Cloud.of(points, points[:, 0].copy())
    few = run_of([]).thin(Local([cloud, cloud]), 150).items
    same = run_of([]).thin(Local([cloud]), 400).items
    np.testing.assert_array_equal(same[0].rows, cloud.rows)
    for part in few:
        assert len(part) == 150
        index = [int(np.flatnonzero((row == cloud.rows.T).all(1))[0]) for row in part.rows.T]
        assert (np.diff(index) > 0).all()
        np.testing.assert_array_equal(part.rows[3], part.rows[0])
    assert not np.array_equal(few[0].rows, few[1].rows)


def test_drawn_points_keep_their_weight() -> None:
    cloud = simulate.shape(2000, np.random.default_rng(0)).points
    (drawn,) = run_of([InMemory(cloud, cloud[:, 1] + 1)]).draw(1500).items
    assert len(drawn) == 1500
    np.testing.assert_array_equal(drawn.rows[3], drawn.rows[1] + 1)
    assert {tuple(x) for x in drawn.points} <= {tuple(x) for x in cloud}  # clean: none has moved


def test_many_points_are_thinned_evenly_to_seed_a_mixture() -> None:
    clouds = Local([Cloud.of(some_points(3, count)) for count in (100, 7, 40)])
    poses = geometry.identity(3, 3)
    whole = level._sample_points(clouds, poses, 147)
    np.testing.assert_array_equal(whole, np.concatenate([cloud.points for cloud in clouds.items]))
    np.testing.assert_array_equal(level._sample_points(clouds, poses, 146), whole[::2])
    np.testing.assert_array_equal(level._sample_points(clouds, poses, 21), whole[::7])


@pytest.mark.parametrize("count", [3000, 600, 150])
def test_a_clean_cloud_keeps_every_bit(count: int) -> None:
    scene = simulate.scene(3, 3000, noise_db=50.0, rng=np.random.default_rng(1))
    for cloud in scene.clouds:
        np.testing.assert_array_equal(denoise(cloud[:count])[0], cloud[:count])


def test_a_noisy_plane_becomes_flat() -> None:
    rng = np.random.default_rng(0)
    turn = geometry.random_rotation(rng, 3)
    noise = 0.018  # as large as half the distance between points
    points = np.c_[rng.uniform(-1, 1, (4000, 2)), noise * rng.normal(size=4000)]
    flat = denoise(points @ turn.T)[0] @ turn
    inner = np.abs(points[:, :2]).max(1) < 0.9
    assert flat[inner, 2].std() < noise / 3
    slid = (
        np.linalg.norm(flat - points, axis=1)[inner],
        np.linalg.norm((flat - points)[:, :2], axis=1)[inner],
    )
    assert np.sqrt((slid[1] ** 2).mean()) < 0.35 * np.sqrt((slid[0] ** 2).mean())


def test_points_move_along_their_normal_only() -> None:
    rng = np.random.default_rng(0)
    angle = np.sort(rng.uniform(0, 2 * np.pi, 800))
    circle = np.c_[np.cos(angle), np.sin(angle)]
    noisy = circle * (1 + 0.02 * rng.normal(size=(800, 1)))
    moved = denoise(noisy)[0] - noisy
    assert np.abs(moved).max() > 0.02
    tangential = np.abs(moved[:, 0] * circle[:, 1] - moved[:, 1] * circle[:, 0])
    assert np.median(tangential) < 0.2 * np.median(np.linalg.norm(moved, axis=1))


def test_distances_between_poses_follow_their_certainty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing counts as shared, no pose is known, and no distance is large."""
    rng = np.random.default_rng(0)
    scene = simulate.scene(3, 300, degrees=30.0, rng=rng)
    frames = Normalisation.of(scene.clouds)
    clouds = Local([InMemory(cloud) for cloud in scene.clouds])
    last = Level(30, 300, 2)
    run = Run(clouds, [300] * 3, frames, last, rng, threads=1)
    drawn = run.draw(300)
    a = run.fit(drawn, frames.enter_poses(scene.poses, np.zeros(3)), last)
    b = run.fit(drawn, a.poses, last)
    far = schedule.pose_distance(a.poses, b, schedule.pose_deviation(b, UNCONSTRAINED))
    monkeypatch.setattr(joint, "MIN_SHARED", 1e9)
    near = schedule.pose_distance(a.poses, b, schedule.pose_deviation(b, UNCONSTRAINED))
    assert near < 1e-3 * far
