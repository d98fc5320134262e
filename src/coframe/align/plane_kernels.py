# SPDX-License-Identifier: MIT
"""Patches over planes by the thousand, compiled by Numba; see `planes`, `evidence` and `chance`."""

import math

import numpy as np

from coframe.compiled import njit
from coframe.nearest_kernels import search

# [guard] In place of a variance of zero.
TINY = np.finfo(np.float64).tiny


@njit(error_model="numpy", nogil=True, cache=True)
def attraction(
    x,
    turned,
    known,
    nearest,
    order,
    boxes,
    centres,
    normals,
    radii,
    flat,
    facing,
    frame,
    about,
    gate,
    sign,
    least,
):
    """How patches at x are drawn onto the flat patches of another cloud: H and gradient of a twist.

    `turned` are their normals, `known` says whether it is known which way they face; `nearest`,
    `order` and `boxes` are those of `Nearest`. The cosine between normals is more than `least`; its
    `sign`, see `evidence.signs_of`, counts where both are known. `frame` carries the other cloud
    into the common frame, in which the twist is about `about`. Tukey's weights, with the gate.
    """
    n, D = x.shape
    P = D * (D + 1) // 2
    H, gradient = np.zeros((P, P)), np.zeros(P)
    queries = np.zeros((n, 3))
    queries[:, :D] = x
    distances, found = np.empty(n), np.empty(n, np.intp)
    search(nearest, boxes, queries, gate, distances, found)
    J, arm, over = np.zeros(P), np.zeros(3), np.zeros(3)
    for k in range(n):
        if distances[k] == np.inf:
            continue
        r = order[found[k]]
        if not flat[r]:
            continue
        height = (x[k, 0] - centres[r, 0]) * normals[r, 0]
        cosine = turned[k, 0] * normals[r, 0]
        for d in range(1, D):
            height += (x[k, d] - centres[r, d]) * normals[r, d]
            cosine += turned[k, d] * normals[r, d]
        across = math.sqrt(max(distances[k] * distances[k] - height * height, 0.0))
        if known[k] and facing[r] and sign != 0:
            cosine *= sign
        else:
            cosine = abs(cosine)
        if not (across < radii[r] and cosine > least):
            continue
        for a in range(D):
            arm[a], over[a] = frame[a, D] - about[a], 0.0
            for b in range(D):
                arm[a] += frame[a, b] * x[k, b]
                over[a] += frame[a, b] * normals[r, b]
        # How a twist raises the patch: turns by arm x normal, shifts by the normal.
        if D == 2:
            J[0] = arm[0] * over[1] - arm[1] * over[0]
        else:
            J[0] = arm[1] * over[2] - arm[2] * over[1]
            J[1] = arm[2] * over[0] - arm[0] * over[2]
            J[2] = arm[0] * over[1] - arm[1] * over[0]
        J[P - D :] = over[:D]
        weight = (1 - (height / gate) ** 2) ** 2
        for a in range(P):
            gradient[a] += weight * J[a] * height
            for b in range(P):
                H[a, b] += weight * J[a] * J[b]
    return H, gradient


@njit(error_model="numpy", nogil=True, cache=True)
def facing(middle, centres, normals):
    """How clearly most patches face a point: 1 where all do, -1 where all face away from it."""
    n, D = centres.shape
    total = size = 0.0
    for k in range(n):
        height = 0.0
        for d in range(D):
            height += (middle[d] - centres[k, d]) * normals[k, d]
        total += height
        size += abs(height)
    return total / max(size, n * TINY)


@njit(error_model="numpy", nogil=True, cache=True)
def box(pose, points, wide, low, high):
    """The box around points under a pose, wider by so much to all sides, into low and high."""
    n, D = points.shape
    low[:], high[:] = np.inf, -np.inf
    for k in range(n):
        for a in range(D):
            x = pose[a, D]
            for b in range(D):
                x += pose[a, b] * points[k, b]
            low[a], high[a] = min(low[a], x), max(high[a], x)
    for a in range(D):
        low[a] -= wide
        high[a] += wide


