"""The last step against the common surface: laws, and a bias that it removes."""

from dataclasses import replace

import numpy as np
import pytest

from coframe import geometry
from coframe.align import surface
from coframe.align.recipe import ALIGN
from coframe.em.constraints import UNCONSTRAINED, Constraints

RECIPE = replace(ALIGN.surface, noisy=True, clean=True)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def views(rng, count=4, points=700, noise=0.002):
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


def disturbed(poses, rng, size=0.01):
    twists = rng.normal(0, size, (len(poses), 6))
    twists[0] = 0
    return geometry.exp(twists) @ poses


def surfaces_of(clouds):
    return [surface.surface_of(cloud, np.ones(len(cloud)), ALIGN.denoise) for cloud in clouds]


def error(poses, truth):
    motions = poses @ geometry.inverse(truth)
    return np.abs(geometry.log(geometry.inverse(motions[0]) @ motions)).max()


def test_it_finds_the_poses(rng):
    clouds, truth = views(rng)
    start = disturbed(truth, rng)
    found = surface.refine_surfaces(surfaces_of(clouds), start, UNCONSTRAINED, RECIPE, 1)
    assert error(start, truth) > 0.01
    assert error(found, truth) < 0.001


def test_threads_change_nothing(rng):
    clouds, truth = views(rng, points=400)
    start = disturbed(truth, rng)
    surfaces = surfaces_of(clouds)
    one, two = (
        surface.refine_surfaces(surfaces, start, UNCONSTRAINED, RECIPE, threads)
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_a_common_motion_changes_nothing(rng):
    clouds, truth = views(rng, points=400)
    start = disturbed(truth, rng)
    surfaces = surfaces_of(clouds)
    motion = geometry.pose(geometry.random_rotation(rng, 3), rng.normal(size=3))
    here = surface.refine_surfaces(surfaces, start, UNCONSTRAINED, RECIPE, 1)
    there = surface.refine_surfaces(surfaces, motion @ start, UNCONSTRAINED, RECIPE, 1)
    assert error(there, here) < 1e-7


def test_fixed_clouds_stay(rng):
    clouds, truth = views(rng, points=400)
    start = disturbed(truth, rng)
    fixed = Constraints(fixed=(0, 2))
    found = surface.refine_surfaces(surfaces_of(clouds), start, fixed, RECIPE, 1)
    np.testing.assert_array_equal(found[[0, 2]], start[[0, 2]])
    assert np.abs(found[1] - start[1]).max() > 1e-4


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_normals_of_a_view_face_away_from_the_centre(rng, sign):
    clouds, truth = views(rng, count=2)
    x = geometry.transform(truth[0], clouds[0])
    normals = sign * surface.surface_of(x, np.ones(len(x)), ALIGN.denoise).normals
    turned, known = surface.orient(normals, x, np.zeros(3), RECIPE)
    assert known
    assert ((turned * x).sum(1) > 0).mean() > 0.99
    wall = rng.uniform(-1, 1, (300, 3)) * [1, 1, 0]
    assert not surface.orient(np.tile([0.0, 0, 1], (300, 1)), wall, np.zeros(3), RECIPE)[1]
