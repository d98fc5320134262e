# SPDX-License-Identifier: MIT
"""A comparison of methods as a page: a table of figures, and a chart of each."""

import os
from pathlib import Path

from coframe.baselines.compare import Comparison
from coframe.io.transaction import transaction
from coframe.report import charts
from coframe.report.markup import lengths, name, text
from coframe.report.page import Section, facts, notice_list, page, save, save_into

UNKNOWN = float("nan")
# [format] What the manifest calls it, and the files of it.
KIND = "comparison"
FILES = ("comparison.json", "comparison.html")


def write(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write the page to a file.

    >>> coframe.report.comparison.write(coframe.compare(clouds), "comparison.html")
    """
    return save_into(path, html(comparison))


def write_folder(comparison: Comparison, folder: str | os.PathLike[str]) -> None:
    """Write comparison.json and comparison.html at once; a result in the folder stays."""
    with transaction(folder, KIND, keep=True, elsewhere=True) as new:
        comparison.save(new / FILES[0])
        save(new / FILES[1], html(comparison))


def html(comparison: Comparison) -> str:
    """The page."""
    values = [
        (str(len(comparison.names)), "clouds"),
        (str(len(comparison.rows) - 1), "methods"),
        (str(comparison.points), "points per cloud, at most"),
        (lengths([comparison.gate])[0], "gate"),
        (comparison.start, "start"),
    ]
    lost = [
        ("weak", f"<b>{name(cloud)}</b> could not be matched with the others and was left out.")
        for cloud in comparison.left_out
    ]
    warnings = notice_list(lost, "") if lost else ""
    sections = [Section("figures", "Figures", _table(comparison)), *_charts(comparison)]
    return page("coframe comparison", facts(values), warnings, sections)


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
        ' class="small">Overlap: the share of points with a surface of another cloud within the'
        " gate. Residual: the median distance of these points to that surface. Lengths are in the"
        f" units of the input.{errors} Every method starts from the poses in the row start; its"
        " seconds are the time to find them.</p>"
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
