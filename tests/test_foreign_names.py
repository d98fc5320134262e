# SPDX-License-Identifier: MIT
"""Names that strangers chose: they reach a terminal as text, and JSON that every parser reads."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coframe
from coframe.data import simulate
from coframe.io import ply
from coframe.io import poses as pose_files

pty = pytest.importorskip("pty", reason="needs terminals as POSIX has them")
COMMAND = [sys.executable, "-m", "coframe"]
# Titles of windows, colours, new lines, mirrored text, bytes that are no UTF-8.
NAMES = [
    b"a\x1b]0;owned\x07.ply",
    b"b\nOK \xc2\x9b31m.ply",
    b"c\xe2\x80\xaetxt.ply",
    b"d\xff\xe2\x80\xa8.ply",
]
SHOWN = [r"a\x1b]0;owned\x07", r"b\x0aOK \x9b31m", r"c\u202etxt", r"d\xff\u2028"]
# What a terminal acts on, all but the end of a line.
ACTIVE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def run(folder: Path, *arguments: str | bytes) -> tuple[int, str, str]:
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, check=False)
    out, err = done.stdout.decode("utf-8"), done.stderr.decode("utf-8")  # strictly
    assert ACTIVE.findall(out + err) == []
    return done.returncode, out, err


def texts(content: Any) -> list[str]:
    """All strings of a JSON object."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):
        return [text for pair in content.items() for each in pair for text in texts(each)]
    return [text for each in content for text in texts(each)] if isinstance(content, list) else []


