# SPDX-License-Identifier: MIT
"""Trajectories: files, times, and the two errors, against evo."""

import numpy as np
import pytest
from evo.core import metrics, sync
from evo.core import trajectory as evo_trajectory
from evo.tools import file_interface
from hypothesis import given
from hypothesis import strategies as st
from scenes import random_poses

from coframe import InputError, geometry
from coframe.evaluate import trajectory_errors
from coframe.io import trajectory
from coframe.io.trajectory import Trajectory


def path(seed=0, count=60, rate=30.0, start=100.0):
    """A smooth path with jittering times."""
    rng = np.random.default_rng(seed)
    times = start + (np.arange(count) + rng.uniform(-0.2, 0.2, count)) / rate
    steps = random_poses(rng, count, 3, degrees=4.0, shift=0.02)
    poses = [steps[0]]
    for step in steps[1:]:
        poses.append(poses[-1] @ step)
    return Trajectory(times, np.array(poses))


def disturbed(truth, seed=1, rate=2):
    """Every other pose of the path, in another frame, a little late and a little wrong."""
    rng = np.random.default_rng(seed)
    poses = (
        random_poses(rng, 1, 3)[0]
        @ truth.poses
        @ random_poses(rng, len(truth), 3, degrees=2.0, shift=0.01)
    )
    return Trajectory(truth.times[::rate] + 0.003, poses[::rate])


def as_evo(t):
    return evo_trajectory.PoseTrajectory3D(poses_se3=list(t.poses), timestamps=t.times)


def test_absolute_errors_are_those_of_evo():
    truth = path()
    estimate = disturbed(truth)
    reference, other = sync.associate_trajectories(as_evo(truth), as_evo(estimate), max_diff=0.02)
    other.align(reference)
    ape = metrics.APE(metrics.PoseRelation.translation_part)
    ape.process_data((reference, other))
    ours = trajectory_errors.absolute_errors(estimate, truth)
    np.testing.assert_allclose(ours.values, ape.error, atol=1e-9)
    for name in ("rmse", "mean", "median"):
        assert getattr(ours, name) == pytest.approx(
            ape.get_statistic(metrics.StatisticsType[name]), rel=1e-9
        )
    assert ours.largest == pytest.approx(ape.get_statistic(metrics.StatisticsType.max), rel=1e-9)


@pytest.mark.parametrize("frames", [1, 7])
def test_relative_errors_are_those_of_evo(frames):
    truth = path()
    estimate = disturbed(truth)
    pair = sync.associate_trajectories(as_evo(truth), as_evo(estimate), max_diff=0.02)
    shift, turn = trajectory_errors.relative_errors(estimate, truth, frames=frames)
    relations = (
        (metrics.PoseRelation.translation_part, shift),
        (metrics.PoseRelation.rotation_angle_deg, turn),
    )
    for relation, ours in relations:
        rpe = metrics.RPE(relation, delta=frames, delta_unit=metrics.Unit.frames, all_pairs=True)
        rpe.process_data(pair)
        np.testing.assert_allclose(ours.values, rpe.error, atol=1e-6)


def test_relative_errors_over_seconds_see_a_constant_drift():
    truth = path(rate=20.0)
    drift = geometry.pose(
        np.tile(np.eye(3), (len(truth), 1, 1)), np.outer(truth.times, [0.01, 0, 0])
    )
    straight = Trajectory(truth.times, geometry.identity(len(truth), 3))
    shift, turn = trajectory_errors.relative_errors(
        Trajectory(truth.times, drift), straight, seconds=0.5, tolerance=0.03
    )
    assert 0.9 * 0.005 < shift.rmse < 1.1 * 0.005
    assert turn.largest < 1e-6


def test_errors_know_no_frame():
    truth = path()
    rng = np.random.default_rng(0)
    moved = truth.moved(random_poses(rng, 1, 3)[0])
    assert trajectory_errors.absolute_errors(moved, truth).largest < 1e-12
    assert trajectory_errors.relative_errors(moved, truth)[0].largest < 1e-12
    np.testing.assert_allclose(
        trajectory_errors.aligned(moved, truth).poses, truth.poses, atol=1e-9
    )


@given(
    st.lists(st.floats(0, 2), max_size=12, unique=True).map(sorted),
    st.lists(st.floats(0, 2), max_size=12, unique=True).map(sorted),
    st.floats(0, 0.5),
)
def test_association_pairs_each_time_once_and_nearest_first(first, second, tolerance):
    """As in the script of Sturm et al.: all pairs by difference, taken while both are free."""
    first, second = np.array(first, float), np.array(second, float)
    # The window is a sum and the difference a difference: pairs within rounding of the tolerance
    # may go either way.
    edge = [abs(abs(a - b) - tolerance) for a in first for b in second]
    if edge and min(edge) < 1e-12:
        return
    pairs = sorted(
        (abs(a - b), i, j)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
        if abs(a - b) <= tolerance
    )
    expected, used_i, used_j = [], set(), set()
    for _, i, j in pairs:
        if i not in used_i and j not in used_j:
            used_i.add(i)
            used_j.add(j)
            expected.append((i, j))
    i, j = trajectory_errors.associate(first, second, tolerance)
    assert list(zip(i.tolist(), j.tolist(), strict=True)) == sorted(expected)


