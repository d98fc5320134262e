# SPDX-License-Identifier: MIT
"""Poses in files: as other programs write them, and as we do."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coframe import InputError, geometry
from coframe.io import poses as pose_files

RNG = np.random.default_rng(0)
POSES = np.array(
    [
        geometry.pose(geometry.random_rotation(RNG, 3), RNG.normal(size=3) * [4e6, 1, 1e-3])
        for _ in range(3)
    ]
)
NAMES = ["bun000", "bun045", "top <2> & ü"]
QUARTER = np.array([[0.0, -1, 0, 1.5], [1, 0, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]])


@pytest.mark.parametrize("form", pose_files.FORMATS)
def test_what_we_write_we_read(tmp_path: Path, form: str) -> None:
    if form == "e57":
        pytest.importorskip("pye57")
    names = [name.replace(" ", "_") for name in NAMES] if form == "conf" else NAMES
    path = pose_files.export(tmp_path / f"poses{pose_files.FORMATS[form]}", form, names, POSES)
    back = pose_files.read(path)
    expected = {
        "kitti": ["0", "1", "2"],
        "log": ["0", "1", "2"],
        "ptx": ["1", "2", "3"],
        "matrix": ["bun000", "bun045", "top _2_ & ü"],
    }.get(form, names)
    assert list(back) == expected
    exact = form in ("json", "matrix", "aln", "mlp", "kitti", "open3d", "log")
    np.testing.assert_allclose(
        np.array(list(back.values())), POSES, rtol=0, atol=0 if exact else 1e-15
    )


@pytest.mark.parametrize(
    "form", [form for form in pose_files.FORMATS if form not in ("matrix", "e57", "json")]
)
def test_poses_of_the_plane_become_poses_of_space(tmp_path: Path, form: str) -> None:
    flat = geometry.pose(geometry.exp_rotation(np.array([0.3])), np.array([1.0, 2.0]))
    back = next(
        iter(pose_files.read(pose_files.export(tmp_path / "p", form, ["a"], flat[None])).values())
    )
    np.testing.assert_allclose(back[:2, :2], flat[:2, :2], atol=1e-15)
    np.testing.assert_allclose(back[2], [0, 0, 1, 0])


MESHLAB_PROJECT = """<!DOCTYPE MeshLabDocument>
<MeshLabProject>
 <MeshGroup>
  <MLMesh idInFile="-1" visible="1" filename="scan0.ply" label="scan0">
   <MLMatrix44>
0 -1 0 1.5 1 0 0 2 0 0 1 3 0 0 0 1
</MLMatrix44>
  </MLMesh>
 </MeshGroup>
 <RasterGroup/>
