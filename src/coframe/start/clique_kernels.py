# SPDX-License-Identifier: MIT
"""Motions that many correspondences agree with, among far more that are wrong; compiled by Numba.

A motion keeps distances and the angles between normals. So two correspondences that are both right
are as far apart in one scan as in the other, and their normals differ as much: they are compatible.
Right ones are compatible with each other, a clique of the graph of compatible correspondences;
wrong ones are so only by chance. Cliques are grown from the correspondences that are in most
triangles of the graph; each gives a motion. Lengths are in spacings.

Everything runs on one thread, and sums have a fixed order: results are the same everywhere.
"""

import math

import numpy as np

from coframe.compiled import njit
from coframe.em.joint_kernels import principal

# [limit] Correspondences that a motion is found from, at least: three, and one to check it.
MIN_CORRESPONDENCES = 4
# [size] Correspondences of a graph, about: its cost grows with the square and more of them.
GRAPH_SIZE = 1000
# [limit] Cliques that are grown, strongest first; 16 and 64 find as many right motions.
MAX_CLIQUES = 32
# [limit] Weighted fits of a motion, with gates from the widest to the narrowest.
FITS = 4
# [format] Bits of a word, as a power of two.
WORD_POWER = 6
# [format] The last bit of a word.
LAST_BIT = 63


@njit(error_model="numpy", nogil=True, cache=True)
def find_motions(
    p, q, p_normals, q_normals, wanted, tolerance, min_cosine, first_gate, last_gate, radius
):
    """Motions (H, 4, 4), at most `wanted`, that carry most of p (n, 3) onto q (n, 3), best first.

    Correspondences are compatible if their distances differ by less than `tolerance`, and the
    angles between their normals by less than that of `min_cosine`. Motions are the same if they
    differ by less than `first_gate` at a `radius`.
    """
    n = len(p)
    every = (n + GRAPH_SIZE - 1) // GRAPH_SIZE
    rows = compatible(
        p[::every], q[::every], p_normals[::every], q_normals[::every], tolerance, min_cosine
    )
    triangles = count_triangles(rows)
    turns = np.empty((MAX_CLIQUES, 3, 3))
    shifts = np.empty((MAX_CLIQUES, 3))
    scores = np.zeros(MAX_CLIQUES)
    weights = np.empty(n)
    used = np.zeros(len(rows), np.bool_)
    made = 0
    for i in np.argsort(-triangles, kind="mergesort"):
        if made == MAX_CLIQUES:
            break
        if used[i]:
            continue
        clique = grow_clique(i, rows)
        if clique.sum() < MIN_CORRESPONDENCES:
            continue
        used |= clique
        weights[:] = 0.0
        weights[::every] = clique
        R, t = turns[made], shifts[made]
        fit(p, q, weights, R, t)
        weigh(p, q, p_normals, q_normals, R, t, first_gate, min_cosine, weights)
        scores[made] = weights.sum()
        used |= weights[::every] > 0
        made += 1
    found = np.zeros((wanted, 4, 4))
    count = 0
    for i in np.argsort(-scores[:made], kind="mergesort"):
        if count == wanted:
            break
        R, t = turns[i], shifts[i]
        sound = True
        for gate in np.linspace(first_gate, last_gate, FITS):
            near = weigh(p, q, p_normals, q_normals, R, t, gate, min_cosine, weights)
            sound = near >= MIN_CORRESPONDENCES
            if not sound:
                break
            fit(p, q, weights, R, t)
        for k in range(count):
            sound = sound and distance(R, t, found[k], radius) > first_gate
        if sound:
            found[count, :3, :3] = R
            found[count, :3, 3] = t
            found[count, 3, 3] = 1.0
            count += 1
    return found[:count]


@njit(error_model="numpy", nogil=True, cache=True)
def compatible(p, q, p_normals, q_normals, tolerance, min_cosine):
    """A row of bits for each correspondence: those that it is compatible with."""
    n = len(p)
    rows = np.zeros((n, (n + LAST_BIT) >> WORD_POWER), np.uint64)
    for i in range(n):
        for j in range(i):
            a = b = c = d = 0.0
            for k in range(3):
                a += (p[i, k] - p[j, k]) ** 2
                b += (q[i, k] - q[j, k]) ** 2
            difference = abs(math.sqrt(a) - math.sqrt(b))
            if difference >= tolerance:
                continue
            for k in range(3):
                c += p_normals[i, k] * p_normals[j, k]
                d += q_normals[i, k] * q_normals[j, k]
            # The cosine of the difference between two angles.
            sines = max(0.0, 1 - c * c) * max(0.0, 1 - d * d)
            if c * d + math.sqrt(sines) > min_cosine:
                rows[i, j >> WORD_POWER] |= np.uint64(1) << np.uint64(j & LAST_BIT)
                rows[j, i >> WORD_POWER] |= np.uint64(1) << np.uint64(i & LAST_BIT)
    return rows


@njit(error_model="numpy", nogil=True, cache=True)
def has_bit(row, j):
    """Whether bit j of a row is set."""
    return (row[j >> WORD_POWER] >> np.uint64(j & LAST_BIT)) & np.uint64(1) != 0


