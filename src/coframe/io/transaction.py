# SPDX-License-Identifier: MIT
"""A folder of results as a transaction: the files of a new result take the place of the old ones
all at once.

New files are written into a hidden folder inside the target. One rename turns it into the commit:
before it, the old result is untouched; after it, the new one is the result, and whoever finds its
files not yet moved into place moves the rest. manifest.json, replaced last, names the files with
their digests, so that every reader can tell whether files belong together, and every writer which
files are coframe's own to replace.
"""

import errno
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from coframe.errors import InputError
from coframe.io.files import as_json, regular, umask

try:
    import fcntl
except ImportError:  # Windows: nothing keeps two runs apart there.
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
StrPath = str | os.PathLike[str]

MANIFEST = "manifest.json"
EXPORT = "export"  # the kind of a commit of exported files; their folder has no manifest
FORMAT = "coframe-manifest/1"
LOCK = ".coframe.lock"
COMMIT = ".coframe-commit"
NEW = ".coframe-new-"
SCRATCH = ".coframe-scratch-"
# [format] Files that release 0.1, which wrote no manifest, put into a folder.
WITHOUT_MANIFEST = {
    "poses.json": ("merged.ply", "model.ply", "state.npz", "run.json", "report.html"),
    "track.json": ("trajectory.txt", "merged.ply", "model.ply", "state.npz", "report.html"),
    "comparison.json": ("comparison.html",),
}
# [limit] Bytes of a manifest, and of what a lock says of its owner.
LARGEST_MANIFEST, LARGEST_OWNER = 1 << 26, 1 << 12
# [size] Bytes that are read at a time.
BLOCK = 1 << 20
# [limit] Seconds to wait for another process that moves files into place, or exports some.
PATIENCE = 10.0
# [size] Seconds between two looks at what another process does.
PAUSE = 0.02
# [limit] Digests of exported files that a manifest keeps.
EXPORTS = 1000


@dataclass(frozen=True)
class Manifest:
    """What coframe wrote into a folder."""

    kind: str  # "registration", "track" or "comparison"
    files: Mapping[str, str]  # the digest of each
    exports: Mapping[str, str] = field(default_factory=dict)  # name (in the folder) by digest
    run: str = field(default_factory=lambda: uuid.uuid4().hex)  # new with every change
    origin: str = ""  # which folder of which machine it was written to
    version: str = field(default_factory=lambda: version("coframe"))

    @classmethod
    def read(cls, folder: StrPath) -> "Manifest | None":
        """The manifest of a folder; None where there is none."""
        path = Path(folder) / MANIFEST
        try:
            with open_regular(path) as file:
                content = file.read(LARGEST_MANIFEST + 1)
        except FileNotFoundError:
            return None
        try:
            if len(content) > LARGEST_MANIFEST:
                raise ValueError("it is too long")
            about = json.loads(content)
            if about.pop("format") != FORMAT:
                raise ValueError("another format")
            manifest = cls(**about)
            texts = [manifest.kind, manifest.run, manifest.origin, manifest.version]
            for names in (manifest.files, manifest.exports):
                texts += [*names.keys(), *names.values()]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("no texts")
            if not all(map(_plain, manifest.files)):
                raise ValueError("names that are no names of files in a result folder")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InputError(
                f"{path}: is not a manifest of coframe; move it away, or choose another folder"
            ) from None
        return manifest

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        temporary = folder / f"{NEW}manifest"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(as_json({"format": FORMAT} | asdict(self)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, folder / MANIFEST)

    def check(self, folder: StrPath, names: Iterable[str]) -> None:
        """Refuse files that are not those that coframe wrote together."""
        for name in names:
            path = Path(folder) / name
            if name not in self.files or not os.path.lexists(path):
                raise InputError(
                    f"{path}: is missing, though {MANIFEST} names the result's files; restore it"
                    " from a copy, or run the command again"
                )
            if digest_of(path) != self.files[name]:
                raise InputError(
                    f"{path}: has changed since coframe wrote it; restore it from a copy, or run"
                    " the command again"
                )


def digest_of(path: StrPath) -> str:
    """A digest of the content of a file."""
    found = hashlib.blake2b(digest_size=20)
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def open_regular(path: StrPath) -> BinaryIO:
    """Open a regular file for reading that is no link that leads out of its folder."""
    path = Path(path)
    if path.is_symlink() and not _within(path.resolve(), path.parent.resolve()):
        raise InputError(
            f"{path}: is a link that leads out of its folder; replace it by the file itself"
        )
    return regular(path)


def _within(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder)


def _plain(name: str) -> bool:
    """Whether a name is that of a visible file in the folder itself."""
    return (
        name == Path(name).name
        and not name.startswith(".")
        and name != MANIFEST
        and not set(name) & set("/\\:\0")
    )


# --- Who may write


class BusyError(InputError):
    """Another process writes to the folder."""


@dataclass
class _Owned:
    handle: int | None
    made: list[Path]  # folders that did not exist before
    users: int = 0
    one: Any = field(default_factory=threading.RLock)  # one thread at a time replaces files


_owned: dict[str, _Owned] = {}
_guard = threading.Lock()


def _forget_after_fork() -> None:
    """A child owns nothing: its parent goes on with what it has locked."""
    global _guard
    _guard = threading.Lock()
    for owned in _owned.values():
        if owned.handle is not None:
            os.close(owned.handle)
    _owned.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


@contextmanager
def locked(folder: StrPath, patience: float = 0.0) -> Iterator[Path]:
    """The folder, made if need be, with no other process writing to it, and with what an
    interrupted one left behind brought to its end.

    The operating system frees the lock of a process that has ended, however it ended. Within one
    process it can be taken again. `patience`: seconds to wait for another process.

    Raises
    ------
    BusyError
        If another process has it; the message names the process.
    """
    folder = Path(folder)
    key = os.path.realpath(folder)
    end = time.monotonic() + patience
    while True:
        try:
            with _guard:
                if key not in _owned:
                    _owned[key] = _lock(folder)
                    _recover(folder, _owned[key])
                _owned[key].users += 1
            break
        except BusyError:
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE)
    try:
        yield folder
    finally:
        with _guard:
            owned = _owned.get(key)
            if owned is not None:
                owned.users -= 1
                if not owned.users:
                    _unlock(folder, owned)
                    del _owned[key]


