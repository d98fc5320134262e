# SPDX-License-Identifier: MIT
"""The compiled loops of `cast`: a tree of boxes around triangles, and rays through it."""

from typing import no_type_check

import numpy as np

from coframe.compiled import njit

# [size] Triangles in a leaf of the tree at most; speed only.
LEAF = 4
# [size] Bins along each axis in which the best split is searched; speed only.
BINS = 16
# [guard] Share of a triangle by which it is larger than it is, so that no ray slips through the
# edge that two triangles share.
OVERLAP = 1e-12
# [guard] Sine of the angle below which a ray runs along a triangle and does not hit it.
PARALLEL = 1e-14
# [guard] Relative growth of boxes and of distances to them, far above rounding.
ROUNDING = 1e-14
# [guard] Stands for zero in a direction: its reciprocal is finite.
TINY = 1e-200


@njit(error_model="numpy", nogil=True, cache=True)
@no_type_check
def build(low, high):
    """A tree over boxes (F, 3): its boxes (B, 6), links (B, 2), the order of leaves, its depth.

    Node k is a leaf of links[k, 1] triangles from the links[k, 0]-th on; or, where links[k, 1] is
    0, has the children links[k, 0] and links[k, 0] + 1.
    """
    F = len(low)
    order = np.arange(F)
    bounds = np.empty((2 * F, 6))
    links = np.zeros((2 * F, 2), np.int64)
    todo = np.empty((F + 2, 4), np.int64)
    todo[0] = (0, 0, F, 1)
    waiting, nodes, depth = 1, 1, 1
    counts = np.empty(BINS, np.int64)
    bins = np.empty((BINS, 6))
    costs = np.empty(BINS)
    middle_low = np.empty(3)
    middle_high = np.empty(3)
    box = np.empty(6)
    while waiting:
        waiting -= 1
        node, begin, end, level = todo[waiting]
        depth = max(depth, level)
        _clear(bounds[node])
        middle_low[:] = np.inf
        middle_high[:] = -np.inf
        for i in range(begin, end):
            _grow(bounds[node], low[order[i]], high[order[i]])
            for a in range(3):
                middle = low[order[i], a] + high[order[i], a]
                middle_low[a] = min(middle_low[a], middle)
                middle_high[a] = max(middle_high[a], middle)
        if end - begin <= LEAF:
            links[node] = (begin, end - begin)
            continue
        best, best_axis, best_bin = np.inf, -1, 0
        for axis in range(3):
            extent = middle_high[axis] - middle_low[axis]
            if not extent > 0:
                continue
            counts[:] = 0
            for b in range(BINS):
                _clear(bins[b])
            for i in range(begin, end):
                f = order[i]
                b = _bin(low[f, axis] + high[f, axis], middle_low[axis], extent)
                counts[b] += 1
                _grow(bins[b], low[f], high[f])
            _clear(box)
            n = 0
            for b in range(BINS - 1):
                _grow(box, bins[b, :3], bins[b, 3:])
                n += counts[b]
                costs[b] = n * _area(box) if n else np.inf
            _clear(box)
            n = 0
            for b in range(BINS - 1, 0, -1):
                _grow(box, bins[b, :3], bins[b, 3:])
                n += counts[b]
                cost = costs[b - 1] + (n * _area(box) if n else np.inf)
                if cost < best:
                    best, best_axis, best_bin = cost, axis, b - 1
        split = (begin + end) // 2  # where all triangles have one middle
        if best_axis >= 0:
            extent = middle_high[best_axis] - middle_low[best_axis]
            split = begin
            for i in range(begin, end):
                f = order[i]
                middle = low[f, best_axis] + high[f, best_axis]
                if _bin(middle, middle_low[best_axis], extent) <= best_bin:
                    order[i], order[split] = order[split], f
                    split += 1
        links[node] = (nodes, 0)
        todo[waiting] = (nodes, begin, split, level + 1)
        todo[waiting + 1] = (nodes + 1, split, end, level + 1)
        waiting += 2
        nodes += 2
    return bounds[:nodes].copy(), links[:nodes].copy(), order, depth


