# SPDX-License-Identifier: MIT
"""The judge of `benchmarks.multiview` is right where the answer is known; `benchmarks.io` runs;
tables of the documentation are those of the records.

Needs no data and no peers.
"""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe import geometry
from coframe.data import simulate
from coframe.evaluate import metrics

TURN = geometry.pose(geometry.exp_rotation(np.radians([0.0, 3.0, 0.0])), np.zeros(3))
AWAY = geometry.exp(np.array([0.3, -0.2, 0.1, 5.0, -4.0, 3.0]))


ROOT = Path(__file__).resolve().parents[1]
RECORDS = {path.stem: json.loads(path.read_text()) for path in ROOT.glob("benchmarks/results/*")}


@pytest.fixture
def benchmark(monkeypatch):
    """Import a benchmark by name."""
    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.fixture
def multiview(benchmark):
    return benchmark("multiview")


@pytest.fixture
def problems(benchmark):
    return benchmark("problems")


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


def test_reading_speed_is_measured_for_every_format(tmp_path, monkeypatch, capsys, benchmark):
    for library in ("laspy", "pye57", "lzf"):
        pytest.importorskip(library)
    speed = benchmark("io")
    monkeypatch.setattr(speed, "PEERS", tmp_path / "absent")
    arguments = ["--points", "300", "--rounds", "1", "--records", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["io.py", *arguments])
    speed.main()
    record = json.loads((tmp_path / "io.json").read_text())
    assert record["command"] == " ".join(["python -m benchmarks.io", *arguments])
    assert record["columns"] == RECORDS["io"]["columns"]
    assert [row[0] for row in record["rows"]] == list(speed.FORMATS)
    assert all(float(row[2].replace(",", "")) > 0 and not row[3] for row in record["rows"])
    assert capsys.readouterr().out.count("\n") == 2 + len(record["rows"])


def test_every_benchmark_can_be_imported(benchmark):
    for path in (ROOT / "benchmarks").glob("[a-z]*.py"):
        benchmark(path.stem)


def test_costs_of_a_level_are_measured_on_small_problems(benchmark, scene):
    cluster = benchmark("cluster")
    clouds, poses, mixture = cluster.prepared(scene.clouds, scene.poses, K=40, points=300)
    assert [len(cloud) for cloud in clouds] == [300] * 3
    assert poses.shape == (3, 4, 4)
    assert len(mixture) <= 40
    assert cluster.joint_step(20, 5, 0.5) > 0
    assert cluster.joint_step(20, 5, 0.5, dense=True) > 0
    options = coframe.Options(components=40, points=300)
    assert benchmark("many").seconds_per_iteration(scene.clouds, scene.poses, options) > 0


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_says_where_its_figures_come_from(name):
    record = RECORDS[name]
    for key in ("what", "command", "commit", "date", "machine"):
        assert isinstance(record[key], str)
        assert record[key]
    module = record["command"].removeprefix("python -m ").split()[0]
    assert (ROOT / (module.replace(".", "/") + ".py")).exists()
    assert record["rows"]
    assert {len(row) for row in record["rows"]} == {len(record["columns"])}


def test_tables_of_the_pages_are_those_of_the_records(benchmark):
    report = benchmark("report")
    used = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert report.filled(text) == text, f"{page.name}: run `make figures`"
        used += report.BLOCK.findall(text)
    assert sorted(used) == sorted(RECORDS)


def test_growth_is_measured_and_its_exponents_are_those_of_powers(tmp_path, benchmark):
    growth = benchmark("growth")
    sizes = np.array([1e3, 1e4, 1e5])
    assert growth.exponent(sizes, 3e-6 * sizes**1.5) == pytest.approx(1.5)
    few = ["--points", "300", "600", "--clouds", "2", "3", "--components", "20", "40"]
    growth.main([*few, "--records", str(tmp_path)])
    for name in ("growth", "growth-exponents"):
        record = json.loads((tmp_path / f"{name}.json").read_text())
        assert record["columns"] == RECORDS[name]["columns"]
    assert len(record["rows"]) == 5


def test_the_limit_of_the_machine_is_as_many_multiplications_as_asked_for(benchmark):
    estep = benchmark("estep")
    lanes = estep.CHAINS * estep.widest()
    # x = x / 2 + 1 / 2, from k + 1, in each of the chains, and their sum
    starts = np.repeat(np.arange(estep.CHAINS), estep.widest()) / 2.0**3
    assert estep.multiply_add(3, 0.5) == pytest.approx(lanes + starts.sum())


