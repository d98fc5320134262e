# SPDX-License-Identifier: MIT
"""Coordinate reference systems, as files name them: passed through, never computed with."""

import os
import re
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from coframe.errors import InputError, one_line, optional
from coframe.io import e57

# [format] What WKT of a reference system begins with, of versions 1 and 2.
WKT = (
    "PROJCS",
    "GEOGCS",
    "COMPD_CS",
    "GEOCCS",
    "LOCAL_CS",
    "PROJCRS",
    "GEOGCRS",
    "GEODCRS",
    "COMPOUNDCRS",
    "ENGCRS",
    "BOUNDCRS",
)
# [format] What projected reference systems begin with.
PROJECTED = ("PROJCS[", "PROJCRS[")
# [format] Records of LAS: reference system as WKT, and as keys of GeoTIFF.
LAS_WKT = 2112
LAS_KEYS = 34735
# [format] Keys of GeoTIFF: projected and geographic reference system, as EPSG codes.
KEYS = (3072, 2048)
# [format] "Defined by the user": no code.
OTHER = 32767


def read(path: str | os.PathLike[str]) -> str:
    """The reference system that a file names: WKT or EPSG:code; "" where it names none.

    Parameters
    ----------
    path : path
        LAS, LAZ or E57; other formats name none.

    Returns
    -------
    str
    """
    kind = Path(path).suffix.lower()
    with suppress(OSError, ValueError, struct.error):
        if kind in (".las", ".laz"):
            return _of_las(path)
        if kind == ".e57":
            return e57.coordinate_metadata(path).strip()
    return ""


def common(paths: Iterable[str | os.PathLike[str]]) -> str:
    """The reference system that all files name; "" where they differ or one names none."""
    found = {read(path) for path in dict.fromkeys(paths)}
    return found.pop() if len(found) == 1 else ""


def differing(paths: Iterable[str | os.PathLike[str]]) -> str:
    """A sentence where files name different reference systems; "" where they do not."""
    found: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        if name := read(path):
            found.setdefault(name, str(path))
    if len(found) < 2:
        return ""
    listed = ", ".join(f"{path} {title(name)}" for name, path in list(found.items())[:5])
    return (
        f"files name different coordinate reference systems: {listed}; bring them into one before,"
        " or, if they only differ in words, name it (--crs, `crs`)"
    )


def title(name: str) -> str:
    """What a reference system is called: EPSG:code, or the name in WKT."""
    match = re.match(r'\s*\w+\[\s*"([^"]+)"', name)
    return match[1] if match and name.startswith(WKT) else name


def metres(name: str) -> float | None:
    """The unit [m] of the horizontal coordinates of a projected reference system, None if unknown.

    Codes such as EPSG:25832 are looked up by pyproj, if it is installed.
    """
    wkt = name if name.startswith(WKT) else as_wkt(name)
    start = next((wkt.find(mark) for mark in PROJECTED if mark in wkt), -1)
    if start < 0:
        return None
    body = _bracket(wkt[start:])
    units = re.findall(r'(?:LENGTHUNIT|\bUNIT)\[\s*"[^"]*"\s*,\s*([0-9.eE+-]+)', body)
    with suppress(ValueError):
        return float(units[-1]) if units else None
    return None


def _bracket(text: str) -> str:
    """The text up to the bracket that closes its first one."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "]" and depth == 0:
            return text[: at + 1]
    return text


def check(name: str) -> str:
    """A reference system as the user named it: on one line, and, with pyproj, one that exists."""
    found = " ".join(name.split())
    if not found:
        raise InputError("crs: expected a name such as EPSG:25832, found nothing")
    try:
        pyproj = optional("pyproj", "crs", "crs")
    except InputError:
        return found
    try:
        pyproj.CRS.from_user_input(found)
    except pyproj.exceptions.CRSError as error:
        raise InputError(
            f"crs: expected a name such as EPSG:25832 or WKT, found {name!r} ({one_line(error)})"
        ) from None
    return found


def as_wkt(name: str) -> str:
    """A reference system as WKT; "" where that takes pyproj, and it is not installed."""
    if name.startswith(WKT):
        return name
    try:
        pyproj = optional("pyproj", "crs", "crs")
        return str(pyproj.CRS.from_user_input(name).to_wkt("WKT1_GDAL"))
    except Exception:  # no pyproj, or a name of the user's own
        return ""


def _of_las(path: str | os.PathLike[str]) -> str:
    with open(path, "rb") as file:
        start = file.read(375)
        if start[:4] != b"LASF":
            return ""
        header, points, records = struct.unpack_from("<HII", start, 94)
        file.seek(header)
        text = file.read(max(0, min(points - header, 1 << 20)))
    found, at = "", 0
    for _ in range(records):
        if at + 54 > len(text):
            break
        user, record, length = struct.unpack_from("<16sHH", text, at + 2)
        body = text[at + 54 : at + 54 + length]
        at += 54 + length
        if user.rstrip(b"\0") != b"LASF_Projection":
            continue
        if record == LAS_WKT:
            return body.rstrip(b"\0").decode("utf-8").strip()
        if record == LAS_KEYS:
            found = _of_keys(body) or found
    return found


def _of_keys(body: bytes) -> str:
    shorts = struct.unpack(f"<{len(body) // 2}H", body[: len(body) // 2 * 2])
    entries = [shorts[i : i + 4] for i in range(4, len(shorts) - 3, 4)]
    codes = {key: value for key, where, _, value in entries if where == 0}
    code = next((codes[key] for key in KEYS if 0 < codes.get(key, 0) < OTHER), None)
    return "" if code is None else f"EPSG:{code}"
