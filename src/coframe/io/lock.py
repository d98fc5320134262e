# SPDX-License-Identifier: MIT
"""One process at a time writes to a folder.

The operating system frees the lock of a process that has ended, however it ended.
"""

import errno
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coframe.errors import InputError

try:
    import fcntl
except ImportError:  # Windows: nothing keeps two runs apart there.
    fcntl = None  # type: ignore[assignment]

LOCK = ".coframe.lock"
# [limit] Bytes of what a lock says of its owner.
LARGEST_OWNER = 1 << 12
# [size] Seconds between two looks at what another process does.
PAUSE = 0.02


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
def locked(
    folder: str | os.PathLike[str], on_locked: Callable[[Path], object], patience: float = 0.0
) -> Iterator[None]:
    """No other process writes to the folder, which is made if need be.

    Within one process the lock can be taken again. `on_locked` is called when it is taken first.
    `patience`: seconds to wait for another process.

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
            _enter(folder, key, on_locked)
            break
        except BusyError:
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE)
    try:
        yield
    finally:
        _leave(folder, key)


def one_thread(folder: str | os.PathLike[str]) -> AbstractContextManager[object]:
    """No other thread of this process writes to the folder, which this process has locked."""
    return _owned[os.path.realpath(folder)].one


def _enter(folder: Path, key: str, on_locked: Callable[[Path], object]) -> None:
    with _guard:
        if key not in _owned:
            owned = _lock(folder)
            try:
                on_locked(folder)
            except BaseException:
                _unlock(folder, owned)
                raise
            _owned[key] = owned
        _owned[key].users += 1


def _leave(folder: Path, key: str) -> None:
    with _guard:
        owned = _owned.get(key)
        if owned is None:  # This process was forked from the one that had it.
            return
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
