# SPDX-License-Identifier: MIT
"""kill -9 at random moments of real commands: afterwards the old result or the new one is whole,
nobody's files are touched, and the same command works.

`python -m fuzz.kills --trials 200 --seed 0`; see docs/reliability.md.
"""

import argparse
import json
import os
import random
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz import counts, workspace
from fuzz.workspace import CASES, Case, Command, Outcome, Reference

FILE = counts.ROOT / "fuzz" / "kills.json"
# Commands in turn, each with its cases in turn.
COMMANDS = {
    "register": ("register-over", "register"),
    "extend": ("extend",),
    "export": ("export-ply", "export-aligned", "export-matrix"),
    "report": ("report", "report-new"),
    "track": ("track-over", "track"),
}
# [size, s] From one look at the folder to the next.
LOOK = 0.002
# [size, s] From a change that is seen to the kill, at most: as long as a file takes to be written.
DELAY = 0.01
# [size] Defects of a command that are printed; the record has all of them.
SHOWN = 5


@dataclass
class Kills:
    """What became of the kills of one command."""

    trials: int = 0
    killed: int = 0  # The others had ended before.
    old: int = 0
    new: int = 0
    mixes: int = 0
    lost: int = 0
    foreign: int = 0  # trials in which other people's files or inputs were touched
    again: int = 0  # trials after which the same command did not work, or left something over
    seconds: float = 0.0
    defects: list[str] = field(default_factory=list)
    # trials by the state of the code that they were run on
    commits: dict[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> int:
        return self.trials - self.mixes - self.lost

    @property
    def numbers(self) -> tuple[int, ...]:
        """The columns of the table."""
        good = (self.trials, self.killed, self.whole, self.old, self.new)
        return (*good, self.mixes, self.lost, self.foreign, self.again)

    def line(self, name: str) -> str:
        return f"{name:10}" + "".join(f"{n:8}" for n in self.numbers) + f"{self.seconds:8.0f} s"


Record = dict[str, Kills]  # by command

HEADER = f"{'command':10}" + "".join(
    f"{name:>8}"
    for name in ("trials", "killed", "whole", "old", "new", "mixes", "lost", "foreign", "again")
)


def state_of(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of all files, cheaply."""
    found = []
    folders = [str(folder)]
    for each in folders:
        with suppress(OSError):  # It is gone already.
            for entry in os.scandir(each):
                about = entry.stat(follow_symlinks=False)
                found.append((entry.path, about.st_size, about.st_mtime_ns))
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return found


def count_changes(root: Path, process: "subprocess.Popen[str]", stop_at: int = 0) -> int:
    """Count how often the workspace is seen to change, until the process ends or, if given, up to a
    number.
    """
    seen, count = state_of(root), 0
    while process.poll() is None:
        now = state_of(root)
        if now != seen:
            seen, count = now, count + 1
            if count == stop_at:
                break
        time.sleep(LOOK)
    return count


@dataclass(frozen=True)
class Trial:
    """One kill and what came of it."""

    moment: str
    killed: bool
    defects: list[str]
    again: list[str]  # defects after the same command has run again
    done: bool  # whether the result is the new one


def kill_once(reference: Reference, folder: Path, steps: int, draw: random.Random) -> Trial:
    """Kill a command at a moment that is drawn over its usual duration or, in every other trial on
    average, over the changes that it makes on the disk.
    """
    root = workspace.copied(folder / "prepared", folder / "trial")
    writing = draw.random() < 0.5
    began = time.monotonic()
    process = workspace.start(root, reference.case.command)
    if writing:
        count_changes(root, process, draw.randint(1, max(steps, 1)))
        time.sleep(draw.choice((0.0, draw.uniform(0, DELAY))))
    else:
        with suppress(subprocess.TimeoutExpired):
            process.wait(draw.uniform(0, reference.seconds))
    after = time.monotonic() - began
    process.kill()
    outcome = workspace.finish(process)
    defects, now = workspace.check_whole(reference, root)
    if not outcome.killed:
        defects += workspace.check_message(outcome, (0,))
    again = workspace.check_repeated(reference, root, workspace.Process(), now)
    moment = f"{reference.case.name}, {'writing' if writing else 'any time'}, after {after:.3f} s"
    done = now == reference.new != reference.old
    return Trial(moment, outcome.killed, defects, again, done)


def note(kills: Kills, trial: Trial) -> None:
    kinds = {defect.split(":")[0] for defect in trial.defects}
    mixed, lost = bool(kinds & {"mix", "half"}), "lost" in kinds
    kills.trials += 1
    kills.killed += trial.killed
    kills.mixes += mixed
    kills.lost += lost and not mixed
    kills.new += trial.done and not mixed and not lost
    kills.old += not (trial.done or mixed or lost)
    kills.foreign += "touched" in kinds
    kills.again += bool(trial.again)
    kills.defects += [f"{trial.moment}: {defect}" for defect in (*trial.defects, *trial.again)]


def run_command(name: str, kills: Kills, trials: int, deadline: float, seed: int) -> None:
    """Trials of one command, added to those of earlier runs, until there are so many or the time is
    up.
    """
    began, commit = time.monotonic(), counts.commit()
    draw = random.Random(f"{seed} {name} {kills.trials}")
    with tempfile.TemporaryDirectory(prefix="coframe-kills-") as scratch:
        cases = [prepare(CASES[each], Path(scratch, each), kills) for each in COMMANDS[name]]
        while kills.trials < trials and time.monotonic() < deadline:
            note(kills, kill_once(*cases[kills.trials % len(cases)], draw))
            kills.commits[commit] = kills.commits.get(commit, 0) + 1
    kills.seconds += time.monotonic() - began


def prepare(case: Case, folder: Path, kills: Kills) -> tuple[Reference, Path, int]:
    """What `kill_once` needs: an undisturbed run, its folder, and how many changes are seen."""
    steps = 0

    def run(root: Path, command: Command) -> Outcome:
        nonlocal steps
        began = time.monotonic()
        process = workspace.start(root, command)
        steps = count_changes(root, process)  # of the last run in the end, which is the command's
        return replace(workspace.finish(process), seconds=time.monotonic() - began)

    reference = workspace.make_reference(case, folder, run)
    kills.defects += [f"{case.name}, undisturbed: {defect}" for defect in reference.defects]
    return reference, folder, steps


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.kills", description=__doc__)
    parser.add_argument("--trials", type=int, default=200, help="of all commands together")
    parser.add_argument("--seconds", type=float, default=7200.0, help="for all, at most")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="count what earlier runs tried, and run what is missing",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, default=FILE, help="JSON file for the counts")
    given = parser.parse_args()
    deadline = time.monotonic() + given.seconds
    record: Record = {name: Kills() for name in COMMANDS}
    if given.resume and given.record.exists():
        stored = json.loads(given.record.read_text())
        record = {name: Kills(**stored[name]) for name in COMMANDS}
    print(f"seed {given.seed}; {counts.commit()}\n{HEADER}", flush=True)
    for i, (name, kills) in enumerate(record.items()):
        trials = (given.trials + i) // len(record)
        if kills.trials < trials and time.monotonic() < deadline:
            run_command(name, kills, trials, deadline, given.seed)
            counts.save_json(given.record, {each: vars(record[each]) for each in record})
        print(kills.line(name), flush=True)
        for defect in kills.defects[:SHOWN]:
            print(f"    {defect}", flush=True)
    columns = zip(*(kills.numbers for kills in record.values()), strict=True)
    print(f"{'all':10}" + "".join(f"{sum(column):8}" for column in columns))
    defects = sum(len(kills.defects) for kills in record.values())
    if defects:
        raise SystemExit(f"{defects} defects, in {given.record}")


if __name__ == "__main__":
    main()
