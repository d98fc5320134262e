# SPDX-License-Identifier: MIT
"""Nearest points: the same as scipy finds, to the last bit."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from coframe.nearest import Nearest


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 3000])
@pytest.mark.parametrize("within", [np.inf, 0.2])
def test_they_are_those_of_scipy(dimension: int, count: int, within: float) -> None:
    rng = np.random.default_rng(0)
    points, x = rng.normal(size=(count, dimension)), 2 * rng.normal(size=(500, dimension))
    points[count // 2 :] = points[: count - count // 2]  # twice each
    tree = cKDTree(points)
    distances, rows = tree.query(x, distance_upper_bound=within)
    found, where = Nearest.of(tree).query(x, within)
    near = np.isfinite(distances)
    np.testing.assert_array_equal(found, distances)
    np.testing.assert_array_equal(where[near], rows[near])


def test_nothing_is_nearer_than_nothing() -> None:
    points = np.zeros((3, 3))
    assert np.isinf(Nearest.of(cKDTree(points)).query(points, 0.0)[0]).all()


def test_no_question_has_no_answer() -> None:
    distances, rows = Nearest.of(cKDTree(np.zeros((3, 2)))).query(np.empty((0, 2)))
    assert len(distances) == len(rows) == 0
