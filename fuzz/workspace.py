# SPDX-License-Identifier: MIT
"""A folder with scans, results and other people's files; the commands that write there; and how to
see whether anything was lost or touched after one of them was stopped.
"""

import dataclasses
import enum
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from coframe.data import simulate
from coframe.errors import InputError
from coframe.io import ply
from coframe.io import poses as pose_files

# Files that say when or how long a command ran; two runs may agree in them by chance.
TIMED = ("run.json", "report.html", "manifest.json")
# How names begin that coframe makes for a while beside its results.
HIDDEN = ".coframe"
EXPORTS = ".coframe-exports"  # a list that stays
# [limit, s] A command that takes longer hangs: each takes a few seconds on a busy machine.
LONGEST = 120.0
# [size] Points of a scan, views, components: few, since a trial is two runs or more.
POINTS, VIEWS, COMPONENTS = 120, 4, "20"
# [size] Points of a frame of a sequence: with fewer, all are lost, and nothing is written of them.
FRAME_POINTS = 300
QUICK = ("--threads", "1", "-q")
REGISTER = ("register", "scans", "-o", "out", "--components", COMPONENTS, *QUICK)
IDENTITY = (*REGISTER, "--start", "identity")
# The same clouds from poses that are turned by 70 degrees: another common frame.
TURNED = (*REGISTER, "--start", "identity", "--poses", "turned.json")
EXTEND = ("extend", "out", "new.ply", *QUICK)
REPORT = ("report", "out", "-q")
TRACK = ("track", "frames", "-o", "out", "--points", "200", *QUICK)
# Folders of results, and of exports, in the workspace.
RESULTS = ("out", "fresh", "moved", "other")
# A command line, or ("python", code).
Command = tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int  # as subprocess gives it: negative for a signal
    out: str = ""
    err: str = ""
    operations: tuple[str, ...] = ()  # counted by faults.c, if it was there
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


Run = Callable[[Path, Command], Outcome]


@dataclass(frozen=True)
class Case:
    """A command, and what it finds in its folder."""

    name: str
    command: Command
    before: tuple[Command, ...] = ()
    target: str = "out"  # the folder of the result
    sequence: bool = False  # whether it is a result of `track`
    files: bool = False  # whether files are written one by one, beside a result that stays
    again: Command = ()  # instead of the command where it cannot be repeated once it is done

    @property
    def fingerprint(self) -> Callable[[Path], str | None]:
        return partial(fingerprint, sequence=self.sequence)


def _python(code: str) -> Command:
    return ("python", f"import coframe\nfrom coframe import report\n{code}")


def _moved_to(folder: str) -> Command:
    return ("python", f"import pathlib; pathlib.Path('out').rename({folder!r})")


def _exports(*command: str) -> tuple[Command, ...]:
    """An export of an earlier result, then a result that differs from it."""
    return (TURNED, command, IDENTITY)


PLY = ("export", "out", "--to", "ply", "-q")
ALIGNED = ("export", "out", "--to", "aligned", "-o", "moved", "--inputs", ".", "-q")
MATRIX = ("export", "out", "--to", "matrix", "-q")
CASES = {
    case.name: case
    for case in (
        Case("register", IDENTITY),
        Case("register-new", (*IDENTITY, "-o", "fresh"), target="fresh"),
        Case("register-over", IDENTITY, (TURNED,)),
        Case("register-no-report", (*IDENTITY, "--no-report"), (TURNED,)),
        Case("extend", EXTEND, (IDENTITY,), again=REPORT),
        Case("export-ply", PLY, _exports(*PLY), files=True),
        Case("export-aligned", ALIGNED, _exports(*ALIGNED), files=True),
        Case("export-matrix", MATRIX, _exports(*MATRIX), files=True),
        Case("report", REPORT, (IDENTITY,), files=True),
        Case("report-new", REPORT, ((*IDENTITY, "--no-report"),), files=True),
        Case("track", TRACK, sequence=True),
        Case("track-over", TRACK, ((*TRACK, "--seed", "1"),), sequence=True),
        Case(
            "save",
            _python("coframe.load('other').save('out')"),
            (TURNED, _moved_to("other"), IDENTITY),
        ),
        Case(
            "write_folder",
            _python("report.write_folder(coframe.load('other'), 'out')"),
            (TURNED, _moved_to("other"), IDENTITY),
        ),
        Case(
            "track-save",
            _python("coframe.Track.load('other').save('out')"),
            ((*TRACK, "--seed", "1"), _moved_to("other"), TRACK),
            sequence=True,
        ),
    )
}


