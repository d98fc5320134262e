# SPDX-License-Identifier: MIT
"""The pages for each kind of user: all their commands run, one after another, on such scans."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_docs import TEXTS
from typer.testing import CliRunner

import coframe
from coframe import geometry
from coframe.cli.commands import app
from coframe.data import simulate
from coframe.io import clouds as cloud_files
from coframe.io import e57, ply
from coframe.io import poses as pose_files
from coframe.io.scan import Scan

NAMES = ["scan0", "scan1", "scan2", "scan3"]


def views(count: int, degrees: float, *, seed: int = 1) -> simulate.SimulatedScene:
    rng = np.random.default_rng(seed)
    return simulate.scene(count, 700, degrees=degrees, noise_db=50.0, rng=rng)


def turntable(folder: Path) -> None:
    scene = views(12, 330.0)
    axis = np.array([0.0, 0.8, 0.6])
    turns = geometry.exp_rotation(np.radians(30.0) * np.arange(12)[:, None] * axis)
    turns = geometry.pose(turns, np.zeros((12, 3)))
    upright = geometry.pose(geometry.exp_rotation(np.array([np.arctan2(0.6, 0.8), 0, 0])), axis)
    (folder / "scans").mkdir()
    for j, (cloud, pose) in enumerate(zip(scene.clouds, scene.poses, strict=True)):
        seen = geometry.transform(geometry.inverse(turns[j]) @ upright @ pose, cloud)
        ply.write(folder / f"scans/scan{j}.ply", seen)


def survey(folder: Path) -> None:
    scene = views(4, 60.0)
    (folder / "site").mkdir()
    rng = np.random.default_rng(0)
    places = rng.uniform(-0.3, 0.3, (4, 3))
    seen = ["scan,name,x,y,z"]
    for j, (cloud, pose) in enumerate(zip(scene.clouds, scene.poses, strict=True)):
        e57.write_scans(folder / f"site/setup{j}.e57", [Scan(cloud, pose=pose, name=f"setup{j}")])
        own = geometry.transform(geometry.inverse(pose), places)
        seen += [f"setup{j},T{i + 1},{x},{y},{z}" for i, (x, y, z) in enumerate(own.tolist())]
    (folder / "targets.csv").write_text("\n".join(seen))
    known = [f"T{i + 1},{x},{y},{z}" for i, (x, y, z) in enumerate((places + 5e5).tolist())]
    (folder / "control.csv").write_text("\n".join(["name,x,y,z", *known]))


def cell(folder: Path) -> None:
    scene = views(4, 60.0)
    (folder / "shot").mkdir()
    names = [f"cam{j}" for j in range(4)]
    for name, cloud in zip(names, scene.clouds, strict=True):
        ply.write(folder / f"shot/{name}.ply", cloud)
    rig = dict(zip(names, scene.poses.tolist(), strict=True))
    (folder / "rig.json").write_text(json.dumps(rig))
    known = {"turn": 0.2, "shift": 0.01, "about": [0, 0, 0]}
    priors = {name: {"pose": pose, **known} for name, pose in rig.items()}
    (folder / "robot.json").write_text(json.dumps(priors))


def drive(folder: Path) -> None:
    """Views of a scene from a path, in frames of the sensor's own."""
    scene = views(8, 35.0)
    (folder / "drive").mkdir()
    for j, cloud in enumerate(scene.clouds):
        cloud_files.write(folder / f"drive/{j:06d}.pcd", Scan(cloud))
    pose_files.export(
        folder / "drive/groundtruth.txt", "tum", [str(j) for j in range(8)], scene.poses
    )


def research(folder: Path) -> None:
    scene = views(4, 50.0)
    (folder / "scans").mkdir()
    for name, cloud in zip(NAMES, scene.clouds, strict=True):
        ply.write(folder / f"scans/{name}.ply", cloud)
    pose_files.write(folder / "start.json", NAMES, geometry.identity(4, 3))
    pose_files.write(folder / "truth.json", NAMES, scene.poses)


@pytest.mark.parametrize(
    ("page", "prepare"),
    [
        ("turntable", turntable),
        ("survey", survey),
        ("cell", cell),
        ("robotics", drive),
        ("research", research),
    ],
)
def test_the_commands_of_a_page_run(
    page: str, prepare: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page == "survey":
        pytest.importorskip("pye57")
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```(\w*)\n(.*?)^```$", TEXTS[f"docs/{page}.md"], re.DOTALL | re.MULTILINE
    )
    lines = [line for kind, block in blocks if not kind for line in block.splitlines()]
    assert len(lines) >= 2
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "coframe"
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, f"{line}: {done.output}"


def test_the_keys_of_poses_json_are_those_of_the_page(tmp_path: Path) -> None:
    """A result with all that there can be, and the tables of formats.md."""
    cell(tmp_path)
    survey(tmp_path)
    result = coframe.register(
        [str(tmp_path / f"site/setup{j}.e57") for j in range(4)],
        targets=coframe.input.targets.read_targets(tmp_path / "targets.csv", 0.01),
        control=tmp_path / "control.csv",
        crs="EPSG:25832",
    )
    quality = coframe.assess(result, 0.01)
    coframe.report.write_folder(result, tmp_path / "out", quality=quality, page=False)
    content = json.loads((tmp_path / "out/poses.json").read_text())
    text = TEXTS["docs/formats.md"].partition("### coframe-poses/1")[2].partition("###")[0]
    rows = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    documented = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    written = {key for cloud in content["clouds"] for key in cloud} | set(content)
    assert documented - {"time", "frame"} == written - {"format", "clouds"}
    links = {key for link in content["links"] for key in link}
    assert {f"`{key}`" for key in links} <= set(re.findall(r"`\w+`", text))
