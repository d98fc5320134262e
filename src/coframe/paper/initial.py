# SPDX-License-Identifier: MIT
"""Where JRMPC begins, as in the paper's section on initialisation: means, poses and variances."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.errors import InputError
from coframe.types import Array, Points, Poses


def component_count(clouds: Sequence[Float[Array, "_ D"]], share: float = 0.6) -> int:
    """K as a share of the mean number of points of a cloud (0.6 in the paper's experiments)."""
    return max(1, round(share * float(np.mean([len(cloud) for cloud in clouds]))))


def means_on_sphere(
    clouds: Sequence[Float[Array, "_ D"]],
    count: int,
    rng: np.random.Generator,
    centre: Float[Array, " D"] | None = None,
) -> Float[Array, "K D"]:
    """Start means spread evenly over a sphere (in the plane, a circle) around the centred clouds.

    Parameters
    ----------
    clouds : sequence of (N_j, D) arrays
        The sphere holds each of them once it is centred on `centre`.
    count : int
        K, the number of means.
    rng : numpy.random.Generator
        Draws the directions.
    centre : (D,) array, optional
        Centre of the sphere; default: the origin.

    Returns
    -------
    (K, D) array
    """
    D = clouds[0].shape[1]
    radius = max(float(np.linalg.norm(cloud - cloud.mean(0), axis=1).max()) for cloud in clouds)
    directions = rng.normal(size=(count, D))
    unit = np.linalg.norm(directions, axis=1, keepdims=True)
    return (0 if centre is None else centre) + radius * directions / unit


def means_on_points(
    clouds: Sequence[Float[Array, "_ D"]], poses: Poses, count: int, rng: np.random.Generator
) -> Float[Array, "K D"]:
    """Start means on points drawn from all clouds under poses that are roughly right.

    Parameters
    ----------
    clouds : sequence of (N_j, D) arrays
    poses : (M, D+1, D+1) array
        Pose j carries cloud j into the common frame.
    count : int
        K, the number of means.
    rng : numpy.random.Generator
        Draws the points.

    Returns
    -------
    (K, D) array
    """
    points = _moved(clouds, poses)
    if count > len(points):
        raise InputError(
            f"components: expected at most {len(points)}, the number of points to draw from, found"
            f" {count}"
        )
    return points[np.sort(rng.choice(len(points), count, replace=False))]


def poses_by_centroid(clouds: Sequence[Float[Array, "_ D"]], target: Float[Array, " D"]) -> Poses:
    """Identity rotations and t_j = target - mean of cloud j; the target: the mean of the means."""
    centres = np.array([cloud.mean(0) for cloud in clouds])
    return geometry.pose(np.tile(np.eye(len(target)), (len(clouds), 1, 1)), target - centres)


def variance_of_box(
    clouds: Sequence[Float[Array, "_ D"]], poses: Poses, means: Float[Array, "K D"]
) -> float:
    """The squared diagonal of the box around moved clouds and means: the authors' default."""
    everything = np.concatenate([_moved(clouds, poses), means])
    return float((np.ptp(everything, axis=0) ** 2).sum())


def variance_of_distances(
    clouds: Sequence[Float[Array, "_ D"]],
    poses: Poses,
    means: Float[Array, "K D"],
    rng: np.random.Generator,
    pairs: int = 1_000_000,
) -> float:
    """The squared median distance between means and moved points: the paper's for simulated scenes.

    Taken over at most `pairs` random pairs: N K distances would not fit into memory.
    """
    moved = _moved(clouds, poses)
    if len(moved) * len(means) <= pairs:
        d = moved[:, None] - means
    else:
        d = (
            moved[rng.integers(len(moved), size=pairs)]
            - means[rng.integers(len(means), size=pairs)]
        )
    return float(np.median((d**2).sum(-1)))


def _moved(clouds: Sequence[Float[Array, "_ D"]], poses: Poses) -> Points:
    return np.concatenate(
        [geometry.transform(pose, cloud) for pose, cloud in zip(poses, clouds, strict=True)]
    )
