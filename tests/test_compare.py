# SPDX-License-Identifier: MIT
"""Methods side by side: the same start, the same judge, and when one fails, the others go on."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scenes import unchecked

import coframe
from coframe import baselines, geometry
from coframe.baselines.compare import contestants
from coframe.data import simulate
from coframe.io import ply
from coframe.io import poses as pose_files
from coframe.report import comparison as pages

OPTIONS = coframe.Options(components=200)


@pytest.fixture(scope="module")
def scene() -> simulate.SimulatedScene:
    return simulate.scene(
        3, 600, degrees=50.0, motion_degrees=6.0, noise_db=45.0, rng=np.random.default_rng(1)
    )


def broken(clouds, start):
    raise ZeroDivisionError("no <b>clouds</b>\nto divide by")


@pytest.fixture(scope="module")
def found(scene: simulate.SimulatedScene) -> coframe.Comparison:
    known = contestants(OPTIONS)
    methods = {"coframe": known["coframe"], "broken": broken, "trimmed icp": known["trimmed icp"]}
    return coframe.compare(
        scene.clouds, geometry.identity(3, 3), truth=scene.poses, methods=methods, points=400
    )


def test_every_method_is_judged_alike(
    found: coframe.Comparison, scene: simulate.SimulatedScene
) -> None:
    start, ours, died, trimmed = found.rows
    assert [row.method for row in found.rows] == ["start", "coframe", "broken", "trimmed icp"]
    assert (found.start, found.points, found.left_out) == ("given", 400, ())
    assert ours.rotation < trimmed.rotation < start.rotation
    assert ours.residual < start.residual
    assert ours.worst_rotation >= ours.rotation
    assert died.failure == "no <b>clouds</b> to divide by"
    assert died.poses is died.residual is died.rotation is None
    assert ours.poses.shape == scene.poses.shape


def test_all_methods_have_their_names() -> None:
    assert list(contestants()) == ["coframe", "jrmpc-b", *baselines.METHODS]


def test_json_and_page_hold_what_was_found(found: coframe.Comparison, tmp_path: Path) -> None:
    content = json.loads(found.save(tmp_path / "new" / "comparison.json").read_text())
    assert content["format"] == "coframe-comparison/1"
    assert [row["method"] for row in content["rows"]] == [row.method for row in found.rows]
    np.testing.assert_array_equal(content["rows"][1]["poses"], found.rows[1].poses)
    page = pages.write(found, tmp_path / "comparison.html").read_text()
    assert "no &lt;b&gt;clouds&lt;/b&gt; to divide by" in page
    assert "<b>clouds" not in page
    assert page.count('class="dot"') == 3 + 3 + 4  # residuals, angles, seconds
    assert "unknown" not in page


def test_a_cloud_of_something_else_is_left_out() -> None:
    scene = simulate.scene(
        3, 1500, degrees=50.0, motion_degrees=180.0, rng=np.random.default_rng(1)
    )
    u = np.random.default_rng(5).normal(size=(1500, 3))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    other = (
        0.4
        * u
        * (1 + 0.25 * np.sin(5 * u[:, :1]) * np.cos(4 * u[:, 1:2]) + 0.2 * np.sin(7 * u[:, 2:]))
    )
    found = coframe.compare([*scene.clouds, other], methods=["mv-icp"], names=["a", "b", "c", "d"])
    assert (found.names, found.left_out, found.start) == (("a", "b", "c"), ("d",), "matched")
    assert len(found.rows[1].poses) == 3
    assert not found.judged_by_truth


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"methods": ["icp", "magic"]},
            "methods: expected some of coframe, jrmpc-b, icp.*found 'magic'",
        ),
        ({"gate": -1.0}, "gate: expected a length above 0, found -1.0"),
        ({"points": 3}, "points: expected at least 4 a cloud, found 3"),
        ({"truth": geometry.identity(2, 3)}, "truth: expected shape"),
        ({"options": {"threads": 1}}, "options: expected coframe.Options, found dict"),
    ],
)
def test_bad_input_is_refused(scene: simulate.SimulatedScene, options: dict, message: str) -> None:
    with unchecked(), pytest.raises(coframe.InputError, match=message):
        coframe.compare(scene.clouds, geometry.identity(3, 3), **options)


ONE_THREAD = """
import threading
import numpy as np
import coframe
from coframe import geometry
from coframe.data import simulate
scene = simulate.scene(3, 300, degrees=50.0, rng=np.random.default_rng(1))
found = coframe.compare(
    scene.clouds, geometry.identity(3, 3), points=200,
    methods=["jrmpc-b", "icp", "cpd", "gmmreg"], options=coframe.Options(components=20, threads=1),
)
print([row.failure for row in found.rows if row.failure])
print([thread.name for thread in threading.enumerate() if thread.name.startswith("coframe")])
"""


def test_one_thread_is_one_thread() -> None:
    """In a process of its own: threads of a sweep live as long as the process."""
    command = [sys.executable, "-c", ONE_THREAD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n[]\n"


def test_files_are_opened(scene: simulate.SimulatedScene, tmp_path: Path) -> None:
    for j, cloud in enumerate(scene.clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    pattern = str(tmp_path / "scan*.ply")
    found = coframe.compare([pattern], scene.poses, methods=["icp"], points=100)
    assert found.names == ("scan0", "scan1", "scan2")
    assert found.rows[1].failure is None
    assert baselines.run("icp", pattern, scene.poses, iterations=1).names == found.names


def test_the_command_writes_a_table_and_a_page(
    scene: simulate.SimulatedScene, tmp_path: Path
) -> None:
    for j, cloud in enumerate(scene.clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    pose_files.write(tmp_path / "truth.json", [f"scan{j}" for j in range(3)], scene.poses)
    given = [
        "--poses",
        "truth.json",
        "--truth",
        "truth.json",
        "--method",
        "icp",
        "--method",
        "pose graph",
        "--points",
        "300",
    ]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "coframe", "compare", "scan*.ply", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    done = run(*given, "-o", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert "pose graph" in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "comparison.html",
        "comparison.json",
        "manifest.json",
    ]
    rows = json.loads((tmp_path / "out/comparison.json").read_text())["rows"]
    assert rows[0]["rotation"] == pytest.approx(0, abs=1e-6)
    wrong = run("--method", "magic")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("coframe: --method: expected some of")
    assert wrong.stderr.count("\n") == 1
