# SPDX-License-Identifier: MIT
"""Other poses for the scans of an E57 file, without its points being read or written.

An E57 file is a row of pages, each with a checksum: a header, sections of points and images, and a
description of all of them in XML. A copy gets a new description at its end, in which only poses
differ, and a header that points there. Everything else stays to the byte: images, fields that
coframe does not know, the precision of coordinates.
"""

import os
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from xml.parsers import expat

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from coframe import geometry
from coframe.io.files import atomic
from coframe.types import Array

# [format] Mark, versions, length of the file, where the description begins, its length, the
# length of a page.
HEADER = struct.Struct("<8sIIQQQQ")
# [format, bytes] The checksum at the end of a page.
CHECKSUM = 4
# [format] The reflected polynomial of CRC-32C.
POLYNOMIAL = 0x82F63B78
# [limit, bytes] No description is longer.
LONGEST = 1 << 28


def move(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    poses: Sequence[Float[Array, "4 4"]],
) -> None:
    """A copy in which the scans that have points get other poses.

    Images that belong to a scan, and have a place of their own, move with it.
    """
    with open(source, "rb") as file, atomic(target) as temporary:
        header = HEADER.unpack(file.read(HEADER.size))
        *versions, end, begin, length, page = header
        _check(file, end, length, page)
        text = _with_poses(_description(file, begin, length, page), poses)
        with temporary.open("w+b") as out:
            file.seek(0)
            shutil.copyfileobj(file, out)
            out.truncate(end)
            out.seek(end)
            out.writelines(_pages(text, page))
            first = HEADER.pack(*versions, out.tell(), end, len(text), page)
            file.seek(len(first))
            out.seek(0)
            out.writelines(_pages(first + file.read(page - CHECKSUM - len(first)), page))


def count(path: str | os.PathLike[str]) -> int:
    """The points of all scans, as the description at the end of the file has it."""
    with open(path, "rb") as file:
        *_, end, begin, length, page = HEADER.unpack(file.read(HEADER.size))
        _check(file, end, length, page)
        data3d = _parsed(_description(file, begin, length, page)).child("data3D")
    return sum(_record_count(scan) for scan in ([] if data3d is None else data3d.children))


def _check(file: BufferedReader, end: int, length: int, page: int) -> None:
    size = os.fstat(file.fileno()).st_size
    if not (HEADER.size + CHECKSUM < page <= size and end <= size and end % page == 0):
        raise ValueError("its header does not fit its length")
    if length > min(size, LONGEST):
        raise ValueError("its description is longer than the file")


def _description(file: BufferedReader, begin: int, length: int, page: int) -> bytes:
    """The XML, of which each page has a part."""
    file.seek(begin)
    parts, missing = [], length
    while missing:
        part = file.read(max(0, min(page - CHECKSUM - file.tell() % page, missing)))
        if not part:
            raise ValueError("it ends within its description")
        parts.append(part)
        missing -= len(part)
        file.seek(CHECKSUM if missing else 0, os.SEEK_CUR)
    return b"".join(parts)


def _pages(content: bytes, page: int) -> Iterator[bytes]:
    """The content as pages with their checksums, the last one filled with zeros."""
    room = page - CHECKSUM
    for begin in range(0, len(content), room):
        part = content[begin : begin + room].ljust(room, b"\0")
        yield part + _crc32c(part).to_bytes(CHECKSUM, "big")


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (POLYNOMIAL if byte & 1 else 0)
    return byte


TABLE = [_remainder(byte) for byte in range(256)]


@dataclass
class _Element:
    """An element of the XML and where it stands: from `begin` on, closed from `close` to `end`."""

    name: str
    attributes: Mapping[str, str]
    begin: int
    close: int = 0
    end: int = 0
    text: str = ""
    children: "list[_Element]" = field(default_factory=list)

    def child(self, name: str) -> "_Element | None":
        return next((each for each in self.children if each.name == name), None)

    def text_of(self, name: str) -> str:
        found = self.child(name)
        return "" if found is None else found.text.strip()


def _with_poses(text: bytes, poses: Sequence[Float[Array, "4 4"]]) -> bytes:
    """The description with other poses of the scans that have points, and of their images."""
    root = _parsed(text)
    data3d, images = root.child("data3D"), root.child("images2D")
    scans = [scan for scan in ([] if data3d is None else data3d.children) if _has_points(scan)]
    if len(scans) != len(poses):
        raise ValueError(f"it has {len(scans)} scans with points, not {len(poses)}")
    changes = []
    moved: dict[str, Float[Array, "4 4"]] = {}
    for scan, pose in zip(scans, poses, strict=True):
        changes.append(_change(scan, pose))
        moved[scan.text_of("guid")] = pose @ geometry.inverse(_pose(scan))
    for image in [] if images is None else images.children:
        motion = moved.get(image.text_of("associatedData3DGuid"))
        if motion is not None:
            changes.append(_change(image, motion @ _pose(image)))
    for begin, end, new in sorted(changes, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _parsed(text: bytes) -> _Element:
    parser = expat.ParserCreate()
    top = _Element("", {}, 0)
    path = [top]

    def start(name: str, attributes: dict[str, str]) -> None:
        path.append(_Element(name, attributes, parser.CurrentByteIndex))
        path[-2].children.append(path[-1])

    def end(_: str) -> None:
        element = path.pop()
        element.close = parser.CurrentByteIndex
        element.end = text.index(b">", element.close) + 1

    def characters(more: str) -> None:
        path[-1].text += more

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.EntityDeclHandler = _refuse_entities
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise ValueError(f"its description is no XML: {error}") from None
    return top.children[0]


def _refuse_entities(*_: object) -> None:
    raise ValueError("its description declares entities")


def _has_points(scan: _Element) -> bool:
    return _record_count(scan) > 0


def _record_count(scan: _Element) -> int:
    points = scan.child("points")
    return 0 if points is None else int(points.attributes.get("recordCount", "0"))


def _pose(element: _Element) -> Float[Array, "4 4"]:
    """The pose of a scan or an image; numbers that are zero may be left out."""
    pose = element.child("pose")
    turn = None if pose is None else pose.child("rotation")
    shift = None if pose is None else pose.child("translation")
    q = [0.0, 0, 0, 1] if turn is None else _numbers(turn, "xyzw")
    t = [0.0, 0, 0] if shift is None else _numbers(shift, "xyz")
    if not np.isfinite([*q, *t]).all() or not any(q):
        raise ValueError("a pose is not a rotation and a translation")
    return geometry.pose(Rotation.from_quat(q).as_matrix(), np.array(t))


def _numbers(element: _Element, names: str) -> list[float]:
    return [float(element.text_of(name) or 0) for name in names]


def _change(element: _Element, pose: Float[Array, "4 4"]) -> tuple[int, int, bytes]:
    """Where to put the pose of an element, and its XML."""
    x, y, z, w = Rotation.from_matrix(pose[:3, :3]).as_quat(canonical=True)
    turn = _structure("rotation", {"w": w, "x": x, "y": y, "z": z})
    shift = _structure("translation", dict(zip("xyz", pose[:3, 3], strict=True)))
    new = f'<pose type="Structure">{turn}{shift}</pose>'.encode()
    old = element.child("pose")
    return (element.close, element.close, new) if old is None else (old.begin, old.end, new)


def _structure(name: str, numbers: Mapping[str, float]) -> str:
    parts = (f'<{key} type="Float">{float(value)!r}</{key}>' for key, value in numbers.items())
    return f'<{name} type="Structure">{"".join(parts)}</{name}>'
