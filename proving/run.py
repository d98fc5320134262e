# SPDX-License-Identifier: MIT
"""Run problems, two at a time, each in a process of its own; what is done is not done again.

Problems are kept in `build/proving/problems`, in a folder named after a digest of the code that
makes them, with what is known of each: a digest of its arrays, the overlap and the limit. Results
are lines of JSON in `build/proving/LABEL.jsonl`, keyed by the problem's name and digest and a
digest of the code that solved it. When all problems of the plan are done, they become one record,
`proving/results/LABEL.json`.
"""

import hashlib
import json
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import machine
from coframe.evaluate.limit import Limit
from proving import conditions, plan
from proving.problem import Answer, Problem
from proving.score import limit_of, score

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "proving" / "results"
BUILD = ROOT / "build" / "proving"
SOLVER = ROOT / "proving" / "solve.py"
# [limit] Seconds of a processor for one problem.
SECONDS = 120
# [size] Processes at a time.
JOBS = 2
# [limit] Points of all clouds together: beyond, the limit is not computed.
LIMIT_POINTS = 200_000

Row = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """What solves problems: a script, the interpreter that runs it, and a digest of its code."""

    label: str
    python: str
    solver: tuple[str, ...]  # a script, and words that it gets beside those of every problem
    version: dict[str, Any]

    @property
    def digest(self) -> str:
        return str(self.version["digest"])


def method(label: str, python: str | None = None, solver: str | None = None) -> Method:
    """The coframe of an interpreter (default: this one), or what another script calls."""
    python = python or sys.executable
    if shutil.which(python) is None:
        sys.exit(f"{python}: is not a program; give the path of a Python interpreter")
    if solver is not None:
        words = tuple(shlex.split(solver))
        return Method(label, python, words, version_of([Path(words[0]).resolve()]))
    done = subprocess.run(
        [python, "-c", "import coframe, sys; sys.stdout.write(coframe.__file__)"],
        env=environment(python),
        capture_output=True,
        text=True,
        check=True,
    )
    files = sorted(Path(done.stdout).parent.rglob("*.py"))
    return Method(label, python, (str(SOLVER),), version_of(files))


def version_of(files: Sequence[Path]) -> dict[str, Any]:
    """Commit of the source tree of files, whether they have changed since, and their digest."""
    code = hashlib.sha256()
    for file in files:
        code.update(file.name.encode() + file.read_bytes())
    folder = files[0].parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True)
        return done.stdout.strip()

    return {
        "commit": git("log", "-1", "--format=%h", "--", ".") or "unknown",
        "dirty": bool(git("status", "--porcelain", "--", ".")),
        "digest": code.hexdigest()[:12],
    }


