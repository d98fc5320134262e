# SPDX-License-Identifier: MIT
"""What a run of an experiment is given and what it leaves behind: options, seeds, versions, and
tables beside the paper's.
"""

import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from experiments import provenance
from experiments.trials import Job, Store

Record = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
EVERYTHING = "everything"


@dataclass(frozen=True)
class Run:
    """What an experiment is told."""

    size: str  # "paper" or "toy"
    seeds: tuple[int, ...]  # one for each realisation
    folder: Path | None = None  # for pictures; without one, none are drawn
    # of trials, shared by experiments that ask for the same ones
    store: Store = field(default_factory=Store)

    @property
    def toy(self) -> bool:
        """Small enough for a test."""
        return self.size == "toy"

    def figure(
        self, name: str, draw: Callable[[Any], None], *, width: float, height: float
    ) -> list[str]:
        """Draw on a Matplotlib figure of so many inches and save it."""
        return figure_file(self.folder, name, draw, width=width, height=height)


@dataclass(frozen=True)
class Found:
    """What an experiment measures."""

    tables: Sequence[Record]
    options: Mapping[str, Any]
    figures: Sequence[str] = ()  # files
    curves: Mapping[str, Any] = field(default_factory=dict)  # what they show, where no table does
    missing: Sequence[str] = ()  # data sets that are not there


class Experiment(Protocol):
    """A file of this folder."""

    NAME: str
    TITLE: str
    SEEDS: Mapping[str, tuple[int, ...]]  # by size
    NOTES: Sequence[str]
    SENTENCE: str  # what to know when reading the tables, on the short page
    # claims of the paper, or about ours, that our runs do not bear out, and why
    KNOWN: Mapping[str, str]
    jobs: Callable[[Run], Sequence[Job]]  # the trials that it needs
    measure: Callable[[Run], Found]
    # of what was recorded: the tables of the short page
    shown: Callable[[Record], Sequence[Record]]
    # of what was recorded, so that it can be judged again without a run
    claims: Callable[[Record], Sequence[Any]]


def run(experiment: Experiment, given: Run) -> Record:
    """Measure, and write down with what and on what."""
    found = experiment.measure(given)
    jobs = experiment.jobs(given)
    return {
        "name": experiment.NAME,
        "title": experiment.TITLE,
        "size": given.size,
        "seeds": list(given.seeds),
        "options": dict(found.options),
        "tables": list(found.tables),
        "figures": list(found.figures),
        "curves": dict(found.curves),
        "missing": list(found.missing),
        "seconds": round(sum(given.store.get(job).seconds for job in jobs), 1),
        "code": code(),
        "digests": {
            "measure": provenance.of_measure(experiment.NAME),
            "methods": {job.method: job.digest for job in jobs},
        },
        "versions": {"python": platform.python_version()}
        | {p: version(p) for p in ("coframe", "numpy", "scipy", "numba")},
        "machine": {
            "cores": os.cpu_count(),
            "processor": _processor(),
            "load": round(os.getloadavg()[1], 1) if hasattr(os, "getloadavg") else None,
        },
    }


def outdated(found: Record) -> list[str]:
    """What of a record is of older code than this: methods, and "tables" where they are measured
    otherwise now. Of records without digests: all.
    """
    digests = found.get("digests")
    if digests is None:
        return [EVERYTHING]
    old = [m for m, each in digests["methods"].items() if each != provenance.of_method(m)]
    return old + ["tables"] * (digests["measure"] != provenance.of_measure(found["name"]))


def code() -> str:
    """The last commit that changed the library; a plus says that there are changes since."""
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


def table(
    title: str,
    columns: Sequence[str],
    rows: Mapping[str, Sequence[Any]],
    *,
    paper: Mapping[str, Sequence[float | None]] | None = None,
    seconds: Mapping[str, float] | None = None,
    digits: int = 3,
    errors: bool = True,
) -> Record:
    """A row for each method, with our figures, the paper's, and how long a call took.

    Each cell is a number, or one for each realisation. `errors`: the smaller the better.
    """
    paper, seconds = paper or {}, seconds or {}
    cells = {
        name: [np.atleast_1d(np.asarray(cell, float)) for cell in row] for name, row in rows.items()
    }
    return {
        "title": title,
        "columns": list(columns),
        "digits": digits,
        "errors": errors,
        "rows": [
            {
                "method": name,
                "ours": [_number(np.mean(cell)) for cell in cells[name]] if name in cells else None,
                "each": [[_number(value) for value in cell] for cell in cells[name]]
                if name in cells
                else None,
                "paper": list(paper[name]) if name in paper else None,
                "seconds": round(float(seconds[name]), 3) if name in seconds else None,
            }
            for name in dict.fromkeys([*paper, *rows])
        ],
    }


def figure_file(
    folder: Path | None, name: str, draw: Callable[[Any], None], *, width: float, height: float
) -> list[str]:
    """Draw on a Matplotlib figure of so many inches and save it, if there is a folder."""
    if folder is None:
        return []
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # small, and the same every time
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(
            folder / name, dpi=80, metadata={"Date": None} if name.endswith("svg") else None
        )
    if name.endswith("svg"):
        (folder / name).write_text(rounded((folder / name).read_text()))
    return [name]


def rounded(svg: str) -> str:
    """Coordinates to a hundredth of a point: half the size."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", svg)


def _number(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
