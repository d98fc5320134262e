# SPDX-License-Identifier: MIT
"""The loop: what must hold of any run, whatever the numbers."""

from dataclasses import replace

import numpy as np
import pytest
from scenes import Scene, blobs, random_poses, scene, views

from coframe import geometry
from coframe.em import loop, mstep
from coframe.em.loop import Status, Steps, Stopping
from coframe.em.mixture import Mixture
from coframe.evaluate.metrics import relative
from coframe.paper.batch import UpdateSpheres, move

each_dimension = pytest.mark.parametrize("D", [2, 3])
paper_update = UpdateSpheres(gamma=0.1, floor=0.0, update_priors=True)


def run(
    s,
    *,
    move=move,
    update=paper_update,
    iterations=35,
    radius=1.0,
    tolerance=0.0,
    sweep_options=None,
    **options,
):
    steps = Steps(s.sweep(**(sweep_options or {})).moments, move, update)
    stopping = Stopping(radius, iterations, tolerance)
    return loop.batch(steps, s.poses, s.mixture, stopping, **options)


@each_dimension
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("outliers", [0.0, 0.02], ids=["no outlier class", "outliers"])
@pytest.mark.parametrize(
    ("update_priors", "update_variances"), [(False, True), (True, True), (True, False)]
)
def test_likelihood_never_falls(D, seed, outliers, update_priors, update_variances):
    """A theorem for the paper's steps with epsilon = 0: each is the maximum of the expected
    likelihood in its own parameters.

    (epsilon > 0 adds to the maximising variance, which is then not the maximiser, and the theorem
    is lost.)
    """
    rng = np.random.default_rng([seed, D])
    clouds, _ = views(D, seed=seed)
    gamma = 0.1 if outliers else 0.0
    mixture = Mixture.spheres(
        rng.uniform(-1, 1, (6, D)),
        rng.uniform(0.1, 0.5, 6),
        np.full(6, 1 / (1 + gamma) / 6),
        outliers,
    )
    s = Scene(clouds, random_poses(rng, 3, D, shift=0.2), mixture)
    update = UpdateSpheres(gamma, 0.0, update_priors, update_variances)
    fit = run(s, update=update, sweep_options={"tolerance": None})
    likelihoods = np.array([i.log_likelihood for i in fit.history] + [fit.log_likelihood.sum()])
    assert np.diff(likelihoods).min() >= -1e-11 * np.abs(likelihoods).max()
    assert likelihoods[-1] > likelihoods[0] + 1  # a run that goes nowhere would pass as well


@each_dimension
@pytest.mark.parametrize("seed", range(2))
def test_likelihood_never_falls_with_full_covariances(D, seed):
    """The mixture alone: the paper's pose step is exact for spheres only."""
    s = scene(D, K=5, full=True, sizes=(150, 100), seed=seed)
    s = replace(
        s, mixture=replace(s.mixture, weights=s.mixture.weights / s.mixture.weights.sum() / 1.1)
    )

    def update(moments, motions, mixture):
        assert motions is None
        means = mstep.means(moments)
        covariances = mstep.covariances(moments, means, 0.0, mixture.covariances)
        return replace(
            mixture, means=means, covariances=covariances, weights=mstep.priors(moments, 0.1)
        )

    fit = run(s, move=loop.stay, update=update, sweep_options={"tolerance": None})
    likelihoods = np.array([i.log_likelihood for i in fit.history])
    assert np.diff(likelihoods).min() >= -1e-11 * np.abs(likelihoods).max()
    assert likelihoods[-1] > likelihoods[0] + 1


@each_dimension
def test_rotations_stay_rotations(D):
    fit = run(blobs(D)[0], iterations=100)
    R = geometry.rotation(fit.poses)
    np.testing.assert_allclose(R @ np.swapaxes(R, 1, 2), np.tile(np.eye(D), (3, 1, 1)), atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(R), 1, atol=1e-14)
    np.testing.assert_array_equal(fit.poses[:, D], np.tile([0] * D + [1], (3, 1)))


@each_dimension
def test_settles_and_says_so(D):
    easy, _ = blobs(D)
    fit = run(easy, iterations=500, tolerance=1e-5)
    assert fit.status is Status.CONVERGED
    n = len(fit.history)
    assert 5 < n < 500
    assert fit.history[-1].step < 1e-5
    gains = np.diff([i.log_likelihood for i in fit.history]) / fit.moments.points.sum()
    little = [gain < 1e-5 and i.step < 1e-5 for gain, i in zip(gains, fit.history[1:], strict=True)]
    assert little.index(True) == n - 2, "the first iteration that changes little is the last"
    unhurried = run(easy, iterations=n, tolerance=0.0)
    assert unhurried.status is Status.ITERATION_LIMIT
    np.testing.assert_array_equal(unhurried.poses, fit.poses)
    assert "more iterations" in Status.ITERATION_LIMIT.sentence


