# SPDX-License-Identifier: MIT
"""What a start could not decide."""

from dataclasses import dataclass

from coframe.types import Pose


@dataclass(frozen=True, eq=False)
class Doubt:
    """A cloud whose pose is uncertain, why, and other poses that fit about as well.

    Attributes
    ----------
    cloud : int
        Number of the cloud.
    reason : str
        Why its pose is uncertain, and what to do.
    alternatives : tuple of arrays, (D+1, D+1)
        Other poses, in the frame that the cloud's group has at the start.
    """

    cloud: int
    reason: str
    alternatives: tuple[Pose, ...] = ()
