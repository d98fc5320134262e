# SPDX-License-Identifier: MIT
"""Rough starts, refined by planes: near poses are found, and free directions stay as they were."""

import numpy as np
import pytest

from coframe import geometry
from coframe.align.evidence import Surface, surface
from coframe.align.planes import settle
from coframe.em.constraints import Constraints

NOISE = 0.002


def box(rng: np.random.Generator, sides: tuple[int, ...] = (0, 1, 2)) -> np.ndarray:
    """Points on faces of a unit box: of each side the face through the origin and the other one."""
    points = rng.uniform(0, 1, (1500, 3))
    side = rng.choice(sides, 1500)
    points[np.arange(1500), side] = rng.integers(2, size=1500)
    return points + NOISE * rng.normal(size=points.shape)


@pytest.fixture(scope="module")
def boxes() -> list[Surface]:
    rng = np.random.default_rng(0)
    return [surface(box(rng) - 0.5) for _ in range(3)]


def rough(rng: np.random.Generator, count: int, degrees: float, shift: float) -> np.ndarray:
    twists = [
        np.concatenate(
            [np.radians(degrees) * _direction(rng), shift * _direction(rng)],
        )
        for _ in range(count)
    ]
    return geometry.exp(np.array(twists))


def _direction(rng: np.random.Generator) -> np.ndarray:
    v = rng.normal(size=3)
    return v / np.linalg.norm(v)


def relative(poses: np.ndarray) -> np.ndarray:
    return geometry.inverse(poses[0]) @ poses


def test_rough_poses_become_right_ones(boxes: list[Surface]) -> None:
    start = rough(np.random.default_rng(1), 3, 8.0, 0.03)
    found = relative(settle(boxes, start, 0.15))
    assert np.degrees(geometry.angle(geometry.rotation(found))).max() < 0.3
    assert np.abs(geometry.translation(found)).max() < 2 * NOISE


def test_right_poses_stay(boxes: list[Surface]) -> None:
    found = relative(settle(boxes, geometry.identity(3, 3), 0.15))
    assert np.abs(found - np.eye(4)).max() < 3 * NOISE


def test_a_free_direction_stays_as_it_was() -> None:
    """Four walls constrain nothing along them; overlap does not draw clouds together."""
    rng = np.random.default_rng(0)
    tubes = [surface((box(rng, (1, 2)) - 0.5) * [4, 1, 1]) for _ in range(2)]
    start = geometry.identity(2, 3)
    start[1] = rough(rng, 1, 3.0, 0.0)[0]
    start[1, :3, 3] = [1.5, 0.02, -0.02]
    found = relative(settle(tubes, start, 0.15))[1]
    assert abs(found[0, 3] - 1.5) < 0.1
    assert np.abs(found[1:3, 3]).max() < 3 * NOISE
    assert np.degrees(geometry.angle(geometry.rotation(found))) < 0.3


def test_a_common_motion_changes_nothing(boxes: list[Surface]) -> None:
    rng = np.random.default_rng(0)
    start = rough(rng, 3, 5.0, 0.02)
    found = relative(settle(boxes, start, 0.1))
    motion = rough(rng, 1, 90.0, 7.0)[0]
    np.testing.assert_allclose(relative(settle(boxes, motion @ start, 0.1)), found, atol=1e-3)


def test_known_things_are_kept(boxes: list[Surface]) -> None:
    start = rough(np.random.default_rng(2), 3, 5.0, 0.02)
    found = settle(boxes, start, 0.1, Constraints(fixed=(1,)))
    np.testing.assert_array_equal(found[1], start[1])
    assert np.degrees(geometry.angle(geometry.rotation(relative(found)))).max() < 0.5
    level = settle(boxes, geometry.identity(3, 3), 0.1, Constraints(motion="yaw"))
    np.testing.assert_allclose(level[:, 2, :3], np.tile([0, 0, 1.0], (3, 1)), atol=1e-12)


def test_clouds_that_share_nothing_stay(boxes: list[Surface]) -> None:
    start = geometry.identity(3, 3)
    start[:, 0, 3] = [0, 10, 20]
    np.testing.assert_array_equal(settle(boxes, start, 0.1), start)
