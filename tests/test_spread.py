# SPDX-License-Identifier: MIT
"""Fits draw from points that are spread evenly over the surface of a large cloud."""

from pathlib import Path

import numpy as np
import pytest

from coframe.input import spread
from coframe.input.normalise import Summary
from coframe.input.source import InMemory, OnDisk, Source


def floor_around_a_tripod(count: int) -> np.ndarray:
    """What an instrument 1.6 above a floor sees that turns by equal angles, out to 30."""
    rng = np.random.default_rng(0)
    down = rng.uniform(np.arctan(1.6 / 30), np.arctan(1.6 / 0.5), count)
    turn = rng.uniform(0, 2 * np.pi, count)
    far = 1.6 / np.tan(down)
    return np.c_[far * np.cos(turn), far * np.sin(turn), rng.normal(0, 0.002, count)]


def stored(points: np.ndarray, folder: Path, rows: int) -> OnDisk:
    blocks = (InMemory(points[i : i + rows]) for i in range(0, len(points), rows))
    written = OnDisk.write(folder / f"rows-{rows}", blocks)
    return OnDisk(written.path, written.dtype, written.shape, rows=rows)


def shares(points: np.ndarray) -> tuple[float, float]:
    """The share of the points, and of the area, within 5 of the instrument."""
    far = np.linalg.norm(points[:, :2], axis=1)
    return float((far < 5).mean()), (5**2 - 0.5**2) / (30**2 - 0.5**2)


def test_terrestrial_scans_are_drawn_by_surface_not_by_nearness() -> None:
    cloud = InMemory(floor_around_a_tripod(400_000))
    near, area = shares(cloud.points)
    assert near > 10 * area
    even = spread.spread(cloud, Summary.of(cloud), 10_000)
    assert 2_000 < even.shape[0] <= 10_000
    near, area = shares(even.take(slice(None)).points)
    assert near < 2 * area


@pytest.mark.parametrize("rows", [1 << 10, 1 << 16])
def test_blocks_and_files_change_nothing(rows: int, tmp_path: Path) -> None:
    points = floor_around_a_tripod(20_000)
    clouds: list[Source] = [InMemory(points, rows=rows), stored(points, tmp_path, rows)]
    whole = InMemory(points)
    wanted = spread.spread(whole, Summary.of(whole), 3_000).take(slice(None)).points
    for cloud in clouds:
        found = spread.spread(cloud, Summary.of(cloud), 3_000)
        np.testing.assert_array_equal(found.take(slice(None)).points, wanted)
        assert spread.count_of(found) == len(wanted) <= 3_000


def test_points_stay_with_their_weights_and_those_of_zero_do_not_count() -> None:
    points = floor_around_a_tripod(5_000)
    weights = np.where(points[:, 0] > 0, points[:, 0], 0.0)
    cloud = InMemory(points, weights)
    even = spread.spread(cloud, Summary.of(cloud), 500)
    assert isinstance(even, InMemory)
    assert even.weights is not None
    np.testing.assert_array_equal(even.weights, even.points[:, 0])
    assert (even.weights > 0).all()


@pytest.mark.parametrize(("unit", "offset"), [(1e-3, 0.0), (1e-3, 3.5e5), (1.0, 3.5e8), (0.3, 0.0)])
def test_unit_and_offset_change_nothing(unit: float, offset: float) -> None:
    """Files have coordinates in steps, whose multiples may be the borders of cells."""
    rng = np.random.default_rng(0)
    steps = rng.integers(0, 102_400, (40_000, 3)).astype(float)
    steps[0], steps[1] = 0, 102_400
    kept = []
    for points in (steps, unit * steps + offset):
        cloud = InMemory(points)
        even = spread.spread(cloud, Summary.of(cloud), 10_000)
        place = {tuple(point): i for i, point in enumerate(cloud.points.tolist())}
        kept.append([place[tuple(point)] for point in even.take(slice(None)).points.tolist()])
    assert kept[0] == kept[1]


def test_small_clouds_are_left_as_they_are() -> None:
    cloud = InMemory(floor_around_a_tripod(1_000))
    assert spread.spread(cloud, Summary.of(cloud), 1_000) is cloud


def test_clouds_of_the_plane_and_points_that_coincide() -> None:
    plane = InMemory(floor_around_a_tripod(5_000)[:, :2])
    assert 50 < spread.spread(plane, Summary.of(plane), 500).shape[0] <= 500
    same = InMemory(np.ones((5_000, 3)))
    assert spread.spread(same, Summary.of(same), 500) is same
    few = InMemory(np.repeat(plane.points[:20], 250, 0))
    assert spread.spread(few, Summary.of(few), 500) is few
