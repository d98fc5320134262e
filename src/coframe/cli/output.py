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

    return sorted(clouds.expand(arguments, on_left_out=say_left_out), key=clouds.by_name)


def known_poses(given: Path | None, paths: Sequence[Path], *, quiet: bool) -> "Poses | None":
    """Start poses that the user gave, None for none.

    Where poses inside the scans are not used, one line says that they are there.
    """
    import numpy as np

    from coframe.errors import InputError
    from coframe.io import clouds, poses

    if given is None:
        if not quiet and (count := clouds.count_poses_inside(paths)):
            complain(
                f"{count} scan{'s have' if count > 1 else ' has'} a pose inside its file, which is"
                f" not used; to start from the poses inside the files, add --poses {INSIDE}"
            )
        return None
    names = clouds.names_of(paths)
    if str(given) != INSIDE:
        return poses.read_for(given, names)
    inside = clouds.poses_inside(paths)
    if not inside:
        raise InputError(
            f"poses: expected poses inside the files for --poses {INSIDE}, found none; name a file"
            " with poses, or leave it out"
        )
    return np.array([inside.get(name, np.eye(4)) for name in names])
