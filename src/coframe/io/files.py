# SPDX-License-Identifier: MIT
"""Reading regular files only; writing so that a file is whole or absent and stays in its folder;
what other people's parsers throw.
"""

import errno
import json
import math
import os
import re
import stat
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from coframe.errors import INVISIBLE, InputError, encodable
from coframe.types import Array

# [limit] Characters of a file name.
LONGEST = 100
# [limit, bytes] Size of poses, cameras, lists and other small files of text, at most: 100,000 poses
# of 600 characters.
SMALL = 1 << 26
REGULAR = "a file"
# [format] Kinds of files, in words; all others are devices.
KINDS = {
    stat.S_IFREG: REGULAR,
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path` that takes its name when the block ends well, and vanishes
    when it does not.

    >>> with atomic("poses.json") as temporary:
    ...     temporary.write_text("{}")
    """
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent
        )
    except OSError as error:
        raise _of(path, error) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~umask())
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, name):
            raise _of(path, error) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _of(path: Path, error: OSError) -> OSError:
    """The same error with the name that the user knows."""
    return OSError(error.errno or errno.EIO, error.strerror or str(error), str(path))


def write_rows(file: BinaryIO, rows: Array) -> None:
    """Write an array as it is in memory; `tofile` does not say why a disk takes no more."""
    file.write(np.ascontiguousarray(rows).tobytes())


def umask() -> int:
    """What new files of this process may not allow."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def file_names(names: Sequence[str], suffixes: Sequence[str]) -> list[str]:
    """Plain file names for clouds that may be called anything: no folders, nothing hidden, no two
    alike on any system.

    >>> file_names(["../../etc/passwd", "a/b", "a:b"], [".ply"] * 3)
    ['etc_passwd.ply', 'a_b.ply', 'a_b-2.ply']
    """
    taken: set[str] = set()
    found = []
    for name, suffix in zip(names, suffixes, strict=True):
        text = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())
        stem = UNSAFE.sub("_", text).strip("._ ")[:LONGEST] or "cloud"
        if RESERVED.fullmatch(stem):
            stem = f"_{stem}"
        chosen, count = stem + suffix, 1
        while chosen.lower() in taken:
            count += 1
            chosen = f"{stem}-{count}{suffix}"
        taken.add(chosen.lower())
        found.append(chosen)
    return found


# [format] Characters that file names have on no system, or had better not have.
UNSAFE = re.compile(rf'(?:{INVISIBLE.pattern}|[<>:"/\\|?*])+')
# [format] Names that Windows reserves.
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; pipes, devices and the like are refused.

    Nothing is waited for, and what was opened is what is checked.
    """
    kind = kind_of_path(path)
    handle = None
    if kind == REGULAR:
        # A pipe that has replaced the file since would wait here for a writer.
        waitless = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        handle = os.open(path, os.O_RDONLY | waitless)
        kind = _kind(os.fstat(handle).st_mode)
    if handle is not None and kind == REGULAR:
        return os.fdopen(handle, "rb")
    if handle is not None:
        os.close(handle)
    advice = "save it to a file first" if kind == "a pipe" else "name a file"
    raise InputError(f"{path}: expected a file, found {kind}; {advice}")


def as_path(value: object) -> Path:
    """The value as a path; an `InputError` where it is none."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(
            f"path: expected the path of a file or a folder, found {type(value).__name__}"
        )
    return Path(value)


def kind_of_path(path: str | os.PathLike[str]) -> str:
    """What is behind a path, in words; an OSError where nothing is."""
    return _kind(os.stat(path).st_mode)


def _kind(mode: int) -> str:
    return KINDS.get(stat.S_IFMT(mode), "a device")


def read_small(path: str | os.PathLike[str]) -> bytes:
    """The content of a regular file of at most `SMALL` bytes."""
    with regular(path) as file:
        content = file.read(SMALL + 1)
    if len(content) > SMALL:
        raise InputError(
            f"{path}: expected a file of at most {SMALL >> 20} MB, found a larger one; check that"
            " it is the right one"
        )
    return content


def as_json(content: object) -> str:
    """JSON that every parser reads: in ASCII, with null for numbers that are not finite.

    Bytes of file names that are no UTF-8 become escapes such as `\\xff`.
    """
    return json.dumps(_plain(content), indent=1, allow_nan=False)


def _plain(content: Any) -> Any:
    if isinstance(content, str):
        return encodable(content)
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {encodable(str(key)): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    return content


@contextmanager
def foreign() -> Iterator[None]:
    """Around calls of other people's parsers: whatever they throw at a bad file becomes a
    ValueError with its reason.
    """
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        # A PanicException is Rust's, in LAZ files.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ValueError(f"{type(error).__name__}: {error}") from error
        raise
