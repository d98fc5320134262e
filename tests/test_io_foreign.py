# SPDX-License-Identifier: MIT
"""Scans as other programs write them: PLY, PCD, LAS, E57."""

from pathlib import Path

import numpy as np
import pytest
from plyfile import PlyData, PlyElement
from scenes import COLOURS, FULL, INTENSITY, NEAR, POINTS, POSE

from coframe import geometry
from coframe.io import clouds as cloud_files
from coframe.io import ply
from coframe.io.scan import Scan


def by_plyfile(path: Path, order: str, as_text: bool) -> None:
    vertices = np.empty(
        7,
        [
            ("x", "f8"),
            ("y", "f8"),
            ("z", "f8"),
            ("red", "u1"),
            ("green", "u1"),
            ("blue", "u1"),
            ("quality", "f4"),
        ],
    )
    for axis, column in zip("xyz", POINTS.T, strict=True):
        vertices[axis] = column
    for axis, column in zip(("red", "green", "blue"), COLOURS.T, strict=True):
        vertices[axis] = column
    vertices["quality"] = INTENSITY
    faces = np.array([([0, 1, 2],)], [("vertex_indices", "i4", (3,))])
    elements = [PlyElement.describe(vertices, "vertex"), PlyElement.describe(faces, "face")]
    PlyData(elements, text=as_text, byte_order=order, comments=["by hand"]).write(str(path))


@pytest.mark.parametrize(("order", "as_text"), [("<", False), (">", False), ("<", True)])
def test_ply_by_plyfile(tmp_path: Path, order: str, as_text: bool) -> None:
    by_plyfile(tmp_path / "a.ply", order, as_text)
    scan = cloud_files.read_scan(tmp_path / "a.ply")
    np.testing.assert_array_equal(scan.points, POINTS)
    np.testing.assert_array_equal(scan.colours, COLOURS)
    np.testing.assert_array_equal(scan.columns["quality"], INTENSITY.astype("f4"))


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("kind", ["ascii", "binary_big_endian"])
def test_ply_line_ends(tmp_path: Path, ending: str, kind: str) -> None:
    header = f"ply\nformat {kind} 1.0\ncomment x\nelement vertex 7\n"
    header += "property double x\nproperty double y\nproperty double z\nend_header\n"
    body = (
        POINTS.astype(">f8").tobytes()
        if kind != "ascii"
        else "".join("{!r} {!r} {!r}\n".format(*p) for p in POINTS.tolist()).encode()
    )
    body = body.replace(b"\n", ending.encode()) if kind == "ascii" else body
    (tmp_path / "a.ply").write_bytes(header.replace("\n", ending).encode() + body)
    np.testing.assert_array_equal(cloud_files.read(tmp_path / "a.ply"), POINTS)


def test_elements_before_the_vertices_are_passed_over(tmp_path: Path) -> None:
    header = (
        "ply\nformat binary_little_endian 1.0\nelement camera 2\nproperty short a\nproperty"
        " double b\n"
    )
    header += (
        "element vertex 7\nproperty double x\nproperty double y\nproperty double z\nend_header\n"
    )
    (tmp_path / "a.ply").write_bytes(header.encode() + bytes(20) + POINTS.astype("<f8").tobytes())
    np.testing.assert_array_equal(cloud_files.read(tmp_path / "a.ply"), POINTS)


@pytest.mark.parametrize("encoding", ["ascii", "binary", "binary_compressed"])
def test_pcd_by_pypcd4(tmp_path: Path, encoding: str) -> None:
    pypcd4 = pytest.importorskip("pypcd4")
    packed = pypcd4.PointCloud.encode_rgb(COLOURS)
    columns = np.c_[NEAR, INTENSITY.astype("f4")]
    cloud = pypcd4.PointCloud.from_points(
        [*columns.astype("f4").T, np.ravel(packed)],
        ("x", "y", "z", "intensity", "rgb"),
        (*["f4"] * 4, np.float32),
    )
    cloud.save(tmp_path / "a.pcd", pypcd4.Encoding(encoding))
    scan = cloud_files.read_scan(tmp_path / "a.pcd")
    np.testing.assert_allclose(scan.points, NEAR, rtol=1e-6)
    np.testing.assert_allclose(scan.intensity, INTENSITY, rtol=1e-6)
    if encoding != "ascii":  # which writes the packed float with six digits
        np.testing.assert_array_equal(scan.points, NEAR)
        np.testing.assert_array_equal(scan.colours, COLOURS)


