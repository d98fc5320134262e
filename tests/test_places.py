# SPDX-License-Identifier: MIT
"""Places: what their sensors see, how far stations overlap, and what repeats itself."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.spatial import cKDTree

from coframe.data.simulate import places, things
from coframe.data.simulate.cast import Caster
from coframe.geometry import angle, inverse, is_rigid, rotation, transform, translation

SMALL = {
    "room": lambda rng: places.room(rng),
    "room, terrestrial": lambda rng: places.room(rng, sensor="terrestrial"),
    "corridor": lambda rng: places.corridor(rng),
    "corridor without doors": lambda rng: places.corridor(rng, doors=False),
    "corridor, unique": lambda rng: places.corridor(rng, unique=True),
    "stairs": lambda rng: places.stairs(rng),
    "stairs, unique": lambda rng: places.stairs(rng, unique=True),
    "facade": lambda rng: places.facade(rng),
    "facade, unique": lambda rng: places.facade(rng, unique=True),
    "hall": lambda rng: places.hall(rng),
    "hall, unique": lambda rng: places.hall(rng, unique=True),
    "street": lambda rng: places.street(rng, count=2, step=4.0),
    "terrain": lambda rng: places.terrain(rng, strips=2, length=60.0, width=50.0),
}
REPEATING = ["corridor", "corridor without doors", "stairs", "facade", "hall"]


@cache
def place(name, seed=0):
    """With fewer rays than usual: the tests ask where they end, not how many there are."""
    here = SMALL[name](np.random.default_rng(seed))
    rays = {"points": 20_000} if here.sensor == "terrestrial" else {}
    return replace(here, options={**here.options, **rays})


@cache
def scans(name, seed=0, points=None, moving=0):
    rng = np.random.default_rng(100 + seed)
    return places.scanned(place(name, seed), rng, points=points, moving=moving)


def first_hits(mesh, origins, directions):
    """Distance to the first triangle, all against all (Moeller and Trumbore)."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    u, v = b - a, c - a
    distances = []
    for origin, direction in zip(origins, directions, strict=True):
        p = np.cross(direction, v)
        determinant = (u * p).sum(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            s = ((origin - a) * p).sum(1) / determinant
            q = np.cross(origin - a, u)
            t = q @ direction / determinant
            distance = (v * q).sum(1) / determinant
            hit = (s >= 0) & (t >= 0) & (s + t <= 1) & (distance > 1e-9)
        distances.append(distance[hit].min(initial=np.inf))
    return np.array(distances)


@pytest.mark.parametrize("name", SMALL)
def test_no_point_lies_behind_a_wall(name):
    here, seen = place(name), scans(name)
    rng = np.random.default_rng(1)
    for j in range(0, len(seen.clouds), 2):
        true = np.flatnonzero(~seen.outliers[j])
        rows = rng.choice(true, 30, replace=False)
        # In the frame of the sensor, also where clouds are in that of a map.
        back = inverse(here.stations[j]) @ translation_by(-here.origin) @ seen.poses[j]
        points = transform(back, seen.clouds[j][rows])
        normals = seen.normals[j][rows] @ rotation(back).T
        # An aircraft sends each ray from its line of flight.
        origins = points * [1, 0, 0] if here.sensor == "airborne" else np.zeros((30, 3))
        ranges = np.linalg.norm(points - origins, axis=1)
        directions = (points - origins) / ranges[:, None]
        frame = here.stations[j]
        hits = first_hits(here.mesh, transform(frame, origins), directions @ rotation(frame).T)
        along_ray = seen.sigma[j][rows] / np.abs((normals * directions).sum(1))
        assert (ranges - hits <= 6 * along_ray).all()
        # And noise explains what lies before a wall; near an edge the noise of an angle may not.
        assert (np.abs(ranges - hits) <= 6 * along_ray).mean() > 0.9


def translation_by(shift):
    pose = np.eye(4)
    pose[:3, 3] = shift
    return pose


@pytest.mark.parametrize("name", SMALL)
def test_stations_stand_free_and_see_enough(name):
    here, seen = place(name), scans(name)
    assert all(map(is_rigid, here.stations))
    assert len(seen.clouds) == len(here.stations) >= 2
    assert min(len(cloud) for cloud in seen.clouds) > 3000
    near = min(
        np.linalg.norm(cloud - sensor, axis=1).min()
        for cloud, sensor in zip(seen.clouds, seen.sensors, strict=True)
    )
    assert near > 0.3


def shared(scans, i, j, distance):
    """Share of cloud i that has points of cloud j beside it."""
    a, b = (transform(scans.poses[k], scans.clouds[k]) for k in (i, j))
    return (cKDTree(b).query(a[::7], distance_upper_bound=distance)[0] < distance).mean()


@pytest.mark.parametrize("seed", range(4))
def test_neighbouring_views_of_a_room_share_40_to_70_percent(seed):
    seen = scans("room", seed)
    assert 6 <= len(seen.clouds) <= 8
    both = [shared(seen, j, j + 1, 0.1) for j in range(len(seen.clouds) - 1)]
    assert 0.4 <= np.mean(both) <= 0.7
    assert min(both) >= 0.33
    assert max(both) <= 0.75


def test_windows_of_a_corridor_are_12_m_long_and_5_m_apart():
    seen = scans("corridor")
    x = [transform(T, cloud)[:, 0] for T, cloud in zip(seen.poses, seen.clouds, strict=True)]
    np.testing.assert_allclose([np.ptp(row) for row in x], 12, atol=1.0)
    np.testing.assert_allclose(np.diff([row.mean() for row in x]), 5, atol=0.5)


@pytest.mark.parametrize("seed", range(2))
def test_strips_of_terrain_share_40_percent(seed):
    assert shared(scans("terrain", seed), 0, 1, 1.5) == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("name", ["street", "hall", "facade", "stairs"])
def test_neighbouring_stations_overlap(name):
    seen = scans(name)
    assert shared(seen, 0, 1, 0.5 if name == "street" else 0.25) > 0.3


def distances_after(here, shift):
    """What sensors at the stations see within reach, and what they would see after a shift."""
    rng = np.random.default_rng(3)
    caster = Caster.of(here.mesh)
    before, after = [], []
    for station in translation(here.stations):
        directions = rng.normal(size=(2000, 3))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        origins = np.broadcast_to(station, directions.shape)
        before.append(caster.cast(origins, directions)[0])
        after.append(caster.cast(origins + shift, directions)[0])
    both = np.array([np.concatenate(before), np.concatenate(after)])
    both[both > here.options["reach"]] = np.inf
    return both


@pytest.mark.parametrize("name", REPEATING)
@pytest.mark.parametrize("seed", range(2))
def test_places_without_anything_unique_repeat_themselves(name, seed):
    here = place(name, seed)
    assert len(here.repeats) > 0
    # From the first station towards the others, so that neither end comes into reach.
    centre = translation(here.stations).mean(0)
    first = translation(here.stations)[0]
    for shift in here.repeats:
        back = shift if (centre - first) @ shift > 0 else -shift
        stations = here.stations[:1]
        alone = places.Place("", here.mesh, stations, here.sensor, here.options)
        a, b = distances_after(alone, back)
        # A ray along an edge may pass on either side of it, after rounding.
        assert np.isclose(a, b, rtol=0, atol=1e-6).mean() > 0.999
        assert np.isfinite(a).mean() > 0.3


@pytest.mark.parametrize("name", ["corridor, unique", "stairs, unique", "facade, unique"])
def test_unique_things_say_where_along_the_place_a_station_is(name):
    here = place(name)
    assert len(here.repeats) == 0
    period = place(name.split(",")[0]).repeats[0]
    a, b = distances_after(here, period)
    with np.errstate(invalid="ignore"):
        assert (np.abs(a - b) > 0.05).mean() > 0.01


def test_a_corridor_without_doors_slides():
    here = place("corridor without doors")
    a, b = distances_after(here, np.array([0.777, 0.0, 0.0]))
    np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("name", SMALL)
def test_a_seed_repeats_bits_and_another_one_makes_another_place(name):
    again, other = (SMALL[name](np.random.default_rng(seed)) for seed in (0, 1))
    np.testing.assert_array_equal(place(name).mesh.vertices, again.mesh.vertices)
    np.testing.assert_array_equal(place(name).stations, again.stations)
    assert place(name).mesh.vertices.shape != other.mesh.vertices.shape or not np.allclose(
        place(name).mesh.vertices, other.mesh.vertices
    )
    again = replace(again, options=place(name).options)
    repeated = places.scanned(again, np.random.default_rng(100), points=500)
    once = scans(name, 0, 500)
    assert all(map(np.array_equal, repeated.clouds, once.clouds))
    assert max(map(len, once.clouds)) == 500


def test_map_coordinates_keep_millimetres():
    mapped = place("terrain")
    own = places.terrain(
        np.random.default_rng(0), strips=2, length=60.0, width=50.0, georeferenced=False
    )
    in_map = scans("terrain", 0, 2000)
    in_frames = places.scanned(own, np.random.default_rng(100), points=2000)
    assert in_map.clouds[0][:, 1].min() > 5e6
    np.testing.assert_array_equal(in_map.poses, np.array([np.eye(4)] * 2))
    np.testing.assert_array_equal(in_frames.sensors, 0)
    for j in range(2):
        # All in small numbers: the station carries the strip into the frame of the mesh.
        local = transform(mapped.stations[j], in_frames.clouds[j])
        np.testing.assert_allclose(in_map.clouds[j] - mapped.origin, local, atol=1e-5)
        utm = transform(in_frames.poses[j], in_frames.clouds[j])
        np.testing.assert_allclose(in_map.clouds[j], utm, rtol=0, atol=1e-5)
        turned = in_frames.normals[j] @ rotation(mapped.stations[j]).T
        np.testing.assert_allclose(in_map.normals[j], turned, atol=1e-12)


@pytest.mark.parametrize("name", ["room", "corridor", "hall", "street", "terrain"])
def test_moving_bodies_stand_elsewhere_in_every_scan_and_hide_what_is_behind(name):
    here, seen = place(name), scans(name, 0, None, 6)
    still = Caster.of(here.mesh)
    bodies = []
    for j, station in enumerate(here.stations):
        assert (seen.normals[j][seen.outliers[j]] == 0).all()
        back = inverse(station) @ translation_by(-here.origin) @ seen.poses[j]
        points = transform(back, seen.clouds[j][seen.outliers[j]])
        origins = points * [1, 0, 0] if here.sensor == "airborne" else 0 * points
        ranges = np.linalg.norm(points - origins, axis=1)
        rays = ((points - origins) / ranges[:, None]) @ rotation(station).T
        wall, _ = still.cast(transform(station, origins), rays)
        before = points[wall - ranges > 0.5]
        bodies.append(transform(station, before))
    # Some cameras look where nobody can stand; of people, an aircraft sees the heads.
    b, a = sorted(bodies, key=len)[-2:]
    assert len(b) > (5 if name == "terrain" else 40)
    assert (cKDTree(b).query(a)[0] > 0.3).mean() > 0.15


def test_paths_move_a_little_from_frame_to_frame_and_come_back():
    rng = np.random.default_rng(0)
    road = places.street_path(rng, 200, 1.0)
    steps = np.linalg.norm(np.diff(translation(road.stations), axis=0), axis=1)
    assert steps.min() > 0.7
    assert steps.max() < 1.3
    again = np.linalg.norm(translation(road.stations)[100:] - translation(road.stations)[0], axis=1)
    assert again.min() < 1.0
    hand = places.room_path(rng, 60)
    assert np.linalg.norm(np.diff(translation(hand.stations), axis=0), axis=1).max() < 0.06
    turns = angle(rotation(inverse(hand.stations[:-1]) @ hand.stations[1:]))
    assert 0.5 < np.degrees(turns.mean()) < 4


def test_a_panel_has_recesses_and_raised_parts_with_closed_sides():
    wall = things.panel(4.0, 3.0, [(1, 2, 0.5, 2, 0.3), (2.5, 3.5, 1, 2, -0.1)])
    caster = Caster.of(wall)
    x = np.array([0.5, 1.5, 3.0])
    origins = np.stack([x, np.full(3, -5.0), np.full(3, 1.5)], 1)
    ahead = np.broadcast_to([0.0, 1.0, 0.0], (3, 3))
    np.testing.assert_allclose(caster.cast(origins, ahead)[0], [5.0, 5.3, 4.9])
    # No ray from the front comes through, however it looks into the recess.
    rng = np.random.default_rng(0)
    ends = np.stack([rng.uniform(0.1, 3.9, 500), np.zeros(500), rng.uniform(0.1, 2.9, 500)], 1)
    starts = np.stack([rng.uniform(-2, 6, 500), np.full(500, -1.0), rng.uniform(0, 3, 500)], 1)
    rays = (ends - starts) / np.linalg.norm(ends - starts, axis=1, keepdims=True)
    assert np.isfinite(caster.cast(starts, rays)[0]).all()
