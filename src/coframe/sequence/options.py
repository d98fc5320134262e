# SPDX-License-Identifier: MIT
"""What a user may choose about `track`."""

from dataclasses import asdict, dataclass
from typing import Any

from coframe.input.options import check_whole
from coframe.sequence.recipe import SEQUENCE


@dataclass(frozen=True)
class TrackOptions:
    """How a sequence is tracked.

    Parameters
    ----------
    points
        Points that are drawn from a frame.
    components
        Components of the mixture that frames are localised against.
    every
        Frames from one key frame to the next.
    window
        Key frames that are registered together.
    iterations
        Iterations of the joint registration at each key frame.
    final
        Iterations of a last joint registration of all key frames; 0: none.
    seed
        Seed of everything that is drawn at random.
    threads
        Threads; None: all cores. The result does not depend on it.

    Raises
    ------
    InputError
        If a value is not a whole number or too small.

    Examples
    --------
    >>> coframe.track("desk", options=coframe.TrackOptions(every=3))
    """

    points: int = SEQUENCE.points
    components: int = SEQUENCE.components
    every: int = SEQUENCE.every
    window: int = SEQUENCE.window
    iterations: int = SEQUENCE.iterations
    final: int = SEQUENCE.iterations
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        positive = dict.fromkeys(("points", "components", "every", "window", "threads"), 1)
        check_whole(self, positive | dict.fromkeys(("iterations", "final", "seed"), 0))

    def record(self) -> dict[str, Any]:
        """What determines the result, as plain values: all but the threads."""
        values = asdict(self)
        del values["threads"]
        return {"method": "track", **values}
