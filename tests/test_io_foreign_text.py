# SPDX-License-Identifier: MIT
"""Meshes, arrays, text and depth images as other programs write them."""

from pathlib import Path

import numpy as np
import pytest
from scenes import COLOURS, INTENSITY, NEAR, NORMALS, POINTS, POSE

from coframe import InputError, geometry
from coframe.io import clouds as cloud_files
from coframe.io import depth


@pytest.mark.parametrize("suffix", [".obj", ".stl", ".off"])
def test_meshes_by_trimesh(tmp_path: Path, suffix: str) -> None:
    trimesh = pytest.importorskip("trimesh")
    box = trimesh.creation.box(extents=(2, 4, 6))
    path = tmp_path / f"box{suffix}"
    box.export(path)
    scan = cloud_files.read_scan(path)
    assert sorted(map(tuple, scan.points)) == sorted(map(tuple, box.vertices))
    (samples,) = cloud_files.read_all(path, samples=500)
    assert samples.points.shape == (500, 3)
    on_surface = np.isclose(np.abs(samples.points) / [1, 2, 3], 1)
    assert on_surface.any(1).all()
    assert np.isclose(np.abs((samples.normals * samples.points)[on_surface]).min(), 1)
    np.testing.assert_array_equal(cloud_files.read_all(path, samples=500)[0].points, samples.points)

    cloud_files.move(path, tmp_path / f"moved{suffix}", [POSE])
    moved = trimesh.load(tmp_path / f"moved{suffix}", process=False)
    assert len(moved.faces) == 12
    expected = geometry.transform(POSE, scan.points)
    np.testing.assert_allclose(
        np.sort(np.unique(moved.vertices.round(4), axis=0)[:, 0]),
        np.sort(expected[:, 0]),
        atol=1e-3,
    )


def test_obj_without_faces_is_a_cloud(tmp_path: Path) -> None:
    pytest.importorskip("trimesh")
    (tmp_path / "a.obj").write_text(
        "# points\nmtllib ../../secret.mtl\n"
        + "".join(f"v {x} {y} {z}\n" for x, y, z in NEAR.tolist())
    )
    np.testing.assert_allclose(cloud_files.read(tmp_path / "a.obj"), NEAR, rtol=1e-7)


def test_kitti_by_numpy(tmp_path: Path) -> None:
    np.c_[NEAR, INTENSITY].astype("<f4").tofile(tmp_path / "000000.bin")
    scan = cloud_files.read_scan(tmp_path / "000000.bin")
    np.testing.assert_array_equal(scan.points, NEAR)
    np.testing.assert_array_equal(scan.intensity, INTENSITY)


def test_npz_with_many_clouds_and_with_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", poses=np.stack([POSE, np.eye(4)]), scan_00=NEAR, scan_01=POINTS)
    first, second = cloud_files.read_all(tmp_path / "many.npz")
    assert (first.name, second.name) == ("scan_00", "scan_01")
    np.testing.assert_array_equal(first.pose, POSE)
    np.testing.assert_array_equal(second.points, POINTS)
    np.savez_compressed(tmp_path / "one.npz", points=NEAR, colors=COLOURS / 255, normals=NORMALS)
    (one,) = cloud_files.read_all(tmp_path / "one.npz")
    np.testing.assert_array_equal(one.colours, COLOURS)
    np.testing.assert_array_equal(one.normals, NORMALS)


def test_structured_and_wide_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.rec.fromarrays([*NEAR.T, *COLOURS.T], names="x,y,z,r,g,b"))
    np.testing.assert_array_equal(cloud_files.read_scan(tmp_path / "a.npy").colours, COLOURS)
    np.save(tmp_path / "b.npy", np.asfortranarray(np.c_[NEAR, INTENSITY]))
    np.testing.assert_array_equal(
        cloud_files.read_scan(tmp_path / "b.npy").columns["column4"], INTENSITY
    )


def rows(*columns: np.ndarray, separator: str = " ") -> str:
    return "".join(
        separator.join(format(x, ".17g") for x in row) + "\n" for row in np.column_stack(columns)
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cloudcompare.asc", "//X Y Z R G B\n" + rows(NEAR, COLOURS)),
        ("counted.asc", "//X Y Z Intensity R G B\n" + rows(NEAR, INTENSITY, COLOURS)),
        (
            "paraview.csv",
            '"Intensity","RGB:0","RGB:1","RGB:2","Points:0","Points:1","Points:2"\n'
            + rows(INTENSITY, COLOURS, NEAR, separator=","),
        ),
        ("german.csv", "x;y;z;r;g;b\n" + rows(NEAR, COLOURS, separator=";").replace(".", ",")),
        ("reordered.txt", "# b g r z y x\n" + rows(COLOURS[:, ::-1], NEAR[:, ::-1])),
        ("bare.txt", rows(NEAR, COLOURS)),
        ("dos.xyz", rows(NEAR, COLOURS).replace("\n", "\r\n")),
        ("tabs.txt", "\ufeffX\tY\tZ\tred\tgreen\tblue\n" + rows(NEAR, COLOURS, separator="\t")),
        ("leica.pts", "7\n" + rows(NEAR, INTENSITY, COLOURS)),
        ("open3d.xyzrgb", rows(NEAR, COLOURS / 255)),
        ("both.txt", rows(NEAR, COLOURS, NORMALS)),
    ],
)
def test_text_of_other_programs(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    (scan,) = cloud_files.read_all(tmp_path / name)
    np.testing.assert_array_equal(scan.points, NEAR)
    np.testing.assert_array_equal(scan.colours, COLOURS)
    if scan.intensity is not None:
        np.testing.assert_array_equal(scan.intensity, INTENSITY)
    assert (scan.normals is not None) == (name == "both.txt")
    np.testing.assert_array_equal(
        np.concatenate([part.points for part in cloud_files.blocks(tmp_path / name, 2)]), NEAR
    )


def test_pts_with_several_scans(tmp_path: Path) -> None:
    (tmp_path / "a.pts").write_text(
        "3\n" + rows(NEAR[:3], INTENSITY[:3]) + "4\n" + rows(NEAR[3:], COLOURS[3:])
    )
    first, second = cloud_files.read_all(tmp_path / "a.pts")
    np.testing.assert_array_equal(first.points, NEAR[:3])
    np.testing.assert_array_equal(first.intensity, INTENSITY[:3])
    np.testing.assert_array_equal(second.colours, COLOURS[3:])


def test_depth_images(tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    values = np.array([[0, 5000, 10000], [2500, 0, 65535]], np.uint16)
    images.fromarray(values).save(tmp_path / "depth.png")
    (tmp_path / "intrinsics.json").write_text('{"preset": "freiburg1"}')
    expected = depth.points(values, depth.TUM_FR1)
    np.testing.assert_array_equal(cloud_files.read(tmp_path / "depth.png"), expected)
    (tmp_path / "intrinsics.json").unlink()
    with pytest.raises(InputError, match=r"depth\.png: expected the camera's intrinsics"):
        cloud_files.read(tmp_path / "depth.png")
    camera = depth.Intrinsics(2.0, 2.0, 1.0, 0.0, 5000.0)
    (scan,) = cloud_files.read_all(tmp_path / "depth.png", intrinsics=camera)
    np.testing.assert_allclose(scan.points[0], [0, 0, 1])
    np.testing.assert_allclose(scan.points[1], [1, 0, 2])
    np.testing.assert_allclose(scan.points[2], [-0.25, 0.25, 0.5])
