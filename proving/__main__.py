# SPDX-License-Identifier: MIT
"""The command of the proving ground: `python -m proving --help`."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from proving import compare, page, plan, run, sensitivity, tables
from proving.conditions import CONDITIONS

RUN = """Run problems with known poses, and print one line a family.

Two problems run at a time, each on one thread in a process of its own. What is
done is kept in build/proving and not run again unless the code or the problem
has changed. When all problems of the plan are done, the record
proving/results/LABEL.json is written.

Scenes are divided into two halves that share no shape: numbers of a recipe may
be chosen on "tune" alone, "judge" is run to report."""

MORE = """other commands:
  python -m proving page              write docs/proving.md from the records
  python -m proving compare A B       two records, family by family
  python -m proving sensitivity       what each number of the recipes changes

examples:
  python -m proving --family street --half judge --condition nothing
  python -m proving --slice 500       as much as fits into 500 seconds
  python -m proving --label 0.1 --python ~/coframe-0.1/.venv/bin/python
  python -m proving --label small_gicp --python .venv-peers/bin/python \\
      --solver "proving/peers.py --name small_gicp\""""


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = {"page": page.main, "compare": compare.main, "sensitivity": sensitivity.main}
    if words and words[0] in commands:
        commands[words[0]](words[1:])
        return
    options = parser().parse_args(words)
    entries = plan.chosen(family=options.family, half=options.half, condition=options.condition)
    if not entries:
        sys.exit("no problem of the plan is like that; --list shows all of them")
    if options.list:
        for entry in entries:
            print(entry.name)
        print(f"{len(entries)} problems in {len({each.scene.family for each in entries})} families")
        return
    method = run.method(options.label, options.python, options.solver)
    rows = run.run(entries, method, seconds=options.slice, say=print)
    print()
    print(tables.plain(tables.COLUMNS, tables.lines(rows)))
    if len(rows) < len(entries):
        print(f"{len(entries) - len(rows)} problems are left: the same command continues.")
    whole = len(plan.whole())
    if rows and (len(rows) == whole or options.partial):
        # Folders of one machine say nothing on another.
        named = [Path(word).name if Path(word).is_absolute() else word for word in words]
        command = shlex.join(["python", "-m", "proving", *named])
        note = "" if len(rows) == whole else f"{len(rows)} of {whole} problems."
        path = run.save(run.record(method, rows, command, note))
        print(f"record: {path.relative_to(run.ROOT)}")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m proving",
        description=RUN,
        epilog=MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--family", help="problems of this family alone")
    found.add_argument("--half", choices=["tune", "judge"], help="problems of this half alone")
    found.add_argument(
        "--condition",
        choices=list(CONDITIONS),
        metavar="NAME",
        help="problems under this condition alone: " + ", ".join(CONDITIONS),
    )
    found.add_argument("--label", default="now", help="name of the record; default: now")
    found.add_argument("--python", metavar="FILE", help="run the coframe of another interpreter")
    found.add_argument(
        "--solver",
        metavar="SCRIPT",
        help="what solves a problem, with further words; default: proving/solve.py",
    )
    found.add_argument(
        "--slice",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="start no further problem after so many seconds",
    )
    found.add_argument(
        "--partial",
        action="store_true",
        help="write the record even if problems of the plan are left; it says how many",
    )
    found.add_argument("--list", action="store_true", help="print the problems and run none")
    return found


if __name__ == "__main__":
    main()
