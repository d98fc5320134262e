# SPDX-License-Identifier: MIT
"""Patches over planes by the thousand, compiled by Numba; see `planes`."""

import math

import numpy as np

from coframe.compiled import njit


@njit(error_model="numpy", nogil=True, cache=True)
def facing_alike(
    x, turned, known, distance, rows, centres, normals, radii, flat, facing, sign, least
):
    """Of patches at x, those over a flat patch of another cloud: x, its normals, their heights.

    `turned` are their normals, `known` says whether it is known which way they face, `distance` and
    `rows` have the nearest patches of the other cloud. The cosine between normals is more than
    `least`; its `sign`, see `evidence.signs_of`, counts where both are known.
    """
    n, D = x.shape
    points, over, heights = np.empty((n, D)), np.empty((n, D)), np.empty(n)
    count = 0
    for k in range(n):
        r = rows[k]
        if not flat[r]:
            continue
        height = (x[k, 0] - centres[r, 0]) * normals[r, 0]
        cosine = turned[k, 0] * normals[r, 0]
        for d in range(1, D):
            height += (x[k, d] - centres[r, d]) * normals[r, d]
            cosine += turned[k, d] * normals[r, d]
        across = math.sqrt(max(distance[k] * distance[k] - height * height, 0.0))
        if known[k] and facing[r] and sign != 0:
            cosine *= sign
        else:
            cosine = abs(cosine)
        if across < radii[r] and cosine > least:
            points[count], over[count], heights[count] = x[k], normals[r], height
            count += 1
    return points[:count], over[:count], heights[:count]
