# SPDX-License-Identifier: MIT
"""What a benchmark leaves behind: one JSON file per table of the documentation.

A benchmark that was run writes its tables to `benchmarks/results`; `python -m benchmarks.report`
puts them into the pages. A record says what was measured, by which command, with which code, when
and on which machine. `"transcribed": true` marks figures that were copied from the documentation of
release 0.1, which had no records.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def add_option(parser: argparse.ArgumentParser) -> None:
    """`--records FOLDER`: where the tables of this run go."""
    parser.add_argument(
        "--records", type=Path, default=RESULTS, metavar="FOLDER", help="default: %(default)s"
    )


def save(
    name: str,
    what: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    folder: Path = RESULTS,
) -> Path:
    """Write one table, with the command, code, date and machine that it came from."""
    if wrong := [row for row in rows if len(row) != len(columns)]:
        raise ValueError(f"{name}: expected {len(columns)} cells in each row, found {wrong[0]}")
    program = f"benchmarks.{Path(sys.argv[0]).stem}"
    about = machine()
    record = {
        "what": what,
        "command": " ".join(["python -m", program, *sys.argv[1:]]),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{about['cores']} cores, {about['cpu']}, load {about['load_at_start']}",
        "columns": list(columns),
        "rows": [list(row) for row in rows],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def commit() -> str:
    """The last commit that changed the library; a plus means that files have changed since."""
    git = ("git", "-C", str(ROOT))
    try:
        last = subprocess.run(
            [*git, "log", "-1", "--format=%h", "--", "src"],
            capture_output=True,
            text=True,
            check=True,
        )
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "src"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return last.stdout.strip() + "+" * bool(changed.stdout.strip())


def machine() -> dict[str, Any]:
    """What the times depend on.

    A load average well above 0 at the start means that others were using the cores.
    """
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu
        )
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {
        "cores": os.cpu_count(),
        "cpu": cpu,
        "system": platform.platform(),
        "load_at_start": load,
    }
