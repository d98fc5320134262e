# SPDX-License-Identifier: MIT
"""What a start could not decide."""

from dataclasses import dataclass

from jaxtyping import Float

from coframe.types import Array


@dataclass(frozen=True)
class Doubt:
    """A cloud whose place is not certain, why, and other places that fit about as well."""

    cloud: int
    reason: str
    alternatives: tuple[
        Float[Array, "D1 D1"], ...
    ] = ()  # poses, relative to the same group's frame at the start