# The workspace


def build(root: Path) -> None:
    """Scans, another scan, start poses, and a sequence."""
    for name, points in (("frames", FRAME_POINTS), ("scans", POINTS)):
        rng = np.random.default_rng(1)
        scene = simulate.scene(VIEWS, points, degrees=50.0, noise_db=50.0, rng=rng)
        (root / name).mkdir(parents=True)
        for j, cloud in enumerate(scene.clouds[:-1]):
            ply.write(root / name / f"scan{j}.ply", cloud)
    ply.write(root / "new.ply", scene.clouds[-1])
    turn = coframe.geometry.exp(np.array([0.0, np.deg2rad(70), 0.0, 0.3, 0.0, 0.0]))
    names = [f"scan{j}" for j in range(VIEWS - 1)]
    pose_files.write(root / "turned.json", names, np.array([turn] * len(names)))
    pose_files.write(root / "truth.json", [*names, "new"], scene.poses)


def plant(folder: Path) -> None:
    """Other people's files, some with names that begin or end as coframe's do."""
    contents = {
        "notes.txt": b"scanned on a rainy day\n",
        "poses.txt": b"1 2 3\n",
        "model-of-a-friend.ply": b"ply\n",
        ".hidden": b"a secret\n",
        "photos/first.jpg": bytes(range(256)),
        "photos/poses.json": b"{}",
        "scans/raw.ply": b"ply of the scanner\n",
    }
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1e9, 1e9))
    (folder / "empty").mkdir()


def prepare(case: Case, root: Path, run: Run) -> None:
    """The workspace as the command finds it, with other people's files in every folder."""
    build(root)
    for command in case.before:
        outcome = run(root, command)
        if outcome.code:
            raise RuntimeError(f"{case.name}: {' '.join(command)} ended with {outcome}")
    (root / "out").mkdir(exist_ok=True)
    for name in ("out", "moved"):
        if (root / name).exists():
            plant(root / name)


@dataclass(frozen=True)
class File:
    """A file, or a folder, whose time changes with its files and does not count."""

    mode: int
    time: int
    content: bytes


Files = Mapping[str, File]


def files_of(root: Path) -> Files:
    """All files and folders, hidden ones among them, by their paths from the root.

    But for the list of exports, whose end may be a line that was cut, which does no harm.
    """
    found = [path for path in sorted(root.rglob("*")) if path.name != EXPORTS]
    return {path.relative_to(root).as_posix(): file_at(path) for path in found}


def file_at(path: Path) -> File:
    about = path.lstat()
    if stat.S_ISREG(about.st_mode):
        return File(about.st_mode, about.st_mtime_ns, path.read_bytes())
    return File(about.st_mode, 0, b"")


# What a result is


def fingerprint(folder: Path, *, sequence: bool = False) -> str | None:
    """A digest of all that a result loads as, None where there is no result.

    Raises what `load` raises where there are files of a result that do not load.
    """
    try:
        result = coframe.Track.load(folder) if sequence else coframe.load(folder)
    except InputError:
        if any((folder / name).exists() for name in ("state.npz", "manifest.json", "poses.json")):
            raise
        return None
    if isinstance(result, coframe.Registration):
        result = replace(result, elsewhere=False)  # The folders of trials are copies.
    digest = hashlib.sha256()
    for part in _parts(result, folder):
        digest.update(part)
    return digest.hexdigest()[:16]


