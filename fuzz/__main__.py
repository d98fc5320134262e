# SPDX-License-Identifier: MIT
"""All targets, one after the other, each in processes of its own; a table of what was tried and what was found."""

import argparse
import importlib.util
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from fuzz import worker

ROOT = Path(__file__).resolve().parents[1]
FINDINGS = ROOT / "fuzz" / "findings"
DEATHS = 20  # of a target's process, after which it is given up


@dataclass
class Tally:
    """What became of the cases of a target."""

    name: str
    cases: int = 0
    refused: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    def line(self) -> str:
        rate = self.cases / max(self.seconds, 1e-9)
        found = ", ".join(self.findings) or "none"
        counts = f"{self.name:18} {self.cases:8} {self.cases - self.refused:8} {self.refused:8}"
        return f"{counts} {self.seconds:7.0f} s {rate:7.0f}/s  {found}"


def fuzzed(name: str, runs: int, seed: int, seconds: float, engine: str) -> Tally:
    """One target: so many cases, or so many seconds, whichever ends first. A process that dies is replaced."""
    tally, start = Tally(name), time.monotonic()
    while tally.cases < runs and time.monotonic() - start < seconds and len(tally.findings) < DEATHS:
        with tempfile.TemporaryDirectory(prefix="coframe-fuzz-", dir=_shared_memory()) as scratch:
            folder = Path(scratch)
            left = str(seconds - (time.monotonic() - start))
            command = [
                sys.executable,
                "-m",
                "fuzz.worker",
                name,
                scratch,
                str(runs - tally.cases),
                str(seed + tally.cases),
                left,
                engine,
            ]
            process = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
            )
            done, refused = struct.unpack("<QQ", (folder / "count").read_bytes())
            tally.cases, tally.refused = tally.cases + done, tally.refused + refused
            if process.returncode:
                kind = "hang" if -process.returncode in (signal.SIGALRM, signal.SIGPROF) else f"death{process.returncode}"
                inside = folder / "input" / worker_target(name)
                if not inside.exists() or not done:
                    raise SystemExit(f"{name}: the process died before its first case\n{process.stderr[-3000:]}")
                worker.keep(inside, folder, kind, process.stderr[-3000:])
            for path in sorted(folder.glob("*.why")):
                tally.findings.append(path.stem)
                (FINDINGS / name).mkdir(parents=True, exist_ok=True)
                for each in folder.glob(f"{path.stem}.*"):
                    shutil.copy(each, FINDINGS / name / each.name)
            if not process.returncode:
                break
    tally.seconds = time.monotonic() - start
    return tally


def sum_of(tallies: list[Tally]) -> Tally:
    """The tallies of several engines on one target as one."""
    total = Tally(tallies[0].name)
    for each in tallies:
        total.cases, total.refused = total.cases + each.cases, total.refused + each.refused
        total.seconds, total.findings = total.seconds + each.seconds, [*total.findings, *each.findings]
    return total


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
    parser.add_argument("--seconds", type=float, default=1800.0, help="per reader, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--engine", choices=("auto", "own", "atheris"), default="auto")
    given = parser.parse_args()
    both = ["own", "atheris"] if importlib.util.find_spec("atheris") else ["own"]
    engines = both if given.engine == "auto" else [given.engine]
    wanted, seeds = given.only or list(TARGETS), [given.seed, given.seed]
    print(f"engines: {', '.join(engines)}; seed {given.seed}")
    print(f"{'target':18} {'cases':>8} {'read':>8} {'refused':>8} {'time':>9} {'rate':>9}  findings", flush=True)
    found = 0
    for name in wanted:
        runs, seconds = (given.problems, 36_000.0) if name == "register" else (given.runs, given.seconds)
        shares = [runs] if len(engines) == 1 else [runs - runs // 2, runs // 2]
        tally = sum_of(
            [fuzzed(name, *each) for each in zip(shares, seeds, [seconds / len(engines)] * 2, engines, strict=False)]
        )
        found += len(tally.findings)
        print(tally.line(), flush=True)
    if found:
        raise SystemExit(f"{found} findings, in {FINDINGS}")


if __name__ == "__main__":
    main()
