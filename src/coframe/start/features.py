# SPDX-License-Identifier: MIT
"""Thin scans: few points of a cloud, evenly spaced, with normals and descriptors of the surface.

Lengths are in multiples of the spacing between these points, which is the same for all clouds, so
the user's unit does not matter. The descriptors are fast point feature histograms (Rusu et al.,
2009): they do not change when the cloud is rotated or moved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from scipy.spatial import cKDTree

from coframe.compute.per_cloud import PerCloud
from coframe.input.normalise import Summary
from coframe.input.quantiles import median
from coframe.input.source import InMemory, Source
from coframe.nearest import Nearest
from coframe.start import feature_kernels
from coframe.start.patches import Patches
from coframe.start.recipe import START, StartRecipe
from coframe.types import Array, Points

# [format] Bins of each of a descriptor's three angles, as Rusu et al. (2009) define it.
BINS = 11
# [limit] The spacing is sought between the median distance from the centre and this fraction of it:
# no line of 2,000 points is longer.
SPACING_RANGE = 1000.0
# [limit] Bisections of that range, which find the spacing to 0.2 %.
SPACING_BISECTIONS = 12
# [limit] Steps of the search for the direction that a cloud was seen from.
VIEW_STEPS = 20
# [guard] A cloud whose mean normal is shorter was not seen from one direction.
MIN_VIEW_LENGTH = 1e-3


@dataclass(frozen=True)
class ThinScan:
    """A cloud thinned out: points about one spacing apart, in spacings from the cloud's median."""

    points: Float[Array, "n 3"]
    # Signs agree along the surface; which side is out is a guess.
    normals: Float[Array, "n 3"]
    tree: cKDTree
    # The direction from which all points can be seen, if there is one.
    view: Float[Array, " 3"] | None
    recipe: StartRecipe
    # Of all points, stray ones included, where the scans are of a built place.
    patches: Patches | None = None
    # In the plane: where all points can be seen from, if there is such a place.
    place: Float[Array, " 2"] | None = None

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def descriptors(self) -> Float[Array, "n F"]:
        """Unit vectors, of each point's surroundings."""
        return describe(self.points, self.normals, self.tree, self.recipe)

    @cached_property
    def nearest(self) -> Nearest:
        """The points, to be searched."""
        return Nearest.of(self.tree)

    @cached_property
    def image(self) -> "DepthImage | None":
        """The scan as it is seen from its view, if there is one."""
        return None if self.view is None else DepthImage.of(self.points, self.view)

    @cached_property
    def flipped(self) -> "ThinScan":
        """The scan with its normals reversed."""
        return replace(self, normals=-self.normals, view=None)

    @classmethod
    def of(cls, points: Float[Array, "N 3"], recipe: StartRecipe = START) -> "ThinScan":
        """The scan of points that are one spacing apart already. Stray points are left out."""
        tree = cKDTree(points)
        count = tree.query_ball_point(points, recipe.normal_radius, return_length=True)
        line = 2 * recipe.normal_radius  # Points of a line through a point: fewer are stray.
        kept = count >= line
        if kept.sum() >= line and not kept.all():
            points = points[kept]
            tree = cKDTree(points)
        normals = orient_normals(points, fit_normals(points, tree, recipe), recipe)
        return cls(points, normals, tree, find_view(points, normals, recipe), recipe)


def find_spacing(clouds: PerCloud[Source], summaries: Sequence[Summary], count: int) -> float:
    """The side of a grid of which the median cloud touches about `count` cells, in user units.

    Clouds that have fewer points than that give the side at which most of their points have a cell
    of their own.
    """
    high = float(np.median(clouds.map(reach, summaries)))
    if high == 0:  # Most points coincide.
        high = max(float(np.abs([s.low - s.median, s.high - s.median]).max()) for s in summaries)
    low = high / SPACING_RANGE
    points = float(np.median([summary.count for summary in summaries]))
    # So many cells would points at random touch of as many cells as there are points.
    wanted = min(count, (1 - np.exp(-1)) * points)
    for _ in range(SPACING_BISECTIONS):
        middle = float(np.sqrt(low * high))
        if np.median(clouds.map(touched, summaries, shared=(middle,))) > wanted:
            low = middle
        else:
            high = middle
    return high


