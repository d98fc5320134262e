# SPDX-License-Identifier: MIT
"""Given start poses: where they are enough, where the clouds are matched as well, and what is said
where doubt is left.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scenes import FAST, disturbed, refuse, registered, simulated_scans, unchecked

import coframe
from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.api.problem import AMBIGUOUS, Problem, relative_turn
from coframe.data import datasets, simulate
from coframe.evaluate import metrics
from coframe.input.normalise import RADIUS


@pytest.fixture(scope="module")
def turned() -> simulate.SimulatedScene:
    return simulated_scans(6, 2000, 300.0, noise_db=50.0)


def off(poses: np.ndarray, degrees: float, seed: int) -> np.ndarray:
    """Start poses that are wrong by up to an angle, and by a twentieth of the body's extent."""
    rng = np.random.default_rng(seed)
    return np.concatenate([disturbed(pose[None], rng, degrees, 0.05) for pose in poses])


def test_clouds_are_matched_where_given_poses_leave_doubt() -> None:
    views = simulated_scans(3, 2000, 120.0, noise_db=50.0)
    start = off(views.poses, 70.0, seed=4)
    alone = coframe.register(views.clouds, start, options=replace(FAST, start="identity"))
    assert metrics.rotation_errors(alone.poses, views.poses).max() > 30
    assert alone.warnings
    asked: list[int] = []
    result = registered(views.clouds, poses=start, on_pair=lambda done, total: asked.append(total))
    assert (result.start, result.pairs_tried) == ("given", 3)
    assert asked
    assert metrics.rotation_errors(result.poses, views.poses).max() < 0.5
    assert [each.verdict for each in result.verdicts] == ["aligned"] * 3


def test_good_poses_are_not_matched(turned: simulate.SimulatedScene) -> None:
    result = registered(turned.clouds, poses=off(turned.poses, 20.0, seed=0), on_pair=refuse)
    assert metrics.rotation_errors(result.poses, turned.poses).max() < 0.5
    assert (result.start, result.warnings, result.pairs_tried) == ("given", (), 0)


def test_matched_poses_on_another_side_are_no_help(
    turned: simulate.SimulatedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matching a body that looks the same from two sides may turn it around: what was given, though
    wrong, says which side.
    """
    start = off(turned.poses, 20.0, seed=0)
    around = turned.poses @ geometry.pose(
        geometry.exp_rotation(np.array([0, np.pi, 0])), np.zeros(3)
    )
    half = np.where(np.arange(6)[:, None, None] < 3, start, around)
    assert relative_turn(half, start) * RADIUS > 4 * ALIGN.reach
    assert relative_turn(around[0] @ start, start) < 1e-6  # a turn that all share does not count
    # every start is in doubt, and whatever matching finds counts as another side
    recipe = replace(ALIGN, evidence=replace(ALIGN.evidence, distinct=0.0))
    monkeypatch.setattr(Problem, "_near", lambda *_: False)
    result = registered(turned.clouds, poses=start, recipe=recipe)
    assert metrics.rotation_errors(result.poses, turned.poses).max() < 0.5
    assert any(each.startswith(AMBIGUOUS) for each in result.warnings)


def begun(
    scans: Sequence[np.ndarray], truth: np.ndarray, shift: float, seed: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """3,000 points of each scan, and starts up to 8 degrees off, but for the first."""
    rng = np.random.default_rng(seed)
    clouds, start = [], truth.copy()
    for j, scan in enumerate(scans):
        clouds.append(scan[rng.choice(len(scan), 3000, replace=False)])
        wrong = disturbed(truth[j : j + 1], rng, 8.0, shift)[0]
        start[j] = wrong if j else truth[j]
    return clouds, start


@pytest.mark.slow
def test_half_a_turn_of_a_thin_body(
    data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The front and the back of the dragon gain by lying on top of each other; only the view from
    its edge says otherwise.
    """
    monkeypatch.setenv("COFRAME_DATA", str(data("stanford").parent))
    dragon = datasets.load("dragon")
    truth = dragon.poses[:7]
    clouds, start = begun(dragon.clouds()[:7], truth, 0.004, seed=0)
    with unchecked():
        result = coframe.register(clouds, start)
    assert metrics.rotation_errors(result.poses, truth).max() < 1.0
    assert result.warnings == ()


@pytest.mark.slow
def test_a_view_of_a_flat_back_that_can_turn_is_said_to_be_in_doubt(
    data: Callable[[str], Path],
) -> None:
    """Half a turn of a statue begins with a view of its smooth back, which fits almost as well when
    it is turned by degrees.
    """
    with np.load(data("exact/lucy.npz")) as file:
        scans, truth = [file[f"scan_{j:02}"].astype(float) for j in range(7, 15)], file["poses"][7:]
    clouds, start = begun(scans, truth, 0.02, seed=3)
    with unchecked():
        result = coframe.register(clouds, start)
    errors = metrics.rotation_errors(result.poses, truth, reference=1)
    assert np.delete(errors, 0).max() < 0.5
    assert errors[0] > 0.5
    assert result.verdicts[0].verdict == "weak"
    assert any(result.names[0] in warning for warning in result.warnings)
