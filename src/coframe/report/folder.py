# SPDX-License-Identifier: MIT
"""A result folder with its report."""

import os

from coframe.report.page import write
from coframe.report.run import FILE, Run
from coframe.result.registration import Registration

PAGE = "report.html"


def write_folder(
    result: Registration,
    folder: str | os.PathLike[str],
    *,
    run: Run | None = None,
    page: bool = True,
) -> list[str]:
    """Save a result with run.json, which says how it came about, and report.html.

    Parameters
    ----------
    result
        The registration.
    folder
        Where to write; made if need be.
    run
        How the result came about. Default: called from Python.
    page
        Whether to write report.html; if not, that of an earlier result is removed.

    Returns
    -------
    list of str
        The names of the files written.

    Examples
    --------
    >>> coframe.report.write_folder(result, "out")
    """
    folder = result.save(folder)
    run = run or Run()
    run.save(folder)
    if page:
        write(result, folder / PAGE, run=run)
    else:
        (folder / PAGE).unlink(missing_ok=True)
    parts = sorted(path.name for path in folder.glob("merged-*.ply"))
    merged = f"{parts[0]} to {parts[-1]}" if parts and result.sizes else "merged.ply"
    return ["poses.json", merged, "model.ply", "state.npz", FILE, *([PAGE] if page else [])]
