# SPDX-License-Identifier: MIT
"""The command line, run as a user runs it: in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

import coframe


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from coframe.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_demo_registers_and_writes(tmp_path: Path) -> None:
    done = run("demo", "--points", "300", "--views", "3", "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rotation error" in done.stdout
    result = coframe.load(tmp_path / "out")
    assert len(result.poses) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_demo_is_reproducible(tmp_path: Path) -> None:
    for threads in ("1", "2"):
        assert run("demo", "--points", "200", "--threads", threads, "-o", threads, cwd=tmp_path).returncode == 0
    assert (tmp_path / "1/poses.json").read_bytes() == (tmp_path / "2/poses.json").read_bytes()
    assert (tmp_path / "1/merged.ply").read_bytes() == (tmp_path / "2/merged.ply").read_bytes()


def test_version_and_help() -> None:
    assert run("--version").stdout == f"coframe {coframe.__version__}\n"
    text = run("--help").stdout
    assert "demo" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "Example" in run("demo", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["demo", "--views", "1"], "--views"), (["nonsense"], "nonsense"), (["demo", "--points", "x"], "--points")],
)
def test_wrong_usage_ends_with_2(arguments: list[str], word: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr
