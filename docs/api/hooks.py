# SPDX-License-Identifier: MIT
"""Fills the page of recipes: every `recipe.py` of the library is on it."""

from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "src"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs for every page."""
    if page.file.src_uri != "api/recipes.md":
        return markdown
    files = sorted(SOURCE.glob("coframe/*/recipe.py"))
    names = [".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in files]
    return "\n\n".join(
        [markdown, *(f"::: {name}\n    options: {{ show_source: true }}" for name in names)]
    )