def reach(cloud: Source, summary: Summary) -> float:
    """The median distance of a cloud's points from their median."""
    counted = cloud.counted()

    def distances() -> Iterator[Float[Array, " n"]]:
        return (np.linalg.norm(block.points - summary.median, axis=1) for block in counted.blocks())

    if isinstance(counted, InMemory):
        return float(np.median(np.concatenate(list(distances()))))
    return median(distances, summary.count)


def touched(cloud: Source, summary: Summary, side: float) -> int:
    """How many cells of a grid through its median a cloud touches."""
    return len(_cells(cloud, summary, side))


def thin(cloud: Source, summary: Summary, side: float) -> Float[Array, "n D"]:
    """The mean of the points in each cell of a grid, relative to the cloud's median."""
    cells = _cells(cloud, summary, side)
    mass = np.zeros(len(cells))
    sums = np.zeros((cloud.shape[1], len(cells)))
    for block in cloud.counted().blocks():
        cell = np.searchsorted(cells, _cell(block.points, summary, side))
        np.add.at(mass, cell, 1)
        for axis, total in zip((block.points - summary.median).T, sums, strict=True):
            # Point by point, so that the sums do not depend on the blocks.
            np.add.at(total, cell, axis)
    return (sums / mass).T.copy()


def _cells(cloud: Source, summary: Summary, side: float) -> Int[Array, " n"]:
    """The numbers of the cells that a cloud touches, sorted."""
    found = np.empty(0, np.int64)
    for block in cloud.counted().blocks():
        here = np.unique(_cell(block.points, summary, side))
        found = np.union1d(found, here) if len(found) else here
    return found


def _cell(points: Points, summary: Summary, side: float) -> Int[Array, " N"]:
    """The number of the cell of each point."""
    low, high = (
        np.floor((corner - summary.median) / side).astype(np.int64)
        for corner in (summary.low, summary.high)
    )
    key = np.floor((points - summary.median) / side).astype(np.int64) - low
    sides = high - low + 1
    flat = key[:, 0]
    for axis in range(1, points.shape[1]):
        flat = flat * sides[axis] + key[:, axis]
    return flat


def fit_normals(
    points: Float[Array, "n 3"], tree: cKDTree, recipe: StartRecipe, *, planar: bool = False
) -> Float[Array, "n 3"]:
    """Normals, of either sign, of the patch around each point.

    `planar`: the points are in the plane z = 0, and so are the normals of the lines through them.
    """
    radius = recipe.normal_radius
    source, target = _neighbours(points, tree, radius)
    n = len(points)
    d = points[target] - points[source]
    mass = np.bincount(source, minlength=n) + 1.0
    mean = np.stack([np.bincount(source, axis, minlength=n) for axis in d.T], 1) / mass[:, None]
    second = np.stack(
        [
            np.bincount(source, d[:, i] * d[:, j], minlength=n) / mass
            for i in range(3)
            for j in range(3)
        ],
        1,
    ).reshape(n, 3, 3)
    # A patch along a line has many normals: which one is taken must not depend on the last bit.
    second += 1e-6 * np.diag([1.0, 2.0, 3.0])
    if planar:
        second[:, 2, 2] = 1e3 * radius**2  # So large that no normal is along z.
    return np.linalg.eigh(second - mean[:, :, None] * mean[:, None, :])[1][:, :, 0]


def _neighbours(points: Float[Array, "n 3"], tree: cKDTree, radius: float) -> tuple[Array, Array]:
    """All ordered pairs of different points within a radius."""
    pairs = tree.query_pairs(radius, output_type="ndarray")
    return np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]])


def orient_normals(
    points: Float[Array, "n 3"],
    normals: Float[Array, "n 3"],
    recipe: StartRecipe,
) -> Float[Array, "n 3"]:
    """Normals whose signs agree between neighbours, carried along a tree that avoids sharp edges.

    The sign of a connected piece is that which makes it bulge: surfaces are seen from outside more
    often than from inside, and where all clouds are seen from inside, all are reversed alike.
    """
    n = len(points)
    near = cKDTree(points).query(points, min(recipe.sign_neighbours + 1, n))[1]
    source, target = np.repeat(np.arange(n), near.shape[1] - 1), near[:, 1:].ravel()
    agreement = np.abs((normals[source] * normals[target]).sum(1))
    cost = 1.0 - agreement + 1e-6
    graph = coo_array((cost, (source, target)), shape=(n, n)).tocsr()
    graph = graph.maximum(graph.T)
    tree = minimum_spanning_tree(graph)
    pieces, piece = connected_components(tree, directed=False)
    sign = np.ones(n)
    for k in range(pieces):
        order, before = breadth_first_order(tree, int(np.argmax(piece == k)), directed=False)
        after = order[1:]
        cosines = normals[after, None] @ normals[before[after], :, None]
        feature_kernels.carry_signs(sign, after, before, cosines.ravel())
    signed = sign[:, None] * normals
    source, target = _neighbours(points, cKDTree(points), recipe.feature_radius)
    height = (signed[source] * (points[target] - points[source])).sum(1)
    vote = -np.bincount(piece[source], height, minlength=pieces)
    return signed * np.where(vote[piece] < 0, -1.0, 1.0)[:, None]


