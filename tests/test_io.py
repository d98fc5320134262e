# SPDX-License-Identifier: MIT
"""Files: whole or absent, and read back as written."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from plyfile import PlyData

from coframe import geometry
from coframe.clouds import InputError
from coframe.io import ply
from coframe.io import poses as pose_files
from coframe.io.files import atomic


def test_atomic_replaces_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with atomic(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]
    plain = tmp_path / "plain"
    plain.touch()
    assert target.stat().st_mode == plain.stat().st_mode


def test_atomic_leaves_nothing_of_a_failure(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("D", [2, 3])
def test_ply_keeps_every_digit(tmp_path: Path, D: int) -> None:
    points = np.random.default_rng(0).normal(size=(10, D)) + 4.4e6
    ply.write(tmp_path / "a.ply", points, cloud=np.arange(10, dtype="<i4"))
    for vertices in (ply.read(tmp_path / "a.ply"), PlyData.read(tmp_path / "a.ply")["vertex"]):
        for axis, column in zip("xyz", points.T, strict=False):
            np.testing.assert_array_equal(vertices[axis], column)
        np.testing.assert_array_equal(vertices["cloud"], np.arange(10))


def test_pose_files_round_trip(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    poses = np.array([geometry.pose(geometry.random_rotation(rng, 3), rng.normal(size=3) * 1e6) for _ in range(3)])
    pose_files.write(tmp_path / "p.json", ["a", "b b", "ü"], poses, seed=3)
    back = pose_files.read(tmp_path / "p.json")
    assert list(back) == ["a", "b b", "ü"]
    np.testing.assert_array_equal(list(back.values()), poses)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"format": "other/2", "clouds": []}', '{"format": "coframe-poses/1", "clouds": [{"name": 1}]}']
)
def test_a_bad_pose_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"p\.json: expected .*coframe-poses/1"):
        pose_files.read(path)


def test_pose_file_is_json_that_others_read(tmp_path: Path) -> None:
    pose_files.write(tmp_path / "p.json", ["a"], geometry.identity(1, 3), details=[{"verdict": "aligned"}], status="converged")
    assert json.loads((tmp_path / "p.json").read_text()) == {
        "format": "coframe-poses/1",
        "clouds": [{"name": "a", "pose": np.eye(4).tolist(), "verdict": "aligned"}],
        "status": "converged",
    }
