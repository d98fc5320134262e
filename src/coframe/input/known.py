# SPDX-License-Identifier: MIT
"""What users know of clouds beside fixed ones and priors: levels, a turntable, limits."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from coframe.errors import InputError
from coframe.input.checks import as_indices


@dataclass(frozen=True)
class Known:
    """Checked knowledge of `register`."""

    # Clouds that may turn about the common z axis only.
    level: tuple[int, ...] = ()
    # Clouds whose start pose is not used.
    rematch: tuple[int, ...] = ()
    # [deg] The turn from each cloud to the next.
    turntable: float | None = None
    # [deg], [unit] How far clouds may end from where they start.
    max_turn: float | None = None
    max_shift: float | None = None

    @property
    def limited(self) -> bool:
        """Whether there are limits."""
        return self.max_turn is not None or self.max_shift is not None


NOTHING = Known()


def as_known(
    level: Any,
    rematch: Any,
    turntable: Any,
    max_turn: Any,
    max_shift: Any,
    *,
    count: int,
    given: bool,
) -> Known:
    """The knowledge of `count` clouds; `given`: whether start poses are."""
    again = as_indices(rematch, count, "rematch")
    if again and (not given or len(set(again)) == count):
        found = "none" if not given else "all clouds to be matched anew"
        raise InputError(
            "rematch: expected start poses of clouds that stay, found"
            f" {found}; give poses, or leave rematch out"
        )
    if turntable is not None:
        _check_turntable(turntable, given)
    for name, value in (("max_turn", max_turn), ("max_shift", max_shift)):
        if value is not None and not (_is_number(value) and value > 0):
            raise InputError(f"{name}: expected a number above 0, found {value!r}")
    return Known(as_indices(level, count, "level"), again, turntable, max_turn, max_shift)


def _check_turntable(value: Any, given: bool) -> None:
    if not _is_number(value) or not 0 < abs(value) <= 180:
        raise InputError(
            "turntable: expected the turn from one cloud to the next, 180 degrees at most, not 0,"
            f" found {value!r}"
        )
    if given:
        raise InputError(
            "turntable: expected no start poses beside it, found some; leave one of them out"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
