# SPDX-License-Identifier: MIT
"""Results for other programs, made and exported as a user does it."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plyfile import PlyData
from scenes import run_cli

import coframe
from coframe import InputError, geometry
from coframe.data import simulate
from coframe.io import clouds as cloud_files
from coframe.io import poses as pose_files
from coframe.io.scan import Scan
from coframe.result import export

EVIL = "<img src=x onerror=alert(1)>.ply"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of three scans in three formats, two of them with colours."""
    folder = tmp_path_factory.mktemp("scans")
    scene = simulate.scene(3, 300, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    for j, name in enumerate(("scan1.ply", "scan2.pcd", "scan10.xyz")):
        N = len(scene.clouds[j])
        colours = np.random.default_rng(j).integers(0, 256, (N, 3), dtype=np.uint8)
        cloud_files.write(
            folder / name,
            Scan(scene.clouds[j], colours if j < 2 else None, intensity=np.arange(N) / N),
        )
    (folder / "notes.txt").write_text("not a cloud\n")
    done = run_cli("register", ".", "-o", "out", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> coframe.Registration:
    return coframe.load(folder / "out")


def test_merged_has_clouds_outliers_and_colours(folder: Path, result: coframe.Registration) -> None:
    vertices = PlyData.read(folder / "out/merged.ply")["vertex"]
    original = cloud_files.read_scan(folder / "scan2.pcd")
    second = vertices["cloud"] == 1
    np.testing.assert_array_equal(vertices["red"][second], original.colours[:, 0])
    np.testing.assert_allclose(vertices["intensity"][second], original.intensity, rtol=1e-6)
    assert (vertices["green"][vertices["cloud"] == 2] == 128).all()
    assert {"outlier_probability", "component"} <= set(vertices.data.dtype.names)
    np.testing.assert_array_equal(result.attributes[1]["blue"], original.colours[:, 2])
    assert result.files == tuple(
        str(folder / name) for name in ("scan1.ply", "scan2.pcd", "scan10.xyz")
    )
    assert result.names == ("scan1", "scan2", "scan10")


@pytest.mark.parametrize("form", export.POSES)
def test_poses_go_out_and_come_back(
    folder: Path, result: coframe.Registration, tmp_path: Path, form: str
) -> None:
    done = run_cli("export", "out", "--to", form, "-o", str(tmp_path / "p"), cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path / 'p'}\n", "")
    np.testing.assert_allclose(
        pose_files.read_for(tmp_path / "p", result.names), result.poses, atol=1e-15
    )


def test_meshlab_finds_the_files(folder: Path, result: coframe.Registration) -> None:
    (path,) = export.export(result, "mlp", folder / "out")
    assert path == folder / "out/poses.mlp"
    assert 'filename="../scan1.ply"' in path.read_text()


@pytest.mark.parametrize("form", [*export.MERGED, "e57"])
@pytest.mark.parametrize("clean", [False, True])
def test_points_in_the_common_frame(
    result: coframe.Registration, tmp_path: Path, form: str, clean: bool
) -> None:
    needed = {"las": "laspy", "laz": "laspy", "e57": "pye57"}.get(form)
    if needed:
        pytest.importorskip(needed)
    (path,) = export.export(result, form, tmp_path, clean=clean)
    scans = cloud_files.read_all(path)
    found = [s.points if s.pose is None else geometry.transform(s.pose, s.points) for s in scans]
    expected = np.concatenate(result.cleaned()) if clean else result.merged()
    np.testing.assert_allclose(
        np.concatenate(found),
        expected,
        atol={"las": 1e-8, "laz": 1e-8, "pcd": 1e-6}.get(form, 1e-14),
    )
    stem = "cleaned" if clean else "points" if form == "ply" else "merged"
    assert path.name == ("scans.e57" if form == "e57" else f"{stem}.{form}")


def test_aligned_copies_in_their_own_formats(
    folder: Path, result: coframe.Registration, tmp_path: Path
) -> None:
    paths = export.export(result, "aligned", folder, tmp_path / "aligned")
    assert [path.name for path in paths] == ["scan1.ply", "scan2.pcd", "scan10.xyz"]
    for path, cloud in zip(paths, result.aligned(), strict=True):
        np.testing.assert_allclose(
            cloud_files.read(path), cloud, atol=1e-6 if path.suffix == ".pcd" else 1e-14
        )
    with pytest.raises(InputError, match="is an input and would be replaced"):
        export.export(result, "aligned", folder, folder)


def test_names_do_not_leave_the_folder(result: coframe.Registration, tmp_path: Path) -> None:
    named = replace(result, names=("../../a", "/b", EVIL), files=())
    export.export(named, "matrix", tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out/matrices")) == [
        "a.txt",
        "b.txt",
        "img src=x onerror=alert(1)_.ply.txt",
    ]
    assert os.listdir(tmp_path) == ["out"]
    named.save(tmp_path / "saved")
    assert coframe.load(tmp_path / "saved").names == named.names
    assert sorted(os.listdir(tmp_path)) == ["out", "saved"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["out", "--to", "doc"], "expected one of json, matrix"),
        (["out", "--to", "tum", "--clean"], "expected a format with points"),
        (["out", "--to", "las", "-o", "a.ply"], "expected a name that ends in .las"),
        (["missing", "--to", "tum"], "expected a folder written by coframe"),
    ],
)
def test_bad_exports_are_one_line_and_2(folder: Path, arguments: list[str], words: str) -> None:
    done = run_cli("export", *arguments, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr


def test_aligned_needs_the_inputs(
    folder: Path, result: coframe.Registration, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="does not know its files"):
        export.export(replace(result, files=()), "aligned", tmp_path)
    gone = replace(result, files=tuple(f"{file}.gone" for file in result.files))
    with pytest.raises(InputError, match="found nothing"):
        export.export(gone, "aligned", tmp_path)


def test_damaged_results_are_named(result: coframe.Registration, tmp_path: Path) -> None:
    saved = result.save(tmp_path / "out")
    for name in ("state.npz", "merged.ply"):
        whole = (saved / name).read_bytes()
        for content in (b"", b"garbage", whole[: len(whole) // 2]):
            (saved / name).write_bytes(content)
            with pytest.raises(InputError, match=f"{name}: has changed since coframe wrote it"):
                coframe.load(saved)
        (saved / name).write_bytes(whole)
    (saved / "manifest.json").unlink()  # as of release 0.1
    for name in ("state.npz", "merged.ply"):
        whole = (saved / name).read_bytes()
        for content in (b"", b"garbage", whole[: len(whole) // 2]):
            (saved / name).write_bytes(content)
            with pytest.raises(InputError, match="found damaged files"):
                coframe.load(saved)
        (saved / name).write_bytes(whole)


def test_doctor_finds_itself_well() -> None:
    done = run_cli("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert "self-test: passed" in done.stdout
    assert f"coframe {coframe.__version__}" in done.stdout


def test_ptx_has_no_colours_where_a_scan_has_none(
    folder: Path, result: coframe.Registration, tmp_path: Path
) -> None:
    """Beside coloured scans, merged.ply has it grey."""
    assert "red" in result.attributes[0]
    assert "red" not in result.attributes[2]
    (path,) = export.export(result, "ptx", tmp_path)
    assert [scan.colours is None for scan in cloud_files.read_all(path)] == [False, False, True]
    done = run_cli("export", "out", "--to", "ptx", "-o", str(tmp_path / "a.ptx"), cwd=folder)
    assert done.stdout == f"{tmp_path / 'a.ptx'}\n"
    assert "not carried over" in done.stderr
    assert "--to aligned keeps all" in done.stderr
