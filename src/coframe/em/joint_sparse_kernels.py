# SPDX-License-Identifier: MIT
"""Loops over pairs of a cloud and a component that it sees, compiled for `joint_sparse`.

V (3K, PM) has a block (3, P) for each pair. It is stored cloud by cloud: of cloud j, which sees s_j
components, the P columns as rows of w = 3 s_j numbers, which begin at 3 P begin[j]. `component`
says of each pair which component it is of; those of a cloud are in order.
"""

import numpy as np

from coframe.compiled import njit
from coframe.em.joint_kernels import FAST


@njit(error_model="numpy", nogil=True, cache=True)
def store(W, seen, start, stop, entries, begin, written, couplings):
    """Put blocks of W where they belong."""
    P = len(entries)
    for k in range(start, stop):
        for j in range(seen.shape[0]):
            if seen[j, k]:
                w = 3 * (begin[j + 1] - begin[j])
                place = 3 * P * begin[j] + 3 * written[j]
                written[j] += 1
                for p in range(P):
                    for r in range(3):
                        couplings[place + w * p + r] = W[3 * (k - start) + r, 6 * j + entries[p]]


@njit(error_model="numpy", nogil=True, cache=True)
def squares(begin, V, P):
    """The diagonal of V^T V."""
    M = len(begin) - 1
    found = np.empty((M, P))
    for j in range(M):
        w, place = 3 * (begin[j + 1] - begin[j]), 3 * P * begin[j]
        for p in range(P):
            total = 0.0
            for c in range(place + w * p, place + w * (p + 1)):
                total += V[c] * V[c]
            found[j, p] = total
    return found


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def scale(begin, V, F):
    """V F, in place."""
    M, P, _ = F.shape
    old = np.empty(P)
    for j in range(M):
        w, place = 3 * (begin[j + 1] - begin[j]), 3 * P * begin[j]
        for c in range(place, place + w):
            for p in range(P):
                old[p] = V[c + w * p]
            for p in range(P):
                total = 0.0
                for q in range(P):
                    total += old[q] * F[j, q, p]
                V[c + w * p] = total


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def gather(begin, component, V, y, model):
    """Add V y (M, P) to the model (3K,)."""
    P = y.shape[1]
    for j in range(len(y)):
        w, place = 3 * (begin[j + 1] - begin[j]), 3 * P * begin[j]
        for i in range(begin[j + 1] - begin[j]):
            k = 3 * component[begin[j] + i]
            for r in range(3):
                total = 0.0
                for p in range(P):
                    total += V[place + w * p + 3 * i + r] * y[j, p]
                model[k + r] += total


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def scatter(begin, component, V, model, y):
    """Add V^T model to y (M, P)."""
    P = y.shape[1]
    for j in range(len(y)):
        w, place = 3 * (begin[j + 1] - begin[j]), 3 * P * begin[j]
        for p in range(P):
            total = 0.0
            for i in range(begin[j + 1] - begin[j]):
                k, c = 3 * component[begin[j] + i], place + w * p + 3 * i
                total += V[c] * model[k] + V[c + 1] * model[k + 1] + V[c + 2] * model[k + 2]
            y[j, p] += total


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def outer(begin, component, first, pairs, clouds, V, P, C):
    """Take V V^T from the upper triangle of C.

    Three rows of C at a time, as they stay in the cache.
    """
    widest = 0
    for j in range(len(begin) - 1):
        widest = max(widest, 3 * (begin[j + 1] - begin[j]))
    t = np.empty(widest)
    for k in range(len(first) - 1):
        for n in range(first[k], first[k + 1]):
            j, i = clouds[n], pairs[n] - begin[clouds[n]]
            w, place = 3 * (begin[j + 1] - begin[j]), 3 * P * begin[j]
            for r in range(3):
                first_row = place + 3 * i
                here = t[: w - 3 * i]
                here[:] = 0
                for p in range(0, P, 3):
                    one = V[first_row + w * p : place + w * (p + 1)]
                    two = V[first_row + w * (p + 1) : place + w * (p + 2)]
                    three = V[first_row + w * (p + 2) : place + w * (p + 3)]
                    e, f, g = one[r], two[r], three[r]
                    for c in range(len(here)):
                        here[c] += e * one[c] + f * two[c] + g * three[c]
                target = C[3 * k + r]
                for m in range(len(here) // 3):
                    b = 3 * component[pairs[n] + m]
                    target[b] -= here[3 * m]
                    target[b + 1] -= here[3 * m + 1]
                    target[b + 2] -= here[3 * m + 2]


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def gather_blocks(begin, component, V, gauge, inverse, found):
    """For each cloud, its rows of (V; G) about the inverse: (V; G)_j^T inverse (V; G)_j."""
    M, P, Q = gauge.shape
    K = len(inverse) - Q
    for j in range(M):
        s = begin[j + 1] - begin[j]
        w, place = 3 * s, 3 * P * begin[j]
        U = np.empty((P, w + Q))
        t = np.empty(w + Q)
        for p in range(P):
            U[p, :w] = V[place + w * p : place + w * (p + 1)]
            for q in range(Q):
                U[p, w + q] = gauge[j, p, q]
        for a in range(w + Q):
            row = inverse[3 * component[begin[j] + a // 3] + a % 3 if a < w else K + a - w]
            for m in range(s):
                b = 3 * component[begin[j] + m]
                t[3 * m], t[3 * m + 1], t[3 * m + 2] = row[b], row[b + 1], row[b + 2]
            for q in range(Q):
                t[w + q] = row[K + q]
            for p in range(P):
                total = 0.0
                for c in range(w + Q):
                    total += t[c] * U[p, c]
                for q in range(P):
                    found[j, q, p] += U[q, a] * total
