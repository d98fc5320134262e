# SPDX-License-Identifier: MIT
"""The command line, run as a user runs it: in a process of its own."""

import json
from pathlib import Path

import numpy as np
import pytest
from scenes import run_cli as run
from typer.testing import CliRunner

import coframe
from coframe import geometry
from coframe.cli.commands import app
from coframe.data import simulate
from coframe.evaluate import metrics
from coframe.io import ply, trajectory
from coframe.io import poses as pose_files


def test_demo_registers_and_writes(tmp_path: Path) -> None:
    done = run("demo", "--points", "300", "--views", "3", "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rotation error" in done.stdout
    assert "\x1b" not in done.stdout  # no terminal, no colours
    result = coframe.load(tmp_path / "out")
    assert len(result.poses) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_demo_is_reproducible(tmp_path: Path) -> None:
    for threads in ("1", "2"):
        assert (
            run(
                "demo", "--points", "200", "--threads", threads, "-o", threads, cwd=tmp_path
            ).returncode
            == 0
        )
    assert (tmp_path / "1/poses.json").read_bytes() == (tmp_path / "2/poses.json").read_bytes()
    assert (tmp_path / "1/merged.ply").read_bytes() == (tmp_path / "2/merged.ply").read_bytes()


@pytest.fixture
def scans(tmp_path: Path) -> tuple[Path, simulate.SimulatedScene]:
    scene = simulate.scene(3, 300, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    for j, cloud in enumerate(scene.clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    pose_files.write(
        tmp_path / "start.json", [f"scan{j}" for j in range(3)], geometry.identity(3, 3)
    )
    return tmp_path, scene


def test_register_writes_poses_with_verdicts(scans: tuple[Path, simulate.SimulatedScene]) -> None:
    folder, scene = scans
    files = [f"scan{j}.ply" for j in (2, 0, 1)]
    done = run("register", *files, "--poses", "start.json", "-o", "out", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads((folder / "out/poses.json").read_text())
    clouds = content["clouds"]
    assert [cloud["name"] for cloud in clouds] == ["scan0", "scan1", "scan2"]
    assert all(cloud["verdict"] == "aligned" for cloud in clouds)
    assert content["seed"] == content["options"]["seed"] == 0
    assert (
        content["options"]
        == coframe.Options().record()
        == dict(coframe.load(folder / "out").options)
    )
    found = np.array([cloud["pose"] for cloud in clouds])
    assert metrics.rotation_errors(found, scene.poses).max() < 1


def test_resume_says_when_there_is_nothing_to_resume(
    scans: tuple[Path, simulate.SimulatedScene],
) -> None:
    done = run(
        "register",
        "scan0.ply",
        "scan1.ply",
        "--poses",
        "start.json",
        "--resume",
        "-o",
        "out",
        cwd=scans[0],
    )
    assert (done.returncode, done.stderr) == (
        0,
        "coframe: no interrupted run in out; starting a new one\n",
    )


def test_register_is_quiet_when_asked_and_fails_when_a_cloud_does(
    scans: tuple[Path, simulate.SimulatedScene],
) -> None:
    folder, _ = scans
    ply.write(
        folder / "scan9.ply", np.random.default_rng(0).uniform(-3, 3, (300, 3)) * [1, 1, 0.01] + 20
    )
    done = run(
        "register", *sorted(p.name for p in folder.glob("*.ply")), "-q", "-o", "out", cwd=folder
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    verdicts = {
        c["name"]: c["verdict"]
        for c in json.loads((folder / "out/poses.json").read_text())["clouds"]
    }
    assert verdicts["scan9"] == "failed"


def test_extend_adds_a_cloud_to_a_saved_result(scans: tuple[Path, simulate.SimulatedScene]) -> None:
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
    again = run("extend", "two", "scan2.ply", "--json", cwd=folder)
    assert json.loads(again.stdout)["clouds"] == clouds
    assert {path.name for path in (folder / "two").iterdir()} >= {"report.html", "run.json"}


def test_json_is_one_object_with_the_content_of_the_pose_file(
    scans: tuple[Path, simulate.SimulatedScene],
) -> None:
    folder, _ = scans
    assert run("register", "scan0.ply", "scan1.ply", "-o", "out", cwd=folder).returncode == 0
    assert (folder / "out/report.html").exists()  # It goes with its result.
    done = run(
        "register",
        "scan0.ply",
        "scan1.ply",
        "scan2.ply",
        "--json",
        "--no-report",
        "-o",
        "out",
        cwd=folder,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told.pop("seconds") > 0
    written = [Path(path) for path in told.pop("written")]
    assert {path.name for path in written} == {
        "poses.json",
        "merged.ply",
        "model.ply",
        "state.npz",
        "run.json",
        "manifest.json",
    }
    assert sorted((folder / "out").iterdir()) == sorted(folder / path for path in written)
    assert told == json.loads((folder / "out/poses.json").read_text())
    done = run("register", "scan0.ply", "absent.ply", "--json", "-o", "out2", cwd=folder)
    told = json.loads(done.stdout)
    assert (done.returncode, told["exit_code"]) == (2, 2)
    assert done.stderr == f"coframe: {told['error']}\n"


def test_the_published_method_is_that_of_the_library(
    scans: tuple[Path, simulate.SimulatedScene],
) -> None:
    folder, scene = scans
    files = [f"scan{j}.ply" for j in range(3)]
    done = run(
        "register",
        *files,
        "--method",
        "paper",
        "--components",
        "60",
        "--seed",
        "4",
        "-o",
        "out",
        cwd=folder,
    )
    assert (done.returncode, done.stderr) == (0, "")
    result = coframe.load(folder / "out")
    means = coframe.paper.initial.means_on_sphere(scene.clouds, 60, np.random.default_rng(4))
    expected = coframe.paper.batch(scene.clouds, means)
    np.testing.assert_allclose(result.poses, expected.poses, atol=1e-9)
    assert result.iterations == 100
    content = json.loads((folder / "out/poses.json").read_text())
    assert (content["seed"], content["options"]["method"], content["start"]) == (
        4,
        "paper",
        "centred",
    )


def test_evaluate_says_the_errors_that_were_put_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = geometry.exp(np.random.default_rng(0).normal(size=(4, 6)))
    off = truth.copy()
    off[2] = off[2] @ geometry.exp(np.array([0, 0, np.radians(2.0), 0, 0, 0]))
    off[3, :3, 3] += [0.0, 0.3, 0.4]
    away = geometry.exp(np.array([0.3, -0.2, 0.1, 5.0, -4.0, 3.0]))
    names = [f"scan{j}" for j in range(4)]
    pose_files.write(tmp_path / "found.json", names, away @ off)
    pose_files.export(tmp_path / "truth.conf", "conf", names[::-1], truth[::-1])
    monkeypatch.chdir(tmp_path)
    told = json.loads(
        CliRunner().invoke(app, "evaluate found.json --truth truth.conf --json").stdout
    )
    assert [cloud["name"] for cloud in told["clouds"]] == names
    np.testing.assert_allclose(
        [cloud["rotation_deg"] for cloud in told["clouds"][1:]], [0, 2, 0], atol=1e-5
    )
    np.testing.assert_allclose(
        [cloud["translation"] for cloud in told["clouds"][1:]], [0, 0, 0.5], atol=1e-9
    )
    assert told["rotation_deg"]["largest"] == pytest.approx(2)
    assert told["translation"]["mean"] == pytest.approx(0.5 / 3)
    pose_files.write(tmp_path / "found.json", names, off, groups=[names[1:3], [names[0], names[3]]])
    table = CliRunner().invoke(app, "evaluate found.json --truth truth.conf").stdout
    assert [
        line.split()[-2] for line in table.splitlines() if "│ scan" in line and "deg" in line
    ] == ["scan1", "scan0"]


def test_evaluate_a_trajectory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    truth = trajectory.Trajectory(np.arange(20.0), geometry.exp(rng.normal(size=(20, 6))))
    trajectory.write_tum(tmp_path / "truth.txt", truth)
    trajectory.write_tum(tmp_path / "trajectory.txt", truth.moved(geometry.exp(rng.normal(size=6))))
    monkeypatch.chdir(tmp_path)
    told = json.loads(CliRunner().invoke(app, "evaluate . --truth truth.txt --json").stdout)
    assert (told["poses"], told["matched"]) == (20, 20)
    assert max(told["ate"]["largest"], told["rpe"]["largest"], told["rpe_deg"]["largest"]) < 1e-5
    assert "kitti" not in told
    trajectory.write_kitti(tmp_path / "truth.kitti", truth)
    for truth_file in ("truth.kitti", "truth.txt"):
        shown = CliRunner().invoke(app, f"evaluate trajectory.txt --truth {truth_file} --json")
        again = json.loads(shown.stdout)
        assert again["matched"] == 20
        assert again["ate"]["largest"] < 1e-5
    assert again["by"] == "time"


def test_evaluate_prints_the_errors_of_kitti(tmp_path: Path) -> None:
    """A straight drive of 300 m, 1 % too long and 0.02 degrees a metre askew."""
    count, rate = 301, np.radians(0.02)
    steps = np.tile(np.eye(4), (count, 1, 1))
    steps[1:, 0, 3] = 1
    truth = trajectory.Trajectory(np.arange(count) / 10, np.cumsum(steps, 0))
    truth.poses[:, :3, :3] = np.eye(3)
    truth.poses[:, 3] = [0, 0, 0, 1]
    turning = geometry.exp(np.array([0, 0, rate, 1.01, 0, 0]))
    poses = [np.eye(4)]
    for _ in range(count - 1):
        poses.append(poses[-1] @ turning)
    trajectory.write_kitti(
        tmp_path / "found.txt", trajectory.Trajectory(truth.times, np.array(poses))
    )
    trajectory.write_kitti(tmp_path / "truth.txt", truth)
    command = ["evaluate", str(tmp_path / "found.txt"), "--truth", str(tmp_path / "truth.txt")]
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert told["by"] == "number of the frame"
    assert told["kitti"]["rotation_deg_per_m"] == pytest.approx(0.02, rel=0.02)
    assert 1 < told["kitti"]["translation_percent"] < 4
    assert "KITTI, over 100 to 800 m" in CliRunner().invoke(app, command).stdout
    trajectory.write_kitti(
        tmp_path / "truth.txt", trajectory.Trajectory(truth.times[:9], truth.poses[:9])
    )
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2


def test_what_is_left_out_of_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    for name in ("a.ply", "b.ply"):
        ply.write(tmp_path / "scans" / name, np.random.default_rng(0).normal(size=(50, 3)))
    for name in ("mesh.obj", "view.png", "notes.txt", ".hidden.ply"):
        (tmp_path / "scans" / name).write_text("x")
    arguments = ["register", "scans", "-o", "out", "--no-report", "--exclude", "nobody"]
    done = run(*arguments, cwd=tmp_path)
    assert "took the files .ply and left out mesh.obj, view.png;" in done.stderr
    assert "notes.txt" not in done.stderr
    done = run("register", "scans/a.ply", *arguments[2:], cwd=tmp_path)
    assert "left out" not in done.stderr
