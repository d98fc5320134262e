# SPDX-License-Identifier: MIT
"""The proving ground: its plan has what it promises, conditions do what they say, runs resume, the
page is that of the records, and the scores do not fall.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.data import simulate
from coframe.data.simulate import Scans

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proving import conditions, plan, run

# Conditions


@pytest.fixture(scope="module")
def scans():
    """Six views of one body with known noise, as a sensor gives them."""
    return body(0)


@pytest.fixture(scope="module")
def other():
    return body(1)


def body(seed):
    found = simulate.scene(views=6, points=1500, degrees=60.0, rng=np.random.default_rng(seed))
    clouds = [np.array(cloud) for cloud in found.clouds]
    return Scans(
        f"body {seed}",
        clouds,
        found.poses,
        normals=[np.tile([0.0, 0.0, 1.0], (len(cloud), 1)) for cloud in clouds],
        sigma=[np.full(len(cloud), 0.001) for cloud in clouds],
        outliers=[np.zeros(len(cloud), bool) for cloud in clouds],
    )


def given(name, scans, other, seed=0):
    return conditions.CONDITIONS[name](scans, np.random.default_rng(seed), other)


def in_common_frame(scans):
    return [geometry.transform(T, v) for T, v in zip(scans.poses, scans.clouds, strict=True)]


@pytest.mark.parametrize("name", list(conditions.CONDITIONS))
def test_true_poses_carry_the_clouds_onto_each_other(name, scans, other):
    """Whatever is done to clouds, the poses and normals follow."""
    found = given(name, scans, other)
    merged = np.concatenate(in_common_frame(scans))
    tree = cKDTree(merged)
    for j, points in enumerate(in_common_frame(found.scans)):
        if j in found.foreign:
            continue
        distance = tree.query(points[~found.scans.outliers[j]])[0]
        wide = {"noise": 0.1, "more_noise": 0.3}.get(name, 1e-6)
        assert distance.max() < wide
    sizes = [len(each) for each in found.scans.clouds]
    for values in (found.scans.normals, found.scans.sigma, found.scans.outliers):
        assert [len(each) for each in values] == sizes
    up, truth = (
        [n @ geometry.rotation(T).T for n, T in zip(each.normals, each.poses, strict=True)]
        for each in (found.scans, scans)
    )
    if name not in ("shuffled", "foreign") and not name.startswith("overlap"):
        for own, true in zip(up, truth, strict=True):
            np.testing.assert_allclose(own[:50], true[:50], atol=1e-9)


def test_own_frames_of_scattered_clouds_say_nothing(scans, other):
    """Random turns and shifts of several extents; the clouds as they are lie within one."""
    turns = []
    for seed in range(5):
        found = given("nothing", scans, other, seed)
        assert found.start is None
        motions = geometry.inverse(scans.poses) @ found.scans.poses
        turns += np.degrees(geometry.angle(geometry.rotation(motions))).tolist()
    assert np.ptp(turns) > 120
    centres = [cloud.mean(0) for cloud in found.scans.clouds]
    assert np.ptp(centres, axis=0).max() > 2 * conditions.extent(scans.clouds[0])


@pytest.mark.parametrize(("name", "degrees", "share"), [("near", 8, 0.02), ("far", 20, 0.05)])
def test_starts_are_off_by_at_most_so_much(name, degrees, share, scans, other):
    worst, off = 0.0, 0.0
    for seed in range(5):
        found = given(name, scans, other, seed)
        np.testing.assert_array_equal(found.start[0], found.scans.poses[0])
        error = found.start @ geometry.inverse(found.scans.poses)
        worst = max(worst, np.degrees(geometry.angle(geometry.rotation(error))).max())
        for T, S, cloud in zip(found.start, found.scans.poses, found.scans.clouds, strict=True):
            centre = np.median(cloud, axis=0)[None]
            way = np.abs(geometry.transform(T, centre) - geometry.transform(S, centre)).max()
            off = max(off, way / conditions.extent(cloud))
    assert 0.7 * degrees < worst <= degrees + 1e-6
    assert 0.7 * share < off <= share + 1e-9


def test_one_start_is_far_off_and_the_others_are_near(scans, other):
    found = given("wrong_start", scans, other)
    error = found.start @ geometry.inverse(found.scans.poses)
    turn = np.sort(np.degrees(geometry.angle(geometry.rotation(error))))
    assert turn[-2] <= 8
    assert 52 <= turn[-1] <= 98


def test_true_starts_are_true(scans, other):
    found = given("true", scans, other)
    np.testing.assert_array_equal(found.start, found.scans.poses)


@pytest.mark.parametrize(("name", "decibels"), [("noise", 25), ("more_noise", 15)])
def test_noise_is_so_far_below_the_variance(name, decibels, scans, other):
    found = given(name, scans, other)
    for own, points, true, cloud in zip(
        found.scans.sigma,
        in_common_frame(found.scans),
        in_common_frame(scans),
        scans.clouds,
        strict=True,
    ):
        added = points - true
        ratio = 10 * np.log10(cloud.var(0).mean() / added.var())
        assert ratio == pytest.approx(decibels, abs=0.3)
        np.testing.assert_allclose(own, np.hypot(0.001, added.std()), rtol=0.03)


def test_clutter_is_30_percent(scans, other):
    found = given("clutter", scans, other)
    for outliers, normals in zip(found.scans.outliers, found.scans.normals, strict=True):
        assert outliers.mean() == pytest.approx(0.3, abs=0.001)
        np.testing.assert_array_equal(normals[outliers], 0)


def test_a_small_body_stands_elsewhere_in_each_cloud(scans, other):
    found = given("moving", scans, other)
    centres = []
    for points, outliers in zip(in_common_frame(found.scans), found.scans.outliers, strict=True):
        assert outliers.mean() == pytest.approx(1 / 6, abs=0.01)
        assert conditions.extent(points[outliers]) < 0.5 * conditions.extent(points[~outliers])
        centres.append(points[outliers].mean(0))
    apart = np.linalg.norm(np.array(centres)[:, None] - centres, axis=-1)
    assert np.median(apart[apart > 0]) > 0.2


@pytest.mark.parametrize("percent", [10, 30, 60, 90])
def test_neighbours_share_so_much(percent, scans, other):
    found = given(f"overlap_{percent}", scans, other)
    measured = conditions.overlap(found.scans.clouds, found.scans.poses)
    assert measured == pytest.approx(percent / 100, abs=0.12)
    assert sum(map(len, found.scans.clouds)) == sum(map(len, scans.clouds))


def test_overlap_of_two_squares_that_share_a_quarter():
    rng = np.random.default_rng(0)
    squares = [np.c_[rng.random((4000, 2)), np.zeros(4000)] for _ in range(2)]
    poses = geometry.identity(2, 3)
    poses[1, 0, 3] = 0.75
    assert conditions.overlap(squares, poses) == pytest.approx(0.25, abs=0.05)


def test_densities_go_from_a_tenth_to_all(scans, other):
    found = given("densities", scans, other)
    shares = [len(v) / len(w) for v, w in zip(found.scans.clouds, scans.clouds, strict=True)]
    assert min(shares) == pytest.approx(0.1, abs=0.01)
    assert max(shares) == 1


def test_the_foreign_cloud_is_marked(scans, other):
    found = given("foreign", scans, other)
    (odd,) = found.foreign
    sizes = sorted(len(cloud) for cloud in other.clouds)
    assert len(found.scans.clouds[odd]) in sizes
    assert found.scans.outliers[odd].all()
    assert not any(found.scans.outliers[j].any() for j in range(6) if j != odd)


def test_shuffled_clouds_are_the_same_clouds(scans, other):
    found = given("shuffled", scans, other)
    centres = [points.mean(0) for points in in_common_frame(found.scans)]
    before = [points.mean(0) for points in in_common_frame(scans)]
    distance, order = cKDTree(before).query(centres)
    assert distance.max() < 1e-9
    assert sorted(order) == list(range(6))
    assert list(order) != list(range(6))
    first = in_common_frame(found.scans)[0]
    assert np.abs(first - in_common_frame(scans)[order[0]]).max() > 0.1  # points in another order


# The plan


def test_the_plan_has_what_the_ground_promises():
    entries = plan.whole()
    simulated = [e for e in entries.values() if e.scene.family in plan.OF_FAMILY]
    assert len(simulated) >= 100
    families = {e.scene.family for e in simulated}
    assert len(families) >= 10
    assert {e.condition for e in simulated} == set(conditions.CONDITIONS)
    for family in families:
        halves = Counter(e.scene.half for e in simulated if e.scene.family == family)
        assert set(halves) == {"tune", "judge"}, family
        assert min(halves.values()) > 0.6 * max(halves.values()), family


def test_no_scene_is_in_both_halves():
    """Bodies by name; places, which are made from a seed, by their seed."""
    bodies = {"tune": set(), "judge": set()}
    seeds = {"tune": set(), "judge": set()}
    for entry in plan.whole().values():
        scene = entry.scene
        if scene.family == "object":
            bodies[scene.half].add(scene.name)
        seeds[scene.half].add(families_seed(scene))
        assert entry.other.half == scene.half
        assert entry.other.family == scene.family
    assert not bodies["tune"] & bodies["judge"]
    assert not seeds["tune"] & seeds["judge"]


def families_seed(scene):
    return plan.seed_of(scene.family, scene.name, scene.half)


def test_names_are_unique_and_seeds_stay():
    entries = list(plan.whole().values())
    assert len({entry.name for entry in entries}) == len(entries)
    found = next(e for e in entries if e.scene.name == "pebble" and e.condition == "nothing")
    assert found.name.startswith("object/pebble/nothing/tune/")
    alone = plan.Entry(found.scene, found.condition, found.other)
    assert alone.seed == found.seed == plan.seed_of("object", "pebble", "nothing", "tune") % 10_000


def test_a_problem_is_the_same_whenever_it_is_made():
    entry = next(e for e in plan.whole().values() if e.condition == "overlap_30")
    one, other = entry.problem(), entry.problem()
    assert run.digest(one) == run.digest(other)
    assert one.name == entry.name
    assert all(np.array_equal(cloud, cloud.astype(np.float32)) for cloud in one.clouds)


def test_the_slice_has_every_family():
    names = [entry.scene.family for entry in plan.slice()]
    assert set(names) == set(plan.OF_FAMILY)
    assert all(entry.scene.half == "tune" for entry in plan.slice())
