# SPDX-License-Identifier: MIT
"""Simulated sensors: what they cannot see they do not measure, and noise has the stated size."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from coframe import geometry
from coframe.data.simulate import sensors
from coframe.data.simulate.cast import Caster
from coframe.data.simulate.mesh import Mesh, ball, joined
from coframe.data.simulate.mesh import box as box_of_floats
from coframe.data.simulate.records import Scan

# Each sensor, small enough for tests, and the same without any noise.
SENSORS: dict[str, Callable[..., Scan]] = {
    "turntable": partial(sensors.turntable, width=90, height=90, field=60.0, baseline=0.5),
    "depth_camera": partial(sensors.depth_camera, width=90, height=90),
    "lidar": partial(sensors.lidar, steps=300, reach=30.0),
    "terrestrial": partial(sensors.terrestrial, points=20_000),
    "airborne": partial(sensors.airborne, length=4.0, width=4.0, spacing=0.05, tilt=60.0),
}
EXACT = {name: {"sigma": 0.0} for name in SENSORS} | {
    "depth_camera": {"noise": (0.0, 0.0, 0.0), "quantum": 0.0}
}
# Where the second eye of a sensor is: a point is measured only if both see it.
SECOND_EYE = {"turntable": (0.5, 0.0, 0.0), "depth_camera": (0.075, 0.0, 0.0)}

every_sensor = pytest.mark.parametrize("name", SENSORS)


def box(low: object, high: object, **options: bool) -> Mesh:
    """`mesh.box` of any numbers."""
    return box_of_floats(
        np.asarray(low, float).tolist(), np.asarray(high, float).tolist(), **options
    )


def all_distances(mesh: Mesh, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Distance along each ray (N, F) to each triangle, by its plane and its three edges."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    normal = np.cross(b - a, c - a)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (np.einsum("fd,fd->f", a, normal) - origins @ normal.T) / (directions @ normal.T)
        inside = t > 0
        for start, end in ((a, b), (b, c), (c, a)):
            outward = np.cross(end - start, normal)
            along = origins @ outward.T + t * (directions @ outward.T)
            inside &= along <= np.einsum("fd,fd->f", start, outward)
    return np.where(inside, t, np.inf)


def first_distance(mesh: Mesh, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
    origins = np.broadcast_to(origins, directions.shape)
    blocks = range(0, len(directions), 500)
    return np.concatenate(
        [all_distances(mesh, origins[i : i + 500], directions[i : i + 500]).min(1) for i in blocks]
    )


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def random_triangles(rng: np.random.Generator, count: int = 400) -> Mesh:
    corners = rng.uniform(-1, 1, (count, 1, 3)) + rng.normal(0, 0.15, (count, 3, 3))
    return Mesh(corners.reshape(-1, 3), np.arange(3 * count).reshape(-1, 3))


def random_rays(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    origins = 3 * unit(rng.normal(size=(count, 3)))
    return origins, unit(rng.uniform(-1, 1, (count, 3)) - origins)


def clutter(rng: np.random.Generator) -> Mesh:
    """A closed room of 4 m with a lid, and boxes that float in it."""
    boxes = []
    for middle in rng.uniform(-1.6, 1.6, (25, 3)):
        if np.linalg.norm(middle) > 0.9:
            size = rng.uniform(0.05, 0.4, 3)
            turn = geometry.pose(geometry.random_rotation(rng, 3), middle)
            boxes.append(box(-size, size).moved(turn))
    return joined([box((-2, -2, -2), (2, 2, 2), inside_out=True), *boxes])


def pose_in(name: str) -> np.ndarray:
    """A sensor near the middle of the clutter; that of the aircraft just below the lid."""
    if name == "airborne":
        return geometry.pose(np.eye(3), np.array([-2.0, 0.1, 1.95]))
    turn = geometry.random_rotation(np.random.default_rng(5), 3, 40.0)
    return geometry.pose(turn, np.array([0.1, -0.2, 0.15]))


def eyes(name: str, points: np.ndarray) -> np.ndarray:
    """Where the sensor was, in its own frame, when it measured each point: an aircraft that flies
    high enough for its swath is above or beside it.
    """
    if name == "airborne":
        return points * [1.0, 0.0, 0.0]
    return np.zeros_like(points)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# Rays


def test_rays_find_what_brute_force_finds(rng: np.random.Generator) -> None:
    mesh = random_triangles(rng)
    origins, directions = random_rays(rng, 3000)
    every = all_distances(mesh, origins, directions)
    distance, face = Caster.of(mesh).cast(origins, directions)
    hit = np.isfinite(every.min(1))
    assert 0.3 < hit.mean() < 0.99
    np.testing.assert_array_equal(np.isfinite(distance), hit)
    np.testing.assert_allclose(distance[hit], every[hit].min(1), rtol=1e-9)
    np.testing.assert_array_equal(face[hit], every[hit].argmin(1))
    assert (face[~hit] == -1).all()


def test_the_order_of_triangles_does_not_matter(rng: np.random.Generator) -> None:
    mesh = random_triangles(rng)
    rays = random_rays(rng, 3000)
    order = rng.permutation(len(mesh.faces))
    distance, face = Caster.of(mesh).cast(*rays)
    again, shuffled = Caster.of(Mesh(mesh.vertices, mesh.faces[order])).cast(*rays)
    np.testing.assert_array_equal(distance, again)
    np.testing.assert_array_equal(face, np.where(shuffled < 0, -1, order[shuffled]))


def test_a_ray_ends_where_it_is_to_end(rng: np.random.Generator) -> None:
    caster = Caster.of(random_triangles(rng))
    origins, directions = random_rays(rng, 2000)
    distance, face = caster.cast(origins, directions)
    far = rng.uniform(1, 5, len(distance))
    short, short_face = caster.cast(origins, directions, far)
    np.testing.assert_array_equal(short, np.where(distance <= far, distance, np.inf))
    np.testing.assert_array_equal(short_face, np.where(distance <= far, face, -1))


@pytest.mark.parametrize("shift", [0.0, 4e6])
def test_no_ray_leaves_a_closed_surface_through_an_edge_or_corner(shift: float) -> None:
    """Also far from the origin, as in national grids."""
    for mesh in (ball(1.0, rings=20), box((-1, -1, -1), (1, 1, 1))):
        corners = mesh.vertices[mesh.faces]
        middles = (corners + np.roll(corners, 1, axis=1)) / 2
        targets = np.concatenate([corners, middles]).reshape(-1, 3)
        caster = Caster.of(mesh.shifted((shift, -shift, shift)))
        for start in ((0.0, 0.0, 0.0), (0.1, 0.2, -0.3)):
            directions = unit(targets - start)
            origins = np.broadcast_to(np.add(start, (shift, -shift, shift)), directions.shape)
            distance, _ = caster.cast(origins, directions)
            expected = np.linalg.norm(targets - start, axis=1)
            np.testing.assert_allclose(distance, expected, rtol=1e-12 + 1e-15 * shift, atol=1e-12)


def test_rays_along_the_axes_hit_flat_boxes() -> None:
    """Directions with zeros, and triangles whose boxes have no thickness."""
    caster = Caster.of(box((-1, -1, -1), (1, 1, 1)))
    directions = np.concatenate([np.eye(3), -np.eye(3)])
    origins = np.broadcast_to([0.25, -0.5, 0.125], (6, 3))
    distance, face = caster.cast(origins, directions)
    np.testing.assert_array_equal(distance, [0.75, 1.5, 0.875, 1.25, 0.5, 1.125])
    np.testing.assert_allclose(caster.normals[face], directions)


def test_triangles_that_all_lie_at_one_point_are_split_too(rng: np.random.Generator) -> None:
    corners = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    copies = Mesh(corners, np.tile([0, 1, 2], (100, 1)))
    distance, face = Caster.of(copies).cast(np.array([[0.2, 0.2, 1.0]]), np.array([[0.0, 0, -1]]))
    assert (distance[0], face[0]) == (1.0, 0)


def test_a_mesh_without_faces_is_refused() -> None:
    with pytest.raises(ValueError, match="no faces"):
        Caster.of(Mesh(np.zeros((3, 3)), np.zeros((0, 3), int)))


# What a sensor sees


@every_sensor
@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_lies_between_a_sensor_and_what_it_measures(name: str, seed: int) -> None:
    mesh = clutter(np.random.default_rng(seed))
    pose = pose_in(name)
    scan = SENSORS[name](Caster.of(mesh), pose, np.random.default_rng(seed), **EXACT[name])
    assert len(scan.points) > 1000
    local = mesh.moved(geometry.inverse(pose))
    way = scan.points - eyes(name, scan.points)
    length = np.linalg.norm(way, axis=1)
    free = first_distance(local, eyes(name, scan.points), unit(way))
    on_surface = ~scan.outliers
    np.testing.assert_allclose(length[on_surface], free[on_surface], rtol=1e-9)
    assert (length[scan.outliers] < free[scan.outliers]).all()
    if name in SECOND_EYE:
        way = scan.points[on_surface] - SECOND_EYE[name]
        free = first_distance(local, np.array(SECOND_EYE[name]), unit(way))
        np.testing.assert_allclose(np.linalg.norm(way, axis=1), free, rtol=1e-5)


@every_sensor
def test_no_sensor_sees_through_a_wall(name: str) -> None:
    """A box behind a thin wall, and the rest of the closed room there, with all noise."""
    wall = box((0.8, -2, -2), (0.81, 2, 2))
    turn = np.eye(3)
    if name in SECOND_EYE:  # these look along z
        turn = geometry.exp_rotation(np.array([0.0, np.pi / 2, 0.0]))
    if name == "airborne":  # and this one down
        turn = geometry.exp_rotation(np.array([0.0, -np.pi / 2, 0.0]))
        assert (turn @ [0, 0, -1])[0] == pytest.approx(1.0)
    room = box((-1, -2, -2), (2, 2, 2), inside_out=True)
    hidden = box((1.2, -0.5, -0.5), (1.6, 0.5, 0.5))
    start = np.array([-0.9, 0.0, -1.9 if name == "airborne" else 0.0])
    pose = geometry.pose(turn, start)
    open_room = Caster.of(joined([room, hidden]))
    closed = Caster.of(joined([room, hidden, wall]))
    seen = SENSORS[name](open_room, pose, np.random.default_rng(0))
    assert (geometry.transform(pose, seen.points)[:, 0] > 1.0).mean() > 0.05
    seen = SENSORS[name](closed, pose, np.random.default_rng(0))
    assert len(seen.points) > 1000
    beyond = geometry.transform(pose, seen.points)[:, 0] - 0.8
    at_wall = geometry.transform(pose, seen.points)[:, 0] > 0.7
    assert at_wall.sum() > 100
    assert beyond.max() < 6 * seen.sigma[at_wall].max()


@every_sensor
def test_normals_are_unit_and_face_the_sensor(name: str) -> None:
    mesh = clutter(np.random.default_rng(0))
    scan = SENSORS[name](Caster.of(mesh), pose_in(name), np.random.default_rng(0), **EXACT[name])
    way = unit(scan.points - eyes(name, scan.points))
    good = ~scan.outliers
    np.testing.assert_allclose(np.linalg.norm(scan.normals[good], axis=1), 1.0)
    assert (np.einsum("nd,nd->n", scan.normals[good], way[good]) < 0).all()
    assert not scan.normals[scan.outliers].any()


@every_sensor
def test_a_seed_fixes_a_scan_and_another_samples_elsewhere(name: str) -> None:
    caster = Caster.of(clutter(np.random.default_rng(0)))
    one, same = (SENSORS[name](caster, pose_in(name), np.random.default_rng(3)) for _ in range(2))
    for field in ("points", "normals", "sigma", "outliers"):
        assert getattr(one, field).tobytes() == getattr(same, field).tobytes()
    exact = [
        SENSORS[name](caster, pose_in(name), np.random.default_rng(seed), **EXACT[name]).points
        for seed in (3, 4)
    ]
    assert not set(map(tuple, exact[0])) & set(map(tuple, exact[1]))


# Noise


def slope(degrees: float, depth: float, name: str) -> tuple[Mesh, np.ndarray, np.ndarray]:
    """A wide plane at a depth before the sensor, turned from facing it; its normal and a point."""
    depth *= 20 if name == "airborne" else 1
    forward, side = {
        "lidar": ([1.0, 0, 0], [0.0, 1, 0]),
        "terrestrial": ([1.0, 0, 0], [0.0, 1, 0]),
        "airborne": ([0.0, 0, -1], [1.0, 0, 0]),
    }.get(name, ([0.0, 0, 1], [1.0, 0, 0]))
    ahead, across = np.array(forward), np.array(side)
    turn = geometry.exp_rotation(np.cross(ahead, across) * np.radians(degrees))
    u, v, point = turn @ across, np.cross(ahead, across), depth * ahead
    corners = point + 1000 * np.array([u + v, u - v, -u - v, -u + v])
    return Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]])), turn @ ahead, point


@every_sensor
@pytest.mark.parametrize("degrees", [0.0, 35.0, 65.0])
@pytest.mark.parametrize("depth", [1.0, 2.0, 4.0])
def test_noise_has_the_stated_size(name: str, degrees: float, depth: float) -> None:
    mesh, normal, point = slope(degrees, depth, name)
    options = {"width": 160, "height": 160} if name in SECOND_EYE else {}
    if name == "turntable":
        options["baseline"] = 0.1
    sensor = partial(SENSORS[name], **options)
    pose = np.eye(4)
    scan = sensor(Caster.of(mesh), pose, np.random.default_rng(1))
    assert not scan.outliers.any()
    assert len(scan.points) > 1500
    away = (scan.points - point) @ normal
    within = 4 * np.sqrt(0.5 / len(away)) + 0.02
    assert np.sqrt(np.mean((away / scan.sigma) ** 2)) == pytest.approx(1.0, abs=within)
    assert abs(np.mean(away / scan.sigma)) < 5 / np.sqrt(len(away)) + 0.01
    # Each half by incidence for itself, too: the share of the noise along the normal is right.
    way = unit(scan.points - eyes(name, scan.points))
    incidence = np.abs(way @ normal)
    for half in (incidence < np.median(incidence), incidence >= np.median(incidence)):
        assert np.sqrt(np.mean((away[half] / scan.sigma[half]) ** 2)) == pytest.approx(
            1.0, abs=1.5 * within
        )


@pytest.mark.parametrize(
    ("name", "sigma"),
    [("turntable", 0.0007), ("lidar", 0.02), ("terrestrial", 0.002), ("airborne", 0.05)],
)
def test_noise_along_the_ray_is_the_parameter(name: str, sigma: float) -> None:
    mesh, normal, point = slope(40.0, 3.0, name)
    scan = SENSORS[name](Caster.of(mesh), np.eye(4), np.random.default_rng(1))
    start = eyes(name, scan.points)
    way = unit(scan.points - start)
    exact = ((point - start) @ normal) / (way @ normal)
    error = np.linalg.norm(scan.points - start, axis=1) - exact
    assert error.std() == pytest.approx(sigma, rel=0.05)


def test_noise_of_a_depth_camera_grows_with_depth_and_depths_are_quantised() -> None:
    for depth in (0.8, 1.5, 3.0, 5.0):
        mesh, _, _ = slope(0.0, depth, "depth_camera")
        scan = sensors.depth_camera(Caster.of(mesh), np.eye(4), np.random.default_rng(1))
        z = scan.points[:, 2]
        steps = 348 / z
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-9)
        expected = np.hypot(0.0012 + 0.0019 * (depth - 0.4) ** 2, depth**2 / 348 / np.sqrt(12))
        assert z.std() == pytest.approx(expected, rel=0.05)
    for depth in (0.39, 6.01):
        mesh, _, _ = slope(0.0, depth, "depth_camera")
        scan = sensors.depth_camera(Caster.of(mesh), np.eye(4), np.random.default_rng(1))
        assert scan.points.shape == scan.normals.shape == (0, 3)


# What is special about each


@pytest.mark.parametrize("name", ["depth_camera", "lidar", "terrestrial"])
def test_flying_pixels_lie_between_the_two_surfaces(name: str) -> None:
    """A panel before a wall: 1 m and 3 m ahead."""
    mesh, normal, point = slope(0.0, 3.0, name)
    panel = Mesh(point / 3 + 4e-4 * (mesh.vertices - point), mesh.faces)
    caster = Caster.of(joined([mesh, panel]))
    scan = SENSORS[name](caster, np.eye(4), np.random.default_rng(2), **EXACT[name])
    depth = scan.points @ normal
    assert scan.outliers.sum() > 5
    assert scan.outliers.mean() < 0.05
    flying = depth[scan.outliers]
    assert flying.min() > 1.0
    assert flying.max() < 3.0
    assert np.ptp(flying) > 0.5
    np.testing.assert_allclose(np.unique(depth[~scan.outliers].round(9)), [1.0, 3.0])


def test_the_density_of_a_terrestrial_scan_falls_with_the_square_of_the_distance() -> None:
    counts = []
    for distance in (4.0, 8.0):
        mesh, _, point = slope(0.0, distance, "terrestrial")
        panel = Mesh(point + 5e-4 * (mesh.vertices - point), mesh.faces)
        scan = sensors.terrestrial(
            Caster.of(panel), np.eye(4), np.random.default_rng(0), elevations=(-10.0, 10.0)
        )
        counts.append(len(scan.points))
    assert counts[0] / counts[1] == pytest.approx(4.0, rel=0.05)


def test_a_terrestrial_scanner_sends_about_as_many_rays_as_asked() -> None:
    caster = Caster.of(ball(5.0))
    for count in (1000, 50_000):
        scan = sensors.terrestrial(caster, np.eye(4), np.random.default_rng(0), points=count)
        assert len(scan.points) == pytest.approx(0.99 * count, rel=0.05)


def test_a_lidar_has_rings_and_loses_a_few_shots() -> None:
    scan = sensors.lidar(Caster.of(ball(20.0)), np.eye(4), np.random.default_rng(0))
    elevation = np.degrees(np.arcsin(unit(scan.points)[:, 2]))
    rings = np.unique(elevation.round(6))
    np.testing.assert_allclose(rings, np.linspace(-30, 10, 32), atol=1e-6)
    assert len(scan.points) == pytest.approx(0.98 * 32 * 900, rel=0.01)


def test_an_airborne_strip_has_its_size_and_spacing() -> None:
    mesh, _, _ = slope(0.0, 5.0, "airborne")
    scan = sensors.airborne(
        Caster.of(mesh), np.eye(4), np.random.default_rng(0), length=60.0, width=30.0, spacing=0.5
    )
    low, high = scan.points.min(0), scan.points.max(0)
    np.testing.assert_allclose(low[:2], [0.0, -15.0], atol=0.5)
    np.testing.assert_allclose(high[:2], [60.0, 15.0], atol=0.5)
    assert len(scan.points) == pytest.approx(0.99 * 120 * 60, rel=0.01)


# Several scans


def test_cameras_stand_around_and_look_at_the_middle(rng: np.random.Generator) -> None:
    poses = sensors.around(8, distance=2.5, elevation=20.0, rng=rng)
    assert all(geometry.is_rigid(pose, 1e-9) for pose in poses)
    middle = geometry.translation(geometry.inverse(poses))
    np.testing.assert_allclose(np.linalg.norm(middle, axis=1), 2.5, rtol=0.031)
    assert (unit(middle)[:, 2] > np.cos(np.radians(5))).all()
    assert (poses[:, 2, 1] < -0.8).all()  # y is down
    azimuth = np.degrees(np.unwrap(np.arctan2(poses[:, 1, 3], poses[:, 0, 3])))
    np.testing.assert_allclose(np.diff(azimuth), 45.0, atol=6.1)
    assert np.ptp(np.diff(azimuth)) > 0.1
    half = sensors.around(4, distance=2.5, degrees=90.0, variation=0.0, rng=rng)
    between = np.degrees(geometry.angle(np.swapaxes(half[:1, :3, :3], 1, 2) @ half[:, :3, :3]))
    assert np.linalg.norm(half[0, :3, 3] - half[3, :3, 3]) == pytest.approx(
        np.sqrt(2) * 2.5 * np.cos(np.radians(15))
    )
    assert (np.diff(between) > 0).all()


def test_gathered_scans_lie_on_the_surface_together(rng: np.random.Generator) -> None:
    body = ball(0.5, rings=60)
    caster = Caster.of(body)
    poses = sensors.around(3, distance=2.5, rng=rng)
    scans = [sensors.turntable(caster, pose, rng) for pose in poses]
    assert all(2000 < len(scan.points) < 20_000 for scan in scans)
    together = sensors.gathered("ball", scans, rng, points=1500, unit="")
    assert together.name == "ball"
    assert together.unit == ""
    assert together.exact
    np.testing.assert_array_equal(together.poses, poses)
    np.testing.assert_array_equal(together.sensors, np.zeros((3, 3)))
    assert together.normals is not None
    assert together.sigma is not None
    for j, cloud in enumerate(together.clouds):
        assert len(np.unique(cloud, axis=0)) == 1500
        outward = geometry.transform(poses[j], cloud)
        np.testing.assert_allclose(np.linalg.norm(outward, axis=1), 0.5, atol=0.005)
        turned = together.normals[j] @ poses[j, :3, :3].T
        assert np.einsum("nd,nd->n", turned, unit(outward)).min() > 0.99
        assert together.sigma[j].max() <= 0.0007
    everything = sensors.gathered("ball", scans, rng)
    assert [len(cloud) for cloud in everything.clouds] == [len(scan.points) for scan in scans]
