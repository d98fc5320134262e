# SPDX-License-Identifier: MIT
"""Errors are the same in every gauge, and are what they say."""

import numpy as np
import pytest

from coframe import geometry, metrics

rng = np.random.default_rng(0)


def random_poses(M: int, D: int) -> np.ndarray:
    return np.array([geometry.pose(geometry.random_rotation(rng, D), rng.normal(size=D)) for _ in range(M)])


@pytest.mark.parametrize("D", [2, 3])
def test_a_common_motion_is_no_error(D: int) -> None:
    truth = random_poses(4, D)
    poses = random_poses(1, D) @ truth
    np.testing.assert_allclose(metrics.rotation_errors(poses, truth), 0, atol=1e-10)
    np.testing.assert_allclose(metrics.translation_errors(poses, truth), 0, atol=1e-12)


@pytest.mark.parametrize(("D", "axis"), [(2, [1.0]), (3, [0.6, 0.0, 0.8])])
def test_a_known_error(D: int, axis: list[float]) -> None:
    truth = random_poses(3, D)
    wrong = truth.copy()
    wrong[2] = truth[2] @ geometry.pose(geometry.exp_rotation(np.radians(2.5) * np.array(axis)), np.full(D, 0.3))
    np.testing.assert_allclose(metrics.rotation_errors(wrong, truth), [0, 0, 2.5], atol=1e-9)
    np.testing.assert_allclose(metrics.translation_errors(wrong, truth), [0, 0, 0.3 * np.sqrt(D)], atol=1e-12)
    np.testing.assert_allclose(metrics.rotation_errors(wrong, truth, reference=2), [2.5, 2.5, 0], atol=1e-9)