@njit(error_model="numpy", nogil=True, cache=True)
def meet(x, turned, one, distance, rows, other, sign, along, floor):
    """The columns of `evidence.Meeting`, but for the rows, of patches at x with normals `turned`.

    `one` and `other` have the columns of the two clouds that `evidence.meet` names.
    """
    flat, facing, radii, variances, spacings = one
    centres, normals, flat2, facing2, radii2, variances2, spacings2 = other
    n, D = x.shape
    inside = np.zeros(n, np.bool_)
    heights, deviations, reach = np.empty(n), np.empty(n), np.empty(n)
    for k in range(n):
        r = rows[k]
        height = (x[k, 0] - centres[r, 0]) * normals[r, 0]
        cosine = turned[k, 0] * normals[r, 0]
        for d in range(1, D):
            height += (x[k, d] - centres[r, d]) * normals[r, d]
            cosine += turned[k, d] * normals[r, d]
        heights[k] = height
        reach[k] = min(radii[k], radii2[r])
        spacing = floor * min(spacings[k], spacings2[r])
        deviations[k] = math.sqrt(max(variances[k] + variances2[r] + spacing * spacing, TINY))
        away = facing[k] and facing2[r] and sign * cosine < 0
        if flat[k] and flat2[r] and not away and cosine * cosine > along:
            across = math.sqrt(max(distance[k] * distance[k] - height * height, 0.0))
            inside[k] = across < radii2[r] / 2 and abs(height) < reach[k]
    return inside, heights, deviations, reach


@njit(error_model="numpy", nogil=True, cache=True)
def planes_of(centres, normals, order, tolerance, same, passes):
    """The numbers of planes, see `chance.planes_of`; `same`: cosine within which patches share one.

    `order` is that in which patches begin a new plane.
    """
    n, D = centres.shape
    plane = np.full(n, -1)
    old, new = np.empty(n, np.bool_), np.empty(n, np.bool_)
    middle, normal = np.empty(D), np.empty(D)
    count = 0
    for first in order:
        if plane[first] >= 0:
            continue
        middle[:], normal[:] = centres[first], normals[first]
        old[:] = False
        for _ in range(passes):
            found, changed = 0, False
            mean = np.zeros(D)
            for k in range(n):
                height = cosine = 0.0
                for d in range(D):
                    height += (centres[k, d] - middle[d]) * normal[d]
                    cosine += normals[k, d] * normal[d]
                new[k] = plane[k] < 0 and abs(cosine) > same and abs(height) < tolerance[k]
                changed |= new[k] != old[k]
                if new[k]:
                    found += 1
                    for d in range(D):
                        mean[d] += centres[k, d]
            if not changed or found == 0:
                break
            old[:] = new
            middle[:] = mean / found
            if found > D:
                scatter = np.zeros((D, D))
                for k in np.flatnonzero(old):
                    for a in range(D):
                        for b in range(D):
                            away = centres[k, a] - middle[a]
                            scatter[a, b] += away * (centres[k, b] - middle[b])
                normal[:] = np.linalg.eigh(scatter)[1][:, 0]
        for k in range(n):
            if old[k]:
                plane[k] = count
        plane[first] = count
        count += 1
    return plane


@njit(error_model="numpy", nogil=True, cache=True)
def mean_heights(plane, normals, heights, deviations, reach, fewest):
    """Of each plane with so many patches the mean height and deviation, as shares of the reach.

    Heights have the sign of the plane's first patch.
    """
    n, D = normals.shape
    planes = plane.max() + 1
    first, count = np.full(planes, -1), np.zeros(planes, np.int64)
    sums = np.zeros((planes, 3))
    for k in range(n):
        p = plane[k]
        if first[p] < 0:
            first[p] = k
        cosine = 0.0
        for d in range(D):
            cosine += normals[k, d] * normals[first[p], d]
        count[p] += 1
        sums[p, 0] += np.sign(cosine) * heights[k]
        sums[p, 1] += deviations[k]
        sums[p, 2] += reach[k]
    kept = np.flatnonzero(count >= fewest)
    return np.abs(sums[kept, 0]) / sums[kept, 2], sums[kept, 1] / sums[kept, 2]
