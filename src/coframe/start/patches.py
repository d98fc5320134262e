# SPDX-License-Identifier: MIT
"""Patches: small discs of a scan's surface, each as large as a fixed number of points needs.

A scan from one place has many points near it and few far away. Patches are large where points are
few, so that a wall seen from afar meets the same wall seen from nearby. The place that the scan was
seen from follows from the patches: from there none hides another, and neighbours show the same
side. All normals face it, and what lies between it and a patch is known to be empty.

Lengths are in spacings (see `features`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.nearest import Nearest
from coframe.start import patch_kernels
from coframe.start.recipe import START, StartRecipe
from coframe.types import Array

# [size] Points of a patch.
POINTS = 12
# [size] Neighbours of a patch that must show the same side.
NEIGHBOURS = 4
# [size] Places from which the search for the best one begins.
PLACES = 4
# [size] [median distances from the scan's middle] How far outside of it places are tried.
SIDES = (2.0, 4.0, 8.0)
# [guard] The finest step of that search, in median distances from the scan's middle.
FINEST_STEP = 2.0**-4
# [limit] Thickness squared over width squared of a patch below which it is flat, and width over
# length: below, it is a line.
FLAT = 0.05
# [limit] [spacings] Radius of a patch beyond which it stands for no more surface.
LARGEST = 6.0
# [size] Normals that directions are sought among.
NORMALS = 500
# [size] Directions of a scan that are sought.
DIRECTIONS = 8
# [limit] Flat patches across the first direction of a built place, at least.
FEWEST = 20
# [limit] Share of the flat surface times share of all surface that faces few directions in a built
# place, at least: 0.38 in furnished rooms, 0.30 on terrain and in streets with trees.
BUILT = 1 / 3
# [limit] Directions that the surfaces of a built place face: a room has six.
FEW = 6
# [limit] Cosine of the angle within which normals face one direction.
SAME = np.cos(np.radians(10.0))
# [limit] Share of the surface that faces a direction, at least.
SHARE = 0.01
# [limit] Passes that find the mean of a direction's normals.
PASSES = 3
# [size] Cells along an edge of the cube around a place: there are about as many as patches.
EDGE = 20
# [limit] The same of a scan that fills little of it.
FINEST_EDGE = 80
# [size] Cells along the longest side of the grid of a scan's patches.
GRID_CELLS = 64


@dataclass(frozen=True)
class Directions:
    """Directions that many patches of a scan face, the most frequent first."""

    axes: Float[Array, "k 3"]
    shares: Float[Array, " k"]

    @classmethod
    def of(cls, patches: "Patches") -> "Directions":
        """The directions of some patches, by the area that faces each."""
        normals = patches.normals[patches.flat]
        if not len(normals):
            return cls(np.empty((0, 3)), np.empty(0))
        some = normals[:: max(1, len(normals) // NORMALS)]
        alike = some @ normals.T > SAME
        area = patches.areas[patches.flat]
        free = area.copy()
        axes: list[Array] = []
        shares: list[float] = []
        while len(axes) < DIRECTIONS:
            count = alike @ free
            best = int(np.argmax(count))
            if count[best] < SHARE * patches.areas.sum():
                break
            axis = some[best]
            for _ in range(PASSES):
                near = normals @ axis > SAME
                axis = area[near] @ normals[near]
                axis = axis / np.linalg.norm(axis)
            # A direction next to one that is known is part of a curved surface.
            near = normals @ axis > SAME
            axes.append(axis)
            shares.append(float(free[near].sum() / patches.areas.sum()))
            free[near | (normals @ some[best] > SAME)] = 0.0
        return cls(np.array(axes).reshape(-1, 3), np.array(shares))

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Ordered pairs of directions that are not nearly parallel."""
        count = range(len(self.axes))
        cosines = np.abs(self.axes @ self.axes.T)
        return [(i, j) for i in count for j in count if cosines[i, j] < geometry.ALIKE]


@dataclass(frozen=True)
class Grid:
    """The nearest patch of each cell of a grid, and of each direction from the place."""

    cells: Array
    low: Float[Array, " 3"]
    side: float
    seen: Array
    # Cells along an edge of the cube: where few cells are seen, they are smaller.
    edge: int

    @classmethod
    def of(cls, patches: "Patches") -> "Grid":
        low, high = patches.centres.min(0), patches.centres.max(0)
        side = max(float((high - low).max()) / (GRID_CELLS - 2), 1.0)
        low = low - side
        shape = ((high - low) / side).astype(np.int64) + 2
        cells = patch_kernels.fill_grid(
            patches.centres, patches.radii, patches.flat, low, shape, side
        )
        scan = patches.centres, patches.flat, patches.place
        seen = patch_kernels.nearest_seen(*scan, EDGE)
        edge = min(round(EDGE / float(np.sqrt((seen >= 0).mean()))), FINEST_EDGE)
        return cls(cells, low, side, patch_kernels.nearest_seen(*scan, edge), edge)


