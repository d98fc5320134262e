# SPDX-License-Identifier: MIT
"""The report: one self-contained page that shows a result and says how far to trust it."""

from coframe.report import comparison, track
from coframe.report.folder import files, track_files, write_folder, write_track_folder
from coframe.report.numbers import complete
from coframe.report.page import html, write
from coframe.report.run import Run

__all__ = [
    "Run",
    "comparison",
    "complete",
    "files",
    "html",
    "track",
    "track_files",
    "write",
    "write_folder",
    "write_track_folder",
]
