# SPDX-License-Identifier: MIT
"""Given start poses: where they are enough, where the clouds are matched as well, and what is said where doubt is left."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scenes import unchecked
from views import FAST, refuse, registered, scene

import coframe
from coframe import datasets, geometry, metrics, schedule, simulate
from coframe.registration import UNDECIDED
from coframe.start import nothing


@pytest.fixture(scope="module")
def turned() -> simulate.Scene:
    return scene(6, 2000, 300.0, noise_db=50.0)


def off(poses: np.ndarray, degrees: float, seed: int) -> np.ndarray:
    """Start poses that are wrong by up to an angle, and by a twentieth of the body's extent."""
    rng = np.random.default_rng(seed)
    return np.array(
        [geometry.pose(geometry.random_rotation(rng, 3, degrees), rng.uniform(-0.05, 0.05, 3)) @ pose for pose in poses]
    )


def test_clouds_are_matched_where_given_poses_leave_doubt() -> None:
    views = scene(3, 2000, 120.0, noise_db=50.0)
    start = off(views.poses, 60.0, seed=1)
    alone = coframe.register(views.clouds, start, options=replace(FAST, start="identity"))
    assert metrics.rotation_errors(alone.poses, views.poses).max() > 30
    assert alone.warnings == (UNDECIDED,)
    asked: list[int] = []
    result = registered(views.clouds, poses=start, on_pair=lambda done, total: asked.append(total))
    assert metrics.rotation_errors(result.poses, views.poses).max() < 0.5
    assert (result.start, result.warnings, result.pairs_tried) == ("given", (), 3)
    assert asked


def test_good_poses_are_not_matched(turned: simulate.Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nothing, "start", refuse)
    result = registered(turned.clouds, poses=off(turned.poses, 20.0, seed=0))
    assert metrics.rotation_errors(result.poses, turned.poses).max() < 0.5
    assert (result.start, result.warnings, result.pairs_tried) == ("given", (), 0)


def test_matched_poses_on_another_side_are_no_help(turned: simulate.Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matching a body that looks the same from two sides may turn it around: what was given, though wrong, says which side."""
    start = off(turned.poses, 20.0, seed=0)
    around = turned.poses @ geometry.pose(geometry.exp_rotation(np.array([0, np.pi, 0])), np.zeros(3))
    found = nothing.Start((np.where(np.arange(6)[:, None, None] < 3, start, around),), (tuple(range(6)),), nothing.MATCHED, 15)
    monkeypatch.setattr(nothing, "start", lambda *_, **__: found)
    monkeypatch.setattr(schedule, "rivals", lambda fits, runner: fits)
    result = registered(turned.clouds, poses=start)
    assert metrics.rotation_errors(result.poses, turned.poses).max() < 0.5
    assert result.warnings == (UNDECIDED,)


def test_half_a_turn_of_a_thin_body(data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The front and the back of the dragon gain by lying on top of each other; only the view from its edge says otherwise."""
    monkeypatch.setenv("COFRAME_DATA", str(data("stanford").parent))
    dragon = datasets.dragon()
    truth, rng = dragon.poses[:7], np.random.default_rng(0)
    clouds, start = [], truth.copy()
    for j, cloud in enumerate(dragon.clouds()[:7]):
        clouds.append(cloud[rng.choice(len(cloud), 3000, replace=False)])
        disturbance = geometry.pose(geometry.random_rotation(rng, 3, 8.0), rng.uniform(-0.004, 0.004, 3))
        start[j] = disturbance @ truth[j] if j else truth[j]
    with unchecked():
        result = coframe.register(clouds, start)
    assert metrics.rotation_errors(result.poses, truth).max() < 1.0
