# SPDX-License-Identifier: MIT
"""Figures for each scan and each link: overlap, distance, tolerance, strength, bridges."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import cKDTree
from typer.testing import CliRunner

import coframe
from coframe import InputError, geometry, report
from coframe.cli.commands import app
from coframe.evaluate.metrics import error_at_points
from coframe.io import ply
from coframe.io import poses as pose_files
from coframe.report.links import _plan_axes
from coframe.result.quality import _bridges, _planes, _rms, _to_plane, assess, deviations_at_points

QUICK = coframe.Options(components=150, points=800, start="identity")
NOISE = 0.004


def chain(rng: np.random.Generator) -> list[np.ndarray]:
    """Three windows of a bumpy wall; the first and the last do not overlap."""
    clouds = []
    for left in (0.0, 2.4, 4.8):
        x, z = rng.uniform(left, left + 4, 2500), rng.uniform(0, 3, 2500)
        y = 0.3 * np.sin(2.1 * x) * np.cos(1.7 * z) + 0.2 * np.sin(3.3 * z)
        clouds.append(np.stack([x, y + NOISE * rng.normal(size=2500), z], 1))
    return clouds


@pytest.fixture(scope="module")
def result() -> coframe.Registration:
    return coframe.register(chain(np.random.default_rng(0)), options=QUICK)


def test_links_have_the_noise_as_distance(result: coframe.Registration) -> None:
    found = assess(result, tolerance=0.012)
    assert [link.clouds for link in found.links] == [
        ("cloud 0", "cloud 1"),
        ("cloud 1", "cloud 2"),
    ]
    for link in found.links:
        assert link.bridge
        assert 0.2 < min(link.overlap) <= max(link.overlap) < 0.7
        assert link.rms is not None
        assert link.within is not None
        assert NOISE < link.rms < 3 * NOISE  # both clouds are noisy, and the wall is curved
        assert link.within > 0.8
    tight = assess(result, tolerance=0.001).links[0].within
    assert tight is not None
    assert tight < 0.3
    assert assess(result).links[0].within is None
    with pytest.raises(InputError, match="a length above 0"):
        assess(result, tolerance=-1.0)


def test_a_shifted_cloud_is_seen_in_its_links(result: coframe.Registration) -> None:
    poses = result.poses.copy()
    poses[2, 1, 3] += 0.03  # across the wall
    found = assess(replace(result, poses=poses), tolerance=0.012)
    right, wrong = found.links
    assert right.rms is not None
    assert wrong.rms is not None
    assert right.rms < 3 * NOISE
    assert 0.02 < wrong.rms < 0.04
    assert [scan.within is not None and scan.within > 0.8 for scan in found.scans] == [
        True,
        False,
        False,
    ]


def test_edges_do_not_count_as_distance() -> None:
    """Near an edge a point of one face is far from the plane of the other."""
    rng = np.random.default_rng(0)
    clouds = []
    for count in (2500, 1500):
        faces = [rng.uniform(0, 1, (count // 3, 2)) for _ in range(3)]
        corner = [np.insert(face, axis, 0.0, axis=1) for axis, face in enumerate(faces)]
        clouds.append(np.concatenate(corner) + 0.001 * rng.normal(size=(3 * (count // 3), 3)))
    found = assess(coframe.register(clouds, geometry.identity(2, 3), options=QUICK))
    rms = found.links[0].rms
    assert rms is not None
    assert 0.001 < rms < 0.002


def test_sparse_scans_of_a_hall_have_their_noise_as_distance() -> None:
    """Boxes and a pillar stand in it: many patches of eight points bend around an edge."""
    rng = np.random.default_rng(5)

    def faces(centre: list[float], size: list[float], count: int) -> np.ndarray:
        points = rng.uniform(-1, 1, (6, count, 3))
        for axis in range(3):
            points[2 * axis, :, axis], points[2 * axis + 1, :, axis] = -1, 1
        return np.array(centre) + points.reshape(-1, 3) * size / 2

    hall = [([10, 6, 2], [20, 12, 4], 6000), ([5, 4, 1], [1, 2, 2], 1500)]
    hall += [([14, 8, 0.75], [2, 1, 1.5], 1500), ([9, 10, 1.5], [0.6, 0.6, 3], 1500)]
    walls = np.concatenate([faces(*each) for each in hall])
    scans = []
    for at in ([3, 3, 1.6], [9, 4, 1.6], [12, 9.5, 1.6], [17, 3, 1.6]):
        seen = 1 / (np.linalg.norm(walls - at, axis=1) + 1)
        rows = rng.choice(len(walls), 4000, False, p=seen / seen.sum())
        scans.append(walls[rows] + 0.005 * rng.normal(size=(4000, 3)))
    surfaces = [_planes(scan, scan, cKDTree(scan)) for scan in scans]
    for i, j in itertools.permutations(range(4), 2):
        heights = _to_plane(scans[i], surfaces[i], scans[j], cKDTree(scans[j]), None)
        assert len(heights) > 1500
        # A point against the mean of eight: 0.005 * sqrt(1 + 1/8), and more beside the mean.
        rms = _rms(heights)
        assert rms is not None
        assert 0.0053 < rms < 0.0065


def test_a_dome_that_is_off_counts_beside_exact_planes() -> None:
    """A curved piece is thicker than a plane without noise, and no edge for that."""
    rng = np.random.default_rng(0)

    def cloud(raised: float) -> np.ndarray:
        plane = np.column_stack([rng.uniform(-1, 1, (2400, 2)), np.zeros(2400)])
        foot = rng.uniform(-0.4, 0.4, (1600, 2))
        return np.concatenate([plane, np.column_stack([foot, 0.5 + raised - (foot**2).sum(1) / 2])])

    one, other = cloud(0.0), cloud(0.005)
    heights = _to_plane(one, _planes(one, one, cKDTree(one)), other, cKDTree(other), None)
    assert len(heights) > 3500
    assert np.quantile(np.abs(heights), 0.9) == pytest.approx(0.005, rel=0.2)


def test_deviations_are_those_of_the_points(result: coframe.Registration) -> None:
    rng = np.random.default_rng(1)
    cloud, pose, C = result.clouds[0], result.poses[0], result.pose_covariance[0]
    middle = geometry.transform(pose, np.median(cloud, axis=0)[None])[0]
    moved = []
    for twist in rng.multivariate_normal(np.zeros(6), C, 400):
        motion = geometry.about(geometry.exp(twist[None]), middle)[0]
        x = geometry.transform(pose, cloud)
        moved.append(geometry.transform(motion, x) - x)
    expected = np.sqrt((np.array(moved) ** 2).mean((0, 1)))
    np.testing.assert_allclose(deviations_at_points(result)[0], expected, rtol=0.15)
    strong = assess(result).scans[0].strength
    assert len(strong) == 3
    assert strong[1] == "strong"  # across the wall


def test_an_axis_that_nothing_holds_is_free(result: coframe.Registration) -> None:
    C = result.pose_covariance.copy()
    C[0, 3, 3] = 1.0  # one unit along x
    words = assess(replace(result, pose_covariance=C)).scans[0].strength
    assert words == ("free", *words[1:])


def test_bridges() -> None:
    triangle = np.array([[0, 1], [0, 2], [1, 2]])
    assert _bridges(triangle, 3) == [False] * 3
    tail = np.array([[0, 1], [0, 2], [1, 2], [2, 3]])
    assert _bridges(tail, 5) == [False, False, False, True]
    assert _bridges(np.empty((0, 2), int), 2) == []


def test_figures_are_in_files_and_on_the_terminal(
    result: coframe.Registration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for j, cloud in enumerate(result.clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    arguments = ["register", *(f"scan{j}.ply" for j in range(3)), "-o", "out", "--no-report"]
    arguments += ["--start", "identity", "--components", "150", "--tolerance", "12mm"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code in (0, 1), done.output
    assert "within 12mm" in done.output
    content = json.loads(Path("out/poses.json").read_text())
    assert content["tolerance"] == 0.012
    assert [link["clouds"] for link in content["links"]] == [["scan0", "scan1"], ["scan1", "scan2"]]
    assert {"rms", "within_tolerance", "sd_at_points", "strength"} <= set(content["clouds"][0])
    done = CliRunner().invoke(app, [*arguments[:-1], "6 miles"])
    assert done.exit_code == 2
    assert "length such as" in done.output


def test_the_report_has_project_date_unit_and_tolerance_again_and_again(
    result: coframe.Registration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for j, cloud in enumerate(result.clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    arguments = ["register", *(f"scan{j}.ply" for j in range(3)), "-o", "out"]
    arguments += ["--start", "identity", "--components", "150", "--tolerance", "12mm"]
    arguments += ["--project", "Tower <7>", "--unit", "cm"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code in (0, 1), done.output
    assert "within 12mm" in " ".join(done.output.split())
    assert "gap [cm]" in " ".join(done.output.split())
    run = json.loads(Path("out/run.json").read_text())
    assert run["options"]["project"] == "Tower <7>"
    assert run["options"]["distance_tolerance"] == "12mm"
    assert run["options"]["tolerance"] == coframe.Options().tolerance
    first = Path("out/report.html").read_text()
    assert CliRunner().invoke(app, ["report", "out"]).exit_code == 0
    for page in (first, Path("out/report.html").read_text()):
        assert "<h1>Tower &lt;7&gt;: coframe report</h1>" in page
        assert run["made"] in page
        assert "Lengths are in cm." in page
        assert page.count("within 12mm") > 2  # of scans and of links
        assert "Signature" in page


def test_the_plan_looks_along_the_axis_on_which_clouds_differ_least(
    result: coframe.Registration,
) -> None:
    """Clouds that stand on each other, as floors do, are seen from the side."""
    at = np.array([[0.0, 0, 0], [0.1, 0, 4], [3, 0, 8]])
    clouds = tuple(np.random.default_rng(0).normal(size=(50, 3)) for _ in at)
    poses = geometry.pose(np.tile(np.eye(3), (3, 1, 1)), at - [np.median(c, 0) for c in clouds])
    centres, said = _plan_axes(replace(result, clouds=clouds, poses=poses))
    np.testing.assert_allclose(centres, at[:, [0, 2]], atol=1e-12)
    assert said == " along the y axis"
    level = geometry.pose(
        np.tile(np.eye(3), (3, 1, 1)), poses[:, :3, 3] + [[0, 0, 0], [0, 1, -4], [0, 2, -8]]
    )
    _, said = _plan_axes(replace(result, clouds=clouds, poses=level))
    assert said == " along the z axis"


def test_evaluate_says_the_error_at_the_points(
    result: coframe.Registration, tmp_path: Path
) -> None:
    report.write_folder(result, tmp_path / "out", page=False)
    truth = result.poses.copy()
    truth[2, 0, 3] += 0.3
    truth[2, 1, 3] += 0.4
    pose_files.write(tmp_path / "truth.json", result.names, truth)
    arguments = ["evaluate", str(tmp_path / "out"), "--truth", str(tmp_path / "truth.json")]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    found = json.loads(done.output)
    assert found["clouds"][2]["at_points"] == pytest.approx(0.5, abs=1e-6)
    assert found["at_points"]["largest"] == pytest.approx(0.5, abs=1e-6)
    assert "at points: mean" in CliRunner().invoke(app, arguments).output


def test_an_angle_counts_by_its_lever() -> None:
    turned = geometry.exp(np.array([0.01, 0.0, 0.0]))
    points = np.array([[10.0, 0.0], [-10.0, 0.0]])
    assert error_at_points(turned, np.eye(3), points) == pytest.approx(0.1, rel=1e-4)
