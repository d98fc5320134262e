# SPDX-License-Identifier: MIT
"""Targets, control points and check points: the equations, the tables, the site of a survey."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import coframe
from coframe import ControlPoint, InputError, Target, geometry
from coframe.cli.commands import app
from coframe.data.simulate import indoors
from coframe.data.simulate.place import Place, scanned, tripods
from coframe.data.simulate.records import Scans
from coframe.em import constraints
from coframe.em.constraints import Constraints
from coframe.input.targets import as_survey, fitted, read_control, read_targets
from coframe.input.units import length
from coframe.io import ply
from coframe.io import poses as pose_files

QUICK = coframe.Options(components=200, points=800)
UTM = np.array([512345.0, 5403210.0, 431.0])


def some_target(rng: np.random.Generator, dimension: int, weight: float) -> constraints.SharedPoint:
    known = rng.normal(size=dimension) if weight else None
    points = rng.normal(size=(3, dimension))
    return constraints.SharedPoint(np.array([2, 0, 1]), points, rng.uniform(1, 9, 3), known, weight)


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("weight", [0.0, 4.0, np.inf])
def test_the_gradient_is_that_of_the_energy(dimension: int, weight: float) -> None:
    rng = np.random.default_rng(dimension)
    target = some_target(rng, dimension, weight)
    centre = rng.normal(size=dimension)
    P = geometry.degrees_of_freedom(dimension)
    poses = geometry.exp(rng.normal(size=(3, P)))
    H, gradient = target.normal_equations(poses, centre)
    found = np.zeros((3, P))
    for i, j in enumerate(target.clouds):
        for p in range(P):
            ends = []
            for step in (1e-6, -1e-6):
                twist = np.zeros((3, P))
                twist[j, p] = step
                moved = geometry.about(geometry.exp(twist), centre) @ poses
                ends.append(target.energy(moved))
            found[i, p] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(gradient, found, atol=1e-6)
    matrix = H.reshape(3 * P, -1)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9)
    assert np.linalg.eigvalsh(matrix).min() > -1e-9
    common = np.tile(np.eye(P)[-1], 3)  # a shift of all clouds
    assert (common @ matrix @ common > 1e-6) == bool(weight)


def test_the_position_that_is_eliminated_is_the_best_one() -> None:
    rng = np.random.default_rng(3)
    target = some_target(rng, 3, 4.0)
    poses = geometry.exp(rng.normal(size=(3, 6)))
    x, y = target.where(poses), target.best(poses)
    assert target.known is not None

    def energy(y: np.ndarray) -> float:
        own = target.weights @ ((x - y) ** 2).sum(1)
        return float(own + target.known_weight * ((target.known - y) ** 2).sum()) / 2

    assert target.energy(poses) == pytest.approx(energy(y))
    assert all(energy(y) < energy(y + step) for step in 1e-3 * rng.normal(size=(20, 3)))


def test_control_points_settle_the_gauge_and_ties_do_not() -> None:
    rng = np.random.default_rng(4)
    assert Constraints(targets=(some_target(rng, 3, 0.0),)).gauge_free
    assert not Constraints(targets=(some_target(rng, 3, 1.0),)).gauge_free


@pytest.mark.parametrize("motion", ["rigid", "yaw", "translation"])
def test_a_fit_of_large_coordinates_loses_nothing(motion: str) -> None:
    rng = np.random.default_rng(5)
    turn = {"rigid": rng.normal(size=3), "yaw": [0, 0, 1.0], "translation": [0, 0, 0]}[motion]
    T = geometry.pose(geometry.exp_rotation(np.array(turn, float)), UTM)
    source = rng.normal(size=(5, 3)) * 10
    found = fitted(source, geometry.transform(T, source), motion)
    assert found is not None
    np.testing.assert_allclose(found, T, atol=3e-9)
    line = np.outer(np.arange(4.0), [1, 2, 3])
    assert (fitted(line, line, motion) is None) == (motion == "rigid")


def site(rng: np.random.Generator, at: np.ndarray, points: int) -> Scans:
    """Stations in a furnished hall in UTM coordinates; the noise of the scanner is 5 mm."""
    options = {"points": 15 * points, "reach": 20.0, "sigma": 0.005}
    hall: Place = indoors.hall(rng, unique=True)
    hall = replace(hall, stations=tripods(rng, at), origin=UTM, options=options)
    return scanned(hall, rng, points=points)


def observations(
    rng: np.random.Generator,
    scans: Scans,
    where: np.ndarray,
    seen: int,
    checks: int,
    known: int = 1000,
    sd: float = 0.003,
) -> tuple[list[Target], list[ControlPoint]]:
    """Each target from the nearest scans; those of which the position is known, 2 mm off, come
    first, and the first of these are check points.
    """
    targets, control = [], []
    for i, x in enumerate(where):
        if i < known:
            position = x + 0.002 * rng.normal(size=3)
            control.append(ControlPoint(f"T{i}", position, 0.002, check=i < checks))
        near = np.argsort(np.linalg.norm(scans.poses[:, :3, 3] - x, axis=1))[:seen]
        for j in near.tolist():
            own = geometry.transform(geometry.inverse(scans.poses[j]), x[None])[0]
            targets.append(Target(f"T{i}", j, own + sd * rng.normal(size=3), sd))
    return targets, control


@pytest.fixture(scope="module")
def small() -> tuple[Scans, list[Target], list[ControlPoint], np.ndarray]:
    rng = np.random.default_rng(6)
    at = np.array([(-2.5, -2.5, 1.6), (2.5, -2.5, 1.6), (0.0, 2.5, 1.6)])
    scans = site(rng, at, 1200)
    where = np.c_[rng.uniform(-8, 8, (8, 2)), rng.uniform(0.3, 3, 8)] + UTM
    return scans, *observations(rng, scans, where, 3, 2), where


def check_errors(
    result: coframe.Registration, targets: list[Target], true: np.ndarray, checks: int
) -> np.ndarray:
    """Mean position of each check point from all scans, less its true position."""
    found = []
    for i in range(checks):
        own = [each for each in targets if each.name == f"T{i}"]
        where = [
            geometry.transform(result.poses[each.scan], np.array([each.position]))[0]
            for each in own
        ]
        found.append(np.mean(where, axis=0) - true[i])
    return np.array(found)


def limit_of_checks(
    scans: Scans, targets: list[Target], control: list[ControlPoint], true: np.ndarray
) -> float:
    """The least RMS error of check points that an unbiased adjustment of targets alone can have.

    Unknown are the poses and the positions of all other targets. The error of a check point is that
    of the mean of its own observations, and of the poses that carry them.
    """
    M = len(scans.poses)
    held_out = [point.name for point in control if point.check]
    names = sorted({each.name for each in targets} - set(held_out))
    column = {name: 6 * M + 3 * i for i, name in enumerate(names)}
    size = 6 * M + 3 * len(names)
    middle = true.mean(0)

    def moved_by_poses(target: Target) -> np.ndarray:
        A = np.zeros((3, size))
        x = true[int(target.name[1:])] - middle
        A[:, 6 * target.scan : 6 * target.scan + 6] = geometry.levers(x[None])[0]
        return A

    information = np.zeros((size, size))
    for each in targets:
        if each.name not in held_out:
            A = moved_by_poses(each)
            A[:, column[each.name] : column[each.name] + 3] -= np.eye(3)
            information += A.T @ A / each.sd**2
    for point in control:
        if not point.check:
            own = slice(column[point.name], column[point.name] + 3)
            information[own, own] += np.eye(3) / point.sd**2
    C = np.linalg.inv(information)
    variances = []
    for name in held_out:
        seen = [each for each in targets if each.name == name]
        A = np.mean([moved_by_poses(each) for each in seen], axis=0)
        variances.append(np.trace(A @ C @ A.T) + 3 * seen[0].sd ** 2 / len(seen))
    return float(np.sqrt(np.mean(variances)))


def test_the_result_is_in_the_frame_of_the_control_points(
    small: tuple[Scans, list[Target], list[ControlPoint], np.ndarray], tmp_path: Path
) -> None:
    scans, targets, control, where = small
    result = coframe.register(scans.clouds, targets=targets, control=control, options=QUICK)
    assert result.start == "targets"
    found = result.targets
    assert found is not None
    assert np.abs(check_errors(result, targets, where, 2)).max() < 0.006
    # What surfaces leave free, targets may decide.
    assert [verdict.verdict for verdict in result.verdicts] == ["aligned"] * 3
    assert {each.role for each in found.residuals} == {"control", "check"}
    assert len(found.residuals) == 24
    assert found.consistent, (found.chi_square, found.limits)
    ratio = np.array([np.array(each.residual) / each.sd for each in found.residuals])
    assert 0.6 < np.sqrt((ratio**2).mean()) < 1.4
    result.save(tmp_path / "out")
    again = coframe.load(tmp_path / "out")
    assert again.targets == found
    content = json.loads((tmp_path / "out/poses.json").read_text())["targets"]
    assert content["residuals"][0]["name"] == "T0"
    assert content["rms"]["tie"] is None
    assert result.relative_to(0).targets is None


def test_a_target_that_is_wrong_is_named(
    small: tuple[Scans, list[Target], list[ControlPoint], np.ndarray],
) -> None:
    scans, targets, control, _ = small
    wrong = [
        replace(each, position=np.array(each.position) + np.array([0.1, 0, 0]))
        if each.name == "T5" and each.scan == 1
        else each
        for each in targets
    ]
    result = coframe.register(scans.clouds, targets=wrong, control=control, options=QUICK)
    assert any("T5 in cloud 1" in warning for warning in result.warnings)
    assert any("chi-square" in warning for warning in result.warnings)


def test_targets_without_control_points_tie_scans(
    small: tuple[Scans, list[Target], list[ControlPoint], np.ndarray],
) -> None:
    scans, targets, *_ = small
    result = coframe.register(scans.clouds, targets=targets, options=QUICK)
    found = result.targets
    assert found is not None
    assert {each.role for each in found.residuals} == {"tie"}
    relative = geometry.inverse(result.poses[0]) @ result.poses
    true = geometry.inverse(scans.poses[0]) @ scans.poses
    np.testing.assert_allclose(relative, true, atol=0.02)
    assert found.consistent


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_twelve_stations_in_utm(seed: int) -> None:
    """Check points are right to 3 mm, and residuals as large as their standard deviations say.

    40 targets all over the hall, each seen by the eight nearest scans: 12 control points, 8 check
    points, 20 ties. The centre of a target is a mean over many points with 5 mm noise: 2 mm, as
    control points. By targets alone, check points can be right to 2.2 and 1.9 mm RMS on these two
    sites; with targets 3 mm off it would be 2.7 and 2.4 mm, and with six scans for each target 3.0
    and 2.7 mm, so that chance alone would often exceed 3 mm.
    """
    rng = np.random.default_rng(seed)
    grid = [(x, y, 1.6) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-5.0, 0.0, 5.0)]
    at = np.array(grid) + np.c_[rng.uniform(-0.5, 0.5, (12, 2)), np.zeros(12)]
    scans = site(rng, at, 4000)
    cells = [(x, y) for x in np.linspace(-9.8, 9.8, 8) for y in np.linspace(-6.4, 6.4, 5)]
    flat = rng.permutation(np.array(cells) + rng.uniform(-1, 1, (40, 2)))
    where = np.c_[flat, rng.uniform(0.3, 3, 40)] + UTM
    targets, control = observations(rng, scans, where, 8, checks=8, known=20, sd=0.002)
    limit = limit_of_checks(scans, targets, control, where)
    assert 0.0015 < limit < 0.0025  # chance alone makes 3 mm of more
    result = coframe.register(scans.clouds, targets=targets, control=control)
    assert result.start == "targets"
    # What surfaces leave free, targets decide; a scan with little overlap may say so.
    assert {verdict.verdict for verdict in result.verdicts} <= {"aligned", "weak"}
    assert not any("do not decide" in verdict.reason for verdict in result.verdicts)
    errors = check_errors(result, targets, where, 8)
    assert np.sqrt((errors**2).sum(1).mean()) < 0.003
    found = result.targets
    assert found is not None
    assert found.consistent, (found.chi_square, found.limits)
    held_out = [each for each in found.residuals if each.role == "check"]
    ratio = np.array([np.array(each.residual) / each.sd for each in held_out])
    assert 0.75 < np.sqrt((ratio**2).mean()) < 1.25


TABLES = {
    "commas": "scan,name,x,y,z,sd\nscan0,T1,1.5,2,3,0.002\n",
    "no heading": "scan0,T1,1.5,2,3,0.002\n",
    "another order": "Target;Station;E;N;H;sigma\nT1;scan0;1,5;2;3;0,002\n",
    "blanks": "# seen\nscan0 T1 1.5 2 3 0.002\n",
    "tabs": "\ufeffscan\tname\tx\ty\tz\tsd\tnote\nscan0\tT1\t1.5\t2\t3\t0.002\tgood\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_targets(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLES[name])
    assert read_targets(tmp_path / "t.csv") == [Target("T1", "scan0", (1.5, 2.0, 3.0), 0.002)]


def test_a_table_of_control_points(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("name,x,y,z,sd,role\nA,1,2,3,0.001,check\nB,1,2,3\n")
    assert read_control(tmp_path / "c.csv", check=["B"], sd=0.5) == [
        ControlPoint("A", (1.0, 2.0, 3.0), 0.001, check=True),
        ControlPoint("B", (1.0, 2.0, 3.0), 0.5, check=True),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scan,name,x,y,z\nscan0,T1,1,2,3\n", "line 2: expected a standard deviation"),
        ("scan,name,x,y,z,sd\nscan0,T1,1,two,3,1\n", "line 2: expected a number as y, found 'two'"),
        ("scan,name,x,y,z,sd\nscan0,T1,1\n", "found no y"),
        ("", "found no lines"),
    ],
)
def test_tables_that_are_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_targets(tmp_path / "t.csv")
    with pytest.raises(InputError, match="nothing that can be read"):
        read_targets(tmp_path / "none.csv")


SEEN = [Target(f"T{i}", 0, (i, i * i, 0.0), 0.01) for i in range(4)]
KNOWN = [ControlPoint(f"T{i}", (i, i * i, 0.0)) for i in range(4)]


@pytest.mark.parametrize(
    ("targets", "control", "said"),
    [
        ([], KNOWN, "expected targets"),
        ([*SEEN, SEEN[0]], [], "one observation of 'T0'"),
        ([replace(SEEN[0], scan="scn0")], [], "did you mean scan0"),
        ([replace(SEEN[0], scan=7)], [], "from 0 to 1, found 7"),
        ([replace(SEEN[0], sd=0.0)], [], "standard deviation above 0 of 'T0'"),
        ([replace(SEEN[0], position=(1, 2))], [], "expected 3 coordinates"),
        (SEEN, KNOWN[:2], "three points off a line"),
        (SEEN, [ControlPoint(f"T{i}", (i, i, i)) for i in range(4)], "found 4 on a line"),
        (SEEN, [ControlPoint("T9", (1, 2, 3))], "did you mean"),
        (SEEN, [replace(each, check=True) for each in KNOWN], "control points beside check"),
        (SEEN, [*KNOWN, KNOWN[0]], "'T0' twice"),
        (["T0"], [], "list of coframe.Target"),
    ],
)
def test_what_does_not_fit_is_refused(targets: list, control: list, said: str) -> None:
    with pytest.raises(InputError, match=said):
        as_survey(targets, control, ["scan0", "scan1"], 3)


def test_lengths_with_units() -> None:
    assert length("6mm") == pytest.approx(0.006)
    assert length("1 in", "mm") == pytest.approx(25.4)
    assert length("0.25") == 0.25
    for text in ("", "6 miles", "-1mm", "nan"):
        with pytest.raises(InputError, match="length such as"):
            length(text)


def test_a_survey_on_the_command_line(
    small: tuple[Scans, list[Target], list[ControlPoint], np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scans, targets, control, _ = small
    monkeypatch.chdir(tmp_path)
    for j, cloud in enumerate(scans.clouds):
        ply.write(tmp_path / f"scan{j}.ply", cloud)
    rows = [f"scan{t.scan},{t.name},{','.join(map(str, t.position))}" for t in targets]
    Path("targets.csv").write_text("\n".join(["scan,name,x,y,z", *rows]))
    known = [f"{c.name},{','.join(map(str, c.position))},{c.sd}" for c in control]
    Path("control.csv").write_text("\n".join(["name,x,y,z,sd", *known]))
    options = ["--targets", "targets.csv", "--control", "control.csv", "--target-sd", "3mm"]
    arguments = ["register", *(f"scan{j}.ply" for j in range(3)), "-o", "out", *options]
    done = CliRunner().invoke(
        app, [*arguments, "--check", "T0", "--check", "T1", "--components", "200"]
    )
    assert done.exit_code in (0, 1), done.output
    assert "targets: RMS of control points" in done.output
    found = pose_files.read(Path("out/poses.json"))
    assert np.linalg.norm(found["scan0"][:3, 3] - scans.poses[0, :3, 3]) < 0.01
    options = json.loads(Path("out/run.json").read_text())["options"]
    assert (options["control"], options["check"]) == ("control.csv", ["T0", "T1"])
    for wrong, said in (
        (["--control", "control.csv"], "no --targets"),
        (["--check", "T0"], "--control beside --check"),
        ([*arguments[6:], "--check", "T77"], "did you mean"),
    ):
        done = CliRunner().invoke(app, [*arguments[:6], *wrong])
        assert done.exit_code == 2
        assert said in done.output
