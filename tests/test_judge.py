# SPDX-License-Identifier: MIT
"""Poses from elsewhere are kept to the last bit, and judged."""

from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe import baselines, geometry, report
from coframe.data import simulate
from coframe.io import ply

OPTIONS = coframe.Options(components=200)


@pytest.fixture(scope="module")
def scene() -> simulate.SimulatedScene:
    return simulate.scene(4, 800, degrees=60.0, noise_db=40.0, rng=np.random.default_rng(0))


def turned(poses: np.ndarray, degrees: dict[int, float]) -> np.ndarray:
    wrong = poses.copy()
    for j, angle in degrees.items():
        wrong[j] = wrong[j] @ geometry.pose(
            geometry.exp_rotation(np.radians(angle) * np.array([0, 0.6, 0.8])), np.zeros(3)
        )
    return wrong


def test_true_poses_are_kept_and_found_good(scene: simulate.SimulatedScene) -> None:
    result = coframe.judge(scene.clouds, scene.poses, options=OPTIONS)
    np.testing.assert_allclose(result.poses, scene.poses, atol=1e-15)
    assert [verdict.verdict for verdict in result.verdicts] == ["aligned"] * 4
    assert result.history == ()
    assert np.isfinite(result.pose_covariance).all()


def test_a_stray_point_changes_no_verdict(scene: simulate.SimulatedScene) -> None:
    """A glitch of the sensor, millions of extents away; nor does it move a cloud in `refine`."""
    stray = [np.concatenate([scene.clouds[0], [[1e7, 1e7, -1e7]]]), *scene.clouds[1:]]
    result = coframe.judge(stray, scene.poses, options=OPTIONS)
    assert [verdict.verdict for verdict in result.verdicts] == ["aligned"] * 4
    assert result.outlier_probability[0][-1] == 1
    clean = coframe.judge(scene.clouds, scene.poses, options=OPTIONS, release=False)
    refined = [coframe.refine(each, options=OPTIONS).poses for each in (result, clean)]
    np.testing.assert_array_equal(*refined)


def test_a_cloud_that_belongs_nowhere_does_not_hide_one_out_of_place(
    scene: simulate.SimulatedScene,
) -> None:
    elsewhere = [*scene.clouds, scene.clouds[0] + 30.0]
    poses = np.concatenate([turned(scene.poses, {2: 4.0}), scene.poses[:1]])
    result = coframe.judge(elsewhere, poses, options=OPTIONS)
    assert result.verdicts[2].reason.startswith("free refinement turns it by 3.9")
    assert result.verdicts[4].verdict == "failed"
    assert np.diagonal(result.pose_covariance[:4], axis1=1, axis2=2).max() < 1e-2


def test_a_cloud_out_of_place_is_named(scene: simulate.SimulatedScene) -> None:
    result = coframe.judge(scene.clouds, turned(scene.poses, {2: 4.0}), options=OPTIONS)
    assert [verdict.verdict for verdict in result.verdicts] == [
        "aligned",
        "aligned",
        "weak",
        "aligned",
    ]
    assert result.verdicts[2].reason.startswith("free refinement turns it by 3.9")


def test_clouds_that_are_all_out_of_place_do_not_vouch_for_each_other(
    scene: simulate.SimulatedScene,
) -> None:
    wrong = turned(scene.poses, {1: -12.0, 2: 12.0, 3: -12.0})
    kept = coframe.judge(scene.clouds, wrong, options=OPTIONS, release=False)
    assert "failed" not in {
        verdict.verdict for verdict in kept.verdicts
    }  # why they are refined freely
    released = coframe.judge(scene.clouds, wrong, options=OPTIONS)
    assert [verdict.verdict for verdict in released.verdicts].count("aligned") == 0
    assert released.verdicts[2].verdict == "failed"


def test_files_are_read_and_bad_poses_refused(
    scene: simulate.SimulatedScene, tmp_path: Path
) -> None:
    for j, cloud in enumerate(scene.clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    files = sorted(tmp_path.glob("*.ply"))
    result = coframe.judge(files, scene.poses, options=OPTIONS, release=False)
    assert result.names == ("scan0", "scan1", "scan2", "scan3")
    assert [Path(file).name for file in result.files] == [file.name for file in files]
    pattern = coframe.judge(tmp_path / "*.ply", scene.poses, options=OPTIONS, release=False)
    assert pattern.verdicts == result.verdicts
    with pytest.raises(coframe.InputError, match="poses: expected shape"):
        coframe.judge(files, scene.poses[:3])


def test_a_baseline_has_a_report_and_a_folder(
    scene: simulate.SimulatedScene, tmp_path: Path
) -> None:
    result = baselines.run("trimmed icp", scene.clouds, geometry.identity(4, 3), iterations=3)
    assert np.isnan([step.log_likelihood for step in result.history]).all()
    page = report.html(result)
    assert "largest step" in page
    assert "log-likelihood per point" not in page
    again = coframe.load(result.save(tmp_path / "out"))
    np.testing.assert_array_equal(again.poses, result.poses)
    assert len(again.history) == 3
