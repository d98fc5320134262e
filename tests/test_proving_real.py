# SPDX-License-Identifier: MIT
"""Real sets and sequences as problems: their poses fit their clouds, and halves share no shape."""

import json
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from conftest import DATA
from scipy.spatial import cKDTree

from coframe import geometry

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proving import real, sequences
from proving.conditions import CONDITIONS, disturbed
from proving.families import scanned
from proving.problem import Answer, Problem

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
# One scene of each set that is quick to read.
ONE_OF_EACH = {
    "armadillo": "exact",
    "happy buddha, few views": "stanford",
    "clean 05": "range_pairs",
    "noisy 19": "range_pairs",
    "college": "newer_college",
    "street 0 4 8": "kitti_street",
    "room pair": "room_pair",
    "kinect loop": "kinect_loop",
    "CSite2 nearly in place": "terrain",
    "scans from 160": "laser2d",
    "nuclear pores": "microscopy",
}


@pytest.fixture(autouse=True)
def _folder(monkeypatch):
    """Sets are found where the other tests find them."""
    monkeypatch.setenv("COFRAME_DATA", str(DATA))


def gap(clouds, poses):
    """Median over clouds of the median distance to the nearest point of another cloud, in extents.

    Clouds are thinned first: near the sensor, dense points are close to anything.
    """
    moved = [geometry.transform(T, v) for T, v in zip(poses, clouds, strict=True)]
    moved = [thinned(points, 0.01 * geometry.extent(points)) for points in moved]
    gaps = []
    for j, points in enumerate(moved):
        others = np.concatenate([each for k, each in enumerate(moved) if k != j])
        distance = np.median(cKDTree(others).query(points)[0])
        gaps.append(distance / geometry.extent(points))
    return float(np.median(gaps))


def thinned(points, cell):
    return points[np.unique(np.floor(points / cell).astype(int), axis=0, return_index=True)[1]]


def by_name(name):
    return next(scene for scene in real.scenes() if scene.name == name)


@pytest.mark.parametrize(("name", "folder"), ONE_OF_EACH.items())
def test_poses_carry_clouds_onto_each_other(name, folder, data):
    data(folder)
    scans = scanned(by_name(name))
    off = disturbed(scans, np.random.default_rng(0), degrees=20.0, share=0.05)
    assert gap(scans.clouds, scans.poses) < 0.65 * gap(scans.clouds, off)
    assert all(len(cloud) <= real.POINTS_FAR for cloud in scans.clouds)


def test_logos_are_sharpest_at_their_poses(data):
    data("microscopy")
    scans = scanned(by_name("logos"))

    def close_pairs(poses):
        """Pairs of points of different particles that are closer than 2 nm."""
        points = [geometry.transform(T, v) for T, v in zip(poses, scans.clouds, strict=True)]
        owner = np.repeat(np.arange(len(points)), [len(each) for each in points])
        pairs = cKDTree(np.concatenate(points)).query_pairs(2.0, output_type="ndarray")
        return int((owner[pairs[:, 0]] != owner[pairs[:, 1]]).sum())

    off = disturbed(scans, np.random.default_rng(0), degrees=180.0, share=0.0)
    assert close_pairs(scans.poses) > 1.5 * close_pairs(off)


def test_the_room_fits_at_its_pose_only(data):
    data("room_pair")
    scans = scanned(by_name("room pair"))
    as_they_are = geometry.identity(2, 3)
    turned_only = scans.poses.copy()
    turned_only[1, :3, 3] = 0.0
    for other in (as_they_are, turned_only):
        assert gap(scans.clouds, scans.poses) < 0.6 * gap(scans.clouds, other)


def test_strips_keep_their_coordinates(data):
    data("terrain")
    exact, off = (scanned(by_name(f"CSite2 {where}")) for where in ("in place", "nearly in place"))
    assert np.array_equal(exact.poses, geometry.identity(4, 3))
    assert exact.clouds[0][:, 1].min() > 5e6
    shifts = np.linalg.norm(geometry.translation(off.poses), axis=1)
    np.testing.assert_allclose(shifts, [0.0, 0.5, 0.5, 0.5])
    for a in range(3):  # neighbours share area, no points
        low, high = exact.clouds[a + 1][:, 1].min(), exact.clouds[a][:, 1].max()
        assert low < high
        both = np.concatenate([exact.clouds[a], exact.clouds[a + 1]])
        assert len(np.unique(both, axis=0)) == len(both)