def describe(
    points: Float[Array, "n 3"], normals: Float[Array, "n 3"], tree: cKDTree, recipe: StartRecipe
) -> Float[Array, "n F"]:
    """Fast point feature histograms, as unit vectors.

    Their inner products measure how similar two patches are (Hellinger's distance).
    """
    n = len(points)
    pairs = tree.query_pairs(recipe.feature_radius, output_type="ndarray")
    distance, (alpha, phi, sine, cosine) = feature_kernels.measure_angles(points, normals, pairs)
    angles = alpha, phi, np.arctan2(sine, cosine) / np.pi
    counts = [feature_kernels.count_values(pairs, angle, n, BINS) for angle in angles]
    simple = np.concatenate(
        [each / np.maximum(each.sum(1, keepdims=True), 1) for each in counts], 1
    )
    links = feature_kernels.link(pairs, 1 / np.maximum(distance, 1.0), n)
    weights = csr_array(links, shape=(n, n))
    total = np.maximum(np.asarray(weights.sum(1)).reshape(n, 1), np.finfo(float).tiny)
    full = simple + (weights @ simple) / total
    return np.sqrt(full / np.maximum(full.sum(1, keepdims=True), np.finfo(float).tiny))


def find_view(
    points: Float[Array, "n 3"], normals: Float[Array, "n 3"], recipe: StartRecipe
) -> Float[Array, " 3"] | None:
    """The direction a cloud was scanned from, if it was one: no point hides another there."""
    mean = normals.mean(0)
    for _ in range(VIEW_STEPS):  # Towards a direction that all normals face.
        mean = mean + normals[normals @ mean < 0].sum(0) / len(normals)
    length = float(np.linalg.norm(mean))
    if length < MIN_VIEW_LENGTH:
        return None
    direction = mean / length
    depth = DepthImage.of(points, direction).at(points) - points @ direction
    return direction if np.mean(depth > recipe.normal_radius) < recipe.max_hidden_share else None


@dataclass(frozen=True)
class DepthImage:
    """The height of the highest point in each cell of a grid across a direction.

    Only cells with points are stored: a cloud in another unit than the rest, or with points far
    away, spans a grid that no memory holds.
    """

    axes: Float[Array, "2 3"]
    low: Float[Array, " 2"]
    columns: int
    # Row * columns + column of the cells with points, sorted.
    cells: Int[Array, " C"]
    height: Float[Array, " C"]

    @classmethod
    def of(cls, points: Float[Array, "n 3"], direction: Float[Array, " 3"]) -> "DepthImage":
        """The points as a camera far away in `direction` sees them, one spacing a pixel."""
        axes = np.linalg.svd(direction[None])[2][1:]
        flat = points @ axes.T
        low = flat.min(0)
        row, column = np.floor(flat - low).astype(np.int64).T
        columns = int(column.max()) + 1
        cells, cell = np.unique(row * columns + column, return_inverse=True)
        height = np.full(len(cells), -np.inf)
        np.maximum.at(height, cell, points @ direction)
        return cls(axes, low, columns, cells, height)

    def at(self, points: Float[Array, "n 3"]) -> Float[Array, " n"]:
        """The height of the image where each point falls, -inf where there is none."""
        row, column = np.floor(points @ self.axes.T - self.low).astype(np.int64).T
        cell = row * self.columns + column
        nearest = np.minimum(np.searchsorted(self.cells, cell), len(self.cells) - 1)
        inside = (column >= 0) & (column < self.columns) & (self.cells[nearest] == cell)
        return np.where(inside, self.height[nearest], -np.inf)
