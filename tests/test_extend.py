# SPDX-License-Identifier: MIT
"""A registration that grows cloud by cloud: near the batch result, able to forget, and able to go
on in another process.
"""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scenes import random_poses, unchecked

import coframe
from coframe import InputError, Options, geometry
from coframe.align.recipe import ALIGN
from coframe.data import simulate
from coframe.em.moments import Moments
from coframe.em.recipe import MODEL
from coframe.evaluate import metrics
from coframe.io import ply
from coframe.result.groups import side_by_side
from coframe.start.doubt import Doubt

FEW = Options(components=150, points=600)


@pytest.fixture(scope="module")
def scene():
    return simulate.scene(6, 700, degrees=150.0, noise_db=50.0, rng=np.random.default_rng(2))


@pytest.fixture(scope="module")
def four(scene):
    return coframe.register(scene.clouds[:4], scene.poses[:4], options=FEW)


@pytest.fixture(scope="module")
def five(scene, four):
    """The fifth cloud starts 8 degrees and a few per cent off."""
    off = random_poses(np.random.default_rng(1), 1, 3, degrees=8.0, shift=0.01)[0]
    return coframe.extend(
        four,
        scene.clouds[4],
        off @ four.poses[0] @ geometry.inverse(scene.poses[0]) @ scene.poses[4],
    )


def test_a_new_cloud_finds_its_place_and_no_other_moves(scene, four, five):
    np.testing.assert_array_equal(five.poses[:4], four.poses)
    assert metrics.rotation_errors(five.poses, scene.poses[:5])[4] < 0.5
    assert five.verdicts[:4] == four.verdicts
    assert five.verdicts[4].verdict == "aligned"
    lengths = [
        five.clouds,
        five.names,
        five.labels,
        five.outlier_probability,
        five.poses,
        five.pose_covariance,
    ]
    assert [len(x) for x in lengths] == [5] * 6
    np.testing.assert_allclose(
        five.mixture.visibility.sum(1), four.mixture.visibility.sum(1)[0], rtol=1e-9
    )
    np.testing.assert_allclose(five.mixture.weights, five.mixture.visibility.mean(0), rtol=1e-12)
    assert five.moments.mass.shape == (5, len(five.mixture))
    assert (five.labels[4] < len(five.mixture)).all()
    assert np.linalg.eigvalsh(five.mixture.covariances).min() > 0


def test_the_mixture_is_that_of_past_and_new_moments(four, five):
    """What the old mixture stands for, plus what the new cloud says of each old component."""
    K = len(four.mixture)
    total = Moments.implied_by(four.mixture, four.moments.mass.sum(0), MODEL.pseudo_points)
    new = five.moments[4].recentred(five.moments.about)
    about = five.moments.about[:K]
    total = total.recentred(about)
    mass, first = total.mass + new.mass[:K], total.first + new.first[:K]
    np.testing.assert_allclose(first / mass[:, None], 0, atol=1e-12)
    covariances = (total.second + new.second[:K]) / mass[:, None, None]
    np.testing.assert_allclose(five.mixture.covariances[:K], covariances, rtol=1e-10, atol=1e-12)