@njit(error_model="numpy", nogil=True, cache=True)
def common_bits(one, other):
    """How many bits are set in both rows."""
    total = 0
    for k in range(len(one)):
        x = one[k] & other[k]
        # Sums of neighbouring bits, then of pairs, fours and bytes.
        x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
        x = (x & np.uint64(0x3333333333333333)) + (
            (x >> np.uint64(2)) & np.uint64(0x3333333333333333)
        )
        x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        total += np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))
    return total


@njit(error_model="numpy", nogil=True, cache=True)
def count_triangles(rows):
    """Twice the triangles that each node of a graph is in."""
    triangles = np.zeros(len(rows), np.int64)
    for i in range(len(rows)):
        for j in range(i):
            if has_bit(rows[i], j):
                common = common_bits(rows[i], rows[j])
                triangles[i] += common
                triangles[j] += common
    return triangles


@njit(error_model="numpy", nogil=True, cache=True)
def grow_clique(first, rows):
    """A clique around a node: neighbours that share most others with it are added first."""
    n = len(rows)
    clique = np.zeros(n, np.bool_)
    clique[first] = True
    common = np.full(n, -1)
    for j in range(n):
        if has_bit(rows[first], j):
            common[j] = common_bits(rows[first], rows[j])
    left = rows[first].copy()
    for j in np.argsort(-common, kind="mergesort"):
        if common[j] < 0:
            break
        if has_bit(left, j):
            clique[j] = True
            left &= rows[j]
    return clique


@njit(error_model="numpy", nogil=True, cache=True)
def weigh(p, q, p_normals, q_normals, R, t, gate, min_cosine, weights):
    """Tukey's weights of what a motion leaves; 0 beyond the gate and where normals disagree.

    Returns how many are not 0.
    """
    near = 0
    for i in range(len(p)):
        square = cosine = 0.0
        for k in range(3):
            moved = R[k, 0] * p[i, 0] + R[k, 1] * p[i, 1] + R[k, 2] * p[i, 2] + t[k]
            square += (moved - q[i, k]) ** 2
            turned = R[k, 0] * p_normals[i, 0] + R[k, 1] * p_normals[i, 1]
            cosine += (turned + R[k, 2] * p_normals[i, 2]) * q_normals[i, k]
        inside = 1 - square / gate**2
        weights[i] = 0.0
        if inside > 0 and cosine > min_cosine:
            weights[i] = inside**2
            near += 1
    return near


@njit(error_model="numpy", nogil=True, cache=True)
def fit(p, q, weights, R, t):
    """The motion with the least weighted squares, by Horn's quaternion, into R and t."""
    a = np.zeros(3)
    b = np.zeros(3)
    mass = 0.0
    for i in np.flatnonzero(weights):
        mass += weights[i]
        for k in range(3):
            a[k] += weights[i] * p[i, k]
            b[k] += weights[i] * q[i, k]
    a /= mass
    b /= mass
    M = np.zeros((3, 3))
    for i in np.flatnonzero(weights):
        for k in range(3):
            for m in range(3):
                M[k, m] += weights[i] * (q[i, k] - b[k]) * (p[i, m] - a[m])
    A = np.empty((1, 4, 4))
    A[0, 0, 0] = M[0, 0] + M[1, 1] + M[2, 2]
    for k in range(3):
        u, v = (k + 1) % 3, (k + 2) % 3
        A[0, k + 1, k + 1] = M[k, k] - M[u, u] - M[v, v]
        A[0, 0, k + 1] = A[0, k + 1, 0] = M[v, u] - M[u, v]
        A[0, u + 1, v + 1] = A[0, v + 1, u + 1] = M[u, v] + M[v, u]
    values = np.empty((1, 4))
    vectors = np.empty((1, 4, 4))
    principal(A, values, vectors)
    w, x, y, z = vectors[0, :, np.argmax(values[0])]
    square = w * w + x * x + y * y + z * z  # 1, but for rounding.
    R[0, 0] = 1 - 2 * (y * y + z * z) / square
    R[0, 1] = 2 * (x * y - z * w) / square
    R[0, 2] = 2 * (x * z + y * w) / square
    R[1, 0] = 2 * (x * y + z * w) / square
    R[1, 1] = 1 - 2 * (x * x + z * z) / square
    R[1, 2] = 2 * (y * z - x * w) / square
    R[2, 0] = 2 * (x * z - y * w) / square
    R[2, 1] = 2 * (y * z + x * w) / square
    R[2, 2] = 1 - 2 * (x * x + y * y) / square
    for k in range(3):
        t[k] = b[k] - R[k, 0] * a[0] - R[k, 1] * a[1] - R[k, 2] * a[2]


@njit(error_model="numpy", nogil=True, cache=True)
def distance(R, t, motion, radius):
    """How far apart two motions carry the points at a radius: `verify.motion_distance`."""
    trace = square = 0.0
    for k in range(3):
        square += (t[k] - motion[k, 3]) ** 2
        for m in range(3):
            trace += R[k, m] * motion[k, m]
    return radius * math.acos(min(1.0, max(-1.0, (trace - 1) / 2))) + math.sqrt(square)
