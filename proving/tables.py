# SPDX-License-Identifier: MIT
"""Rows of records as tables: one line a family."""

from collections.abc import Iterable, Sequence
from typing import Any

from proving.plan import OF_FAMILY
from proving.score import Score, summary

Row = dict[str, Any]

COLUMNS = (
    "family",
    "problems",
    "placed",
    "silent",
    "alarms",
    "error",
    "chi²",
    "CPU s",
    "MB",
)


def applies(row: Row) -> bool:
    """Whether a method could be run on a problem of this kind at all."""
    return "does not apply" not in (row["error"] or "")


def error(row: Row) -> float | None:
    """One number for the accuracy of an answer: over the limit where that is known, else the error
    of the positions of a track, else the mean error over the extents; None if clouds are wrong.
    """
    if row["ratio"] is not None:
        return float(row["ratio"])
    if row["ate"] is not None:
        return float(row["ate"])
    known = [each for each in row["errors"] if each is not None]
    if row["right"] < row["clouds"] or not known:
        return None
    return float(sum(known) / len(known))


def by_family(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows of each family, in the order of the plan."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["family"], []).append(row)
    simulated = [family for family in OF_FAMILY if family in found]
    return {family: found[family] for family in [*simulated, *sorted(set(found) - set(simulated))]}


def cells(title: str, rows: Sequence[Row]) -> list[str]:
    """One line of a table."""
    s = summary([Score.of(row) for row in rows])
    if not s["problems"]:
        return [title, "0", *[""] * (len(COLUMNS) - 2)]
    placed = "" if s["share_placed"] is None else f"{s['share_placed']:.0%}"
    if s["share_placed_error"]:
        placed += f" ± {100 * s['share_placed_error']:.0f}"
    silent = "0"
    if s["silent"]:
        silent = f"{s['silent']} in {s['silent_problems']}"
    return [
        title,
        str(s["problems"]),
        placed,
        silent,
        f"{s['false_alarms'] / s['right']:.0%}" if s["right"] else "",
        "" if s["ratio_median"] is None else f"{s['ratio_median']:.2f} ({s['rated']})",
        "" if s["calibration"] is None else f"{s['calibration']:.3g}",
        f"{s['cpu'] / s['problems']:.1f}",
        f"{s['memory'] / 2**20:.0f}",
    ]


def lines(rows: Iterable[Row]) -> list[list[str]]:
    """The lines of all families, and one of all together."""
    chosen = [row for row in rows if applies(row)]
    found = [cells(family, members) for family, members in by_family(chosen).items()]
    return [*found, cells("all", chosen)]


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of a page."""
    listed = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in listed)


def plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of a terminal: the first column to the left, the others to the right."""
    listed = [list(columns), *map(list, rows)]
    widths = [max(len(row[i]) for row in listed) for i in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in listed
    )


def beside(one: Sequence[Row], other: Sequence[Row], names: tuple[str, str]) -> list[list[str]]:
    """Two methods on the same problems: two lines a family."""
    found = []
    families = by_family(one)
    of_other = by_family(other)
    for family, members in families.items():
        found.append(cells(f"{family}, {names[0]}", members))
        found.append(cells(f"{family}, {names[1]}", of_other[family]))
    found.append(cells(f"all, {names[0]}", one))
    found.append(cells(f"all, {names[1]}", other))
    return found