def _lock(folder: Path) -> _Owned:
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: expected a folder to write to, found {error.strerror}; choose another one"
        ) from None
    if fcntl is None:
        return _Owned(None, made)
    path = folder / LOCK
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(handle, LARGEST_OWNER)
            os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise BusyError(_busy(folder, owner)) from None
            return _Owned(None, made)  # a file system without locks
        # Whoever had it may have removed the file between our two calls.
        if os.path.lexists(path) and os.path.samestat(os.stat(path), os.fstat(handle)):
            break
        os.close(handle)
    about = {
        "process": os.getpid(),
        "host": platform.node(),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    with suppress(OSError):  # On a full disk the lock works without its owner's name.
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps(about).encode())
    return _Owned(handle, made)


def _unlock(folder: Path, owned: _Owned) -> None:
    if owned.handle is not None:
        with suppress(OSError):
            os.unlink(folder / LOCK)
        os.close(owned.handle)
    for path in owned.made:  # the innermost first; those that are empty
        try:
            path.rmdir()
        except OSError:
            break


def _busy(folder: Path, owner: bytes) -> str:
    try:
        about = json.loads(owner)
        who = f"{about['command']} (process {about['process']} on {about['host']}"
        who += f", since {about['since']})"
    except (ValueError, TypeError, KeyError):
        who = "another process"
    return f"{folder}: is being written to by {who}; wait until it ends, or choose another folder"


# --- Replacing what is in a folder


