# SPDX-License-Identifier: MIT
"""Help: it fits into a terminal, every command has a short line, and every example works when
pasted.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scenes import on_turntable
from typer.testing import CliRunner

import coframe
from coframe import geometry
from coframe.cli.commands import app
from coframe.data import simulate
from coframe.data.simulate.particles import particles
from coframe.io import ply
from coframe.io import poses as pose_files

COMMANDS = sorted(
    re.findall(
        r"^  (\w+)  ",
        CliRunner().invoke(app, ["--help"]).output.partition("Commands:")[2],
        re.MULTILINE,
    )
)


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(
        app, [*arguments], prog_name="coframe", env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}
    )
    assert result.exit_code == 0
    return result.output


def examples(command: str) -> list[str]:
    """The lines of a help that are commands, without comments."""
    lines = (
        line.partition("Example:")[2] or line for line in shown(command, "--help").splitlines()
    )
    return [line.partition("#")[0].strip() for line in lines if line.strip().startswith("coframe ")]


def test_commands_are_listed_each_with_a_whole_line() -> None:
    text = shown("--help")
    assert {"register", "report", "export", "extend", "evaluate", "track", "demo", "doctor"} <= set(
        COMMANDS
    )
    assert "..." not in text.partition("Commands:")[2]
    assert shown("--version") == f"coframe {coframe.__version__}\n"


# Runs a command and prints which of these modules it has imported.
LOADED = """
import sys
from coframe.cli import main
sys.argv = ["coframe", *sys.argv[1:]]
try:
    main()
finally:
    heavy = ("numba", "scipy", "numpy", "plotly", "dask", "rich", "jaxtyping")
    print(*(name for name in heavy if name in sys.modules), file=sys.stderr)
"""


def loaded(*arguments: str, cwd: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.split()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["register", "--help"]])
def test_nothing_heavy_is_imported_for_help(tmp_path: Path, arguments: list[str]) -> None:
    assert loaded(*arguments, cwd=tmp_path) == []


def test_export_and_evaluate_do_without_numba(tmp_path: Path) -> None:
    clouds, poses = _scene()
    coframe.register(clouds[:2], poses[:2], options=coframe.Options(components=20)).save(tmp_path)
    for arguments in (
        ["export", ".", "--to", "tum"],
        ["export", ".", "--to", "pcd"],
        ["evaluate", ".", "--truth", "poses.json"],
    ):
        assert "numpy" in (found := loaded(*arguments, cwd=tmp_path))
        assert {"numba", "plotly", "dask"}.isdisjoint(found)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_and_has_an_example(command: str) -> None:
    assert max(map(len, shown(command, "--help").splitlines())) <= 80
    assert examples(command)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples speak of."""
    folder = tmp_path_factory.mktemp("examples")
    clouds, poses = _scene()
    (folder / "scans").mkdir()
    names = [f"scan{j}" for j in range(3)]
    for name, cloud in zip(names, clouds, strict=False):
        ply.write(folder / "scans" / f"{name}.ply", cloud)
    ply.write(folder / "new.ply", clouds[3])
    for truth in ("truth.json", "poses.json"):
        pose_files.write(folder / truth, [*names, "new"], poses)
    pose_files.write(folder / "start.json", [*names, "new"], geometry.identity(4, 3))
    where = np.random.default_rng(2).normal(size=(5, 3))
    seen = [
        (f"{name},T{i}", geometry.transform(geometry.inverse(pose), where[i : i + 1])[0])
        for name, pose in zip(names, poses, strict=False)
        for i in range(5)
    ]
    known = [(f"T{i}", position) for i, position in enumerate(where)]
    for table, rows in (("targets.csv", seen), ("control.csv", known)):
        lines = [
            ",".join([first, *map(str, position.tolist()), "0.01"]) for first, position in rows
        ]
        (folder / table).write_text("\n".join(lines))
    (folder / "rgbd_dataset_freiburg1_desk").mkdir()
    for j, cloud in enumerate(clouds):
        ply.write(folder / "rgbd_dataset_freiburg1_desk" / f"{j}.ply", cloud)
    (folder / "views").mkdir()
    for j, cloud in enumerate(on_turntable(30.0, 12, 1200)[0]):
        ply.write(folder / "views" / f"view{j}.ply", cloud)
    copies = particles(np.random.default_rng(0), kind="letters", count=24, labelled=0.9)
    rows = ["x [nm],y [nm],group"]
    rows += [f"{x},{y},{j}" for j, cloud in enumerate(copies.clouds) for x, y in cloud]
    (folder / "logos.csv").write_text("\n".join(rows) + "\n")
    return folder


def _scene() -> tuple[list[np.ndarray], np.ndarray]:
    scene = simulate.scene(4, 400, degrees=60.0, noise_db=50.0, rng=np.random.default_rng(1))
    return list(scene.clouds), scene.poses


# In a process of its own: there, nothing checks shapes, and all is fast. It runs one line after the
# other.
DRIVER = """
import shlex, sys
from coframe.cli import main
for line in sys.stdin.read().splitlines():
    sys.argv = shlex.split(line)
    try:
        main()
    except SystemExit as exit:
        if exit.code:
            sys.exit(f"{line}: {exit.code}")
"""


@pytest.mark.slow
def test_every_example_works_when_pasted(scene: Path) -> None:
    # extend changes the result that the others speak of
    first = [
        "register",
        "export",
        "evaluate",
        "report",
        "extend",
    ]
    order = [*first, *(command for command in COMMANDS if command not in first)]
    # no cluster listens there
    lines = [line for command in order for line in examples(command) if "tcp://" not in line]
    assert len(lines) >= 15
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=scene,
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