@dataclass(frozen=True)
class Patches:
    """The patches of a scan, one for each point."""

    centres: Float[Array, "n 3"]
    # Towards the place.
    normals: Float[Array, "n 3"]
    # Distance of a patch's outermost point; variance of its points about its plane.
    radii: Float[Array, " n"]
    variances: Float[Array, " n"]
    flat: Bool[Array, " n"]
    # Where the scan was seen from, and the share of patches that cannot have been seen from there.
    place: Float[Array, " 3"]
    misseen: float

    def __len__(self) -> int:
        return len(self.centres)

    @cached_property
    def nearest(self) -> Nearest:
        """The centres, to be searched."""
        return Nearest.of(cKDTree(self.centres))

    @cached_property
    def areas(self) -> Float[Array, " n"]:
        """The area of surface that a patch stands for, up to a factor."""
        return np.minimum(self.radii, LARGEST) ** 2

    @cached_property
    def faces(self) -> Directions:
        """Directions that many of them face."""
        return Directions.of(self)

    @cached_property
    def grid(self) -> Grid:
        """Of the patches."""
        return Grid.of(self)

    @property
    def across(self) -> Bool[Array, " n"]:
        """Flat patches across the first direction, such as walls where that is up."""
        return self.flat & (np.abs(self.normals @ self.faces.axes[0]) < geometry.ALIKE)

    @property
    def fixes_shifts(self) -> bool:
        """Whether enough faces across the first direction: ground alone can slide."""
        return bool(len(self.faces.axes) and self.across.sum() >= FEWEST)

    def built(self, recipe: StartRecipe = START) -> bool:
        """Whether a few directions have most of the flat surface, and much of all surface.

        Scans that were merged, too, were not seen from one place: what they looked through is not
        known.
        """
        if not self.fixes_shifts or self.misseen > recipe.max_hidden_share:
            return False
        few = float(self.faces.shares[:FEW].sum())
        flat = float(self.areas[self.flat].sum() / self.areas.sum())
        return few**2 > BUILT * flat

    @classmethod
    def of(cls, points: Float[Array, "n 3"]) -> "Patches":
        """The patches of a thin scan, stray points included: far away all are stray."""
        count = min(POINTS, len(points))
        distances, rows = cKDTree(points).query(points, count)
        rows = np.sort(rows.reshape(len(points), count), axis=1)
        centres = points[rows].mean(1)
        d = points[rows] - centres[:, None]
        values, axes = np.linalg.eigh(np.swapaxes(d, 1, 2) @ d / max(count - 3, 1))
        values = np.maximum(values, 0)
        flat = (values[:, 0] < FLAT * values[:, 1]) & (values[:, 1] > FLAT * values[:, 2])
        normals = axes[:, :, 0]
        radii = distances.reshape(len(points), count)[:, -1]
        place, misseen = find_place(centres, normals, radii, flat)
        outward = ((place - centres) * normals).sum(1) < 0
        normals = np.where(outward[:, None], -normals, normals)
        return cls(centres, normals, radii, values[:, 0], flat, place, misseen)


def find_place(
    centres: Float[Array, "n 3"],
    normals: Float[Array, "n 3"],
    radii: Float[Array, " n"],
    flat: Bool[Array, " n"],
) -> tuple[Float[Array, " 3"], float]:
    """The place from which the fewest patches cannot have been seen, and their share.

    It is sought from within the scan and from all sides, near the middle first: in a convex room
    every place will do.
    """
    count = min(NEIGHBOURS + 1, len(centres))
    neighbours = cKDTree(centres).query(centres, count)[1].reshape(len(centres), count)[:, 1:]

    def misseen(place: Float[Array, " 3"]) -> int:
        return int(
            patch_kernels.misseen(
                centres, normals, radii, flat, neighbours, place, EDGE, geometry.ALIKE
            )
        )

    return best_place(misseen, centres, SIDES)


def best_place(
    misseen: Callable[[Float[Array, " D"]], int],
    centres: Float[Array, "n D"],
    sides: Sequence[float] = (),
) -> tuple[Float[Array, " D"], float]:
    """The place from which the fewest centres are misseen, and their share.

    It is sought within the scan, and from all sides at some multiples of its size.
    """
    D = centres.shape[1]
    middle = np.median(centres, axis=0)
    size = float(np.median(np.linalg.norm(centres - middle, axis=1)))
    starts = [np.array(steps, float) for steps in product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=D)]
    around = [np.array(steps, float) for steps in product((-1, 0, 1), repeat=D) if any(steps)]
    starts += [far * step / np.linalg.norm(step) for far in sides for step in around]
    starts.sort(key=lambda step: float(np.linalg.norm(step)))
    places = [middle + size * step for step in starts]
    wrong = [misseen(place) for place in places]
    best, fewest = places[0], wrong[0]
    for k in np.argsort(wrong, kind="stable")[:PLACES].tolist():
        place, least = _descend(misseen, places[k], wrong[k], size)
        if least < fewest:
            best, fewest = place, least
    return best, fewest / len(centres)


def _descend(
    misseen: Callable[[Float[Array, " D"]], int],
    place: Float[Array, " D"],
    least: int,
    size: float,
) -> tuple[Float[Array, " D"], int]:
    """A place nearby from which no step along an axis is better, and its count."""
    step = size / 2
    axes = np.concatenate([np.eye(len(place)), -np.eye(len(place))])
    while step > FINEST_STEP * size:
        found = [misseen(place + step * axis) for axis in axes]
        k = int(np.argmin(found))
        if found[k] < least:
            place, least = place + step * axes[k], found[k]
        else:
            step /= 2
    return place, least
