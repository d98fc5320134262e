# SPDX-License-Identifier: MIT
"""The command line, run as a user runs it: in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe import geometry, metrics, simulate
from coframe.io import ply
from coframe.io import poses as pose_files


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coframe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_demo_registers_and_writes(tmp_path: Path) -> None:
    done = run("demo", "--points", "300", "--views", "3", "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rotation error" in done.stdout
    result = coframe.load(tmp_path / "out")
    assert len(result.poses) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_demo_is_reproducible(tmp_path: Path) -> None:
    for threads in ("1", "2"):
        assert run("demo", "--points", "200", "--threads", threads, "-o", threads, cwd=tmp_path).returncode == 0
    assert (tmp_path / "1/poses.json").read_bytes() == (tmp_path / "2/poses.json").read_bytes()
    assert (tmp_path / "1/merged.ply").read_bytes() == (tmp_path / "2/merged.ply").read_bytes()


@pytest.fixture
def scans(tmp_path: Path) -> tuple[Path, simulate.Scene]:
    scene = simulate.scene(3, 300, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    for j, cloud in enumerate(scene.clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    pose_files.write(tmp_path / "start.json", [f"scan{j}" for j in range(3)], geometry.identity(3, 3))
    return tmp_path, scene


def test_register_writes_poses_with_verdicts(scans: tuple[Path, simulate.Scene]) -> None:
    folder, scene = scans
    files = [f"scan{j}.ply" for j in (2, 0, 1)]
    done = run("register", *files, "--poses", "start.json", "-o", "out", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    clouds = json.loads((folder / "out/poses.json").read_text())["clouds"]
    assert [cloud["name"] for cloud in clouds] == ["scan0", "scan1", "scan2"]
    assert all(cloud["verdict"] == "aligned" for cloud in clouds)
    found = np.array([cloud["pose"] for cloud in clouds])
    assert metrics.rotation_errors(found, scene.poses).max() < 1


def test_register_is_quiet_when_asked_and_fails_when_a_cloud_does(scans: tuple[Path, simulate.Scene]) -> None:
    folder, _ = scans
    ply.write(folder / "scan9.ply", np.random.default_rng(0).uniform(-3, 3, (300, 3)) * [1, 1, 0.01] + 20)
    done = run("register", *sorted(p.name for p in folder.glob("*.ply")), "-q", "-o", "out", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    verdicts = {c["name"]: c["verdict"] for c in json.loads((folder / "out/poses.json").read_text())["clouds"]}
    assert verdicts["scan9"] == "failed"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["scan0.ply", "missing.ply"], ["missing.ply", "found nothing"]),
        (["scan0.ply"], ["two clouds"]),
        (["scan0.ply", "start.json"], ["start.json", ".ply"]),
        (["scan0.ply", "scan1.ply", "--poses", "scan2.ply"], ["scan2.ply", "coframe-poses/1"]),
    ],
)
def test_bad_input_is_one_line_and_2(scans: tuple[Path, simulate.Scene], arguments: list[str], words: list[str]) -> None:
    done = run("register", *arguments, "-o", "out", cwd=scans[0])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words)
    assert not (scans[0] / "out").exists()


def test_extend_adds_a_cloud_to_a_saved_result(scans: tuple[Path, simulate.Scene]) -> None:
    folder, scene = scans
    assert run("register", "scan0.ply", "scan1.ply", "-q", "-o", "two", cwd=folder).returncode == 0
    done = run("extend", "two", "scan2.ply", "-o", "three", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "scan2" in done.stdout
    assert len(coframe.load(folder / "two").clouds) == 2
    clouds = json.loads((folder / "three/poses.json").read_text())["clouds"]
    assert [cloud["name"] for cloud in clouds] == ["scan0", "scan1", "scan2"]
    found = np.array([cloud["pose"] for cloud in clouds])
    assert metrics.rotation_errors(found, scene.poses).max() < 1
    for arguments, words in (
        (["two", "scan1.ply"], ["scan1", "not in two yet"]),
        (["two", "scan2.ply", "--start", "nowhere"], ["nowhere", "velocity"]),
        (["absent", "scan2.ply"], ["absent", "state.npz"]),
    ):
        done = run("extend", *arguments, cwd=folder)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert all(word in done.stderr for word in words)


def test_version_and_help() -> None:
    assert run("--version").stdout == f"coframe {coframe.__version__}\n"
    text = run("--help").stdout
    assert "demo" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "Example" in run("demo", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["demo", "--views", "1"], "--views"), (["nonsense"], "nonsense"), (["demo", "--points", "x"], "--points")],
)
def test_wrong_usage_ends_with_2(arguments: list[str], word: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr
