# SPDX-License-Identifier: MIT
"""What a start could not decide."""

from dataclasses import dataclass

from jaxtyping import Float

from coframe.types import Array


@dataclass(frozen=True)
class Doubt:
    """A cloud whose pose is uncertain, why, and other poses that fit about as well."""

    cloud: int
    reason: str
    # Poses in the frame that the cloud's group has at the start.
    alternatives: tuple[Float[Array, "D1 D1"], ...] = ()
