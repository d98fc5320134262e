# SPDX-License-Identifier: MIT
"""Points in columns of text: XYZ, TXT, ASC, CSV and PTS."""

import csv
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float

from coframe.io.files import atomic
from coframe.io.scan import Scan, joined, of_columns
from coframe.io.table import table
from coframe.types import Array

# [size, bytes] Text that is read at a time.
PIECE = 1 << 24
# [size] Rows that are written at a time.
ROWS = 100_000
# [size] Rows that show what columns without a header are.
SAMPLE = 10_000
# [limit] Columns at most.
MOST_COLUMNS = 1000
# [limit, bytes] A file without a line end within this is not a table.
LONGEST_LINE = 1 << 20
# [0.1, unknown] Columns are normals where this share of the rows has a length within this
# tolerance of 1.
UNIT_SHARE = 0.99
UNIT_TOLERANCE = 1e-2
NUMBER = re.compile(
    r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE
)
XYZ = ("x", "y", "z")
RGB = ("red", "green", "blue")
UNIT = ("nx", "ny", "nz")
BY_SUFFIX = {".xyzn": (*XYZ, *UNIT), ".xyzrgb": (*XYZ, *RGB)}
PTS = {3: XYZ, 4: (*XYZ, "intensity"), 6: (*XYZ, *RGB), 7: (*XYZ, "intensity", *RGB)}


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """The whole table. Columns are known by their header, or by what their values can be."""
    scans = list(blocks(path))
    if not scans:
        raise ValueError("no line of it starts with a number")
    return joined(scans)


def blocks(
    path: str | os.PathLike[str], rows: int | None = None, *, piece_size: int = PIECE
) -> Iterator[Scan]:
    """The table in pieces of so many bytes, or of `rows` rows at most."""
    path = Path(path)
    with path.open("rb") as file:
        names: Sequence[str] | None = None
        decimal, line, columns = ".", 1, 0
        for piece in _pieces(file, piece_size):
            start = 0
            if not columns:
                start, names, fields, decimal = _head(piece)
                columns = len(fields)
                if not columns:
                    line += piece.count(b"\n")
                    continue
                # In PTS files, the number of points comes first.
                if names is None and path.suffix.lower() == ".pts" and columns == 1:
                    start, _, fields, decimal = _head(piece, start + len(_line(piece, start)))
                    columns = len(fields)
            values, _ = table(piece, columns, decimal=decimal, start=start, line=line)
            line += piece.count(b"\n")
            if names is None:
                names = _guess(values, path.suffix.lower())
            for begin in range(0, len(values), rows or max(len(values), 1)):
                part = values[begin : begin + (rows or len(values))]
                yield of_columns(dict(zip(names, part.T, strict=True)), name=path.stem)


def read_pts(path: str | os.PathLike[str]) -> list[Scan]:
    """Every scan of a PTS file: a line with their number, then the points; some files hold several
    in a row.
    """
    path = Path(path)
    text = path.read_bytes()
    position, scans = 0, []
    while True:
        position, names, fields, decimal = _head(text, position)
        if not fields:
            break
        if names is None and len(fields) == 1:
            promised = int(fields[0])
            position, _, fields, decimal = _head(text, position + len(_line(text, position)))
            names = PTS.get(len(fields))
            values, position = table(
                text, max(len(fields), 1), decimal=decimal, start=position, rows=promised
            )
            if len(values) != promised:
                raise ValueError(f"it promises {promised} points, it holds {len(values)}")
        else:
            values, position = table(text, len(fields), decimal=decimal, start=position)
        chosen = names or _guess(values, ".pts")
        if len(values):
            scans.append(of_columns(dict(zip(chosen, values.T, strict=True)), name=path.stem))
    if not scans:
        raise ValueError("no line of it starts with a number")
    return scans


