# SPDX-License-Identifier: MIT
"""The folder that a command writes to."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coframe.cli.app import complain, writable

# [format] The value of --poses that stands for the poses inside the scans' own files.
INSIDE = "inside"


@contextmanager
def claimed(
    folder: Path, names: Iterable[str], inputs: Iterable[str | os.PathLike[str]] = ()
) -> Iterator[None]:
    """The folder for this command alone; refused before any work where it would replace inputs, or
    files that coframe did not write.
    """
    from coframe.io.manifest import check_targets
    from coframe.io.transaction import locked

    writable(folder)
    with locked(folder):
        check_targets(folder, names, inputs)
        yield


def clouds_of(arguments: Iterable[Path]) -> list[Path]:
    """The files that arguments name, scan2 before scan10; what is left out is said."""
    return sorted(files_of(arguments), key=by_name)


def files_of(arguments: Iterable[Path]) -> list[Path]:
    """The files that arguments name, in the order of the arguments; what is left out is said."""
    from coframe.io import clouds

    def say_left_out(folder: Path, names: list[str]) -> None:
        complain(clouds.left_out_message(folder, names))

    arguments = list(arguments)
    found = clouds.expand(arguments, on_left_out=say_left_out)
    twice = dict.fromkeys(path for path in arguments if arguments.count(path) > 1)
    for path in twice if len(found) > 1 else ():  # a single file is refused, which says enough
        complain(f"{path}: given {arguments.count(path)} times, taken once")
    for folder in dict.fromkeys(path for path in arguments if path.is_dir()):
        if others := clouds.others_in(folder, found):
            kinds = ", ".join(
                sorted({path.suffix.lower() for path in found if path.parent == folder})
            )
            complain(
                f"{folder}: took the files {kinds} and left out {', '.join(others[:5])}"
                f"{f' and {len(others) - 5} more' if len(others) > 5 else ''}; to take others, name"
                " the files"
            )
    return found


def by_name(path: Path) -> Any:
    """The order of clouds in results."""
    from coframe.io import clouds

    return clouds.by_name(path)


def say_unused_poses(paths: Sequence[Path], *, contradicted: bool = False) -> None:
    """One line if scans have poses inside their files, which were not used.

    contradicted: because the scans do not agree with them.
    """
    from coframe.io import clouds

    count = clouds.count_poses_inside(paths)
    if count:
        whose = "1 scan has a pose" if count == 1 else f"{count} scans have poses"
        reason = ": the scans do not agree with them" if contradicted else ""
        same = " all the same" if contradicted else ""
        complain(
            f"{whose} inside the file{'s' * (count > 1)}, not used{reason}; to start from"
            f" {'it' if count == 1 else 'them'}{same}, add --poses {INSIDE}"
        )
