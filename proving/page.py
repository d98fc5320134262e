# SPDX-License-Identifier: MIT
"""Write docs/proving.md from the records: `python -m proving page`.

`--check` changes nothing and exits with 1 where the page and the records differ.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coframe.particles.recipe import FuseRecipe
from proving import conditions, tables
from proving.run import RESULTS, ROOT
from proving.sensitivity import STAGES, stage_numbers
from proving.sensitivity import numbers as recipe_numbers

PAGE = ROOT / "docs" / "proving.md"
IMAGES = ROOT / "docs" / "images"
# Records in the order of the history, with what is said of each.
HISTORY = {"0.1": "release 0.1", "now": "present"}
# Records of other programs, with what is said of each.
PEERS = {
    "open3d": "Open3D: ICP of pairs, from nothing after RANSAC on features, then a pose graph",
    "kiss_icp": "kiss-icp",
    "small_gicp": "small_gicp",
}
# Tuned numbers of release 0.1, counted in its source, where they had no common home.
NUMBERS_0_1 = 263
ABOUT = """# The proving ground

<!-- Written by `python -m proving page` from proving/results/*.json. -->

Problems with known poses, from bodies on a turntable to strips of terrain, run with default
options. A cloud is *right* if its pose is off by less than 5 % of its extent, relative to the other
clouds of its group. The worst that can happen is a cloud that is wrong and called "aligned".

Scenes are simulated: our own bodies, rooms, streets and so on, seen by simulated sensors with
noise, shadows, flying pixels and everything else that makes scans difficult. Beside them are real
sets ([data](data.md)), whose poses are somebody's estimate. Scenes are divided into two halves that
share no shape and no seed. Numbers of coframe may be chosen on *tune* alone; *judge* is run to
report.
"""
CONDITIONS = """## Conditions

Unless it says otherwise each cloud is first moved by a random rigid motion, so that its own frame
gives no hint.

| condition | what a method is given |
|---|---|
"""
COLUMNS = """\
- **placed**: share of the clouds that are right and not called failed, mean over problems, with its
  standard error
- **silent**: clouds that are wrong and called aligned, and in how many problems
- **alarms**: share of the right clouds that are not called aligned
- **error**: over the limit, median over so many problems; the limit is what the best unbiased
  method would leave with the same points and noise (Cramér and Rao)
- **chi²**: mean squared error over the stated covariance, per degree of freedom; 1 is honest, more
  means that the covariance is too small
- **CPU s**: seconds of one processor, mean; **MB**: largest memory of all problems
"""
RUN = """## Run it

```sh
make ground                                   # everything; can be interrupted and continued
python -m proving --family street --half judge --condition nothing
python -m proving --list                      # all problems
python -m proving --slice 500                 # as much as fits into 500 s
python -m proving compare 0.1 now             # two records, family by family
python -m proving sensitivity                 # what each number changes, on tune
python -m proving page                        # this page
```

Sets of others are found under `COFRAME_DATA`; those that are not there are left out. `make peers`
installs the other programs; the command of each record is in `proving/results`.
"""


def text(folder: Path = RESULTS) -> str:
    """The page, from the records of a folder."""
    records = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    parts = [ABOUT, pictures(), results(records), history(records), peers(records)]
    parts += [conditions_table(), sensitivity_table(records), RUN]
    return "\n".join(part for part in parts if part)


def pictures() -> str:
    """Pictures of scenes that are there."""
    found = sorted(IMAGES.glob("proving-*.png"))
    if not found:
        return ""
    lines = [f"![A simulated {each.stem[8:]}](images/{each.name})" for each in found]
    return "\n\n".join(["## Scenes", *lines]) + "\n"


def results(records: dict[str, Any]) -> str:
    """The table of the present code, one line a family, both halves."""
    record = records.get("now") or records.get("0.1")
    if record is None:
        return ""
    rows = [row for row in record["rows"] if tables.applies(row)]
    count = len({row["name"] for row in rows})
    families = len({row["family"] for row in rows})
    parts = [f"## Results\n\n{count} problems in {families} families.\n\n{COLUMNS}"]
    for half in ("judge", "tune"):
        lines = tables.lines(row for row in rows if row["half"] == half)
        parts.append(f"### {half.capitalize()}\n\n{tables.markdown(tables.COLUMNS, lines)}\n")
    return "\n".join([*parts, source(record)])


def history(records: dict[str, Any]) -> str:
    """All families together, release by release."""
    rows = []
    for label, title in HISTORY.items():
        if label not in records:
            continue
        record = records[label]
        commit = f"{record['version']['commit']}{'+' * record['version']['dirty']}"
        for half in ("judge", "tune"):
            chosen = [row for row in record["rows"] if row["half"] == half]
            rows.append([title, commit, half, *tables.cells("all", chosen)[1:]])
    if not rows:
        return ""
    columns = ["code", "commit", "half", *tables.COLUMNS[1:]]
    now = numbers()
    counted = (
        f"The recipes have {len(now)} fields that are tuned numbers, lists of them or switches. In"
        f" the source of release 0.1, {NUMBERS_0_1} numbers were counted one by one."
    )
    return f"## History\n\n{tables.markdown(columns, rows)}\n\n{counted}\n"


def numbers() -> list[str]:
    """Paths of all numbers and switches of the recipes."""
    found = [f"{stage}: {path}" for stage in STAGES for path, _ in stage_numbers(stage)]
    return found + [f"particles: {path}" for path, _ in recipe_numbers(FuseRecipe())]


def peers(records: dict[str, Any]) -> str:
    """Other programs beside coframe, on the problems that they apply to."""
    ours = records.get("now") or records.get("0.1")
    if ours is None:
        return ""
    parts = []
    for label, title in PEERS.items():
        if label not in records:
            continue
        theirs = [row for row in records[label]["rows"] if tables.applies(row)]
        names = {row["name"] for row in theirs}
        own = [row for row in ours["rows"] if row["name"] in names]
        theirs = [row for row in theirs if row["name"] in {row["name"] for row in own}]
        lines = tables.beside(own, theirs, ("coframe", label))
        parts.append(f"### {title}\n\n{tables.markdown(tables.COLUMNS, lines)}\n")
        parts.append(source(records[label]))
    if not parts:
        return ""
    head = (
        "## Other programs\n\nOn the problems that they apply to, as a careful user would run them"
        " (`proving/peers.py`). They have no verdicts: all that they connect counts as aligned.\n"
    )
    return "\n".join([head, *parts])


def conditions_table() -> str:
    rows = []
    for name, condition in conditions.CONDITIONS.items():
        rows.append(f"| {name} | {' '.join((condition.__doc__ or '').split())} |")
    return CONDITIONS + "\n".join(rows) + "\n"


def sensitivity_table(records: dict[str, Any]) -> str:
    """What each number changes."""
    record = records.get("sensitivity")
    if record is None:
        return ""
    by_number: dict[str, list[dict[str, Any]]] = {}
    for row in record["rows"]:
        by_number.setdefault(row["number"], []).append(row)
    rows = []
    for number, found in by_number.items():
        cells = [f"{each['new']}: {each['finding']}" for each in found]
        rows.append([f"`{number}`", found[0]["value"], "; ".join(cells)])
    table = tables.markdown(["number", "value", f"times and by {record['factor']:g}"], rows)
    return (
        "## What each number changes\n\nEach number of the recipes alone, on a few problems of"
        f" *tune* for each stage.\n\n{table}\n\n{source(record)}"
    )


def source(record: dict[str, Any]) -> str:
    """Where a table comes from."""
    version, machine = record["version"], record["machine"]
    command = f"`{record['command']}`. " if "command" in record else ""
    note = f" {record['note']}" if "note" in record else ""
    return (
        f"<small>{command}Code: {version['commit']}{'+' * version['dirty']}, {record['date']}."
        f" Machine: {machine['cores']} cores, {machine['cpu']}.{note}</small>\n"
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m proving page", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    new = text()
    if check and new != old:
        sys.exit("docs/proving.md differs from proving/results; run `python -m proving page`")
    if not check:
        PAGE.write_text(new, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {'changed' if new != old else 'as before'}")
