# SPDX-License-Identifier: MIT
"""Files: whole or absent, and read back as written."""

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from plyfile import PlyData

from coframe import geometry
from coframe.errors import InputError
from coframe.io import clouds as cloud_files
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


@pytest.mark.parametrize(
    "order", ["plain", "with faces and comments", "faces first", "list property"]
)
def test_ascii_is_read_as_plyfile_reads_it(tmp_path: Path, order: str) -> None:
    vertices = "0.5 -1e-3 2 7\n1.25 0 3 8\n-4 5 6 9\n"
    header = (
        "element vertex 3\nproperty float x\nproperty double y\nproperty float32 z\nproperty uchar"
        " intensity\n"
    )
    faces = "element face 1\nproperty list uchar int vertex_indices\n"
    bodies = {
        "plain": f"{header}end_header\n{vertices}",
        "with faces and comments": (
            f"comment by hand\nobj_info x 1\n{header}{faces}end_header\n{vertices}3 0 1 2\n"
        ),
        "faces first": f"{faces}{header}end_header\n3 0 1 2\n{vertices}",
        "list property": (
            f"{header.replace('uchar', 'list uchar int')}end_header\n0.5 -1e-3 2 1 7\n1.25 0 3"
            " 0\n-4 5 6 0\n"
        ),
    }
    path = tmp_path / "a.ply"
    path.write_text("ply\nformat ascii 1.0\n" + bodies[order])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # plyfile warns of empty lists
        expected = PlyData.read(path)["vertex"]
    found = ply.read(path)
    for axis in "xyz":
        assert found[axis].dtype == expected[axis].dtype
        np.testing.assert_array_equal(found[axis], expected[axis])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "1 2 3\n4 5 6\n"),
        ("a.csv", "x,y,z,i\n1,2,3,9\n4,5,6,9\n"),
        ("a.xyz", "# c\n1;2;3;0\n\n4; 5; 6;1\n"),
    ],
)
def test_text_clouds(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    np.testing.assert_array_equal(cloud_files.read(tmp_path / name), [[1, 2, 3], [4, 5, 6]])


def test_numpy_and_ply_clouds(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(6, 3))
    np.save(tmp_path / "a.npy", points)
    ply.write(tmp_path / "a.ply", points)
    np.testing.assert_array_equal(cloud_files.read(tmp_path / "a.npy"), points)
    np.testing.assert_array_equal(cloud_files.read(tmp_path / "a.ply"), points)


@pytest.mark.parametrize("suffix", [".ply", ".npy", ".txt"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello\n",
        b"\x00\xff\x80",
        b"ply\nformat ascii 1.0\nelement vertex 9\nproperty float x\n",
    ],
)
def test_a_bad_cloud_is_named(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"scan{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"scan\.\w+: expected a cloud"):
        cloud_files.read(path)


def test_what_is_no_cloud_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.doc").write_text("words")
    for name, words in (
        ("a.doc", r"expected one of \.ply"),
        ("b.ply", "found nothing"),
        (".", "a folder"),
    ):
        with pytest.raises(InputError, match=words):
            cloud_files.read(tmp_path / name)


def test_scan2_comes_before_scan10() -> None:
    names = ["scan10.ply", "scan2.ply", "Scan1.ply", "a.ply"]
    assert sorted(names, key=cloud_files.natural) == [
        "a.ply",
        "Scan1.ply",
        "scan2.ply",
        "scan10.ply",
    ]


def test_pose_files_round_trip(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    poses = np.array(
        [
            geometry.pose(geometry.random_rotation(rng, 3), rng.normal(size=3) * 1e6)
            for _ in range(3)
        ]
    )
    pose_files.write(tmp_path / "p.json", ["a", "b b", "ü"], poses, seed=3)
    back = pose_files.read(tmp_path / "p.json")
    assert list(back) == ["a", "b b", "ü"]
    np.testing.assert_array_equal(list(back.values()), poses)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"format": "other/2", "clouds": []}',
        '{"format": "coframe-poses/1", "clouds": [{"name": 1}]}',
    ],
)
def test_a_bad_pose_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"p\.json: expected .*coframe-poses/1"):
        pose_files.read(path)


def test_pose_file_is_json_that_others_read(tmp_path: Path) -> None:
    pose_files.write(
        tmp_path / "p.json",
        ["a"],
        geometry.identity(1, 3),
        details=[{"verdict": "aligned"}],
        status="converged",
    )
    assert json.loads((tmp_path / "p.json").read_text()) == {
        "format": "coframe-poses/1",
        "clouds": [{"name": "a", "pose": np.eye(4).tolist(), "verdict": "aligned"}],
        "status": "converged",
    }
