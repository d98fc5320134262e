# SPDX-License-Identifier: MIT
"""What the command line says: words of the command line, and a next step that fits."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import coframe
from coframe import InputError
from coframe.align import cost
from coframe.align.verdict import Verdict
from coframe.api import problem
from coframe.cli.app import as_options
from coframe.cli.commands import app
from coframe.cli.show import next_step
from coframe.data import simulate
from coframe.errors import one_line
from coframe.io import clouds as cloud_files
from coframe.io import ply
from coframe.io import poses as pose_files
from coframe.report.links import _elsewhere

GOOD = Verdict("aligned", "", 0.9, 0.9, 0.1, 0.1)
WEAK = replace(GOOD, verdict="weak")


@pytest.fixture(scope="module")
def result() -> coframe.Registration:
    scene = simulate.scene(3, 300, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    few = coframe.Options(components=20, points=200, start="identity", threads=1)
    found = coframe.register(scene.clouds, scene.poses, options=few, names=["a", "b c", "d"])
    return replace(found, verdicts=(GOOD, WEAK, GOOD))


def test_the_next_step_is_one_that_was_not_tried(result: coframe.Registration) -> None:
    assert next_step(result) == "match with the others anew: --rematch 'b c'"
    assert "--rematch" not in next_step(result, tried=["b c"])
    assert "--rematch" not in next_step(replace(result, verdicts=(WEAK, WEAK, GOOD)))
    inside = next_step(replace(result, start="inside"))
    assert inside.endswith("--poses inside --rematch 'b c'")
    assert "--start match" in next_step(replace(result, start="identity"))
    matched = next_step(replace(result, start="matched"))
    assert "--start identity" in matched
    assert "--start match" not in matched
    for start in ("given", "identity", "inside"):
        bound = next_step(replace(result, start=start), bound=True)
        assert "--start" not in bound
        assert "--rematch" not in bound


def test_words_of_the_library_become_options() -> None:
    assert "(--fixed)" in as_options(problem.LEFT[0])
    assert "(--prior)" in as_options(problem.LEFT[0])
    assert "`" not in as_options(problem.LEFT[0])


def test_errors_name_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        ply.write(f"{name}.ply", np.random.default_rng(0).normal(size=(50, 3)))
    for more, said in (
        (["--turntable", "270"], "coframe: --turntable: expected"),
        (["--max-turn", "-1"], "coframe: --max-turn: expected"),
        (["--fixed", "a", "--start", "match"], 'coframe: --start: expected "identity"'),
    ):
        done = CliRunner().invoke(app, ["register", "a.ply", "b.ply", "-o", "no", *more])
        assert done.exit_code == 2
        assert said in done.output, done.output


def test_another_folder_for_the_next_run() -> None:
    for given, meant in (
        ("-o out", "-o out-2"),
        ("-o out-2/ --resume", "-o out-3"),
        ("--output=x", "--output=x-2"),
        ("-ox", "-ox-2"),
    ):
        assert _elsewhere(f"coframe register s {given}") == f"coframe register s {meant}"
    assert shlex.split(_elsewhere("coframe register s -o 'my out'"))[-1] == "my out-2"
    assert _elsewhere("coframe register 'unfinished") == "coframe register 'unfinished"


def test_a_bad_pose_says_whose(tmp_path: Path) -> None:
    content = {"a": np.eye(4).tolist(), "b": (2 * np.eye(4)).tolist()}
    for pose, said in ((content["b"], "the pose of b is not a rotation"), ("x", "the pose of b")):
        (tmp_path / "p.json").write_text(json.dumps(content | {"b": pose}))
        with pytest.raises(InputError, match=said):
            pose_files.read(tmp_path / "p.json")


def test_small_things() -> None:
    assert one_line(ValueError("bad CRC. Debug info: context = CheckedFile.cpp")) == "bad CRC."
    with pytest.raises(InputError, match=r"found 0\.1 MB"):
        cost.check(2, coframe.Options(), "100KB")


def test_an_array_is_written_as_a_cloud(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(20, 3))
    cloud_files.write(tmp_path / "a.ply", points)
    np.testing.assert_allclose(cloud_files.read_scan(tmp_path / "a.ply").points, points)
    for bad in ("points", points[0], None):
        with pytest.raises(InputError, match="expected a Scan or an array"):
            cloud_files.write(tmp_path / "b.ply", bad)


def test_poses_json_says_what_was_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scene = simulate.scene(3, 300, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    for j, cloud in enumerate(scene.clouds):
        ply.write(f"s{j}.ply", cloud)
    pose_files.write("start.json", ["s0", "s1", "s2"], scene.poses)
    known = {"s0": {"pose": scene.poses[0].tolist(), "turn": 0.1}}
    Path("prior.json").write_text(json.dumps(known))
    arguments = "register s0.ply s1.ply s2.ply -o out --no-report --components 30"
    arguments += " --poses start.json --fixed s1 --prior prior.json"
    done = CliRunner().invoke(app, arguments.split())
    assert done.exit_code in (0, 1), done.output
    options = json.loads(Path("out/poses.json").read_text())["options"]
    assert options["prior"] == "prior.json"
    assert options["fixed"] == ["s1"]