@njit(error_model="numpy", nogil=True, cache=True)
@no_type_check
def cast(origins, directions, far, bounds, links, triangles, faces, depth, distance, face):
    """Fill the distance to the first triangle (a corner and two edges a row) along each ray, and
    its number; inf and -1 where there is none before `far`.
    """
    stack = np.empty(depth + 1, np.int64)
    entries = np.empty(depth + 1)
    for i in range(len(origins)):
        ox, oy, oz = origins[i, 0], origins[i, 1], origins[i, 2]
        dx, dy, dz = directions[i, 0], directions[i, 1], directions[i, 2]
        ix = 1 / (dx if abs(dx) > TINY else TINY)
        iy = 1 / (dy if abs(dy) > TINY else TINY)
        iz = 1 / (dz if abs(dz) > TINY else TINY)
        best, hit = far[i], -1
        stack[0] = 0
        entries[0] = _entry(bounds, 0, ox, oy, oz, ix, iy, iz)
        waiting = 1
        while waiting:
            waiting -= 1
            if not entries[waiting] <= best or entries[waiting] == np.inf:
                continue
            node = stack[waiting]
            first, count = links[node]
            if count == 0:
                near, other = first, first + 1
                a = _entry(bounds, near, ox, oy, oz, ix, iy, iz)
                b = _entry(bounds, other, ox, oy, oz, ix, iy, iz)
                if b < a:
                    a, b, near, other = b, a, other, near
                if b <= best:
                    stack[waiting], entries[waiting] = other, b
                    waiting += 1
                if a <= best:
                    stack[waiting], entries[waiting] = near, a
                    waiting += 1
                continue
            for k in range(first, first + count):
                t = _hit(triangles, k, ox, oy, oz, dx, dy, dz)
                # Of two triangles at one distance the first counts, in whatever order they come.
                if t < best or (t == best and t < np.inf and (hit < 0 or faces[k] < hit)):
                    best, hit = t, faces[k]
        distance[i] = best if hit >= 0 else np.inf
        face[i] = hit


@njit(error_model="numpy", nogil=True, cache=True)
@no_type_check
def _hit(triangles, k, ox, oy, oz, dx, dy, dz):
    """Distance at which a ray hits a triangle, from either side (Moller and Trumbore), or inf."""
    ax, ay, az = triangles[k, 3], triangles[k, 4], triangles[k, 5]
    bx, by, bz = triangles[k, 6], triangles[k, 7], triangles[k, 8]
    hx, hy, hz = dy * bz - dz * by, dz * bx - dx * bz, dx * by - dy * bx
    det = ax * hx + ay * hy + az * hz
    if abs(det) <= triangles[k, 9]:
        return np.inf
    det = 1 / det
    sx, sy, sz = ox - triangles[k, 0], oy - triangles[k, 1], oz - triangles[k, 2]
    u = det * (sx * hx + sy * hy + sz * hz)
    if u < -OVERLAP or u > 1 + OVERLAP:
        return np.inf
    qx, qy, qz = sy * az - sz * ay, sz * ax - sx * az, sx * ay - sy * ax
    v = det * (dx * qx + dy * qy + dz * qz)
    if v < -OVERLAP or u + v > 1 + OVERLAP:
        return np.inf
    t = det * (bx * qx + by * qy + bz * qz)
    return t if t > 0 else np.inf


@njit(error_model="numpy", nogil=True, cache=True)
@no_type_check
def _entry(bounds, k, ox, oy, oz, ix, iy, iz):
    """Distance at which a ray enters a box, 0 inside of it, or inf."""
    x, X = (bounds[k, 0] - ox) * ix, (bounds[k, 3] - ox) * ix
    y, Y = (bounds[k, 1] - oy) * iy, (bounds[k, 4] - oy) * iy
    z, Z = (bounds[k, 2] - oz) * iz, (bounds[k, 5] - oz) * iz
    enter = max(max(min(x, X), min(y, Y)), max(min(z, Z), 0.0))
    leave = min(min(max(x, X), max(y, Y)), max(z, Z))
    return enter if enter <= leave * (1 + ROUNDING) else np.inf


@njit(error_model="numpy", nogil=True, cache=True)
@no_type_check
def _bin(middle, start, extent):
    return min(int(BINS * ((middle - start) / extent)), BINS - 1)


@njit(error_model="numpy", nogil=True, cache=True)
@no_type_check
def _clear(box):
    box[:3] = np.inf
    box[3:] = -np.inf


@njit(error_model="numpy", nogil=True, cache=True)
@no_type_check
def _grow(box, low, high):
    for a in range(3):
        box[a] = min(box[a], low[a])
        box[3 + a] = max(box[3 + a], high[a])


@njit(error_model="numpy", nogil=True, cache=True)
@no_type_check
def _area(box):
    x, y, z = box[3] - box[0], box[4] - box[1], box[5] - box[2]
    return x * y + y * z + z * x