def test_a_table_is_replaced_and_the_text_around_it_stays(tmp_path, benchmark):
    benchmark("record").save("x", "What.", ["a", "b"], [["1", "2"]], folder=tmp_path)
    filled = benchmark("report").filled
    page = filled("before\n<!-- figures: x -->\nold\n<!-- end -->\nafter\n", tmp_path)
    assert page.startswith("before\n<!-- figures: x -->\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n")
    assert page.endswith("<!-- end -->\nafter\n")
    assert "old" not in page
    assert filled(page, tmp_path) == page
    with pytest.raises(ValueError, match="expected 2 cells"):
        benchmark("record").save("x", "What.", ["a", "b"], [["1"]], folder=tmp_path)


def test_measured_figures_become_the_tables_of_the_pages(tmp_path, benchmark):
    figures = {"rotation_deg": 0.2, "worst_deg": 0.3, "residual": 1e-4}
    figures |= {"seconds": 2.0, "cpu": 3.0}
    run = {"problem": "bunny", "seed": 0, "method": "coframe", "success": True, **figures}
    other = {**run, "method": "MeshLib", "seconds": 8.0}
    exact = [{**each, "problem": "lucy", "seconds": 2.0} for each in (run, other)]
    benchmark("multiview").tabulate([run, other, *exact], tmp_path)
    benchmark("from_nothing").tabulate([run], tmp_path)
    benchmark("from_nothing").tabulate([run, {**run, "method": "Open3D global"}], tmp_path)
    times = dict.fromkeys(("workers", "scheduler", "driver"), 5.0)
    traffic = {"out": 1e3, "in": 2e3}
    per_iteration = {"cpu_ms": times, "cpu_ms_without_points": times, "iteration_ms": 9.0}
    found = {"components": 1000, "ns_per_point": 1.0, "ns_per_pair": 1.0, "model_bytes": traffic}
    found |= {"all_points_ns": {"summary": 1.0, "cells": 1.0, "classify": 1.0}}
    found |= {
        "joint_ms": {50: {"dense": 1.0, "5%": 1.0, "50%": 1.0}, 3000: {"5%": 1.0, "50%": 1.0}}
    }
    found |= {"runs": {1: {**per_iteration, "bytes": traffic}}}
    benchmark("cluster").tabulate(found, tmp_path)
    row = {"method": "coframe", "ate_rmse": 0.01, "rpe_1s": 0.02, "rpe_1s_deg": 2.0, "lost": 0}
    row |= {"frames": 595, "frames_per_second": 30.0, "cpu_ms_per_frame": 40.0}
    gap = {"said_lost": 7, "lost_in_the_end": 0, "ate_rmse": 0.01}
    breaks = [{"kind": kind, "at": 50, **gap} for kind in ("blank", "jump")]
    report = {"rows": [row], "folder": "freiburg1_desk", "breaks": breaks}
    benchmark("sequence").tabulate(report, tmp_path)
    spread = dict.fromkeys(("residual_ratio", "cpu_seconds_ratio"), (0.5, 0.1))
    line = {"problem": "bunny", "noise_db": None, "seeds": 2, "rotation_deg": (0.2, 0.1)}
    line |= {"residual": (0.7, 0.1), **spread}
    lines = [{**line, "method": method} for method in ("JRMPC-B", "extend, every third")]
    benchmark("incremental").tabulate(lines, tmp_path)
    written = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert set(written) == {
        name
        for name in RECORDS
        if name.split("-")[0] in {"multiview", "from_nothing", "cluster", "sequence", "incremental"}
    }
    for name in ("from_nothing", "from_nothing-peers", "cluster-joint", "cluster-time", "sequence"):
        assert written[name]["columns"] == RECORDS[name]["columns"]
    beside = [row[-1] for row in written["multiview"]["rows"]]
    assert beside == ["4.00 (1.00)", "1.00 (1.00)", "2.00 (1.00)"]  # the last is their mean
    assert written["incremental-rotation"]["rows"][0] == ["JRMPC-B", "0.20 ± 0.10 (0.37)"]
    assert written["incremental-cpu"]["rows"] == [["extend, every third", "0.500 ± 0.100"]]
