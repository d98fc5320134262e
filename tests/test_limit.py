# SPDX-License-Identifier: MIT
"""The limit of accuracy, against a box for which it can be written down."""

import numpy as np
import pytest
from scenes import random_poses

from coframe import InputError, geometry
from coframe.data import simulate
from coframe.evaluate import limit
from coframe.evaluate.limit import mean_length

SIGMA = 1e-3


def on_box(count, rng, D=3, sides=None):
    """Points, evenly over a box of side 1 about the origin (or some of its sides), and normals."""
    side = rng.choice(np.arange(2 * D) if sides is None else sides, count)
    axis, sign = side // 2, side % 2 * 2 - 1.0
    points = rng.uniform(-0.5, 0.5, (count, D))
    points[np.arange(count), axis] = sign / 2
    normals = np.zeros((count, D))
    normals[np.arange(count), axis] = sign
    return points, normals


def boxes(rng, counts, D=3, sides=None, sigma=SIGMA):
    """Noisy clouds of the box, in its frame, with true normals."""
    drawn = [on_box(count, rng, D, sides) for count in counts]
    clouds = [x + rng.normal(0, sigma, (len(x), 1)) * n for x, n in drawn]
    return clouds, [n for _, n in drawn], geometry.identity(len(counts), D)


def analytic(counts, D, cell, sigma=SIGMA):
    """Standard deviations of angle and shift of clouds 1, 2, ... relative to cloud 0, on a box.

    A twist (omega, tau) about the centre moves a point c of a side with normal n by
    h = (c x n) . omega + n . tau along the normal. N points are spread evenly over the box of
    side 1. In space a point on the side with normal e_x has c = (+-1/2, u, v), so c x n is
    +-(0, v, -u), with mean squares of u and v of 1/12. Four of the six sides have an arm about a
    given axis, two of six have a normal along it, and mixed terms cancel between opposite sides:

        sum (c x n)(c x n)^T = N 4/6 1/12 I = N/18 I,    sum n n^T = N 2/6 I = N/3 I

    In the plane all four sides have the arm u, and two of four the normal: N/12 and N/2.

    Height and tilt of the surface are unknown in every cell of m points, D parameters. If e_j
    marks the points of cloud j, in a cell where h is about constant the Schur complement of the
    cell's plane is h^2 e_j^T (I - Q Q^T) e_k. Points belong to clouds at random, with shares p_j,
    so its expectation is cov(e_j, e_k) times the trace of I - Q Q^T, which is m - D:

        H_jk = (p_j delta_jk - p_j p_k) (1 - D/m) N (1/18 or 1/3) / sigma^2

    Without cloud 0 the inverse of diag(p) - p p^T is diag(1/p) + 1 1^T / p_0, so the variance of
    each component is (1/p_j + 1/p_0) sigma^2 / ((1 - D/m) N (1/18 or 1/3)), and p_j N are the
    points of cloud j.
    """
    counts = np.array(counts)
    turn, move = (1 / 18, 1 / 3) if D == 3 else (1 / 12, 1 / 2)
    variance = sigma**2 * (1 / counts[1:] + 1 / counts[0]) / (1 - D / cell)
    axes = geometry.degrees_of_freedom(D) - D
    return np.sqrt(axes * variance / turn), np.sqrt(D * variance / move)


@pytest.mark.parametrize("D", [2, 3])
@pytest.mark.parametrize("counts", [(9000, 9000), (12000, 4000, 8000)])
@pytest.mark.parametrize("cell", [12, 24])
def test_box_has_the_limit_that_can_be_written_down(D, counts, cell) -> None:
    rng = np.random.default_rng(0)
    clouds, normals, poses = boxes(rng, counts, D)
    found = limit(clouds, poses, sigma=SIGMA, normals=normals, cell=cell, rng=rng)
    angles, shifts = analytic(counts, D, cell)
    np.testing.assert_allclose(found.angles[1:], angles, rtol=0.08)
    np.testing.assert_allclose(found.shifts[1:], shifts, rtol=0.08)
    assert found.angles[0] == found.shifts[0] == 0


def test_without_normals_on_a_clean_box() -> None:
    rng = np.random.default_rng(1)
    clouds, _, poses = boxes(rng, (9000, 9000))
    found = limit(clouds, poses, sigma=SIGMA, rng=rng)
    angles, shifts = analytic((9000, 9000), 3, 16)
    np.testing.assert_allclose(found.angles[1:], angles, rtol=0.1)
    np.testing.assert_allclose(found.shifts[1:], shifts, rtol=0.1)
    # Where noise hides the surface the limit is no good, and says so.
    noisy, _, _ = boxes(rng, (9000, 9000), sigma=0.05)
    assert found.rejected < 0.1
    assert limit(noisy, poses, sigma=0.05, rng=rng).rejected > 0.5


