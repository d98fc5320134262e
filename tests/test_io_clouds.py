# SPDX-License-Identifier: MIT
"""Clouds in files that we write: what is kept, files in pieces, names and folders, moved copies."""

from pathlib import Path

import numpy as np
import pytest
from scenes import COLOURS, FULL, INTENSITY, NEAR, NORMALS, POINTS, POSE, needs

from coframe import InputError, geometry
from coframe.io import clouds as cloud_files
from coframe.io import text
from coframe.io.scan import Scan, joined

# What each format keeps: points, colours, normals, intensity, columns, pose.
KEPT = {
    ".ply": "pcnix",
    ".pcd": "pcnixT",
    ".xyz": "pcnix",
    ".csv": "pcnix",
    ".las": "pcnix",
    ".laz": "pcnix",
    ".e57": "pcniT",
    ".ptx": "pciT",
    ".npy": "p",
}


@pytest.mark.parametrize("suffix", KEPT)
def test_what_we_write_we_read(tmp_path: Path, suffix: str) -> None:
    needs(suffix)
    path, kept = tmp_path / f"scan{suffix}", KEPT[suffix]
    cloud_files.write(path, FULL)
    (back,) = cloud_files.read_all(path)
    tolerance = 1e-8 if suffix in (".las", ".laz") else 0  # 32-bit coordinates
    np.testing.assert_allclose(back.points, POINTS, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(cloud_files.read(path), back.points)
    assert back.name == "scan"
    pairs = {
        "c": (back.colours, COLOURS),
        "n": (back.normals, NORMALS),
        "i": (back.intensity, INTENSITY),
    }
    if suffix in (".las", ".laz"):  # which has no place for normals but extra dimensions
        pairs["n"] = (np.stack([back.columns[axis] for axis in ("nx", "ny", "nz")], 1), NORMALS)
    for letter, (found, expected) in pairs.items():
        if letter in kept:
            np.testing.assert_array_equal(found, expected)
        else:
            assert found is None
    if "x" in kept:
        np.testing.assert_array_equal(back.columns["time"], np.arange(7.0))
    if "T" in kept:
        np.testing.assert_allclose(back.pose, POSE, atol=1e-14)


@pytest.mark.parametrize("suffix", [*KEPT, ".bin"])
@pytest.mark.parametrize("rows", [1, 3, 7, 100])
def test_blocks_are_the_file_in_pieces(tmp_path: Path, suffix: str, rows: int) -> None:
    needs(suffix)
    path = tmp_path / f"scan{suffix}"
    cloud_files.write(path, FULL)
    whole, parts = cloud_files.read_scan(path), list(cloud_files.blocks(path, rows))
    assert [len(part) for part in parts[:-1]] == [rows] * (len(parts) - 1)
    np.testing.assert_array_equal(np.concatenate([part.points for part in parts]), whole.points)
    if whole.colours is not None:
        np.testing.assert_array_equal(
            np.concatenate([part.colours for part in parts]), whole.colours
        )


def test_text_pieces_end_at_lines(tmp_path: Path) -> None:
    for suffix in (".xyz", ".csv"):
        cloud_files.write(tmp_path / f"a{suffix}", FULL)
        pieces = list(text.blocks(tmp_path / f"a{suffix}", piece_size=50))
        assert len(pieces) > 1
        back = joined(pieces)
        np.testing.assert_array_equal(back.points, POINTS)
        np.testing.assert_array_equal(back.colours, COLOURS)


def test_a_plane_stays_a_plane(tmp_path: Path) -> None:
    flat = Scan(POINTS[:, :2])
    for suffix in (".xyz", ".csv", ".npy"):
        cloud_files.write(tmp_path / f"a{suffix}", flat)
        np.testing.assert_array_equal(cloud_files.read(tmp_path / f"a{suffix}"), POINTS[:, :2])


@pytest.mark.parametrize("suffix", [".ply", ".pcd", ".las", ".e57", ".npy"])
@pytest.mark.parametrize("wrong", [".txt", ".bin", ".obj", ".pts", ""])
def test_content_counts_more_than_the_suffix(tmp_path: Path, suffix: str, wrong: str) -> None:
    needs(suffix)
    cloud_files.write(tmp_path / f"a{suffix}", Scan(NEAR))
    path = (tmp_path / f"a{suffix}").rename(tmp_path / f"b{wrong}")
    np.testing.assert_allclose(cloud_files.read(path), NEAR, rtol=0, atol=1e-8)


def test_folders_patterns_and_order(tmp_path: Path) -> None:
    for name in ("s10.ply", "s2.ply", "s1.pcd", "notes.txt", ".hidden.ply", "sub/s2.ply"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        cloud_files.write(tmp_path / name, Scan(NEAR))
    assert [path.name for path in cloud_files.expand([tmp_path])] == ["s1.pcd", "s2.ply", "s10.ply"]
    assert [
        path.name for path in cloud_files.expand([f"{tmp_path}/*.ply", tmp_path / "s2.ply"])
    ] == ["s2.ply", "s10.ply"]
    scans, files = cloud_files.open_all([tmp_path, tmp_path / "sub"])
    assert [scan.name for scan in scans] == ["s1", f"{tmp_path.name}/s2", "s10", "sub/s2"]
    assert [file.name for file in files] == ["s1.pcd", "s2.ply", "s10.ply", "s2.ply"]
    (tmp_path / "empty").mkdir()
    for argument in (tmp_path / "empty", f"{tmp_path}/*.las"):
        with pytest.raises(
            InputError, match=r"expected a (folder with clouds|pattern that matches files)"
        ):
            cloud_files.expand([argument])


def test_a_file_called_like_a_pattern(tmp_path: Path) -> None:
    cloud_files.write(tmp_path / "scan[1].ply", Scan(NEAR))
    assert cloud_files.expand([tmp_path / "scan[1].ply"]) == [tmp_path / "scan[1].ply"]


def test_names_that_are_alike_are_told_apart() -> None:
    paths = [
        Path(name) for name in ("a/x/s.ply", "a/y/s.ply", "b/s.pcd", "b/s.ply", "t.ply", "t.ply")
    ]
    assert cloud_files.distinct([path.stem for path in paths], paths) == [
        "x/s",
        "y/s",
        "b/s.pcd",
        "b/s.ply",
        "t.ply 1",
        "t.ply 2",
    ]


@pytest.mark.parametrize("suffix", [".ply", ".pcd", ".xyz", ".npy", ".bin"])
def test_moved_copies(tmp_path: Path, suffix: str) -> None:
    cloud_files.write(tmp_path / f"a{suffix}", Scan(NEAR, COLOURS, NORMALS, pose=POSE))
    cloud_files.move(tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", [POSE])
    back = cloud_files.read_scan(tmp_path / f"b{suffix}")
    np.testing.assert_allclose(
        back.points,
        geometry.transform(POSE, NEAR),
        rtol=1e-6 if suffix in (".bin", ".pcd") else 1e-14,
    )
    assert back.pose is None
    if back.normals is not None:
        np.testing.assert_allclose(
            back.normals, NORMALS @ POSE[:3, :3].T, atol=1e-7 if suffix == ".pcd" else 1e-15
        )


def test_files_are_announced_before_they_are_read(tmp_path: Path) -> None:
    for name in ("scan10.xyz", "scan2.xyz"):
        (tmp_path / name).write_text("1 2 3\n4 5 7\n")
    told: list[tuple[int, int, str]] = []
    cloud_files.open_all([tmp_path], on_file=lambda *step: told.append(step))
    assert told == [(1, 2, "scan2.xyz"), (2, 2, "scan10.xyz")]


def test_names_are_known_before_clouds_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "several.npz", a=np.eye(3), b=np.eye(3) + 1)
    np.save(tmp_path / "one.npy", np.eye(3))
    names = cloud_files.names_of(cloud_files.expand([tmp_path]))
    assert names == [scan.name for scan in cloud_files.open_all([tmp_path])[0]]
    assert names == ["one", "several/a", "several/b"]


@pytest.mark.parametrize("suffix", ["ply", "las", "laz", "e57", "pcd", "xyz", "ptx", "npy"])
def test_headers_say_how_many_points_there_are(suffix: str, tmp_path: Path) -> None:
    needs(suffix)
    path = tmp_path / f"cloud.{suffix}"
    cloud_files.write(path, Scan(np.random.default_rng(0).normal(size=(1000, 3)).round(6)))
    found = cloud_files.rough_count(path)
    assert found == 1000 if suffix in ("ply", "las", "laz", "e57") else 300 < found < 3000
    path.write_bytes(path.read_bytes()[:90])
    assert cloud_files.rough_count(path) >= 0
