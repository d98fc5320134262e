# SPDX-License-Identifier: MIT
"""What a single cloud says of its own surface and noise, before it meets the others."""

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from coframe.types import Array

NEIGHBOURS = 20  # points of a patch
INNER = 8  # of these, the nearest
SAMPLE = 400  # patches that tell whether a cloud is noisy
# thickness / width of a patch: 0.1 to 0.3 on clean scans, above 0.5 when the noise is as large as
# the spacing
THICK = 0.35
# of the thickness from the inner points to the whole patch: noise is thick at once, curvature grows
# with size
GROWTH = 1.7


def flattened(points: Float[Array, "N D"]) -> tuple[Float[Array, "N D"], float]:
    """The points of a noisy cloud, each moved along its normal onto the plane through its
    neighbours; a clean cloud as it is.

    When noise is as large as the distance between points, no component of a mixture can be thin,
    and clouds may sink into each other at no cost. A cloud knows better than the mixture where its
    own surface runs: averaging over a patch takes most of the noise away along the normal, and
    moves nothing along the surface. But neighbours then share what noise is left: the second value
    says how many independent points each one stands for.
    """
    tree = cKDTree(points)
    some = points[:: -(-len(points) // SAMPLE)]
    if not _noisy(_patches(tree, some)):
        return points, 1.0
    patches = _patches(tree, points)
    normals = _axes(patches)[1][:, :, 0]
    height = ((points - patches.mean(1)) * normals).sum(1)
    return points - height[:, None] * normals, points.shape[1] / patches.shape[1]


def _patches(tree: cKDTree, points: Float[Array, "N D"]) -> Float[Array, "N k D"]:
    """The nearest neighbours of each point, nearest first."""
    count = min(NEIGHBOURS, tree.n)
    return tree.data[tree.query(points, count)[1].reshape(len(points), count)]


def _noisy(patches: Float[Array, "N k D"]) -> bool:
    """Whether patches are as thick as noise makes them: thick beside their width, and thick at
    once.
    """
    count, D = patches.shape[1:]
    inner, _ = _axes(patches[:, :INNER])
    deviations, _ = _axes(patches)
    # Of the scatter of n points, a fitted plane takes D degrees of freedom.
    unbiased = np.sqrt((1 - D / count) / (1 - D / min(INNER, count))) if count > D else 1.0
    thick = np.median(deviations[:, 0] / np.maximum(deviations[:, 1], np.finfo(float).tiny)) > THICK
    at_once = np.median(deviations[:, 0]) < GROWTH * np.median(inner[:, 0]) * unbiased
    return bool(thick and at_once)


def _axes(patches: Float[Array, "N k D"]) -> tuple[Float[Array, "N D"], Float[Array, "N D D"]]:
    """Standard deviations of each patch along its principal axes, smallest first, and the axes as
    columns.
    """
    d = patches - patches.mean(1, keepdims=True)
    values, vectors = np.linalg.eigh(np.swapaxes(d, 1, 2) @ d / patches.shape[1])
    return np.sqrt(np.maximum(values, 0)), vectors
