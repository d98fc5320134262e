# SPDX-License-Identifier: MIT
"""A cloud in a file is the same cloud, to the last bit, however large the blocks it is read in."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coframe import geometry
from coframe.data import simulate
from coframe.em.mixture import Mixture
from coframe.input import source
from coframe.input.normalise import Normalisation, Summary
from coframe.input.quantiles import order_statistics
from coframe.input.source import InMemory, OnDisk
from coframe.io import ply
from coframe.result import labels, merged
from coframe.result.labels import CloudView
from coframe.start import features

ROWS = 64  # of a block


def in_blocks(cloud: InMemory, path: Path) -> OnDisk:
    """The cloud in a file, written and read in small blocks."""
    return replace(OnDisk.write(path, replace(cloud, rows=ROWS).blocks()), rows=ROWS)


@pytest.fixture
def cloud() -> InMemory:
    rng = np.random.default_rng(0)
    points = simulate.shape(1001, rng).points
    return InMemory(
        points, columns={"red": rng.integers(0, 256, 1001, np.uint8), "time": rng.random(1001)}
    )


@pytest.fixture
def stored(cloud: InMemory, tmp_path: Path) -> OnDisk:
    return in_blocks(cloud, tmp_path / "cloud")


numbers = st.floats(-10, 10) | st.sampled_from([0.0, 1.0, 5e-324, -1e300, 1e300])


@given(st.lists(numbers, min_size=1, max_size=150), st.integers(1, 40))
def test_order_statistics_of_blocks_are_those_of_the_sorted_whole(
    values: list[float], rows: int
) -> None:
    table = np.array([values, values[::-1], np.abs(values)]).T
    ranks = [0, len(values) // 3, len(values) // 3, len(values) - 1]
    found = order_statistics(
        lambda: (table[i : i + rows] for i in range(0, len(table), rows)), ranks
    )
    np.testing.assert_array_equal(found, np.sort(table, axis=0)[ranks])


@pytest.mark.parametrize("count", [4, 5, 99, 100, 101, 1000, 1001])
@pytest.mark.parametrize("D", [2, 3])
def test_the_summary_of_a_file_has_the_bits_of_that_of_an_array(
    count: int, D: int, tmp_path: Path
) -> None:
    points = np.random.default_rng(count).normal(size=(count, D)) + 1e4
    points[::7] = points[0]
    loaded = InMemory(points)
    one, other = Summary.of(loaded), Summary.of(in_blocks(loaded, tmp_path / "cloud"))
    assert (one.size, one.count, one.extent) == (other.size, other.count, other.extent)
    for name in ("median", "low", "high"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_points_of_weight_zero_do_not_count() -> None:
    points = np.random.default_rng(0).normal(size=(200, 3))
    weights = np.where(points[:, 0] > 0, 2.0, 0.0)
    summary = Summary.of(InMemory(points, weights))
    assert summary.size == 200
    assert summary.count == (points[:, 0] > 0).sum()
    np.testing.assert_array_equal(summary.median, np.median(points[points[:, 0] > 0], axis=0))


@pytest.mark.parametrize(
    "rows", [np.array([1000, 3, 3, 64]), slice(None), slice(10, 90), slice(5, None, 70)]
)
def test_rows_of_a_file(rows: source.Rows, cloud: InMemory, stored: OnDisk) -> None:
    some, same = cloud.take(rows), stored.take(rows)
    np.testing.assert_array_equal(same.points, some.points)
    for name, column in some.columns.items():
        assert same.columns[name].dtype == column.dtype
        np.testing.assert_array_equal(same.columns[name], column)


def test_a_file_is_thinned_as_an_array_is(cloud: InMemory, stored: OnDisk) -> None:
    summary = Summary.of(stored)
    by_blocks = (
        features.thin(stored, summary, 0.1),
        features.reach(stored, summary),
        features.touched(stored, summary, 0.1),
    )
    np.testing.assert_array_equal(by_blocks[0], features.thin(cloud, summary, 0.1))
    assert by_blocks[1:] == (features.reach(cloud, summary), features.touched(cloud, summary, 0.1))
    centred = cloud.points - np.median(cloud.points, axis=0)
    cells, index = np.unique(np.floor(centred / 0.1), axis=0, return_inverse=True)
    means = np.array([centred[index == i].mean(0) for i in range(len(cells))])
    np.testing.assert_allclose(by_blocks[0], means, atol=1e-15)


def test_what_is_written_of_a_file_is_what_is_known_of_the_array(
    cloud: InMemory, stored: OnDisk, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    mixture = Mixture.spheres(
        rng.uniform(-0.5, 0.5, (20, 3)), np.full(20, 0.01), np.full(20, 0.045), 0.3
    )
    view = CloudView(
        Normalisation(np.array([[0.1, 0.0, -0.1]]), 2.0),
        geometry.exp(rng.normal(size=6) / 4),
        None,
        first=100,
    )
    row = merged.row_of([{name: column.dtype for name, column in cloud.columns.items()}], 3)
    pose = geometry.exp(rng.normal(size=6))
    target = labels.Target(merged.part(tmp_path, 7), row, 7, pose)
    # in the same blocks: where they begin shows in the last bits of a point's class
    whole = labels.label_points(replace(cloud, rows=ROWS), view, mixture)
    assert 0.05 < (whole.labels < 0).mean() < 0.95
    some = labels.write_points(stored, view, target, mixture, 100)
    np.testing.assert_array_equal(some.points, cloud.points[::11])
    np.testing.assert_array_equal(some.labels, whole.labels[::11])
    np.testing.assert_array_equal(some.outlier_probability, whole.outlier_probability[::11])
    np.testing.assert_array_equal(some.columns["red"], cloud.columns["red"][::11])
    vertices = ply.read(target.path)
    assert (vertices["cloud"] == 7).all()
    np.testing.assert_array_equal(vertices["component"], whole.labels)
    np.testing.assert_array_equal(
        vertices["outlier_probability"], whole.outlier_probability.astype("f4")
    )
    points = np.stack([vertices[axis] for axis in "xyz"], 1)
    np.testing.assert_allclose(points, geometry.transform(pose, cloud.points), atol=1e-15)


def test_of_a_cloud_on_its_own_all_points_are_outliers(stored: OnDisk) -> None:
    view = CloudView(Normalisation(np.zeros((1, 3)), 1.0), np.eye(4), None)
    some = labels.write_points(stored, view, None, None, 50)
    assert (some.labels == -1).all()
    assert (some.outlier_probability == 1).all()


def test_memory_does_not_grow_with_the_points_that_are_written(tmp_path: Path) -> None:
    view = CloudView(Normalisation(np.zeros((1, 3)), 1.0), np.eye(4), None)
    rng = np.random.default_rng(0)
    peaks = []
    for count in (4, 40):
        points = InMemory(rng.random((count * 4096, 3)), rows=4096)
        cloud = replace(OnDisk.write(tmp_path / str(count), points.blocks()), rows=4096)
        tracemalloc.start()
        labels.write_points(cloud, view, None, None, 50)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