def test_pypcd4_reads_ours(tmp_path: Path) -> None:
    pypcd4 = pytest.importorskip("pypcd4")
    cloud_files.write(tmp_path / "a.pcd", FULL)
    cloud = pypcd4.PointCloud.from_path(tmp_path / "a.pcd")
    np.testing.assert_array_equal(cloud.numpy(("x", "y", "z")), POINTS)
    np.testing.assert_array_equal(
        cloud.decode_rgb(cloud.numpy(("rgb",))[:, 0].astype("f4")), COLOURS
    )


def test_pcd_has_floats_unless_they_cost_too_much(tmp_path: Path) -> None:
    for points, size in ((NEAR, b"SIZE 4 4 4\n"), (POINTS, b"SIZE 8 8 8\n")):
        cloud_files.write(tmp_path / "a.pcd", Scan(points))
        assert size in (tmp_path / "a.pcd").read_bytes()
        np.testing.assert_array_equal(cloud_files.read(tmp_path / "a.pcd"), points)


def test_organised_pcd_with_padding_counts_and_nan(tmp_path: Path) -> None:
    dtype = np.dtype(
        [
            ("x", "<f4"),
            ("y", "<f4"),
            ("z", "<f4"),
            ("_", "u1", (4,)),
            ("histogram", "<f4", (2,)),
            ("label", "<i8"),
        ]
    )
    rows = np.zeros(8, dtype)
    rows["x"], rows["y"], rows["z"] = np.r_[NEAR, [[np.nan] * 3]].T
    rows["label"] = 2**40
    header = "# .PCD v0.7\r\nVERSION .7\r\nFIELDS x y z _ histogram label\r\n"
    header += "SIZE 4 4 4 1 4 8\r\nTYPE F F F U F I\r\nCOUNT 1 1 1 4 2 1\r\n"
    header += "WIDTH 4\r\nHEIGHT 2\r\nVIEWPOINT 0 0 0 1 0 0 0\r\nPOINTS 8\r\nDATA binary\r\n"
    (tmp_path / "a.pcd").write_bytes(header.encode() + rows.tobytes())
    scan = cloud_files.read_scan(tmp_path / "a.pcd")
    np.testing.assert_array_equal(scan.measured().points, NEAR)
    assert len(scan) == 8
    assert scan.pose is None
    assert scan.columns["label"][0] == 2**40


