# SPDX-License-Identifier: MIT
"""One step of `localise`, compiled by Numba: between two sweeps over a frame's few points, NumPy
calls would take longer than the sweeps.

Everything is in the order and the three dimensions of `estep.Components`.
"""

import math

import numpy as np

from coframe.compiled import njit

# The inputs are finite by construction.
FAST = {"contract", "nsz", "arcp", "reassoc", "nnan", "ninf"}


@njit(error_model="numpy", nogil=True, cache=True)
def weigh(weights, log_peaks, nothing, log_weight, heaviest):
    """Fill log2 of each weight times the peak density (Kp,), at least `nothing`, and its largest
    value per block: `Components.weighted` of one cloud.
    """
    K, cell = len(weights), len(log_weight) // len(heaviest)
    for block in range(len(heaviest)):
        largest = nothing
        for k in range(block * cell, (block + 1) * cell):
            value = nothing
            if k < K and weights[k] > 0:
                value = max(nothing, (math.log(weights[k]) + log_peaks[k]) / math.log(2.0))
            log_weight[k] = value
            largest = max(largest, value)
        heaviest[block] = largest


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def newton(sums, means, precisions, min_mass, damping):
    """The twist (omega, tau) about the origin of one Gauss-Newton step on Q, the means fixed.

    `sums` (Kp, 10) of a sweep, `means` (3, Kp), `precisions` (K, 3, 3). The points of a component
    share its arm in the matrix, which only shapes the step, but not in the gradient.
    """
    H = np.zeros((6, 6))
    g = np.zeros(6)
    J = np.zeros((3, 6))
    for d in range(3):
        J[d, 3 + d] = 1
    PJ = np.empty((3, 6))
    f = np.empty(3)
    for k in range(precisions.shape[0]):
        mass = sums[k, 0]
        if mass <= min_mass:
            continue
        P = precisions[k]
        ax, ay, az = means[0, k], means[1, k], means[2, k]
        bx, by, bz = sums[k, 1], sums[k, 2], sums[k, 3]
        x, y, z = ax + bx / mass, ay + by / mass, az + bz / mass
        J[0, 1], J[0, 2] = z, -y
        J[1, 0], J[1, 2] = -z, x
        J[2, 0], J[2, 1] = y, -x
        for i in range(3):
            for j in range(6):
                PJ[i, j] = mass * (P[i, 0] * J[0, j] + P[i, 1] * J[1, j] + P[i, 2] * J[2, j])
        for i in range(6):
            for j in range(i + 1):
                H[i, j] += J[0, i] * PJ[0, j] + J[1, i] * PJ[1, j] + J[2, i] * PJ[2, j]
        for i in range(3):
            f[i] = P[i, 0] * bx + P[i, 1] * by + P[i, 2] * bz
            g[3 + i] += f[i]
        # Sum over points of (P y) x^T, of which the turn needs the antisymmetric part; the second
        # moments are xx xy xz yy yz zz.
        xx, xy, xz = sums[k, 4], sums[k, 5], sums[k, 6]
        yy, yz, zz = sums[k, 7], sums[k, 8], sums[k, 9]
        g[0] += f[2] * ay + P[2, 0] * xy + P[2, 1] * yy + P[2, 2] * yz
        g[0] -= f[1] * az + P[1, 0] * xz + P[1, 1] * yz + P[1, 2] * zz
        g[1] += f[0] * az + P[0, 0] * xz + P[0, 1] * yz + P[0, 2] * zz
        g[1] -= f[2] * ax + P[2, 0] * xx + P[2, 1] * xy + P[2, 2] * xz
        g[2] += f[1] * ax + P[1, 0] * xx + P[1, 1] * xy + P[1, 2] * xz
        g[2] -= f[0] * ay + P[0, 0] * xy + P[0, 1] * yy + P[0, 2] * yz
    return _solve(H, -g, damping)


@njit(error_model="numpy", nogil=True)
def _solve(H, right, damping):
    """(H + damping diag H)^-1 right by L D L^T, from the lower half of H. A direction without
    information, as those out of the plane of 2-D clouds, gets 0.
    """
    n = len(right)
    inverse = np.empty(n)  # of the pivots; 0 for a direction without information
    for j in range(n):
        pivot = H[j, j] * (1 + damping)
        for m in range(j):
            if inverse[m] > 0:
                pivot -= H[j, m] * H[j, m] / inverse[m]
        inverse[j] = 1 / pivot if pivot > 0 else 0.0
        for i in range(j + 1, n):
            value = H[i, j]
            for m in range(j):
                if inverse[m] > 0:
                    value -= H[i, m] * H[j, m] / inverse[m]
            H[i, j] = value * inverse[j]
    out = right.copy()
    for i in range(n):
        for m in range(i):
            out[i] -= H[i, m] * out[m]
    for i in range(n):
        out[i] *= inverse[i]
    for i in range(n - 1, -1, -1):
        for m in range(i + 1, n):
            out[i] -= H[m, i] * out[m]
    return out


@njit(error_model="numpy", nogil=True, cache=True)
def move(R, t, twist):
    """Turn and shift the pose R, t by a twist, in place; returns the angle and the shift."""
    angle = math.sqrt(twist[0] ** 2 + twist[1] ** 2 + twist[2] ** 2)
    # sin(a) / a and (1 - cos(a)) / a^2, by their series where these cancel.
    if angle < 1e-4:
        s, c = 1 - angle**2 / 6, 0.5 - angle**2 / 24
    else:
        s, c = math.sin(angle) / angle, 2 * (math.sin(angle / 2) / angle) ** 2
    x, y, z = twist[0], twist[1], twist[2]
    for column in range(4):
        a = t if column == 3 else R[:, column]
        # v + s (w x v) + c (w x (w x v))
        p, q, r = y * a[2] - z * a[1], z * a[0] - x * a[2], x * a[1] - y * a[0]
        u, v, w = y * r - z * q, z * p - x * r, x * q - y * p
        a[0] += s * p + c * u
        a[1] += s * q + c * v
        a[2] += s * r + c * w
    for d in range(3):
        t[d] += twist[3 + d]
    return angle, math.sqrt(twist[3] ** 2 + twist[4] ** 2 + twist[5] ** 2)
