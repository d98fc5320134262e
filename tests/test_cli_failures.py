# SPDX-License-Identifier: MIT
"""The command line when things go wrong: one clear line, the right exit code, nothing half done. In processes of their own."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coframe import simulate
from coframe.io import ply

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals, limits and pipes as POSIX has them")
COMMAND = [sys.executable, "-m", "coframe"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three scans, a result of them, and some things that are not what they should be."""
    folder = tmp_path_factory.mktemp("failures")
    scene = simulate.scene(3, 150, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    for j, cloud in enumerate(scene.clouds):
        ply.write(folder / f"scan{j}.ply", cloud)
    (folder / "file").write_text("no folder")
    (folder / "empty").mkdir()
    (folder / "locked").mkdir(mode=0o555)
    (folder / "notes.json").write_text("{}")
    scene_result = subprocess.run(
        [*COMMAND, "register", "scan*.ply", "-q", "--no-report", "-o", "out"], cwd=folder, capture_output=True, check=False
    )
    assert (scene_result.returncode, scene_result.stderr) == (0, b"")
    return folder


def without_privileges() -> None:
    """Root may write anywhere; tests that run as root give that up."""
    drop, override = 24, 1  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
    ctypes.CDLL(None).prctl(drop, override, 0, 0, 0)


def small_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))


def run(folder: Path, *arguments: str, prepare: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False, preexec_fn=prepare)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("register scan0.ply missing.ply -o new", ["missing.ply", "found nothing"]),
        ("register scan0.ply -o new", ["two clouds", "found 1"]),
        ("register empty -o new", ["empty", "folder with clouds"]),
        ("register scan0.ply notes.json -o new", ["notes.json", ".ply"]),
        ("register scan*.ply --poses scan2.ply -o new", ["scan2.ply", "coframe-poses/1"]),
        ("register scan*.ply --start nowhere -o new", ["nowhere", "match"]),
        ("register scan*.ply -o file", ["file", "expected a folder to write to"]),
        ("register scan*.ply -o file/new", ["file", "expected a folder to write to"]),
        ("register scan*.ply -o locked/new", ["locked", "no permission"]),
        ("demo -o locked/new", ["locked", "no permission"]),
        ("export out --to ply -o locked/all.ply", ["locked/all.ply", "Permission denied"]),
        ("export out --to nothing", ["nothing", "matrix"]),
        ("export empty --to tum", ["empty", "state.npz"]),
        ("report empty", ["empty", "state.npz"]),
        ("extend out scan0.ply", ["scan0", "not in out yet"]),
        ("evaluate out --truth notes.json", ["notes.json", "expected poses"]),
        ("evaluate empty --truth out/poses.json", ["empty/poses.json", "No such file"]),
        ("track empty -o new", ["empty", "depth images"]),
    ],
)
def test_bad_input_is_one_line_and_2(folder: Path, arguments: str, words: list[str]) -> None:
    done = run(folder, *arguments.split(), prepare=without_privileges)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("coframe: ")
    assert done.stderr.count("\n") == 1
    assert [word for word in words if word not in done.stderr] == []
    assert not (folder / "new").exists()


@pytest.mark.parametrize("arguments", ["demo --views 1", "nonsense", "demo --points x", "register --seed -1 a b -o new"])
def test_wrong_usage_ends_with_2(folder: Path, arguments: str) -> None:
    done = run(folder, *arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_leaves_no_half_file(folder: Path) -> None:
    done = run(folder, "register", "scan*.ply", "-o", "full", prepare=small_disk)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "coframe: full/merged.ply: File too large\n"
    assert [path.name for path in (folder / "full").iterdir()] == ["poses.json"]


def test_a_reader_that_leaves_changes_nothing(folder: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "export", "out", "--to", "matrix", "-o", "matrices"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait()) == (b"", 0)
    process.stderr.close()
    assert len(list((folder / "matrices").iterdir())) == 3


def test_ctrl_c_while_reading_is_one_line_and_130(folder: Path) -> None:
    """The reader waits for a pipe that nobody fills."""
    os.mkfifo(folder / "slow.xyz")
    process = subprocess.Popen(
        [*COMMAND, "register", "scan0.ply", "slow.xyz", "-o", "new"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    time.sleep(0.1)
    end = time.monotonic() + 60
    while time.monotonic() < end and not _waits_in(process.pid):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "coframe: interrupted\n"
    assert process.returncode == 130
    assert not (folder / "new").exists()
