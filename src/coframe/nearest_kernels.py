# SPDX-License-Identifier: MIT
"""Search for nearest points, compiled by Numba; see `nearest`."""

import math

import numpy as np

from coframe.compiled import njit

# [size] Points of a leaf: the time grows slowly with fewer or more.
LEAF = 16
# [size] Levels of the tree, at most.
DEPTH = 64


@njit(error_model="numpy", nogil=True, cache=True)
def build(points):
    """Boxes (2 L, 6) around leaves of successive points and around pairs of boxes, 1 around all.

    Low corner, high corner. Box i is around boxes 2 i and 2 i + 1; the last L are leaves.
    """
    leaves = 1
    while leaves * LEAF < len(points):
        leaves *= 2
    boxes = np.empty((2 * leaves, 6))
    boxes[:, :3] = np.inf
    boxes[:, 3:] = -np.inf
    for i in range(len(points)):
        box = boxes[leaves + i // LEAF]
        for a in range(3):
            box[a] = min(box[a], points[i, a])
            box[a + 3] = max(box[a + 3], points[i, a])
    for k in range(leaves - 1, 0, -1):
        for a in range(3):
            boxes[k, a] = min(boxes[2 * k, a], boxes[2 * k + 1, a])
            boxes[k, a + 3] = max(boxes[2 * k, a + 3], boxes[2 * k + 1, a + 3])
    return boxes


@njit(error_model="numpy", nogil=True)
def _away(boxes, k, x, y, z):
    """The squared distance of a point from a box."""
    dx = max(max(boxes[k, 0] - x, x - boxes[k, 3]), 0.0)
    dy = max(max(boxes[k, 1] - y, y - boxes[k, 4]), 0.0)
    dz = max(max(boxes[k, 2] - z, z - boxes[k, 5]), 0.0)
    return dx * dx + dy * dy + dz * dz


@njit(error_model="numpy", nogil=True, cache=True)
def search(points, boxes, queries, within, distances, rows):
    """For each query the nearest point that is nearer than `within`, the first of several.

    Without one, the distance is inf and the row 0.
    """
    n = len(points)
    leaves = len(boxes) // 2
    stack, far = np.empty(DEPTH, np.int64), np.empty(DEPTH)
    last = 0
    for q in range(len(queries)):
        x, y, z = queries[q, 0], queries[q, 1], queries[q, 2]
        # The one nearest to the query before is often near.
        best, row = within * within, n
        dx, dy, dz = points[last, 0] - x, points[last, 1] - y, points[last, 2] - z
        squared = dx * dx + dy * dy + dz * dz
        if squared < best:
            best, row = squared, last
        stack[0], far[0] = 1, _away(boxes, 1, x, y, z)
        top = 1
        while top:
            top -= 1
            k = stack[top]
            if far[top] > best:
                continue
            while k < leaves:
                k *= 2
                left, right = _away(boxes, k, x, y, z), _away(boxes, k + 1, x, y, z)
                if right < left:
                    k += 1
                    left, right = right, left
                if right <= best:
                    stack[top], far[top] = k ^ 1, right
                    top += 1
                if left > best:
                    k = -1
                    break
            if k < 0:
                continue
            first = (k - leaves) * LEAF
            for i in range(first, min(first + LEAF, n)):
                dx, dy, dz = points[i, 0] - x, points[i, 1] - y, points[i, 2] - z
                squared = dx * dx + dy * dy + dz * dz
                if squared < best or (squared == best and i < row and row < n):
                    best, row = squared, i
        if row < n:
            distances[q], rows[q] = math.sqrt(best), row
            last = row
        else:
            distances[q], rows[q] = np.inf, 0
