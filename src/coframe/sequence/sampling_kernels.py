# SPDX-License-Identifier: MIT
"""Patches of a frame, compiled by Numba: every frame has hundreds of them."""

import math

import numpy as np

from coframe.compiled import njit


@njit(error_model="numpy", nogil=True, cache=True)
def patch_moments(points, order, size):
    """Mean (B, 3) and covariance (B, 3, 3) of each run of `size` points in an order."""
    patches = -(-len(order) // size)
    means = np.zeros((patches, 3))
    covariances = np.zeros((patches, 3, 3))
    for b in range(patches):
        start, stop = b * size, min((b + 1) * size, len(order))
        mean, covariance = means[b], covariances[b]
        for i in range(start, stop):
            for d in range(3):
                mean[d] += points[order[i], d]
        for d in range(3):
            mean[d] /= stop - start
        for i in range(start, stop):
            p = points[order[i]]
            for d in range(3):
                for e in range(d + 1):
                    covariance[d, e] += (p[d] - mean[d]) * (p[e] - mean[e])
        for d in range(3):
            for e in range(d + 1):
                covariance[d, e] /= stop - start
                covariance[e, d] = covariance[d, e]
    return means, covariances


@njit(error_model="numpy", nogil=True, cache=True)
def spread_rows(order, size, wanted, shift):
    """Of each run of `size` rows in an order, as many as wanted, at even distances from a random
    one on: `shift` (B,) in [0, 1).
    """
    taken = np.empty(len(order), np.int64)
    count = 0
    for b in range(len(wanted)):
        start, stop = b * size, min((b + 1) * size, len(order))
        before = math.floor(shift[b])
        for i in range(start, stop):
            now = math.floor((i + 1 - start) * wanted[b] / (stop - start) + shift[b])
            if now > before:
                taken[count] = order[i]
                count += 1
            before = now
    return taken[:count]
