# SPDX-License-Identifier: MIT
"""`coframe report`."""

from pathlib import Path
from typing import Annotated

import typer

from coframe.cli.app import Quiet, console


def report(folder: Annotated[Path, typer.Argument(help="Folder that `coframe register` wrote.")], quiet: Quiet = False) -> None:
    """Make the report of a result again: report.html, one page that needs nothing else.

    Example:  coframe report out
    """
    import coframe
    from coframe import report as reports
    from coframe.report import run

    result = coframe.load(folder)
    known = run.load(folder, result.poses.shape)
    path = reports.write(result, folder / "report.html", run=known, colours=reports.stored_colours(folder, result))
    if not quiet:
        console.print(f"Wrote {path}")
