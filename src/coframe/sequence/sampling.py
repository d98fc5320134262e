# SPDX-License-Identifier: MIT
"""."""

import numpy as np
from jaxtyping import Float, Shaped

from coframe.em import kernels
from coframe.io.frames import Frame
from coframe.types import Array

BLOCK = 32  # points of a piece of a frame from which points are drawn by surface


def by_surface(
    frame: Frame, count: int, rng: np.random.Generator, *, balance: float = 0.0
) -> Frame:
    """About `count` points, spread over the surface: a near patch has many pixels, yet says no more
    than a far one.

    The points are cut into pieces of equal number; of a piece as many points are drawn as its share
    of the area, seen from its spread. `balance`, 0 to 1, favours surface of rare directions, which
    holds a frame against sliding along walls and floors: at 1, every direction gets as many points
    as every other.
    """
    N = len(frame)
    if count >= N:
        return frame
    order = kernels.kd_order(np.ascontiguousarray(frame.points), BLOCK)
    starts = np.arange(0, N, BLOCK)
    size = np.diff(np.append(starts, N))
    mean = np.add.reduceat(frame.points[order], starts) / size[:, None]
    d = frame.points[order] - np.repeat(mean, size, axis=0)
    spread, axes = np.linalg.eigh(
        np.add.reduceat(d[:, :, None] * d[:, None, :], starts) / size[:, None, None]
    )
    area = np.sqrt(np.maximum(spread[:, 1:].prod(1), 0)) + np.finfo(float).tiny
    if balance > 0:
        area = area * _area_of_direction(axes[:, :, 0], mean, area) ** -balance
    wanted = np.minimum(
        np.diff(np.floor(np.cumsum(_shares(area, size, count)) + rng.random()), prepend=0), size
    )
    # Of a piece, the points at even distances from a random one: they are in kd order, and so
    # spread over the piece.
    rank = np.arange(N) - np.repeat(starts, size)
    per, whole = np.repeat(wanted, size), np.repeat(size, size)
    shift = np.repeat(rng.random(len(starts)), size)
    taken = order[np.floor((rank + 1) * per / whole + shift) > np.floor(rank * per / whole + shift)]
    return Frame(frame.time, frame.points[taken], frame.weights[taken], frame.name)


def _area_of_direction(
    normals: Float[Array, "B D"], seen: Float[Array, "B D"], area: Float[Array, " B"]
) -> Float[Array, " B"]:
    """The area of all pieces that look the same way as each, directions in steps of about 40
    degrees.
    """
    facing = normals * np.where((normals * seen).sum(1) < 0, -1, 1)[:, None]
    _, same = np.unique(np.rint(1.5 * facing), axis=0, return_inverse=True)
    return np.bincount(same.ravel(), area)[same.ravel()]


def _shares(area: Float[Array, " B"], size: Shaped[Array, " B"], count: int) -> Float[Array, " B"]:
    """`count` shared out by area, to each piece at most its size."""
    share = np.zeros(len(area))
    for _ in range(4):  # what is too much for some goes to the others
        free = share < size
        share[free] += (count - share.sum()) * area[free] / area[free].sum()
        share = np.minimum(share, size)
        if share.sum() > 0.999 * count:
            break
    return share
