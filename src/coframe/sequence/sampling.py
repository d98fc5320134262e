# SPDX-License-Identifier: MIT
"""Points drawn from a frame by the area of its surface."""

import numpy as np
from jaxtyping import Float, Shaped

from coframe.em import kernels
from coframe.io.frames import Frame
from coframe.sequence import sampling_kernels
from coframe.sequence.recipe import SEQUENCE
from coframe.types import Array

# [size] Points of a patch.
PATCH_POINTS = 32
# [limit] Rounds in which points that are too many for one patch go to the others.
SHARE_ROUNDS = 4
# [guard] Share of the wanted points at which these rounds end.
SHARE_COMPLETE = 0.999


def sample_by_surface(
    frame: Frame,
    count: int,
    rng: np.random.Generator,
    *,
    balance: float = 0.0,
    resolution: float = SEQUENCE.direction_resolution,
) -> Frame:
    """About `count` points, spread over the surface: a near patch has many pixels, yet says no more
    than a far one.

    The points are cut into patches of equal number; of each patch as many points are drawn as its
    share of the area, which follows from its spread. `balance`, 0 to 1, favours surface of rare
    directions, which keeps a frame from sliding along walls and floors: at 1, every direction gets
    as many points as every other.
    """
    N = len(frame)
    if count >= N:
        return frame
    points = np.ascontiguousarray(frame.points)
    order = kernels.kd_order(points, PATCH_POINTS)
    size = np.diff(np.append(np.arange(0, N, PATCH_POINTS), N))
    mean, covariance = sampling_kernels.patch_moments(points, order, PATCH_POINTS)
    spread, axes = np.linalg.eigh(covariance)
    area = np.sqrt(np.maximum(spread[:, 1:].prod(1), 0)) + np.finfo(float).tiny
    if balance > 0:
        area = area * _area_of_direction(axes[:, :, 0], mean, area, resolution) ** -balance
    shares = _shares(area, size, count)
    wanted = np.minimum(np.diff(np.floor(np.cumsum(shares) + rng.random()), prepend=0), size)
    # The points of a patch are in kd order: points at even distances in that order, from a random
    # one on, are spread over the patch.
    taken = sampling_kernels.spread_rows(order, PATCH_POINTS, wanted, rng.random(len(size)))
    return frame.subset(taken)


def _area_of_direction(
    normals: Float[Array, "B D"],
    seen: Float[Array, "B D"],
    area: Float[Array, " B"],
    resolution: float,
) -> Float[Array, " B"]:
    """For each patch, the area of all patches that face the same way."""
    facing = normals * np.where((normals * seen).sum(1) < 0, -1, 1)[:, None]
    cells = np.rint(resolution * facing)
    base = 2 * np.ceil(resolution) + 3  # more than there are cells along an axis
    _, same = np.unique(cells @ base ** np.arange(cells.shape[1]), return_inverse=True)
    return np.bincount(same, area)[same]


def _shares(area: Float[Array, " B"], size: Shaped[Array, " B"], count: int) -> Float[Array, " B"]:
    """`count` shared out by area, to each patch at most its size."""
    share = np.zeros(len(area))
    for _ in range(SHARE_ROUNDS):
        free = share < size
        share[free] += (count - share.sum()) * area[free] / area[free].sum()
        share = np.minimum(share, size)
        if share.sum() > SHARE_COMPLETE * count:
            break
    return share
