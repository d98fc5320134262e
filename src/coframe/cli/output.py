# SPDX-License-Identifier: MIT
"""The folder that a command writes to."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from coframe.cli.app import complain, writable


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
