# SPDX-License-Identifier: MIT
"""Writing so that a file is whole or absent and stays in its folder; what other people's parsers
throw.
"""

import errno
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from coframe.errors import InputError

# [limit] Characters of a file name.
LONGEST = 100


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
        stem = re.sub(r'[\x00-\x1f\x7f<>:"/\\|?*]+', "_", text).strip("._ ")[:LONGEST] or "cloud"
        if RESERVED.fullmatch(stem):
            stem = f"_{stem}"
        chosen, count = stem + suffix, 1
        while chosen.lower() in taken:
            count += 1
            chosen = f"{stem}-{count}{suffix}"
        taken.add(chosen.lower())
        found.append(chosen)
    return found


# [format] Names that Windows reserves.
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


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
