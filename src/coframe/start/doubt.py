# SPDX-License-Identifier: MIT
"""What a start could not decide."""

from dataclasses import dataclass

from coframe.types import Pose


@dataclass(frozen=True, eq=False)
class Doubt:
    """A cloud whose pose is uncertain, why, and where else it could lie.

    Attributes
    ----------
    cloud : int
        Number of the cloud.
    reason : str
        Why its pose is uncertain, and what to do.
    motions : tuple of arrays, (D+1, D+1)
        Motions in the cloud's own frame, from where it is at the start to other places.
    answerable : bool
        Whether the surface that the whole clouds share removes the doubt, if there is enough of it
        and leaves no direction free.
    by_chance : bool
        Whether the pose may be chance, so that the whole clouds must meet closer than that.
    """

    cloud: int
    reason: str
    motions: tuple[Pose, ...] = ()
    answerable: bool = False
    by_chance: bool = False