def strict(text: str) -> Any:
    """JSON as a strict parser reads it: no NaN, and text that can be encoded."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    content = json.loads(text, parse_constant=refuse)
    for each in texts(content):
        each.encode("utf-8")
    return content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scans with hostile names, and a result of them that the command line made."""
    folder = tmp_path_factory.mktemp("names")
    scene = simulate.scene(4, 150, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    (folder / "scans").mkdir()
    for name, cloud in zip(NAMES, scene.clouds, strict=True):
        ply.write(folder / "scan.ply", cloud)
        (folder / "scan.ply").rename(folder / "scans" / os.fsdecode(name))
    code, out, err = run(folder, "register", "scans", "-o", "out", "--json")
    assert (code in (0, 1), err) == (True, "")
    (folder / "shown.json").write_text(out, encoding="utf-8")
    return folder


def test_json_is_valid_and_names_are_readable(folder: Path) -> None:
    content = strict((folder / "shown.json").read_text("utf-8"))
    assert [cloud["name"] for cloud in content["clouds"]] == SHOWN
    for name in ("poses.json", "run.json"):
        strict((folder / "out" / name).read_text("utf-8"))


def test_tables_and_lists_are_text(folder: Path) -> None:
    code, out, _ = run(folder, "evaluate", "out", "--truth", "out/poses.json")
    assert code == 0
    assert all(name in out for name in SHOWN)
    code, out, _ = run(folder, "export", "out", "--to", "aligned", "-o", b"al\x1b[31m\xffigned")
    assert code == 0
    assert r"al\x1b[31m\xffigned" in out


def test_the_files_are_found_again(folder: Path, tmp_path: Path) -> None:
    """Names on the screen are escaped; the result knows the files by their true names."""
    result = coframe.load(folder / "out")
    assert [os.fsencode(Path(file).name) for file in result.files] == NAMES
    assert list(result.names) == SHOWN
    code, _, _ = run(folder, "export", "out", "--to", "aligned", "-o", str(tmp_path / "copies"))
    assert (code, len(list((tmp_path / "copies").iterdir()))) == (0, 4)
    poses = pose_files.read_for(folder / "out" / "poses.json", result.names)
    assert np.array_equal(poses, result.poses)


def test_poses_go_round_through_the_command_line(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "scans", tmp_path / "scans")
    code, out, err = run(
        tmp_path,
        *("register", "scans", "-o", "out", "--method", "paper", "--no-report"),
        *("--poses", str(folder / "out" / "poses.json")),
    )
    assert (code in (0, 1), err) == (True, "")
    assert all(name in out for name in SHOWN)


# Runs one command line after the other in one process, and says how each ended.
DRIVER = """
import contextlib, io, json, sys
from coframe.cli import main
for arguments in json.load(sys.stdin):
    out, err, sys.argv = io.StringIO(), io.StringIO(), ["coframe", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as exit:
            print(json.dumps([exit.code, out.getvalue(), err.getvalue()]), file=sys.__stdout__)
"""
ERRORS: list[tuple[list[str | bytes], str]] = [
    (["register", b"x\x1b[31m\ny\xff.ply", "scans", "-o", "new"], r"x\x1b[31m\x0ay\xff.ply"),
    (["register", "scans", "-o", b"scans/a\x1b]0;owned\x07.ply"], r"a\x1b]0;owned\x07.ply"),
    (["register", "scans", "-o", "new", "--poses", b"p\x1b[2J"], r"p\x1b[2J"),
    (["register", "scans", "-o", "new", "--start", b"s\x1b[2J"], r"s\x1b[2J"),
    (["export", b"e\xe2\x80\xae", "--to", "ply"], r"e\u202e"),
    ([b"c\x1b[2J"], r"c\x1b[2J"),
    (["register", b"--o\x1b[2J"], r"--o\x1b[2J"),
    (["register", b"--o\xe2\x80\xae"], r"--o\u202e"),
    (["demo", "--points", b"n\x1b[2J\xe2\x80\xae"], "--points"),
    (["demo", "--points", b"n\xff"], "--points"),
]


def test_errors_are_one_line_of_text(folder: Path) -> None:
    lines = [[os.fsdecode(word) for word in arguments] for arguments, _ in ERRORS]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=folder,
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    for (arguments, word), (code, out, err) in zip(ERRORS, ends, strict=True):
        assert (code, out) == (2, ""), arguments
        assert word in err, arguments
        assert ACTIVE.findall(err) == [], arguments
        err.encode("utf-8")
    assert not (folder / "new").exists()


def test_an_error_is_valid_json_too(folder: Path) -> None:
    code, out, _ = run(folder, "export", b"e\xff\x1b[2J", "--to", "ply", "--json")
    assert (code, strict(out)["exit_code"]) == (2, 2)


def test_progress_is_text(folder: Path) -> None:
    """On a terminal, which shows what is being read."""
    shown, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "register", "scans", "-o", "shown", "--start", "match", "--no-report"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    )
    os.close(terminal)
    text = b""
    while b"matching" not in text and b"iteration" not in text:
        text += os.read(shown, 1000)
    process.kill()
    process.wait()
    os.close(shown)
    assert b"reading" in text
    assert b"\x1b]0;owned" not in text
    assert b"\nOK" not in text
    assert b"\xe2\x80\xae" not in text


def test_a_terminal_without_unicode_gets_escapes(folder: Path) -> None:
    """Python's encoding of stdout may hold few characters."""
    done = subprocess.run(
        [*COMMAND, "export", "out", "--to", "matrix", "-o", "\N{GREEK SMALL LETTER ALPHA}"],
        cwd=folder,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"\\u03b1\n")


def test_a_track_of_such_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "frames").mkdir()
    for name in NAMES:
        ply.write(tmp_path / "scan.ply", rng.normal(size=(20, 3)))
        (tmp_path / "scan.ply").rename(tmp_path / "frames" / os.fsdecode(name))
    code, out, err = run(tmp_path, "track", "frames", "-o", "out", "--json")
    assert (code, err) == (0, "")
    names = [name.removesuffix(".ply") for name in strict(out)["lost"]]
    assert set(names) <= set(SHOWN)
    assert names
    strict((tmp_path / "out" / "track.json").read_text("utf-8"))


def test_messages_of_the_library_are_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "x\x1b[31m\n\udcff.ply"
    with pytest.raises(coframe.InputError) as caught:
        coframe.register([missing, tmp_path / "y.ply"])
    assert ACTIVE.search(str(caught.value)) is None
    assert "\n" not in str(caught.value)
    str(caught.value).encode("utf-8")
