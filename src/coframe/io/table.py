# SPDX-License-Identifier: MIT
"""Tables of numbers in text, read fast and to the last bit.

NumPy reads about 20 MB/s of such text. The loop of `table_kernels`, compiled by Numba, reads a
number as an integer of up to 19 digits times a power of ten. The product is exact in one operation
for short numbers; for longer ones it is formed in twice the precision, which settles the rounding
of all but one in 10^13 of them. What is left (that one, more digits, tiny and huge numbers, `nan`)
is handed to Python's own `float`.
"""

import numpy as np
from jaxtyping import Float, UInt8

from coframe.types import Array

# [size] Tokens kept for Python before the loop pauses.
SLOW = 1 << 14
LINE_FEED, RETURN = ord("\n"), ord("\r")


def table(
    text: bytes | memoryview,
    columns: int,
    *,
    decimal: str = ".",
    rows: int | None = None,
    start: int = 0,
    line: int = 1,
    slow_tokens: int = SLOW,
) -> tuple[Float[Array, "N C"], int]:
    """The rows of numbers from byte `start` on, at most `rows` of them, and the position behind the
    last.

    Fields are apart by white space, commas or semicolons; an empty field is NaN; blank lines and
    those that start with #, % or // are skipped. Every other line has `columns` numbers, else a
    ValueError names it; `line` is the first line's number. `slow_tokens`:
    numbers that are kept for Python at a time.
    """
    # Imported here: Numba takes longer to import than most files to read.
    from coframe.io.table_kernels import read

    letters: UInt8[Array, " B"] = np.frombuffer(text, np.uint8)
    ends = (
        int(
            np.count_nonzero(letters[start:] == LINE_FEED)
            + np.count_nonzero(letters[start:] == RETURN)
        )
        + 1
    )
    # A field takes at least one byte.
    possible = min(ends, (len(letters) - start + 1) // columns + 1)
    values = np.empty((possible if rows is None else min(rows, possible), columns))
    slow = np.empty((max(slow_tokens, columns), 3), np.int64)
    done, position = 0, start
    while True:
        count, position, delayed, found = read(letters, position, ord(decimal), values[done:], slow)
        for index, begin, end in slow[:delayed]:
            token = bytes(letters[begin:end])
            try:
                values[done:].reshape(-1)[index] = _number(token, decimal)
            except ValueError:
                where = line + _lines(letters[:begin])
                raise ValueError(
                    f"line {where}: expected a number, found {token[:40].decode('latin-1')!r}"
                ) from None
        done += count
        if found >= 0:
            where = line + _lines(letters[:position])
            raise ValueError(f"line {where}: expected {columns} numbers, found {found}")
        if done == len(values) or delayed + columns <= len(slow):
            return values[:done], position


def _number(token: bytes, decimal: str) -> float:
    if b"_" in token:  # which Python allows between digits
        raise ValueError
    return float(token.decode("ascii").replace(decimal, "."))


def _lines(letters: UInt8[Array, " B"]) -> int:
    feeds = int(np.count_nonzero(letters == LINE_FEED))
    return feeds or int(np.count_nonzero(letters == RETURN))
