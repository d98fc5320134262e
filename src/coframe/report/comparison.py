# SPDX-License-Identifier: MIT
"""A comparison as a page of its own: a table of figures, and a chart of each."""

import os
from pathlib import Path

from coframe.baselines.compare import Comparison
from coframe.io.files import atomic
from coframe.report import charts
from coframe.report.markup import lengths, name, text
from coframe.report.page import Section, page

UNKNOWN = float("nan")


def write(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write the page to a file.

    >>> coframe.report.comparison.write(coframe.compare(clouds), "comparison.html")
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as temporary:
        temporary.write_text(html(comparison), encoding="utf-8", newline="\n")
    return path


def html(comparison: Comparison) -> str:
    """The page."""
    facts = [
        (str(len(comparison.names)), "clouds"),
        (str(len(comparison.rows) - 1), "methods"),
        (str(comparison.points), "points a cloud, at most"),
        (lengths([comparison.gate])[0], "gate"),
        (comparison.start, "start"),
    ]
    summary = "".join(
        f"<div><dd>{text(value)}</dd><dt>{text(label)}</dt></div>" for value, label in facts
    )
    lost = "".join(
        f'<li class="notice weak"><span class="mark">!</span><span><b>{name(cloud)}</b> could not'
        " be matched with the others and was left out.</span></li>"
        for cloud in comparison.left_out
    )
    warnings = f'<ul class="notices" aria-label="Warnings">{lost}</ul>' if lost else ""
    sections = [Section("figures", "Figures", _table(comparison)), *_charts(comparison)]
    return page("coframe comparison", summary, warnings, sections)


def columns(comparison: Comparison) -> dict[str, list[str]]:
    """The table, column by column, as it is printed and shown."""
    rows = comparison.rows
    figures = {
        "method": [row.method for row in rows],
        "seconds": [f"{row.seconds:.1f}" for row in rows],
        "residual": _lengths([row.residual for row in rows]),
        "overlap": ["–" if row.overlap is None else f"{row.overlap:.1%}" for row in rows],
    }
    if comparison.judged_by_truth:
        figures["turn [°]"] = _lengths([row.rotation for row in rows])
        figures["worst [°]"] = _lengths([row.worst_rotation for row in rows])
        figures["shift"] = _lengths([row.translation for row in rows])
    if any(row.failure for row in rows):
        figures["failure"] = [row.failure or "" for row in rows]
    return figures


def _lengths(values: list[float | None]) -> list[str]:
    return [
        written.replace("unknown", "–")
        for written in lengths([UNKNOWN if v is None else v for v in values])
    ]


def _table(comparison: Comparison) -> str:
    figures = columns(comparison)
    head = "".join(f'<th scope="col">{text(label)}</th>' for label in figures)
    rows = ""
    for first, *cells in zip(*figures.values(), strict=True):
        written = "".join(
            f'<td data-label="{text(k)}">{text(v)}</td>'
            for k, v in zip(list(figures)[1:], cells, strict=True)
        )
        rows += f'<tr><th scope="row">{text(first)}</th>{written}</tr>'
    errors = (
        " Turn and shift are mean errors against the truth, relative to the first cloud; worst is"
        " the largest turn."
        if comparison.judged_by_truth
        else ""
    )
    return (
        '<div class="scroll"><table'
        f' class="clouds"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div><p'
        ' class="small">Residual: the median distance of a point to the surface of the other'
        " clouds, where one is within the gate. Overlap: the share of points for which that is so."
        f" Lengths are in the units of the input.{errors} The start is what every method began"
        " with; its seconds were spent to find it.</p>"
    )


def _charts(comparison: Comparison) -> list[Section]:
    rows = comparison.rows
    names = [row.method for row in rows]
    drawn: dict[str, tuple[str, str, list[float | None]]] = {
        "residual": ("Residual", "residual [unit of the input]", [row.residual for row in rows]),
        "rotation": (
            "Rotation error",
            "mean rotation error [degrees]",
            [row.rotation for row in rows],
        ),
        "seconds": ("Time", "seconds", [row.seconds for row in rows]),
    }
    return [
        Section(
            key, title, f"<figure>{charts.dots(names, values, label=label)}</figure>", wide=False
        )
        for key, (title, label, values) in drawn.items()
        if any(value is not None and value > 0 for value in values)
    ]
