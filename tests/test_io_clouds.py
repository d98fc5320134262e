# SPDX-License-Identifier: MIT
"""Clouds in files: as other programs write them, and as we do."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from plyfile import PlyData, PlyElement

from coframe import InputError, depth, geometry
from coframe.io import clouds as cloud_files
from coframe.io import ply, text
from coframe.io.scan import Scan

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(7, 3)) + np.array([4.4e6, 5e5, 100])  # survey coordinates
NEAR = RNG.normal(size=(7, 3)).astype("f4").astype(float)  # what floats can hold
COLOURS = RNG.integers(0, 256, (7, 3), dtype=np.uint8)
NORMALS = np.linalg.qr(RNG.normal(size=(7, 3, 3)))[0][:, 0]
INTENSITY = RNG.integers(2, 60000, 7).astype("f8")
POSE = geometry.exp(np.array([0.3, -0.2, 0.5, 10.0, -20.0, 3.0]))
FULL = Scan(POINTS, COLOURS, NORMALS, INTENSITY, {"time": np.arange(7.0)}, POSE, "scan")
LIBRARIES = {".las": "laspy", ".laz": "laspy", ".e57": "pye57", ".obj": "trimesh", ".stl": "trimesh", ".off": "trimesh"}


def needs(suffix: str) -> None:
    if suffix in LIBRARIES:
        pytest.importorskip(LIBRARIES[suffix])


# What each format keeps: points, colours, normals, intensity, columns, pose.
KEPT = {
    ".ply": "pcnix",
    ".pcd": "pcnixT",
    ".xyz": "pcnix",
    ".csv": "pcnix",
    ".las": "pcnix",
    ".laz": "pcnix",
    ".e57": "pciT",
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
    pairs = {"c": (back.colours, COLOURS), "n": (back.normals, NORMALS), "i": (back.intensity, INTENSITY)}
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
        np.testing.assert_array_equal(np.concatenate([part.colours for part in parts]), whole.colours)


def test_text_pieces_end_at_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE", 50)
    for suffix in (".xyz", ".csv"):
        cloud_files.write(tmp_path / f"a{suffix}", FULL)
        back = cloud_files.read_scan(tmp_path / f"a{suffix}")
        np.testing.assert_array_equal(back.points, POINTS)
        np.testing.assert_array_equal(back.colours, COLOURS)


def test_a_plane_stays_a_plane(tmp_path: Path) -> None:
    flat = Scan(POINTS[:, :2])
    for suffix in (".xyz", ".csv", ".npy"):
        cloud_files.write(tmp_path / f"a{suffix}", flat)
        np.testing.assert_array_equal(cloud_files.read(tmp_path / f"a{suffix}"), POINTS[:, :2])


# Files as other libraries write them.


def by_plyfile(path: Path, order: str, as_text: bool) -> None:
    vertices = np.empty(
        7, [("x", "f8"), ("y", "f8"), ("z", "f8"), ("red", "u1"), ("green", "u1"), ("blue", "u1"), ("quality", "f4")]
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
    header = "ply\nformat binary_little_endian 1.0\nelement camera 2\nproperty short a\nproperty double b\n"
    header += "element vertex 7\nproperty double x\nproperty double y\nproperty double z\nend_header\n"
    (tmp_path / "a.ply").write_bytes(header.encode() + bytes(20) + POINTS.astype("<f8").tobytes())
    np.testing.assert_array_equal(cloud_files.read(tmp_path / "a.ply"), POINTS)


@pytest.mark.parametrize("encoding", ["ascii", "binary", "binary_compressed"])
def test_pcd_by_pypcd4(tmp_path: Path, encoding: str) -> None:
    pypcd4 = pytest.importorskip("pypcd4")
    packed = pypcd4.PointCloud.encode_rgb(COLOURS)
    columns = np.c_[NEAR, INTENSITY.astype("f4")]
    cloud = pypcd4.PointCloud.from_points(
        [*columns.astype("f4").T, np.ravel(packed)], ("x", "y", "z", "intensity", "rgb"), (*["f4"] * 4, np.float32)
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
    np.testing.assert_array_equal(cloud.decode_rgb(cloud.numpy(("rgb",))[:, 0].astype("f4")), COLOURS)


def test_pcd_has_floats_unless_they_cost_too_much(tmp_path: Path) -> None:
    for points, size in ((NEAR, b"SIZE 4 4 4\n"), (POINTS, b"SIZE 8 8 8\n")):
        cloud_files.write(tmp_path / "a.pcd", Scan(points))
        assert size in (tmp_path / "a.pcd").read_bytes()
        np.testing.assert_array_equal(cloud_files.read(tmp_path / "a.pcd"), points)


def test_organised_pcd_with_padding_counts_and_nan(tmp_path: Path) -> None:
    dtype = np.dtype(
        [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("_", "u1", (4,)), ("histogram", "<f4", (2,)), ("label", "<i8")]
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
    np.testing.assert_allclose(laspy.read(tmp_path / "b.las").xyz, NEAR + far[:3, 3], rtol=0, atol=1e-8)


def test_e57_by_pye57(tmp_path: Path) -> None:
    pye57 = pytest.importorskip("pye57")
    from scipy.spatial.transform import Rotation

    path = str(tmp_path / "site.e57")
    with pye57.E57(path, mode="w") as file:
        for j in range(2):
            x, y, z, w = Rotation.from_matrix(POSE[:3, :3]).as_quat()
            data = {f"cartesian{axis}": column + j for axis, column in zip("XYZ", NEAR.T, strict=True)}
            data |= {f"color{name}": column for name, column in zip(("Red", "Green", "Blue"), COLOURS.T, strict=True)}
            data |= {"intensity": INTENSITY.astype("f4"), "cartesianInvalidState": np.array([0] * 6 + [2], "i1")}
            file.write_scan_raw(data, name=f"station {j}", rotation=np.array([w, x, y, z]), translation=POSE[:3, 3])
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
    read = moved.read_scan(1, transform=False, intensity=True, colors=True, ignore_missing_fields=True)
    np.testing.assert_array_equal(read["cartesianX"], (NEAR[:6, 0] + 1).astype("f4"))
    moved.close()


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
    np.testing.assert_allclose(np.sort(np.unique(moved.vertices.round(4), axis=0)[:, 0]), np.sort(expected[:, 0]), atol=1e-3)


def test_obj_without_faces_is_a_cloud(tmp_path: Path) -> None:
    pytest.importorskip("trimesh")
    (tmp_path / "a.obj").write_text(
        "# points\nmtllib ../../secret.mtl\n" + "".join(f"v {x} {y} {z}\n" for x, y, z in NEAR.tolist())
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
    np.testing.assert_array_equal(cloud_files.read_scan(tmp_path / "b.npy").columns["column4"], INTENSITY)


def rows(*columns: np.ndarray, separator: str = " ") -> str:
    return "".join(separator.join(format(x, ".17g") for x in row) + "\n" for row in np.column_stack(columns))


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
    np.testing.assert_array_equal(np.concatenate([part.points for part in cloud_files.blocks(tmp_path / name, 2)]), NEAR)


def test_pts_with_several_scans(tmp_path: Path) -> None:
    (tmp_path / "a.pts").write_text("3\n" + rows(NEAR[:3], INTENSITY[:3]) + "4\n" + rows(NEAR[3:], COLOURS[3:]))
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


# Names, folders, wrong suffixes.


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
    assert [path.name for path in cloud_files.expand([f"{tmp_path}/*.ply", tmp_path / "s2.ply"])] == ["s2.ply", "s10.ply"]
    scans, files = cloud_files.open_all([tmp_path, tmp_path / "sub"])
    assert [scan.name for scan in scans] == ["s1", f"{tmp_path.name}/s2", "sub/s2", "s10"]
    assert [file.name for file in files] == ["s1.pcd", "s2.ply", "s2.ply", "s10.ply"]
    (tmp_path / "empty").mkdir()
    for argument in (tmp_path / "empty", f"{tmp_path}/*.las"):
        with pytest.raises(InputError, match=r"expected a (folder with clouds|pattern that matches files)"):
            cloud_files.expand([argument])


def test_a_file_called_like_a_pattern(tmp_path: Path) -> None:
    cloud_files.write(tmp_path / "scan[1].ply", Scan(NEAR))
    assert cloud_files.expand([tmp_path / "scan[1].ply"]) == [tmp_path / "scan[1].ply"]


def test_names_that_are_alike_are_told_apart() -> None:
    paths = [Path(name) for name in ("a/x/s.ply", "a/y/s.ply", "b/s.pcd", "b/s.ply", "t.ply", "t.ply")]
    assert cloud_files.distinct([path.stem for path in paths], paths) == [
        "x/s",
        "y/s",
        "b/s.pcd",
        "b/s.ply",
        "t.ply 1",
        "t.ply 2",
    ]


def test_moved_ply_keeps_faces_and_comments(tmp_path: Path) -> None:
    by_plyfile(tmp_path / "a.ply", ">", False)
    cloud_files.move(tmp_path / "a.ply", tmp_path / "b.ply", [POSE])
    back = PlyData.read(tmp_path / "b.ply")
    assert (back.byte_order, back.comments, back["face"].count) == (">", ["by hand"], 1)
    np.testing.assert_array_equal(back["vertex"]["red"], COLOURS[:, 0])
    found = np.stack([back["vertex"][axis] for axis in "xyz"], 1)
    np.testing.assert_allclose(found, geometry.transform(POSE, POINTS), rtol=1e-14)


@pytest.mark.parametrize("suffix", [".ply", ".pcd", ".xyz", ".npy", ".bin"])
def test_moved_copies(tmp_path: Path, suffix: str) -> None:
    cloud_files.write(tmp_path / f"a{suffix}", Scan(NEAR, COLOURS, NORMALS, pose=POSE))
    cloud_files.move(tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", [POSE])
    back = cloud_files.read_scan(tmp_path / f"b{suffix}")
    np.testing.assert_allclose(back.points, geometry.transform(POSE, NEAR), rtol=1e-6 if suffix in (".bin", ".pcd") else 1e-14)
    assert back.pose is None
    if back.normals is not None:
        np.testing.assert_allclose(back.normals, NORMALS @ POSE[:3, :3].T, atol=1e-7 if suffix == ".pcd" else 1e-15)


# Promises that a file cannot keep.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "a.ply",
            b"ply\nformat binary_little_endian 1.0\nelement vertex 1000000000000\nproperty double x\nend_header\n" + bytes(99),
        ),
        ("b.ply", b"ply\nformat ascii 1.0\nelement vertex 1000000000000\nproperty list int int x\nend_header\n1 2 3\n"),
        ("c.ply", b"ply\nformat ascii 1.0\nelement vertex 1000000000000\nend_header\n"),
        ("d.ply", b"ply\nformat ascii 1.0\nelement vertex -5\nproperty float x\nend_header\n"),
        ("a.pcd", b"VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nWIDTH 1000000000000\nHEIGHT 1\nDATA binary\n"),
        (
            "b.pcd",
            b"VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nPOINTS 300000000\n"
            b"DATA binary_compressed\n\x08\0\0\0\0\xa4\x93\xd6AAAAAAAA",
        ),
        ("a.pts", b"1000000000000\n1 2 3\n"),
        ("a.txt", b"1 " * 100_000 + b"\n" * 100_000),
    ],
)
def test_promises_are_checked_against_the_size(tmp_path: Path, name: str, content: bytes) -> None:
    import tracemalloc

    (tmp_path / name).write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=name):
            cloud_files.read(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 3e7
    finally:
        tracemalloc.stop()


def test_npy_and_npz_promises(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)})
    (tmp_path / "a.npy").write_bytes(header.getvalue())
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("points.npy", header.getvalue())
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("points.npy", bytes(300_000_000))
    np.save(tmp_path / "pickle.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "pickle.npz", points=np.array([[{}]], object))
    for name in ("a.npy", "a.npz", "bomb.npz", "pickle.npy", "pickle.npz"):
        with pytest.raises(InputError, match=name):
            cloud_files.read(tmp_path / name)


def test_an_absent_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "laspy", None)
    (tmp_path / "a.las").write_bytes(b"LASF")
    with pytest.raises(InputError, match=r"a\.las: .*laspy.*pip install 'coframe\[las\]'"):
        cloud_files.read(tmp_path / "a.las")


def test_a_suffix_that_we_do_not_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.doc: expected a suffix of \.ply"):
        cloud_files.write(tmp_path / "a.doc", FULL)
    assert not list(tmp_path.iterdir())


def test_real_scans_are_read_as_plyfile_reads_them(data: Callable[[str], Path]) -> None:
    path = data("models/lucy_small.ply")
    expected = PlyData.read(path)["vertex"]
    np.testing.assert_array_equal(ply.read(path)["x"], expected["x"])
