# SPDX-License-Identifier: MIT
"""What commands show and write alike: the table of verdicts, the report, the object of --json."""

import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from coframe import Options, Registration
    from coframe.types import Array

COLOURS = {"aligned": "green", "weak": "yellow", "failed": "bold red"}


def verdict_table(result: "Registration") -> Table:
    """A row per cloud; reasons only where something is wrong."""
    table = Table("cloud")
    for heading in ("points", "verdict", "overlap", "residual"):
        table.add_column(heading, justify="left" if heading == "verdict" else "right")
    troubled = [verdict.verdict != "aligned" for verdict in result.verdicts]
    if any(troubled):
        table.add_column("reason")
    for name, count, verdict, trouble in zip(
        result.names, result.counts, result.verdicts, troubled, strict=True
    ):
        colour = COLOURS[verdict.verdict]
        row = [
            escape(name),
            str(count),
            f"[{colour}]{verdict.verdict}[/]",
            f"{verdict.overlap:.0%}",
        ]
        table.add_row(
            *row, f"{verdict.residual:.3g}", *([escape(verdict.reason)] if trouble else [])
        )
    return table


def failed(result: "Registration", first: int = 0) -> bool:
    """Whether a cloud failed, of those from `first` on."""
    return any(verdict.verdict == "failed" for verdict in result.verdicts[first:])


def store(
    folder: Path,
    result: "Registration",
    options: "Options",
    start: "Array | None",
    begun: float,
    *,
    report: bool,
) -> list[str]:
    """Write a result with its run.json, which says how it came about, and the report if wanted;
    returns the files' names.
    """
    from dataclasses import asdict

    from coframe import report as reports

    result.save(folder)
    command = shlex.join(["coframe", *sys.argv[1:]])
    run = reports.Run(command, asdict(options), seconds=time.perf_counter() - begun, start=start)
    run.save(folder)
    if report:
        reports.write(
            result, folder / "report.html", run=run, colours=reports.stored_colours(folder, result)
        )
    else:
        # that of an earlier run would speak of another result
        (folder / "report.html").unlink(missing_ok=True)
    parts = sorted(path.name for path in folder.glob("merged-*.ply"))
    merged = [f"{parts[0]} to {parts[-1]}"] if parts and result.sizes else ["merged.ply"]
    return [
        "poses.json",
        *merged,
        "model.ply",
        "state.npz",
        "run.json",
        *(["report.html"] if report else []),
    ]


def as_told(folder: Path, written: list[str], begun: float) -> dict[str, Any]:
    """The object of --json: poses.json, how long it took, and what was written."""
    content: dict[str, Any] = json.loads((folder / "poses.json").read_text(encoding="utf-8"))
    return content | {
        "seconds": round(time.perf_counter() - begun, 3),
        "written": [str(folder / name) for name in written],
    }
