# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import random_poses

from coframe import geometry

seeds = st.integers(0, 2**32 - 1)
dimensions = st.sampled_from([2, 3])
angles = st.one_of(
    st.floats(0, np.pi),
    st.floats(-150, 0).map(lambda e: 10.0**e),
    st.floats(-15, -1).map(lambda e: np.pi - 10.0**e),
)


def turn_of(rng, D, angle):
    """A rotation vector of this length."""
    axis = rng.normal(size=1 if D == 2 else 3)
    return angle * axis / np.linalg.norm(axis)


def cost(pose, source, target, weights):
    return (weights * ((geometry.transform(pose, source) - target) ** 2).sum(1)).sum()


def assert_rotation(R, atol=1e-14):
    np.testing.assert_allclose(
        R @ np.swapaxes(R, -1, -2), np.broadcast_to(np.eye(R.shape[-1]), R.shape), atol=atol
    )
    np.testing.assert_allclose(np.linalg.det(R), 1, atol=atol)


@given(seeds, dimensions, angles)
def test_log_undoes_exp(seed, D, angle):
    rng = np.random.default_rng(seed)
    omega = turn_of(rng, D, angle)
    R = geometry.exp_rotation(omega)
    assert_rotation(R)
    assert geometry.angle(R) == pytest.approx(angle, rel=1e-12, abs=1e-200)
    np.testing.assert_allclose(geometry.exp_rotation(geometry.log_rotation(R)), R, atol=1e-14)
    if angle < np.pi - 1e-7:  # at pi itself, both directions of the axis are right
        np.testing.assert_allclose(geometry.log_rotation(R), omega, rtol=1e-12, atol=1e-15 * angle)
    twist = np.concatenate([omega * min(1, 3 / (angle + 1e-300)), rng.normal(size=D)])
    np.testing.assert_allclose(geometry.log(geometry.exp(twist)), twist, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("angle", [0.0, 1e-200, 1e-8, 1.0, np.pi - 1e-8, np.pi])
def test_rotation_about_z_is_the_plane_rotation(angle):
    flat, space = (
        geometry.exp_rotation(np.array([angle])),
        geometry.exp_rotation(np.array([0, 0, angle])),
    )
    np.testing.assert_allclose(space[:2, :2], flat, atol=1e-15)
    np.testing.assert_allclose(flat @ [1, 0], [np.cos(angle), np.sin(angle)], atol=1e-15)


@given(seeds, dimensions)
def test_poses_compose_and_invert(seed, D):
    rng = np.random.default_rng(seed)
    (A, B), points = random_poses(rng, 2, D), rng.normal(size=(5, D))
    np.testing.assert_allclose(
        geometry.transform(A, points)[0], A[:D, :D] @ points[0] + A[:D, D], atol=1e-14
    )
    np.testing.assert_allclose(
        geometry.transform(A, geometry.transform(B, points)),
        geometry.transform(A @ B, points),
        atol=1e-13,
    )
    np.testing.assert_allclose(geometry.inverse(A) @ A, np.eye(D + 1), atol=1e-14)
    np.testing.assert_array_equal(geometry.inverse(np.stack([A, B]))[1], geometry.inverse(B))


@given(seeds, dimensions, st.floats(0, 180))
def test_random_rotations_stay_within_their_angle(seed, D, degrees):
    R = geometry.random_rotation(np.random.default_rng(seed), D, degrees)
    assert_rotation(R)
    assert geometry.angle(R) <= np.radians(degrees) * (1 + 1e-12)


@given(seeds, dimensions, st.sampled_from(["whole", "planar"]))
def test_procrustes_recovers_a_motion(seed, D, shape):
    rng = np.random.default_rng(seed)
    truth = random_poses(rng, 1, D, shift=10)[0]
    source = rng.normal(size=(D + 3, D)) * ([1] * (D - 1) + [1 if shape == "whole" else 0])
    found = geometry.procrustes(
        source, geometry.transform(truth, source), rng.uniform(0.1, 10, D + 3)
    )
    if shape == "planar" and D == 2:  # points on a line leave no freedom in the plane
        np.testing.assert_allclose(found, truth, atol=1e-10)
    np.testing.assert_allclose(found, truth, atol=1e-8)
    assert_rotation(found[:D, :D])


@given(seeds, dimensions, st.sampled_from([1.0, 0.0]))
def test_procrustes_never_reflects_and_is_optimal(seed, D, thickness):
    """Even for a mirrored target, even for a flat one: a rotation, and none nearby fits better."""
    rng = np.random.default_rng(seed)
    source, weights = rng.normal(size=(8, D)), rng.uniform(0, 2, 8)
    source[:, -1] *= thickness
    mirror = np.diag([1.0] * (D - 1) + [-1.0])
    target = geometry.transform(
        random_poses(rng, 1, D)[0], source @ mirror + 0.1 * rng.normal(size=(8, D))
    )
    best = geometry.procrustes(source, target, weights)
    assert_rotation(best[:D, :D])
    least = cost(best, source, target, weights)
    for size in (1e-3, 1e-1, 2.0):
        for _ in range(5):
            centred = geometry.exp(rng.normal(scale=size, size=geometry.degrees_of_freedom(D)))
            assert cost(best @ centred, source, target, weights) >= least * (1 - 1e-12)


@given(seeds, dimensions)
def test_procrustes_respects_weights(seed, D):
    rng = np.random.default_rng(seed)
    source, target = rng.normal(size=(2, 7, D))
    times = rng.integers(0, 4, 7)
    times[: D + 1] += 1
    weighted = geometry.procrustes(source, target, times * 0.3)
    repeated = geometry.procrustes(
        np.repeat(source, times, 0), np.repeat(target, times, 0), np.ones(times.sum())
    )
    np.testing.assert_allclose(weighted, repeated, atol=1e-9)


@pytest.mark.parametrize("D", [2, 3])
def test_procrustes_of_a_stack_is_that_of_each(D):
    rng = np.random.default_rng(D)
    source, target, weights = (
        rng.normal(size=(4, 9, D)),
        rng.normal(size=(9, D)),
        rng.random((4, 9)),
    )
    each = [geometry.procrustes(s, target, w) for s, w in zip(source, weights, strict=True)]
    np.testing.assert_allclose(geometry.procrustes(source, target, weights), each, atol=1e-13)


@pytest.mark.parametrize("D", [2, 3])
def test_the_nearest_rotation_is_one_to_rounding(D: int) -> None:
    """Survey coordinates magnify whatever is missing."""
    R = geometry.nearest_rotation(np.random.default_rng(0).normal(size=(1000, D, D)))
    eps = np.finfo(float).eps
    np.testing.assert_allclose(R @ R.swapaxes(1, 2) - np.eye(D), 0, atol=2 * eps)
    np.testing.assert_allclose(np.linalg.det(R), 1, rtol=0, atol=4 * eps)