</MeshLabProject>
"""
MATRIX = "0 -1 0 1.5\n1 0 0 2\n0 0 1 3\n0 0 0 1\n"


@pytest.mark.parametrize(
    ("file", "content", "name"),
    [
        ("a.mlp", MESHLAB_PROJECT, "scan0"),
        ("a.aln", f"1\nscan0.ply\n#\n{MATRIX}0\n", "scan0.ply"),
        ("cloudcompare.txt", MATRIX, "cloudcompare"),
        ("one_row.txt", MATRIX.replace("\n", " "), "one_row"),
        ("kitti.txt", "0 -1 0 1.5 1 0 0 2 0 0 1 3\n", "0"),
        (
            "tum.txt",
            "# stamp tx ty tz\n12.50 1.5 2 3 0 0 0.70710678118654752 0.70710678118654752\n",
            "12.50",
        ),
        (
            "a.conf",
            (
                "camera 0 0 0 0 0 0 1\nmesh old.ply\nbmesh a.ply 1.5 2 3 0 0 -0.70710678118654752"
                " 0.70710678118654752\n"
            ),
            "a.ply",
        ),
        (
            "graph.json",
            (
                '{"class_name": "PoseGraph", "edges": null, "nodes": [{"class_name":'
                ' "PoseGraphNode", "pose": [0, 1, 0, 0, -1, 0, 0, 0, 0, 0, 1, 0, 1.5, 2, 3, 1]}]}'
            ),
            "0",
        ),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_files_of_other_programs(
    tmp_path: Path, file: str, content: str, name: str, ending: str
) -> None:
    path = tmp_path / file
    path.write_text(content, newline=ending)
    back = pose_files.read(path)
    assert list(back) == [name]
    np.testing.assert_allclose(back[name], QUARTER, atol=1e-15)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "1 2 3\n",
        "1 0 0 0\n0 1 0 0\n0 0 1 0\n",
        "2 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n",  # not rigid
        "-1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n",  # a mirror
        "1 0 0 nan\n0 1 0 0\n0 0 1 0\n0 0 0 1\n",
        "1 0 0 0 0 0 0 0\n",  # a quaternion of zeros
        "3\na.ply\n#\n1 0 0 0\n",
        "<MeshLabProject><MLMesh/></MeshLabProject>",
        '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        "bmesh a.ply 1 2 3\n",
        '{"class_name": "PoseGraph", "nodes": [{"pose": [1]}]}',
        "[" * 100_000,
        "\0\1",
    ],
)
def test_a_bad_pose_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "p.dat").write_text(content)
    with pytest.raises(InputError, match=r"p\.dat: expected poses as coframe-poses/1"):
        pose_files.read(tmp_path / "p.dat")


def test_poses_are_found_for_clouds(tmp_path: Path) -> None:
    pose_files.export(tmp_path / "a.aln", "aln", ["x/a.ply", "x/b.ply", "c d.ply"], POSES)
    np.testing.assert_array_equal(
        pose_files.read_for(tmp_path / "a.aln", ["c d", "a", "b.pcd"]), POSES[[2, 0, 1]]
    )
    with pytest.raises(
        InputError, match=r"a\.aln: expected a pose for e, found poses for x/a\.ply"
    ):
        pose_files.read_for(tmp_path / "a.aln", ["a", "e"])
    pose_files.export(tmp_path / "k.txt", "kitti", ["any"] * 3, POSES)
    np.testing.assert_array_equal(pose_files.read_for(tmp_path / "k.txt", ["u", "v", "w"]), POSES)
    with pytest.raises(InputError, match="expected a pose for u"):
        pose_files.read_for(tmp_path / "k.txt", ["u", "v"])


def test_names_cannot_break_a_file_or_leave_a_folder(tmp_path: Path) -> None:
    evil = ["../../up", "/etc/passwd", "a\nb"]
    for form, names in (("aln", evil), ("mlp", evil), ("tum", evil), ("conf", ["a b", "c", "d"])):
        with pytest.raises(InputError, match="names: expected names"):
            pose_files.export(tmp_path / "p", form, names, POSES)
    folder = pose_files.export(tmp_path / "m", "matrix", [*evil[:2], "con"], POSES)
    assert {path.name for path in folder.iterdir()} == {"up.txt", "etc_passwd.txt", "_con.txt"}
    assert {path.name for path in tmp_path.iterdir()} == {"m"}


def test_stanford_convention(data: Callable[[str], Path]) -> None:
    """common = R(q)^T p + t, measured on the bunny: the scans meet."""
    from scipy.spatial import cKDTree

    from coframe.io import clouds as cloud_files

    conf = data("stanford/bunny") / "bun.conf"
    conf = conf if conf.exists() else next(data("stanford/bunny").rglob("bun.conf"))
    poses = pose_files.read(conf)
    assert len(poses) == 10
    first, second = (
        geometry.transform(poses[name], cloud_files.read(conf.parent / name))
        for name in list(poses)[:2]
    )
    assert np.median(cKDTree(first).query(second[::50])[0]) < 0.001


def test_open3d_has_columns_first(tmp_path: Path) -> None:
    pose_files.export(tmp_path / "g.json", "open3d", ["a"], QUARTER[None])
    node = json.loads((tmp_path / "g.json").read_text())["nodes"][0]
    assert node["pose"] == [0, 1, 0, 0, -1, 0, 0, 0, 0, 0, 1, 0, 1.5, 2, 3, 1]
