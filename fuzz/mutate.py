# SPDX-License-Identifier: MIT
"""How a good file becomes a bad one: bits, numbers, lines, pieces; and, where a format has
checksums, with good ones.

A wrong checksum is found first, and then nothing that comes after the check would be tried.
"""

import io
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence

import numpy as np
from numba import njit

INTEGERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    100,
    127,
    128,
    255,
    256,
    1000,
    65535,
    65536,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
)
INTEGERS += ((1 << 32), (1 << 40), (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
TEXTS = (
    "0",
    "1",
    "2",
    "-1",
    "3",
    "4",
    "7",
    "255",
    "256",
    "65536",
    "2147483647",
    "4294967296",
    "1000000000000",
    "9" * 30,
)
TEXTS += (
    "nan",
    "inf",
    "-inf",
    "1e308",
    "1e999",
    "1e-320",
    "-0.0",
    "0.5",
    "1_0",
    "0x10",
    "",
    "a",
    "1e",
    ".",
    "+-1",
)
TOKENS = (
    b"\n",
    b"\r\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b",",
    b";",
    b"#",
    b"//",
    b"<",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b"\xff\xfe",
)
TOKENS += (b"\xef\xbb\xbf", b"nan", b"inf", b"null", b"true", b"-", b"e", b"\x80", "é".encode())
NUMBER = re.compile(rb"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
# [limit, bytes] Size of a case.
LARGEST = 1 << 16

Draw = random.Random
Change = Callable[[bytes, Draw, Sequence[bytes]], bytes]


def mutated(
    data: bytes, draw: Draw, others: Sequence[bytes] = (), tokens: Sequence[bytes] = ()
) -> bytes:
    """The data with a few changes; half of the cases inside of what a checksum or a compression
    guards.
    """
    if draw.random() < 0.5:
        for begins, deep in DEEP.items():
            if data.startswith(begins):
                try:
                    return deep(data, draw, others)[:LARGEST]
                except Exception:
                    break  # an earlier change broke it too much for this, in one of many ways
    return changed(data, draw, others, tokens)[:LARGEST]


def changed(
    data: bytes, draw: Draw, others: Sequence[bytes] = (), tokens: Sequence[bytes] = ()
) -> bytes:
    """One to eight changes of the bytes."""
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        if tokens and draw.random() < 0.15:
            i = draw.randrange(len(data) + 1)
            data = data[:i] + draw.choice(tokens) + data[i + draw.choice((0, 0, 4, 12)) :]
        else:
            data = draw.choice(CHANGES)(data, draw, others)
    return data


def _bit(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    if not data:
        return b"\0"
    i = draw.randrange(len(data))
    return data[:i] + bytes([data[i] ^ 1 << draw.randrange(8)]) + data[i + 1 :]


def _byte(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    i = draw.randrange(len(data) + 1)
    return (
        data[:i]
        + bytes([draw.choice((0, 1, 32, 48, 127, 128, 255, draw.randrange(256)))])
        + data[i + 1 :]
    )


def _integer(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    size = draw.choice((1, 2, 4, 4, 8, 8))
    value = draw.choice(INTEGERS) + draw.choice((0, 0, 0, 1, -1))
    i = draw.randrange(len(data) + 1)
    return (
        data[:i]
        + (value % (1 << 8 * size)).to_bytes(size, draw.choice(("little", "big")))
        + data[i + size :]
    )


def _real(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    value = draw.choice((0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1e300, 1e-300, 5e-324, 1e38))
    packed = (
        struct.pack(draw.choice("<>") + "d", value)
        if draw.random() < 0.5
        else np.array(value, "f4").tobytes()
    )
    i = draw.randrange(len(data) + 1)
    return data[:i] + packed + data[i + len(packed) :]


def _text_number(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    # numbers of a header come first
    begin = draw.randrange(len(data) + 1) if draw.random() < 0.5 else 0
    found = [
        match.span() for match, _ in zip(NUMBER.finditer(data, begin), range(12), strict=False)
    ]
    if not found:
        return _integer(data, draw, others)
    a, b = draw.choice(found)
    return data[:a] + draw.choice(TEXTS).encode() + data[b:]


def _cut(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _without(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    i = draw.randrange(len(data) + 1)
    return data[:i] + data[i + draw.choice((1, 2, 4, 8, 32, 256)) :]


def _again(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    i, size = draw.randrange(len(data) + 1), draw.choice((1, 4, 16, 64, 512))
    return data[:i] + data[i : i + size] * draw.choice((2, 2, 3, 20)) + data[i + size :]


def _token(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    i = draw.randrange(len(data) + 1)
    return data[:i] + draw.choice(TOKENS) + data[i + draw.choice((0, 0, 1, 4)) :]


def _spliced(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    if not others:
        return data
    other = draw.choice(others)
    i, j = draw.randrange(len(data) + 1), draw.randrange(len(other) + 1)
    return data[:i] + (other[j:] if draw.random() < 0.5 else other[j : j + 64] + data[i + 64 :])


def _lines(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    lines = data[:4096].split(b"\n")
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.randrange(3):
        case 0:
            lines[i], lines[j] = lines[j], lines[i]
        case 1:
            lines.insert(i, lines[j])
        case _:
            del lines[i]
    return b"\n".join(lines) + data[4096:]


CHANGES: tuple[Change, ...] = (
    *(_bit, _bit, _byte, _integer, _integer, _real, _text_number, _text_number),
    *(_cut, _without, _again, _token, _spliced, _lines),
)


def _in_archive(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    """One member of a ZIP file changed, dropped or named otherwise, in an archive that is whole."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice(sorted(members))
    match draw.randrange(10):
        case 0:
            del members[name]
        case 1:
            members[draw.choice(sorted(members))] = members[name]
        case _:
            members[name] = _in_array(members[name], draw)
    packed = io.BytesIO()
    with zipfile.ZipFile(
        packed, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    return packed.getvalue()


def _in_array(content: bytes, draw: Draw) -> bytes:
    """An NPY file with other numbers in it, or of another shape; or with changed bytes."""
    if draw.random() < 0.3:
        return changed(content, draw)
    array = np.load(io.BytesIO(content), allow_pickle=False)
    if draw.random() < 0.5 and array.size and array.dtype.kind in "fiu":
        values = array.copy().reshape(-1)
        with np.errstate(all="ignore"):
            values[draw.randrange(len(values))] = np.array(
                draw.choice((0.0, -1.0, 1e6, np.nan, np.inf, 1e300))
            ).astype(array.dtype)
        array = values.reshape(array.shape)
    elif array.dtype.kind == "U":
        words = array.reshape(-1).tolist()
        i = draw.randrange(len(words)) if words else 0
        words[i : i + 1] = [
            (
                changed(words[i].encode(), draw).decode("utf-8", "ignore").replace("\0", "")
                if words
                else "x"
            )
        ]
        array = np.array(words) if array.ndim else np.array(words[0])
    else:
        match draw.randrange(5):
            case 0:
                array = array[..., None]
            case 1:
                array = array.reshape(-1)[: draw.randrange(array.size + 1)]
            case 2:
                array = array[:-1] if array.ndim and len(array) else np.zeros(0)
            case 3:
                array = array.astype(draw.choice(("f4", "i1", "c16", "U4", "?", ">f8")))
            case _:
                array = np.concatenate([array, array]) if array.ndim else np.array([array])
    packed = io.BytesIO()
    np.save(packed, array, allow_pickle=False)
    return packed.getvalue()


def _in_image(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    """A PNG file with a changed part and the right checksums."""
    parts, position = [], 8
    while position + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, position)
        parts.append((data[position + 4 : position + 8], data[position + 8 : position + 8 + size]))
        position += 12 + size
    i = draw.randrange(len(parts))
    kind, content = parts[i]
    if kind == b"IDAT" and draw.random() < 0.5:
        content = zlib.compress(changed(zlib.decompress(content), draw))
    else:
        content = changed(content, draw)
    parts[i] = (kind, content)
    checked = [
        struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in parts
    ]
    return data[:8] + b"".join(checked)


def _in_pages(data: bytes, draw: Draw, others: Sequence[bytes]) -> bytes:
    """An E57 file with changes and the right checksum on every page of 1024 bytes."""
    bytes_ = bytearray(changed(data, draw, others))
    if draw.random() < 0.7:  # most changes keep the length
        bytes_ = (bytes_ + data[len(bytes_) :])[: len(data)]
    for begin in range(0, len(bytes_) - 1023, 1024):
        page = np.frombuffer(bytes(bytes_[begin : begin + 1020]), np.uint8)
        bytes_[begin + 1020 : begin + 1024] = struct.pack(">I", int(_crc32c(page, CASTAGNOLI)))
    return bytes(bytes_)


def _castagnoli() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table.astype(np.uint32)


CASTAGNOLI = _castagnoli()


@njit(cache=True)
def _crc32c(data, table):  # type: ignore[no-untyped-def]
    crc = np.uint32(0xFFFFFFFF)
    for byte in data:
        crc = table[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)


DEEP: dict[bytes, Change] = {b"PK": _in_archive, b"\x89PNG": _in_image, b"ASTM-E57": _in_pages}
