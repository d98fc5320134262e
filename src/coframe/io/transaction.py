# SPDX-License-Identifier: MIT
"""A folder of results as a transaction: the files of a new result take the place of the old ones
all at once.

New files are written into a hidden folder inside the target. One rename turns it into the commit:
before it, the old result is untouched; after it, the new one is the result, and whoever finds its
files not yet moved into place moves the rest. The manifest is replaced last.
"""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from coframe.errors import InputError
from coframe.io import lock
from coframe.io.files import umask
from coframe.io.lock import PAUSE, BusyError
from coframe.io.manifest import (
    ADVICE,
    MANIFEST,
    NEW,
    Manifest,
    StrPath,
    check_targets,
    digest_of,
    is_own,
    is_plain,
    is_regular,
    known_files,
    origin,
)

T = TypeVar("T")
EXPORT = "export"  # the kind of a commit of exported files; their folder has no manifest
COMMIT = ".coframe-commit"
SCRATCH = ".coframe-scratch-"
# [limit] Seconds to wait for another process that moves files into place, or exports some.
PATIENCE = 10.0


@contextmanager
def locked(folder: StrPath, patience: float = 0.0) -> Iterator[Path]:
    """The folder, made if need be, with no other process writing to it, and with what an
    interrupted one left behind brought to its end.

    Within one process it can be taken again. `patience`: seconds to wait for another process.

    Raises
    ------
    BusyError
        If another process has it; the message names the process.
    """
    with lock.locked(folder, _recover, patience):
        yield Path(folder)


@contextmanager
def transaction(
    folder: StrPath,
    kind: str,
    *,
    inputs: Iterable[StrPath] = (),
    keep: bool = False,
    may_replace: Callable[[str], bool] = lambda digest: False,
    elsewhere: bool = False,
    advice: str = ADVICE,
    before_commit: Callable[[Mapping[str, str]], object] = lambda files: None,
) -> Iterator[Path]:
    """A new folder, whose files take the place of what coframe wrote to `folder` when the block
    ends well, and vanish when it does not.

    Parameters
    ----------
    folder
        Made if it does not exist. Files that coframe did not write stay as they are.
    kind
        What is written; see `Manifest`.
    inputs
        Files that were read for it and must not be replaced.
    keep
        Whether files of the old result stay that the block does not replace.
    may_replace
        Whether another file with this digest may be replaced; one with the same content may.
    elsewhere
        Whether it comes from a result that was not made in its folder; see `is_from_elsewhere`.
    advice
        What else to do than to move a file away that would be replaced.
    before_commit
        Called with the digest of each new file when nothing is in the way.
    """
    # Exports are done soon, and several may go to one folder.
    patience = PATIENCE if kind == EXPORT else 0.0
    with locked(folder, patience) as folder, lock.one_thread(folder):
        _finish_commit(folder)
        old = Manifest.read(folder)
        new = Path(tempfile.mkdtemp(prefix=NEW, dir=folder))
        try:
            yield new
            names = sorted(os.listdir(new))
            files = {name: digest_of(new / name) for name in names}
            same = set(files.values())
            check_targets(
                folder, names, inputs, lambda digest: digest in same or may_replace(digest), advice
            )
            before_commit(files)
            made_in = "" if elsewhere else origin(folder)
            if keep:
                files = _kept(folder, old) | files
                kind, made_in = (kind, made_in) if old is None else (old.kind, old.origin)
            manifest = Manifest(kind, files, origin=made_in)
            _commit(folder, new, names, manifest)
        except OSError as error:
            raise _outside(error, new, folder) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _kept(folder: Path, old: Manifest | None) -> dict[str, str]:
    """The files that a folder has already; those of release 0.1 have no digests yet."""
    if old is not None:
        return dict(old.files)
    names = known_files(folder, None)
    return {name: digest_of(folder / name) for name in names if is_regular(folder / name)}


def _commit(folder: Path, new: Path, names: Sequence[str], manifest: Manifest) -> None:
    for name in names:
        with open(new / name, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(new / name, 0o666 & ~umask())
    manifest.write(new)
    sync(new)
    os.rename(new, folder / COMMIT)  # From here on, the new result is the result.
    sync(folder)
    try:
        _finish(folder)
    except OSError as error:
        message = (
            f"the new files are complete, but not all are in place ({error.strerror}); the next"
            " coframe command on the folder moves the rest"
        )
        raise OSError(error.errno, message, str(folder)) from error


def _finish(folder: Path) -> None:
    """Move the files of a commit into place; what is done already is left out."""
    commit = folder / COMMIT
    new, old = Manifest.read(commit), Manifest.read(folder)
    if new is None:  # All were moved, or nobody's.
        shutil.rmtree(commit)
        return
    names = [name for name in os.listdir(commit) if name != MANIFEST]
    if not all(is_plain(name) and is_regular(commit / name) for name in names):
        raise InputError(f"{commit}: is not what coframe wrote; remove it")
    obsolete = set() if new.kind == EXPORT else known_files(folder, old) - set(new.files)
    for name in obsolete:
        if is_own(folder, name, old):
            os.unlink(folder / name)
    for name in names:
        os.replace(commit / name, folder / name)
    if new.kind == EXPORT:
        os.unlink(commit / MANIFEST)
    else:
        os.replace(commit / MANIFEST, folder / MANIFEST)
    os.rmdir(commit)
    sync(folder)


def _finish_commit(folder: Path) -> None:
    """Move the files of a commit into place, if there is one."""
    commit = folder / COMMIT
    if commit.is_symlink():
        commit.unlink()
    elif commit.is_dir():
        _finish(folder)


def _recover(folder: Path) -> None:
    """Bring what an interrupted process left behind to its end: nobody else writes now."""
    _finish_commit(folder)
    for path in folder.iterdir():
        if path.name.startswith((NEW, SCRATCH)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def consistent(folder: StrPath, read: Callable[[Manifest | None], T]) -> T:
    """What `read` finds in a folder that another process may be replacing, all of it of one result.

    `read` gets the manifest, if there is one.
    """
    folder = Path(folder)
    end = time.monotonic() + PATIENCE
    while True:
        _settle(folder, end)
        manifest = Manifest.read(folder)
        try:
            found = read(manifest)
        except (InputError, OSError):
            if not _replaced(folder, manifest) or time.monotonic() > end:
                raise
        else:
            if not _replaced(folder, manifest):
                return found
            if time.monotonic() > end:
                raise InputError(
                    f"{folder}: is replaced by another process again and again; try again later"
                )


def _settle(folder: Path, end: float) -> None:
    """Wait for a writer that moves files into place, or finish its work if it is gone."""
    while (folder / COMMIT).exists():
        try:
            with locked(folder):
                _finish_commit(folder)
        except BusyError:
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE)
        except OSError as error:
            if not (folder / COMMIT).exists():
                return
            raise InputError(
                f"{folder}: a new result was not moved into place before its run was stopped, and"
                f" now it cannot be ({error.strerror}); load it as a user who may write there"
            ) from None


def _replaced(folder: Path, manifest: Manifest | None) -> bool:
    now = Manifest.read(folder)
    run = None if manifest is None else manifest.run
    return (folder / COMMIT).exists() or run != (None if now is None else now.run)


def sync(folder: Path) -> None:
    """Have the names in a folder survive a power cut, where the system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _outside(error: OSError, new: Path, folder: Path) -> OSError:
    """The error with the name that the user knows."""
    named = error.filename or folder
    path = Path(os.fsdecode(named))
    if path.is_relative_to(new):
        path = folder / path.relative_to(new)
    return OSError(error.errno or errno.EIO, error.strerror or str(error), str(path))
