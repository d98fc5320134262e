# SPDX-License-Identifier: MIT
"""Start means x_k and their number K, as in the paper's section on initialisation."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.types import Array
from coframe.input.checks import InputError


def count(clouds: Sequence[Float[Array, "_ D"]], share: float = 0.6) -> int:
    """K as a share of the mean cardinality (60 % in the paper's first experiments)."""
    return max(1, round(share * float(np.mean([len(cloud) for cloud in clouds]))))


def on_sphere(
    clouds: Sequence[Float[Array, "_ D"]], count: int, rng: np.random.Generator, centre: Float[Array, " D"] | None = None
) -> Float[Array, "K D"]:
    """Means spread evenly over a sphere (a circle in the plane) that holds every cloud once it is centred on `centre`."""
    D = clouds[0].shape[1]
    radius = max(float(np.linalg.norm(cloud - cloud.mean(0), axis=1).max()) for cloud in clouds)
    directions = rng.normal(size=(count, D))
    return (0 if centre is None else centre) + radius * directions / np.linalg.norm(directions, axis=1, keepdims=True)


def from_cloud(cloud: Float[Array, "N D"], count: int, rng: np.random.Generator) -> Float[Array, "K D"]:
    """Means on points of one cloud."""
    return _drawn(cloud, count, rng)


def sampled(
    clouds: Sequence[Float[Array, "_ D"]], poses: Float[Array, "M D1 D1"], count: int, rng: np.random.Generator
) -> Float[Array, "K D"]:
    """Means on points drawn from all clouds under their poses: the choice when these are roughly right."""
    return _drawn(
        np.concatenate([geometry.transform(pose, cloud) for pose, cloud in zip(poses, clouds, strict=True)]), count, rng
    )


def _drawn(points: Float[Array, "N D"], count: int, rng: np.random.Generator) -> Float[Array, "K D"]:
    if count > len(points):
        raise InputError(f"components: expected at most {len(points)}, the number of points to draw from, found {count}")
    return points[np.sort(rng.choice(len(points), count, replace=False))]
