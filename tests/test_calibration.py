# SPDX-License-Identifier: MIT
"""Do the covariances of a result hold what they say?

On virtual depth scans whose poses are exact.
"""

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scenes import unchecked
from scipy.stats import chi2

import coframe
from coframe import geometry
from coframe.align import covariance
from coframe.em.constraints import UNCONSTRAINED


def test_regions_hold_the_true_poses_of_depth_scans(
    data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limbs of the armadillo, every scan sees components in part: chance alone does not
    explain the errors.
    """
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1])
    monkeypatch.setenv("COFRAME_DATA", str(data("exact").parent))
    calibration = importlib.import_module("benchmarks.calibration")
    clouds, truth, _ = calibration.scanned("armadillo", 1500, 0)
    with unchecked():
        result = coframe.register(
            clouds, truth, options=coframe.Options(components=300, start="identity")
        )
    errors, M = calibration.errors(result, truth), len(clouds)
    centres = geometry.pose(
        np.tile(np.eye(3), (M, 1, 1)), np.array([np.median(cloud, 0) for cloud in clouds])
    )
    chance = covariance.pose_covariance(
        result.moments, result.mixture, result.poses @ centres, UNCONSTRAINED
    )
    said, by_chance = (calibration.squared(errors, C) for C in (result.pose_covariance, chance))
    assert (said < chi2.ppf(0.95, 6)).mean() > 0.9
    assert 0.3 < said.mean() / 6 < 1.5
    assert by_chance.mean() / 6 > 1.5
