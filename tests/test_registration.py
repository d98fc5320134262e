# SPDX-License-Identifier: MIT
"""`register`, seen from outside: it finds the truth and keeps its promises.

What it refuses is in test_register_input.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenes import disturbed, unchecked

import coframe
from coframe import Options, PosePrior, geometry
from coframe.align.level import Run
from coframe.align.recipe import ALIGN, Level
from coframe.compute.per_cloud import Local
from coframe.data import simulate
from coframe.em import loop
from coframe.em.constraints import Constraints
from coframe.em.estep import Cloud
from coframe.evaluate import metrics
from coframe.input.checks import as_priors
from coframe.input.normalise import Normalisation
from coframe.io import ply

EPS = np.finfo(float).eps


@dataclass(frozen=True)
class Problem:
    """Simulated clouds, where they belong, and where they start. The object's size is 1."""

    clouds: list[np.ndarray]
    truth: np.ndarray
    start: np.ndarray

    @classmethod
    def of(cls, views: int, points: int, *, seed: int = 0, **setting: Any) -> "Problem":
        rng = np.random.default_rng(seed)
        scene = simulate.scene(
            views, points, **({"degrees": 60.0, "noise_db": 45.0} | setting), rng=rng
        )
        return cls(scene.clouds, scene.poses, disturbed(scene.poses, rng))

    def register(self, **arguments: Any) -> coframe.Registration:
        return coframe.register(self.clouds, self.start, **arguments)

    def register_unchecked(self, **arguments: Any) -> coframe.Registration:
        with unchecked():
            return self.register(**arguments)

    def with_origin(self, cloud: int, origin: np.ndarray) -> "Problem":
        """The same, but the coordinates of one cloud start from another origin."""
        move = geometry.pose(np.eye(3), -origin)
        clouds = [
            geometry.transform(move, c) if j == cloud else c for j, c in enumerate(self.clouds)
        ]
        back = np.array(
            [geometry.inverse(move) if j == cloud else np.eye(4) for j in range(len(clouds))]
        )
        return Problem(clouds, self.truth @ back, self.start @ back)


def turn_uncertainty(result: coframe.Registration) -> np.ndarray:
    """Standard deviation of each rotation relative to that of cloud 0, in degrees."""
    D = result.poses.shape[1] - 1
    variance = np.trace(result.pose_covariance[:, :-D, :-D], axis1=1, axis2=2)
    return np.degrees(np.sqrt(variance + variance[0]))


def agree(poses: np.ndarray, result: coframe.Registration, deviations: float = 3.0) -> bool:
    """Whether rotations are those of a result, up to so many standard deviations."""
    return bool(
        (
            metrics.rotation_errors(poses, result.poses) <= deviations * turn_uncertainty(result)
        ).all()
    )


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem.of(3, 400)


@pytest.fixture(scope="module")
def result(problem: Problem) -> coframe.Registration:
    return problem.register()


@pytest.fixture(scope="module")
def larger() -> Problem:
    return Problem.of(4, 600, seed=1)


# The truth


def test_true_poses_are_found(problem: Problem, result: coframe.Registration) -> None:
    assert metrics.rotation_errors(problem.start, problem.truth).max() > 4
    assert metrics.rotation_errors(result.poses, problem.truth).max() < 0.3
    assert metrics.translation_errors(result.poses, problem.truth).max() < 0.002
    assert result.converged
    assert [v.verdict for v in result.verdicts] == ["aligned"] * 3


def test_true_poses_are_found_in_the_plane() -> None:
    problem = Problem.of(4, 300, dimension=2)
    result = problem.register()
    assert metrics.rotation_errors(problem.start, problem.truth).max() > 4
    assert metrics.rotation_errors(result.poses, problem.truth).max() < 0.3
    assert metrics.translation_errors(result.poses, problem.truth).max() < 0.002
    assert result.pose_covariance.shape == (4, 3, 3)


def test_noisy_clouds_register() -> None:
    problem = Problem.of(4, 600, seed=1, noise_db=25.0)
    result = problem.register()
    assert metrics.rotation_errors(problem.start, problem.truth).mean() > 2.5
    assert metrics.rotation_errors(result.poses, problem.truth).max() < 1.5
    assert metrics.translation_errors(result.poses, problem.truth).max() < 0.015


def test_dense_and_sparse_clouds_together() -> None:
    problem = Problem.of(3, 2400)
    sparse = replace(
        problem, clouds=[c[:n] for c, n in zip(problem.clouds, (3000, 150, 600), strict=True)]
    )
    assert metrics.rotation_errors(sparse.register_unchecked().poses, problem.truth).max() < 0.2


