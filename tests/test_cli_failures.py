# SPDX-License-Identifier: MIT
"""The command line when things go wrong: one clear line, the right exit code, nothing half done.

In processes of their own.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import typer

from coframe.cli.app import guarded
from coframe.cli.interrupt import interruptible
from coframe.data import simulate
from coframe.io import ply
from coframe.io.files import write_rows

pty = pytest.importorskip("pty", reason="needs terminals, signals and limits as POSIX has them")
resource = pytest.importorskip(
    "resource", reason="needs terminals, signals and limits as POSIX has them"
)
COMMAND = [sys.executable, "-m", "coframe"]
# Runs one command line after the other in one process, each as `coframe` does, and says how each
# ended.
DRIVER = """
import contextlib, io, json, sys
from coframe.cli import main
for line in sys.stdin.read().splitlines():
    out, err, sys.argv = io.StringIO(), io.StringIO(), ["coframe", *line.split()]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = 0
        try:
            main()
        except SystemExit as exit:
            code = exit.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
BAD = {
    "register scan0.ply missing.ply -o new": ["missing.ply", "found nothing"],
    "register scan0.ply -o new": ["two clouds", "found 1, scan0.ply"],
    "register scan0.ply scan0.ply -o new": ["two clouds", "found 1, scan0.ply"],
    "register scan0.ply nothing.ply -o new": ["nothing.ply", "found an empty file"],
    "register scan0.ply blind.xyz -o new": ["blind.xyz", "found 5 rows of NaN"],
    "register scan*.ply -o /proc/new": ["/proc/new: expected a folder to write to"],
    "register empty -o new": ["empty", "folder with clouds"],
    "register scan0.ply notes.json -o new": ["notes.json", ".ply"],
    "register scan*.ply --poses scan2.ply -o new": ["scan2.ply", "coframe-poses/1"],
    "register scan*.ply --start nowhere -o new": ["nowhere", "match"],
    "register scan*.ply --method paper --resume -o new": ["resume", "paper"],
    "register scan*.ply -o file": ["file", "expected a folder to write to"],
    "register scan*.ply -o file/new": ["file", "expected a folder to write to"],
    "register scan*.ply -o locked/new": ["locked", "no permission"],
    "demo -o locked/new": ["locked", "no permission"],
    "export out --to ply -o locked/all.ply": ["locked", "Permission denied"],
    "export out --to nothing": ["nothing", "matrix"],
    "export empty --to tum": ["empty", "state.npz"],
    "report empty": ["empty", "state.npz"],
    "report tracked": ["tracked", "found one of track", "trajectory.txt"],
    "extend out scan0.ply": ["scan0", "not in out yet"],
    "extend out scan9.ply --start nowhere": ["scan9.ply", "found nothing"],
    "extend absent scan0.ply": ["absent", "state.npz"],
    "evaluate out --truth notes.json": ["notes.json", "expected poses"],
    "evaluate empty --truth out/poses.json": ["empty/poses.json", "No such file"],
    "compare scan0.ply missing.ply -o new": ["missing.ply", "found nothing"],
    "compare scan*.ply -o locked/new": ["locked", "no permission"],
    "register scan*.ply --memory lots -o new": ["memory", "lots"],
    "track empty -o new": ["empty", "depth images"],
}
USAGE = {
    "demo --views 1": "--views",
    "nonsense": "nonsense",
    "demo --points x": "--points",
    "register --seed -1 a -o new": "--seed",
}


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
    (folder / "nothing.ply").touch()
    (folder / "tracked").mkdir()
    for name in ("track.json", "state.npz"):
        (folder / "tracked" / name).touch()
    (folder / "blind.xyz").write_text("nan nan nan\n" * 5)
    scene_result = subprocess.run(
        [*COMMAND, "register", "scan*.ply", "-q", "--no-report", "-o", "out"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert (scene_result.returncode, scene_result.stderr) == (0, b"")
    return folder


def without_privileges() -> None:
    """Root may write anywhere; tests that run as root give that up."""
    drop, override = 24, 1  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
    ctypes.CDLL(None).prctl(drop, override, 0, 0, 0)


def small_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))


