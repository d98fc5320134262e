# SPDX-License-Identifier: MIT
"""Two hands with random commands on one folder at the same time, some of them killed or
interrupted: every command does its work or is refused in one line, and every reader gets a whole
result.

`python -m fuzz.soak --minutes 30 --seed 0`; see docs/reliability.md.
"""

import argparse
import json
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coframe.errors import InputError
from fuzz import counts, workspace
from fuzz.workspace import EXTEND, IDENTITY, REPORT, TURNED, Command, Files, Outcome

FILE = counts.ROOT / "fuzz" / "soak.json"
LOAD: Command = ("load",)
EVALUATE = ("evaluate", "out", "--truth", "truth.json", "--json")
POSES = ("export", "out", "--to", "json", "-o", "seen.json", "-q")
EXPORTS = (workspace.PLY, workspace.MATRIX, workspace.ALIGNED)
# How often each is drawn.
COMMANDS: dict[Command, float] = {
    IDENTITY: 2,
    TURNED: 2,
    (*IDENTITY, "--no-report"): 1,
    EXTEND: 3,
    REPORT: 2,
    EVALUATE: 2,
    LOAD: 4,
    POSES: 2,
    **dict.fromkeys(EXPORTS, 1),
}
# [size] Shares of the commands that are left alone, killed, and interrupted by Ctrl-C.
SHARES = (0.75, 0.15, 0.1)
# [size, s] The usual duration of a command, over which kills are drawn.
USUAL = 6.0


@dataclass
class Soak:
    """What both hands share."""

    root: Path
    known: set[str | None] = field(default_factory=set)  # fingerprints of all possible results
    poses: set[bytes] = field(default_factory=set)  # and their poses as `export` writes them
    foreign: Files = field(default_factory=dict)
    deadline: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)
    processes: set[int] = field(default_factory=set)  # of all commands so far
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, command: Command, outcome: str, defects: list[str]) -> None:
        with self.lock:
            self.outcomes[f"{command[0]}: {'defect' if defects else outcome}"] += 1
            self.defects += [f"{' '.join(command)}: {defect}" for defect in defects]
            for defect in defects:
                print(f"    {' '.join(command)}: {defect}", flush=True)


def work(soak: Soak, draw: random.Random) -> None:
    """One hand: commands until the time is up."""
    commands, weights = list(COMMANDS), list(COMMANDS.values())
    while time.monotonic() < soak.deadline:
        command = draw.choices(commands, weights)[0]
        if command == LOAD:
            soak.note(command, "done", load(soak))
            continue
        end = draw.choices((0, signal.SIGKILL, signal.SIGINT), SHARES)[0]
        outcome = run(soak, command, end, draw.uniform(0, USUAL))
        name, defects = judge(soak, command, outcome, end)
        soak.note(command, name, defects + load(soak) + check_foreign(soak))


def run(soak: Soak, command: Command, end: int, after: float) -> Outcome:
    """A command in a process of its own that gets a signal after a while, if any."""
    process = workspace.start(soak.root, command)
    with soak.lock:
        soak.processes.add(process.pid)
    if end:
        with suppress(subprocess.TimeoutExpired):
            process.wait(after)
        process.send_signal(end)
    return workspace.finish(process)


def judge(soak: Soak, command: Command, outcome: Outcome, end: int) -> tuple[str, list[str]]:
    """A name for how a command ended, and what is wrong with that."""
    if outcome.code == 0:
        return "done", workspace.check_message(outcome, (0,))
    if outcome.code == -end:
        return ("killed", []) if end == signal.SIGKILL else ("interrupted", [])
    if end == signal.SIGINT and outcome.code == 130:
        return "interrupted", workspace.check_message(outcome, (130,))
    defects = workspace.check_message(outcome, (2,))
    if any(str(process) in outcome.err for process in soak.processes):
        return "refused, another one writes", defects
    if command == EXTEND and "not in out yet" in outcome.err:
        return "refused, is in the result already", defects
    return "failed", [*defects, f"refused without a reason: {outcome.err.strip()!r}"]