def test_mean_of_the_errors() -> None:
    """Where errors are alike in all directions the mean length is 0.921 of the deviation."""
    rng = np.random.default_rng(2)
    clouds, normals, poses = boxes(rng, (6000, 6000, 6000))
    found = limit(clouds, poses, sigma=SIGMA, normals=normals, rng=rng)
    np.testing.assert_allclose(found.angle, 0.9213 * found.angles[1:].mean(), rtol=2e-3)
    np.testing.assert_allclose(found.shift, 0.9213 * found.shifts[1:].mean(), rtol=2e-3)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_mean_length_is_that_of_drawn_errors(d) -> None:
    rng = np.random.default_rng(d)
    A = rng.normal(size=(d, d)) * [1, 10, 0.1][:d]
    drawn = np.linalg.norm(rng.normal(size=(200_000, d)) @ A.T, axis=1)
    error = drawn.std() / np.sqrt(len(drawn))
    assert abs(mean_length(A @ A.T) - drawn.mean()) < 4 * error
    assert mean_length(np.full((d, d), np.inf)) == np.inf


@pytest.mark.parametrize("D", [2, 3])
def test_scales_with_noise_and_points(D) -> None:
    rng = np.random.default_rng(3)
    clouds, normals, poses = boxes(rng, (8000, 8000), D)
    few = [np.arange(0, 8000, 4)] * 2

    def found(sigma, rows=(slice(None),) * 2):
        return limit(
            [c[r] for c, r in zip(clouds, rows, strict=True)],
            poses,
            sigma=sigma,
            normals=[n[r] for n, r in zip(normals, rows, strict=True)],
            rng=np.random.default_rng(0),
        )

    once, thrice = found(SIGMA), found(3 * SIGMA)
    np.testing.assert_allclose(thrice.angles, 3 * once.angles, rtol=1e-9)
    np.testing.assert_allclose(thrice.covariance, 9 * once.covariance, rtol=1e-9)
    quarter = found(SIGMA, few)
    np.testing.assert_allclose(quarter.angle, 2 * once.angle, rtol=0.08)
    np.testing.assert_allclose(quarter.shift, 2 * once.shift, rtol=0.08)


@pytest.mark.parametrize("D", [2, 3])
def test_does_not_change_when_everything_is_moved(D) -> None:
    rng = np.random.default_rng(4)
    clouds, normals, _ = boxes(rng, (5000, 4000, 3000), D)
    poses = random_poses(rng, 3, D)
    own = [geometry.transform(geometry.inverse(T), c) for T, c in zip(poses, clouds, strict=True)]
    turned = [n @ geometry.rotation(T) for T, n in zip(poses, normals, strict=True)]
    far = geometry.pose(geometry.random_rotation(rng, D), np.full(D, 1e6)) @ poses
    here = limit(own, poses, sigma=SIGMA, normals=turned, rng=np.random.default_rng(0))
    there = limit(own, far, sigma=SIGMA, normals=turned, rng=np.random.default_rng(0))
    # Other cuts between cells are other samples of the same surface.
    np.testing.assert_allclose(there.angles, here.angles, rtol=0.02)
    np.testing.assert_allclose(there.shifts, here.shifts, rtol=0.02)


def test_noise_of_clouds_and_of_points() -> None:
    """Points of infinite noise might as well not be there, and a cloud's noise is its points'."""
    rng = np.random.default_rng(5)
    clouds, normals, poses = boxes(rng, (6000, 6000))
    found = {
        name: limit(clouds, poses, sigma=sigma, normals=normals, rng=np.random.default_rng(0))
        for name, sigma in {
            "clouds": [SIGMA, 2 * SIGMA],
            "points": [np.full(6000, SIGMA), np.full(6000, 2 * SIGMA)],
            "half": [SIGMA, np.where(np.arange(6000) % 2, SIGMA, 1e6)],
        }.items()
    }
    np.testing.assert_allclose(found["clouds"].covariance, found["points"].covariance)
    half = limit(
        [clouds[0], clouds[1][1::2]],
        poses,
        sigma=SIGMA,
        normals=[normals[0], normals[1][1::2]],
        cell=12,  # as many of the points that count
        rng=rng,
    )
    np.testing.assert_allclose(found["half"].angle, half.angle, rtol=0.06)


def test_a_cloud_apart_is_infinitely_uncertain() -> None:
    rng = np.random.default_rng(6)
    clouds, normals, poses = boxes(rng, (3000, 3000, 3000, 3000))
    poses[2, 0, 3] = poses[3, 0, 3] = 100  # two clouds on another box, far away
    found = limit(clouds, poses, sigma=SIGMA, normals=normals, rng=rng)
    assert np.isfinite(found.angles).tolist() == [True, True, False, False]
    assert np.isfinite(found.shifts).tolist() == [True, True, False, False]
    assert found.angle == found.shift == np.inf
    assert np.isfinite(found.covariance[:6, :6]).all()
    assert np.isinf(np.diag(found.covariance)[6:]).all()
    assert not np.isnan(found.covariance).any()
    apart = limit(clouds[::2], poses[::2], sigma=SIGMA, normals=normals[::2], rng=rng)
    assert apart.angle == apart.shift == np.inf
    assert apart.cells == 0


