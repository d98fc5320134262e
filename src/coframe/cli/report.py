# SPDX-License-Identifier: MIT
"""`coframe report`."""

from pathlib import Path
from typing import Annotated

import typer

from coframe.cli.app import Quiet, say


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a result.")],
    quiet: Quiet = False,
) -> None:
    """Write the report of a result again.

    It is report.html in the same folder: one page that works offline.

    Example:  coframe report out
    """
    import coframe
    from coframe import report as reports
    from coframe.report import run

    result = coframe.load(folder)
    known = run.load(folder, result.poses.shape)
    path = reports.write(result, folder / "report.html", run=known)
    if not quiet:
        say(f"wrote {path}")