@pytest.mark.parametrize(
    ("likelihood", "poses", "iterations", "status"),
    [
        ("rr......", "mmmmmmmm", 8, Status.ITERATION_LIMIT),  # the poses still move
        ("rrrrrrrr", "mm......", 8, Status.ITERATION_LIMIT),  # the likelihood still rises
        ("rr.r.r...", "mm.......", 3, Status.CONVERGED),
        ("rr......", "m.m.....", 4, Status.CONVERGED),
    ],
)
def test_stops_when_both_change_little(likelihood, poses, iterations, status):
    """What each iteration does to likelihood and poses is written above."""
    s, _ = blobs(3)
    moments, _ = s.sweep().moments(s.poses, s.mixture)
    rises = iter(
        np.cumsum(
            [{"r": 2e-3, ".": 5e-4}[rise] * moments.points.sum() for rise in likelihood] + [0]
        )
    )
    moves = iter([{"m": 2e-3, ".": 5e-4}[move] for move in poses])

    def scripted(moments, poses, mixture, stride):
        moved = poses.copy()
        # a third of it is the motion that all three clouds share
        moved[0, 0, 3] += 1.5 * next(moves)
        return moved, None

    steps = Steps(
        lambda poses, mixture: (moments, np.full(3, next(rises) / 3)),
        scripted,
        lambda moments, motions, mixture: mixture,
    )
    fit = loop.batch(steps, s.poses, s.mixture, Stopping(1.0, len(poses), 1e-3))
    assert (len(fit.history), fit.status) == (iterations, status)


@each_dimension
def test_poses_that_have_settled_are_right(D):
    easy, truth = blobs(D)
    fit = run(easy, iterations=200, tolerance=1e-6)
    error = geometry.log(geometry.inverse(relative(truth)) @ relative(fit.poses))
    assert np.abs(error).max() < 0.01  # noise 0.02, some twenty points a cluster
    assert np.abs(geometry.log(relative(truth))).max() > 0.1  # where it started


@each_dimension
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_stop_rule_and_loop_know_no_units(D, scale):
    s, _ = blobs(D)
    m = s.mixture
    mixture = Mixture(
        m.means * scale, m.covariances * scale**2, m.weights, m.outlier_density / scale**D
    )
    poses = geometry.pose(s.R, s.t * scale)
    fit = run(s, iterations=300, tolerance=1e-5)
    scaled = run(
        Scene([V * scale for V in s.clouds], poses, mixture),
        iterations=300,
        tolerance=1e-5,
        radius=scale,
    )
    assert (scaled.status, len(scaled.history)) == (Status.CONVERGED, len(fit.history))
    np.testing.assert_allclose(
        [i.step for i in scaled.history], [i.step for i in fit.history], rtol=1e-4, atol=1e-12
    )
    np.testing.assert_allclose(
        geometry.rotation(scaled.poses), geometry.rotation(fit.poses), atol=1e-9
    )
    np.testing.assert_allclose(
        geometry.translation(scaled.poses) / scale, geometry.translation(fit.poses), atol=1e-9
    )


@each_dimension
def test_a_common_motion_is_no_step(D):
    rng = np.random.default_rng(0)
    s, _ = blobs(D)
    common = geometry.exp(rng.normal(scale=0.01, size=geometry.degrees_of_freedom(D)))
    assert (
        loop.largest_step(loop.relative_twists(s.poses, common @ s.poses, s.mixture), 1.0) < 1e-14
    )
    moved = s.poses.copy()
    moved[1, 0, D] += 0.3
    assert loop.largest_step(loop.relative_twists(s.poses, moved, s.mixture), 2.0) == pytest.approx(
        0.3 * (2 / 3) / 2
    )


@each_dimension
def test_history_is_complete_and_the_callback_sees_it_all(D):
    (s, _), seen = blobs(D), []
    fit = run(s, iterations=6, on_iteration=seen.append)
    assert tuple(seen) == fit.history
    assert [i.number for i in fit.history] == list(range(6))
    np.testing.assert_array_equal(fit.history[-1].poses, fit.poses)
    moments, log_likelihood = s.sweep().moments(fit.poses, fit.mixture)
    np.testing.assert_array_equal(fit.moments.mass, moments.mass)
    np.testing.assert_array_equal(fit.log_likelihood, log_likelihood)
    shorter = run(s, iterations=4)
    np.testing.assert_array_equal(shorter.poses, fit.history[3].poses)
    assert shorter.log_likelihood.sum() == fit.history[4].log_likelihood
    continued = run(
        replace(s, poses=shorter.poses, mixture=shorter.mixture),
        iterations=2,
        history=shorter.history,
    )
    assert [(i.number, i.log_likelihood, i.step) for i in continued.history] == [
        (i.number, i.log_likelihood, i.step) for i in fit.history
    ]


@each_dimension
def test_the_callback_may_stop(D):
    fit = run(blobs(D)[0], iterations=50, on_iteration=lambda i: i.number == 3)
    assert fit.status is Status.STOPPED
    assert len(fit.history) == 4
    np.testing.assert_array_equal(fit.history[-1].poses, fit.poses)


def test_no_iterations_is_an_e_step():
    s, _ = blobs(3)
    fit = run(s, iterations=0)
    assert fit.history == ()
    np.testing.assert_array_equal(fit.poses, s.poses)
    np.testing.assert_array_equal(fit.moments.mass, s.sweep().moments(s.poses, s.mixture)[0].mass)


@each_dimension
def test_a_step_too_long_is_rejected_and_an_exact_one_takes_its_place(D):
    """An accelerated run whose pose step overshoots: the likelihood still never falls."""
    s, _ = blobs(D)
    strides = []

    def overshoot(moments, poses, mixture, stride):
        strides.append(stride)
        new, motions = move(moments, poses, mixture, stride)
        if stride and len(strides) == 3:
            far = new.copy()
            far[0, 0, -1] += 5.0
            return far, far @ geometry.inverse(poses)
        return new, motions

    fit = run(s, move=overshoot, iterations=12, accelerated=True)
    assert 0.0 in strides
    likelihoods = [i.log_likelihood for i in fit.history]
    assert np.diff(likelihoods).min() >= -1e-9 * fit.moments.points.sum()