def test_clutter_is_recognised() -> None:
    problem = Problem.of(4, 600, seed=1)
    rng = np.random.default_rng(0)
    clutter = [_uniform_about(c, 0.3, rng) for c in problem.clouds]
    full = replace(
        problem, clouds=[np.concatenate(both) for both in zip(problem.clouds, clutter, strict=True)]
    )
    result = full.register_unchecked()
    assert metrics.rotation_errors(result.poses, problem.truth).max() < 0.3
    clean = [p[: len(c)] for p, c in zip(result.outlier_probability, problem.clouds, strict=True)]
    stray = [p[len(c) :] for p, c in zip(result.outlier_probability, problem.clouds, strict=True)]
    two_percent = np.quantile(np.concatenate(clean), 0.98)
    assert (np.concatenate(stray) > two_percent).mean() > 0.9


def _uniform_about(cloud: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    low, high = cloud.min(0), cloud.max(0)
    return rng.uniform(
        low - 0.1 * (high - low),
        high + 0.1 * (high - low),
        (round(share * len(cloud)), cloud.shape[1]),
    )


def test_a_cloud_of_another_object_fails_alone(larger: Problem) -> None:
    directions = np.random.default_rng(0).normal(size=(500, 3))
    sphere = 0.35 * directions / np.linalg.norm(directions, axis=1, keepdims=True) + [0.3, 0.1, 0.0]
    result = coframe.register(
        [*larger.clouds, sphere], np.concatenate([larger.start, np.eye(4)[None]])
    )
    assert [v.verdict for v in result.verdicts] == ["aligned"] * 4 + ["failed"]
    assert "%" in result.verdicts[-1].reason
    assert metrics.rotation_errors(result.poses[:4], larger.truth).max() < 0.3


def test_files_are_read_and_their_colours_kept(problem: Problem, tmp_path: Path) -> None:
    colours = [np.arange(len(cloud), dtype="u1") for cloud in problem.clouds]
    for j, (cloud, red) in enumerate(zip(problem.clouds, colours, strict=True)):
        ply.write(tmp_path / f"scan{j}.ply", cloud, red=red, green=red, blue=red)
    result = coframe.register(tmp_path / "*.ply", problem.start)
    assert result.names == tuple(f"scan{j}" for j in range(len(problem.clouds)))
    np.testing.assert_array_equal(
        result.poses, coframe.register(problem.clouds, problem.start).poses
    )
    for attributes, red in zip(result.attributes, colours, strict=True):
        np.testing.assert_array_equal(attributes["red"], red)


# The same answer


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_one_seed_gives_the_same_bits_on_any_number_of_threads(
    problem: Problem, result: coframe.Registration, threads: int
) -> None:
    again = problem.register_unchecked(options=Options(threads=threads))
    np.testing.assert_array_equal(again.poses, result.poses)
    np.testing.assert_array_equal(again.pose_covariance, result.pose_covariance)
    for a, b in zip(again.outlier_probability, result.outlier_probability, strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_seed_stays_within_the_uncertainty(
    problem: Problem, result: coframe.Registration
) -> None:
    other = problem.register_unchecked(options=Options(seed=1))
    assert not np.array_equal(other.poses, result.poses)
    assert agree(other.poses, result)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_units_do_not_matter(problem: Problem, result: coframe.Registration, unit: float) -> None:
    start = problem.start.copy()
    start[:, :3, 3] *= unit
    other = Problem([unit * c for c in problem.clouds], problem.truth, start).register_unchecked()
    expected, found = metrics.relative(result.poses), metrics.relative(other.poses)
    found[:, :3, 3] /= unit
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    units = np.repeat([1.0, unit], 3)
    np.testing.assert_allclose(
        other.pose_covariance,
        result.pose_covariance * np.outer(units, units),
        rtol=1e-6,
        atol=1e-12,
    )
    assert [v.verdict for v in other.verdicts] == [v.verdict for v in result.verdicts]
    assert other.verdicts[0].residual / unit == pytest.approx(result.verdicts[0].residual, rel=1e-6)
    for step, before in zip(other.history, result.history, strict=True):  # densities are per volume
        per_point = step.log_likelihood / step.points + 3 * np.log(unit)
        assert per_point == pytest.approx(before.log_likelihood / before.points, abs=1e-6)
        assert step.points <= sum(map(len, problem.clouds))


def test_far_from_the_origin_only_the_rounding_of_the_input_is_lost(
    problem: Problem, result: coframe.Registration
) -> None:
    """Rounding moves each coordinate, centre and translation by up to half an ulp of the largest
    coordinate, and R s, the shift turned, by three more halves; a relative pose has two of each.
    Fits pass on what their points do: 8 ulp bound the sum.
    """
    shift = np.array([5e5, 4.4e6, 100.0])
    there = geometry.pose(np.eye(3), shift)
    clouds = [c + shift for c in problem.clouds]
    start = there @ problem.start @ geometry.inverse(there)
    far = metrics.relative(Problem(clouds, problem.truth, start).register_unchecked().poses)
    for near_pose, far_pose, near, cloud in zip(
        metrics.relative(result.poses), far, problem.clouds, clouds, strict=True
    ):
        moved = geometry.transform(far_pose, cloud) - shift
        np.testing.assert_allclose(
            moved, geometry.transform(near_pose, near), rtol=0, atol=8 * np.spacing(4.4e6)
        )


def test_the_order_of_the_clouds_does_not_matter(
    problem: Problem, result: coframe.Registration
) -> None:
    order = [2, 0, 1]
    other = Problem(
        [problem.clouds[j] for j in order], problem.truth[order], problem.start[order]
    ).register_unchecked()
    assert agree(other.poses[np.argsort(order)], result, deviations=2.0)


# What is known beforehand


def test_fixed_clouds_stay(problem: Problem) -> None:
    result = problem.register(fixed=[1])
    np.testing.assert_allclose(result.poses[1], problem.start[1], rtol=0, atol=4 * EPS)
    np.testing.assert_array_equal(result.pose_covariance[1], 0)
    assert metrics.rotation_errors(result.poses, problem.truth).max() < 0.3


# three object sizes away: turns about the centre move this origin far
OFF_CENTRE = np.array([3.0, -2.0, 4.0])


def test_a_tight_prior_beats_the_points(problem: Problem) -> None:
    away = problem.with_origin(1, OFF_CENTRE)
    wrong = (
        geometry.about(
            geometry.exp(np.array([[0.03, -0.02, 0.02, 0.01, 0.02, -0.01]])), away.truth[1, :3, 3]
        )[0]
        @ away.truth[1]
    )
    away.start[0] = away.truth[0]
    result = away.register(fixed=[0], priors=[PosePrior(1, wrong, 1e-6**2 * np.eye(6))])
    np.testing.assert_allclose(result.poses[1], wrong, rtol=0, atol=1e-4)
    assert metrics.rotation_errors(result.poses, away.truth)[1] > 2
    np.testing.assert_allclose(np.sqrt(np.diagonal(result.pose_covariance[1])[:3]), 1e-6, rtol=0.1)


@pytest.mark.parametrize("variance", [1e6, np.inf], ids=["loose", "infinite"])
def test_a_prior_that_knows_nothing_changes_nothing(
    problem: Problem, result: coframe.Registration, variance: float
) -> None:
    elsewhere = geometry.exp(np.array([0.3, 0.2, 0.1, 1.0, 2.0, 3.0]))
    assert agree(
        problem.register_unchecked(
            priors=[PosePrior(1, elsewhere, np.diag(np.full(6, variance)))]
        ).poses,
        result,
    )


def test_gnss_gives_the_place_of_each_cloud_s_own_origin(problem: Problem) -> None:
    away = problem.with_origin(1, OFF_CENTRE)
    places = np.diag([np.inf] * 3 + [1e-6**2] * 3)
    priors = [PosePrior(j, pose, places, np.zeros(3)) for j, pose in enumerate(away.truth)]
    result = away.register(priors=priors)
    np.testing.assert_allclose(result.poses[:, :3, 3], away.truth[:, :3, 3], rtol=0, atol=1e-5)
    assert metrics.rotation_errors(result.poses, away.truth).max() < 0.3
    turns = geometry.angle(geometry.rotation(result.poses @ geometry.inverse(away.start)))
    assert np.degrees(turns).max() > 1  # they were free, and needed


def test_one_known_place_is_kept(problem: Problem) -> None:
    away = problem.with_origin(1, OFF_CENTRE)
    prior = PosePrior(1, away.truth[1], np.diag([np.inf] * 3 + [1e-6**2] * 3), np.zeros(3))
    np.testing.assert_allclose(
        away.register(priors=[prior]).poses[1, :3, 3], away.truth[1, :3, 3], rtol=0, atol=1e-5
    )


def some_covariance(deviation: float) -> np.ndarray:
    """Of a twist, different in every direction."""
    A = np.random.default_rng(1).normal(size=(6, 6))
    return deviation**2 * (A @ A.T + np.eye(6))


def test_priors_and_results_have_one_convention(problem: Problem) -> None:
    """A prior that leaves the points no say is the covariance of the result, and may be given
    again.
    """
    away = problem.with_origin(1, OFF_CENTRE)
    away.start[0] = away.truth[0]
    prior = PosePrior(1, away.truth[1], some_covariance(1e-7))
    few = Options(components=60, iterations=3)
    result = away.register(fixed=[0], priors=[prior], options=few)
    found = result.pose_covariance[1]
    np.testing.assert_allclose(
        found, prior.covariance, rtol=1e-3, atol=1e-3 * np.abs(prior.covariance).max()
    )
    again = away.register(fixed=[0], priors=[PosePrior(1, result.poses[1], found)], options=few)
    np.testing.assert_allclose(again.poses[1], result.poses[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("about", [None, OFF_CENTRE])
def test_a_prior_is_what_its_words_say(problem: Problem, about: np.ndarray | None) -> None:
    """Its density by brute force, in the user's units: the cloud's turn, and the point's shift."""
    clouds = [100 * cloud + 7 for cloud in problem.clouds]
    units = np.repeat([1.0, 100.0], 3)
    covariance = some_covariance(0.1) * np.outer(units, units)
    believed, pose = geometry.exp(
        np.array([[0.3, 0.2, 0.1, 9.0, 2.0, 3.0], [0.1, 0.2, -0.3, 4.0, 8.0, 3.0]])
    )
    frames, origin = Normalisation.of(clouds), np.array([5.0, 6.0, 7.0])
    priors = as_priors([PosePrior(1, believed, covariance, about)], frames, origin)
    found = Constraints(priors=priors).penalty(
        frames.enter_poses(np.stack([pose] * len(clouds)), origin)
    )
    point = np.median(clouds[1], axis=0) if about is None else about
    turn = geometry.log_rotation(pose[:3, :3] @ believed[:3, :3].T)
    shift = geometry.transform(pose, point[None])[0] - geometry.transform(believed, point[None])[0]
    error = np.concatenate([turn, shift])
    assert found == pytest.approx(-0.5 * error @ np.linalg.solve(covariance, error), rel=1e-9)


def test_the_point_of_a_prior_is_a_matter_of_words(problem: Problem) -> None:
    """Written about another point, with its covariance there, it gives the same poses."""
    twist = np.array([2e-3, -1e-3, 1e-3, 1e-3, 2e-3, -1e-3])
    believed = geometry.exp(twist) @ problem.truth[1]
    covariance = some_covariance(1e-4)
    arm = believed[:3, :3] @ (OFF_CENTRE - np.median(problem.clouds[1], axis=0))
    lever = geometry.lever(arm)

    def found(covariance: np.ndarray, about: np.ndarray | None) -> np.ndarray:
        prior = PosePrior(1, believed, covariance, about)
        settings = Options(components=60, points=400, iterations=6)
        start = replace(problem, start=problem.truth)
        return start.register_unchecked(fixed=[0], priors=[prior], options=settings).poses

    poses = found(covariance, None)
    same = found(lever @ covariance @ lever.T, OFF_CENTRE)
    other = found(covariance, OFF_CENTRE)
    np.testing.assert_allclose(same, poses, rtol=0, atol=1e-6)
    assert np.abs(other - poses).max() > 1e-4  # which the covariance as it was does not


def test_translation_only_leaves_rotations_alone(problem: Problem) -> None:
    shifted = replace(
        problem, start=disturbed(problem.truth, np.random.default_rng(0), degrees=0.0)
    )
    result = shifted.register_unchecked(options=Options(motion="translation"))
    np.testing.assert_allclose(
        geometry.rotation(result.poses), geometry.rotation(shifted.start), rtol=0, atol=4 * EPS
    )
    assert metrics.translation_errors(shifted.start, problem.truth).max() > 0.02
    assert metrics.translation_errors(result.poses, problem.truth).max() < 0.002


def test_yaw_turns_about_z_only(problem: Problem) -> None:
    yaw = np.radians([[0.0, 0.0, 4.0], [0.0, 0.0, -3.0], [0.0, 0.0, 5.0]])
    turned = replace(problem, start=geometry.exp(np.c_[yaw, np.full((3, 3), 0.01)]) @ problem.truth)
    result = turned.register_unchecked(options=Options(motion="yaw"))
    turns = geometry.rotation(result.poses @ geometry.inverse(turned.start))
    np.testing.assert_allclose(turns[:, 2, :2], 0, atol=4 * EPS)
    np.testing.assert_allclose(turns[:, :2, 2], 0, atol=4 * EPS)
    assert metrics.rotation_errors(result.poses, problem.truth).max() < 0.3


# Weights


def test_weights_of_one_change_no_bit(problem: Problem, result: coframe.Registration) -> None:
    other = problem.register_unchecked(weights=[np.ones(len(c)) for c in problem.clouds])
    np.testing.assert_array_equal(other.poses, result.poses)


def test_constant_weights_change_nothing(problem: Problem, result: coframe.Registration) -> None:
    other = problem.register_unchecked(weights=[np.full(len(c), 8.0) for c in problem.clouds])
    np.testing.assert_allclose(other.poses, result.poses, rtol=0, atol=1e-9)
    np.testing.assert_allclose(other.pose_covariance, result.pose_covariance, rtol=1e-6)


def test_points_of_weight_zero_do_not_count(problem: Problem, result: coframe.Registration) -> None:
    rng = np.random.default_rng(7)
    clutter = [_uniform_about(c, 0.3, rng) for c in problem.clouds]
    full = replace(
        problem, clouds=[np.concatenate(both) for both in zip(problem.clouds, clutter, strict=True)]
    )
    weights = [
        np.repeat([1.0, 0.0], [len(c), len(s)])
        for c, s in zip(problem.clouds, clutter, strict=True)
    ]
    other = full.register_unchecked(weights=weights)
    np.testing.assert_array_equal(other.poses, result.poses)
    np.testing.assert_array_equal(other.pose_covariance, result.pose_covariance)


# The run


def test_every_iteration_is_reported_in_user_units(problem: Problem) -> None:
    seen: list[coframe.Iteration] = []
    small = replace(problem, clouds=[100 * c for c in problem.clouds], start=problem.start.copy())
    small.start[:, :3, 3] *= 100
    result = small.register(options=Options(iterations=3, threads=1), on_iteration=seen.append)
    # all phases, and the history is that of the phases that won
    assert len(seen) > result.iterations > 3
    assert all(any(np.array_equal(a.poses, b.poses) for b in seen) for a in result.history)
    shift = geometry.translation(seen[-1].poses) - geometry.translation(result.poses)
    assert np.abs(shift).max() < 2  # 2 % of the size


def test_the_callback_stops_the_run(problem: Problem) -> None:
    result = problem.register(on_iteration=lambda step: True)
    assert result.status is coframe.Status.STOPPED
    assert not result.converged
    assert result.iterations <= 4  # one a phase


@dataclass(frozen=True)
class Recorder(Run):
    """A run that remembers what EM climbs, at every accepted iteration."""

    penalties: list[float] = field(default_factory=list)

    def log_prior(self, poses: np.ndarray, mixture: coframe.Mixture) -> float:
        self.penalties.append(super().log_prior(poses, mixture))
        return self.penalties[-1]


def climbed(
    problem: Problem, level: Level, seed: int, deviation: float | None = None
) -> np.ndarray:
    """The penalised log-likelihood per point of each accepted iteration, and last that of the
    returned state.
    """
    values: list[float] = []
    clouds = Local([Cloud.of(c) for c in problem.clouds])
    run = Recorder(
        Local([]),
        [],
        Normalisation(np.zeros((0, 3)), 1.0),
        level,
        np.random.default_rng(seed),
        on_iteration=lambda step: values.append(step.log_likelihood + run.penalties[-1]),
    )
    with unchecked():
        fit = run.fit(clouds, problem.start, level, deviation=deviation)
    points = fit.moments.points.sum()
    return np.array([*values, points * run.value(fit)]) / points


@pytest.mark.parametrize(
    ("level", "deviation"),
    [
        (Level(1000, 3000, 40), None),
        (Level(60, 3000, 30, tolerance=0.0), None),
        (replace(ALIGN.first, tolerance=0.0), 0.05),
    ],
    ids=["the last level", "a coarse one", "spheres"],
)
def test_accelerated_runs_never_lose_likelihood(
    problem: Problem, level: Level, deviation: float | None
) -> None:
    values = climbed(problem, level, 0, deviation)
    assert np.diff(values).min() >= -loop.ROUNDING
    assert values[-1] > values[0] + 0.1


def test_settled_runs_never_lose_likelihood(larger: Problem) -> None:
    for seed in range(6):
        assert (
            np.diff(climbed(larger, Level(1000, 3000, 60, tolerance=0.0), seed)).min()
            >= -loop.ROUNDING
        )