@pytest.mark.parametrize("suffix", [".las", ".laz"])
@pytest.mark.parametrize("point_format", [0, 3, 7])
def test_las_by_laspy(tmp_path: Path, suffix: str, point_format: int) -> None:
    laspy = pytest.importorskip("laspy")
    header = laspy.LasHeader(point_format=point_format, version="1.4")
    header.offsets, header.scales = [4.4e6, 5e5, 0], [0.001, 0.001, 0.01]
    las = laspy.LasData(header)
    las.x, las.y, las.z = POINTS.T
    las.intensity, las.classification = INTENSITY.astype("u2"), np.arange(7)
    if point_format:
        las.red, las.green, las.blue = COLOURS.T.astype("u2") << 8
    las.write(str(tmp_path / f"a{suffix}"))
    scan = cloud_files.read_scan(tmp_path / f"a{suffix}")
    np.testing.assert_allclose(scan.points, POINTS, rtol=0, atol=0.0051)
    np.testing.assert_array_equal(scan.points, las.xyz)
    np.testing.assert_array_equal(scan.intensity, INTENSITY)
    np.testing.assert_array_equal(scan.columns["classification"], np.arange(7))
    if point_format:
        np.testing.assert_array_equal(scan.colours, COLOURS)

    cloud_files.move(tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", [POSE])
    moved = laspy.read(tmp_path / f"b{suffix}")
    np.testing.assert_allclose(moved.xyz, geometry.transform(POSE, las.xyz), rtol=0, atol=0.0051)
    assert (moved.header.point_format.id, str(moved.header.version)) == (point_format, "1.4")
    np.testing.assert_array_equal(moved.header.scales, header.scales)
    np.testing.assert_array_equal(moved.header.offsets, header.offsets)
    np.testing.assert_array_equal(moved.classification, las.classification)
    assert moved.header.are_points_compressed == (suffix == ".laz")


def test_las_moved_out_of_reach_gets_an_offset_that_fits(tmp_path: Path) -> None:
    laspy = pytest.importorskip("laspy")
    cloud_files.write(tmp_path / "a.las", Scan(NEAR))
    far = geometry.pose(np.eye(3), np.array([5e6, 0, 0]))
    cloud_files.move(tmp_path / "a.las", tmp_path / "b.las", [far])
    np.testing.assert_allclose(
        laspy.read(tmp_path / "b.las").xyz, NEAR + far[:3, 3], rtol=0, atol=1e-8
    )


def test_e57_by_pye57(tmp_path: Path) -> None:
    pye57 = pytest.importorskip("pye57")
    from scipy.spatial.transform import Rotation

    path = str(tmp_path / "site.e57")
    with pye57.E57(path, mode="w") as file:
        for j in range(2):
            x, y, z, w = Rotation.from_matrix(POSE[:3, :3]).as_quat()
            data = {
                f"cartesian{axis}": column + j for axis, column in zip("XYZ", NEAR.T, strict=True)
            }
            data |= {
                f"color{name}": column
                for name, column in zip(("Red", "Green", "Blue"), COLOURS.T, strict=True)
            }
            data |= {
                "intensity": INTENSITY.astype("f4"),
                "cartesianInvalidState": np.array([0] * 6 + [2], "i1"),
            }
            file.write_scan_raw(
                data, name=f"station {j}", rotation=np.array([w, x, y, z]), translation=POSE[:3, 3]
            )
    scans = cloud_files.read_all(path)
    assert [scan.name for scan in scans] == ["station 0", "station 1"]
    for j, scan in enumerate(scans):
        np.testing.assert_array_equal(scan.points, (NEAR[:6] + j).astype("f4"))
        np.testing.assert_array_equal(scan.colours, COLOURS[:6])
        np.testing.assert_array_equal(scan.intensity, INTENSITY[:6])
        np.testing.assert_allclose(scan.pose, POSE, atol=1e-14)
    opened, files = cloud_files.open_all([path])
    assert [scan.name for scan in opened] == ["site/station 0", "site/station 1"]
    assert files == [Path(path)] * 2

    cloud_files.move(path, tmp_path / "moved.e57", [np.eye(4), geometry.inverse(POSE)])
    moved = pye57.E57(str(tmp_path / "moved.e57"))
    np.testing.assert_allclose(moved.get_header(1).rotation_matrix, POSE[:3, :3].T, atol=1e-14)
    read = moved.read_scan(
        1, transform=False, intensity=True, colors=True, ignore_missing_fields=True
    )
    np.testing.assert_array_equal(read["cartesianX"], (NEAR[:6, 0] + 1).astype("f4"))
    moved.close()


@pytest.mark.parametrize(("order", "text"), [(">", False), ("<", False), ("=", True)])
def test_moved_ply_keeps_faces_and_comments(
    order: str, text: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not go through plyfile, which takes 10 s for an ASCII scan of 40,000 points."""
    by_plyfile(tmp_path / "a.ply", order, text)
    if text:  # floats, and a comment that looks like more than it is
        header = (tmp_path / "a.ply").read_bytes().replace(b"property double", b"property float")
        (tmp_path / "a.ply").write_bytes(
            header.replace(b"comment by hand", b"comment element vertex by hand")
        )
    monkeypatch.delattr(ply, "_by_plyfile")
    cloud_files.move(tmp_path / "a.ply", tmp_path / "b.ply", [POSE])
    back = PlyData.read(tmp_path / "b.ply")
    assert (back.byte_order, back.text, back.comments) == (
        order,
        text,
        ["element vertex by hand" if text else "by hand"],
    )
    old = PlyData.read(tmp_path / "a.ply")
    np.testing.assert_array_equal(
        np.vstack(back["face"]["vertex_indices"]), np.vstack(old["face"]["vertex_indices"])
    )
    assert [each.name for each in back["vertex"].properties] == [
        each.name for each in old["vertex"].properties
    ]
    np.testing.assert_array_equal(back["vertex"]["red"], COLOURS[:, 0])
    found, points = (np.stack([data["vertex"][axis] for axis in "xyz"], 1) for data in (back, old))
    np.testing.assert_allclose(found, geometry.transform(POSE, points.astype(float)), rtol=1e-14)
