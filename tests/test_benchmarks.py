# SPDX-License-Identifier: MIT
"""The judge of `benchmarks.multiview` is right where the answer is known; `benchmarks.io` runs.

Needs no data and no peers.
"""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from coframe import geometry
from coframe.data import simulate
from coframe.evaluate import metrics

TURN = geometry.pose(geometry.exp_rotation(np.radians([0.0, 3.0, 0.0])), np.zeros(3))
AWAY = geometry.exp(np.array([0.3, -0.2, 0.1, 5.0, -4.0, 3.0]))


@pytest.fixture
def multiview(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1])
    return importlib.import_module("benchmarks.multiview")


@pytest.fixture
def problems(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1])
    return importlib.import_module("benchmarks.problems")


@pytest.fixture(scope="module")
def scene():
    return simulate.scene(views=3, points=2000, degrees=60.0, rng=np.random.default_rng(0))


def test_errors_are_those_put_in_and_the_common_frame_does_not_matter(multiview, scene):
    surfaces = [metrics.Surface.of(cloud) for cloud in scene.clouds]
    poses = scene.poses.copy()
    poses[1] = poses[1] @ TURN
    poses[2, :3, 3] += [0.0, 0.02, 0.0]
    figures = multiview.judge(surfaces, AWAY @ poses, scene.poses)
    assert figures["rotation_deg"] == pytest.approx(1.5, abs=1e-9)
    assert figures["worst_deg"] == pytest.approx(3.0, abs=1e-9)
    assert figures["translation"] == pytest.approx(0.01, abs=1e-9)


def residual(surfaces, poses, gate):
    return metrics.agreement(surfaces, poses, gate).residual


def test_residual_is_least_at_the_true_poses(scene):
    surfaces = [metrics.Surface.of(cloud) for cloud in scene.clouds]
    true = residual(surfaces, scene.poses, gate=0.05)
    assert true < 0.002  # of a body of size 1, whose points are 0.015 apart
    assert residual(surfaces, AWAY @ scene.poses, gate=0.05) == pytest.approx(true, rel=1e-6)
    turned = scene.poses.copy()
    turned[1] = turned[1] @ TURN
    assert residual(surfaces, turned, gate=0.05) > 2 * true


def test_residual_of_two_planes_is_their_distance():
    rng = np.random.default_rng(0)
    planes = [metrics.Surface.of(np.c_[rng.random((1000, 2)), np.zeros(1000)]) for _ in range(2)]
    poses = geometry.identity(2, 3)
    poses[1, :3, 3] = [0.0, 0.0, 0.01]
    assert residual(planes, poses, gate=0.1) == pytest.approx(0.01)
    assert residual(planes, poses, gate=0.009) is None


def test_problem_is_fixed_by_its_seed_and_starts_within_bounds(problems, scene):
    clouds, start = problems.disturbed(scene.clouds, scene.poses, 1, noise_db=25.0)
    again, start_again = problems.disturbed(scene.clouds, scene.poses, 1, noise_db=25.0)
    assert all(map(np.array_equal, clouds, again))
    assert np.array_equal(start, start_again)
    assert np.array_equal(start[0], scene.poses[0])
    moved = start @ geometry.inverse(scene.poses)
    angles = np.degrees(geometry.angle(geometry.rotation(moved)))
    assert np.all(angles <= problems.DEGREES)
    assert np.all(angles[1:] > 0)
    assert np.abs(geometry.translation(moved)).max() <= problems.SHIFT + 1e-12


def test_reading_speed_is_measured_for_every_format(tmp_path, monkeypatch, capsys):
    for library in ("laspy", "pye57", "lzf"):
        pytest.importorskip(library)
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1])
    speed = importlib.import_module("benchmarks.io")
    monkeypatch.setattr(speed, "PEERS", tmp_path / "absent")
    monkeypatch.setattr(
        "sys.argv",
        ["io", "--points", "300", "--rounds", "1", "--output", str(tmp_path / "figures.json")],
    )
    speed.main()
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert [row["format"] for row in figures] == list(speed.FORMATS)
    assert all(
        row["coframe_s"] > 0 and row["fromfile_s"] > 0 and row["megabytes"] > 0 for row in figures
    )
    assert capsys.readouterr().out.count("\n") == 2 + len(figures)


def test_every_benchmark_can_be_imported(monkeypatch):
    root = Path(__file__).resolve().parents[1]
    monkeypatch.syspath_prepend(root)
    for path in (root / "benchmarks").glob("[a-z]*.py"):
        importlib.import_module(f"benchmarks.{path.stem}")
