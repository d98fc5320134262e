# SPDX-License-Identifier: MIT
"""The laws of simulated scenes: true poses are true, noise and outliers are what was asked, a
scanner sees what it can see.
"""

import itertools

import numpy as np
import pytest
from scipy.spatial import ConvexHull, cKDTree
from scipy.spatial.distance import pdist

from coframe.data.simulate import (
    SampledSurface,
    SimulatedScene,
    diameter,
    paper_views,
    scan,
    scene,
    shape,
    surface_of_mesh,
    views,
)
from coframe.geometry import angle, exp_rotation, random_rotation, rotation, transform

CUBE = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))
CUBE_FACES = np.array(
    [
        [0, 1, 3],
        [0, 3, 2],
        [4, 6, 7],
        [4, 7, 5],
        [0, 4, 5],
        [0, 5, 1],
        [2, 3, 7],
        [2, 7, 6],
        [0, 2, 6],
        [0, 6, 4],
        [1, 5, 7],
        [1, 7, 3],
    ]
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def distance(points: np.ndarray, surface: np.ndarray) -> np.ndarray:
    return np.asarray(cKDTree(surface).query(points)[0])


def moved(scene: SimulatedScene) -> list[np.ndarray]:
    return [transform(T, cloud) for T, cloud in zip(scene.poses, scene.clouds, strict=True)]


def sphere(count: int, centre: list[float], radius: float, seed: int = 0) -> SampledSurface:
    normals = generator(seed).normal(size=(count, len(centre)))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return SampledSurface(np.array(centre) + radius * normals, normals)


def together(*surfaces: SampledSurface) -> SampledSurface:
    return SampledSurface(
        np.concatenate([s.points for s in surfaces]), np.concatenate([s.normals for s in surfaces])
    )


@pytest.fixture(scope="module")
def dense() -> dict[int, SampledSurface]:
    return {2: shape(3000, generator(99), 2), 3: shape(30_000, generator(99), 3)}


@pytest.fixture(scope="module")
def around() -> SimulatedScene:
    """Four views all around, no noise, far from their common frame."""
    return scene(4, 600, degrees=270.0, motion_degrees=180.0, motion_shift=1.0, rng=generator(5))


# The shape


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("count", [1, 100, 10_000])
def test_shape_has_the_size_and_the_number_of_points_asked(dimension: int, count: int) -> None:
    surface = shape(count, generator(), dimension)
    assert surface.points.shape == surface.normals.shape == (count, dimension)
    if count > 1000:
        assert np.ptp(surface.points, axis=0).max() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("dimension", [2, 3])
def test_shape_is_closed(dense: dict[int, SampledSurface], dimension: int) -> None:
    """The divergence theorem: over a closed surface, n integrates to 0 and x n^T to its volume
    times I.
    """
    x, n = dense[dimension].points, dense[dimension].normals
    assert np.linalg.norm(n, axis=1) == pytest.approx(1)
    assert np.abs(n.mean(0)).max() < 4 / np.sqrt(len(x))
    flux = x.T @ n / len(x)
    assert np.abs(flux - np.eye(dimension) * np.trace(flux) / dimension).max() < 2 / np.sqrt(len(x))
    assert np.trace(flux) > 0.5 * np.linalg.norm(x, axis=1).mean()  # outward


@pytest.mark.parametrize("dimension", [2, 3])
def test_shape_is_as_dense_on_its_limbs_and_slopes_as_elsewhere(
    dense: dict[int, SampledSurface], dimension: int
) -> None:
    x, n = dense[dimension].points, dense[dimension].normals
    r = np.linalg.norm(x, axis=1)
    rise = (x * n).sum(1) / r
    assert ((r / views.RADIUS) ** (dimension - 1) / rise).max() < views.LARGEST_STRETCH
    room = cKDTree(x).query(x, k=9)[0][:, 8] ** (dimension - 1)
    for part in (r > 0.4, rise < 0.7):
        assert room[part].mean() == pytest.approx(room[~part].mean(), rel=0.1)


@pytest.mark.parametrize("dimension", [2, 3])
def test_normals_are_at_right_angles_to_the_surface(
    dense: dict[int, SampledSurface], dimension: int
) -> None:
    x, n = dense[dimension].points, dense[dimension].normals
    gap, neighbour = cKDTree(x).query(x, k=2)
    slope = np.abs(((x[neighbour[:, 1]] - x) * n).sum(1)) / gap[:, 1]
    assert np.median(slope) < 0.05


def test_shape_has_no_symmetry(dense: dict[int, SampledSurface]) -> None:
    surface, middle = cKDTree(dense[3].points), dense[3].points.mean(0)
    probe = dense[3].points[::60] - middle
    axes = [a for a in itertools.product([-1, 0, 1], repeat=3) if a > (0, 0, 0)]
    for axis, degrees in itertools.product(axes, [90, 120, 180]):
        R = exp_rotation(np.radians(degrees) * np.array(axis) / np.linalg.norm(axis))
        assert surface.query(probe @ R.T + middle)[0].mean() > 0.035, (axis, degrees)
    for mirror in [[-1, 1, 1], [1, -1, 1], [1, 1, -1]]:
        assert surface.query(probe * mirror + middle)[0].mean() > 0.035, mirror


def test_curve_has_no_symmetry(dense: dict[int, SampledSurface]) -> None:
    curve = dense[2].points
    middle = curve.mean(0)
    for degrees in range(30, 331, 15):
        R = exp_rotation(np.radians([degrees]))
        assert distance((curve - middle) @ R.T + middle, curve).mean() > 0.04, degrees


def test_extent_is_the_diameter(dense: dict[int, SampledSurface]) -> None:
    for seed in range(5):
        x = dense[3].points @ random_rotation(generator(seed), 3).T
        assert diameter(x) == pytest.approx(pdist(x[ConvexHull(x).vertices]).max(), rel=0.03)


# The mesh sampler


def test_mesh_points_are_uniform_in_area_and_normals_point_out() -> None:
    sides = np.array([1.0, 2.0, 3.0])
    count = 30_000
    box = surface_of_mesh(CUBE * sides / 2, CUBE_FACES, count, generator())
    face = np.abs(box.normals).argmax(1)
    rows = np.arange(count)
    assert np.abs(box.normals[rows, face]) == pytest.approx(1)
    assert np.sign(box.normals[rows, face]) * box.points[rows, face] == pytest.approx(
        sides[face] / 2
    )
    for k, area in enumerate([6.0, 3.0, 2.0]):
        for side in (-1, 1):
            on = (face == k) & (box.normals[rows, k] * side > 0)
            assert on.mean() == pytest.approx(area / 22, rel=0.1)
            u, v = np.delete(box.points[on] / sides + 0.5, k, axis=1).T
            cells = np.histogram2d(u, v, bins=4, range=[[0, 1], [0, 1]])[0] / on.sum()
            assert cells == pytest.approx(1 / 16, rel=0.35)


# The scanner


def test_scan_of_a_ball_is_the_cap_that_faces_the_scanner() -> None:
    ball = sphere(20_000, [0.0, 0.0, 0.0], 1.0)
    for direction in (np.array([0.0, 0.0, 5.0]), np.array([1.0, -2.0, 0.5])):
        facing = ball.normals @ direction / np.linalg.norm(direction)
        assert np.array_equal(scan(ball, direction, grazing=70.0), facing > np.cos(np.radians(70)))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_ball_hides_the_ball_behind_it(offset: float) -> None:
    front, behind = (
        sphere(15_000, [0.0, 0.0, 3.0], 1.0),
        sphere(15_000, [0.0, 0.0, 0.0], 1.5, seed=1),
    )
    both = together(front, behind)
    seen = scan(SampledSurface(both.points + offset, both.normals), np.array([0.0, 0.0, 1.0]))[
        15_000:
    ]
    across = np.linalg.norm(behind.points[:, :2], axis=1)
    assert seen[across < 0.95].mean() < 0.002  # a few look through an empty pixel
    open_sky = (across > 1.15) & (behind.normals[:, 2] > 0.2)
    assert seen[open_sky].all()


@pytest.mark.parametrize("dimension", [2, 3])
def test_a_plate_hides_the_plate_behind_it(dimension: int) -> None:
    """Half a plate hovers at the height 0.3; seen at a slant, its shadow on the whole plate is 0.15
    aside.
    """
    lower = generator().uniform(-1, 1, (40_000, dimension)) * ([1.0] * (dimension - 1) + [0.0])
    across, up = np.eye(dimension)[[0, -1]]
    upper = lower[lower[:, 0] > 0] + 0.3 * up
    plates = np.concatenate([lower, upper])
    seen = scan(SampledSurface(plates, np.tile(up, (len(plates), 1))), 0.5 * across + up)
    on_lower, on_upper = seen[: len(lower)], seen[len(lower) :]
    assert on_lower[np.abs(lower[:, 0] - 0.35) < 0.45].mean() < 0.005
    assert on_lower[lower[:, 0] < -0.2].all()
    assert on_upper.all()


# Scenes


def test_true_poses_bring_all_clouds_onto_one_surface(
    dense: dict[int, SampledSurface], around: SimulatedScene
) -> None:
    spacing = distance(dense[3].points[:2000], dense[3].points[2000:]).max()
    for cloud, there in zip(around.clouds, moved(around), strict=True):
        assert distance(there, dense[3].points).max() < 1.5 * spacing < 0.05
        assert distance(cloud, dense[3].points).mean() > 0.05  # it was elsewhere before


def test_a_planar_scene_lies_on_the_curve(dense: dict[int, SampledSurface]) -> None:
    flat = scene(5, 200, degrees=288.0, dimension=2, rng=generator())
    assert flat.poses.shape == (5, 3, 3)
    for there in moved(flat):
        assert there.shape[1] == 2
        assert distance(there, dense[2].points).max() < 0.01
    # the views leave no part out
    assert distance(dense[2].points, np.concatenate(moved(flat))).max() < 0.1


def test_poses_are_rigid_and_within_the_motion_asked() -> None:
    near = scene(4, 50, motion_degrees=7.0, motion_shift=0.02, rng=generator())
    R = rotation(near.poses)
    assert R @ R.swapaxes(1, 2) == pytest.approx(np.tile(np.eye(3), (4, 1, 1)))
    assert np.linalg.det(R) == pytest.approx(1)
    assert np.array_equal(near.poses[:, 3], np.tile([0.0, 0, 0, 1], (4, 1)))
    assert 0 < np.degrees(angle(R)).max() <= 7
    still = scene(2, 50, motion_degrees=0.0, motion_shift=0.0, rng=generator())
    assert still.poses == pytest.approx(np.tile(np.eye(4), (2, 1, 1)))


def test_seeds_reproduce_a_scene_and_different_seeds_differ() -> None:
    first, again, other = (
        scene(2, 50, noise_db=20.0, outliers=0.2, rng=generator(seed)) for seed in (1, 1, 2)
    )
    assert all(map(np.array_equal, first.clouds, again.clouds))
    assert np.array_equal(first.poses, again.poses)
    assert not any(map(np.array_equal, first.clouds, other.clouds))


def test_clouds_differ_in_size_and_points(around: SimulatedScene) -> None:
    sizes = [len(cloud) for cloud in around.clouds]
    assert len(set(sizes)) > 1
    assert all(450 <= n <= 750 for n in sizes)
    for a, b in itertools.pairwise(moved(around)):
        assert distance(a, b).min() > 1e-9


def test_neighbouring_views_overlap_in_part_and_opposite_ones_hardly(
    around: SimulatedScene,
) -> None:
    def overlap(a: np.ndarray, b: np.ndarray) -> float:
        return float((distance(a, b) < 0.05).mean())

    there = moved(around)
    for j in range(4):
        assert overlap(there[j], there[j - 2]) < 0.15
    close = moved(scene(4, 600, degrees=90.0, rng=generator()))
    for a, b in itertools.pairwise(close):
        assert 0.5 < overlap(a, b) < 0.97
    for j in range(4):
        assert 0.3 < overlap(there[j], there[j - 1]) < 0.8


# Noise and outliers


def spoilt(kind: str, *, noise_db: float | None, outliers: float, seed: int = 3) -> SimulatedScene:
    if kind == "paper":
        return paper_views(
            shape(6000, generator()).points,
            noise_db=noise_db,
            outliers=outliers,
            rng=generator(seed),
        )
    return scene(
        2, 1500, noise_db=noise_db, outliers=outliers, dimension=int(kind), rng=generator(seed)
    )


@pytest.mark.parametrize(
    ("kind", "noise_db"), [("2", 20.0), ("3", 10.0), ("3", 25.0), ("paper", 10.0)]
)
def test_noise_and_outliers_are_what_was_asked(kind: str, noise_db: float) -> None:
    clean, dirty = (
        spoilt(kind, noise_db=None, outliers=0.0),
        spoilt(kind, noise_db=noise_db, outliers=0.3),
    )
    assert not any(label.any() for label in clean.outliers)
    assert np.array_equal(clean.poses, dirty.poses)
    for x, y, label, variance in zip(
        clean.clouds, dirty.clouds, dirty.outliers, dirty.noise_variances, strict=True
    ):
        assert label.sum() == round(0.3 * len(x)) == len(y) - len(x)
        noise = y[~label] - x
        assert 10 * np.log10(x.var(0).mean() / noise.var()) == pytest.approx(noise_db, abs=0.3)
        assert noise.var() == pytest.approx(variance, rel=0.1)
        reach = distance(y[label], x)
        assert np.median(reach) > 0.02
        assert reach.max() < views.OUTLIER_RADIUS * diameter(x)


@pytest.mark.parametrize("dimension", [2, 3])
def test_outliers_fill_balls_around_five_points_evenly(dimension: int) -> None:
    turn = 2 * np.pi / 5 * np.arange(5)
    # balls around its corners are apart
    pentagon = np.stack([np.cos(turn), np.sin(turn), 0 * turn], axis=1)[:, :dimension]
    strays = views._outliers(pentagon, 10_000, generator())
    reach, corner = cKDTree(pentagon).query(strays)
    radius = views.OUTLIER_RADIUS * diameter(pentagon)
    assert np.bincount(corner, minlength=5) == pytest.approx(2000, rel=0.1)
    assert reach.max() < radius
    assert (reach < radius / 2).mean() == pytest.approx(1 / 2**dimension, rel=0.1)


def test_outliers_gather_around_no_more_than_five_points() -> None:
    for cloud in spoilt("3", noise_db=None, outliers=0.0).clouds:
        centres = np.unique(views._outliers(cloud, 300, generator(), radius=0.0), axis=0)
        assert len(centres) == 5
        assert distance(centres, cloud).max() == 0


# Given surfaces and models


def test_a_given_surface_is_scanned_in_its_own_frame_and_units() -> None:
    place, size = np.array([5e5, 4e6, 120.0]), 30.0
    cube = surface_of_mesh(place + size * CUBE, CUBE_FACES, 30_000, generator())
    site = scene(
        4, 1000, degrees=270.0, motion_degrees=30.0, motion_shift=0.1, surface=cube, rng=generator()
    )
    there = [(x - place) / size for x in moved(site)]
    for x, (axis, side) in zip(there, [(2, 1), (0, 1), (2, -1), (0, -1)], strict=True):
        assert x[:, axis] == pytest.approx(side, abs=1e-6)  # a cube shows one face to each view
        assert np.abs(x).max() < 1 + 1e-6
    for cloud in site.clouds:
        # turned about the body, not about the far origin
        assert np.linalg.norm(cloud.mean(0) - place) < 3 * size


def test_shifts_are_measured_by_the_extent_of_the_surface() -> None:
    ball = sphere(10_000, [0.0, 0.0, 0.0], 500.0)
    shifts = scene(
        8, 50, motion_degrees=0.0, motion_shift=0.1, surface=ball, rng=generator()
    ).poses[:, :3, 3]
    assert 50 < np.abs(shifts).max() <= 100


def test_no_point_of_a_given_surface_is_in_two_clouds() -> None:
    ball = sphere(20_000, [0.0, 0.0, 0.0], 1.0)
    clouds = moved(scene(3, 1500, degrees=20.0, surface=ball, rng=generator()))
    together = np.round(np.concatenate(clouds), 9)
    assert len(np.unique(together, axis=0)) == len(together)


def test_too_few_points_are_refused() -> None:
    cube = surface_of_mesh(CUBE, CUBE_FACES, 1000, generator())
    with pytest.raises(ValueError, match=r"needs \d+ points but sees only \d+"):
        scene(4, 1000, surface=cube, rng=generator())


def test_paper_views_follow_the_paper(dense: dict[int, SampledSurface]) -> None:
    given = 40 * dense[3].points + [100.0, 20.0, -7.0]
    views = paper_views(given, noise_db=None, outliers=0.0, rng=generator())
    model = (given - given.mean(0)) / diameter(given)
    assert diameter(model) == pytest.approx(1)
    for x, there in zip(views.clouds, moved(views), strict=True):
        assert 1000 <= len(x) <= 2000
        assert 0 <= x[:, 2].min() < 0.02
        assert distance(there, model).max() < 1e-12
        assert len(np.unique(x, axis=0)) == len(x)
    assert len({len(x) for x in views.clouds}) > 1
    assert np.degrees(angle(rotation(views.poses))) == pytest.approx([0, 10, 20, 30])
    assert views.poses[:, 1, 1] == pytest.approx(1)  # in the xz plane
