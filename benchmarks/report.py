# SPDX-License-Identifier: MIT
"""Write the tables of `benchmarks/results/*.json` into the pages: `python -m benchmarks.report`.

A page asks for a table by `<!-- figures: NAME -->`; everything from there to `<!-- end -->` is
replaced by the table of `benchmarks/results/NAME.json` and a line that says where it comes from.
`--check` changes nothing and exits with 1 where a page and its records differ.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, ROOT

PAGES = ROOT / "docs"
BLOCK = re.compile(r"<!-- figures: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def table(record: dict[str, Any]) -> str:
    """A record as Markdown: the table, and its command, code, date and machine."""
    rows = [record["columns"], ["---"] * len(record["columns"]), *record["rows"]]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    source = f"Code: {record['commit']}, {record['date']}. Machine: {record['machine']}."
    if record.get("transcribed"):
        source += " Transcribed from the documentation of 0.1."
    return "\n".join(
        [*lines, "", f"<small>{record['what']} `{record['command']}`. {source}</small>"]
    )


def filled(text: str, folder: Path = RESULTS) -> str:
    """The text of a page with the tables of its records."""

    def block(match: re.Match[str]) -> str:
        record = json.loads((folder / f"{match[1]}.json").read_text(encoding="utf-8"))
        return f"<!-- figures: {match[1]} -->\n\n{table(record)}\n\n<!-- end -->"

    return BLOCK.sub(block, text)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    different = []
    for page in sorted(PAGES.glob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = filled(old)
        if new == old:
            continue
        different.append(page.name)
        if not check:
            page.write_text(new, encoding="utf-8")
    if check and different:
        sys.exit(f"differ from benchmarks/results: {', '.join(different)}; run `make figures`")
    print(f"changed: {', '.join(different) or 'nothing'}")


if __name__ == "__main__":
    main()