def _parts(value: Any, folder: Path) -> Iterator[bytes]:
    """All bits of a value, with types and shapes."""
    yield type(value).__name__.encode()
    if isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, enum.Enum):
        yield value.name.encode()
    elif dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            yield each.name.encode()
            inside = getattr(value, each.name)
            if each.name == "files":
                inside = [os.path.relpath(file, folder) for file in inside]
            yield from _parts(inside, folder)
    elif isinstance(value, Mapping):
        for key in value:
            yield str(key).encode()
            yield from _parts(value[key], folder)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield str(len(value)).encode()
        for each in value:
            yield from _parts(each, folder)
    else:
        yield repr(value).encode()


@dataclass(frozen=True)
class Reference:
    """A command that nothing stopped: what it found and what it left."""

    case: Case
    before: Files
    after: Files
    varying: frozenset[str]  # files that differ from run to run, such as those with times in them
    old: str | None
    new: str | None
    operations: tuple[str, ...]
    seconds: float
    defects: tuple[str, ...] = ()  # of an undisturbed run

    @property
    def untouched(self) -> list[str]:
        """Files that the command leaves alone."""
        return [name for name, file in self.before.items() if self.after.get(name) == file]


def make_reference(case: Case, folder: Path, run: Run) -> Reference:
    """Prepare `folder/prepared`, and run the command on two copies of it."""
    prepared = folder / "prepared"
    prepare(case, prepared, run)
    outcomes, ends = [], []
    for name in ("first", "second"):
        root = copied(prepared, folder / name)
        outcomes.append(run(root, case.command))
        ends.append(files_of(root))
    before, after, other = files_of(prepared), *ends
    varying = {name for name in after if name not in other or contents_differ(after, other, name)}
    if not case.files:
        varying |= {name for name in after if Path(name).name in TIMED}
    defects = [f"exit code {outcomes[0].code}: {outcomes[0].err}"] if outcomes[0].code else []
    new = None
    try:
        new = case.fingerprint(folder / "first" / case.target)
    except InputError as error:
        defects.append(f"lost: the result does not load: {error}")
    reference = Reference(
        case,
        before,
        after,
        frozenset(varying),
        case.fingerprint(prepared / case.target),
        new,
        outcomes[0].operations,
        outcomes[0].seconds,
    )
    planted = foreign_files(before)
    touched = sorted(planted - set(reference.untouched))
    defects += [f"touches {', '.join(touched)}"] if touched else []
    added = [name for name in after if name not in before and beside_planted(name)]
    defects += [f"adds {', '.join(added)}"] if added else []
    defects += [f"leaves {name}" for name in after if Path(name).name.startswith(HIDDEN)]
    if not case.files and reference.old == reference.new:
        defects.append("the new result does not differ from the old one")
    return dataclasses.replace(reference, defects=tuple(defects))


