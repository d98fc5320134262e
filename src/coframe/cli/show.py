# SPDX-License-Identifier: MIT
"""What several commands show: the table of verdicts, the run, the object of --json."""

import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from coframe import Options, Registration
    from coframe.report import Run
    from coframe.types import Array

COLOURS = {"aligned": "green", "weak": "yellow", "failed": "bold red"}


# [limit] Clouds that the table lists one by one: of more, a terminal shows only the last.
ROWS = 60


def verdict_table(result: "Registration") -> "Table":
    """A row per cloud; the reason where a cloud is not aligned.

    Of many clouds, only those that are not aligned, and how many are.
    """
    from rich.markup import escape
    from rich.table import Table

    table = Table("cloud")
    for heading in ("points", "verdict", "overlap", "residual"):
        table.add_column(heading, justify="left" if heading == "verdict" else "right")
    troubled = [verdict.verdict != "aligned" for verdict in result.verdicts]
    if any(troubled):
        table.add_column("reason")
    many = len(troubled) > ROWS
    if many and not all(troubled):
        table.caption = (
            f"{len(troubled) - sum(troubled)} of {len(troubled)} clouds are aligned and not listed;"
            " poses.json has all"
        )
    for name, count, verdict, trouble in zip(
        result.names, result.counts, result.verdicts, troubled, strict=True
    ):
        if many and not trouble:
            continue
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


def fails(result: "Registration", first: int = 0, *, strict: bool = False) -> bool:
    """Whether a command ends with exit code 1.

    A cloud from number `first` on failed, or nothing was placed: no cloud shares a group with
    another and was matched. strict: also for weak clouds, several groups and warnings.
    """
    from coframe.start.search import UNMATCHED

    verdicts = [verdict.verdict for verdict in result.verdicts]
    unmatched = {doubt.cloud for doubt in result.doubts if doubt.reason == UNMATCHED}
    placed = {j for group in result.groups if len(group) > 1 for j in group} - unmatched
    wrong = "failed" in verdicts[first:] or not placed
    doubtful = "weak" in verdicts[first:] or len(result.groups) > 1 or bool(result.warnings)
    return wrong or (strict and doubtful)


def run_so_far(
    started: float, options: "Options", start: "Array | None" = None, **known: Any
) -> "Run":
    """How the result of this command came about; `started` is when the command started, `known`
    what the user said of clouds.
    """
    from dataclasses import asdict

    from coframe.report import Run

    command = shlex.join(["coframe", *sys.argv[1:]])
    said = {name: value for name, value in known.items() if value}
    return Run(command, asdict(options) | said, seconds=time.perf_counter() - started, start=start)


def as_json_content(folder: Path, written: list[str], started: float) -> dict[str, Any]:
    """The object of --json: poses.json, the seconds taken, and the files written."""
    content: dict[str, Any] = json.loads((folder / "poses.json").read_text(encoding="utf-8"))
    return content | {
        "seconds": round(time.perf_counter() - started, 3),
        "written": [str(folder / name) for name in written],
    }
