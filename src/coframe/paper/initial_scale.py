# SPDX-License-Identifier: MIT
"""Start variances, as in the paper's section on initialisation."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.types import Array


def box_diagonal(clouds: Sequence[Float[Array, "_ D"]], poses: Float[Array, "M D1 D1"], means: Float[Array, "K D"]) -> float:
    """The squared diagonal of the box around all moved clouds and the means: the authors' default."""
    corners = [
        corner
        for pose, cloud in zip(poses, clouds, strict=True)
        for moved in [geometry.transform(pose, cloud)]
        for corner in (moved.min(0), moved.max(0))
    ]
    everything = np.concatenate([np.array(corners), means])
    return float((np.ptp(everything, axis=0) ** 2).sum())


def median_distance(
    clouds: Sequence[Float[Array, "_ D"]],
    poses: Float[Array, "M D1 D1"],
    means: Float[Array, "K D"],
    rng: np.random.Generator,
    pairs: int = 1_000_000,
) -> float:
    """The squared median distance between means and moved points, the paper's choice for its simulated scenes.

    Taken over at most `pairs` random pairs: N K distances would not fit into memory.
    """
    moved = np.concatenate([geometry.transform(pose, cloud) for pose, cloud in zip(poses, clouds, strict=True)])
    if len(moved) * len(means) <= pairs:
        d = moved[:, None] - means
    else:
        d = moved[rng.integers(len(moved), size=pairs)] - means[rng.integers(len(means), size=pairs)]
    return float(np.median((d**2).sum(-1)))
