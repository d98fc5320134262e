# SPDX-License-Identifier: MIT
"""Small matrices by the thousand, compiled by Numba: what the M-step needs of each component
without a NumPy call for each.
"""

import math

import numpy as np

from coframe.compiled import njit

# The inputs are finite by construction.
FAST = {"contract", "nsz", "arcp", "reassoc", "nnan", "ninf"}
# [guard] Share of a component's mass: a cloud with less does not see it.
UNSEEN = 1e-9


@njit(error_model="numpy", nogil=True, cache=True)
def invert(A, inverse):
    """Inverses (K, 3, 3) of symmetric positive definite matrices by Cholesky, and log det; returns
    the first bad one, or -1.
    """
    log_det = np.empty(A.shape[0])
    bad = -1
    for k in range(A.shape[0]):
        a = A[k]
        p = math.sqrt(a[0, 0])  # L = [[p, 0, 0], [q, s, 0], [r, u, v]]
        q, r = a[1, 0] / p, a[2, 0] / p
        s = math.sqrt(a[1, 1] - q * q)
        u = (a[2, 1] - q * r) / s
        v = math.sqrt(a[2, 2] - r * r - u * u)
        log_det[k] = 2 * math.log(p * s * v)
        if bad < 0 and not log_det[k] > -1e300:
            bad = k
        # The inverse of L, then L^-T L^-1.
        i, j, w = 1 / p, 1 / s, 1 / v
        m = -q * i * j
        o = -u * j * w
        n = (q * u - r * s) * i * j * w
        inverse[k, 0, 0] = i * i + m * m + n * n
        inverse[k, 0, 1] = inverse[k, 1, 0] = m * j + n * o
        inverse[k, 0, 2] = inverse[k, 2, 0] = n * w
        inverse[k, 1, 1] = j * j + o * o
        inverse[k, 1, 2] = inverse[k, 2, 1] = o * w
        inverse[k, 2, 2] = w * w
    return log_det, bad


