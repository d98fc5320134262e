# SPDX-License-Identifier: MIT
"""What users know, on the command line: fixed clouds, priors, motion, a reference, clouds left out;
and exit codes for those who build on a result.
"""

import ast
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scenes import run_cli
from typer.testing import CliRunner

import coframe
from coframe import InputError, geometry, report
from coframe.align.verdict import Verdict
from coframe.cli.commands import app
from coframe.cli.show import fails
from coframe.data import simulate
from coframe.em.loop import Status
from coframe.input.prior import read_priors
from coframe.io import ply
from coframe.io import poses as pose_files
from coframe.report.numbers import _loose_warning
from coframe.start import search
from coframe.start.doubt import Doubt

GOOD = Verdict("aligned", "", 0.9, 0.9, 0.1, 0.1)


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, simulate.SimulatedScene]:
    folder = tmp_path_factory.mktemp("known")
    scene = simulate.scene(3, 300, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    for j, cloud in enumerate(scene.clouds):
        ply.write(folder / f"scan{j}.ply", cloud)
    pose_files.write(folder / "start.json", [f"scan{j}" for j in range(3)], scene.poses)
    return folder, scene


def invoke(*arguments: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, [*arguments])
    return done.exit_code, done.output


def test_known_things_are_kept_and_recorded(
    scans: tuple[Path, simulate.SimulatedScene], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, scene = scans
    known = {"scan0": {"pose": scene.poses[0].tolist(), "turn": 0.01, "shift": [1e-4] * 3}}
    (folder / "priors.json").write_text(json.dumps(known))
    files = ["register", *(f"scan{j}.ply" for j in range(3)), "--poses", "start.json"]
    arguments = [*files, "-o", "a", "--no-report", "--fixed", "scan1", "--prior", "priors.json"]
    code, said = invoke(*arguments, folder=folder, monkeypatch=monkeypatch)
    assert code == 0, said
    found = pose_files.read(folder / "a/poses.json")
    np.testing.assert_allclose(found["scan1"], scene.poses[1], atol=1e-12)
    np.testing.assert_allclose(found["scan0"], scene.poses[0], atol=2e-3)
    options = json.loads((folder / "a/run.json").read_text())["options"]
    assert options["fixed"] == ["scan1"]
    assert options["prior"] == "priors.json"

    arguments = [*files, "-o", "b", "--motion", "yaw", "--reference", "scan2.ply"]
    arguments += ["--exclude", "scan1", "--no-report"]
    code, said = invoke(*arguments, folder=folder, monkeypatch=monkeypatch)
    assert code in (0, 1), said
    found = pose_files.read(folder / "b/poses.json")
    assert list(found) == ["scan0", "scan2"]
    np.testing.assert_allclose(found["scan2"], np.eye(4), atol=1e-12)
    options = json.loads((folder / "b/run.json").read_text())["options"]
    assert (options["motion"], options["reference"]) == ("yaw", "scan2.ply")
    assert options["exclude"] == ["scan1"]


@pytest.mark.parametrize("option", ["fixed", "reference", "exclude"])
@pytest.mark.parametrize(
    ("name", "said"), [("scn1", "did you mean scan1"), ("zzz", "there are scan0, scan1, scan2")]
)
def test_unknown_names_are_refused_with_near_ones(
    scans: tuple[Path, simulate.SimulatedScene],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    name: str,
    said: str,
) -> None:
    arguments = ["register", "scan0.ply", "scan1.ply", "scan2.ply", "-o", "no", f"--{option}", name]
    code, text = invoke(*arguments, folder=scans[0], monkeypatch=monkeypatch)
    assert code == 2
    assert f"{option}: expected the name of a cloud, found '{name}'; {said}" in text
    assert not (scans[0] / "no").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"scn1": {"pose": np.eye(4).tolist()}}, "did you mean scan1"),
        ({"scan1": {"pose": [[1, 2], [3, 4]]}}, "not a rotation"),
        ({"scan1": {"turn": 1}}, "no pose"),
        ({"scan1": {"pose": np.eye(4).tolist(), "turn": [1, 2]}}, "turn of scan1"),
        ({"scan1": {"pose": np.eye(4).tolist(), "shift": -1}}, "shift of scan1"),
        ({"scan1": {"pose": np.eye(4).tolist(), "sd": 1}}, "has sd"),
        ({"scan1": 7}, "something else"),
        ([], "something else"),
    ],
)
def test_bad_priors(tmp_path: Path, content: object, said: str) -> None:
    (tmp_path / "p.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=said) as error:
        read_priors(tmp_path / "p.json", ["scan0", "scan1"])
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"check the path"):
        read_priors(tmp_path / "none.json", ["a"])


