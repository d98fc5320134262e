# SPDX-License-Identifier: MIT
"""The report: one self-contained page that shows a result and says how far to trust it."""

from coframe.report.page import html, stored_colours, write
from coframe.report.run import Run

__all__ = ["Run", "html", "stored_colours", "write"]