@njit(error_model="numpy", nogil=True, cache=True)
def principal(A, values, vectors):
    """Eigenvalues (K, D), in no order, and eigenvectors as columns (K, D, D) of symmetric matrices,
    by Jacobi's rotations.
    """
    K, D, _ = A.shape
    for k in range(K):
        a, v = A[k].copy(), vectors[k]
        v[:] = 0
        for p in range(D):
            v[p, p] = 1
        for _ in range(12):  # converges quadratically: three or four turns as a rule
            off = largest = 0.0
            for p in range(D):
                largest = max(largest, abs(a[p, p]))
                for q in range(p + 1, D):
                    off = max(off, abs(a[p, q]))
            if off <= 1e-15 * largest:
                break
            for p in range(D - 1):
                for q in range(p + 1, D):
                    if a[p, q] == 0:
                        continue
                    # The rotation by theta that makes a[p, q] zero: t = tan theta, the smaller
                    # root.
                    h = (a[q, q] - a[p, p]) / (2 * a[p, q])
                    t = math.copysign(1.0, h) / (abs(h) + math.sqrt(h * h + 1))
                    c = 1 / math.sqrt(t * t + 1)
                    s = t * c
                    for r in range(D):
                        x, y = a[r, p], a[r, q]
                        a[r, p], a[r, q] = c * x - s * y, s * x + c * y
                    for r in range(D):
                        x, y = a[p, r], a[q, r]
                        a[p, r], a[q, r] = c * x - s * y, s * x + c * y
                    for r in range(D):
                        x, y = v[r, p], v[r, q]
                        v[r, p], v[r, q] = c * x - s * y, s * x + c * y
        for p in range(D):
            values[k, p] = a[p, p]


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def pool_moved(about, mass, first, second, R, t, total_mass, total_first, total_second):
    """Add up full moments (M, K, ...) about `about` (K, D), each cloud moved by its R (M, D, D), t
    (M, D).
    """
    M, K = mass.shape
    D = about.shape[1]
    e, f, RC = np.empty(D), np.empty(D), np.empty((D, D))
    for k in range(K):
        for j in range(M):
            a = mass[j, k]
            if a == 0:
                continue
            C = second[j, k]
            for p in range(D):
                x = t[j, p] - about[k, p]  # where the motion takes the centre, seen from the centre
                y = 0.0
                for q in range(D):
                    x += R[j, p, q] * about[k, q]
                    y += R[j, p, q] * first[j, k, q]
                    z = 0.0
                    for r in range(D):
                        z += R[j, p, r] * C[r, q]
                    RC[p, q] = z
                e[p], f[p] = x, y
            total_mass[k] += a
            for p in range(D):
                total_first[k, p] += f[p] + a * e[p]
                for q in range(D):
                    z = f[p] * e[q] + e[p] * f[q] + a * e[p] * e[q]
                    for r in range(D):
                        z += RC[p, r] * R[j, q, r]
                    total_second[k, p, q] += z


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def joint_blocks(mass, first, second, arm, precisions, start, stop, H, g, W):
    """The parts of `joint.system` from components start to stop: the gradient g (6M,) and the
    blocks H (M, 6, 6) of each cloud by itself are added to; what the profiled means subtract is W^T
    W, W (3 (stop - start), 6M).

    mass (M, K), first (M, K, 3), second (M, K, 3, 3) are moments about the means; arm (K, 3) leads
    from the centre of rotation to the means.
    """
    M = len(mass)
    W[:] = 0
    for k in range(start, stop):
        A = d0 = d1 = d2 = 0.0
        for j in range(M):
            A += mass[j, k]
            d0 += first[j, k, 0]
            d1 += first[j, k, 1]
            d2 += first[j, k, 2]
        if A <= 0:
            continue
        d0, d1, d2 = d0 / A, d1 / A, d2 / A  # where the profiled mean lies, seen from the old one
        xx, xy, xz = precisions[k, 0, 0], precisions[k, 0, 1], precisions[k, 0, 2]
        yy, yz, zz = precisions[k, 1, 1], precisions[k, 1, 2], precisions[k, 2, 2]
        l00 = math.sqrt(xx)  # P = L L^T
        l10, l20 = xy / l00, xz / l00
        l11 = math.sqrt(yy - l10 * l10)
        l21 = (yz - l10 * l20) / l11
        l22 = math.sqrt(zz - l20 * l20 - l21 * l21)
        e0, e1, e2 = arm[k, 0], arm[k, 1], arm[k, 2]
        w = 1 / math.sqrt(A)
        for j in range(M):
            a = mass[j, k]
            if a <= UNSEEN * A:
                continue
            b0, b1, b2 = first[j, k, 0], first[j, k, 1], first[j, k, 2]
            C = second[j, k]
            # sum of alpha r, r the arm of a point
            r0, r1, r2 = (a * e0 + b0, a * e1 + b1, a * e2 + b2)
            # Second moments of the arms, sum alpha r r^T.
            qxx = C[0, 0] + e0 * (r0 + b0)
            qyy = C[1, 1] + e1 * (r1 + b1)
            qzz = C[2, 2] + e2 * (r2 + b2)
            qxy = C[0, 1] + e0 * r1 + b0 * e1
            qxz = C[0, 2] + e0 * r2 + b0 * e2
            qyz = C[1, 2] + e1 * r2 + b1 * e2
            # The gradient: torque sum r x P (y - d), and force sum P (y - d).
            f0, f1, f2 = b0 - a * d0, b1 - a * d1, b2 - a * d2
            p0, p1, p2 = (
                xx * f0 + xy * f1 + xz * f2,
                xy * f0 + yy * f1 + yz * f2,
                xz * f0 + yz * f1 + zz * f2,
            )
            # S = sum alpha (y - d) r^T, row by row
            s00, s01, s02 = (
                f0 * e0 + C[0, 0] - d0 * b0,
                f0 * e1 + C[0, 1] - d0 * b1,
                f0 * e2 + C[0, 2] - d0 * b2,
            )
            s10, s11, s12 = (
                f1 * e0 + C[1, 0] - d1 * b0,
                f1 * e1 + C[1, 1] - d1 * b1,
                f1 * e2 + C[1, 2] - d1 * b2,
            )
            s20, s21, s22 = (
                f2 * e0 + C[2, 0] - d2 * b0,
                f2 * e1 + C[2, 1] - d2 * b1,
                f2 * e2 + C[2, 2] - d2 * b2,
            )
            i = 6 * j
            g[i] += (xz * s01 + yz * s11 + zz * s21) - (xy * s02 + yy * s12 + yz * s22)
            g[i + 1] += (xx * s02 + xy * s12 + xz * s22) - (xz * s00 + yz * s10 + zz * s20)
            g[i + 2] += (xy * s00 + yy * s10 + yz * s20) - (xx * s01 + xy * s11 + xz * s21)
            g[i + 3] += p0
            g[i + 4] += p1
            g[i + 5] += p2
            # The cloud's own block: sum alpha J^T P J with J = [-[r]x, I]; its upper triangle.
            h = H[j]
            h[0, 0] += yy * qzz - 2 * yz * qyz + zz * qyy
            h[1, 1] += xx * qzz - 2 * xz * qxz + zz * qxx
            h[2, 2] += xx * qyy - 2 * xy * qxy + yy * qxx
            h[0, 1] += yz * qxz + xz * qyz - xy * qzz - zz * qxy
            h[0, 2] += xy * qyz + yz * qxy - yy * qxz - xz * qyy
            h[1, 2] += xy * qxz + xz * qxy - xx * qyz - yz * qxx
            h[0, 3] += r1 * xz - r2 * xy
            h[0, 4] += r1 * yz - r2 * yy
            h[0, 5] += r1 * zz - r2 * yz
            h[1, 3] += r2 * xx - r0 * xz
            h[1, 4] += r2 * xy - r0 * yz
            h[1, 5] += r2 * xz - r0 * zz
            h[2, 3] += r0 * xy - r1 * xx
            h[2, 4] += r0 * yy - r1 * xy
            h[2, 5] += r0 * yz - r1 * xz
            h[3, 3] += a * xx
            h[3, 4] += a * xy
            h[3, 5] += a * xz
            h[4, 4] += a * yy
            h[4, 5] += a * yz
            h[5, 5] += a * zz
            # L^T sum alpha J / sqrt(A), for what the shared mean takes back.
            r0, r1, r2, a = w * r0, w * r1, w * r2, w * a
            row = 3 * (k - start)
            c0, c1, c2 = W[row], W[row + 1], W[row + 2]
            c0[i], c0[i + 1], c0[i + 2] = (
                l20 * r1 - l10 * r2,
                l00 * r2 - l20 * r0,
                l10 * r0 - l00 * r1,
            )
            c1[i], c1[i + 1], c1[i + 2] = l21 * r1 - l11 * r2, -l21 * r0, l11 * r0
            c2[i], c2[i + 1] = l22 * r1, -l22 * r0
            c0[i + 3], c0[i + 4], c0[i + 5] = a * l00, a * l10, a * l20
            c1[i + 4], c1[i + 5] = a * l11, a * l21
            c2[i + 5] = a * l22
