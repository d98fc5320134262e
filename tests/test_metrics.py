# SPDX-License-Identifier: MIT
"""Errors are the same in every gauge, and are what they say."""

from pathlib import Path

import numpy as np
import pytest
from scenes import random_poses

from coframe import InputError, geometry
from coframe.evaluate import files, metrics, trajectory_errors
from coframe.io import poses, trajectory

rng = np.random.default_rng(0)


@pytest.mark.parametrize("D", [2, 3])
def test_a_common_motion_is_no_error(D: int) -> None:
    truth = random_poses(rng, 4, D)
    poses = random_poses(rng, 1, D) @ truth
    np.testing.assert_allclose(metrics.rotation_errors(poses, truth), 0, atol=1e-10)
    np.testing.assert_allclose(metrics.translation_errors(poses, truth), 0, atol=1e-12)


@pytest.mark.parametrize(("D", "axis"), [(2, [1.0]), (3, [0.6, 0.0, 0.8])])
def test_a_known_error(D: int, axis: list[float]) -> None:
    truth = random_poses(rng, 3, D)
    wrong = truth.copy()
    wrong[2] = truth[2] @ geometry.pose(
        geometry.exp_rotation(np.radians(2.5) * np.array(axis)), np.full(D, 0.3)
    )
    np.testing.assert_allclose(metrics.rotation_errors(wrong, truth), [0, 0, 2.5], atol=1e-9)
    np.testing.assert_allclose(
        metrics.translation_errors(wrong, truth), [0, 0, 0.3 * np.sqrt(D)], atol=1e-12
    )
    np.testing.assert_allclose(
        metrics.rotation_errors(wrong, truth, reference=2), [2.5, 2.5, 0], atol=1e-9
    )


@pytest.mark.parametrize("D", [2, 3])
def test_the_papers_error_is_a_function_of_the_angle(D: int) -> None:
    truth, poses = random_poses(rng, 4, D), random_poses(rng, 4, D)
    angles = np.radians(metrics.rotation_errors(poses, truth))
    errors = metrics.frobenius_errors(poses, truth)
    np.testing.assert_allclose(errors, 2 * np.sqrt(2) * np.sin(angles / 2), atol=1e-12)
    literal = [
        np.linalg.norm(
            poses[0, :D, :D].T @ poses[j, :D, :D] - truth[0, :D, :D].T @ truth[j, :D, :D]
        )
        for j in range(1, 4)
    ]
    np.testing.assert_allclose(errors[1:], literal)
    assert metrics.rotation_rmse(poses, truth) == pytest.approx(
        np.sqrt(np.mean(np.square(literal)))
    )


def plates(gap: float, D: int) -> list[metrics.Surface]:
    """Two flat plates, one above the other by `gap`; half of each lies beyond the other."""
    surfaces = []
    for j in range(2):
        points = rng.uniform(0, 3, (3000, D))
        points[:, 0] += 1.5 * j
        points[:, -1] = gap * j
        surfaces.append(metrics.Surface.of(points))
    return surfaces


@pytest.mark.parametrize("D", [2, 3])
def test_the_residual_is_the_distance_of_surfaces(D: int) -> None:
    surfaces = plates(0.05, D)
    found = metrics.agreement(surfaces, geometry.identity(2, D), gate=0.15)
    assert found.residual == pytest.approx(0.05)
    assert found.overlap == pytest.approx(0.5, abs=0.08)
    down = geometry.identity(2, D)
    down[1, -2, -1] = -0.05
    assert metrics.agreement(surfaces, down, gate=0.15).residual == pytest.approx(0, abs=1e-12)
    down[1, -2, -1] = 9.0
    assert metrics.agreement(surfaces, down, gate=0.15) == metrics.Agreement(None, 0.0)


def test_the_default_gate_is_wide_enough_for_sparse_clouds() -> None:
    grid = np.stack(np.meshgrid(np.arange(20.0), np.arange(20.0), [0.0]), -1).reshape(-1, 3)
    assert metrics.default_gate([metrics.Surface.of(grid)], 20.0) == 3.0
    assert metrics.default_gate([metrics.Surface.of(grid)], 2000.0) == 20.0


def test_errors_of_trajectories_are_the_same_functions() -> None:
    assert metrics.absolute_errors is trajectory_errors.absolute_errors
    assert metrics.relative_errors is trajectory_errors.relative_errors


def test_files_of_poses_are_compared_group_by_group(tmp_path: Path) -> None:
    truth = random_poses(np.random.default_rng(5), 5, 3)
    wrong = truth.copy()
    wrong[1] = truth[1] @ geometry.pose(
        geometry.exp_rotation(np.radians(2.0) * np.array([0.0, 0.0, 1.0])), np.zeros(3)
    )
    names = ["a", "b", "c", "d", "e"]
    groups = [["a", "b"], ["c", "d"], ["e"]]
    poses.write(tmp_path / "poses.json", names, wrong, groups=groups)
    poses.write(tmp_path / "truth.json", names, truth)
    found = files.evaluate_poses(tmp_path / "poses.json", tmp_path / "truth.json")
    rows = {row["name"]: row for row in found["clouds"]}
    assert rows["b"]["rotation_deg"] == pytest.approx(2.0)
    assert (rows["b"]["relative_to"], rows["d"]["relative_to"]) == ("a", "c")
    assert "rotation_deg" not in rows["e"]
    assert found["rotation_deg"]["largest"] == pytest.approx(2.0)
    assert found["rotation_deg"]["mean"] == pytest.approx(1.0)
    poses.write(tmp_path / "apart.json", names[:2], truth[:2], groups=[["a"], ["b"]])
    with pytest.raises(InputError, match="two clouds or more in one group, found none"):
        files.evaluate_poses(tmp_path / "apart.json", tmp_path / "truth.json")


def test_files_of_trajectories_are_compared_by_time(tmp_path: Path) -> None:
    path = trajectory.Trajectory(np.arange(6) / 30, random_poses(np.random.default_rng(6), 6, 3))
    trajectory.write_tum(tmp_path / "truth.txt", path)
    moved = path.moved(random_poses(np.random.default_rng(1), 1, 3)[0])
    trajectory.write_tum(
        tmp_path / "part.txt", trajectory.Trajectory(moved.times[:5], moved.poses[:5])
    )
    found = files.evaluate_trajectory(tmp_path / "part.txt", tmp_path / "truth.txt")
    assert (found["poses"], found["matched"]) == (5, 5)
    assert set(found["ate"]) == {"rmse", "mean", "median", "largest"}
    assert max(found["ate"]["largest"], found["rpe"]["largest"]) < 1e-6
    assert found["rpe_deg"]["largest"] < 1e-4
