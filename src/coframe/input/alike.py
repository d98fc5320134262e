# SPDX-License-Identifier: MIT
"""Cheap checks of clouds against each other, before any matching: units and duplicates."""

from collections.abc import Collection, Sequence

import numpy as np

from coframe.errors import InputError
from coframe.input.normalise import Summary
from coframe.input.source import InMemory

# [format] How many of the smaller unit make a larger one.
FACTORS = {
    2.54: ("centimetres", "inches"),
    3.28084: ("feet", "metres"),
    10.0: ("millimetres", "centimetres"),
    12.0: ("inches", "feet"),
    25.4: ("millimetres", "inches"),
    30.48: ("centimetres", "feet"),
    39.3701: ("inches", "metres"),
    100.0: ("centimetres", "metres"),
    304.8: ("millimetres", "feet"),
    1000.0: ("millimetres", "metres"),
}
# [limit] Ratio of extents that scans of one scene in one unit do not reach.
SAME_UNIT = 50.0
# [limit] Ratio of extents that makes another unit worth a question where a cloud was not aligned.
OTHER_SIZE = 2.5
# [guard] Share of the extent: distances of moved copies agree to this, in files of few digits too.
SAME_POINT = 1e-5


def unit_doubt(
    extents: Sequence[float],
    names: Sequence[str],
    *,
    least: float = SAME_UNIT,
    suspects: Collection[int] | None = None,
) -> str | None:
    """A sentence that names the cloud whose size is furthest from that of the others, if it is
    `least` times as large or as small, with the factors between units that are near.

    suspects: clouds that may be named; of two clouds one in doubt puts both in doubt. Default: all.
    """
    sizes = np.log(np.asarray(extents, float))
    others = np.array([np.median(np.delete(sizes, j)) for j in range(len(sizes))])
    off = sizes - others
    # Of two, the larger: units that are too small are the usual mistake.
    j = int(np.argmax(np.abs(off) + 1e-9 * off))
    ratio = float(np.exp(abs(off[j])))
    among = suspects is None or j in suspects or (len(names) == 2 and len(suspects) > 0)
    if ratio <= least or not among:
        return None
    large, single = bool(off[j] > 0), len(names) == 2
    beside = names[1 - j] if single else "the other clouds"
    measure = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"
    found = f"{names[j]} is {measure} times as {'large' if large else 'small'} as {beside}"
    near = sorted(FACTORS, key=lambda factor: abs(np.log(factor / ratio)))[:2]
    near = [factor for factor in near if abs(np.log(factor / ratio)) < np.log(2)]
    if not near:
        return f"{found}; check the units"
    guesses = " or ".join(
        f"{factor:g} ({small} among {big})" if large else f"{factor:g} ({big} among {small})"
        for factor, (small, big) in ((factor, FACTORS[factor]) for factor in near)
    )
    return (
        f"{found}; check the units: if they differ, {'divide' if large else 'multiply'} its"
        f" coordinates by {guesses}"
    )


def refuse_other_units(summaries: Sequence[Summary], names: Sequence[str]) -> None:
    """Refuse to match clouds of which one is so large or small that units must differ.

    At a spacing that suits the others it would have millions of points, or none.
    """
    doubt = unit_doubt([each.extent for each in summaries], names)
    if doubt is not None:
        raise InputError(
            f"{doubt}; leave it out if its unit is right, or give start poses or start"
            ' "identity": clouds that differ so much cannot be matched by shape'
        )


def duplicates(
    clouds: Sequence[InMemory], summaries: Sequence[Summary], names: Sequence[str]
) -> list[str]:
    """A sentence for each cloud that has exactly the points of an earlier one, in the same order:
    in the same place, moved, or mirrored.
    """
    found = []
    by_count: dict[int, list[int]] = {}
    for j, summary in enumerate(summaries[: len(clouds)]):
        by_count.setdefault(summary.size, []).append(j)
    for same in by_count.values():
        for n, j in enumerate(same):
            for i in same[:n]:
                how = _same_points(clouds[i].points, clouds[j].points, summaries[i].extent)
                if how:
                    found.append(
                        f"{names[j]} has the same points as {names[i]}{how}; leave one of them out,"
                        " or check that the right file was given"
                    )
                    break
    return found


def _same_points(a: np.ndarray, b: np.ndarray, extent: float) -> str:
    """How b is a, in words; empty where it is not."""
    if np.array_equal(a, b):
        return ", in the same place"
    first, last = (np.linalg.norm(each - each.mean(0), axis=1) for each in (a, b))
    if np.abs(first - last).max() > SAME_POINT * extent:
        return ""
    # Distances between neighbours in the file say the same of other directions.
    steps = [np.linalg.norm(np.diff(each, axis=0), axis=1) for each in (a, b)]
    if np.abs(steps[0] - steps[1]).max() > SAME_POINT * extent:
        return ""
    U, S, Vt = np.linalg.svd((a - a.mean(0)).T @ (b - b.mean(0)))
    solid = S[-1] > SAME_POINT * S[0]  # a plane is its own mirror image
    return ", mirrored" if solid and np.linalg.det(U @ Vt) < 0 else ", moved"