def environment(python: str) -> dict[str, str]:
    """One thread; another interpreter does not see this one's path."""
    threads = {f"{each}_NUM_THREADS": "1" for each in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    return {
        name: value
        for name, value in (os.environ | threads).items()
        if python == sys.executable or name != "PYTHONPATH"
    }


# Problems


def makers_digest() -> str:
    """Of all code that problems depend on."""
    simulate = ROOT / "src" / "coframe" / "data" / "simulate"
    files = [ROOT / "proving" / f"{name}.py" for name in ("families", "conditions", "plan")]
    files += [ROOT / "proving" / f"{name}.py" for name in ("real", "sequences", "problem")]
    files += [ROOT / "src" / "coframe" / "evaluate" / "limit.py", *simulate.glob("*.py")]
    code = hashlib.sha256()
    for file in sorted(files):
        if file.exists():
            code.update(file.read_bytes())
    return code.hexdigest()[:12]


def problem_paths(folder: Path, name: str) -> tuple[Path, Path]:
    """Where a problem is kept, and what is known of it."""
    stem = name.replace("/", "--").replace(" ", "_")
    return folder / f"{stem}.npz", folder / f"{stem}.json"


def make(folder: Path, entry: plan.Entry) -> tuple[Problem, Row]:
    """The problem of an entry and what is known of it, from the folder or made anew."""
    path, about = problem_paths(folder, entry.name)
    if about.exists():
        return Problem.load(path), json.loads(about.read_text())
    problem = entry.problem()
    known: Row = {"digest": digest(problem), "overlap": None, "limit": None}
    if problem.kind == "register":
        known["overlap"] = conditions.overlap(problem.clouds, problem.truth, problem.foreign)
        if sum(map(len, problem.clouds)) <= LIMIT_POINTS:
            known["limit"] = limit_as_json(limit_of(problem))
    folder.mkdir(parents=True, exist_ok=True)
    problem.save(path)
    about.write_text(json.dumps(known))
    return problem, known


def digest(problem: Problem) -> str:
    """Of all that a method is given, and the truth."""
    code = hashlib.sha256()
    for array in (*problem.clouds, problem.truth, problem.start):
        if array is not None:
            code.update(np.ascontiguousarray(array).tobytes())
    return code.hexdigest()[:12]


# Runs


def solve(method: Method, path: Path, seconds: int = SECONDS) -> Answer:
    """The answer of a method to a saved problem, from a process of its own."""
    with tempfile.TemporaryDirectory(prefix="proving-") as folder:
        answer = Path(folder) / "answer.npz"
        script, *words = method.solver
        command = [method.python, script, str(path), str(answer), str(seconds), *words]
        try:
            done = subprocess.run(
                command,
                env=environment(method.python),
                capture_output=True,
                text=True,
                timeout=10 * seconds,  # others may use the processors
            )
        except subprocess.TimeoutExpired:
            return Answer(None, error=f"timed out after {10 * seconds} s", seconds=10.0 * seconds)
        if answer.exists():
            return Answer.load(answer)
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            text = f"timed out after {seconds} s of a processor"
            return Answer(None, error=text, seconds=float(seconds), cpu=float(seconds))
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Answer(None, error=lines[-1])


def work(name: str, method: Method, folder: Path, known_key: str | None) -> Row | None:
    """Make a problem, solve it and score the answer; None if that was done before."""
    entry = plan.whole()[name]
    problem, about = make(folder, entry)
    key = f"{name} {about['digest']} {method.digest}"
    if key == known_key:
        return None
    answer = solve(method, problem_paths(folder, name)[0])
    return row(key, problem, about, answer)


def row(key: str, problem: Problem, about: Row, answer: Answer) -> Row:
    """One line of the results."""
    found = score(problem, answer, limit_from_json(about["limit"]))
    return {"key": key, **found.record(), "overlap": about["overlap"], "said": answer.warnings}


def done_so_far(path: Path) -> dict[str, Row]:
    """The last result of each key."""
    if not path.exists():
        return {}
    rows = {}
    for line in path.read_text().splitlines():
        try:
            each = json.loads(line)
        except json.JSONDecodeError:
            continue  # the last line of a run that was killed
        rows[each["key"]] = each
    return rows


def end_last_line(path: Path) -> None:
    """End the line that a killed run left unfinished, so that the next one is not lost, too."""
    if path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n")


def run(
    entries: Sequence[plan.Entry],
    method: Method,
    *,
    build: Path = BUILD,
    seconds: float = np.inf,
    say: Callable[[str], object] = lambda text: None,
) -> list[Row]:
    """Run what is not done yet, for at most so many seconds, and return all rows of the entries.

    The rows of entries that are not done are missing.
    """
    folder = build / "problems" / makers_digest()
    folder.mkdir(parents=True, exist_ok=True)
    results = build / f"{method.label}.jsonl"
    done = {
        each["name"]: each
        for key, each in done_so_far(results).items()
        if key.endswith(f" {method.digest}")
    }
    rows: dict[str, Row] = {}
    todo = []
    for entry in entries:
        about = problem_paths(folder, entry.name)[1]
        known = done.get(entry.name)
        if known is not None and about.exists():
            key = f"{entry.name} {json.loads(about.read_text())['digest']} {method.digest}"
            if key == known["key"]:
                rows[entry.name] = known
                continue
        todo.append(entry)
    if not todo:
        return [rows[entry.name] for entry in entries]
    end_last_line(results)
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(JOBS, mp_context=context)
    waiting = iter(todo)
    running: dict[Future[Row | None], plan.Entry] = {}
    finished = 0
    try:
        with open(results, "a", encoding="utf-8") as file:
            while True:
                while len(running) < JOBS and time.monotonic() - began < seconds:
                    entry = next(waiting, None)
                    if entry is None:
                        break
                    known_key = done.get(entry.name, {}).get("key")
                    future = pool.submit(work, entry.name, method, folder, known_key)
                    running[future] = entry
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    entry = running.pop(future)
                    found = future.result()
                    if found is not None:
                        file.write(json.dumps(found) + "\n")
                        file.flush()
                    rows[entry.name] = found or done[entry.name]
                    finished += 1
                    spent = time.monotonic() - began
                    left = spent / finished * (len(todo) - finished)
                    say(progress(finished, len(todo), left, rows[entry.name]))
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return [rows[entry.name] for entry in entries if entry.name in rows]


def progress(finished: int, count: int, left: float, found: Row) -> str:
    """One line after each problem."""
    minutes = f"{left / 60:.0f} min left" if left > 90 else f"{left:.0f} s left"
    return f"{finished}/{count} {found['name']}: {found['cpu']:.1f} s; {minutes}"


# Records


def record(method: Method, rows: Iterable[Row], command: str, note: str = "") -> dict[str, Any]:
    """All results of a method, with what they depend on."""
    return {
        **({"note": note} if note else {}),
        "label": method.label,
        "seeds": "from the names of the problems",
        "version": method.version,
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": command,
        "rows": [
            {name: value for name, value in each.items() if name != "key"}
            for each in sorted(rows, key=lambda each: str(each["name"]))
        ],
    }


def save(record: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write a record, one line a problem."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record['label']}.json"
    head = json.dumps({k: v for k, v in record.items() if k != "rows"}, indent=1)
    lines = ",\n".join("  " + json.dumps(each) for each in record["rows"])
    path.write_text(f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    return path


def load(label: str, folder: Path = RESULTS) -> dict[str, Any]:
    """A record that was saved."""
    return dict(json.loads((folder / f"{label}.json").read_text(encoding="utf-8")))


# The limit


def limit_as_json(found: Limit | None) -> Row | None:
    if found is None:
        return None
    return {name: np.asarray(value).tolist() for name, value in asdict(found).items()}


def limit_from_json(stored: Row | None) -> Limit | None:
    if stored is None:
        return None
    arrays = ("angles", "shifts", "covariance", "centre")
    return Limit(**{k: np.array(v) if k in arrays else v for k, v in stored.items()})
