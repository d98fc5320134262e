# SPDX-License-Identifier: MIT
"""What is wrong with the input of `register` is said in one line, before any work."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scenes import unchecked

import coframe
from coframe import Options, PosePrior, geometry
from coframe.data import simulate
from coframe.evaluate import metrics
from coframe.io import ply

QUICK = Options(components=20, points=100, iterations=2)
SMALL = [np.random.default_rng(j).normal(size=(30, 3)) for j in range(3)]
IDENTITY = geometry.identity(3, 3)
NUMBERS = st.floats(-2, 2).map(lambda x: round(x, 3))
NOT_ARRAYS = st.sampled_from(
    ["abc", 7, object(), [None] * 3, [[1.0], [2.0, 3.0], []], {}, [object()] * 3, "xyz"]
)


def accepted(*arguments: Any) -> None:
    raise AssertionError("wrong input was accepted")


def refused(argument: str, value: Any) -> None:
    work = {"options": QUICK, "on_pair": accepted, "on_progress": accepted}
    with unchecked(), pytest.raises(coframe.InputError, match=argument) as caught:
        coframe.register(SMALL, **(work | {argument: value}))
    assert "\n" not in str(caught.value)
    assert "expected" in str(caught.value)
    assert "found" in str(caught.value)


def spoilt(array: np.ndarray, values: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    """The array with one entry replaced."""

    def replaced(index: int, value: float) -> np.ndarray:
        copy = array.copy()
        copy.flat[index] = value
        return copy

    return st.builds(replaced, st.integers(0, array.size - 1), values)


BAD = st.sampled_from([np.nan, np.inf, -np.inf])
WRONG_SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5).filter(
    lambda shape: shape != (3, 4, 4)
)


@given(st.one_of(hnp.arrays(float, WRONG_SHAPES, elements=NUMBERS), spoilt(IDENTITY, BAD)))
def test_wrong_poses(poses: np.ndarray) -> None:
    refused("poses", poses)


@given(hnp.arrays(float, (3, 4, 4), elements=st.floats(1.5, 3)))
def test_poses_that_are_not_rigid(poses: np.ndarray) -> None:
    refused("poses", poses)


@given(NOT_ARRAYS.filter(lambda value: value != {}))
def test_poses_that_are_no_arrays(poses: Any) -> None:
    refused("poses", poses)


@given(
    st.integers(0, 2),
    hnp.arrays(float, 4, elements=NUMBERS).filter(
        lambda row: not np.array_equal(row, [0, 0, 0, 1])
    ),
)
def test_poses_with_a_wrong_last_row(cloud: int, row: np.ndarray) -> None:
    poses = IDENTITY.copy()
    poses[cloud, 3] = row
    refused("poses", poses)


@given(
    st.one_of(
        st.lists(st.just(np.ones(30)), max_size=5).filter(lambda weights: len(weights) != 3),
        hnp.array_shapes(max_dims=3, max_side=31)
        .filter(lambda shape: shape != (30,))
        .map(lambda shape: [np.ones(30), np.ones(30), np.ones(shape)]),
        spoilt(np.ones((3, 30)), st.one_of(BAD, st.floats(-5, -1e-6))).map(list),
        st.just([np.ones(30), np.zeros(30), np.ones(30)]),
    )
)
def test_wrong_weights(weights: list[np.ndarray]) -> None:
    refused("weights", weights)


@given(NOT_ARRAYS)
def test_weights_that_are_no_arrays(weights: Any) -> None:
    refused("weights", weights)


@given(
    st.lists(st.integers(-9, 9), min_size=1).filter(
        lambda clouds: not all(0 <= j < 3 for j in clouds)
    )
)
def test_wrong_fixed_clouds(fixed: list[int]) -> None:
    refused("fixed", fixed)


@given(
    st.sampled_from(
        [0, None, "ab", [0.5], [None], ["a"], [np.nan], [[0]], np.array([True, False, False])]
    )
)
def test_fixed_that_is_no_list_of_clouds(fixed: Any) -> None:
    refused("fixed", fixed)


@given(st.integers(-9, 9).filter(lambda j: not 0 <= j < 3))
def test_priors_of_clouds_that_are_not_there(cloud: int) -> None:
    refused("priors", [PosePrior(cloud, np.eye(4), np.eye(6))])


@given(
    st.one_of(
        st.sampled_from([None, 0, "ab", [None], [0], [(0, np.eye(4), np.eye(6))]]),
        st.builds(
            lambda pose, covariance: [(pose, covariance)],
            st.one_of(
                hnp.arrays(float, hnp.array_shapes(max_side=4, min_dims=2, max_dims=2)),
                spoilt(np.eye(4), BAD),
            ),
            st.just(np.eye(6)),
        ),
        st.builds(
            lambda covariance: [(np.eye(4), covariance)],
            st.one_of(
                hnp.arrays(float, hnp.array_shapes(max_side=5, min_dims=2, max_dims=2)),
                spoilt(np.eye(6), st.just(np.nan)),
                st.integers(0, 5).map(lambda i: np.eye(6) - 2 * np.diag(np.eye(6)[i])),
                st.just(np.zeros((6, 6))),
            ),
        ),
    )
)
def test_wrong_priors(priors: Any) -> None:
    with unchecked():
        if isinstance(priors, list) and isinstance(priors[0], tuple) and len(priors[0]) == 2:
            priors = [PosePrior(0, *priors[0])]
        refused("priors", priors)


@pytest.mark.parametrize(
    ("name", "value"), [("components", 0), ("points", -1), ("iterations", 0), ("motion", "fly")]
)
def test_wrong_options(name: str, value: Any) -> None:
    with unchecked(), pytest.raises(coframe.InputError, match=f"{name}: expected .* found"):
        Options(**{name: value})


@given(
    st.sampled_from(
        [
            *[
                ("components", 1.5),
                ("points", "many"),
                ("iterations", None),
                ("tolerance", np.nan),
                ("tolerance", -1.0),
            ],
            *[
                ("tolerance", "x"),
                ("seed", -1),
                ("seed", "x"),
                ("seed", 0.5),
                ("threads", 0),
                ("threads", 1.5),
            ],
        ]
    )
)
def test_options_of_the_wrong_kind(option: tuple[str, Any]) -> None:
    name, value = option
    with unchecked(), pytest.raises(coframe.InputError, match=name):
        Options(**{name: value})


@given(st.sampled_from([None, {}, {"components": 20}, "fast"]))
def test_options_that_are_none(options: Any) -> None:
    refused("options", options)


def test_files_keep_the_order_in_which_they_are_given(tmp_path: Path) -> None:
    """Poses, weights and names are in that order, too."""
    scene = simulate.scene(3, 300, degrees=60.0, noise_db=50.0, rng=np.random.default_rng(1))
    order = [2, 0, 1]
    for j, cloud in enumerate(scene.clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    files = [tmp_path / f"scan{j}.ply" for j in order]
    result = coframe.register(files, scene.poses[order])
    assert result.names == ("scan2", "scan0", "scan1")
    assert result.files == tuple(map(str, files))
    assert metrics.rotation_errors(result.poses, scene.poses[order]).max() < 1
    assert all(verdict.verdict == "aligned" for verdict in result.verdicts)