def load(soak: Soak) -> list[str]:
    """Defects of the result and of exported poses as a reader finds them now."""
    defects = []
    try:
        if workspace.fingerprint(soak.root / "out") not in soak.known:
            defects.append(f"mix: the result is none of the {len(soak.known)} known ones")
    except InputError as error:
        defects.append(f"lost: the result does not load: {error}")
    except Exception as error:
        defects.append(f"lost: the result does not load: {type(error).__name__}: {error}")
    seen = soak.root / "seen.json"
    if seen.exists() and seen.read_bytes() not in soak.poses:
        defects.append("mix: the exported poses are those of no known result")
    return defects


def check_foreign(soak: Soak) -> list[str]:
    """Defects: inputs and other people's files that have changed."""
    defects = []
    for name, file in soak.foreign.items():
        path = soak.root / name
        if not path.exists():
            defects.append(f"touched: {name} is gone")
        elif workspace.file_at(path) != file:
            defects.append(f"touched: {name} has changed")
    return defects


def begin(root: Path) -> Soak:
    """The workspace, and all results that the commands can lead to."""
    workspace.build(root)
    soak = Soak(root)
    for command in (TURNED, EXTEND, IDENTITY, EXTEND):
        run_well(root, command)
        soak.known.add(workspace.fingerprint(root / "out"))
        run_well(root, POSES)
        soak.poses.add((root / "seen.json").read_bytes())
    if len(soak.known) != 4:
        raise SystemExit(f"expected 4 results that differ, found {len(soak.known)}")
    run_well(root, workspace.ALIGNED)
    for name in ("out", "moved"):
        workspace.plant(root / name)
    files = workspace.files_of(root)
    foreign = workspace.foreign_files(files) - {"seen.json"}
    soak.foreign = {name: files[name] for name in foreign}
    return soak


def run_well(root: Path, command: Command) -> None:
    outcome = workspace.Process()(root, command)
    if outcome.code:
        raise SystemExit(f"{' '.join(command)}: {outcome.err}")


def finish(soak: Soak) -> None:
    """When both hands rest, one more run leaves the folder in order."""
    run_well(soak.root, IDENTITY)
    run_well(soak.root, workspace.ALIGNED)
    left = [
        f"left over: {name}"
        for name in workspace.files_of(soak.root)
        if Path(name).name.startswith((workspace.HIDDEN, "checkpoint.db"))
    ]
    soak.note(IDENTITY, "done at the end", load(soak) + check_foreign(soak) + left)


def run_both(soak: Soak, seconds: float, seed: str) -> None:
    soak.deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(2) as hands:
        ends = [hands.submit(work, soak, random.Random(f"{seed} {hand}")) for hand in (0, 1)]
        try:
            for end in ends:
                end.result()
        finally:
            soak.deadline = 0.0  # Neither goes on alone.


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=7200.0, help="of this run, at most")
    parser.add_argument(
        "--resume", action="store_true", help="count earlier runs, and run what is missing"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, default=FILE, help="JSON file for the counts")
    given = parser.parse_args()
    record: dict[str, Any] = {"minutes": 0.0, "outcomes": {}, "defects": [], "commits": {}}
    if given.resume and given.record.exists():
        record = json.loads(given.record.read_text())
    print(f"seed {given.seed}; {counts.commit()}", flush=True)
    seconds = min(60 * (given.minutes - record["minutes"]), given.seconds)
    if seconds > 0:
        with tempfile.TemporaryDirectory(prefix="coframe-soak-") as scratch:
            soak = begin(Path(scratch, "workspace"))
            began = time.monotonic()
            run_both(soak, seconds, f"{given.seed} {record['minutes']}")
            minutes = (time.monotonic() - began) / 60
            finish(soak)
        add(record, soak, minutes)
        counts.save_json(given.record, record)
    for name, count in record["outcomes"].items():
        print(f"{name:50} {count:8}")
    total = sum(record["outcomes"].values())
    found = len(record["defects"])
    print(f"{total} commands in {record['minutes']:.1f} minutes, {found} defects")
    if found:
        raise SystemExit(f"{found} defects, in {given.record}")


def add(record: dict[str, Any], soak: Soak, minutes: float) -> None:
    """Add a run to what earlier ones counted."""
    record["minutes"] += minutes
    record["outcomes"] = dict(sorted((Counter(record["outcomes"]) + soak.outcomes).items()))
    record["defects"] += soak.defects
    commit = counts.commit()
    record["commits"][commit] = record["commits"].get(commit, 0.0) + minutes


if __name__ == "__main__":
    main()
