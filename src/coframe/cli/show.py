# SPDX-License-Identifier: MIT
"""What commands show and write alike: a progress line, the table of verdicts, the report."""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from coframe.cli.app import console

if TYPE_CHECKING:
    from collections.abc import Callable

    from coframe import Iteration, Options, Registration
    from coframe.arrays import Array


@contextmanager
def progress(quiet: bool) -> "Iterator[tuple[Callable[[Iteration], None], Callable[[int, int], None]]]":
    """A line that shows where the run is; callbacks move it, for iterations and for pairs."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task, done = progress.add_task("reading the scene"), 0

        def show(iteration: "Iteration") -> None:
            nonlocal done
            done += 1
            text = f"iteration {done}: log-likelihood {iteration.log_likelihood:.5g}, largest step {iteration.step:.1e}"
            progress.update(task, description=text)

        def show_pair(pair: int, pairs: int) -> None:
            progress.update(task, description=f"matching: pair {pair} of {pairs}")

        yield show, show_pair


def verdict_table(result: "Registration") -> Table:
    table = Table("cloud", "points", "verdict", "overlap", "residual", "reason")
    for name, cloud, verdict in zip(result.names, result.clouds, result.verdicts, strict=True):
        figures = f"{verdict.overlap:.0%}", f"{verdict.residual:.3g}"
        reason = "" if verdict.verdict == "aligned" else verdict.reason
        table.add_row(name, str(len(cloud)), verdict.verdict, *figures, reason)
    return table


def write_report(folder: Path, result: "Registration", options: "Options", start: "Array | None", begun: float) -> None:
    """report.html, and run.json with what the result itself does not know. Without start poses, clouds start as they lie."""
    from dataclasses import asdict

    from coframe import geometry
    from coframe import report as reports

    start = geometry.identity(len(result.poses), result.mixture.dimension) if start is None else start
    command = shlex.join(["coframe", *sys.argv[1:]])
    run = reports.Run(command, asdict(options), seconds=time.perf_counter() - begun, start=start)
    run.save(folder)
    reports.write(result, folder / "report.html", run=run, colours=reports.stored_colours(folder, result))
