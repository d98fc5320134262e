# SPDX-License-Identifier: MIT
"""."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.errors import InputError
from coframe.types import Array


def component_count(clouds: Sequence[Float[Array, "_ D"]], share: float = 0.6) -> int:
    """K as a share of the mean cardinality (60 % in the paper's first experiments)."""
    return max(1, round(share * float(np.mean([len(cloud) for cloud in clouds]))))


def means_on_sphere(
    clouds: Sequence[Float[Array, "_ D"]],
    count: int,
    rng: np.random.Generator,
    centre: Float[Array, " D"] | None = None,
) -> Float[Array, "K D"]:
    """Means spread evenly over a sphere (a circle in the plane) that holds every cloud once it is
    centred on `centre`.
    """
    D = clouds[0].shape[1]
    radius = max(float(np.linalg.norm(cloud - cloud.mean(0), axis=1).max()) for cloud in clouds)
    directions = rng.normal(size=(component_count, D))
    return (0 if centre is None else centre) + radius * directions / np.linalg.norm(
        directions, axis=1, keepdims=True
    )


def means_on_cloud(
    cloud: Float[Array, "N D"], count: int, rng: np.random.Generator
) -> Float[Array, "K D"]:
    """Means on points of one cloud."""
    return _drawn(cloud, component_count, rng)


def means_on_points(
    clouds: Sequence[Float[Array, "_ D"]],
    poses: Float[Array, "M D1 D1"],
    count: int,
    rng: np.random.Generator,
) -> Float[Array, "K D"]:
    """Means on points drawn from all clouds under their poses: the choice when these are roughly
    right.
    """
    return _drawn(
        np.concatenate(
            [geometry.transform(pose, cloud) for pose, cloud in zip(poses, clouds, strict=True)]
        ),
        component_count,
        rng,
    )


def _drawn(
    points: Float[Array, "N D"], count: int, rng: np.random.Generator
) -> Float[Array, "K D"]:
    if component_count > len(points):
        raise InputError(
            f"components: expected at most {len(points)}, the number of points to draw from, found"
            f" {count}"
        )
    return points[np.sort(rng.choice(len(points), component_count, replace=False))]


def poses_by_centroid(
    clouds: Sequence[Float[Array, "_ D"]], target: Float[Array, " D"]
) -> Float[Array, "M D1 D1"]:
    """t_j = target - mean of cloud j; the target is the mean of the component means."""
    return _shifted([cloud.mean(0) for cloud in clouds], target)


def poses_by_median(
    clouds: Sequence[Float[Array, "_ D"]], target: Float[Array, " D"]
) -> Float[Array, "M D1 D1"]:
    """The same with medians, which flying pixels do not pull."""
    return _shifted([np.median(cloud, axis=0) for cloud in clouds], target)


def _shifted(
    centres: Sequence[Float[Array, " D"]], target: Float[Array, " D"]
) -> Float[Array, "M D1 D1"]:
    return geometry.pose(
        np.tile(np.eye(len(target)), (len(centres), 1, 1)), target - np.array(centres)
    )


def variance_of_box(
    clouds: Sequence[Float[Array, "_ D"]],
    poses: Float[Array, "M D1 D1"],
    means: Float[Array, "K D"],
) -> float:
    """The squared diagonal of the box around all moved clouds and the means: the authors' default."""
    corners = [
        corner
        for pose, cloud in zip(poses, clouds, strict=True)
        for moved in [geometry.transform(pose, cloud)]
        for corner in (moved.min(0), moved.max(0))
    ]
    everything = np.concatenate([np.array(corners), means])
    return float((np.ptp(everything, axis=0) ** 2).sum())


def variance_of_distances(
    clouds: Sequence[Float[Array, "_ D"]],
    poses: Float[Array, "M D1 D1"],
    means: Float[Array, "K D"],
    rng: np.random.Generator,
    pairs: int = 1_000_000,
) -> float:
    """The squared median distance between means and moved points, the paper's choice for its
    simulated scenes.

    Taken over at most `pairs` random pairs: N K distances would not fit into memory.
    """
    moved = np.concatenate(
        [geometry.transform(pose, cloud) for pose, cloud in zip(poses, clouds, strict=True)]
    )
    if len(moved) * len(means) <= pairs:
        d = moved[:, None] - means
    else:
        d = (
            moved[rng.integers(len(moved), size=pairs)]
            - means[rng.integers(len(means), size=pairs)]
        )
    return float(np.median((d**2).sum(-1)))