def test_motions_that_the_surface_does_not_resist() -> None:
    """Along a corridor clouds slide; on one plane they turn about its normal, too."""
    rng = np.random.default_rng(7)
    clouds, normals, poses = boxes(rng, (3000, 3000), sides=[0, 1, 2, 3])
    corridor = limit(clouds, poses, sigma=SIGMA, normals=normals, rng=rng)
    assert np.isinf(np.diag(corridor.covariance)).tolist() == [False] * 5 + [True]
    assert np.isfinite(corridor.angle)
    assert corridor.shift == np.inf
    clouds, normals, poses = boxes(rng, (3000, 3000), sides=[0])
    plane = limit(clouds, poses, sigma=SIGMA, normals=normals, rng=rng)
    assert plane.angle == plane.shift == np.inf


def test_points_on_no_surface_are_left_out() -> None:
    rng = np.random.default_rng(8)
    clouds, normals, poses = boxes(rng, (6000, 6000))
    clean = limit(clouds, poses, sigma=SIGMA, normals=normals, rng=rng)
    clutter = rng.uniform(-1, 1, (4000, 3))
    with_clutter = limit(
        [np.concatenate([c, clutter]) for c in clouds],
        poses,
        sigma=SIGMA,
        normals=[np.concatenate([n, np.zeros((4000, 3))]) for n in normals],
        rng=rng,
    )
    np.testing.assert_allclose(with_clutter.angle, clean.angle, rtol=0.03)
    assert with_clutter.rejected < 0.1


@pytest.mark.parametrize("D", [2, 3])
def test_an_efficient_estimator_reaches_it(D) -> None:
    """Least squares for poses, and for the sides' heights and tilts, on 1,000 draws of the noise.

    The sides are flat throughout, which the estimator knows: cells are large, so that not knowing
    it costs the limit little.
    """
    rng = np.random.default_rng(9)
    count, cell, P = 5000, 48, geometry.degrees_of_freedom(D)
    drawn = [on_box(count, rng, D) for _ in range(2)]
    x, n = (np.concatenate(part) for part in zip(*drawn, strict=True))
    second = np.repeat([0.0, 1.0], count)
    J = np.einsum("kd,kdp->kp", n, geometry.levers(x)) * second[:, None]
    side = (n @ np.arange(1, D + 1)).astype(int)
    planes = [
        column * (side == s)
        for s in np.unique(side)
        for column in (np.ones(len(x)), *np.delete(x, abs(s) - 1, 1).T)
    ]
    A = np.concatenate([J, np.stack(planes, 1)], 1)
    errors = (np.linalg.pinv(A) @ rng.normal(0, SIGMA, (len(x), 1000)))[:P]
    clouds, normals = [c for c, _ in drawn], [m for _, m in drawn]
    best = limit(clouds, geometry.identity(2, D), sigma=SIGMA, normals=normals, cell=cell, rng=rng)
    turns = np.linalg.norm(errors[: P - D], axis=0)
    moves = np.linalg.norm(errors[P - D :], axis=0)
    assert abs(turns.mean() / best.angle - 1) < 0.1
    assert abs(moves.mean() / best.shift - 1) < 0.1
    # The whole covariance, centre of the box or not: squared errors over it are chi squared.
    centred = geometry.lever(best.centre) @ errors
    squares = (centred * np.linalg.solve(best.covariance, centred)).sum(0)
    assert abs(squares.mean() / P - 1) < 0.15


def test_agrees_with_an_independent_program() -> None:
    """Expected: another implementation of the same formula, run on the same scene, which averages
    lengths as if all directions were alike.
    """
    s = simulate.scene(4, 2000, degrees=90.0, noise_db=50.0, rng=np.random.default_rng(0))
    sigma = float(np.sqrt(s.noise_variances.mean()))
    found = limit(s.clouds, s.poses, sigma=sigma, rng=np.random.default_rng(0))
    np.testing.assert_allclose(found.angle, 2.74e-4, rtol=0.04)
    np.testing.assert_allclose(found.shift, 8.09e-5, rtol=0.04)


def test_input_that_makes_no_sense() -> None:
    rng = np.random.default_rng(10)
    clouds, _, poses = boxes(rng, (100, 100))
    with pytest.raises(InputError, match="two clouds"):
        limit(clouds[:1], poses[:1], sigma=SIGMA, rng=rng)
    with pytest.raises(InputError, match="above 0"):
        limit(clouds, poses, sigma=[SIGMA, 0.0], rng=rng)
    with pytest.raises(InputError, match="one for each of 2 clouds"):
        limit(clouds, poses, sigma=[SIGMA] * 3, rng=rng)
    with pytest.raises(InputError, match="more than 4 points"):
        limit(clouds, poses, sigma=SIGMA, cell=4, rng=rng)
    few = [c[:5] for c in clouds]
    assert limit(few, poses, sigma=SIGMA, rng=rng).angle == np.inf
