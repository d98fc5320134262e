# SPDX-License-Identifier: MIT
"""Points drawn from a cloud, and free of noise where the cloud itself can tell."""

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from coframe.align.recipe import ALIGN, DenoiseRecipe
from coframe.em.estep import Cloud
from coframe.input.normalise import Normalisation
from coframe.input.source import Rows, Source
from coframe.nearest import neighbours
from coframe.types import Array, Points

# [size] Patches of which the median decides whether a cloud is noisy.
SAMPLE = 400


def draw_rows(available: int, count: int, rng: np.random.Generator) -> Int[Array, " n"] | slice:
    """At most `count` of the rows, in their order."""
    if available <= count:
        return slice(None)
    return np.sort(rng.choice(available, count, replace=False))


def draw_cloud(cloud: Source, rows: Rows, frame: Normalisation, recipe: DenoiseRecipe) -> Cloud:
    """Some points of a cloud that count, in internal coordinates, as the kernels want them."""
    some = cloud.counted().take(rows)
    return prepare(frame.enter([some.points])[0], some.weights, recipe)


def prepare(
    points: Points, weights: Float[Array, " N"] | None, recipe: DenoiseRecipe = ALIGN.denoise
) -> Cloud:
    """Points for EM: denoised where the cloud is noisy, and in kd order."""
    flat, independent = denoise(points, recipe)
    return Cloud.of(flat, weights, independent)


def denoise(points: Points, recipe: DenoiseRecipe = ALIGN.denoise) -> tuple[Points, float]:
    """The points of a noisy cloud moved along their normals onto the planes of their neighbours.

    When noise is as large as the distance between points, no component of a mixture can be thin,
    and clouds may sink into each other at no cost. A cloud knows better than the mixture where its
    own surface runs: averaging over a patch removes most of the noise along the normal, and moves
    nothing along the surface. But neighbours then share what noise is left: the second value says
    how many independent points each one stands for. A clean cloud stays as it is.
    """
    tree = cKDTree(points)
    some = points[:: -(-len(points) // SAMPLE)]
    if not noisy(patches(tree, some, recipe), recipe):
        return points, 1.0
    near = every_patch(tree, recipe)
    normals = axes(near)[1][:, :, 0]
    height = ((points - near.mean(1)) * normals).sum(1)
    return points - height[:, None] * normals, points.shape[1] / near.shape[1]


def patches(tree: cKDTree, points: Points, recipe: DenoiseRecipe) -> Float[Array, "N k D"]:
    """The nearest neighbours of each point, nearest first."""
    count = min(recipe.neighbours, tree.n)
    return tree.data[tree.query(points, count)[1].reshape(len(points), count)]


def every_patch(tree: cKDTree, recipe: DenoiseRecipe) -> Float[Array, "N k D"]:
    """As `patches`, of all points of the tree."""
    found = neighbours(tree, min(recipe.neighbours, tree.n))
    near = np.empty((*found.shape, tree.m))
    near[tree.indices] = tree.data[found]
    return near


def noisy(found: Float[Array, "N k D"], recipe: DenoiseRecipe) -> bool:
    """Whether patches are as noise makes them: thick beside their width, and thick at once."""
    count, D = found.shape[1:]
    inner, _ = axes(found[:, : recipe.inner])
    deviations, _ = axes(found)
    # Of the scatter of n points, a fitted plane takes D degrees of freedom.
    unbiased = 1.0
    if count > D:
        unbiased = np.sqrt((1 - D / count) / (1 - D / min(recipe.inner, count)))
    width = np.maximum(deviations[:, 1], np.finfo(float).tiny)
    thick = np.median(deviations[:, 0] / width) > recipe.min_thickness
    expected = recipe.max_growth * np.median(inner[:, 0]) * unbiased
    at_once = np.median(deviations[:, 0]) < expected
    return bool(thick and at_once)


def axes(found: Float[Array, "N k D"]) -> tuple[Points, Float[Array, "N D D"]]:
    """Standard deviations of each patch along its principal axes, smallest first, and the axes."""
    d = found - found.mean(1, keepdims=True)
    values, vectors = np.linalg.eigh(np.swapaxes(d, 1, 2) @ d / found.shape[1])
    return np.sqrt(np.maximum(values, 0)), vectors
