# SPDX-License-Identifier: MIT
"""The file of a checkpoint, which may come from a stranger: an SQLite database with one plain
table, or it is refused before anything in it is read.

A database can bring code of its own (views, triggers, generated columns, virtual tables), and the
journal beside it can name a file to be deleted.
"""

import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from coframe.errors import InputError, one_line

TABLE = "CREATE TABLE record (key TEXT PRIMARY KEY, value BLOB)"
# [format] The whole schema of a checkpoint, as SQLite describes it.
SCHEMA = [
    ("table", "record", "record", TABLE),
    ("index", "sqlite_autoindex_record_1", "record", None),
]
# [format] How a database begins, and the two bytes by which it has a journal, not a log.
BEGINNING = b"SQLite format 3\0"
JOURNALLED = b"\x01\x01"
# [format] How a journal begins, unless it begins with zeros; one that ends so names another file.
JOURNAL = bytes.fromhex("d9d505f920a163d7")
# [size] Steps of SQLite's machine from one look at `is_stopped` to the next, about 0.1 ms.
STEPS = 10_000
# What SQLite raises for a damaged file.
UNREADABLE = (sqlite3.Error, UnicodeError)


def check_ours(path: Path) -> None:
    """Refuse a file that coframe has not written; one that is absent or empty is fine.

    The file is neither changed nor locked, and a journal beside it is not rolled back: where a
    process was killed in the middle of a commit, a copy is.
    """
    unfinished = _check_journal(path)
    try:
        kind = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(kind.st_mode):
        raise _refusal(path, "no regular file")
    if kind.st_size == 0:
        return
    if not unfinished:
        _check_file(path, path, "?immutable=1")
        return
    with tempfile.TemporaryDirectory(prefix="coframe-") as folder:
        copy = Path(folder) / path.name
        for name in (path.name, f"{path.name}-journal"):
            shutil.copyfile(path.with_name(name), copy.with_name(name))
        _check_file(path, copy, "")


def _check_file(path: Path, copy: Path, mode: str) -> None:
    """Refuse the database at `path`; it is read from `copy`, opened in this mode."""
    with open(copy, "rb") as file:
        head = file.read(20)
    if not head.startswith(BEGINNING) or head[18:] != JOURNALLED:
        raise _refusal(path, "another file")
    try:
        with closing(sqlite3.connect(f"{copy.absolute().as_uri()}{mode}", uri=True)) as file:
            file.execute("PRAGMA trusted_schema = OFF")
            empty = file.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            # A commit that was cut off may have been the first.
            if not (empty and copy != path and copy.stat().st_size == 0):
                _check_schema(path, file)
    except UNREADABLE as error:
        raise _refusal(path, one_line(error)) from None


def connect(path: Path) -> sqlite3.Connection:
    """The database at this path, made anew where there is none."""
    check_ours(path)
    file = sqlite3.connect(path, check_same_thread=False)
    try:
        file.execute("PRAGMA trusted_schema = OFF")
        file.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS", 1))
        file.commit()
        _check_schema(path, file)
    except BaseException:
        file.close()
        raise
    return file


def find(
    file: sqlite3.Connection, key: str, *, most: int, is_stopped: Callable[[], bool]
) -> object:
    """The value under a key, None where there is none.

    A value of more than `most` bytes is an error: no record is larger than its file, but one in a
    forged file may say so. The query ends with an error soon after `is_stopped` turns true.
    """
    before = file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
    file.set_progress_handler(is_stopped, STEPS)
    try:
        row = file.execute("SELECT value FROM record WHERE key = ?", (key,)).fetchone()
    finally:
        file.set_progress_handler(None, 0)
        file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)
    return None if row is None else row[0]


def _check_schema(path: Path, file: sqlite3.Connection) -> None:
    """Refuse a database with anything in it but the one table; `sqlite_master` is always plain."""
    found = file.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    if found.fetchmany(len(SCHEMA) + 1) != SCHEMA:
        raise _refusal(path, "a database of another kind")


def _check_journal(path: Path) -> bool:
    """Refuse what is no journal of SQLite, and a journal that names a file to be deleted.

    Returns whether there is a journal to be rolled back.
    """
    journal = path.with_name(f"{path.name}-journal")
    try:
        kind = journal.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(kind.st_mode):
        raise _refusal(journal, "no regular file")
    with open(journal, "rb") as file:
        head = file.read(len(JOURNAL))
        file.seek(max(len(head), kind.st_size - len(JOURNAL)))
        tail = file.read(len(JOURNAL))
    if head.strip(b"\0") and head != JOURNAL:
        raise _refusal(journal, "another file")
    if tail == JOURNAL:
        raise _refusal(journal, "a journal that names another file")
    return head == JOURNAL


def _refusal(path: Path, found: str) -> InputError:
    return InputError(
        f"{path}: expected a checkpoint of coframe, found {found}; move it away, or choose another"
        " folder"
    )
