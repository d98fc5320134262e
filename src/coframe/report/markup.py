# SPDX-License-Identifier: MIT
"""Text, numbers and arrays as parts of a page.

What comes from input passes through here and stays text.
"""

import base64
import html
import json
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any
from unicodedata import category

import numpy as np
from jaxtyping import Float, UInt8

from coframe.types import Array


def clean(value: object) -> str:
    """A string without control characters and without bytes that are no text (in file names)."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if category(c) in ("Cc", "Cs") and c not in "\t\n" else c
        for c in str(value)
    )


def text(value: object) -> str:
    """A value as text of a page, in an element or in a quoted attribute."""
    return html.escape(clean(value), quote=True)


def name(value: object) -> str:
    """A name from input, isolated so that its writing direction does not affect what follows."""
    return f"<bdi>{text(value)}</bdi>"


def count(number: int) -> str:
    """A whole number with narrow spaces between thousands."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def json_block(value: Any) -> str:
    """JSON for the inside of a script element: no character of it can end the element or a line."""
    plain = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def pack(arrays: dict[str, Array]) -> tuple[dict[str, list[int]], str]:
    """Arrays as one base64 string, and the offset (a multiple of 4) and length of each [bytes]."""
    where, parts, end = {}, [], 0
    for key, array in arrays.items():
        raw = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes()
        where[key] = [end, len(raw)]
        parts.append(raw + b"\0" * (-len(raw) % 4))
        end += len(parts[-1])
    return where, base64.b64encode(b"".join(parts)).decode("ascii")


def png(image: UInt8[Array, "H W 3"]) -> str:
    """A picture as a data URL."""
    height, width, _ = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    body = b"".join(
        struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d))
        for kind, d in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")


def lengths(
    values: Sequence[float] | Float[Array, " n"], digits: int = 3, unit: str = ""
) -> list[str]:
    """Numbers of one column with equal decimals; the median one has `digits` significant digits.

    Small ones are written 73.9e-6, not 0.0000739; in a metric unit, 73.9 µm. One that would be
    rounded to zero keeps a digit.
    """
    finite = [abs(v) for v in values if math.isfinite(v) and v]
    typical = float(np.median(finite)) if finite else 1.0
    power = math.floor(math.log10(typical))
    exponent = 0 if -4 < power < 7 else 3 * (power // 3)
    smaller = "" if exponent == 0 else _metric(unit, exponent)
    decimals = max(0, digits - 1 - power + exponent)
    after = f"\N{NARROW NO-BREAK SPACE}{smaller}" if smaller else f"e{exponent}" if exponent else ""

    def written(v: float) -> str:
        if not math.isfinite(v):
            return "unknown"
        if exponent and not v:
            return "0"
        scaled = v / 10.0**exponent
        lost = 1e-4 <= abs(scaled) < 0.5 * 10.0**-decimals  # below, digits would need an exponent
        return (f"{scaled:.1g}" if lost else f"{scaled:.{decimals}f}") + after

    return [written(v) for v in values]


def length(value: float, unit: str) -> str:
    """One number with its unit."""
    (written,) = lengths([value], unit=unit)
    plain = not math.isfinite(value) or written.endswith("m") or not unit
    return written if plain else f"{written} {unit}"


def _metric(unit: str, exponent: int) -> str:
    """The metric unit that is 10**exponent of another; "" where there is none of that name."""
    known = {0: "m", -3: "mm", -6: "µm", -9: "nm"}
    begin = next((power for power, name in known.items() if name == unit), None)
    return "" if begin is None else known.get(begin + exponent, "")