def copied(prepared: Path, root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(prepared, root, symlinks=True)
    return root


def contents_differ(one: Files, other: Files, name: str) -> bool:
    return (one[name].mode, one[name].content) != (other[name].mode, other[name].content)


def foreign_files(files: Files) -> set[str]:
    """The inputs and what `plant` planted."""
    inputs = {name for name in files if name.split("/")[0] not in RESULTS}
    names = ("notes.txt", "poses.txt", "model-of-a-friend.ply", ".hidden", "empty")
    planted = {f"{folder}/{name}" for folder in ("out", "moved") for name in names}
    return inputs | (planted & set(files)) | {name for name in files if beside_planted(name)}


def beside_planted(name: str) -> bool:
    """Whether a file is in a folder of other people, or among the inputs."""
    parts = name.split("/")
    if parts[0] in ("out", "moved"):
        return len(parts) > 2 and parts[1] in ("photos", "scans", "empty")
    return parts[0] in ("scans", "frames") and len(parts) > 1


# Checks


def check_untouched(reference: Reference, files: Files) -> list[str]:
    """Defects: files that are not the command's business and have changed."""
    defects = []
    for name in reference.untouched:
        if name not in files:
            defects.append(f"touched: {name} is gone")
        elif files[name] != reference.before[name]:
            defects.append(f"touched: {name} has changed")
    new = [name for name in files if name not in reference.before and beside_planted(name)]
    return defects + [f"touched: {name} is new" for name in new]


def check_whole(reference: Reference, root: Path) -> tuple[list[str], str | None]:
    """Defects of the folder of a command that was stopped, and what its result is now."""
    files = files_of(root)
    defects = check_untouched(reference, files)
    now: str | None = None
    try:
        now = reference.case.fingerprint(root / reference.case.target)
    except InputError as error:
        # Without an old result, a folder without a whole one is as good as empty.
        if reference.old is not None:
            defects.append(f"lost: the result does not load: {error}")
    except Exception as error:
        defects.append(f"lost: the result does not load: {type(error).__name__}: {error}")
    else:
        if now not in (reference.old, reference.new):
            defects.append("mix: the result is neither the old nor the new one")
    if reference.case.files:
        defects += check_files(reference, files)
    return defects, now


def check_files(reference: Reference, files: Files) -> list[str]:
    """Defects: files that are neither as before nor as the whole command leaves them."""
    defects = []
    for name in reference.after:
        if name in reference.untouched or name in reference.varying or name not in files:
            continue
        known = {each[name].content for each in (reference.before, reference.after) if name in each}
        if files[name].content not in known:
            defects.append(f"half: {name} is neither the old nor the new file")
    gone = [name for name in reference.before if name in reference.after and name not in files]
    return defects + [f"lost: {name} is gone" for name in gone if name not in reference.untouched]


def check_repeated(reference: Reference, root: Path, run: Run, now: str | None) -> list[str]:
    """Defects after the same command has run again: it ends well, with the same result and the same
    files as if nothing had happened.
    """
    case = reference.case
    done = now == reference.new
    command = case.again if case.again and done else case.command
    outcome = run(root, command)
    if outcome.code:
        return [f"again: exit code {outcome.code}: {outcome.err.strip()[-300:]}"]
    files = files_of(root)
    defects = check_untouched(reference, files)
    try:
        if case.fingerprint(root / reference.case.target) != reference.new:
            defects.append("again: the result is not the new one")
    except Exception as error:
        defects.append(f"again: the result does not load: {type(error).__name__}: {error}")
    left = sorted(set(files) - set(reference.after))
    missing = sorted(set(reference.after) - set(files))
    defects += [f"again: {name} is left over" for name in left]
    defects += [f"again: {name} is missing" for name in missing]
    changed = [
        name
        for name in sorted(set(files) & set(reference.after) - reference.varying)
        if contents_differ(files, reference.after, name)
    ]
    return defects + [f"again: {name} is not that of the new result" for name in changed]


def check_message(outcome: Outcome, codes: Sequence[int]) -> list[str]:
    """Defects: another exit code, no message or one that is more than a line, a traceback."""
    defects = []
    if outcome.code not in codes:
        defects.append(f"exit code {outcome.code}, not {' or '.join(map(str, codes))}")
    if "Traceback" in outcome.err + outcome.out:
        defects.append(f"traceback: {outcome.err.strip().splitlines()[-1]}")
    elif outcome.code not in (0, 1) and outcome.code > 0:
        lines = outcome.err.splitlines()
        if len(lines) != 1 or not lines[0].startswith("coframe: "):
            defects.append(f"not one line: {outcome.err!r}")
        if "bug in coframe" in outcome.err:
            defects.append(f"called a bug: {outcome.err.strip()}")
    return defects


# Processes of their own


@dataclass
class Process:
    """Commands in processes of their own, one after the other."""

    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, root: Path, command: Command) -> Outcome:
        return finish(start(root, command, self.environment))


def start(
    root: Path, command: Command, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    python = command[0] == "python"
    argv = [sys.executable, *(["-c", command[1]] if python else ["-m", "coframe", *command])]
    return subprocess.Popen(
        argv,
        cwd=root,
        env=os.environ | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]", seconds: float = LONGEST) -> Outcome:
    """Wait for the end; a process that takes too long is killed and counts as hanging (code 124, as
    timeout(1) has it).
    """
    began = time.monotonic()
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return Outcome(124, out, f"{err}\nhangs", seconds=seconds)
    return Outcome(process.returncode, out, err, seconds=time.monotonic() - began)
