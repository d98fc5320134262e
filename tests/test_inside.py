# SPDX-License-Identifier: MIT
"""Poses inside E57, PTX and PCD files are one more hypothesis: used where the scans agree with
them, and told either way.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import coframe
from coframe import geometry
from coframe.api import inside
from coframe.api.inside import INSIDE
from coframe.cli.commands import app
from coframe.data import simulate
from coframe.data.simulate import indoors
from coframe.data.simulate.place import scanned, tripods
from coframe.io import clouds as cloud_files
from coframe.io import ptx
from coframe.io.scan import Scan

QUICK = coframe.Options(components=100, points=600)


def scene() -> simulate.SimulatedScene:
    """Scans in frames of their own, turned and shifted arbitrarily."""
    rng = np.random.default_rng(1)
    found = simulate.scene(4, 700, degrees=60.0, noise_db=50.0, rng=rng)
    turns = geometry.exp_rotation(rng.uniform(-2, 2, (4, 3)))
    own = geometry.pose(turns, rng.uniform(-1, 1, (4, 3)))
    clouds = [geometry.transform(T, c) for T, c in zip(own, found.clouds, strict=True)]
    return replace(found, clouds=clouds, poses=found.poses @ geometry.inverse(own))


def shaken(poses: np.ndarray, degrees: float, shift: float) -> np.ndarray:
    rng = np.random.default_rng(2)
    turns = geometry.exp_rotation(np.radians(degrees) * rng.normal(size=(len(poses), 3)))
    return geometry.pose(turns, shift * rng.normal(size=(len(poses), 3))) @ poses


def written(folder: Path, clouds: list[np.ndarray], poses: np.ndarray, kind: str = "ptx") -> None:
    for j, (cloud, pose) in enumerate(zip(clouds, poses, strict=True)):
        cloud_files.write(folder / f"s{j}.{kind}", Scan(cloud, pose=pose))


@pytest.mark.parametrize("kind", ["ptx", "pcd", "e57"])
def test_poses_that_agree_are_used(kind: str, tmp_path: Path) -> None:
    if kind == "e57":
        pytest.importorskip("pye57")
    found = scene()
    inside = shaken(found.poses, 1.0, 0.01)
    written(tmp_path, found.clouds, inside, kind)
    done = CliRunner().invoke(app, ["register", str(tmp_path), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "start: poses inside the files, which agree with the scans" in done.output
    assert "not used" not in done.output
    content = json.loads((tmp_path / "out/poses.json").read_text())
    assert content["start"] == INSIDE
    start = np.array(json.loads((tmp_path / "out/run.json").read_text())["start"])
    np.testing.assert_allclose(start, inside, atol=1e-6)
    poses = np.array([each["pose"] for each in content["clouds"]])
    off = (
        geometry.inverse(poses[0])
        @ poses
        @ geometry.inverse(geometry.inverse(found.poses[0]) @ found.poses)
    )
    assert np.degrees(geometry.angle(geometry.rotation(off))).max() < 0.5
    # The one without a pose of its own is the reference of the others.
    if kind == "ptx":
        inside = geometry.inverse(inside[0]) @ inside
        written(tmp_path, found.clouds, inside)
        assert coframe.register(tmp_path, options=QUICK).start == INSIDE


def test_poses_that_contradict_the_scans_are_not_used(tmp_path: Path) -> None:
    found = scene()
    written(tmp_path, found.clouds, shaken(found.poses, 60.0, 0.5))
    done = CliRunner().invoke(app, ["register", str(tmp_path), "-o", str(tmp_path / "out")])
    assert "the scans do not agree with them; to start from them all the same, add" in done.output
    assert "start: matched" in done.output


def test_scans_in_place_whose_files_have_other_poses_stay(tmp_path: Path) -> None:
    """Exported in the common frame, with the poses of the setups left in the header."""
    found = scene()
    clouds = [geometry.transform(T, c) for T, c in zip(found.poses, found.clouds, strict=True)]
    written(tmp_path, clouds, found.poses)
    assert coframe.register(tmp_path, options=QUICK).start == "identity"


@pytest.mark.parametrize("kind", ["npz", "pts", "ptx"])
def test_files_are_read_once_for_their_poses_and_not_where_they_cannot_hold_any(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    shifted = np.eye(4)
    shifted[0, 3] = 1.0
    clouds = [rng.normal(size=(50, 3)) for _ in range(3)]
    for j, cloud in enumerate(clouds):
        path = tmp_path / f"scan{j}.{kind}"
        if kind == "npz":
            np.savez(path, points=cloud)
        elif kind == "pts":
            np.savetxt(path, cloud, header="50", comments="")
        else:
            ptx.write_scans(path, [Scan(cloud, pose=shifted)])
    parsed: list[Path] = []
    for module, name in ((cloud_files, "read_all"), (ptx, "read_poses"), (ptx, "names")):
        whole = getattr(module, name)
        counted = lambda path, *_, whole=whole, **__: parsed.append(path) or whole(path)  # noqa: E731
        monkeypatch.setattr(module, name, counted)
    found = inside.read(sorted(tmp_path.iterdir()))
    assert (found is not None) == (kind == "ptx")
    assert len(parsed) == (3 if kind == "ptx" else 0)


def test_few_poses_or_other_knowledge_leave_the_start_alone(tmp_path: Path) -> None:
    found = scene()
    written(tmp_path, found.clouds, found.poses)
    for options in ({"fixed": [0]}, {"poses": found.poses}, {"level": [1]}):
        assert coframe.register(tmp_path, options=QUICK, **options).start != INSIDE
    chosen = coframe.Options(components=100, points=600, start="identity")
    assert coframe.register(tmp_path, options=chosen).start == "identity"
    for j in (2, 3):
        cloud_files.write(tmp_path / f"s{j}.ptx", Scan(found.clouds[j]))
    assert coframe.register(tmp_path, options=QUICK).start != INSIDE


def test_scans_of_one_hall_are_not_piled_up_around_the_instrument(tmp_path: Path) -> None:
    """Floors and ceilings fit as well where all stations are one; the files know better."""
    rng = np.random.default_rng(2)
    at = np.array([(x, y, 1.6) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-5.0, 0.0, 5.0)])
    hall = replace(indoors.hall(rng, unique=True), stations=tripods(rng, at))
    options = {"points": 12_000, "reach": 20.0, "sigma": 0.005}
    scans = scanned(replace(hall, options=options), rng, points=2_000)
    poses = scans.poses.copy()
    poses[:, :3, 3] += rng.normal(0, 0.1, (12, 3))
    written(tmp_path, scans.clouds, poses)
    few = replace(QUICK, iterations=2)
    assert coframe.register(tmp_path, options=few).start == INSIDE
