# SPDX-License-Identifier: MIT
"""How far clouds ended from where they were given, and limits to it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align.verdict import EMPTY
from coframe.input.known import Known
from coframe.input.normalise import RADIUS, Summary
from coframe.result.registration import Registration
from coframe.types import Array, Poses


def departures(
    given: Poses, found: Poses, summaries: Sequence[Summary], *, anchored: bool = False
) -> tuple[Float[Array, " M"], Float[Array, " M"]]:
    """By how much each cloud turned [rad] and how far its median moved [unit].

    A motion that most clouds share does not count, unless the common frame is anchored.
    """
    motions = found @ geometry.inverse(given)
    centres = [each.median for each in summaries]
    extents = np.maximum([each.extent for each in summaries], EMPTY)
    ends = np.array(
        [geometry.transform(T, c[None])[0] for T, c in zip(given, centres, strict=True)]
    )
    every = []
    for common in geometry.identity(1, ends.shape[1]) if anchored else motions:
        rest = geometry.inverse(common) @ motions
        turns = geometry.angle(geometry.rotation(rest))
        moved = (geometry.rotation(rest) @ ends[..., None])[..., 0] + geometry.translation(rest)
        shifts = np.linalg.norm(moved - ends, axis=1)
        every.append((float(np.median(turns * RADIUS + shifts / extents)), turns, shifts))
    _, turns, shifts = min(every, key=lambda each: each[0])
    return turns, shifts


def enforce(
    result: Registration,
    given: Poses,
    known: Known,
    summaries: Sequence[Summary],
    *,
    anchored: bool,
) -> Registration:
    """The result, in which clouds that ended farther away than allowed have failed."""
    turns, shifts = departures(given, result.poses, summaries, anchored=anchored)
    degrees = np.degrees(turns)
    far = degrees > (np.inf if known.max_turn is None else known.max_turn)
    far |= shifts > (np.inf if known.max_shift is None else known.max_shift)
    if not far.any():
        return result
    verdicts = list(result.verdicts)
    for j in np.flatnonzero(far).tolist():
        reason = (
            f"it ended {shifts[j]:.3g} and {degrees[j]:.3g} degrees from where it was given, which"
            " is more than the limit"
        )
        verdicts[j] = replace(verdicts[j], verdict="failed", reason=reason)
    names = ", ".join(result.names[j] for j in np.flatnonzero(far).tolist())
    warning = (
        f"these clouds ended farther from where they were given than max_shift and max_turn allow:"
        f" {names}; check their given poses, fix them, or raise the limits"
    )
    return replace(result, verdicts=tuple(verdicts), warnings=(*result.warnings, warning))
