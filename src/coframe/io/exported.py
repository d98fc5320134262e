# SPDX-License-Identifier: MIT
"""Files that are exported from a result: they may lie anywhere and replace earlier exports only."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from coframe.errors import InputError
from coframe.io.manifest import (
    EXPORTS,
    MANIFEST,
    StrPath,
    check_no_input,
    read_exports,
    result_files,
)
from coframe.io.transaction import EXPORT, transaction


@contextmanager
def exported(
    folder: StrPath,
    target: StrPath,
    names: Sequence[str] | None = None,
    *,
    inputs: Iterable[StrPath] = (),
    overwrite: bool = False,
) -> Iterator[Path]:
    """A new folder, whose files appear in the folder `target` all at once when the block ends well.

    A list beside the result keeps their digests, so that an export can be repeated. Other files are
    replaced only with `overwrite`; inputs and files of results never.

    Parameters
    ----------
    folder
        It has the result that is exported.
    target
        Made if it does not exist.
    names
        The files, if they go beside others; else the target is theirs alone.
    inputs
        Files that must not be replaced.
    overwrite
        Whether files may be replaced that were not exported from the result.
    """
    own = {*result_files(target), MANIFEST}
    for name in names or ():
        check_no_input(Path(target) / name, inputs)
        if name in own or name.startswith(".coframe"):
            raise InputError(f"{Path(target) / name}: belongs to the result; choose another name")
    if names is None and own != {MANIFEST}:
        raise InputError(
            f"{target}: is the folder of a result; choose another one for the exported files"
        )
    here = os.path.realpath(target) == os.path.realpath(folder)

    def record(files: Mapping[str, str]) -> None:
        _record(Path(folder), {digest: name if here else "" for name, digest in files.items()})

    with transaction(
        target,
        EXPORT,
        inputs=inputs,
        may_replace=lambda digest: overwrite or digest in read_exports(folder),
        advice="or replace it with --overwrite",
        before_commit=record,
    ) as new:
        yield new


def _record(folder: Path, new: Mapping[str, str]) -> None:
    """Append digests and names; other processes may do so at the same time."""
    known = read_exports(folder)
    lines = [f"\n{json.dumps(item)}" for item in new.items() if item not in known.items()]
    if not lines:
        return
    with suppress(OSError):  # A result may be where nobody can write.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        handle = os.open(folder / EXPORTS, flags, 0o666)
        try:
            os.write(handle, "".join(lines).encode())
        finally:
            os.close(handle)
