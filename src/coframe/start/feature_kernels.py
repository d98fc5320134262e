# SPDX-License-Identifier: MIT
"""Angles and histograms of neighbours by the thousand, compiled by Numba; see `features.describe`.

Everything runs on one thread, and sums have a fixed order: results are the same everywhere.
"""

import math

import numpy as np

from coframe.compiled import njit

# [guard] Sine of an angle, or distance [spacings], below which a direction is unknown.
LEAST = 1e-9


@njit(error_model="numpy", nogil=True, cache=True)
def measure_angles(points, normals, pairs):
    """Of each pair (P, 2), and then of each the other way round: distance, and three angles.

    Returns distances (2 P) and rows (4, 2 P): the cosines alpha and phi, sine and cosine of theta.
    """
    count = len(pairs)
    distances, angles = np.empty(2 * count), np.empty((4, 2 * count))
    for e in range(2 * count):
        i, j = pairs[e % count, e // count], pairs[e % count, 1 - e // count]
        dx = points[j, 0] - points[i, 0]
        dy = points[j, 1] - points[i, 1]
        dz = points[j, 2] - points[i, 2]
        distance = max(math.sqrt(dx * dx + dy * dy + dz * dz), LEAST)
        dx, dy, dz = dx / distance, dy / distance, dz / distance
        ux, uy, uz = normals[i, 0], normals[i, 1], normals[i, 2]
        vx, vy, vz = dy * uz - dz * uy, dz * ux - dx * uz, dx * uy - dy * ux
        length = math.sqrt(vx * vx + vy * vy + vz * vz)
        if length > LEAST:
            vx, vy, vz = vx / length, vy / length, vz / length
        else:
            vx, vy, vz = 0.0, 0.0, 0.0
        wx, wy, wz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
        ox, oy, oz = normals[j, 0], normals[j, 1], normals[j, 2]
        distances[e] = distance
        angles[0, e] = vx * ox + vy * oy + vz * oz
        angles[1, e] = ux * dx + uy * dy + uz * dz
        angles[2, e] = wx * ox + wy * oy + wz * oz
        angles[3, e] = ux * ox + uy * oy + uz * oz
    return distances, angles


@njit(error_model="numpy", nogil=True, cache=True)
def count_values(pairs, values, n, bins):
    """For each point, how many values of its pairs, as in `measure_angles`, are in which bin.

    Bins are those of [-1, 1]; a value is split between the two nearest ones.
    """
    count = len(pairs)
    lower, upper = np.zeros((n, bins)), np.zeros((n, bins))
    for e in range(2 * count):
        i = pairs[e % count, e // count]
        position = min(max((values[e] + 1) / 2 * bins - 0.5, 0.0), bins - 1.0)
        low = min(int(position), bins - 2)
        share = position - low
        lower[i, low] += 1 - share
        upper[i, low + 1] += share
    return lower + upper


@njit(error_model="numpy", nogil=True, cache=True)
def link(pairs, values, n):
    """Values of pairs, as in `measure_angles`, as a sparse matrix: data, columns in order, ends."""
    count = len(pairs)
    ends = np.zeros(n + 1, np.int64)
    for e in range(count):
        ends[pairs[e, 0] + 1] += 1
        ends[pairs[e, 1] + 1] += 1
    for i in range(n):
        ends[i + 1] += ends[i]
    unsorted, at = np.empty(2 * count, np.int64), ends[:-1].copy()
    for e in range(2 * count):
        i = pairs[e % count, 1 - e // count]
        unsorted[at[i]] = e
        at[i] += 1
    data, columns, at = np.empty(2 * count), np.empty(2 * count, np.int64), ends[:-1].copy()
    for j in range(n):
        for k in range(ends[j], ends[j + 1]):
            e = unsorted[k]
            i = pairs[e % count, e // count]
            data[at[i]], columns[at[i]] = values[e], j
            at[i] += 1
    return data, columns, ends


@njit(error_model="numpy", nogil=True, cache=True)
def carry_signs(sign, order, before, cosines):
    """Give points in this order the sign of the one before each, reversed where they face away."""
    for k in range(len(order)):
        own = sign[before[order[k]]]
        sign[order[k]] = own if cosines[k] >= 0 else -own
