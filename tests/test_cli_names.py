# SPDX-License-Identifier: MIT
"""Which clouds are meant on the command line: names, excluded clouds, poses without names."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from coframe import InputError, geometry
from coframe.cli.chosen import Chosen
from coframe.cli.commands import app
from coframe.data import simulate
from coframe.io import e57, naming, ply, ptx
from coframe.io import poses as pose_files
from coframe.io.scan import Scan

FEW = ["--components", "30", "--no-report", "--threads", "1"]


@pytest.fixture(scope="module")
def scene() -> simulate.SimulatedScene:
    return simulate.scene(3, 300, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))


@pytest.fixture
def folder(tmp_path: Path, scene: simulate.SimulatedScene, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three clouds, two of which have files of the same name; and poses with and without names."""
    monkeypatch.chdir(tmp_path)
    for name, cloud in zip(("d1/scan", "d2/scan", "other"), scene.clouds, strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        ply.write(tmp_path / f"{name}.ply", cloud)
    pose_files.write("start.json", ["d1/scan", "d2/scan", "other"], scene.poses)
    return tmp_path


def register(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["register", *arguments, *FEW])
    return done.exit_code, " ".join(done.output.split())


ALL = ["d1/scan.ply", "d2/scan.ply", "other.ply"]


@pytest.mark.parametrize("option", ["fixed", "reference", "exclude", "level", "rematch"])
def test_a_name_of_two_clouds_is_refused(folder: Path, option: str) -> None:
    code, said = register(*ALL, "-o", "no", "--poses", "start.json", f"--{option}", "scan")
    assert code == 2
    assert f"{option}: expected the name of one cloud, found 'scan'" in said
    assert "d1/scan, d2/scan" in said
    assert not (folder / "no").exists()


def test_a_name_is_not_cut_at_a_dot() -> None:
    names = ["scan.001", "scan.002", "scan.003"]
    assert naming.find(names, "scan.002", "fixed") == 1
    assert naming.find(names, "scans/scan.002.ply", "fixed") == 1
    for wanted in ("scan.009", "scan.004.ply", "scan", "", "/"):
        with pytest.raises(InputError, match="expected the name of a cloud"):
            naming.find(names, wanted, "reference")


def test_folders_in_front_must_agree() -> None:
    names = ["good/a", "good/b"]
    assert naming.find(names, "b", "fixed") == naming.find(names, "x/good/b.e57", "fixed") == 1
    with pytest.raises(InputError, match="did you mean good/b"):
        naming.find(names, "bad/b", "fixed")
    assert naming.find(["a"], "d3/a.ply", "fixed") == 0


def test_excluded_clouds_keep_the_names_of_the_others(
    folder: Path, scene: simulate.SimulatedScene
) -> None:
    """What files know of excluded clouds is left out, and said."""
    known = {
        name: {"pose": pose.tolist(), "turn": 0.1, "shift": 0.01}
        for name, pose in zip(("d1/scan", "d2/scan"), scene.poses, strict=False)
    }
    (folder / "prior.json").write_text(json.dumps(known))
    arguments = [*ALL, "-o", "out", "--poses", "start.json", "--prior", "prior.json"]
    code, said = register(*arguments, "--exclude", "d2/scan", "--fixed", "d1/scan.ply")
    assert code in (0, 1), said
    assert "prior.json: left out what it says of d2/scan" in said
    found = pose_files.read("out/poses.json")
    assert sorted(found) == ["d1/scan", "other"]
    np.testing.assert_allclose(found["d1/scan"], scene.poses[0], atol=1e-12)


def test_targets_of_excluded_clouds_are_left_out(folder: Path) -> None:
    rows = [f"{scan},T{k},{k},{k % 2},1,0.1" for scan in ALL for k in range(4)]
    (folder / "targets.csv").write_text("scan,name,x,y,z,sd\n" + "\n".join(rows) + "\n")
    chosen = Chosen.of([Path(name) for name in ALL], ["d2/scan"])
    seen = chosen.targets(folder / "targets.csv", None)
    assert {target.scan for target in seen} == {"d1/scan", "other"}
    code, said = register(*ALL, "-o", "out", "--targets", "targets.csv", "--exclude", "d2/scan")
    assert code in (0, 1), said
    assert "targets.csv: left out what it says of d2/scan" in said


@pytest.mark.parametrize("option", ["fixed", "level", "rematch", "reference"])
def test_a_cloud_is_not_named_and_excluded(folder: Path, option: str) -> None:
    arguments = [*ALL, "-o", "no", "--poses", "start.json", "--exclude", "other"]
    code, said = register(*arguments, f"--{option}", "other.ply")
    assert code == 2
    assert f"{option}: expected a cloud that takes part, found other, which --exclude" in said


def numbered(path: Path, poses: np.ndarray) -> None:
    pose_files.export(path, "log", [str(j) for j in range(len(poses))], poses)


def test_poses_without_names_are_in_the_order_given(
    folder: Path, scene: simulate.SimulatedScene, capsys: pytest.CaptureFixture[str]
) -> None:
    numbered(folder / "ord.log", scene.poses[[2, 1, 0]])
    files = [Path(name) for name in ("other.ply", "d2/scan.ply", "d1/scan.ply")]
    chosen = Chosen.of(files)
    np.testing.assert_array_equal(chosen.poses(Path("ord.log")), scene.poses[[2, 0, 1]])
    assert "in the order given: other, d2/scan, d1/scan" in capsys.readouterr().err
    fewer = Chosen.of(files, ["d2/scan"])
    assert fewer.names == ["other", "d1/scan"]
    np.testing.assert_array_equal(fewer.poses(Path("ord.log")), scene.poses[[2, 0]])


def test_a_shell_lists_scan10_before_scan2(tmp_path: Path, scene: simulate.SimulatedScene) -> None:
    for number in (1, 2, 10):
        ply.write(tmp_path / f"scan{number}.ply", scene.clouds[0])
    numbered(tmp_path / "p.log", scene.poses)
    chosen = Chosen.of([tmp_path / f"scan{number}.ply" for number in (1, 10, 2)])
    assert chosen.names == ["scan1", "scan2", "scan10"]
    np.testing.assert_array_equal(chosen.poses(tmp_path / "p.log"), scene.poses)


def test_poses_of_all_clouds_serve_when_one_is_matched_anew(
    folder: Path, scene: simulate.SimulatedScene
) -> None:
    numbered(folder / "p.log", scene.poses)
    chosen = Chosen.of([Path(name) for name in ALL])
    numbers = [chosen.names.index(name) for name in ("d1/scan", "other")]
    found = chosen.poses(Path("p.log"), unknown=[chosen.names.index("d2/scan")])
    np.testing.assert_array_equal(found[numbers], scene.poses[[0, 2]])


def test_one_pose_does_not_serve_two_clouds(folder: Path) -> None:
    pose_files.write("p.json", ["scan", "other"], np.array([np.eye(4)] * 2))
    code, said = register(*ALL, "-o", "no", "--poses", "p.json")
    assert code == 2
    assert "found one, scan, for d1/scan and d2/scan" in said


@pytest.mark.parametrize("kind", ["e57", "ptx"])
def test_one_scan_of_a_file_is_left_out(
    tmp_path: Path,
    scene: simulate.SimulatedScene,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    scans = [
        Scan(cloud, pose=pose, name=f"s{j}")
        for j, (cloud, pose) in enumerate(zip(scene.clouds, scene.poses, strict=True))
    ]
    (e57 if kind == "e57" else ptx).write_scans(tmp_path / f"good.{kind}", scans)
    names = Chosen.of([Path(f"good.{kind}")]).names
    arguments = [f"good.{kind}", "-o", "out", "--exclude", names[1], "--poses", "inside"]
    for more in ([], ["--memory", "2GB"]):
        code, said = register(*arguments, *more)
        assert code in (0, 1), said
        assert list(pose_files.read("out/poses.json")) == [names[0], names[2]]
    done = CliRunner().invoke(app, ["export", "out", "--to", "aligned", "-o", "copies"])
    assert done.exit_code == 2
    assert "expected poses of all 3 scans" in " ".join(done.output.split())


def test_a_fixed_scan_has_the_pose_inside_its_file(
    tmp_path: Path, scene: simulate.SimulatedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    moved = geometry.exp(np.array([0.3, 0, 0, 1.0, 2.0, 3.0])) @ scene.poses
    for j in range(3):
        ptx.write_scans(tmp_path / f"s{j}.ptx", [Scan(scene.clouds[j], pose=moved[j], name="")])
    arguments = ["s0.ptx", "s1.ptx", "s2.ptx", "--fixed", "s1"]
    code, said = register(*arguments, "-o", "out")
    assert code in (0, 1), said
    assert "start: the poses inside the files" in said
    np.testing.assert_allclose(pose_files.read("out/poses.json")["s1"], moved[1], atol=1e-9)
    code, said = register(*arguments, "-o", "own", "--start", "identity")
    assert code in (0, 1), said
    np.testing.assert_allclose(pose_files.read("own/poses.json")["s1"], np.eye(4), atol=1e-12)


@pytest.mark.parametrize("other", [["--fixed", "other"], ["--prior", "prior.json"]])
def test_a_reference_beside_what_says_where_the_frame_is(folder: Path, other: list[str]) -> None:
    arguments = [*ALL, "-o", "no", "--poses", "start.json", "--reference", "d1/scan", *other]
    code, said = register(*arguments)
    assert code == 2
    assert f"reference: expected neither --fixed nor --prior beside it, found {other[0]}" in said


def test_a_file_given_twice_is_said(folder: Path) -> None:
    code, said = register(*ALL, "other.ply", "-o", "out", "--poses", "start.json")
    assert code in (0, 1), said
    assert "other.ply: given 2 times, taken once" in said


@pytest.mark.parametrize("known", [{}, {"turn": None, "shift": [None] * 3}])
def test_a_prior_that_says_nothing_is_refused(folder: Path, known: dict[str, object]) -> None:
    content = {"other": {"pose": np.eye(4).tolist(), **known}}
    (folder / "prior.json").write_text(json.dumps(content))
    code, said = register(*ALL, "-o", "no", "--poses", "start.json", "--prior", "prior.json")
    assert code == 2
    assert "other has neither turn nor shift" in said


def test_poses_are_no_priors(folder: Path) -> None:
    (folder / "prior.json").write_text(json.dumps({"other": np.eye(4).tolist()}))
    code, said = register(*ALL, "-o", "no", "--poses", "start.json", "--prior", "prior.json")
    assert code == 2
    assert "poses alone are for --poses" in said
    assert "unhashable" not in said
