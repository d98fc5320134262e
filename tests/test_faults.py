# SPDX-License-Identifier: MIT
"""Commands that are stopped at a file operation: the old result or the new one is whole, nobody's
files are touched, and the same command works at once afterwards.

The operations of a command are counted in an undisturbed run, and then each of them is where a run
ends: by kill -9, on a full disk, or by Ctrl-C. See faults.c and fuzz/workspace.py.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Container, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import faults
import pytest
from scenes import unchecked

from fuzz import workspace
from fuzz.workspace import CASES, Outcome, Reference

pytestmark = pytest.mark.skipif(bool(faults.missing()), reason=faults.missing() or "none")

# Operations after which other files are seen under a name: between them, all that changes are files
# that have no name yet.
SWITCHES = ("rename", "link", "symlink", "unlink", "rmdir")
# What is said when the disk is full after the commit.
COMPLETE = "the new files are complete"
# [size] Operations of a case that are tried where time is short.
FEW = 6
QUICK = ("register-over", "extend", "export-ply", "export-aligned", "report", "track-over", "save")
# Every operation of these is tried in CI, of all others by `make faults`.
MAIN = ("extend", "export-ply", "report")
# Commands of a terminal; Python code has no exit codes.
COMMANDS = [name for name, case in CASES.items() if case.command[0] != "python"]
QUICK_COMMANDS = [name for name in QUICK if name in COMMANDS]


def slow(names: Iterable[str], in_ci: Container[str]) -> list[Any]:
    """Cases of a slow test; those that are not tried in CI are exhaustive."""
    marks = {True: pytest.mark.slow, False: pytest.mark.exhaustive}
    return [pytest.param(name, marks=marks[name in in_ci]) for name in names]


@pytest.fixture(scope="module", autouse=True)
def _quick_checks() -> Iterator[None]:
    with unchecked():
        yield


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A folder in memory: a disk takes its time for each fsync."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="coframe-faults-", dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def library(base: Path) -> Path:
    return faults.compile_library(base)


@pytest.fixture(scope="module")
def server(base: Path, library: Path) -> Iterator[faults.Server]:
    server = faults.Server(library)
    root = base / "warm"
    workspace.build(root)
    for command in (
        workspace.IDENTITY,
        workspace.EXTEND,
        workspace.REPORT,
        (*workspace.MATRIX, "-o", "matrices"),
        (*workspace.TRACK, "-o", "tracked"),
    ):
        server.warm_up(root, command)
    yield server
    server.close()


@pytest.fixture(scope="module")
def referred(base: Path, server: faults.Server):
    """referred(name): what the command of a case does when nothing stops it."""

    @cache
    def made(name: str) -> Reference:
        return workspace.make_reference(CASES[name], base / name, server.run)

    return made


def switches(reference: Reference) -> list[int]:
    """Numbers of the operations that follow a switch, apart from those of the checkpoint, and the
    first and last: a few of them.
    """
    parts = [line.split("\t") for line in reference.operations]
    after = [
        n + 2
        for n, (name, _, path, _) in enumerate(parts[:-1])
        if name in SWITCHES and "checkpoint" not in path
    ]
    found = sorted({1, *after, len(parts)})
    return sorted({found[i * (len(found) - 1) // (FEW - 1)] for i in range(FEW)})


def every(reference: Reference) -> list[int]:
    return list(range(1, len(reference.operations) + 1))


def writes(reference: Reference) -> list[int]:
    """Numbers of the operations that write two bytes or more."""
    parts = [line.split("\t") for line in reference.operations]
    return [n + 1 for n, (_, size, *_) in enumerate(parts) if int(size) > 1]


class Trials:
    """Trials of one case and what they found."""

    def __init__(self, server: faults.Server, reference: Reference, base: Path) -> None:
        self.server, self.reference, self.base = server, reference, base
        self.defects: list[str] = list(reference.defects)
        self.tried, self.stopped, self.bad = 0, 0, 0

    def run(self, n: int, number: int, *, torn: bool = False) -> tuple[Path, Outcome]:
        case = self.reference.case
        root = workspace.copied(self.base / case.name / "prepared", self.base / "trial")
        return root, self.server.run(root, case.command, at=n, number=number, torn=torn)

    def note(self, n: int, stopped: bool, defects: list[str]) -> None:
        self.tried += 1
        self.stopped += stopped
        self.bad += bool(defects)
        name = self.reference.operations[n - 1].replace("\t", " ")
        self.defects += [f"at {n} ({name}): {defect}" for defect in defects]

    def end(self) -> None:
        shown = "\n".join(self.defects[:40])
        assert not self.defects, (
            f"{self.reference.case.name}: {self.bad} of {self.tried} operations, of"
            f" {len(self.reference.operations)} in all\n{shown}"
        )
        # A slow machine may add an operation, such as a checkpoint, to one run and not to another.
        assert self.stopped >= 0.9 * self.tried


def kill(
    server: faults.Server,
    reference: Reference,
    base: Path,
    operations: list[int],
    *,
    torn: bool = False,
) -> None:
    """kill -9 at each operation: old or new, and the same command works."""
    trials = Trials(server, reference, base)
    for n in operations:
        root, outcome = trials.run(n, signal.SIGKILL, torn=torn)
        defects, now = workspace.check_whole(reference, root)
        if not outcome.killed:
            defects += workspace.check_message(outcome, (0,))
        defects += workspace.check_repeated(reference, root, server.run, now)
        trials.note(n, outcome.killed, defects)
    trials.end()


def fill(
    server: faults.Server, reference: Reference, base: Path, operations: list[int], again: list[int]
) -> None:
    """A disk that is full from an operation on: one line and 2, and the old result; or the new one
    when nothing had to be written any more.
    """
    trials = Trials(server, reference, base)
    for n in operations:
        root, outcome = trials.run(n, 0)
        defects, now = workspace.check_whole(reference, root)
        if reference.case.name in COMMANDS:
            defects += workspace.check_message(outcome, (0, 2))
        done = outcome.code == 0 or COMPLETE in outcome.err
        if now != (reference.new if done else reference.old):
            defects.append(f"exit code {outcome.code} does not fit the result")
        if n == 1 and outcome.code == 0:
            defects.append("ends well on a disk that was full from the start")
        if n in again:
            defects += workspace.check_repeated(reference, root, server.run, now)
        trials.note(n, True, defects)
    trials.end()


def interrupt(
    server: faults.Server,
    reference: Reference,
    base: Path,
    operations: list[int],
    again: list[int],
    number: int,
) -> None:
    """A signal at each operation: its exit code, one line, old or new."""
    trials = Trials(server, reference, base)
    for n in operations:
        root, outcome = trials.run(n, number)
        defects, now = workspace.check_whole(reference, root)
        defects += workspace.check_message(outcome, (128 + number,))
        if n in again:
            defects += workspace.check_repeated(reference, root, server.run, now)
        trials.note(n, outcome.code != 0, defects)
    trials.end()


# The faults themselves

OPERATIONS = """
import os, numpy
with open("a", "wb", buffering=0) as file:
    file.write(b"0123456789")
    os.fsync(file.fileno())
