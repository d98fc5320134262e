# SPDX-License-Identifier: MIT
"""Commands that are stopped at a file operation: the old result or the new one is whole, nobody's
files are touched, and the same command works at once afterwards.

The operations of a command are counted in an undisturbed run, and then each of them is where a run
ends: by kill -9, on a full disk, or by Ctrl-C. See faults.c and fuzz/workspace.py.
"""

import os
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import faults
import pytest
from scenes import unchecked

from fuzz import workspace
from fuzz.workspace import CASES, Outcome, Reference

pytestmark = pytest.mark.skipif(bool(faults.missing()), reason=faults.missing() or "none")

# Operations after which other files are seen under a name: between them, all that changes are files
# that have no name yet.
SWITCHES = ("rename", "unlink", "link", "symlink", "rmdir", "mkdir")
# [size] Operations of a case that are tried where time is short.
FEW = 7
QUICK = ("register-over", "extend", "export-ply", "export-aligned", "report", "track-over", "save")
# Commands of a terminal; Python code has no exit codes.
COMMANDS = [name for name, case in CASES.items() if case.command[0] != "python"]
QUICK_COMMANDS = [name for name in QUICK if name in COMMANDS]


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
    """Numbers of the operations that follow a switch, and the first and last: a few of them."""
    names = [line.split("\t")[0] for line in reference.operations]
    after = [n + 2 for n, name in enumerate(names[:-1]) if name in SWITCHES]
    found = sorted({1, *after, len(names)})
    step = max(1, (len(found) - 1) / (FEW - 1))
    return sorted({found[min(round(i * step), len(found) - 1)] for i in range(FEW)})


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
        self.tried, self.stopped = 0, 0

    def run(self, n: int, number: int, *, torn: bool = False) -> tuple[Path, Outcome]:
        case = self.reference.case
        root = workspace.copied(self.base / case.name / "prepared", self.base / "trial")
        return root, self.server.run(root, case.command, at=n, number=number, torn=torn)

    def note(self, n: int, stopped: bool, defects: list[str]) -> None:
        self.tried += 1
        self.stopped += stopped
        name = self.reference.operations[n - 1].replace("\t", " ")
        self.defects += [f"at {n} ({name}): {defect}" for defect in defects]

    def end(self) -> None:
        shown = "\n".join(self.defects[:40])
        bad = len({defect.split(" ")[1] for defect in self.defects})
        assert not self.defects, (
            f"{self.reference.case.name}: {bad} of {self.tried} operations, of"
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
        if CASES[reference.case.name].command[0] != "python":
            defects += workspace.check_message(outcome, (0, 2))
        wanted = reference.new if outcome.code == 0 else reference.old
        if now != wanted:
            defects.append(f"exit code {outcome.code} does not fit the result")
        if n in again:
            defects += workspace.check_repeated(reference, root, server.run, now)
        trials.note(n, outcome.code != 0 or n > 1, defects)
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


@pytest.mark.parametrize("name", QUICK)
def test_killed_where_names_change(name, referred, server, base) -> None:
    kill(server, referred(name), base, switches(referred(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_killed_at_every_operation(name, referred, server, base) -> None:
    kill(server, referred(name), base, every(referred(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_killed_in_the_middle_of_every_write(name, referred, server, base) -> None:
    kill(server, referred(name), base, writes(referred(name)), torn=True)


@pytest.mark.parametrize("name", QUICK_COMMANDS)
def test_the_disk_is_full_where_names_change(name, referred, server, base) -> None:
    few = switches(referred(name))
    fill(server, referred(name), base, few, few[::3])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_disk_is_full_at_every_operation(name, referred, server, base) -> None:
    reference = referred(name)
    fill(server, reference, base, every(reference), switches(reference))


@pytest.mark.parametrize("name", QUICK_COMMANDS)
def test_ctrl_c_where_names_change(name, referred, server, base) -> None:
    few = switches(referred(name))
    interrupt(server, referred(name), base, few, few[::3], signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_every_operation(name, referred, server, base) -> None:
    reference = referred(name)
    interrupt(server, reference, base, every(reference), switches(reference), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_sigterm_where_names_change(name, referred, server, base) -> None:
    few = switches(referred(name))
    interrupt(server, referred(name), base, few, few[::3], signal.SIGTERM)
