# SPDX-License-Identifier: MIT
"""Files that are exported from a result: they may lie anywhere and replace earlier exports only."""

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from coframe.errors import InputError
from coframe.io.lock import BusyError
from coframe.io.manifest import (
    MANIFEST,
    Manifest,
    StrPath,
    check_no_input,
    check_targets,
    digest_of,
    result_files,
)
from coframe.io.transaction import EXPORT, locked, transaction

# [limit] Digests of exported files that a manifest keeps.
EXPORTS = 1000


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

    The manifest of the result in `folder` keeps their digests, so that an export can be repeated.
    Other files are replaced only with `overwrite`; inputs and files of results never.

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
    replaceable: Container[str] = _Anything() if overwrite else _exports_of(folder)
    check_targets(target, names or (), (), replaceable, "or replace it with --overwrite")
    with transaction(target, EXPORT, inputs=inputs, replaceable=replaceable) as new:
        yield new
        here = os.path.realpath(target) == os.path.realpath(folder)
        new_files = {digest_of(path): path.name if here else "" for path in new.iterdir()}
        _record_exports(Path(folder), new_files)


class _Anything:
    def __contains__(self, digest: object) -> bool:
        return True


def _exports_of(folder: StrPath) -> Mapping[str, str]:
    manifest = Manifest.read(folder)
    return {} if manifest is None else manifest.exports


def _record_exports(folder: Path, new: Mapping[str, str]) -> None:
    """Keep digests in the manifest, if there is one and it can be written now."""
    with suppress(BusyError, OSError), locked(folder):
        manifest = Manifest.read(folder)
        if manifest is not None and not new.items() <= manifest.exports.items():
            others = [item for item in manifest.exports.items() if item[0] not in new]
            exports = dict([*others, *new.items()][-EXPORTS:])
            replace(manifest, exports=exports).write(folder)
