# SPDX-License-Identifier: MIT
"""PTX, the text format of terrestrial scanners: scan after scan, each a grid in its own frame with
its pose.

A scan is ten lines (columns, rows, the scanner's position and axes, a matrix whose rows multiply
points from the left) and a line `x y z intensity [red green blue]` for each ray. A ray without a
return is `0 0 0`; such rays are left out.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.io.files import atomic
from coframe.io.scan import Scan, in_space, joined, of_columns, points_in_space
from coframe.io.table import table
from coframe.types import Array

# [size] Points per block.
ROWS = 1_000_000
# [size, bytes] Text that is read at a time.
PIECE = 1 << 24
# [limit, bytes] No line is longer.
LONGEST_LINE = 1 << 16
# [limit] Difference of a matrix from a rotation: some programs write four digits.
RIGID = 1e-3
# [guard] Difference of a rotation from itself after rounding.
ROUNDING = 1e-14
# [format] Columns of points by their number.
COLUMNS = {
    3: ("x", "y", "z"),
    4: ("x", "y", "z", "intensity"),
    6: ("x", "y", "z", "red", "green", "blue"),
    7: ("x", "y", "z", "intensity", "red", "green", "blue"),
}
# [format] Numbers of the lines between the size of the grid and the points.
HEADER = (3, 3, 3, 3, 4, 4, 4, 4)


def read_scans(path: str | os.PathLike[str]) -> list[Scan]:
    """Every scan that has points, in its own frame, with its pose."""
    parts: dict[str, list[Scan]] = {}
    for block in blocks(path):
        parts.setdefault(block.name, []).append(block)
    scans = [joined(several) for several in parts.values()]
    if not scans:
        raise ValueError("it has no points")
    return scans if len(scans) > 1 else [replace(scans[0], name=Path(path).stem)]


def names(path: str | os.PathLike[str]) -> list[str]:
    """The names of the scans that have points."""
    return list(dict.fromkeys(block.name for block in blocks(path)))


def blocks(path: str | os.PathLike[str], rows: int = ROWS) -> Iterator[Scan]:
    """The points of scan after scan, so many at a time; `name`, a number from 1, and `pose` say
    which scan a block is of.
    """
    with open(path, "rb") as file:
        reader = _Reader(file)
        for number, head in enumerate(_heads(reader), 1):
            for values in reader.tables(head.rays, rows):
                scan = of_columns(
                    dict(zip(COLUMNS[values.shape[1]], values.T, strict=True)),
                    name=str(number),
                    pose=head.pose,
                )
                if len(found := scan[(scan.points != 0).any(1)]):
                    yield found


def read_poses(path: str | os.PathLike[str]) -> dict[str, Float[Array, "4 4"]]:
    """The poses of the scans by name; their points are passed over."""
    found = {}
    with open(path, "rb") as file:
        reader = _Reader(file)
        for number, head in enumerate(_heads(reader), 1):
            found[str(number)] = head.pose
            reader.skip(head.rays)
    return found if len(found) > 1 else {Path(path).stem: pose for pose in found.values()}


def write_scans(path: str | os.PathLike[str], scans: Sequence[Scan]) -> None:
    """One file with all scans, each in its own frame with its pose, as a grid of one row.

    Coordinates keep every digit. Colours are written where a scan has them.
    """
    with atomic(path) as temporary, temporary.open("w", encoding="ascii", newline="\n") as file:
        for scan in scans:
            file.write(_header(str(len(scan)), "1", scan.pose))
            points = points_in_space(scan.points)
            intensity = np.zeros(len(scan)) if scan.intensity is None else scan.intensity
            columns = [*points.T, np.asarray(intensity, float)]
            columns += [] if scan.colours is None else list(scan.colours.T)
            for begin in range(0, len(scan), ROWS):
                texts = [map(repr, column[begin : begin + ROWS].tolist()) for column in columns]
                file.writelines(" ".join(row) + "\n" for row in zip(*texts, strict=True))


def move(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    poses: Sequence[Float[Array, "4 4"]],
) -> None:
    """A copy in which the scans that have points get other poses; all lines of points stay."""
    seen = names(source)
    if len(seen) != len(poses):
        raise ValueError(f"it has {len(seen)} scans with points, not {len(poses)}")
    new = iter(poses)
    with atomic(target) as temporary, temporary.open("wb") as out, open(source, "rb") as file:
        reader = _Reader(file)
        for number, head in enumerate(_heads(reader), 1):
            pose = next(new) if str(number) in seen else head.pose
            out.write(_header(str(head.columns), str(head.rows), pose).encode())
            out.writelines(reader.lines(head.rays))


@dataclass(frozen=True)
class _Head:
    columns: int
    rows: int
    pose: Float[Array, "4 4"]

    @property
    def rays(self) -> int:
        return self.columns * self.rows


class _Reader:
    """A file of lines, in pieces that end where a line ends."""

    def __init__(self, file: BufferedReader) -> None:
        self.file = file
        self.text = b""
        self.line = 1  # number of the first line in `text`

    def next_line(self) -> bytes | None:
        """The next line that is not blank, without its end; None at the end of the file."""
        while True:
            end = self.text.find(b"\n")
            if end < 0 and self._more():
                continue
            if end < 0 and not self.text:
                return None
            line, self.text = (
                (self.text, b"") if end < 0 else (self.text[:end], self.text[end + 1 :])
            )
            self.line += 1
            if line.strip():
                return line.strip()

    def tables(self, rays: int, rows: int) -> Iterator[Float[Array, "N C"]]:
        """The lines of that many rays as numbers, at most `rows` at a time."""
        columns = 0
        while rays:
            if b"\n" not in self.text and self._more():
                continue
            if not columns and self.text.strip():
                columns = len(self.text.lstrip().partition(b"\n")[0].split())
                if columns not in COLUMNS:
                    raise ValueError(
                        f"line {self.line}: expected 3, 4, 6 or 7 numbers of a point, found"
                        f" {columns}"
                    )
            end = self.text.rfind(b"\n") + 1 or len(self.text)
            values, position = table(
                memoryview(self.text)[:end], max(columns, 1), rows=min(rays, rows), line=self.line
            )
            stuck = position == 0 or not self.text[position:].strip()
            self._drop(position)
            rays -= len(values)
            if len(values):
                yield values
            elif not self._more() and stuck:
                raise ValueError(f"it ends {rays} points before the end of a scan")

    def lines(self, count: int) -> Iterator[bytes]:
        """The next lines that are not blank, as they are, in pieces."""
        while count:
            if b"\n" not in self.text and self._more():
                continue
            if not self.text:
                raise ValueError(f"it ends {count} points before the end of a scan")
            lines = self.text.split(b"\n", count)
            whole = len(lines) <= count and not self.file.peek(1)  # the last line has no end
            done = len(lines) - (not whole)
            piece = b"".join(line + b"\n" for line in lines[:done] if line.strip())
            count -= piece.count(b"\n")
            self.text = b"\n".join(lines[done:])
            self.line += done
            yield piece

    def skip(self, count: int) -> None:
        """Pass over that many lines that are not blank, whole pieces at once where none is."""
        while count:
            end = self.text.rfind(b"\n") + 1
            found = self.text.count(b"\n")
            if not 0 < found <= count or b"\n\n" in self.text or self.text.startswith(b"\n"):
                break
            self._drop(end)
            count -= found
            self._more()
        for _ in self.lines(count):
            pass

    def _drop(self, position: int) -> None:
        self.line += self.text.count(b"\n", 0, position)
        self.text = self.text[position:]

    def _more(self) -> bool:
        """Read on; False at the end of the file."""
        if len(self.text) > PIECE + LONGEST_LINE:
            raise ValueError("it has no lines")
        piece = self.file.read(PIECE)
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self.text += piece
        return bool(piece)


def _heads(reader: _Reader) -> Iterator[_Head]:
    """The heads of the scans; whoever takes one reads the points behind it."""
    while (line := reader.next_line()) is not None:
        size = [line, _line(reader)]
        if not all(word.isdigit() and len(word) < 10 for word in size):
            raise ValueError(
                f"line {reader.line - 1}: expected the columns and rows of a scan, found"
                f" {b' '.join(size)[:40].decode('latin-1')!r}"
            )
        numbers = [[float(word) for word in _line(reader).split()] for _ in HEADER]
        if tuple(map(len, numbers)) != HEADER:
            raise ValueError(f"line {reader.line - 1}: expected the pose of a scan, found another")
        pose = np.array(numbers[4:]).T
        if not geometry.is_rigid(pose, RIGID):
            raise ValueError(
                f"line {reader.line - 1}: the matrix of a scan is not a rotation and a translation"
            )
        yield _Head(int(size[0]), int(size[1]), _rigid(pose))


def _rigid(pose: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
    """The pose as it is, or, where it was written with few digits, with the nearest rotation."""
    R = geometry.nearest_rotation(pose[:3, :3])
    same = np.abs(R - pose[:3, :3]).max() < ROUNDING
    return pose if same else geometry.pose(R, pose[:3, 3])


def _line(reader: _Reader) -> bytes:
    line = reader.next_line()
    if line is None:
        raise ValueError("it ends in the head of a scan")
    return line


def _header(columns: str, rows: str, pose: Float[Array, "_ _"] | None) -> str:
    """The scanner's place and axes, and the matrix, which say the same."""
    T = np.eye(4) if pose is None else in_space(pose)
    numbers = [T[:3, 3], *T[:3, :3].T, *T.T]
    lines = [" ".join(repr(float(number)) for number in row) for row in numbers]
    return "\n".join([columns, rows, *lines]) + "\n"