def test_halves(data):
    data("stanford")
    halves = defaultdict(set)
    for scene in [*real.scenes(), *sequences.scenes()]:
        halves[scene.family].add((scene.name, scene.half))
    half_of = {name: half for members in halves.values() for name, half in members}
    for name in ("bunny", "dragon", "dragon, few views", "armadillo", "lucy", "desk from 100"):
        assert half_of.get(name, "tune") == "tune"
    for name in ("happy buddha", "street 0 4 8", "kinect loop", "nuclear pores", "kitchen from 0"):
        assert half_of.get(name, "judge") == "judge"
    if not real.missing():
        assert all(
            {half for _, half in members} == {"tune", "judge"} for members in halves.values()
        )
    shapes = [set(real.PAIRS_TUNE), set(real.PAIRS_JUDGE)]
    assert not shapes[0] & shapes[1]


def test_conditions_are_known():
    for scene in [*real.scenes(), *sequences.scenes()]:
        assert scene.conditions
        assert set(scene.conditions) <= set(CONDITIONS)


def test_sets_that_are_not_there_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COFRAME_DATA", str(tmp_path))
    assert real.scenes() == []
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "stanford/bunny" in said
    assert "laser2d" in said
    families = {scene.family for scene in sequences.scenes()}
    assert families == {"room path", "street path"}
    assert "seven_scenes_kitchen" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "folder"),
    {"kitchen from 160": "seven_scenes_kitchen", "street": "kitti_street"}.items(),
)
def test_real_frames_fit_their_path(name, folder, data, monkeypatch):
    data(folder)
    monkeypatch.setattr(sequences, "IMAGES", 12)
    scene = next(each for each in sequences.scenes() if each.name == name)
    scans = scanned(scene)
    assert scene.kind == "track"
    assert all(len(cloud) <= sequences.POINTS for cloud in scans.clouds)
    step = len(scans.clouds) // 3
    fits(scans.clouds[::step], scans.poses[::step])


@pytest.mark.parametrize("family", ["room path", "street path"])
def test_simulated_frames_fit_their_path(family, monkeypatch):
    monkeypatch.setattr(sequences, "ROOM_FRAMES", 4)
    monkeypatch.setattr(sequences, "STREET_FRAMES", 4)
    scene = next(each for each in sequences.scenes() if each.family == family)
    scans = scanned(scene)
    assert scans.exact
    fits(scans.clouds, scans.poses)


def fits(clouds, poses):
    """Frames lie on each other at the true poses, and less so when each is turned by 10 degrees
    about another axis.
    """
    turns = geometry.exp_rotation(np.radians(10.0) * np.eye(3)[np.arange(len(poses)) % 3])
    turned = poses @ geometry.pose(turns, np.zeros((len(poses), 3)))
    assert gap(clouds, poses) < 0.65 * gap(clouds, turned)


def two_views():
    """A problem that any method solves: the points of a bent sheet, twice."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (2, 2, 2000))
    sheets = np.stack([x, y, 0.5 * x**2 + 0.3 * np.sin(3 * y) + 0.2 * x * y], -1)
    truth = geometry.pose(
        np.array([np.eye(3), geometry.random_rotation(rng, 3, 8.0)]), np.zeros((2, 3))
    )
    clouds = [
        geometry.transform(geometry.inverse(T), v) for T, v in zip(truth, sheets, strict=True)
    ]
    start = geometry.identity(2, 3)
    return Problem("test", "sheet", "tune", "near", 0, "register", clouds, start, truth, True)


def run_peer(python, folder, problem, *options):
    problem.save(folder / "problem.npz")
    return subprocess.run(
        [python, ROOT / "proving" / "peers.py", "problem.npz", "answer.npz", *options],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.mark.skipif(find_spec("kiss_icp") is not None, reason="kiss-icp is installed here")
def test_a_peer_that_is_not_installed_is_one_sentence(tmp_path):
    done = run_peer(sys.executable, tmp_path, two_views(), "--name", "kiss-icp")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "kiss-icp: the library kiss_icp cannot be imported" in done.stderr
    assert "make peers" in done.stderr
    assert not (tmp_path / "answer.npz").exists()


@pytest.mark.skipif(not PEERS.exists(), reason="no .venv-peers: run make peers")
def test_open3d_answers_as_coframe_does(tmp_path):
    problem = two_views()
    done = run_peer(PEERS, tmp_path, problem, "100")
    assert done.returncode == 0, done.stderr
    answer = Answer.load(tmp_path / "answer.npz")
    assert answer.verdicts == ["aligned", "aligned"]
    assert answer.groups == [[0, 1]]
    relative = geometry.inverse(answer.poses[0]) @ answer.poses[1]
    assert (
        np.degrees(geometry.angle(geometry.rotation(relative) @ problem.truth[1, :3, :3].T)) < 0.5
    )
    assert answer.memory > 1e7
    track = run_peer(PEERS, tmp_path, problem, "--name", "small_gicp")
    assert track.returncode == 0, track.stderr
    assert "does not apply" in Answer.load(tmp_path / "answer.npz").error
    assert json.loads(str(np.load(tmp_path / "answer.npz")["json"]))["rest"]["poses"] is None
