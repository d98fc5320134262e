# SPDX-License-Identifier: MIT
"""Built places from nothing: planes have no descriptors, but few directions and offsets."""

from functools import cache

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import coframe
from coframe import geometry
from coframe.compute.per_cloud import Local
from coframe.data.simulate import Scans, bodies, places, sensors
from coframe.data.simulate.cast import Caster
from coframe.input.normalise import Summary
from coframe.input.source import InMemory, Source
from coframe.start import assembly, directions, search
from coframe.start.patches import Patches
from coframe.start.recipe import START
from coframe.start.search import ThinScans

# A cloud is right within this share of its extent.
RIGHT = 0.05


def turned(scans: Scans, rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Each cloud in a frame of its own, and its pose."""
    motions = np.array(
        [
            geometry.pose(geometry.random_rotation(rng, 3), rng.uniform(-9, 9, 3))
            for _ in scans.poses
        ]
    )
    clouds = [geometry.transform(T, cloud) for T, cloud in zip(motions, scans.clouds, strict=True)]
    return clouds, scans.poses @ geometry.inverse(motions)


@cache
def hall(unique: bool = True) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(2)
    return turned(places.scanned(places.hall(rng, unique=unique), rng, points=3000), rng)


def here(clouds: list[np.ndarray], threads: int = 1) -> tuple[Local[Source], list[Summary]]:
    sources = Local[Source](list(map(InMemory, clouds)), threads)
    return sources, sources.map(Summary.of)


def thin(clouds: list[np.ndarray]) -> ThinScans:
    return ThinScans.of(*here(clouds), START.points_3d)


@cache
def start(threads: int = 1, scale: float = 1.0) -> search.Start:
    clouds = [scale * cloud for cloud in hall()[0]]
    with threadpool_limits(1):
        return search.find_start(*here(clouds, threads), rng=np.random.default_rng(0))


def errors(poses: np.ndarray, truth: np.ndarray, clouds: list[np.ndarray]) -> list[float]:
    """Of each cloud, over its extent, in the frame of the first one."""
    common = truth[0] @ geometry.inverse(poses[0])
    found = []
    for pose, true, cloud in zip(poses, truth, clouds, strict=True):
        off = geometry.transform(common @ pose, cloud) - geometry.transform(true, cloud)
        found.append(float(np.sqrt((off**2).sum(1).mean()) / geometry.extent(cloud)))
    return found


def test_a_hall_with_unique_things_is_placed_from_nothing() -> None:
    clouds, truth = hall()
    found = start()
    assert found.groups == ((0, 1, 2, 3),)
    assert max(errors(found.poses[0], truth, clouds)) < RIGHT


def test_threads_change_no_bit() -> None:
    for one, other in zip(start().poses, start(threads=2).poses, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_unit_changes_no_relative_pose() -> None:
    one, other = start().poses[0], start(scale=1024.0).poses[0].copy()
    other[:, :3, 3] /= 1024.0
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_equal_pillars_are_not_called_aligned() -> None:
    """Between which pillars a scan stands, nothing says."""
    result = coframe.register(hall(unique=False)[0], options=coframe.Options(threads=1))
    assert "aligned" not in {each.verdict for each in result.verdicts}


def test_normals_face_the_sensor_from_wherever_the_scan_was_taken() -> None:
    """A terrestrial scanner stands within its scan, a camera outside: neither place is given."""
    rng = np.random.default_rng(0)
    for place in (places.hall(rng, unique=True), places.room(rng)):
        scans = places.scanned(place, rng, points=2000)
        assert scans.sensors is not None
        for cloud, sensor in zip(scans.clouds[:2], scans.sensors, strict=False):
            patches = Patches.of(cloud)
            towards = ((sensor - patches.centres) * patches.normals).sum(1) > 0
            assert towards[patches.flat].mean() > 0.9


def box(rng: np.random.Generator, size: np.ndarray) -> np.ndarray:
    """A room of bare walls about the origin."""
    points = rng.uniform(-1, 1, (3000, 3))
    face = rng.integers(0, 3, len(points))
    points[np.arange(len(points)), face] = rng.choice([-1.0, 1.0], len(points))
    return points * size


def test_walls_beside_walls_and_in_empty_space_contradict() -> None:
    rng = np.random.default_rng(0)
    one, other = (Patches.of(box(rng, np.array([20.0, 15.0, 10.0]))) for _ in range(2))
    there = directions.evidence_for(one, other, np.eye(4), START)
    assert there.overlap > 0.6
    assert there.weight > 100
    for shift in ([1.5, 0.0, 0.0], [8.0, 0.0, 0.0], [0.0, 0.0, 5.0]):
        aside = geometry.pose(np.eye(3), np.array(shift))
        assert directions.evidence_for(one, other, aside, START).weight == 0.0


def test_a_box_fits_a_turned_one_in_four_ways_and_no_other() -> None:
    """Half turns about the three axes, and none, carry a box onto itself."""
    rng = np.random.default_rng(0)
    size = np.array([20.0, 15.0, 10.0])
    turn = geometry.pose(geometry.random_rotation(rng, 3), np.array([3.0, -2.0, 1.0]))
    one = Patches.of(box(rng, size))
    other = Patches.of(geometry.transform(turn, box(rng, size)))
    found = directions.find_motions(one, other, START)
    best = [m for m in found if directions.evidence_for(one, other, m, START).weight > 0]
    halves = [
        np.diag([*signs, 1.0]) for signs in ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))
    ]
    assert len(best) == 4
    for half in halves:
        gaps = [np.abs(motion - turn @ half).max() for motion in best]
        assert min(gaps) < 0.3


def test_a_body_is_no_built_place() -> None:
    rng = np.random.default_rng(0)
    caster = Caster.of(bodies.BODIES["teapot"](rng))
    stations = sensors.around(2, distance=2.5, rng=rng)
    scans = [sensors.turntable(caster, pose, rng).points[:5000] for pose in stations]
    assert not any(thin(scans).scans.map(assembly.has_patches))
    assert all(thin(hall()[0]).scans.map(assembly.has_patches))


@pytest.mark.parametrize("count", [1, 3, 30])
def test_few_points_have_patches_and_are_no_built_place(count: int) -> None:
    points = np.random.default_rng(0).normal(size=(count, 3))
    assert not Patches.of(points).built()
    assert not Patches.of(np.zeros((count, 3))).built()
