# SPDX-License-Identifier: MIT
"""At which shift do most points of a turned scan meet points of another? Compiled by Numba.

Also what a scan in the plane looked through: between its place and its points there is nothing.

Every pair of points whose normals are parallel votes for the shift between them. So the cost grows
with the product of the numbers of points, not with the size of an image of them. Lengths are in
spacings.

Everything runs on one thread, and sums have a fixed order: results are the same everywhere.
"""

import math

import numpy as np

from coframe.compiled import njit

# [limit] Shifts of one angle, best first: along a corridor several have about as many votes.
PEAKS = 3
# [size] [spacings] Half the width of the beam that meets a point: beams of neighbours touch.
BEAM = 0.5


@njit(error_model="numpy", nogil=True, cache=True)
def find_shifts(p, q, p_normals, q_normals, angles, halo, min_cosine, gate):
    """For each of so many angles of a full turn, the best shifts (angles, PEAKS, 2), their votes.

    p (n, 2) is turned by the angle and shifted onto q (m, 2). Votes in a cell of one spacing count
    1, those in the cells around it `halo`. Shifts of an angle differ by more than the `gate`.
    """
    reach = 0.0
    for points in (p, q):
        for i in range(len(points)):
            reach = max(reach, math.sqrt(points[i, 0] ** 2 + points[i, 1] ** 2))
    # No shift is larger than both reaches; one more cell on each side has no votes.
    middle = math.ceil(2 * reach) + 2
    votes = np.zeros((2 * middle + 1, 2 * middle + 1), np.int32)
    cells = np.empty((len(p) * len(q), 2), np.int32)
    totals = np.empty(len(p) * len(q))
    shifts = np.zeros((angles, PEAKS, 2))
    scores = np.zeros((angles, PEAKS))
    for k in range(angles):
        c, s = math.cos(2 * math.pi * k / angles), math.sin(2 * math.pi * k / angles)
        count = 0
        for i in range(len(p)):
            x, y = c * p[i, 0] - s * p[i, 1], s * p[i, 0] + c * p[i, 1]
            u = c * p_normals[i, 0] - s * p_normals[i, 1]
            v = s * p_normals[i, 0] + c * p_normals[i, 1]
            for j in range(len(q)):
                # Signs of normals are guesses.
                if abs(u * q_normals[j, 0] + v * q_normals[j, 1]) < min_cosine:
                    continue
                a = math.floor(q[j, 0] - x + 0.5) + middle
                b = math.floor(q[j, 1] - y + 0.5) + middle
                votes[a, b] += 1
                cells[count, 0], cells[count, 1] = a, b
                count += 1
        for i in range(count):
            a, b = cells[i]
            around = 0
            for da in range(-1, 2):
                for db in range(-1, 2):
                    around += votes[a + da, b + db]
            totals[i] = votes[a, b] + halo * (around - votes[a, b])
        for peak in range(PEAKS):
            for i in range(count):
                if totals[i] <= scores[k, peak]:
                    continue
                a, b = cells[i, 0] - middle, cells[i, 1] - middle
                apart = True
                for other in range(peak):
                    da, db = a - shifts[k, other, 0], b - shifts[k, other, 1]
                    apart = apart and da * da + db * db > gate * gate
                if apart:
                    scores[k, peak] = totals[i]
                    shifts[k, peak, 0], shifts[k, peak, 1] = a, b
        for i in range(count):
            votes[cells[i, 0], cells[i, 1]] = 0
    return shifts, scores


@njit(error_model="numpy", nogil=True, cache=True)
def count_hidden(points, normals, place, depth):
    """How many points (n, 2) lie deeper than that behind one that is seen from a place."""
    hidden = 0
    for i in range(len(points)):
        for j in range(len(points)):
            if meets(points[i], points[j], place):
                height = above(points[i], points[j], normals[j], place)
                if height < -depth and away(points[j], place) < away(points[i], place):
                    hidden += 1
                    break
    return hidden


@njit(error_model="numpy", nogil=True, cache=True)
def count_floating(x, on, points, normals, place, depth):
    """Of points x (m, 2), how many are in the view of a scan; how many float higher than `depth`.

    Those that are `on` the scan's surface do not float.
    """
    seen = floating = 0
    for i in range(len(x)):
        nearest, distance = -1, np.inf
        for j in range(len(points)):
            if meets(x[i], points[j], place) and away(points[j], place) < distance:
                nearest, distance = j, away(points[j], place)
        if nearest < 0:
            continue
        seen += 1
        before = not on[i] and away(x[i], place) < distance - depth
        floating += before and above(x[i], points[nearest], normals[nearest], place) > depth
    return floating, seen


@njit(error_model="numpy", nogil=True, cache=True)
def away(x, place):
    """The distance of a point from a place."""
    return math.sqrt((x[0] - place[0]) ** 2 + (x[1] - place[1]) ** 2)


@njit(error_model="numpy", nogil=True, cache=True)
def meets(x, point, place):
    """Whether the beam from a place to a point of the scan meets x, or would if it went on."""
    a, b = x[0] - place[0], x[1] - place[1]
    c, d = point[0] - place[0], point[1] - place[1]
    return a * c + b * d > 0 and abs(a * d - b * c) < BEAM * math.sqrt(a * a + b * b)


@njit(error_model="numpy", nogil=True, cache=True)
def above(x, point, normal, place):
    """The height of x above the tangent at a point, which faces the place."""
    side = normal[0] * (place[0] - point[0]) + normal[1] * (place[1] - point[1])
    height = normal[0] * (x[0] - point[0]) + normal[1] * (x[1] - point[1])
    return height if side > 0 else -height
