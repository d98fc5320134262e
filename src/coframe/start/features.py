# SPDX-License-Identifier: MIT
"""A cloud as the matcher sees it: few points, evenly spaced, with normals and descriptors of the
surface around them.

Lengths are in multiples of the spacing between these points, which is the same for all clouds:
nothing here has a unit. The descriptors are fast point feature histograms (Rusu et al., 2009): they
do not change when the cloud is turned or moved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from scipy.spatial import cKDTree

from coframe.compute.places import PerCloud
from coframe.input.normalise import Summary
from coframe.input.quantiles import median
from coframe.input.source import InMemory, Source
from coframe.types import Array

NORMAL_RADIUS = 3.0  # spacings: the patch a normal is fitted to
FEATURE_RADIUS = 6.0  # spacings: the patch a descriptor describes
BINS = 11  # of each of the three angles
LEAST_NEIGHBOURS = 5  # points with fewer are stray
HIDDEN = 3.0  # spacings: what lies deeper than this below another point is hidden by it
ONE_SIDED = 0.05  # share of its points that a cloud seen from one side may hide


@dataclass(frozen=True)
class ThinScan:
    """A cloud made sparse: n points about one spacing apart, in units of the spacing, about the
    cloud's median.
    """

    points: Float[Array, "n 3"]
    normals: Float[Array, "n 3"]  # oriented alike; which of the two ways is a guess
    descriptors: Float[Array, "n F"]  # unit vectors
    tree: cKDTree
    # the direction from which all points can be seen, if there is one
    view: Float[Array, " 3"] | None

    def __len__(self) -> int:
        return len(self.points)

    def fewer(self, count: int) -> "ThinScan":
        """About `count` of the points, spread over all."""
        every = slice(None, None, max(1, len(self) // count))
        return replace(
            self,
            points=self.points[every],
            normals=self.normals[every],
            descriptors=self.descriptors[every],
        )

    def flipped(self) -> "ThinScan":
        """The same scan with its normals the other way."""
        return replace(
            self,
            normals=-self.normals,
            descriptors=descriptors(self.points, -self.normals, self.tree),
            view=None,
        )

    @classmethod
    def of(cls, points: Float[Array, "N 3"]) -> "ThinScan":
        """The scan of points that are already one spacing apart. Stray points are left out."""
        tree = cKDTree(points)
        count = tree.query_ball_point(points, NORMAL_RADIUS, return_length=True)
        kept = count > LEAST_NEIGHBOURS
        if kept.sum() > LEAST_NEIGHBOURS and not kept.all():
            points = points[kept]
            tree = cKDTree(points)
        normals = oriented(points, *fitted_normals(points, tree))
        return cls(points, normals, descriptors(points, normals, tree), tree, view(points, normals))


def spacing(clouds: PerCloud[Source], summaries: Sequence[Summary], count: int) -> float:
    """The side of a grid of which the median cloud touches about `count` cells: a length that
    follows the clouds' units.

    Clouds that have fewer points than that give the side at which most of their points have a cell
    of their own.
    """
    high = float(np.median(clouds.map(reach, summaries)))
    # most points in one place
    high = high or max(
        float(np.abs([s.low - s.median, s.high - s.median]).max()) for s in summaries
    )
    low = high / 1000
    wanted = min(count, 0.7 * float(np.median([summary.count for summary in summaries])))
    for _ in range(12):
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
    """The means of the points in each cell of a grid through the cloud's median, which is the
    origin of the result.
    """
    cells = _cells(cloud, summary, side)
    mass, sums = np.zeros(len(cells)), np.zeros((cloud.shape[1], len(cells)))
    for block in cloud.counted().blocks():
        cell = np.searchsorted(cells, _cell(block.points, summary, side))
        np.add.at(mass, cell, 1)
        for axis, total in zip((block.points - summary.median).T, sums, strict=True):
            np.add.at(total, cell, axis)  # point by point: the sums do not depend on the blocks
    return (sums / mass).T.copy()


def _cells(cloud: Source, summary: Summary, side: float) -> Int[Array, " n"]:
    """The numbers of the cells that a cloud touches, sorted."""
    found = np.empty(0, np.int64)
    for block in cloud.counted().blocks():
        here = np.unique(_cell(block.points, summary, side))
        found = np.union1d(found, here) if len(found) else here
    return found


def _cell(points: Float[Array, "N D"], summary: Summary, side: float) -> Int[Array, " N"]:
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


def fitted_normals(
    points: Float[Array, "n 3"],
    tree: cKDTree,
    *,
    radius: float = NORMAL_RADIUS,
    planar: bool = False,
) -> tuple[Float[Array, "n 3"], Float[Array, " n"]]:
    """Normals of the planes through the neighbours of each point, of either sign, and how rough the
    patches are.

    `planar`: the points lie in the plane z = 0, and so do the normals of the lines through them.
    """
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
    # a patch along a line gets a normal that does not hang on the last bit
    second += 1e-6 * np.diag([1.0, 2.0, 3.0])
    if planar:
        second[:, 2, 2] = 1e3 * radius**2  # no normal along z
    values, vectors = np.linalg.eigh(second - mean[:, :, None] * mean[:, None, :])
    return vectors[:, :, 0], values[:, 0] / np.maximum(values[:, 1], np.finfo(float).tiny)


def _neighbours(points: Float[Array, "n 3"], tree: cKDTree, radius: float) -> tuple[Array, Array]:
    """All ordered pairs of different points within a radius."""
    pairs = tree.query_pairs(radius, output_type="ndarray")
    return np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]])


def oriented(
    points: Float[Array, "n 3"], normals: Float[Array, "n 3"], roughness: Float[Array, " n"]
) -> Float[Array, "n 3"]:
    """Normals whose signs agree between neighbours, carried along a tree over the surface that
    avoids its edges.

    The sign of a connected piece is that which makes it bulge: surfaces are seen from outside more
    often than from inside, and where all clouds are seen from inside, all are turned alike.
    """
    n = len(points)
    near = cKDTree(points).query(points, min(9, n))[1]
    source, target = np.repeat(np.arange(n), near.shape[1] - 1), near[:, 1:].ravel()
    agreement = np.abs((normals[source] * normals[target]).sum(1))
    cost = 1.0 - agreement + 0.1 * (roughness[source] + roughness[target]) + 1e-6
    graph = coo_array((cost, (source, target)), shape=(n, n)).tocsr()
    graph = graph.maximum(graph.T)
    tree = minimum_spanning_tree(graph)
    pieces, piece = connected_components(tree, directed=False)
    sign = np.ones(n)
    for k in range(pieces):
        order, before = breadth_first_order(tree, int(np.argmax(piece == k)), directed=False)
        for i in order[1:]:
            sign[i] = sign[before[i]] if normals[i] @ normals[before[i]] >= 0 else -sign[before[i]]
    signed = sign[:, None] * normals
    source, target = _neighbours(points, cKDTree(points), FEATURE_RADIUS)
    height = (signed[source] * (points[target] - points[source])).sum(1)
    vote = -np.bincount(piece[source], height, minlength=pieces)
    return signed * np.where(vote[piece] < 0, -1.0, 1.0)[:, None]


def descriptors(
    points: Float[Array, "n 3"], normals: Float[Array, "n 3"], tree: cKDTree
) -> Float[Array, "n F"]:
    """Fast point feature histograms, as unit vectors whose products tell how alike two patches are
    (Hellinger's distance).
    """
    n = len(points)
    source, target = _neighbours(points, tree, FEATURE_RADIUS)
    d = points[target] - points[source]
    distance = np.maximum(np.linalg.norm(d, axis=1), 1e-9)
    d = d / distance[:, None]
    u = normals[source]
    v = np.cross(d, u)
    length = np.linalg.norm(v, axis=1, keepdims=True)
    v = np.divide(v, length, out=np.zeros_like(v), where=length > 1e-9)
    w = np.cross(u, v)
    other = normals[target]
    angles = (
        (v * other).sum(1),  # alpha, in [-1, 1]
        (u * d).sum(1),  # phi, in [-1, 1]
        np.arctan2((w * other).sum(1), (u * other).sum(1)) / np.pi,  # theta, in [-1, 1]
    )
    simple = np.concatenate([_histograms(source, angle, n) for angle in angles], 1)
    weights = csr_array((1 / np.maximum(distance, 1.0), (source, target)), shape=(n, n))
    total = np.maximum(np.asarray(weights.sum(1)).reshape(n, 1), np.finfo(float).tiny)
    full = simple + (weights @ simple) / total
    return np.sqrt(full / np.maximum(full.sum(1, keepdims=True), np.finfo(float).tiny))


def _histograms(source: Array, value: Float[Array, " m"], n: int) -> Float[Array, "n B"]:
    """For each source, the shares of its values in bins of [-1, 1]; a value is split between the
    two nearest bins.
    """
    place = np.clip((value + 1) / 2 * BINS - 0.5, 0, BINS - 1)
    low = np.minimum(place.astype(int), BINS - 2)
    share = place - low
    counts = np.bincount(source * BINS + low, 1 - share, minlength=n * BINS)
    counts += np.bincount(source * BINS + low + 1, share, minlength=n * BINS)
    counts = counts.reshape(n, BINS)
    return counts / np.maximum(counts.sum(1, keepdims=True), 1)


def view(points: Float[Array, "n 3"], normals: Float[Array, "n 3"]) -> Float[Array, " 3"] | None:
    """The direction a cloud was scanned from, if it was scanned from one: no point hides another
    there.
    """
    mean = normals.mean(0)
    for _ in range(20):  # towards the direction that even the most slanted normals look at
        slanted = normals @ mean < 0.1 * np.linalg.norm(mean)
        mean = mean + normals[slanted].sum(0) / len(normals)
    length = float(np.linalg.norm(mean))
    if length < 1e-3:
        return None
    direction = mean / length
    front = depth_image(points, direction)
    height = points @ direction
    return direction if np.mean(front.at(points) - height > HIDDEN) < ONE_SIDED else None


@dataclass(frozen=True)
class DepthImage:
    """The height of the highest point in each cell of a grid across a direction. Only cells with
    points are held: a cloud in another unit than the rest, or with points far away, spans a grid
    that no memory holds."""

    axes: Float[Array, "2 3"]
    low: Float[Array, " 2"]
    columns: int
    cells: Int[Array, " C"]  # row * columns + column of those with points, sorted
    height: Float[Array, " C"]

    def at(self, points: Float[Array, "n 3"]) -> Float[Array, " n"]:
        """The height of the image where each point falls, -inf where there is none."""
        row, column = np.floor(points @ self.axes.T - self.low).astype(np.int64).T
        cell = row * self.columns + column
        nearest = np.minimum(np.searchsorted(self.cells, cell), len(self.cells) - 1)
        inside = (column >= 0) & (column < self.columns) & (self.cells[nearest] == cell)
        return np.where(inside, self.height[nearest], -np.inf)


def depth_image(points: Float[Array, "n 3"], direction: Float[Array, " 3"]) -> DepthImage:
    """The points as a camera far away in `direction` sees them, one spacing a pixel."""
    axes = np.linalg.svd(direction[None])[2][1:]
    flat = points @ axes.T
    low = flat.min(0)
    row, column = np.floor(flat - low).astype(np.int64).T
    columns = int(column.max()) + 1
    cells, place = np.unique(row * columns + column, return_inverse=True)
    height = np.full(len(cells), -np.inf)
    np.maximum.at(height, place, points @ direction)
    return DepthImage(axes, low, columns, cells, height)
