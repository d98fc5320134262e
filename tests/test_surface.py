"""The last step against the common surface: laws, and a bias that it removes."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.align import surface, surface_kernels
from coframe.align.recipe import ALIGN
from coframe.data.simulate import places, sensors
from coframe.data.simulate.bodies import BODIES
from coframe.data.simulate.cast import Caster
from coframe.em.constraints import UNCONSTRAINED, Constraints
from coframe.evaluate import limit
from coframe.nearest import neighbours


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def views(rng, count=4, points=700, noise=0.0005):
    """Views of a bumpy ball from around its middle, and their true poses."""
    clouds, poses = [], []
    for j in range(count):
        d = rng.normal(size=(8 * points, 3))
        d /= np.linalg.norm(d, axis=1, keepdims=True)
        angle = 2 * np.pi * j / count
        d = d[d @ [np.cos(angle), np.sin(angle), 0.0] > 0.2][:points]
        radius = 0.4 * (1 + 0.15 * np.sin(5 * d[:, 0]) * np.cos(4 * d[:, 1] + 3 * d[:, 2]))
        x = d * radius[:, None] + rng.normal(0, noise, d.shape)
        T = geometry.pose(geometry.random_rotation(rng, 3), rng.normal(size=3))
        clouds.append(geometry.transform(geometry.inverse(T), x))
        poses.append(T)
    return clouds, np.array(poses)


def disturbed(poses, rng, size=0.003):
    twists = rng.normal(0, size, (len(poses), 6))
    twists[0] = 0
    return geometry.exp(twists) @ poses


def surfaces_of(clouds):
    return [surface.surface_of(cloud, np.ones(len(cloud)), ALIGN.denoise) for cloud in clouds]


def error(poses, truth):
    motions = poses @ geometry.inverse(truth)
    return np.abs(geometry.log(geometry.inverse(motions[0]) @ motions)).max()


def refined(clouds, start, constraints=UNCONSTRAINED, threads=1):
    found = surface.refine_surfaces(surfaces_of(clouds), start, constraints, ALIGN, threads)
    assert found is not None
    return found


def test_it_finds_the_poses(rng):
    clouds, truth = views(rng)
    start = disturbed(truth, rng)
    assert error(start, truth) > 0.003
    assert error(refined(clouds, start).poses, truth) < 0.4 * error(start, truth)


def test_the_covariance_is_true(rng):
    squares = []
    for _ in range(5):
        clouds, truth = views(rng, points=500)
        found = refined(clouds, disturbed(truth, rng, size=0.001))
        twists = geometry.log(found.poses @ geometry.inverse(truth))
        # As the covariance has it: about each cloud's origin, less the mean of all clouds.
        twists = twists - twists.mean(0)
        origins = geometry.translation(found.poses)
        for twist, origin, C in zip(twists, origins, found.covariance, strict=True):
            e = geometry.lever(origin) @ twist
            squares.append(e @ np.linalg.solve(C, e) / 6)
    assert 0.4 < np.mean(squares) < 2.5


def test_estimates_that_agree_are_averaged(rng):
    clouds, truth = views(rng)
    near = refined(clouds, disturbed(truth, rng, size=0.001)).poses
    again = refined(clouds, near).poses
    assert error(again, near) < 0.3 * error(near, truth) + 1e-4


@pytest.mark.parametrize("noise", [0.0005, 0.004])
def test_threads_change_nothing(rng, noise):
    clouds, truth = views(rng, points=400, noise=noise)
    start = disturbed(truth, rng)
    one, two = (refined(clouds, start, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.poses, two.poses)
    np.testing.assert_array_equal(one.covariance, two.covariance)


def test_a_common_motion_changes_nothing(rng):
    clouds, truth = views(rng, points=400)
    start = disturbed(truth, rng)
    motion = geometry.pose(geometry.random_rotation(rng, 3), rng.normal(size=3))
    here = refined(clouds, start).poses
    there = refined(clouds, motion @ start).poses
    assert error(there, here) < 1e-7


def test_the_order_of_clouds_changes_nothing(rng):
    clouds, truth = views(rng, points=400)
    start = disturbed(truth, rng)
    here = refined(clouds, start).poses
    there = refined(clouds[::-1], start[::-1]).poses[::-1]
    # Other points are the middles of patches: the same but for chance.
    assert error(there, here) < 0.3 * error(start, truth)


def test_fixed_clouds_stay(rng):
    clouds, truth = views(rng, points=400)
    start = disturbed(truth, rng)
    fixed = Constraints(fixed=(0, 2))
    found = refined(clouds, start, fixed)
    np.testing.assert_array_equal(found.poses[[0, 2]], start[[0, 2]])
    assert np.abs(found.poses[1] - start[1]).max() > 1e-4
    assert not found.covariance[[0, 2]].any()


def test_steps_to_another_place_are_not_taken(rng):
    clouds, truth = views(rng, points=400)
    far = disturbed(truth, rng, size=0.2)
    found = surface.refine_surfaces(surfaces_of(clouds), far, UNCONSTRAINED, ALIGN, 1)
    assert found is None or error(found.poses, far) < 0.2


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_normals_of_a_view_face_away_from_the_centre(rng, sign):
    clouds, truth = views(rng, count=2)
    x = geometry.transform(truth[0], clouds[0])
    normals = sign * surface.surface_of(x, np.ones(len(x)), ALIGN.denoise).normals
    turned, known = surface.orient(normals, x, np.zeros(3))
    assert known > 0.9
    assert ((turned * x).sum(1) > 0).mean() > 0.98
    wall = rng.uniform(-1, 1, (300, 3)) * [1, 1, 0]
    assert surface.orient(np.tile([0.0, 0, 1], (300, 1)), wall, np.zeros(3))[1] < 1e-9


def sheet(rng, sides, points=600):
    """Views of a wavy sheet of some thickness, each of one of its sides, in one frame."""
    clouds = []
    for side in sides:
        x = np.concatenate([rng.uniform(-0.5, 0.5, (points, 2)), np.zeros((points, 1))], 1)
        x[:, 2] = 0.1 * np.sin(6 * x[:, 0]) * np.cos(5 * x[:, 1]) + side
        clouds.append(x + rng.normal(0, 1e-3, x.shape))
    return clouds


def test_views_of_a_relief_face_alike_though_the_centre_cannot_tell(rng):
    clouds = sheet(rng, [0.0, 0.0, 0.0])
    start = disturbed(geometry.identity(3, 3), rng, size=0.002)
    found = refined(clouds, start).poses
    assert error(found, geometry.identity(3, 3)) < error(start, geometry.identity(3, 3))


def test_clouds_without_common_surface_stay(rng):
    clouds = [rng.uniform(-0.5, 0.5, (20, 3)) for _ in range(2)]
    found = surface.refine_surfaces(
        surfaces_of(clouds), geometry.identity(2, 3), UNCONSTRAINED, ALIGN, 1
    )
    assert found is None


def scanned_place(place, points=3000):
    """Scans from within a place, in units of its extent: clouds about their middles."""
    scans = places.scanned(place, np.random.default_rng(1), points=points)
    scale = max(geometry.extent(cloud) for cloud in scans.clouds)
    middles = np.array([np.median(cloud, 0) for cloud in scans.clouds])
    clouds = [(cloud - middle) / scale for cloud, middle in zip(scans.clouds, middles, strict=True)]
    R, t = geometry.rotation(scans.poses), geometry.translation(scans.poses)
    poses = geometry.pose(R, (t + (R @ middles[..., None])[..., 0] - t.mean(0)) / scale)
    sigma = [each / scale for each in scans.sigma]
    return clouds, poses, sigma, scans.normals


@pytest.mark.parametrize(("make", "times"), [("room", 2.0), ("hall", 15.0)])
def test_places_seen_from_within_end_near_the_limit(rng, make, times):
    """The steps between floor, blocks and pillars are many times as high as the noise."""
    options = {"sensor": "terrestrial"} if make == "room" else {}
    place = getattr(places, make)(np.random.default_rng(0), **options)
    clouds, truth, sigma, normals = scanned_place(place)
    best = limit(clouds, truth, sigma=sigma, normals=normals, rng=rng)
    found = refined(clouds, disturbed(truth, rng, size=5e-5)).poses
    wrong = truth[0] @ geometry.inverse(found[0]) @ found @ geometry.inverse(truth)
    angles = geometry.angle(geometry.rotation(wrong))[1:]
    assert angles.mean() < times * best.angle


def revolved(rng, count=4, points=1200, noise=3e-4):
    """Scans of a fluted body of revolution, from around it, in one frame."""
    clouds = []
    for j in range(count):
        z = rng.uniform(-0.4, 0.4, 8 * points)
        phi = rng.uniform(0, 2 * np.pi, 8 * points)
        radius = 0.3 + 0.05 * np.cos(4 * z) + 0.01 * np.cos(16 * phi)
        x = np.stack([radius * np.cos(phi), radius * np.sin(phi), z], 1)
        seen = x[np.cos(phi - np.pi * j / 2) > -0.2][:points]
        clouds.append(seen + rng.normal(0, noise, seen.shape))
    return clouds


def test_bodies_that_slid_along_themselves_come_back():
    """One step is too short: on its way back a cloud meets new surface."""
    clouds = revolved(np.random.default_rng(1))
    slid = np.zeros((4, 6))
    slid[:, 2] = 0, 0.02, -0.02, 0.02
    start, truth = geometry.exp(slid), geometry.identity(4, 3)
    assert error(refined(clouds, start).poses, truth) < 0.05 * error(start, truth)


def drawn_patches(rng, patches, size=20, noise=1.0, rough=40.0):
    """Patches whose heights are drawn from the model, each half of a cloud of its own."""
    where = rng.uniform(-1, 1, (patches, size, 2))
    apart = np.linalg.norm(where[:, :, None] - where[:, None], axis=-1)
    C = rough * apart**3 + noise * np.eye(size)
    plane = np.concatenate([np.ones((patches, size, 1)), where], 2)
    # The covariance is known across planes only; the plane that fits best is zero.
    axes = np.linalg.svd(plane)[0][:, :, 3:]
    across = np.swapaxes(axes, 1, 2)
    root = np.linalg.cholesky(across @ C @ axes)
    drawn = np.linalg.solve(np.swapaxes(root, 1, 2), rng.normal(size=(patches, size - 3, 1)))
    heights = (C @ axes @ drawn)[..., 0]
    points = np.concatenate([where, heights[..., None]], 2).reshape(-1, 3)
    cloud = (where[:, :, 0] > 0).astype(int).ravel()
    return points, cloud


def test_at_the_true_poses_the_gradient_is_zero_on_average(rng):
    """Members are not drawn along the slopes of their own noise."""
    patches, size = 4000, 20
    points, cloud = drawn_patches(rng, patches, size)
    rows, at = np.arange(patches * size).reshape(patches, size), np.arange(patches)
    feet = np.zeros((patches, 3))
    normal, width = np.tile([0.0, 0.0, 1.0], (patches, 1)), np.ones(patches)
    weights, posterior = np.ones(len(points)), np.ones((patches, 1))
    A, D = np.empty((patches, size - 3, size)), np.empty((patches, size - 3))
    height, where = np.empty((patches, size)), np.empty((patches, size, 2))
    about = rows, normal, width, feet, at, points, weights
    surface_kernels.decompose(*about, 0, patches, A, D, height, where)
    noise, rough = np.ones(1), np.full(1, 40.0)
    slides = np.empty((patches, 2))
    for p in range(patches):
        H, g = np.zeros((12, 12)), np.zeros(12)
        surface_kernels.normal_equations(
            *(A, D, height, where, rows, normal, width, posterior, noise, rough, cloud, points),
            *(np.zeros(3), weights, p, p + 1, H, g),
        )
        slides[p] = g[9:11]
    error = slides.std(0) / np.sqrt(patches)
    assert (np.abs(slides.mean(0)) < 4 * error).all()


def test_scans_from_within_are_not_taken_for_views_from_one_side(rng):
    """The normals of a room are in no half space: turned into one, those of two scans disagree."""
    clouds, truth, _, _ = scanned_place(places.room(np.random.default_rng(1), sensor="terrestrial"))
    scene = surface.Scene.of(surfaces_of(clouds), truth, ALIGN.evidence)
    assert scene.oriented.any()  # for all that the centre can tell
    tree = cKDTree(scene.feet)
    near = neighbours(tree, ALIGN.denoise.inner)[:, 1:]
    found = scene.facing_alike(tree.indices, near, ALIGN.surface)
    assert found is not None
    assert not found.oriented.any()
    clouds, truth = views(rng)
    scene = surface.Scene.of(surfaces_of(clouds), truth, ALIGN.evidence)
    tree = cKDTree(scene.feet)
    near = neighbours(tree, ALIGN.denoise.inner)[:, 1:]
    found = scene.facing_alike(tree.indices, near, ALIGN.surface)
    assert found is not None
    assert found.oriented.all()


def test_thin_bodies_end_near_the_limit():
    """Views of a chair: legs that each cloud sees from its own side draw none of them along."""
    shifts = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        caster = Caster.of(BODIES["chair"](rng))
        stations = sensors.around(6, distance=2.5, rng=rng)
        found = [sensors.turntable(caster, station, rng) for station in stations]
        scans = sensors.gathered("chair", found, rng, points=1500)
        clouds, truth = scans.clouds, scans.poses
        best = limit(clouds, truth, sigma=scans.sigma, normals=scans.normals, rng=rng)
        poses = refined(clouds, disturbed(truth, rng, size=1e-3)).poses
        wrong = truth[0] @ geometry.inverse(poses[0]) @ poses @ geometry.inverse(truth)
        moved = geometry.rotation(wrong) @ best.centre + geometry.translation(wrong)
        shift = np.linalg.norm(moved - best.centre, axis=1)[1:].mean()
        shifts.append(shift / best.shift)
    assert np.mean(shifts) < 3