def test_forgetting_the_new_cloud_gives_back_the_old_mixture(four, five):
    back = coframe.forget(five, 4)
    np.testing.assert_allclose(back.mixture.means, four.mixture.means, atol=1e-9)
    np.testing.assert_allclose(
        back.mixture.covariances, four.mixture.covariances, rtol=1e-8, atol=1e-12
    )
    np.testing.assert_allclose(back.mixture.weights, four.mixture.weights, rtol=1e-12)
    np.testing.assert_allclose(back.mixture.visibility, four.mixture.visibility, rtol=1e-12)
    np.testing.assert_allclose(back.moments.mass, four.moments.mass, rtol=1e-12)
    np.testing.assert_allclose(
        back.moments.recentred(four.moments.about).second,
        four.moments.second,
        rtol=1e-8,
        atol=1e-12,
    )
    assert back.names == four.names
    assert back.verdicts == four.verdicts
    for a, b in zip(back.labels, four.labels, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("cloud", [0, 2])
def test_forgetting_a_cloud_of_a_batch_leaves_a_model_of_the_others(scene, four, cloud):
    rest = coframe.forget(four, cloud)
    assert len(rest.clouds) == 3
    assert np.linalg.eigvalsh(rest.mixture.covariances).min() > 0
    assert (rest.moments.mass.sum(0) > 0).all()
    again = coframe.extend(rest, four.clouds[cloud], four.poses[cloud], options=FEW)
    assert (
        metrics.rotation_errors(again.poses[[0, 3]], np.stack([rest.poses[0], four.poses[cloud]]))[
            1
        ]
        < 0.3
    )


def test_the_mixture_grows_where_there_is_new_surface_and_only_there(four):
    """The same cloud again is all known; a sheet beside the object adds components on the sheet."""
    same = coframe.extend(four, four.clouds[3], options=FEW)
    assert len(same.mixture) <= 1.02 * len(four.mixture)
    assert metrics.rotation_errors(same.poses[3:], np.stack([four.poses[3]] * 2))[1] < 0.1
    rng = np.random.default_rng(0)
    size = np.ptp(four.clouds[3], axis=0).max()
    centre = four.clouds[3].mean(0) + size * np.array([1.2, 0, 0])
    sheet = centre + size * rng.uniform(-0.3, 0.3, (200, 3)) * [0.0, 1.0, 1.0]
    more = coframe.extend(four, np.concatenate([four.clouds[3], sheet]), options=FEW)
    K = len(four.mixture)
    assert len(more.mixture) > K + 5
    found = geometry.transform(geometry.inverse(more.poses[-1]), more.mixture.means[K:])
    beside = np.abs(found - centre)[:, 0] < 0.05 * size
    assert beside.mean() > 0.8
    assert (more.labels[-1][-200:] >= K).mean() > 0.9
    assert (more.labels[-1][-200:] >= 0).mean() > 0.9
    assert metrics.rotation_errors(more.poses[3:], np.stack([four.poses[3]] * 2))[1] < 0.3


def test_what_does_not_belong_is_said_to(four):
    rng = np.random.default_rng(0)
    other = rng.uniform(-1, 1, (600, 3)) * [2.0, 2.0, 0.01]
    extended = coframe.extend(four, other, options=FEW)
    assert extended.verdicts[-1].verdict in ("weak", "failed")


@pytest.mark.parametrize("start", ["previous", "velocity"])
def test_start_by_the_clouds_before(scene, four, start):
    """The views lie 30 degrees apart, so the last motion once more is nearly right."""
    result = coframe.extend(four, scene.clouds[4], start, options=FEW)
    assert result.poses.shape == (5, 4, 4)
    if start == "velocity":
        assert metrics.rotation_errors(result.poses, scene.poses[:5])[4] < 0.7


def test_global_matching_needs_no_start():
    scene = simulate.scene(4, 4000, degrees=60.0, noise_db=60.0, rng=np.random.default_rng(5))
    three = coframe.register(scene.clouds[:3], scene.poses[:3], options=FEW)
    away = random_poses(np.random.default_rng(0), 1, 3)[0]
    result = coframe.extend(three, geometry.transform(away, scene.clouds[3]), "match", options=FEW)
    poses = result.poses.copy()
    poses[3] = poses[3] @ away
    assert metrics.rotation_errors(poses, scene.poses)[3] < 1.0


def test_what_is_known_of_the_clouds_stays_with_them(scene, four, tmp_path):
    """Colours, files and groups grow and shrink with the clouds; the result can be saved."""
    red = [np.full(len(cloud), j, np.uint8) for j, cloud in enumerate(scene.clouds)]
    for j, cloud in enumerate(scene.clouds[:5]):
        ply.write(tmp_path / f"scan{j}.ply", cloud, red=red[j], green=red[j], blue=red[j])
    files = [tmp_path / f"scan{j}.ply" for j in range(5)]
    known = coframe.register(files[:4], scene.poses[:4], options=FEW)
    longer = coframe.extend(known, files[4], options=FEW)
    assert longer.names == tuple(f"scan{j}" for j in range(5))
    assert longer.groups == ((0, 1, 2, 3, 4),)
    shorter = coframe.forget(longer, 1)
    assert shorter.groups == ((0, 1, 2, 3),)
    for result, clouds in ((longer, range(5)), (shorter, (0, 2, 3, 4))):
        again = coframe.load(result.save(tmp_path / "out"))
        assert again.files == tuple(str(files[j]) for j in clouds)
        assert [int(each["red"][0]) for each in again.attributes] == list(clouds)
    array = coframe.extend(known, scene.clouds[4], options=FEW)  # which has neither
    assert array.files == ()
    assert len(coframe.load(array.save(tmp_path / "other")).attributes) == 5


def test_units_and_place_change_nothing(scene, four):
    one = coframe.extend(four, scene.clouds[4], "velocity", options=FEW)
    scale, shift = 1000.0, np.array([500_000.0, 4_400_000.0, 100.0])
    m = four.mixture
    moved = replace(
        four,
        clouds=tuple(scale * cloud for cloud in four.clouds),
        poses=geometry.pose(
            geometry.rotation(four.poses), scale * geometry.translation(four.poses) + shift
        ),
        mixture=replace(
            m,
            means=scale * m.means + shift,
            covariances=scale**2 * m.covariances,
            outlier_density=m.outlier_density / scale**3,
        ),
        moments=replace(
            four.moments,
            about=scale * four.moments.about + shift,
            first=scale * four.moments.first,
            second=scale**2 * four.moments.second,
        ),
    )
    other = coframe.extend(moved, scale * scene.clouds[4], "velocity", options=FEW)
    np.testing.assert_allclose(
        geometry.rotation(other.poses[4]), geometry.rotation(one.poses[4]), atol=1e-6
    )
    places = (geometry.translation(other.poses[4]) - shift) / scale
    np.testing.assert_allclose(places, geometry.translation(one.poses[4]), atol=1e-6)
    assert len(other.mixture) == len(one.mixture)


def test_threads_change_no_bit(scene, four):
    runs = [coframe.extend(four, scene.clouds[4], options=replace(FEW, threads=n)) for n in (1, 2)]
    np.testing.assert_array_equal(runs[0].poses, runs[1].poses)
    np.testing.assert_array_equal(runs[0].mixture.covariances, runs[1].mixture.covariances)


def test_a_saved_model_is_extended_in_another_process(tmp_path, scene, four):
    four.save(tmp_path / "model")
    np.save(tmp_path / "cloud.npy", scene.clouds[4])
    program = (
        "import coframe, numpy, sys; r = coframe.load('model');"
        "o = coframe.Options(components=150, points=600);"
        "coframe.extend(r, numpy.load('cloud.npy'), 'velocity', options=o).save('more')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    there, here = (
        coframe.load(tmp_path / "more"),
        coframe.extend(four, scene.clouds[4], "velocity", options=FEW),
    )
    np.testing.assert_allclose(there.poses, here.poses, atol=1e-9)
    assert there.verdicts[4].verdict == here.verdicts[4].verdict


def test_points_of_weight_zero_do_not_count(scene, four):
    """However many of them there are, and wherever they lie."""
    clutter = np.random.default_rng(0).normal(3, 5, (5000, 3))
    weights = np.repeat([2.0, 0.0], [len(scene.clouds[4]), len(clutter)])
    with_clutter = coframe.extend(
        four,
        np.concatenate([scene.clouds[4], clutter]),
        scene.poses[4],
        weights=weights,
        options=FEW,
    )
    without = coframe.extend(four, scene.clouds[4], scene.poses[4], options=FEW)
    np.testing.assert_array_equal(with_clutter.poses, without.poses)
    np.testing.assert_array_equal(with_clutter.pose_covariance, without.pose_covariance)


@pytest.mark.slow
def test_the_covariance_allows_for_noise_that_neighbours_share():
    """A cloud so noisy that its points are averaged over their neighbours is known about as well as
    in a registration of all.

    The two are different estimates (a registration ends with a step of its own against the surface,
    and states the covariance of that), so neither is the smaller one by necessity: in six scenes
    the ratio is between 0.7 and 1.2. Points that were counted as independent would make it a third.
    """
    noisy = simulate.scene(4, 1500, noise_db=25.0, rng=np.random.default_rng(1))
    options = Options(components=200, points=1500, iterations=3, threads=1)
    whole = coframe.register(noisy.clouds, noisy.poses, options=options)
    three = coframe.register(noisy.clouds[:3], noisy.poses[:3], options=options)
    longer = coframe.extend(three, noisy.clouds[3], noisy.poses[3], options=options)
    deviations = [np.sqrt(np.diagonal(result.pose_covariance[3])) for result in (longer, whole)]
    ratio = deviations[0] / deviations[1]
    assert (ratio > 0.5).all()
    assert (ratio < 2.0).all()


def test_the_new_cloud_s_frame_can_be_the_common_one(four, five):
    for cloud in (4, -1):
        other = five.relative_to(cloud)
        np.testing.assert_allclose(other.poses[4], np.eye(4), atol=1e-12)
        # of iterations before the cloud came
        for step, before in zip(other.history, five.history, strict=True):
            np.testing.assert_array_equal(
                step.poses, geometry.inverse(five.poses[4]) @ before.poses
            )


def test_clouds_on_their_own_stay_so(scene, four):
    """A cloud that nothing connects with the others sees nothing of the model, whatever comes or
    goes.
    """
    names, counts = [*four.names, "alone"], [len(cloud) for cloud in scene.clouds[:5]]
    beside = side_by_side(
        [four], [(0, 1, 2, 3), (4,)], names, counts, lambda poses: np.tile([0.0, 1.0], (5, 1))
    )
    nowhere = np.full(counts[4], -1)
    known = {"clouds": tuple(scene.clouds[:5]), "labels": (*four.labels, nowhere)}
    beside = replace(
        beside, **known, outlier_probability=(*four.outlier_probability, np.ones(counts[4]))
    )
    same = coframe.extend(beside, scene.clouds[0], four.poses[0], options=FEW)
    new = coframe.extend(
        beside,
        scene.clouds[5],
        four.poses[0] @ geometry.inverse(scene.poses[0]) @ scene.poses[5],
        options=FEW,
    )
    for changed, lonely in ((coframe.forget(beside, 1), 3), (same, 4), (new, 4)):
        assert np.isfinite(changed.mixture.weights).all()
        assert (changed.mixture.weights > 0).all()
        assert (changed.mixture.visibility[lonely] == 0).all()


def test_what_cannot_be_done_is_refused(four):
    with pytest.raises(InputError, match="one of previous, velocity, match"):
        coframe.extend(four, four.clouds[0], "nonsense")
    with pytest.raises(InputError, match="pose: expected a rotation"):
        coframe.extend(four, four.clouds[0], np.zeros((4, 4)))
    with pytest.raises(InputError, match="new: expected finite"):
        coframe.extend(four, np.full((9, 3), np.inf), name="new")
    with pytest.raises(InputError, match="coordinates per point"):
        coframe.extend(four, four.clouds[0][:, :2])
    with pytest.raises(InputError, match="expected 0 to 3"):
        coframe.forget(four, 4)
    lonely = four
    for _ in range(3):
        lonely = coframe.forget(lonely, 0)
    with pytest.raises(InputError, match="the last one"):
        coframe.forget(lonely, 0)


def test_in_the_plane():
    rng = np.random.default_rng(0)
    shape = np.stack(
        [np.cos(t := rng.uniform(0, 6, 400)), 0.6 * np.sin(t) + 0.2 * np.cos(3 * t)], 1
    )
    truth = random_poses(rng, 4, 2, degrees=5.0, shift=0.02)
    flat = [geometry.transform(geometry.inverse(T), shape[i::4]) for i, T in enumerate(truth)]
    result = coframe.register(flat[:3], options=FEW)
    result = coframe.extend(result, flat[3], options=FEW)
    assert metrics.rotation_errors(result.poses, truth)[3] < 1.0


def test_refining_moves_all_clouds_to_where_a_registration_would(scene, four):
    """From poses that are two degrees off, half of the way and more is undone at once; names stay,
    groups are refused.
    """
    off = random_poses(np.random.default_rng(3), 4, 3, degrees=2.0, shift=0.003)
    doubt = Doubt(2, "it may lie elsewhere")
    disturbed = replace(
        four,
        poses=off @ four.poses,
        names=("a", "b", "c", "d"),
        doubts=(doubt,),
        warnings=("look",),
    )
    refined = coframe.refine(disturbed, options=FEW)
    before = metrics.rotation_errors(disturbed.poses, scene.poses[:4])[1:].max()
    after = metrics.rotation_errors(refined.poses, scene.poses[:4])[1:].max()
    assert after < 0.4 * before
    assert refined.names == disturbed.names
    assert refined.options == FEW.record() | {"method": "refine"}
    assert (refined.verdicts[2].verdict, refined.verdicts[2].reason) == ("weak", doubt.reason)
    assert (refined.doubts, refined.warnings, refined.start) == ((doubt,), ("look",), "given")
    with pytest.raises(InputError, match="expected clouds in one common frame, found 2 groups"):
        coframe.refine(replace(four, groups=((0, 1), (2, 3))))


@pytest.mark.parametrize("options", [None, {"components": 20}, "fast", coframe.TrackOptions()])
def test_what_are_no_options_is_refused_by_every_verb(four, options):
    verbs = (
        lambda: coframe.register(four.clouds, four.poses, options=options),
        lambda: coframe.extend(four, four.clouds[0], options=options),
        lambda: coframe.refine(four, options=options),
        lambda: coframe.judge(four.clouds, four.poses, options=options),
    )
    for verb in verbs:
        with unchecked(), pytest.raises(InputError, match=r"options: expected coframe\.Options"):
            verb()


def test_what_is_said_of_the_run_stays_true(scene, four):
    """Warnings are kept, sizes go on, and the options are those that the last cloud came with."""
    known = replace(four, warnings=("look",), sizes=(9000, 8000, 7000, 6000))
    longer = coframe.extend(known, scene.clouds[4], "velocity", options=FEW)
    assert longer.warnings == ("look",)
    assert longer.sizes == (9000, 8000, 7000, 6000, len(scene.clouds[4]))
    assert longer.counts == longer.sizes
    assert longer.options == FEW.record() | {"method": "extend"}
    assert coframe.extend(four, scene.clouds[4], "velocity", options=FEW).sizes == ()
    shorter = coframe.forget(longer, 1)
    assert (shorter.warnings, shorter.sizes) == (
        ("look",),
        (9000, 7000, 6000, len(scene.clouds[4])),
    )
    refined = coframe.refine(replace(longer, sizes=()), options=FEW)
    assert refined.options == FEW.record() | {"method": "refine"}
    assert refined.warnings == ("look",)


@pytest.mark.parametrize(
    "recipe",
    [
        replace(ALIGN, localise=replace(ALIGN.localise, step_tolerance=1.0)),
        replace(ALIGN, model=replace(ALIGN.model, min_tangent=0.5)),
    ],
    ids=["localise", "model"],
)
def test_every_part_of_a_recipe_is_used(scene, four, recipe):
    start = four.poses[0] @ geometry.inverse(scene.poses[0]) @ scene.poses[4]
    with unchecked():
        usual = coframe.extend(four, scene.clouds[4], start, options=FEW)
        other = coframe.extend(four, scene.clouds[4], start, options=FEW, recipe=recipe)
    assert (usual.poses[4] != other.poses[4]).any()
