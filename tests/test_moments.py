# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import random_poses

from coframe import geometry
from coframe.em.moments import Moments

cases = given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3]), st.booleans())


def moments_of(points, alpha, about, full):
    """By the definition: alpha (..., N, K), points (..., N, D)."""
    y = points[..., :, None, :] - about
    second = np.einsum("...nk,...nki,...nkj->...kij", alpha, y, y)
    return Moments(
        about,
        alpha.sum(-2),
        np.einsum("...nk,...nki->...ki", alpha, y),
        second if full else np.trace(second, axis1=-2, axis2=-1),
        np.full(alpha.shape[:-2], float(alpha.shape[-2])),
    )


def draw(seed, D, *clouds, N=9, K=4):
    """Points, posteriors (not quite summing to one: the rest is the uniform class) and centres."""
    rng = np.random.default_rng(seed)
    return (
        rng,
        rng.normal(size=(*clouds, N, D)),
        rng.dirichlet(np.ones(K + 1), size=(*clouds, N))[..., :K],
        rng.normal(size=(K, D)),
    )


def assert_same(a, b, tolerance=1e-12):
    np.testing.assert_array_equal(a.about, b.about)
    for name in ("mass", "first", "second", "points"):
        np.testing.assert_allclose(
            getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance, err_msg=name
        )


@cases
def test_sum_and_difference_are_those_of_the_points(seed, D, full):
    rng, points, alpha, about = draw(seed, D)
    head, tail = (
        moments_of(points[:4], alpha[:4], about, full),
        moments_of(points[4:], alpha[4:], rng.normal(size=about.shape), full),
    )
    whole = moments_of(points, alpha, about, full)
    assert_same(head + tail, whole)
    assert_same(whole - tail, head)
    assert whole.full is full
    assert float(whole.outlier_mass) == pytest.approx((1 - alpha.sum(1)).sum(), abs=1e-12)


@cases
def test_recentring_is_taking_the_sums_about_other_points(seed, D, full):
    rng, points, alpha, about = draw(seed, D, 3)
    elsewhere = rng.normal(size=about.shape)
    assert_same(
        moments_of(points, alpha, about, full).recentred(elsewhere),
        moments_of(points, alpha, elsewhere, full),
    )


@cases
def test_moving_the_moments_is_moving_the_points(seed, D, full):
    rng, points, alpha, about = draw(seed, D, 3)
    poses = random_poses(rng, 3, D)
    moved = np.array(
        [geometry.transform(pose, cloud) for pose, cloud in zip(poses, points, strict=True)]
    )
    stack = moments_of(points, alpha, about, full)
    assert_same(stack.moved(poses), moments_of(moved, alpha, about, full))
    assert_same(stack[1].moved(poses[1]), moments_of(moved[1], alpha[1], about, full))
    assert_same(stack.moved(poses).moved(geometry.inverse(poses)), stack)


@cases
def test_clouds_added_one_at_a_time_are_the_clouds_together(seed, D, full):
    """The incremental algorithm is the batch one, as long as the posteriors stay."""
    _, points, alpha, about = draw(seed, D, 4)
    stack = moments_of(points, alpha, about, full)
    grown = stack[0]
    for j in range(1, 4):
        grown = grown + stack[j]
    assert_same(grown, stack.pooled())
    assert_same(
        grown, moments_of(points.reshape(-1, D), alpha.reshape(-1, alpha.shape[-1]), about, full)
    )
    assert_same(grown - stack[2], stack[0] + stack[1] + stack[3])


@pytest.mark.parametrize("full", [False, True])
def test_nothing_cancels_far_from_the_origin(full):
    """The same small scene at UTM coordinates: second moments keep twelve digits, where raw sums of
    x^2 would keep three.
    """
    utm = np.array([500_000.0, 4_400_000.0, 100.0])
    _, points, alpha, about = draw(0, 3)
    # so that the shift itself is exact
    points, about = (
        np.round(points * 2**20) / 2**20,
        np.round(about * 2**20) / 2**20,
    )
    here, there = (
        moments_of(points, alpha, about, full),
        moments_of(points + utm, alpha, about + utm, full),
    )
    np.testing.assert_allclose(
        there.recentred(about + utm + 0.5).second, here.recentred(about + 0.5).second, rtol=1e-12
    )
