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
    from coframe.input.units import length
    from coframe.report import run

    result = coframe.load(folder)
    known = run.load(folder, result.poses.shape)
    said = known.options.get("distance_tolerance")
    tolerance = length(str(said), known.unit or "m", "tolerance") if said else None
    quality = coframe.assess(result, tolerance)
    path = reports.write(result, folder / "report.html", run=known, quality=quality)
    if not quiet:
        say(f"wrote {path}")
