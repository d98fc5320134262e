# SPDX-License-Identifier: MIT
"""The rest of `register`'s door: start poses, weights, anchors, priors, options.

One sentence for whatever is wrong.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe.errors import InputError
from coframe.types import Array

MOTIONS = ("rigid", "translation", "yaw")
STARTS = ("auto", "identity", "match")
WITHOUT_EFFECT = ("threads",)  # on the result


def check_whole(options: Any, least: Mapping[str, int]) -> None:
    """Refuse options that are not whole numbers of at least so much; `threads` may be None."""
    for name, smallest in least.items():
        value = getattr(options, name)
        if name == "threads" and value is None:
            continue
        if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < smallest:
            raise InputError(
                f"{name}: expected a whole number of at least {smallest}, found {value!r}"
            )


@dataclass(frozen=True)
class Options:
    """The few things one may want to change.

    Left alone, each does well on scans of any size and unit.
    """

    components: int = 1000  # K of the last level, at most one for every 8 points
    # per cloud that a level sees; where there are more, the repetitions of the last level see
    # others
    points: int = 3000
    # of a fit in the last level, at most; fits are repeated until the poses have settled
    iterations: int = 20
    # share of the scene's radius: poses that move less in an iteration have settled
    tolerance: float = 1e-4
    # how clouds may move: "rigid", "translation", or "yaw" (turns about the common z axis only)
    motion: str = "rigid"
    # "identity": clouds as they lie, or as poses say; "match": matched; "auto": looks first,
    # matches in doubt
    start: str = "auto"
    seed: int = 0  # of the choice of points and components
    threads: int | None = None  # None: all cores; the result does not depend on it

    def __post_init__(self) -> None:
        if self.motion not in MOTIONS:
            raise InputError(f"motion: expected one of {', '.join(MOTIONS)}, found {self.motion!r}")
        if self.start not in STARTS:
            raise InputError(f"start: expected one of {', '.join(STARTS)}, found {self.start!r}")
        least = {"components": 1, "points": 1, "iterations": 1, "seed": 0, "threads": 1}
        check_whole(self, least)
        if not isinstance(self.tolerance, Real) or not 0 <= self.tolerance < np.inf:
            raise InputError(
                f"tolerance: expected a finite number of at least 0, found {self.tolerance!r}"
            )

    def record(self) -> dict[str, Any]:
        """What determines the result, as plain values: all but the threads."""
        return {"method": "register"} | {
            name: value for name, value in asdict(self).items() if name not in WITHOUT_EFFECT
        }


@dataclass(frozen=True)
class PosePrior:
    """A soft belief about the pose of one cloud: from a turntable, a GNSS receiver, a tracked
    scanner.

    `covariance` is that of (omega, tau): the cloud is turned by omega [rad] in the common frame,
    and its own origin is moved by tau [unit]. Infinite variances, all other entries of their rows
    and columns zero, say that nothing is known.
    """

    cloud: int
    pose: Float[Array, "D1 D1"]
    covariance: Float[Array, "P P"]