def test_interpolation_keeps_the_poses_and_halves_the_way():
    t = path()
    np.testing.assert_allclose(t.at(t.times), t.poses, atol=1e-12)
    middle = t.at((t.times[:-1] + t.times[1:]) / 2)
    first, second = geometry.inverse(t.poses[:-1]) @ middle, geometry.inverse(middle) @ t.poses[1:]
    np.testing.assert_allclose(geometry.rotation(first), geometry.rotation(second), atol=1e-9)
    a, m, b = (geometry.translation(p) for p in (t.poses[:-1], middle, t.poses[1:]))
    np.testing.assert_allclose(m, (a + b) / 2, atol=1e-12)
    with pytest.raises(InputError, match=r"expected times from 100\.0"):
        t.at(np.array([5.0]))


def test_tum_files_go_round_and_evo_reads_them(tmp_path):
    t = path(start=1305031453.0)
    trajectory.write_tum(tmp_path / "t.txt", t, ["made by a test"])
    back, evo = (
        trajectory.read_tum(tmp_path / "t.txt"),
        file_interface.read_tum_trajectory_file(tmp_path / "t.txt"),
    )
    assert (
        (tmp_path / "t.txt")
        .read_text()
        .startswith("# made by a test\n# timestamp tx ty tz qx qy qz qw\n")
    )
    np.testing.assert_allclose(back.times, t.times, atol=1e-6)
    np.testing.assert_allclose(back.poses, t.poses, atol=1e-8)
    np.testing.assert_allclose(np.array(evo.poses_se3), back.poses, atol=1e-12)
    file_interface.write_tum_trajectory_file(tmp_path / "evo.txt", as_evo(t))
    np.testing.assert_allclose(trajectory.read_tum(tmp_path / "evo.txt").poses, t.poses, atol=1e-12)


def test_kitti_files_go_round_and_evo_reads_them(tmp_path):
    t = path()
    trajectory.write_kitti(tmp_path / "t.txt", t)
    evo = file_interface.read_kitti_poses_file(tmp_path / "t.txt")
    np.testing.assert_allclose(np.array(evo.poses_se3), t.poses, atol=1e-8)
    np.testing.assert_allclose(
        trajectory.read_kitti(tmp_path / "t.txt", t.times).poses, t.poses, atol=1e-8
    )
    np.testing.assert_array_equal(
        trajectory.read_kitti(tmp_path / "t.txt").times, np.arange(len(t))
    )
    with pytest.raises(InputError, match="expected 60, one for each pose"):
        trajectory.read_kitti(tmp_path / "t.txt", t.times[1:])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no numbers"),
        ("1 2 3\n", "line 1: expected 8 numbers, found 3"),
        ("1 0 0 0 a b c d\n", "something else"),
        ("1 0 0 0 0 0 0 0\n", "length 0"),
        ("1 0 0 0 0 0 0 nan\n", "NaN"),
        ("2 0 0 0 0 0 0 1\n1 0 0 0 0 0 0 1\n", "rising times"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, words):
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(InputError, match=words):
        trajectory.read_tum(tmp_path / "t.txt")


def test_absent_files_and_trajectories_apart_are_refused(tmp_path):
    with pytest.raises(InputError, match="found nothing"):
        trajectory.read_tum(tmp_path / "absent.txt")
    with pytest.raises(InputError, match="at least 3 poses within"):
        trajectory_errors.absolute_errors(path(start=0.0), path(start=500.0))
    (tmp_path / "k.txt").write_text("2 0 0 0 0 1 0 0 0 0 1 0\n")
    with pytest.raises(InputError, match="no rotation"):
        trajectory.read_kitti(tmp_path / "k.txt")
    with pytest.raises(InputError, match="at least two poses"):
        Trajectory(np.zeros(1), geometry.identity(1, 3)).at(np.zeros(1))
    with pytest.raises(InputError, match="found both"):
        trajectory_errors.relative_errors(path(), path(), frames=1, seconds=1.0)
    with pytest.raises(InputError, match="fits into"):
        trajectory_errors.relative_errors(path(), path(), frames=100)


def test_the_ground_truth_of_tum_is_read(data):
    truth = trajectory.read_tum(data("tum_freiburg1_desk") / "groundtruth.txt")
    assert len(truth) == 2335
    # the sequence's page says 9.263 m, of which the markers' jitter is no part
    assert 9 < truth.length < 13
