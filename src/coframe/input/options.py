# SPDX-License-Identifier: MIT
"""What users may choose. Nothing heavy is imported: the help of the command line comes this way."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

from coframe.errors import InputError

MOTIONS = ("rigid", "translation", "yaw")
STARTS = ("auto", "identity", "match")
# Options that do not change the result.
WITHOUT_EFFECT = ("threads",)


def check_whole(options: Any, least: Mapping[str, int]) -> None:
    """Refuse options that are not whole numbers of at least so much; `threads` may be None."""
    for name, smallest in least.items():
        value = getattr(options, name)
        if name != "threads" or value is not None:
            _check_whole(name, value, smallest)


def check_threads(threads: Any) -> None:
    """Refuse what is no number of threads; None is all cores."""
    if threads is not None:
        _check_whole("threads", threads, 1)


def _check_whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise InputError(f"{name}: expected a whole number of at least {least}, found {value!r}")


@dataclass(frozen=True)
class Options:
    """The few things one may want to change; left alone, each does well on scans of any size.

    Attributes
    ----------
    components : int
        K of the last level, at most one for every 8 points.
    points : int
        Points per cloud that a level sees; where there are more, the repetitions of the last level
        see others.
    iterations : int
        Iterations of a fit in the last level, at most; fits are repeated until the poses settle.
    tolerance : float
        Share of the scene's radius: poses that move less in an iteration have settled.
    motion : str
        How clouds may move: "rigid", "translation", or "yaw" (turns about the common z axis only).
    start : str
        "identity": the clouds lie in place, or where start poses put them; "match": they are
        matched from their shapes; "auto": they are matched where their start is in doubt.
    seed : int
        Seed of the choice of points and components.
    threads : int or None
        None: all cores. The result does not depend on it.
    """

    components: int = 1000
    points: int = 3000
    iterations: int = 20
    tolerance: float = 1e-4
    motion: str = "rigid"
    start: str = "auto"
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.motion not in MOTIONS:
            raise InputError(f"motion: expected one of {', '.join(MOTIONS)}, found {self.motion!r}")
        if self.start not in STARTS:
            raise InputError(f"start: expected one of {', '.join(STARTS)}, found {self.start!r}")
        least = {"components": 1, "points": 1, "iterations": 1, "seed": 0, "threads": 1}
        check_whole(self, least)
        if not isinstance(self.tolerance, Real) or not 0 <= self.tolerance < math.inf:
            raise InputError(
                f"tolerance: expected a finite number of at least 0, found {self.tolerance!r}"
            )

    def record(self) -> dict[str, Any]:
        """What determines the result, as plain values: all but the threads."""
        return {"method": "register"} | {
            name: value for name, value in asdict(self).items() if name not in WITHOUT_EFFECT
        }


def check_kind(name: str, value: Any, kind: type, article: str = "a") -> None:
    """Refuse an argument of another type."""
    if not isinstance(value, kind):
        raise InputError(
            f"{name}: expected {article} {kind.__name__} of coframe, found {type(value).__name__}"
        )


def check_callables(**arguments: Any) -> None:
    """Refuse what cannot be called."""
    for name, value in arguments.items():
        if not callable(value):
            raise InputError(
                f"{name}: expected a function, found {type(value).__name__}; pass one, or leave it"
                " out"
            )


def check_options(options: Any) -> None:
    """Refuse what are no options."""
    if not isinstance(options, Options):
        kind = type(options).__name__
        raise InputError(f"options: expected coframe.Options, found {kind}; pass Options(...)")


DEFAULTS = Options()
