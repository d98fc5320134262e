# SPDX-License-Identifier: MIT
"""Lengths with units, as people write them."""

import math
import re

from coframe.errors import InputError

# [format] Metres.
UNITS = {"km": 1000.0, "m": 1.0, "cm": 0.01, "mm": 0.001, "um": 1e-6, "in": 0.0254, "ft": 0.3048}
# [limit] Relative difference of units that are the same: feet of the US survey and others.
SAME = 1e-3


def check_unit(unit: str) -> str:
    """The name of a unit; InputError for others."""
    if unit not in UNITS:
        raise InputError(f"unit: expected one of {', '.join(UNITS)}, found {unit!r}")
    return unit


def length(text: str, unit: str = "m", name: str = "length") -> float:
    """A length such as "6mm" in the unit of the clouds; without a suffix, it is in that unit.

    Parameters
    ----------
    text : str
    unit : str
        Of the clouds.
    name : str
        What it is, for messages.

    Returns
    -------
    float

    Examples
    --------
    >>> length("6mm"), length("6 mm", "ft"), length("0.5", "mm")
    (0.006, 0.01968503937007874, 0.5)
    """
    check_unit(unit)
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([a-z]*)\s*", text)
    try:
        if match is None or (match[2] and match[2] not in UNITS):
            raise ValueError
        value = float(match[1])
    except ValueError:
        value = math.nan
    if match is None or not 0 < value < math.inf:
        raise InputError(f"{name}: expected a length such as 6mm or 0.02, found {text!r}")
    return value * UNITS[match[2]] / UNITS[unit] if match[2] else value
