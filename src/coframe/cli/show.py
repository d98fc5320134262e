# SPDX-License-Identifier: MIT
"""What several commands show: the table of verdicts, the run, the object of --json."""

import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from coframe import Options, Registration
    from coframe.align.residuals import Adjustment, TargetResidual
    from coframe.report import Run
    from coframe.result.quality import Quality
    from coframe.types import Array

COLOURS = {"aligned": "green", "weak": "yellow", "failed": "bold red"}


# [limit] Clouds that the table lists one by one: of more, a terminal shows only the last.
ROWS = 60
# [limit] Clouds that are proposed to be matched anew.
MENDED = 5
# [limit] Residuals of targets that it lists.
RESIDUALS = 12


def verdict_table(
    result: "Registration", quality: "Quality | None" = None, run: "Run | None" = None
) -> "Table":
    """A row per cloud; the reason where a cloud is not aligned.

    Beside a tolerance, the share of the distances to other clouds that are within it.

    Of many clouds, only those that are not aligned, and how many are.
    """
    from rich.markup import escape
    from rich.table import Table

    table = Table("cloud")
    unit = "" if run is None else run.unit
    gap = escape(f"gap [{unit}]") if unit else "gap"
    for heading in ("points", "verdict", "overlap", gap):
        table.add_column(heading, justify="left" if heading == "verdict" else "right")
    shares = None
    if run is not None and quality is not None and quality.tolerance is not None:
        table.add_column(escape(run.within(quality.tolerance)), justify="right")
        shares = ["-" if s.within is None else f"{s.within:.0%}" for s in quality.scans]
    troubled = [verdict.verdict != "aligned" for verdict in result.verdicts]
    if any(troubled):
        table.add_column("reason")
    many = len(troubled) > ROWS
    from coframe.cli.app import as_options

    if many and not all(troubled):
        table.caption = (
            f"{len(troubled) - sum(troubled)} of {len(troubled)} clouds are aligned and not listed;"
            " poses.json has all"
        )
    for j, (name, count, verdict, trouble) in enumerate(
        zip(result.names, result.counts, result.verdicts, troubled, strict=True)
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
        row.append(f"{verdict.residual:.3g}")
        row += [] if shares is None else [shares[j]]
        table.add_row(*row, *([escape(as_options(verdict.reason))] if trouble else []))
    return table


def say_warnings(result: "Registration", step: str) -> None:
    """Print the warnings and, where a cloud is not aligned, the next step to try."""
    from coframe.cli.app import counted, say

    for warning in result.warnings:
        say(f"warning: {warning}")
    unsure = sum(each.verdict != "aligned" for each in result.verdicts)
    if unsure:
        say(
            f"not aligned: {unsure} of {counted(len(result.verdicts), 'cloud')}; see the report; to"
            f" mend it, {step}"
            " (docs/weak.md: by reason)"
        )


def next_step(result: "Registration", *, bound: bool = False, tried: Sequence[str] = ()) -> str:
    """What to try for the clouds that are not aligned: nothing that was tried or is refused.

    bound: whether a common frame is known, beside which clouds are not matched. tried: clouds that
    were matched anew.
    """
    unsure = [
        name
        for name, verdict in zip(result.names, result.verdicts, strict=True)
        if verdict.verdict != "aligned"
    ]
    if bound:
        return "give better start poses (--poses), or targets (--targets)"
    if result.start in ("given", "inside"):
        if len(unsure) <= min(MENDED, (len(result.names) - 1) // 2) and not set(unsure) & {*tried}:
            inside = "--poses inside " if result.start == "inside" else ""
            return (
                "match with the others anew: "
                + inside
                + " ".join(f"--rematch {shlex.quote(name)}" for name in unsure)
            )
        return "give other poses (--poses), or leave them out and try --start match"
    if result.options.get("method") == "paper":
        return "leave --method paper out, or give start poses (--poses)"
    if result.start == "identity":
        return "try --start match, or give start poses (--poses)"
    if result.start == "matched":
        return (
            "give start poses (--poses), or, where the clouds lie nearly right as they are, try"
            " --start identity"
        )
    return "give start poses (--poses)"


def target_table(found: "Adjustment", unit: str = "") -> "Table":
    """A row per observation of a target; of many, the largest residuals for their deviations."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("target", "scan", "role")
    for heading in (f"residual [{unit}]" if unit else "residual", "sd", ""):
        table.add_column(escape(heading), justify="right")
    rows = found.residuals
    if len(rows) > RESIDUALS:
        table.caption = f"the {RESIDUALS} worst of {len(rows)} residuals; the report has all"
        rows = tuple(sorted(rows, key=_in_deviations)[-RESIDUALS:][::-1])
    for each in rows:
        mark = "[yellow]check this[/]" if each.suspicious else ""
        names = escape(each.name), escape(each.scan), each.role
        table.add_row(*names, f"{each.distance:.3g}", f"{_deviation(each):.3g}", mark)
    return table


def _deviation(residual: "TargetResidual") -> float:
    """Standard deviation of a residual in space."""
    return float(sum(value * value for value in residual.sd) ** 0.5)


def _in_deviations(residual: "TargetResidual") -> float:
    return residual.distance / max(_deviation(residual), sys.float_info.min)


def target_sentence(found: "Adjustment", unit: str = "") -> str:
    """How well targets fit, in one line."""
    parts = [
        f"{words} {value:.3g} {unit}".rstrip()
        for role, words in (
            ("control", "control points"),
            ("check", "check points"),
            ("tie", "ties"),
        )
        if (value := found.rms(role)) is not None
    ]
    low, high = found.limits
    verdict = "as expected" if found.consistent else "not as expected"
    return (
        f"targets: RMS of {', '.join(parts)}; chi-square {found.chi_square:.3g}, {verdict}"
        f" ({low:.3g} to {high:.3g})"
    )


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
    return Run(
        command,
        asdict(options) | said,
        seconds=time.perf_counter() - started,
        start=start,
        made=time.strftime("%Y-%m-%d %H:%M"),
    )


def as_json_content(folder: Path, written: list[str], started: float) -> dict[str, Any]:
    """The object of --json: poses.json, the seconds taken, and the files written."""
    content: dict[str, Any] = json.loads((folder / "poses.json").read_text(encoding="utf-8"))
    return content | {
        "seconds": round(time.perf_counter() - started, 3),
        "written": [str(folder / name) for name in written],
    }
