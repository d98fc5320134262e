# SPDX-License-Identifier: MIT
"""Where a scan was seen from, and how well a turned scan fits at many shifts; compiled by Numba.

Patches are small discs with a centre, a normal and a radius. What a scan sees in each direction is
an image on the six faces of a cube around its place: the nearest patch of every cell. Everything
runs on one thread, and sums have a fixed order: results are the same everywhere.
"""

import math

import numpy as np

from coframe.compiled import njit


@njit(error_model="numpy", nogil=True, cache=True)
def cell_of(x, y, z, edge):
    """The cell that is seen in a direction, of a cube with so many cells along an edge."""
    a, b, c = abs(x), abs(y), abs(z)
    if a >= b and a >= c:
        face, far, u, v = (0 if x > 0 else 1), a, y, z
    elif b >= c:
        face, far, u, v = (2 if y > 0 else 3), b, x, z
    else:
        face, far, u, v = (4 if z > 0 else 5), c, x, y
    if far == 0.0:
        return 0
    row = min(int((u / far + 1) / 2 * edge), edge - 1)
    column = min(int((v / far + 1) / 2 * edge), edge - 1)
    return (face * edge + row) * edge + column


@njit(error_model="numpy", nogil=True, cache=True)
def nearest_seen(centres, flat, place, edge):
    """The flat patch that is nearest to the place in each cell of the cube; -1: none."""
    found = np.full(6 * edge * edge, -1, np.int64)
    distance = np.full(len(found), np.inf)
    for i in range(len(centres)):
        x = centres[i, 0] - place[0]
        y = centres[i, 1] - place[1]
        z = centres[i, 2] - place[2]
        far = x * x + y * y + z * z
        cell = cell_of(x, y, z, edge)
        if flat[i] and far < distance[cell]:
            distance[cell] = far
            found[cell] = i
    return found


@njit(error_model="numpy", nogil=True, cache=True)
def misseen(centres, normals, radii, flat, neighbours, place, edge, alike):
    """The number of patches that cannot have been seen from a place.

    They are behind the nearest patch of their direction, or a neighbour with a parallel normal
    shows its other side.
    """
    seen = nearest_seen(centres, flat, place, edge)
    wrong = 0
    for i in range(len(centres)):
        x = centres[i, 0] - place[0]
        y = centres[i, 1] - place[1]
        z = centres[i, 2] - place[2]
        own = normals[i, 0] * x + normals[i, 1] * y + normals[i, 2] * z
        bad = False
        for k in range(neighbours.shape[1]):
            j = neighbours[i, k]
            side, cosine = 0.0, 0.0
            for d in range(3):
                side += normals[j, d] * (centres[j, d] - place[d])
                cosine += normals[i, d] * normals[j, d]
            bad = bad or (abs(cosine) > alike and cosine * own * side < 0)
        j = seen[cell_of(x, y, z, edge)]
        if not bad and j >= 0 and j != i:
            height, side = 0.0, 0.0
            for d in range(3):
                height += normals[j, d] * (centres[i, d] - centres[j, d])
                side += normals[j, d] * (place[d] - centres[j, d])
            bad = height * side < 0 and abs(height) > max(radii[i], radii[j])
        wrong += bad
    return wrong


@njit(error_model="numpy", nogil=True, cache=True)
def fill_grid(centres, radii, flat, low, shape, side):
    """The number of the flat patch nearest to each cell that one touches; -1: none does."""
    grid = np.full((shape[0], shape[1], shape[2]), -1, np.int32)
    distance = np.full((shape[0], shape[1], shape[2]), np.inf)
    for i in range(len(centres)):
        if not flat[i]:
            continue
        # A patch that is larger than a few cells is as sparse as its neighbours are.
        reach = min(math.ceil(radii[i] / side), 3)
        at = np.empty(3, np.int64)
        for d in range(3):
            at[d] = int((centres[i, d] - low[d]) / side)
        for a in range(max(at[0] - reach, 0), min(at[0] + reach + 1, shape[0])):
            for b in range(max(at[1] - reach, 0), min(at[1] + reach + 1, shape[1])):
                for c in range(max(at[2] - reach, 0), min(at[2] + reach + 1, shape[2])):
                    x = low[0] + (a + 0.5) * side - centres[i, 0]
                    y = low[1] + (b + 0.5) * side - centres[i, 1]
                    z = low[2] + (c + 0.5) * side - centres[i, 2]
                    far = x * x + y * y + z * z
                    if far < distance[a, b, c]:
                        distance[a, b, c] = far
                        grid[a, b, c] = i
    return grid


@njit(error_model="numpy", nogil=True, cache=True)
def compare_shifts(
    x,
    x_normals,
    x_radii,
    x_variances,
    shifts,
    centres,
    normals,
    radii,
    variances,
    place,
    grid,
    low,
    side,
    seen,
    edge,
    gate,
    alike,
    sigmas,
):
    """For each shift (S, 3) of turned patches, how many agree with a scan, how many contradict it.

    `grid`, `low` and `side` are of `fill_grid`, `seen` of `nearest_seen` of the scan. A patch
    agrees if it lies on the nearest patch, and contradicts it if it lies beside it or floats where
    the scan looked through. Heights may be off by the `gate` beside what the scatter allows.
    """
    agree = np.zeros(len(shifts))
    contradict = np.zeros(len(shifts))
    shape = grid.shape
    for s in range(len(shifts)):
        for i in range(len(x)):
            u = x[i, 0] + shifts[s, 0]
            v = x[i, 1] + shifts[s, 1]
            w = x[i, 2] + shifts[s, 2]
            a = math.floor((u - low[0]) / side)
            b = math.floor((v - low[1]) / side)
            c = math.floor((w - low[2]) / side)
            inside = 0 <= a < shape[0] and 0 <= b < shape[1] and 0 <= c < shape[2]
            j = grid[a, b, c] if inside else -1
            if j >= 0:
                du, dv, dw = u - centres[j, 0], v - centres[j, 1], w - centres[j, 2]
                height = normals[j, 0] * du + normals[j, 1] * dv + normals[j, 2] * dw
                across = du * du + dv * dv + dw * dw - height * height
                if 4 * across < radii[j] * radii[j]:
                    cosine = 0.0
                    for d in range(3):
                        cosine += normals[j, d] * x_normals[i, d]
                    limit = gate + sigmas * math.sqrt(x_variances[i] + variances[j])
                    if abs(height) < limit and cosine > alike:
                        agree[s] += 1
                        continue
                    # Patches that face away from each other are the two sides of a wall.
                    beside = limit <= abs(height) < max(x_radii[i], radii[j])
                    if beside and cosine > -alike:
                        contradict[s] += 1
                        continue
            du, dv, dw = u - place[0], v - place[1], w - place[2]
            j = seen[cell_of(du, dv, dw, edge)]
            if j < 0:
                continue
            far = 0.0
            for d in range(3):
                far += (centres[j, d] - place[d]) ** 2
            height = (
                normals[j, 0] * (u - centres[j, 0])
                + normals[j, 1] * (v - centres[j, 1])
                + normals[j, 2] * (w - centres[j, 2])
            )
            before = math.sqrt(du * du + dv * dv + dw * dw) < math.sqrt(far) - radii[j]
            if before and height > radii[j] / 2 + gate:
                contradict[s] += 1
    return agree, contradict
