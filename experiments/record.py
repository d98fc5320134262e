# SPDX-License-Identifier: MIT
"""What a run of an experiment leaves behind: options, seed, versions, tables beside the paper's, and claims with their fate."""

import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
OURS = ("register", "coframe.track")  # what is measured against all others
STARTS = ("start", "Raw-data", "Initialization")  # rows that are no method
NEAR = 0.2  # of the paper's figure: how far a reproduced one may be off


def record(
    name: str,
    title: str,
    *,
    size: str,
    seed: int,
    realisations: int,
    options: Mapping[str, Any],
    began: float,
    tables: Sequence[Record] = (),
    checks: Sequence[Record] = (),
    figures: Sequence[str] = (),
    notes: Sequence[str] = (),
    curves: Mapping[str, Any] | None = None,
) -> Record:
    """One run. `began` is the `time.perf_counter()` of its start; `figures` are files, `curves` what they show."""
    return {
        "name": name,
        "title": title,
        "size": size,
        "seed": seed,
        "realisations": realisations,
        "options": dict(options),
        "seconds": round(time.perf_counter() - began, 1),
        "tables": list(tables),
        "checks": [*checks, *(check for each in tables for check in standing(each))],
        "figures": list(figures),
        "notes": list(notes),
        "curves": dict(curves or {}),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in ("coframe", "numpy", "scipy", "numba")},
        "machine": {
            "cores": os.cpu_count(),
            "processor": _processor(),
            "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        },
    }


def table(
    title: str,
    columns: Sequence[str],
    rows: Mapping[str, Sequence[float | None]],
    *,
    paper: Mapping[str, Sequence[float | None]] | None = None,
    seconds: Mapping[str, float] | None = None,
    digits: int = 3,
    errors: bool = True,
) -> Record:
    """A row for each method: our figures, the paper's, and how long a call took. `errors`: the smaller the better."""
    paper, seconds = paper or {}, seconds or {}
    return {
        "title": title,
        "columns": list(columns),
        "digits": digits,
        "errors": errors,
        "rows": [
            {
                "method": name,
                "ours": [_number(v) for v in rows[name]] if name in rows else None,
                "paper": list(paper[name]) if name in paper else None,
                "seconds": round(float(seconds[name]), 3) if name in seconds else None,
            }
            for name in dict.fromkeys([*paper, *rows])
        ],
    }


def claim(text: str, holds: bool, detail: str = "") -> Record:
    """A statement of the paper, and whether our run bears it out."""
    return {"claim": text, "holds": bool(holds), "detail": detail}


def below(table: Record, method: str, others: Sequence[str], text: str, columns: Sequence[str] | None = None) -> Record:
    """The claim that a method has smaller errors than others in every column, or in some of them."""
    rows = {row["method"]: dict(zip(table["columns"], row["ours"], strict=True)) for row in table["rows"] if row["ours"]}
    found = [
        f"{other} {rows[other][column]:.{table['digits']}f} < {rows[method][column]:.{table['digits']}f} in {column}"
        for column in (table["columns"] if columns is None else columns)
        for other in others
        if method in rows
        and other in rows
        and None not in (rows[method][column], rows[other][column])
        and rows[other][column] < rows[method][column]
    ]
    missing = [name for name in (method, *others) if name not in rows]
    return claim(text, not found and not missing, "; ".join(found + [f"{name} was not run" for name in missing]))


def below_each(
    table: Record, method: str, others: Sequence[str], where: str = "", columns: Sequence[str] | None = None
) -> list[Record]:
    """The same, a claim for each of the others."""
    title = table["title"].split(":")[0]
    return [below(table, method, [other], f"{title}: {method} below {other}{where}", columns) for other in others]


def standing(table: Record) -> list[Record]:
    """Two claims for every table of errors: ours is the best in every column, and the paper's figures are met."""
    if not table["errors"]:
        return []
    checks = []
    measured = [row["method"] for row in table["rows"] if row["ours"] and row["method"] not in STARTS]
    for ours in [name for name in OURS if name in measured and len(measured) > 1]:
        others = [name for name in measured if name != ours]
        checks.append(below(table, ours, others, f"{table['title']}: {ours} at or below every other method in every column"))
    far = [
        f"{row['method']}, {column}: {ours:.{table['digits']}f}, the paper {paper:.{table['digits']}f}"
        for row in table["rows"]
        if row["ours"] and row["paper"] and row["method"] not in STARTS
        for column, ours, paper in zip(table["columns"], row["ours"], row["paper"], strict=True)
        if ours is not None and paper is not None and abs(ours - paper) > NEAR * paper
    ]
    if any(row["ours"] and row["paper"] for row in table["rows"]):
        checks.append(claim(f"{table['title']}: every figure within 20 % of the paper's", not far, "; ".join(far)))
    return checks


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """A result, and the seconds it took."""
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def figure_file(folder: Path | None, name: str, draw: Callable[[Any], None], *, width: float, height: float) -> list[str]:
    """Draw on a Matplotlib figure of so many inches and save it in the folder; without one, nothing is drawn."""
    if folder is None:
        return []
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):  # small, and the same every time
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / name, dpi=80, metadata={"Date": None} if name.endswith("svg") else None)
    if name.endswith("svg"):
        (folder / name).write_text(rounded((folder / name).read_text()))
    return [name]


def rounded(svg: str) -> str:
    """Coordinates to a hundredth of a point: half the size."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", svg)


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), 6)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
