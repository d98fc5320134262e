# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from coframe.em import joint_kernels, kernels
from coframe.em.kernels import exp2


@njit
def _powers(x, out):
    for i in range(len(x)):
        out[i] = exp2(x[i])


def test_exp2_is_accurate_over_its_whole_range():
    rng, reach = np.random.default_rng(0), 1000
    # integers, and the seams where one power hands over to the next
    halves = np.arange(-reach, reach + 0.5, 0.5)
    x = np.concatenate([rng.uniform(-reach, reach, 200_000), rng.normal(size=50_000), halves])
    out = np.empty_like(x)
    _powers(x, out)
    assert np.abs(out / np.exp2(x) - 1).max() < 1e-15
    _powers(np.full(3, -1e6), out[:3])
    # below its range it stays at the smallest value, and never wraps around
    assert (out[:3] == np.exp2(-float(reach))).all()


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 3]),
    st.integers(1, 300),
    st.sampled_from(["cloud", "duplicates", "grid"]),
)
def test_kd_order_is_a_permutation_with_split_blocks(seed, D, N, kind):
    rng = np.random.default_rng(seed)
    points = {
        "cloud": rng.normal(size=(N, D)),
        "duplicates": np.repeat(rng.normal(size=(1, D)), N, 0),
        "grid": rng.integers(0, 3, (N, D)).astype(float),
    }[kind]
    order = kernels.kd_order(points, kernels.LEAF)
    np.testing.assert_array_equal(np.sort(order), np.arange(N))
    _assert_split(points[order])


def _assert_split(points):
    """The first split of the tree: a multiple of LEAF points on the low side, across the longest
    side of the box.
    """
    if len(points) <= kernels.LEAF:
        return
    axis = np.ptp(points, axis=0).argmax()
    splits = range(kernels.LEAF, len(points), kernels.LEAF)
    assert any(points[:s, axis].max() <= points[s:, axis].min() for s in splits)


def test_kd_blocks_are_compact():
    """Uniform points: blocks come near the ideal cubes of their volume, where unsorted ones span
    the whole cube.
    """
    points = np.random.default_rng(0).random((64 * kernels.LEAF, 3))
    diagonals = np.linalg.norm(
        np.ptp(points[kernels.kd_order(points, kernels.LEAF)].reshape(64, kernels.LEAF, 3), axis=1),
        axis=1,
    )
    ideal = np.sqrt(3) / 4
    assert diagonals.max() < 1.6 * ideal
    assert diagonals.mean() < 1.1 * ideal


def test_invert_agrees_with_numpy():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 3, 3))
    A = A @ np.swapaxes(A, 1, 2) + 0.1 * np.eye(3)
    A *= 10.0 ** rng.uniform(-12, 12, (200, 1, 1))
    inverse = np.empty_like(A)
    log_det, bad = joint_kernels.invert(A, inverse)
    assert bad == -1
    np.testing.assert_allclose(inverse @ A, np.broadcast_to(np.eye(3), A.shape), atol=1e-10)
    np.testing.assert_allclose(inverse, np.linalg.inv(A), rtol=1e-9, atol=0)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(A)[1], rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(
    "matrix",
    [
        np.diag([1.0, 1.0, 0.0]),
        np.diag([1.0, -1.0, 1.0]),
        np.diag([0.0, 1, 1]),
        np.full((3, 3), np.nan),
        np.eye(3) - 0.9 * (1 - np.eye(3)),
    ],
    ids=["flat", "negative", "flat in x", "nan", "indefinite"],
)
def test_invert_reports_what_is_not_positive_definite(matrix):
    A = np.stack([np.eye(3), np.eye(3), matrix, matrix])
    _, bad = joint_kernels.invert(A, np.empty_like(A))
    assert bad == 2
