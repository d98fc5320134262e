# SPDX-License-Identifier: MIT
"""Two records beside each other: `python -m proving compare A B`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proving import run, tables
from proving.score import Score, worse


def rows_of(label: str) -> list[dict[str, Any]]:
    """The rows of a record, or what a run that is not complete has left under build."""
    if (run.RESULTS / f"{label}.json").exists():
        return list(run.load(label)["rows"])
    unfinished = run.BUILD / f"{label}.jsonl"
    if not unfinished.exists():
        sys.exit(f"{label}: expected a record in proving/results or a run in build/proving")
    by_name = {row["name"]: row for row in run.done_so_far(Path(unfinished)).values()}
    return list(by_name.values())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proving compare",
        description="Compare two records, family by family, on the problems that both have.",
    )
    parser.add_argument("before", metavar="A")
    parser.add_argument("after", metavar="B")
    parser.add_argument("--half", choices=["tune", "judge"], help="problems of this half alone")
    parser.add_argument("--problems", action="store_true", help="list every problem that differs")
    options = parser.parse_args(arguments)
    before, after = (
        {
            row["name"]: row
            for row in rows_of(label)
            if options.half in (None, row["half"]) and tables.applies(row)
        }
        for label in (options.before, options.after)
    )
    names = [name for name in before if name in after]
    if not names:
        sys.exit("the two have no problem in common")
    one, other = [before[name] for name in names], [after[name] for name in names]
    lines = tables.beside(one, other, (options.before, options.after))
    print(tables.plain(tables.COLUMNS, lines))
    for sentence in worse([Score.of(row) for row in other], [Score.of(row) for row in one]):
        print(sentence)
    if options.problems:
        for a, b in zip(one, other, strict=True):
            was = (a["placed"], a["silent"])
            now = (b["placed"], b["silent"])
            if was != now:
                print(f"{a['name']}: placed {was[0]} -> {now[0]}, silent {was[1]} -> {now[1]}")
