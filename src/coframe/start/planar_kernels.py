# SPDX-License-Identifier: MIT
"""At which shift do most points of a turned scan meet points of another? Compiled by Numba.

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
