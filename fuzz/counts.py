# SPDX-License-Identifier: MIT
"""What has been tried so far, in fuzz/counts.json: runs in slices add up, and none repeats the
cases of another.
"""

import json
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path

from coframe.io.files import atomic

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "fuzz" / "counts.json"


@dataclass
class Tally:
    """What became of the cases of a target."""

    cases: int = 0
    refused: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)
    # cases by the state of the code that they were run on
    commits: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: "Tally") -> "Tally":
        commits = {
            c: self.commits.get(c, 0) + other.commits.get(c, 0)
            for c in {**self.commits, **other.commits}
        }
        findings = list(dict.fromkeys([*self.findings, *other.findings]))
        return Tally(
            self.cases + other.cases,
            self.refused + other.refused,
            self.seconds + other.seconds,
            findings,
            commits,
        )

    def line(self, name: str) -> str:
        rate, found = self.cases / max(self.seconds, 1e-9), ", ".join(self.findings) or "none"
        counts = f"{name:18} {self.cases:8} {self.cases - self.refused:8} {self.refused:8}"
        return f"{counts} {self.seconds:7.0f} s {rate:7.0f}/s  {found}"


Counts = dict[str, dict[str, Tally]]  # by target and engine


def load() -> Counts:
    """The counts of earlier runs."""
    if not FILE.exists():
        return {}
    return {
        name: {e: Tally(**t) for e, t in engines.items()}
        for name, engines in json.loads(FILE.read_text()).items()
    }


def add(name: str, engine: str, tally: Tally) -> None:
    """Add to what is on the disk."""
    counts = load()
    counts.setdefault(name, {})[engine] = counts.get(name, {}).get(engine, Tally()) + tally
    save_json(
        FILE, {n: {e: asdict(t) for e, t in engines.items()} for n, engines in counts.items()}
    )


def save_json(path: Path, content: object) -> None:
    """Write a record, whole or not at all."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")


def total(counts: Counts, name: str) -> Tally:
    """All engines together."""
    return sum(counts.get(name, {}).values(), Tally())


def commit() -> str:
    """The state of the code: its commit, with a + where files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