@contextmanager
def transaction(
    folder: StrPath,
    kind: str,
    *,
    inputs: Iterable[StrPath] = (),
    keep: bool = False,
    replaceable: Container[str] = (),
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
    replaceable
        Digests of other files that may be replaced.
    """
    # Exports are done soon, and several may go to one folder.
    patience = PATIENCE if kind == EXPORT else 0.0
    with locked(folder, patience) as folder, _owned[os.path.realpath(folder)].one:
        _finish_commit(folder)
        old = Manifest.read(folder)
        new = Path(tempfile.mkdtemp(prefix=NEW, dir=folder))
        try:
            yield new
            names = sorted(os.listdir(new))
            check_targets(folder, names, inputs, replaceable)
            files = {name: digest_of(new / name) for name in names}
            if keep:
                kind = kind if old is None else old.kind
                files = _kept(folder, old) | files
            exports = {} if old is None else old.exports
            manifest = Manifest(kind, files, exports, origin=origin(folder))
            _commit(folder, new, names, manifest)
        except OSError as error:
            raise _outside(error, new, folder) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _kept(folder: Path, old: Manifest | None) -> dict[str, str]:
    """The files that a folder has already; those of release 0.1 have no digests yet."""
    if old is not None:
        return dict(old.files)
    names = _known(folder, None)
    return {name: digest_of(folder / name) for name in names if _regular(folder / name)}


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
    if not all(_plain(name) and _regular(commit / name) for name in names):
        raise InputError(f"{commit}: is not what coframe wrote; remove it")
    obsolete = set() if new.kind == EXPORT else _known(folder, old) - set(new.files)
    for name in obsolete:
        if _is_own(folder, name, old):
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


def _recover(folder: Path, owned: _Owned) -> None:
    """Bring what an interrupted process left behind to its end: nobody else writes now."""
    try:
        _finish_commit(folder)
        for path in folder.iterdir():
            if path.name.startswith((NEW, SCRATCH)):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
    except BaseException:
        del _owned[os.path.realpath(folder)]
        _unlock(folder, owned)
        raise


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


def check_targets(
    folder: StrPath,
    names: Iterable[str],
    inputs: Iterable[StrPath] = (),
    replaceable: Container[str] = (),
    advice: str = "or choose another folder",
) -> None:
    """Refuse to write over inputs, and over files that coframe did not write.

    Parameters
    ----------
    folder
        It need not exist.
    names
        The files to be written.
    inputs
        Files that are read.
    replaceable
        Digests of files that may be replaced, though the manifest does not name them.
    advice
        What else to do than to move a file away.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return
    manifest = Manifest.read(folder)
    own = _known(folder, manifest)
    for name in sorted(own | set(names)):
        check_no_input(folder / name, inputs)
    for name in sorted(set(names)):
        path = folder / name
        if os.path.lexists(path) and not _is_own(folder, name, manifest):
            if _regular(path) and digest_of(path) in replaceable:
                continue
            why = "has changed since coframe wrote it" if name in own else "is not coframe's"
            raise InputError(f"{path}: {why} and would be replaced; move it away, {advice}")


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
    own = {*_result_in(target), MANIFEST}
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


def check_no_input(path: StrPath, inputs: Iterable[StrPath]) -> None:
    """Refuse to write over a file that is read, whatever it is called."""
    if not os.path.exists(path):
        return
    there = os.stat(path)
    for source in inputs:
        if os.path.exists(source) and os.path.samestat(os.stat(source), there):
            raise InputError(
                f"{path}: is an input and would be replaced; choose another folder or name"
            )


def own_files(folder: StrPath) -> set[str]:
    """The names of coframe's files in a folder that are no clouds to be registered."""
    try:
        manifest = Manifest.read(folder)
    except InputError:
        return set()
    exports = set() if manifest is None else set(manifest.exports.values())
    return _known(Path(folder), manifest) | exports - {""}


def _result_in(folder: StrPath) -> set[str]:
    """The names of the files of a result in a folder, without what was exported from it."""
    try:
        return _known(Path(folder), Manifest.read(folder))
    except InputError:
        return set()


def _known(folder: Path, manifest: Manifest | None) -> set[str]:
    """The names of the files of the result in a folder, also of release 0.1."""
    if manifest is not None:
        return set(manifest.files)
    known: set[str] = set()
    for mark, others in WITHOUT_MANIFEST.items():
        with suppress(OSError, InputError), open_regular(folder / mark) as file:
            if f'"format": "coframe-{mark.removesuffix(".json")}/'.encode() in file.read(1 << 12):
                known |= {mark, *others}
                known |= {path.name for path in folder.glob("merged-[0-9][0-9][0-9][0-9].ply")}
    return known


def _is_own(folder: Path, name: str, manifest: Manifest | None) -> bool:
    """Whether a file is as coframe wrote it; of release 0.1 only the name is known."""
    path = folder / name
    if not _regular(path):
        return False
    if manifest is None:
        return name in _known(folder, None)
    return manifest.files.get(name) == digest_of(path)


def _regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def origin(folder: StrPath) -> str:
    """Which folder of which machine and user this is: a copy, or a stranger's, is another one."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    about = f"{platform.node()}\0{user}\0{os.stat(folder).st_ino}"
    return hashlib.blake2b(about.encode(), digest_size=20).hexdigest()


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
    if _within(path, new):
        path = folder / path.relative_to(new)
    return OSError(error.errno or errno.EIO, error.strerror or str(error), str(path))
