# SPDX-License-Identifier: MIT
"""What users know beside fixed clouds and priors: levels, a turntable, wrong poses, limits."""

import json
from pathlib import Path

import numpy as np
import pytest
from scenes import disturbed, on_turntable, run_cli

import coframe
from coframe import InputError, geometry
from coframe.data import simulate
from coframe.em.constraints import Constraints
from coframe.evaluate import metrics
from coframe.io import ply
from coframe.io import poses as pose_files


def test_a_turntable() -> None:
    clouds, truth = on_turntable(30.0, 12, 1200)
    result = coframe.register(clouds, turntable=30.0)
    assert result.start == "turntable"
    assert result.pairs_tried == 11
    assert metrics.rotation_errors(result.poses, truth).max() < 0.5
    assert metrics.translation_errors(result.poses, truth).max() < 0.05
    assert {verdict.verdict for verdict in result.verdicts} == {"aligned"}


def test_a_turntable_places_what_matching_does_not() -> None:
    """Of a few points of every second view nothing can be matched; a turn says where they are."""
    clouds, truth = on_turntable(30.0, 12, 1200)
    clouds[6] = clouds[6][:40]
    result = coframe.register(clouds, turntable=-30.0)  # the side of the axis is found, too
    assert metrics.rotation_errors(result.poses, truth).max() < 2.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"turntable": 0.0}, "turntable: expected the turn"),
        ({"turntable": 181.0}, "turntable: expected the turn"),
        ({"turntable": 36.0, "fixed": [0]}, "turntable: expected no fixed clouds"),
        (
            {"turntable": 36.0, "poses": geometry.identity(3, 3)},
            "turntable: expected no start poses",
        ),
        ({"rematch": [1]}, "rematch: expected start poses of clouds that stay, found none"),
        ({"rematch": [0, 1, 2], "poses": geometry.identity(3, 3)}, "found all clouds"),
        ({"level": [3]}, "level: expected indices of clouds, 0 to 2, found 3"),
        ({"max_turn": 0.0}, "max_turn: expected a number above 0"),
        ({"max_shift": float("nan")}, "max_shift: expected a number above 0"),
    ],
)
def test_wrong_knowledge_is_refused(arguments: dict, said: str) -> None:
    clouds = list(np.random.default_rng(0).normal(size=(3, 60, 3)))
    with pytest.raises(InputError, match=said):
        coframe.register(clouds, **arguments)


def test_a_turntable_in_the_plane_is_refused() -> None:
    with pytest.raises(InputError, match="clouds in space"):
        coframe.register(list(np.random.default_rng(0).normal(size=(3, 60, 2))), turntable=30.0)


@pytest.fixture(scope="module")
def scene() -> simulate.SimulatedScene:
    return simulate.scene(4, 900, degrees=60.0, noise_db=50.0, rng=np.random.default_rng(1))


def test_levelled_clouds_stay_level(scene: simulate.SimulatedScene) -> None:
    """Levelled clouds begin with a wrong heading and place, another one tilted, too."""
    rng = np.random.default_rng(5)
    start = scene.poses.copy()
    for j in (1, 2):
        heading = geometry.exp_rotation(np.radians(rng.uniform(-5, 5)) * np.array([0.0, 0, 1]))
        start[j] = geometry.pose(heading, rng.uniform(-0.03, 0.03, 3)) @ start[j]
    start[3] = disturbed(start[3:], rng)[0]
    result = coframe.register(scene.clouds, start, level=[1, 2])
    np.testing.assert_allclose(
        result.poses[1], start[1], atol=1e-14
    )  # the frame is that of the first
    tilt = result.poses @ geometry.inverse(start)
    np.testing.assert_allclose(tilt[2, 2, :3], [0, 0, 1], atol=1e-12)
    assert abs(tilt[3, 2, 2] - 1) > 1e-5
    assert metrics.rotation_errors(result.poses, scene.poses).max() < 0.5
    variances = np.diagonal(result.pose_covariance, axis1=1, axis2=2)
    assert (variances[2, :2] == 0).all()
    assert (variances[3] > 0).all()
    assert (variances[3] < 1).all()