def test_priors_leave_open_what_is_not_said(tmp_path: Path) -> None:
    content = {"b": {"pose": np.eye(4).tolist(), "turn": [None, None, 2], "about": [1, 2, 3]}}
    (tmp_path / "p.json").write_text(json.dumps(content))
    (prior,) = read_priors(tmp_path / "p.json", ["a", "b"])
    assert prior.cloud == 1
    assert np.isinf(np.diag(prior.covariance)).tolist() == [True, True, False, True, True, True]
    assert prior.covariance[2, 2] == pytest.approx(np.radians(2) ** 2)


def test_exit_codes(scans: tuple[Path, simulate.SimulatedScene]) -> None:
    _, scene = scans
    few = coframe.Options(components=20, points=200, start="identity", threads=1)
    result = coframe.register(scene.clouds, scene.poses, options=few)
    good = replace(result, verdicts=(GOOD,) * 3, warnings=(), doubts=(), groups=((0, 1, 2),))
    assert not fails(good)
    assert not fails(good, strict=True)
    weak = replace(good, verdicts=(GOOD, GOOD, replace(GOOD, verdict="weak")))
    for doubtful in (
        weak,
        replace(good, groups=((0, 1), (2,))),
        replace(good, warnings=("a; b",)),
    ):
        assert not fails(doubtful)
        assert fails(doubtful, strict=True)
    assert not fails(weak, 3, strict=True)
    assert fails(replace(good, verdicts=(GOOD, GOOD, replace(GOOD, verdict="failed"))))
    # Nothing was placed: no cloud was matched with another.
    assert fails(replace(good, groups=((0,), (1,), (2,))))
    assert fails(replace(good, doubts=tuple(Doubt(j, search.UNMATCHED) for j in range(3))))
    assert not fails(replace(good, doubts=(Doubt(0, search.UNMATCHED),)))


def test_strict_on_the_command_line(scans: tuple[Path, simulate.SimulatedScene]) -> None:
    folder, scene = scans
    for suffix in ("", "-copy"):
        ply.write(folder / f"twice{suffix}.ply", scene.clouds[0])
    arguments = ["register", "twice.ply", "twice-copy.ply", "scan1.ply", "--start", "identity"]
    plain = run_cli(*arguments, "-o", "strict", cwd=folder)
    strict = run_cli(*arguments, "-o", "strict", "--strict", "--json", cwd=folder)
    assert strict.returncode == 1
    said = json.loads(strict.stdout)["warnings"]
    assert said == json.loads((folder / "strict/poses.json").read_text())["warnings"]
    page = (folder / "strict/report.html").read_text()
    assert any("has the same points as" in warning for warning in said)
    for warning in said:
        assert f"warning: {warning}" in plain.stdout
        assert warning[1:].split(";")[0] in page


def warnings_in(path: Path) -> list[str]:
    """Texts appended to a list called warnings or found, in the source."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("warnings", "found")
            and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
        ):
            found.append(ast.unparse(node.args[0]))
    return found


VERBS = {"add", "give", "check", "leave", "remove", "run", "rely", "multiply", "divide", "if"}


def test_every_warning_ends_with_what_to_do() -> None:
    source = Path(coframe.__file__).parent
    files = ["api/problem.py", "report/numbers.py", "input/alike.py"]
    texts = [text for file in files for text in warnings_in(source / file)]
    assert len(texts) >= 6
    texts += [f"the run {each.sentence}" for each in Status if each is not Status.CONVERGED]
    texts += [
        _loose_warning(["a", "b"]),
        search.UNMATCHED,
        search.CONTRADICTED,
        "; check the units: if they differ",
    ]
    for text in texts:
        if text.endswith(("{result.status.sentence}'", '{result.status.sentence}"')):
            continue
        _, semicolon, advice = text.rpartition("; ")
        assert semicolon, text
        assert advice.split()[0].strip("'\"") in VERBS, text


def test_complete_says_each_thing_once(scans: tuple[Path, simulate.SimulatedScene]) -> None:
    few = coframe.Options(components=20, points=200, start="identity", threads=1)
    far = geometry.transform(geometry.pose(np.eye(3), np.array([9.0, 0, 0])), scans[1].clouds[2])
    result = coframe.register([*scans[1].clouds[:2], far], options=few)
    once = report.complete(result)
    assert len(set(once.warnings)) == len(once.warnings)
    assert report.complete(once).warnings == once.warnings
