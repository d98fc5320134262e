# SPDX-License-Identifier: MIT
"""All targets, one after the other, each in processes of its own; a table of what was tried and
what was found.
"""

import argparse
import importlib.util
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuzz import counts, worker
from fuzz.counts import ROOT, Tally

FINDINGS = ROOT / "fuzz" / "findings"
# [limit] Deaths of a target's process after which the target is given up.
DEATHS = 20


def fuzzed(name: str, runs: int, seed: int, seconds: float, engine: str) -> Tally:
    """One target: so many cases, or so many seconds, whichever ends first. A process that dies is
    replaced. What was tried is recorded, also of a run that is interrupted.
    """
    tally, start = Tally(), time.monotonic()
    try:
        while (
            tally.cases < runs
            and time.monotonic() - start < seconds
            and len(tally.findings) < DEATHS
        ):
            with tempfile.TemporaryDirectory(
                prefix="coframe-fuzz-", dir=_shared_memory()
            ) as scratch:
                left = seconds - (time.monotonic() - start)
                task = [name, scratch, runs - tally.cases, seed + tally.cases, left, engine]
                command = [sys.executable, "-m", "fuzz.worker", *map(str, task)]
                quiet = subprocess.DEVNULL
                process = subprocess.CompletedProcess[str](command, 0)
                try:
                    process = subprocess.run(
                        command,
                        cwd=ROOT,
                        stdout=quiet,
                        stderr=subprocess.PIPE,
                        text=True,
                        check=False,
                    )
                finally:
                    tally += outcome(name, Path(scratch), process)
                if not process.returncode:
                    break
    finally:
        tally.seconds, tally.commits = time.monotonic() - start, {counts.commit(): tally.cases}
        counts.add(name, engine, tally)
    return tally


def outcome(name: str, folder: Path, process: subprocess.CompletedProcess[str]) -> Tally:
    """What a process has counted, and what it was at when it died."""
    count = folder / "count"
    done, refused = struct.unpack("<QQ", count.read_bytes()) if count.exists() else (0, 0)
    if process.returncode:
        kind = (
            "hang"
            if -process.returncode in (signal.SIGALRM, signal.SIGPROF)
            else f"death{process.returncode}"
        )
        inside = folder / "input" / worker_target(name)
        if not inside.exists() or not done:
            raise SystemExit(
                f"{name}: the process died before its first case\n{process.stderr[-3000:]}"
            )
        worker.keep(inside, folder, kind, process.stderr[-3000:])
    findings = sorted(path.stem for path in folder.glob("*.why"))
    for path in (path for stem in findings for path in folder.glob(f"{stem}.*")):
        (FINDINGS / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, FINDINGS / name / path.name)
    return Tally(done, refused, findings=findings)


def worker_target(name: str) -> str:
    from fuzz.targets import TARGETS

    return TARGETS[name].name


def _shared_memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main() -> None:
    from fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="cases per reader")
    parser.add_argument("--problems", type=int, default=10_000, help="problems for register")
    parser.add_argument("--seconds", type=float, default=1800.0, help="per target, at most")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="count what earlier runs tried, and run what is missing",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--engine", choices=("auto", "own", "atheris"), default="auto")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, also in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    both = ("own", "atheris") if importlib.util.find_spec("atheris") else ("own",)
    found = 0
    print(
        f"engines: {', '.join(both) if given.engine == 'auto' else given.engine}; seed"
        f" {given.seed}; {counts.commit()}"
    )
    print(
        f"{'target':18} {'cases':>8} {'read':>8} {'refused':>8} {'time':>9} {'rate':>9}  findings",
        flush=True,
    )
    for name in given.only or TARGETS:
        # What `register` does with a problem lies in compiled code, where atheris sees nothing.
        engines = (
            (given.engine,) if given.engine != "auto" else ("own",) if name == "register" else both
        )
        wanted = given.problems if name == "register" else given.runs
        earlier = counts.total(counts.load(), name)
        missing = max(0, wanted - earlier.cases) if given.resume else wanted
        shown = earlier if given.resume else Tally()
        for i, engine in enumerate(engines):
            runs = (missing + i) // len(engines)
            if runs > 0:
                tally = fuzzed(
                    name,
                    runs,
                    given.seed + earlier.cases + i * wanted,
                    given.seconds / len(engines),
                    engine,
                )
                found += len(tally.findings)
                shown += tally
        print(shown.line(name), flush=True)
    if found:
        raise SystemExit(f"{found} findings, in {FINDINGS}")


if __name__ == "__main__":
    main()
