# SPDX-License-Identifier: MIT
"""Known poses that contradict the scans are told, those that agree are not."""

import numpy as np
import pytest
from scenes import FAST, simulated_scans

import coframe
from coframe import geometry
from coframe.data import simulate
from coframe.result.assemble import KNOWLEDGE

DEVIATIONS = 0.002


@pytest.fixture(scope="module")
def scene() -> simulate.SimulatedScene:
    return simulated_scans(4, 1200, 120.0, noise_db=50.0)


def register(scene: simulate.SimulatedScene, poses: np.ndarray, how: str) -> coframe.Registration:
    if how == "fixed":
        return coframe.register(scene.clouds, scene.poses, fixed=[0, 3], options=FAST)
    covariance = np.diag(np.full(6, DEVIATIONS**2))
    priors = [coframe.PosePrior(j, poses[j], covariance) for j in (0, 3)]
    return coframe.register(scene.clouds, scene.poses, priors=priors, options=FAST)


def wrong(scene: simulate.SimulatedScene) -> simulate.SimulatedScene:
    """The last cloud in a frame that is off by a twentieth of the body."""
    back = geometry.identity(1, 3)[0]
    back[:3, 3] = scene.poses[3, :3, :3].T @ [0.05, 0.0, 0.0]
    return type(scene)(
        **{**vars(scene), "poses": np.array([*scene.poses[:3], scene.poses[3] @ back])}
    )


@pytest.mark.parametrize("how", ["fixed", "priors"])
def test_a_known_pose_that_is_wrong_is_told(scene: simulate.SimulatedScene, how: str) -> None:
    bad = wrong(scene)
    result = register(bad, bad.poses, how)
    assert any(KNOWLEDGE in each and result.names[3] in each for each in result.warnings)
    assert result.verdicts[3].verdict != "aligned"


@pytest.mark.parametrize("how", ["fixed", "priors"])
def test_known_poses_that_are_right_are_not(scene: simulate.SimulatedScene, how: str) -> None:
    result = register(scene, scene.poses, how)
    assert not any(KNOWLEDGE in each for each in result.warnings)
    assert [each.verdict for each in result.verdicts] == ["aligned"] * 4


def test_one_known_pose_contradicts_nothing(scene: simulate.SimulatedScene) -> None:
    bad = wrong(scene)
    result = coframe.register(scene.clouds, bad.poses, fixed=[3], options=FAST)
    assert not any(KNOWLEDGE in each for each in result.warnings)