os.rename("a", "b")
with open("c", "wb") as file:
    numpy.zeros(2).tofile(file)
os.unlink("b")
"""
LOGGED = ["create /a", "write /a", "fsync /a", "rename /a", "create /c", "fwrite /c", "fclose /c"]


def test_faults_are_those_that_were_asked_for(server, tmp_path) -> None:
    """All operations are seen, and a fault comes before its operation or in the middle of it."""

    def left(**fault: int) -> tuple[Outcome, dict[str, bytes]]:
        root = tmp_path / "faults"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        outcome = server.run(root, ("python", OPERATIONS), **fault)
        return outcome, {path.name: path.read_bytes() for path in root.iterdir()}

    ten, zeros = b"0123456789", bytes(16)
    outcome, files = left()
    operations = [line.split("\t") for line in outcome.operations]
    assert [f"{name} {path}" for name, _, path, _ in operations] == [*LOGGED, "unlink /b"]
    assert (outcome.code, files) == (0, {"c": zeros})
    states = [{}, {"a": b""}, {"a": ten}, {"a": ten}, {"b": ten}, {"b": ten, "c": b""}]
    states += [{"b": ten, "c": b""}, {"b": ten, "c": zeros}]
    for n, state in enumerate(states, start=1):
        outcome, files = left(at=n, number=signal.SIGKILL)
        assert (outcome.killed, files) == (True, state)
    assert left(at=2, number=signal.SIGKILL, torn=True)[1] == {"a": ten[:5]}
    outcome, files = left(at=3)
    assert (outcome.code, files) == (1, {"a": ten})
    assert "No space left on device" in outcome.err
    outcome, files = left(at=5)
    assert (outcome.code, files) == (1, {"b": ten})
    assert left(at=8)[0].code == 0
    assert left(at=3, number=signal.SIGINT)[0].code == 130


# kill -9, full disks, signals


@pytest.mark.parametrize("name", QUICK)
def test_killed_where_names_change(name, referred, server, base) -> None:
    kill(server, referred(name), base, switches(referred(name)))


@pytest.mark.parametrize("name", slow(CASES, MAIN))
def test_killed_at_every_operation(name, referred, server, base) -> None:
    kill(server, referred(name), base, every(referred(name)))


@pytest.mark.parametrize("name", slow(CASES, ["export-ply"]))
def test_killed_in_the_middle_of_every_write(name, referred, server, base) -> None:
    kill(server, referred(name), base, writes(referred(name)), torn=True)


@pytest.mark.parametrize("name", QUICK_COMMANDS)
def test_the_disk_is_full_where_names_change(name, referred, server, base) -> None:
    few = switches(referred(name))[::2]
    fill(server, referred(name), base, few, few[1:2])


@pytest.mark.parametrize("name", slow(CASES, ["export-ply", "report"]))
def test_the_disk_is_full_at_every_operation(name, referred, server, base) -> None:
    reference = referred(name)
    fill(server, reference, base, every(reference), switches(reference))


@pytest.mark.parametrize("name", QUICK_COMMANDS)
def test_ctrl_c_where_names_change(name, referred, server, base) -> None:
    few = switches(referred(name))[::2]
    interrupt(server, referred(name), base, few, few[1:2], signal.SIGINT)


@pytest.mark.parametrize("name", slow(COMMANDS, ["report"]))
def test_ctrl_c_at_every_operation(name, referred, server, base) -> None:
    reference = referred(name)
    interrupt(server, reference, base, every(reference), switches(reference), signal.SIGINT)


@pytest.mark.parametrize("name", slow(COMMANDS, MAIN))
def test_sigterm_where_names_change(name, referred, server, base) -> None:
    few = switches(referred(name))
    interrupt(server, referred(name), base, few, few, signal.SIGTERM)


# What is left is put in order


def recover(server: faults.Server, reference: Reference, base: Path, operations: list[int]) -> None:
    """kill -9, then another command that writes there: every file in the folder, not only what
    `load` reads, is that of the old result, or every file that of the new one.
    """
    trials = Trials(server, reference, base)
    for n in operations:
        root, outcome = trials.run(n, signal.SIGKILL)
        defects, now = workspace.check_whole(reference, root)
        if now is not None:
            defects += workspace.check_message(server.run(root, workspace.REPORT), (0,))
            wanted = reference.after if now == reference.new else reference.before
            files = workspace.files_of(root)
            names = [name for name in wanted if name not in {*reference.varying, REPORT_FILE}]
            defects += [
                f"{name} is not that of the result"
                for name in names
                if name not in files or workspace.contents_differ(files, wanted, name)
            ]
            left = {name for name in files if not name.startswith(CHECKPOINT)}
            left -= {*wanted, REPORT_FILE}
            defects += [f"{name} is left over" for name in sorted(left)]
        trials.note(n, outcome.killed, defects)
    trials.end()


# Written anew by the command; and what an interrupted run goes on from.
REPORT_FILE, CHECKPOINT = "out/report.html", "out/checkpoint.db"
REGISTRATIONS = ("register-over", "extend", "save", "write_folder")


@pytest.mark.parametrize("name", ["extend"])
def test_the_next_command_puts_the_folder_in_order(name, referred, server, base) -> None:
    recover(server, referred(name), base, switches(referred(name)))


@pytest.mark.parametrize("name", slow(REGISTRATIONS, []))
def test_the_next_command_puts_the_folder_in_order_always(name, referred, server, base) -> None:
    recover(server, referred(name), base, every(referred(name)))


# A disk that is full


@pytest.fixture(scope="module")
def disk(base: Path) -> Iterator[Path]:
    """A disk of its own whose size can be changed."""
    folder = base / "disk"
    folder.mkdir()
    done = mount("-t", "tmpfs", "-o", "size=64m", "coframe-test", str(folder))
    if done.returncode:
        pytest.skip(f"needs the right to mount a small disk: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def mount(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)


def resize(disk: Path, free: int | None) -> None:
    """Leave so many bytes free, rounded up to pages; None: many."""
    about = os.statvfs(disk)
    used = (about.f_blocks - about.f_bfree) * about.f_frsize
    size = "64m" if free is None else str(used + -(-free // about.f_frsize) * about.f_frsize)
    mount("-o", f"remount,size={size}", str(disk)).check_returncode()


# [size] Sizes of the disk that are tried, from no space at all to more than enough.
SIZES = 7


@pytest.mark.parametrize(
    "name", ["extend", *slow([name for name in COMMANDS if name != "extend"], MAIN)]
)
def test_a_real_disk_that_is_too_small(name, referred, server, base, disk) -> None:
    """Space for a part of what the command writes: the old result, one line and 2; with space
    again, the command works.
    """
    reference = referred(name)
    written = sum(
        len(file.content)
        for path, file in reference.after.items()
        if path not in reference.untouched
    )
    defects, codes = list(reference.defects), []
    for part in range(SIZES):
        root = workspace.copied(base / name / "prepared", disk / "trial")
        resize(disk, round(2.2 * written * part / (SIZES - 1)))
        outcome = server.run(root, reference.case.command)
        codes.append(outcome.code)
        found, now = workspace.check_whole(reference, root)
        found += workspace.check_message(outcome, (0, 2))
        done = outcome.code == 0 or COMPLETE in outcome.err
        if now != (reference.new if done else reference.old):
            found.append(f"exit code {outcome.code} does not fit the result")
        resize(disk, None)
        found += workspace.check_repeated(reference, root, server.run, now)
        defects += [f"disk {part} of {SIZES - 1}: {each}" for each in found]
    assert defects == []
    assert codes[0] == 2


# Two at once


@pytest.mark.parametrize("share", [0.1, pytest.param(0.6, marks=pytest.mark.slow)])
def test_a_second_writer_is_refused_by_name(share, referred, server, base, library) -> None:
    """One process is stopped while it writes: others are refused in one line that names it, readers
    get a whole result, and nothing is in the way once it is dead.
    """
    reference = referred("register-over")
    root = workspace.copied(base / "register-over" / "prepared", base / "frozen")
    environment = {
        "LD_PRELOAD": str(library),
        "FAULTS_FOLDER": str(root),
        "FAULTS_AT": str(int(share * len(reference.operations))),
        "FAULTS_SIGNAL": str(int(signal.SIGSTOP)),
        "FAULTS_LOG": str(base / "frozen.log"),
    }
    process = workspace.start(root, reference.case.command, environment)
    try:
        wait_until_stopped(process)
        for command in (workspace.TURNED, workspace.EXTEND, workspace.REPORT):
            outcome = server.run(root, command)
            assert workspace.check_message(outcome, (2,)) == []
            assert str(process.pid) in outcome.err
            assert workspace.check_whole(reference, root)[0] == []
    finally:
        process.kill()
        process.communicate()
    defects, now = workspace.check_whole(reference, root)
    assert defects == []
    assert workspace.check_repeated(reference, root, server.run, now) == []


def wait_until_stopped(process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + workspace.LONGEST
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "T":
            return
        time.sleep(0.02)
    raise AssertionError("the process did not come to the operation")


# Power cuts


@pytest.mark.parametrize("name", QUICK)
def test_what_gets_a_name_is_on_the_disk(name, referred) -> None:
    """A file is synced after its last write and before it is renamed: after a power cut, a name
    would otherwise stand for an empty file.
    """
    unsynced: set[str] = set()
    defects = []
    for line in referred(name).operations:
        operation, _, path, other = line.split("\t")
        if operation in ("fsync", "fdatasync"):
            unsynced.discard(path)
        elif "write" in operation or operation in ("fclose", "sendfile", "copy_file_range"):
            unsynced.add(path)
        elif operation == "unlink":
            unsynced.discard(path)
        elif operation in ("rename", "link"):
            defects += [
                f"{file} becomes {other} before it is synced"
                for file in unsynced
                if file == path or file.startswith(f"{path}/")
            ]
    assert defects == []
    assert not {file for file in unsynced if file.strip("/") in referred(name).after}
