# SPDX-License-Identifier: MIT
"""What surveyors bring: structured E57, PTX written by hand, poses inside files, lists of poses."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scenes import COLOURS, INTENSITY, NEAR, NORMALS, POSE, run_cli

from coframe import InputError, geometry
from coframe.data import simulate
from coframe.io import clouds as cloud_files
from coframe.io import poses as pose_files
from coframe.io import ptx
from coframe.io.scan import Scan

QUARTER = np.array([[0.0, -1, 0, 1.5], [1, 0, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]])
# Two columns and three rows, a ray without a return; then one column with colours.
BY_HAND = """2
3
1.5 2 3
0 1 0
-1 0 0
0 0 1
0 1 0 0
-1 0 0 0
0 0 1 0
1.5 2 3 1
0.25 1 2 0.5
0 0 0 0.5
3 4 5 0.75
6 7 8 0.1
9 1 2 0.2
3 5 7 1
1
4
0 0 0
1 0 0
0 1 0
0 0 1
1 0 0 0
0 1 0 0
0 0 1 0
0 0 0 1
1 1 1 0.5 10 20 30
2 1 1 0.5 10 20 31
1 2 1 0.5 10 20 32
1 1 2 0.5 10 20 33
"""


def structured_e57(path: Path) -> None:
    """A scan with row, column and return index, 16-bit colours and normals, and one without any
    points, as other programs write them.
    """
    libe57 = pytest.importorskip("pye57.libe57")
    image = libe57.ImageFile(str(path), "w")
    image.extensionsAdd("", libe57.E57_V1_0_URI)
    image.extensionsAdd("nor", "http://www.libe57.org/E57_NOR_surface_normals.txt")
    root = image.root()
    for key, value in (("formatName", "ASTM E57 3D Imaging Data File"), ("guid", "{1}")):
        root.set(key, libe57.StringNode(image, value))
    for key in ("versionMajor", "versionMinor"):
        root.set(key, libe57.IntegerNode(image, int(key == "versionMajor")))
    data3d = libe57.VectorNode(image, True)
    root.set("data3D", data3d)
    for empty in (False, True):
        node = libe57.StructureNode(image)
        data3d.append(node)
        prototype, buffers = libe57.StructureNode(image), libe57.VectorSourceDestBuffer()
        columns = {f"cartesian{a}": np.array(c) for a, c in zip("XYZ", NEAR.T, strict=True)}
        columns |= {f"nor:normal{a}": np.array(c) for a, c in zip("XYZ", NORMALS.T, strict=True)}
        whole = {name: np.arange(7, dtype="q") for name in ("rowIndex", "columnIndex")}
        whole["returnIndex"] = np.zeros(7, "q")
        whole |= {
            f"color{name}": np.array(c.tolist(), "q") * 257
            for name, c in zip(("Red", "Green", "Blue"), COLOURS.T, strict=True)
        }
        for name in columns:
            prototype.set(name, libe57.FloatNode(image, 0.0, libe57.E57_DOUBLE))
        for name in whole:
            prototype.set(name, libe57.IntegerNode(image, 0, 0, 65535))
        for name, column in (columns | whole).items():
            buffers.append(libe57.SourceDestBuffer(image, name, column, 7, True, True))
        points = libe57.CompressedVectorNode(image, prototype, libe57.VectorNode(image, True))
        node.set("points", points)
        writer = points.writer(buffers)
        if not empty:
            writer.write(7)
        writer.close()
    image.close()


def test_structured_e57(tmp_path: Path) -> None:
    structured_e57(tmp_path / "a.e57")
    (scan,) = cloud_files.read_all(tmp_path / "a.e57")
    np.testing.assert_array_equal(scan.points, NEAR)
    np.testing.assert_array_equal(scan.colours, COLOURS)
    np.testing.assert_array_equal(scan.normals, NORMALS)
    for name in ("rowIndex", "columnIndex"):
        np.testing.assert_array_equal(scan.columns[name], np.arange(7))
    assert [len(part) for part in cloud_files.blocks(tmp_path / "a.e57", 3)] == [3, 3, 1]
    cloud_files.write(tmp_path / "b.e57", scan)
    (back,) = cloud_files.read_all(tmp_path / "b.e57")
    assert set(back.columns) == {"rowIndex", "columnIndex", "returnIndex"}
    for name, column in scan.columns.items():
        np.testing.assert_array_equal(back.columns[name], column)
    np.testing.assert_array_equal(back.normals, NORMALS)


def e57_with_images(path: Path) -> None:
    """Two scans and an empty one between them, the second without a pose; images of the second
    scan, of none, and without a pose; a field that coframe does not know.
    """
    libe57 = pytest.importorskip("pye57.libe57")
    image = libe57.ImageFile(str(path), "w")
    image.extensionsAdd("", libe57.E57_V1_0_URI)
    image.extensionsAdd("acme", "http://acme.example/e57")
    root = image.root()
    for key, value in (("formatName", "ASTM E57 3D Imaging Data File"), ("guid", "{1}")):
        root.set(key, libe57.StringNode(image, value))
    for key in ("versionMajor", "versionMinor"):
        root.set(key, libe57.IntegerNode(image, int(key == "versionMajor")))
    root.set("acme:operator", libe57.StringNode(image, "Jürgen <A&B>"))
    vectors = {key: libe57.VectorNode(image, True) for key in ("data3D", "images2D")}
    for key, vector in vectors.items():
        root.set(key, vector)

    def place(node: object, T: np.ndarray) -> None:
        pose, shift = libe57.StructureNode(image), libe57.StructureNode(image)
        for name, number in zip("xyz", T[:3, 3].tolist(), strict=True):
            shift.set(name, libe57.FloatNode(image, number))
        pose.set("translation", shift)
        node.set("pose", pose)

    for number, name in enumerate(("first", "empty", "second")):
        node = libe57.StructureNode(image)
        vectors["data3D"].append(node)
        node.set("guid", libe57.StringNode(image, f"{{scan {number}}}"))
        node.set("name", libe57.StringNode(image, name))
        node.set("temperature", libe57.FloatNode(image, 21.5))
        if number == 0:
            place(node, geometry.pose(np.eye(3), np.array([1.0, 2, 3])))
        prototype, buffers = libe57.StructureNode(image), libe57.VectorSourceDestBuffer()
        columns = {f"cartesian{a}": np.array(c) for a, c in zip("XYZ", NEAR.T, strict=True)}
        columns["acme:echo"] = np.arange(7.0)
        for key, column in columns.items():
            prototype.set(key, libe57.FloatNode(image, 0.0, libe57.E57_DOUBLE))
            buffers.append(libe57.SourceDestBuffer(image, key, column, 7, True, True))
        points = libe57.CompressedVectorNode(image, prototype, libe57.VectorNode(image, True))
        node.set("points", points)
        writer = points.writer(buffers)
        if name != "empty":
            writer.write(7)
        writer.close()
    for number, scan in enumerate(("{scan 2}", "{scan 2}", None)):
        node = libe57.StructureNode(image)
        vectors["images2D"].append(node)
        if scan:
            node.set("associatedData3DGuid", libe57.StringNode(image, scan))
        if number != 1:
            place(node, geometry.pose(np.eye(3), np.array([0.0, 0, 5])))
        view = libe57.StructureNode(image)
        node.set("visualReferenceRepresentation", view)
        blob = libe57.BlobNode(image, 3000)
        view.set("jpegImage", blob)
        blob.write(np.full(3000, number, np.uint8), 0, 3000)
    image.close()


def test_e57_copies_change_nothing_but_poses(tmp_path: Path) -> None:
    e57_with_images(tmp_path / "a.e57")
    libe57 = pytest.importorskip("pye57.libe57")
    before = (tmp_path / "a.e57").read_bytes()
    far = geometry.pose(QUARTER[:3, :3], np.array([512345.678, 5403210.987, 431.2]))
    cloud_files.move(tmp_path / "a.e57", tmp_path / "b.e57", [QUARTER, far])
    first, second = cloud_files.read_all(tmp_path / "b.e57")
    for scan, pose in ((first, QUARTER), (second, far)):
        np.testing.assert_array_equal(scan.points, NEAR)
        np.testing.assert_allclose(scan.pose, pose, atol=1e-14)
    after = (tmp_path / "b.e57").read_bytes()
    assert after[1024 : len(before)] == before[1024:]
    image = libe57.ImageFile(str(tmp_path / "b.e57"), "r")  # all checksums are compared
    root = image.root()
    assert root["acme:operator"].value() == "Jürgen <A&B>"
    assert root["data3D"][2]["temperature"].value() == 21.5
    prototype = libe57.StructureNode(root["data3D"][2]["points"].prototype())
    assert prototype.isDefined("acme:echo")
    places = []
    for number in range(3):
        node = root["images2D"][number]
        blob = node["visualReferenceRepresentation"]["jpegImage"]
        content = np.zeros(3000, np.uint8)
        blob.read(content, 0, 3000)
        assert (content == number).all()
        shift = node["pose"]["translation"]
        places.append([shift[key].value() for key in "xyz"])
    image.close()
    np.testing.assert_allclose(places, [far[:3, 3] + [0, 0, 5], far[:3, 3], [0, 0, 5]], atol=1e-9)

    cloud_files.move(tmp_path / "b.e57", tmp_path / "c.e57", [np.eye(4), np.eye(4)])
    for scan in cloud_files.read_all(tmp_path / "c.e57"):
        np.testing.assert_array_equal(scan.pose, np.eye(4))
    with pytest.raises(InputError, match="2 scans with points, not 1"):
        cloud_files.move(tmp_path / "a.e57", tmp_path / "d.e57", [np.eye(4)])
    for length in (1024, 2048, len(before) - 1024):
        (tmp_path / "short.e57").write_bytes(before[:length])
        with pytest.raises(InputError, match=r"short\.e57"):
            cloud_files.move(tmp_path / "short.e57", tmp_path / "d.e57", [QUARTER, far])
    assert not (tmp_path / "d.e57").exists()


SAMPLES = Path(__file__).parents[2] / "shared/data/e57_samples"
VALID = {
    "libe57_ColourRepresentation": 153,
    "libe57_ColouredCubeFloat": 7680,
    "libe57_bunnyDouble": 30571,
    "pye57_pumpAVisualReferenceImage": 155201,
    "pye57_testWithNormals": 2,
}


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="needs e57_samples")
def test_samples_of_other_programs(tmp_path: Path) -> None:
    """All that hold points are read, the others refused in one line."""
    pytest.importorskip("pye57")
    for path in sorted(SAMPLES.glob("*.e57")):
        if path.stem in VALID:
            scans = cloud_files.read_all(path)
            assert [len(scan) for scan in scans] == [VALID[path.stem]]
            for name, column in scans[0].columns.items():
                assert 0 <= column.min() <= column.max() < 2000, name
            cloud_files.move(path, tmp_path / path.name, [QUARTER])
            (copy,) = cloud_files.read_all(tmp_path / path.name)
            np.testing.assert_array_equal(copy.points, scans[0].points)
            np.testing.assert_allclose(copy.pose, QUARTER, atol=1e-15)
        else:
            with pytest.raises(InputError, match=r"no points") as error:
                cloud_files.read_all(path)
            assert "\n" not in str(error.value)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n \n"])
def test_ptx_by_hand(tmp_path: Path, ending: str, last: str) -> None:
    path = tmp_path / "site.ptx"
    path.write_bytes((BY_HAND.rstrip() + last).replace("\n", ending).encode())
    first, second = cloud_files.read_all(path)
    np.testing.assert_array_equal(
        first.points, [[0.25, 1, 2], [3, 4, 5], [6, 7, 8], [9, 1, 2], [3, 5, 7]]
    )
    np.testing.assert_array_equal(first.intensity, [0.5, 0.75, 0.1, 0.2, 1])
    np.testing.assert_array_equal(first.pose, QUARTER)
    assert first.colours is None
    np.testing.assert_array_equal(second.pose, np.eye(4))
    np.testing.assert_array_equal(second.colours[:, 2], [30, 31, 32, 33])
    opened, _ = cloud_files.open_all([path])
    assert [scan.name for scan in opened] == ["site/1", "site/2"]
    assert cloud_files.names_of([path]) == ["site/1", "site/2"]
    for rows in (1, 2, 100):
        parts = list(cloud_files.blocks(path, rows))
        assert max(map(len, parts)) <= rows
        np.testing.assert_array_equal(
            np.concatenate([part.points for part in parts]),
            np.concatenate([first.points, second.points]),
        )
    np.testing.assert_array_equal(pose_files.read(path)["1"], QUARTER)


def test_ptx_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "site.ptx"
    path.write_text(BY_HAND)
    whole = cloud_files.read_all(path)
    for size in (1, 7, 64):
        monkeypatch.setattr(ptx, "PIECE", size)
        for scan, other in zip(cloud_files.read_all(path), whole, strict=True):
            np.testing.assert_array_equal(scan.points, other.points)
        assert list(ptx.read_poses(path)) == ["1", "2"]


def test_ptx_copies_keep_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "site.ptx"
    path.write_text(BY_HAND)
    cloud_files.move(path, tmp_path / "moved.ptx", [POSE, QUARTER])
    lines = (tmp_path / "moved.ptx").read_text().splitlines()
    assert lines[:2] == ["2", "3"]
    assert lines[10:16] == BY_HAND.splitlines()[10:16]
    first, second = cloud_files.read_all(tmp_path / "moved.ptx")
    np.testing.assert_array_equal(first.pose, POSE)
    np.testing.assert_array_equal(second.pose, QUARTER)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (BY_HAND.rstrip()[:-20], r"expected \d numbers|ends 1 points"),
        (BY_HAND.replace("-1 0 0 0", "-2 0 0 0"), r"not a rotation"),
        (BY_HAND.replace("3 5 7 1\n", ""), r"expected 4 numbers"),
        ("2\n3\n1 2 3\n", r"ends in the head"),
        ("x y z\n1 2 3\n", r"columns and rows"),
        ("1\n2\n" + "0 0 0\n" * 8 + "1 2 3\n", r"pose of a scan"),
    ],
)
def test_damaged_ptx(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "a.ptx"
    path.write_text(content)
    with pytest.raises(InputError, match=reason) as error:
        cloud_files.read_all(path)
    assert "\n" not in str(error.value)


def test_poses_inside(tmp_path: Path) -> None:
    pytest.importorskip("pye57")
    (tmp_path / "site.ptx").write_text(BY_HAND)
    cloud_files.write(tmp_path / "one.e57", Scan(NEAR, pose=POSE, name="station"))
    cloud_files.write(tmp_path / "none.ply", Scan(NEAR))
    cloud_files.write(tmp_path / "view.pcd", Scan(NEAR, pose=QUARTER))
    paths = cloud_files.expand([tmp_path])
    found = cloud_files.poses_inside(paths)
    assert set(found) == {"site/1", "one", "view"}
    np.testing.assert_allclose(found["one"], POSE, atol=1e-14)
    assert set(found) <= set(cloud_files.names_of(paths))


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_vtk_points(tmp_path: Path, binary: bool, kind: str) -> None:
    head = f"# vtk DataFile Version 3.0\na title\n{'BINARY' if binary else 'ASCII'}\n"
    head += f"DATASET POLYDATA\nPOINTS 7 {kind}\n"
    values = NEAR.astype(">f4" if kind == "float" else ">f8")
    body = values.tobytes() if binary else " ".join(map(str, values.ravel().tolist())).encode()
    path = tmp_path / "a.vtk"
    path.write_bytes(head.encode() + body + b"\nVERTICES 1 2\n1 0\n")
    np.testing.assert_array_equal(cloud_files.read(path), values.astype(float))
    path.write_bytes(head.encode() + body[: len(body) // 2])
    with pytest.raises(InputError, match=r"promises 7 points"):
        cloud_files.read(path)


def test_redwood_log_and_plain_json(tmp_path: Path) -> None:
    matrix = os.linesep.join(" ".join(map(str, row)) for row in QUARTER.tolist())
    log = tmp_path / "a.log"
    log.write_text(f"0 0 1\n{matrix}\n1 1 2\n{matrix}\n")
    found = pose_files.read(log)
    assert list(found) == ["0", "1"]
    np.testing.assert_array_equal(found["1"], QUARTER)
    np.testing.assert_array_equal(pose_files.read_for(log, ["a", "b"])[0], QUARTER)
    log.write_text(f"0 1 60\n{matrix}\n")  # transforms of pairs
    with pytest.raises(InputError, match=r"pairs"):
        pose_files.read(log)
    plain = tmp_path / "a.json"
    plain.write_text(json.dumps({"a": QUARTER.tolist(), "b": np.eye(4).tolist()}))
    np.testing.assert_array_equal(pose_files.read_for(plain, ["b", "a"])[1], QUARTER)
    for wrong in ({"a": [1, 2]}, {"a": "text"}, [QUARTER.tolist()], {}):
        plain.write_text(json.dumps(wrong))
        with pytest.raises(InputError, match=r"a\.json"):
            pose_files.read(plain)


def test_ptx_keeps_what_a_scan_has(tmp_path: Path) -> None:
    far = NEAR + np.array([4e6, 5e5, 100])
    scans = [Scan(far, COLOURS, None, INTENSITY, pose=POSE), Scan(far, pose=None)]
    ptx.write_scans(tmp_path / "a.ptx", scans)
    first, second = ptx.read_scans(tmp_path / "a.ptx")
    np.testing.assert_array_equal(first.points, far)
    np.testing.assert_array_equal(first.colours, COLOURS)
    np.testing.assert_array_equal(first.intensity, INTENSITY)
    np.testing.assert_allclose(first.pose, POSE, atol=1e-15)
    assert geometry.is_rigid(second.pose)


def test_poses_inside_on_the_command_line(tmp_path: Path) -> None:
    scene = simulate.scene(3, 300, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    for j, (cloud, pose) in enumerate(zip(scene.clouds, scene.poses, strict=True)):
        cloud_files.write(tmp_path / f"s{j}.ptx", Scan(cloud, pose=pose))
    arguments = ["register", "s0.ptx", "s1.ptx", "s2.ptx", "-o", "out", "--no-report"]
    done = run_cli(*arguments, "--start", "identity", cwd=tmp_path)
    assert "3 scans have poses inside the files, not used; to start from them" in done.stderr
    assert "add --poses inside" in done.stderr
    done = run_cli(*arguments, "--poses", "inside", "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    start = np.array(json.loads((tmp_path / "out/run.json").read_text())["start"])
    np.testing.assert_allclose(start, scene.poses, atol=1e-14)
    for path in tmp_path.glob("*.ptx"):
        cloud_files.write(path, Scan(cloud_files.read(path)))
    done = run_cli(*arguments, "--poses", "inside", cwd=tmp_path)
    assert done.returncode == 2
    assert "found none" in done.stderr
