# SPDX-License-Identifier: MIT
"""The folder that a command writes to."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from coframe.cli.app import complain, writable

if TYPE_CHECKING:
    from coframe.types import Poses

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
    from coframe.io import clouds

    def say_left_out(folder: Path, names: list[str]) -> None:
        complain(clouds.left_out_message(folder, names))

    arguments = list(arguments)
    found = clouds.expand(arguments, on_left_out=say_left_out)
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
    return sorted(found, key=clouds.by_name)


def known_poses(
    given: Path | None, paths: Sequence[Path], *, unknown: Sequence[int] = ()
) -> "Poses | None":
    """Start poses that the user gave, None for none; the identity for clouds of unknown pose."""
    import numpy as np

    from coframe import geometry
    from coframe.errors import InputError
    from coframe.io import clouds, poses

    if given is None:
        return None
    names = clouds.names_of(paths)
    if str(given) != INSIDE:
        known = [j for j in range(len(names)) if j not in unknown]
        if not known:
            return poses.read_for(given, names)
        read = poses.read_for(given, [names[j] for j in known])
        found = geometry.identity(len(names), read.shape[-1] - 1)
        found[known] = read
        return found
    inside = clouds.poses_inside(paths)
    if not inside:
        raise InputError(
            f"poses: expected poses inside the files for --poses {INSIDE}, found none; name a file"
            " with poses, or leave it out"
        )
    return np.array([inside.get(name, np.eye(4)) for name in names])


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


def indices(paths: Sequence[Path], wanted: Sequence[str], option: str) -> list[int]:
    """The numbers of the clouds that an option names; an unknown name is refused with those near
    it.
    """
    from coframe.io import clouds

    if not wanted:
        return []
    return [_index(clouds.names_of(paths), name, option) for name in wanted]


def without(paths: Sequence[Path], excluded: Sequence[str]) -> list[Path]:
    """The files without those of excluded clouds."""
    from coframe.errors import InputError
    from coframe.io import clouds

    if not excluded:
        return list(paths)
    names, files = clouds.named_files(paths)
    out = {files[_index(names, name, "exclude")] for name in excluded}
    for path in out:
        own = [name for name, file in zip(names, files, strict=True) if file == path]
        if left := [name for name in own if name not in excluded and path.stem not in excluded]:
            raise InputError(
                f"exclude: expected all scans of {path} or none, found {left[0]} left in; save the"
                " scans to files of their own to choose among them"
            )
    return [path for path in paths if path not in out]


def _index(names: Sequence[str], name: str, option: str) -> int:
    from coframe.errors import InputError, nearest

    short = {Path(own).stem: j for j, own in enumerate(names)}
    found = names.index(name) if name in names else short.get(Path(name).stem)
    if found is None:
        raise InputError(
            f"{option}: expected the name of a cloud, found {name!r}; {nearest(name, names)}"
        )
    return found