def run(
    folder: Path, *arguments: str, prepare: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=prepare,
    )


def test_bad_input_is_one_line_and_2(folder: Path) -> None:
    lines = "\n".join([*BAD, *USAGE])
    command = [sys.executable, "-c", DRIVER]
    done = subprocess.run(
        command,
        cwd=folder,
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=without_privileges,
    )
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.stderr == ""
    assert [(code, out) for code, out, _ in ends] == [(2, "")] * (len(BAD) + len(USAGE))
    for (line, words), (_, _, told) in zip(BAD.items(), ends, strict=False):
        assert told.startswith("coframe: "), line
        assert told.count("\n") == 1, line
        assert [word for word in words if word not in told] == [], line
    for (line, word), (_, _, told) in zip(USAGE.items(), ends[len(BAD) :], strict=True):
        assert word in told, line
        assert "Traceback" not in told, line
    assert not (folder / "new").exists()


def test_a_full_disk_leaves_no_half_file(folder: Path) -> None:
    done = run(folder, "export", "out", "--to", "ply", "-o", "all.ply", prepare=small_disk)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "coframe: all.ply: File too large\n",
    )
    assert not (folder / "all.ply").exists()
    done = run(folder, "register", "scan*.ply", "-o", "full", prepare=small_disk)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("coframe: full/")
    assert done.stderr.count("\n") == 1
    assert not {path.name for path in (folder / "full").iterdir()} & {
        "merged.ply",
        "state.npz",
        "report.html",
    }


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_named_and_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["coframe", "register", "a b", "--resume"])

    def command() -> None:
        with interruptible(tmp_path, False, quiet=True):
            (tmp_path / "checkpoint.db").touch()
            with Path("/dev/full").open("wb") as file:
                write_rows(file, np.zeros(100_000))

    with pytest.raises(typer.Exit) as ended:
        guarded(command)()
    assert ended.value.exit_code == 2
    told = capsys.readouterr().err
    assert told.startswith("coframe: No space left on device; free some space, or choose another")
    assert told.endswith("; go on with: coframe register 'a b' --resume\n")
    assert told.count("\n") == 1


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


def test_sigterm_while_writing_leaves_nothing_and_is_143(tmp_path: Path) -> None:
    slow = "import time; from coframe.cli.app import guarded; from coframe.io.files import atomic\n"
    slow += (
        "def command():\n with atomic('all.ply') as path: print('writing', flush=True);"
        " time.sleep(60)\nguarded(command)()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", slow], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    process.terminate()
    assert process.communicate(timeout=60) == (b"", b"coframe: interrupted\n")
    assert (process.returncode, list(tmp_path.iterdir())) == (143, [])


def test_ctrl_c_while_reading_is_one_line_and_130(folder: Path, tmp_path: Path) -> None:
    """Interrupted as soon as the line on the terminal says that files are read, which takes seconds
    for these.
    """
    for name in "abc":
        (tmp_path / f"{name}.xyz").write_text("1.5 2.25 3.125\n" * 1_500_000)
    shown, terminal = pty.openpty()
    # a run in the background of a shell does not hear Ctrl-C
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    command = [*COMMAND, "register", ".", "-o", "new"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=terminal, start_new_session=True, preexec_fn=heard
    )
    os.close(terminal)
    text = b""
    while b"reading" not in text:
        text += os.read(shown, 1000)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 130
    with suppress(OSError):  # the other end is closed
        while part := os.read(shown, 1000):
            text += part
    os.close(shown)
    assert text.count(b"coframe: interrupted\r\n") == 1
    assert b"Traceback" not in text
    assert not (tmp_path / "new").exists()