def write_scan(path: str | os.PathLike[str], scan: Scan) -> None:
    """Columns with a header line; commas between them in .csv, spaces elsewhere.

    Coordinates keep every digit.
    """
    path = Path(path)
    comma = path.suffix.lower() == ".csv"
    columns = dict(zip(XYZ, scan.points.T, strict=False)) | {
        re.sub(r"[\s,;#/]+", "_", name) or "_": column
        for name, column in scan.attributes().items()
        if column.ndim == 1
    }
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(("" if comma else "# ") + ("," if comma else " ").join(columns) + "\n")
        separator = "," if comma else " "
        for begin in range(0, len(scan), ROWS):
            texts = [
                map(repr, column[begin : begin + ROWS].tolist()) for column in columns.values()
            ]
            file.writelines(separator.join(row) + "\n" for row in zip(*texts, strict=True))


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The file in pieces that end where a line ends."""
    left = b""
    while more := file.read(size):
        cut = max(more.rfind(b"\n"), more.rfind(b"\r")) + 1
        if cut:
            yield left + more[:cut]
            left = more[cut:]
        else:
            left += more
        if len(left) > size + LONGEST_LINE:
            raise ValueError("it has no lines")
    if left:
        yield left


def _line(text: bytes, start: int) -> bytes:
    found = re.compile(rb"[^\r\n]*(\r\n|\r|\n)?").match(text, start, start + LONGEST_LINE)
    return found.group() if found else b""


def _head(text: bytes, start: int = 0) -> tuple[int, tuple[str, ...] | None, list[str], str]:
    """Where the numbers begin, the names of their columns if a header has them, the first row's
    fields, and the decimal mark.

    A header is the last line before the numbers that has as many words as they have columns; # or
    // may stand before it.
    """
    header = ""
    if start == 0 and text.startswith(b"\xef\xbb\xbf"):
        start = 3
    while start < len(text):
        line = _line(text, start)
        if b"\0" in line:
            raise ValueError("it is not text")
        words = line.decode("utf-8", "replace").strip()
        if words and NUMBER.fullmatch(re.split(r"[\s,;]+", words, maxsplit=1)[0]):
            decimal = (
                "," if ";" in words and re.search(r"\d,\d", words) and "." not in words else "."
            )
            fields = _fields(words, decimal)
            names = _fields(re.sub(r"^(#|//|%)+\s*", "", header), decimal)
            named = {"x", "points:0"} & {name.lower() for name in names}
            return (
                start,
                tuple(names) if len(names) == len(fields) == len(set(names)) and named else None,
                fields,
                decimal,
            )
        if words[:1] in ",;" and words:  # an empty first field
            return start, None, _fields(words, "."), "."
        header = words or header
        start += len(line)
    return start, None, [], "."


def _fields(line: str, decimal: str) -> list[str]:
    if ";" in line:
        fields = next(csv.reader([line], delimiter=";", skipinitialspace=True))
    elif "," in line and decimal == ".":
        fields = next(csv.reader([line], skipinitialspace=True))
    else:
        fields = [word.strip('"') for word in line.split()]
    if len(fields) > 1 and not fields[-1].strip():
        fields = fields[:-1]  # a separator ends the line
    single = [
        part
        for field in fields
        for part in (field.split() if NUMBER.match(field.strip()) else [field.strip()])
    ]
    return single or [""]


def _guess(values: Float[Array, "N C"], suffix: str) -> tuple[str, ...]:
    """Names for columns without a header: x y z, then what bytes (colours) and unit vectors
    (normals) can only be.
    """
    C = values.shape[1]
    if len(BY_SUFFIX.get(suffix, ())) == C:
        return BY_SUFFIX[suffix]
    if suffix == ".pts" and C in PTS:
        return PTS[C]
    if not 2 <= C <= MOST_COLUMNS:
        raise ValueError(f"it has {C} columns of numbers; two or three coordinates are needed")
    names, j = list(XYZ[:C]), min(C, 3)
    sample = values[:SAMPLE]
    while j < C:
        if _are_bytes(sample[:, j : j + 3]) and "red" not in names:
            names += RGB
            j += 3
        elif _are_units(sample[:, j : j + 3]) and "nx" not in names:
            names += UNIT
            j += 3
        elif j == 3 and C == 7 and _are_bytes(sample[:, 4:7]):
            names.append("intensity")
            j += 1
        else:
            names.append(f"column{j + 1}")
            j += 1
    return tuple(names)


def _are_bytes(values: Float[Array, "N c"]) -> bool:
    if values.shape[1] != 3 or not len(values):
        return False
    return bool(
        ((values >= 0) & (values <= 255) & (values == np.rint(values))).all() and values.max() > 1
    )


def _are_units(values: Float[Array, "N c"]) -> bool:
    if values.shape[1] != 3 or not len(values):
        return False
    lengths = np.linalg.norm(values, axis=1)
    return bool((np.abs(lengths - 1) < UNIT_TOLERANCE).mean() > UNIT_SHARE)