def test_levels_restrict_turns_in_space_alone() -> None:
    allowed = Constraints(fixed=(0,), level=(1,)).allowed(3, 3)
    np.testing.assert_array_equal(allowed[1], [False, False, True, True, True, True])
    assert allowed[2].all()
    assert Constraints(fixed=(0,), level=(1,)).allowed(2, 2)[1].all()


def test_a_wrong_pose_is_matched_anew(scene: simulate.SimulatedScene) -> None:
    start = scene.poses.copy()
    start[2] = geometry.pose(geometry.random_rotation(np.random.default_rng(0), 3), np.ones(3))
    result = coframe.register(scene.clouds, start, rematch=[2])
    assert metrics.rotation_errors(result.poses, scene.poses).max() < 0.5
    assert result.start == "given"
    assert not any("ended far" in warning for warning in result.warnings)
    assert result.pairs_tried > 0


def test_what_cannot_be_matched_anew_is_in_doubt(scene: simulate.SimulatedScene) -> None:
    clouds = [*scene.clouds[:3], np.random.default_rng(0).uniform(size=(400, 3))]
    result = coframe.register(clouds, scene.poses, rematch=[3])
    assert result.verdicts[3].verdict != "aligned"
    assert metrics.rotation_errors(result.poses[:3], scene.poses[:3]).max() < 0.5


def test_limits(scene: simulate.SimulatedScene) -> None:
    start = scene.poses.copy()
    start[1] = (
        geometry.pose(geometry.exp_rotation(np.array([0.0, 0, np.radians(6)])), np.zeros(3))
        @ start[1]
    )
    within = coframe.register(scene.clouds, start, max_turn=10.0, max_shift=1e3)
    assert {verdict.verdict for verdict in within.verdicts} == {"aligned"}
    beyond = coframe.register(scene.clouds, start, max_turn=3.0)
    assert [verdict.verdict for verdict in beyond.verdicts].index("failed") == 1
    assert "more than the limit" in beyond.verdicts[1].reason
    assert any("max_turn" in warning and "cloud 1" in warning for warning in beyond.warnings)
    np.testing.assert_array_equal(within.poses, beyond.poses)


def test_all_of_it_on_the_command_line(tmp_path: Path, scene: simulate.SimulatedScene) -> None:
    for j, cloud in enumerate(scene.clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    names = [f"scan{j}" for j in range(4)]
    pose_files.write(tmp_path / "three.json", names[:3], scene.poses[:3])
    files = [f"{name}.ply" for name in names]
    arguments = ["--poses", "three.json", "--rematch", "scan3", "--level", "scan0"]
    arguments += ["--max-shift", "300cm", "--max-turn", "170", "--no-report"]
    done = run_cli("register", *files, "-o", "out", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    found = pose_files.read(tmp_path / "out/poses.json")
    np.testing.assert_allclose(found["scan0"], scene.poses[0], atol=1e-14)
    errors = metrics.rotation_errors(np.array(list(found.values())), scene.poses)
    assert errors.max() < 0.5
    options = json.loads((tmp_path / "out/run.json").read_text())["options"]
    said = {"level": ["scan0"], "rematch": ["scan3"], "max_shift": "300cm", "max_turn": 170.0}
    assert {key: options[key] for key in said} == said

    for wrong, reason in (
        (["--rematch", "scan1"], "rematch: expected --poses"),
        (["--max-shift", "near"], "max-shift: expected a length such as"),
        (["--level", "scn1"], "did you mean scan1"),
        (["--turntable", "36", "--method", "paper"], "method: expected register beside"),
    ):
        done = run_cli("register", *files, "-o", "out", *wrong, cwd=tmp_path)
        assert done.returncode == 2
        assert reason in done.stderr, done.stderr
