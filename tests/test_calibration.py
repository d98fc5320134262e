# SPDX-License-Identifier: MIT
"""Do the covariances of a result hold what they say?

On virtual depth scans whose poses are exact.
"""

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
from scenes import unchecked
from scipy.stats import chi2

import coframe


def test_regions_hold_the_true_poses_of_depth_scans(
    data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limbs of the armadillo, every scan sees components in part."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1])
    monkeypatch.setenv("COFRAME_DATA", str(data("exact").parent))
    calibration = importlib.import_module("benchmarks.calibration")
    clouds, truth, _ = calibration.scanned("armadillo", 1500, 0)
    with unchecked():
        result = coframe.register(
            clouds, truth, options=coframe.Options(components=300, start="identity")
        )
    said = calibration.squared(calibration.errors(result, truth), result.pose_covariance)
    assert (said < chi2.ppf(0.95, 6)).mean() > 0.9
    assert 0.3 < said.mean() / 6 < 1.5
