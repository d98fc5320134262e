# SPDX-License-Identifier: MIT
"""Steps of point-to-plane ICP by the thousand, compiled by Numba; see `verify`."""

import numpy as np

from coframe.compiled import njit


@njit(error_model="numpy", nogil=True, cache=True)
def facing_alike(i, j, moved, turned, points, normals, least):
    """Of points i and their neighbours j, those whose normals agree: i, j, moved points, heights.

    `turned` are the normals of points i; the cosine of those that agree is more than `least`.
    Heights are those above the tangent planes of the neighbours.
    """
    n = len(i)
    first, second = np.empty(n, np.int64), np.empty(n, np.int64)
    x, height = np.empty((n, 3)), np.empty(n)
    count = 0
    for k in range(n):
        p, q = i[k], j[k]
        a, b, c = normals[q, 0], normals[q, 1], normals[q, 2]
        if turned[k, 0] * a + turned[k, 1] * b + turned[k, 2] * c > least:
            first[count], second[count] = p, q
            x[count] = moved[p]
            height[count] = (
                (moved[p, 0] - points[q, 0]) * a
                + (moved[p, 1] - points[q, 1]) * b
                + (moved[p, 2] - points[q, 2]) * c
            )
            count += 1
    return first[:count], second[:count], x[:count], height[:count]


@njit(error_model="numpy", nogil=True, cache=True)
def levers(arms, normals):
    """How a twist raises points at the end of arms along their normals, (n, 6)."""
    J = np.empty((len(arms), 6))
    for k in range(len(arms)):
        J[k, 0] = arms[k, 1] * normals[k, 2] - arms[k, 2] * normals[k, 1]
        J[k, 1] = arms[k, 2] * normals[k, 0] - arms[k, 0] * normals[k, 2]
        J[k, 2] = arms[k, 0] * normals[k, 1] - arms[k, 1] * normals[k, 0]
        J[k, 3:] = normals[k]
    return J
