# SPDX-License-Identifier: MIT
"""Patches of surface by the thousand, compiled by Numba; see `surface` for what they are."""

import math

import numpy as np

from coframe.compiled import njit

# [guard] Shares of a patch's width: points that are nearer to each other are the same.
NEAREST = 1e-12
# [guard] Probability of a pair of variances below which it is left out of sums.
LEAST = 1e-9


@njit(error_model="numpy", nogil=True, cache=True)
def tangents(normal):
    """Two unit vectors across a unit normal, and across each other."""
    a = np.zeros(3)
    a[0 if abs(normal[0]) < 0.7 else 1] = 1.0
    u = np.cross(normal, a)
    u /= math.sqrt((u * u).sum())
    return u, np.cross(normal, u)


@njit(error_model="numpy", nogil=True, cache=True)
def pool_normals(rows, near, points, normals, oriented, cloud, count, facing, first, last, *outs):
    """Normals of the points rows[first:last] by neighbours of all clouds that face about alike.

    The plane of the `count` nearest ones; a point with fewer keeps its own normal, and lacks some.
    """
    out, lacks = outs
    for k in range(first, last):
        i = rows[k]
        out[i] = normals[i]
        mean, scatter = np.zeros(3), np.zeros((3, 3))
        found = 0
        for q in range(near.shape[1]):
            j = near[k, q]
            alike = (
                normals[i, 0] * normals[j, 0]
                + normals[i, 1] * normals[j, 1]
                + normals[i, 2] * normals[j, 2]
            )
            if not (oriented[cloud[i]] and oriented[cloud[j]]):
                alike = abs(alike)
            if alike <= facing:
                continue
            found += 1
            for a in range(3):
                x = points[j, a] - points[i, a]
                mean[a] += x
                for b in range(a + 1):
                    scatter[a, b] += x * (points[j, b] - points[i, b])
            if found == count:
                break
        lacks[i] = found < count
        if lacks[i]:
            continue
        for a in range(3):
            for b in range(a + 1):
                scatter[a, b] -= mean[a] * mean[b] / found
                scatter[b, a] = scatter[a, b]
        axis = np.linalg.eigh(scatter)[1][:, 0]
        along = axis[0] * normals[i, 0] + axis[1] * normals[i, 1] + axis[2] * normals[i, 2]
        if abs(along) > facing:
            for a in range(3):
                out[i, a] = axis[a] if along > 0 else -axis[a]


@njit(error_model="numpy", nogil=True, cache=True)
def choose_members(near, feet, points, normals, oriented, cloud, at, facing, first, last, *out):
    """The members of patches first to last: of near points those that face alike, by tangents.

    Patch p lies about the foot of point at[p]. Points whose orientation is not known may face
    either way. Patches with too few members, or with members of one cloud, get the row -1.
    """
    rows, normal, width = out
    size = rows.shape[1]
    C = near.shape[1]
    away = np.empty(C)
    for p in range(first, last):
        centre, n = feet[at[p]], normals[at[p]].copy()
        enough = True
        order = np.zeros(C, np.int64)
        for turn in range(2):
            for q in range(C):
                i = near[p, q]
                alike = n[0] * normals[i, 0] + n[1] * normals[i, 1] + n[2] * normals[i, 2]
                if not (oriented[cloud[i]] and oriented[cloud[at[p]]]):
                    alike = abs(alike)
                d = feet[i] - centre
                height = d[0] * n[0] + d[1] * n[1] + d[2] * n[2]
                squared = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] - height * height
                away[q] = squared if alike > facing else np.inf
            order = np.argsort(away, kind="mergesort")
            enough = away[order[size - 1]] < np.inf
            if not enough or turn == 1:
                break
            mean, scatter = np.zeros(3), np.zeros((3, 3))
            for q in range(size):
                mean += points[near[p, order[q]]]
            mean /= size
            for q in range(size):
                d = points[near[p, order[q]]] - mean
                for a in range(3):
                    for b in range(3):
                        scatter[a, b] += d[a] * d[b]
            axis = np.linalg.eigh(scatter)[1][:, 0].copy()
            along = axis[0] * n[0] + axis[1] * n[1] + axis[2] * n[2]
            if abs(along) > facing:
                n = axis if along > 0 else -axis
        rows[p] = -1
        if not enough:
            continue
        shared = False
        for q in range(size):
            rows[p, q] = near[p, order[q]]
            shared = shared or cloud[rows[p, q]] != cloud[rows[p, 0]]
        if not shared:
            rows[p] = -1
        normal[p] = n
        width[p] = math.sqrt(max(away[order[size - 1]], 0.0))


@njit(error_model="numpy", nogil=True, cache=True)
def decompose(rows, normal, width, feet, at, points, weight, first, last, *out):
    """Heights of patches, without the best plane, along the axes of the roughness.

    With W the weights, B = W^1/2 (1, u, v) and K = W^1/2 |u_i - u_j|^3 W^1/2, the columns of A are
    eigenvectors of K in the space across B, times W^1/2, and D their eigenvalues.
    """
    A, D, height, where = out
    n = rows.shape[1]
    for p in range(first, last):
        u, v = tangents(normal[p])
        B, K, root = np.ones((n, 3)), np.zeros((n, n)), np.empty(n)
        for q in range(n):
            d = points[rows[p, q]] - feet[at[p]]
            where[p, q, 0] = (d * u).sum() / width[p]
            where[p, q, 1] = (d * v).sum() / width[p]
            height[p, q] = (d * normal[p]).sum()
            root[q] = math.sqrt(weight[rows[p, q]])
            B[q, 0] = root[q]
            B[q, 1] = root[q] * where[p, q, 0]
            B[q, 2] = root[q] * where[p, q, 1]
            for r in range(q):
                x = where[p, q, 0] - where[p, r, 0]
                y = where[p, q, 1] - where[p, r, 1]
                apart = math.sqrt(x * x + y * y)
                K[q, r] = apart * apart * apart * root[q] * root[r]
                K[r, q] = K[q, r]
        plane = np.linalg.qr(B)[0]
        inside = np.ascontiguousarray(plane.T) @ K
        both = inside @ np.ascontiguousarray(plane)
        large = 0.0
        for q in range(n):
            for r in range(n):
                large = max(large, abs(K[q, r]))
        # The plane's own axes get the least eigenvalues of all, so that they come first.
        M = K.copy()
        for q in range(n):
            for r in range(n):
                for a in range(3):
                    M[q, r] -= plane[q, a] * inside[a, r] + inside[a, q] * plane[r, a]
                    M[q, r] -= n * large * plane[q, a] * plane[r, a]
                    for b in range(3):
                        M[q, r] += plane[q, a] * both[a, b] * plane[r, b]
        values, vectors = np.linalg.eigh(M)
        for k in range(n - 3):
            D[p, k] = max(values[k + 3], 0.0)
            for q in range(n):
                A[p, k, q] = vectors[q, k + 3] * root[q]


@njit(error_model="numpy", nogil=True, cache=True)
def evidence(A, D, height, noise, rough, typical, first, last, log_likelihood):
    """Log-likelihood of the heights of patches for pairs of variances, noise and roughness.

    Variances in units of the typical one have products that are far from overflow.
    """
    _, k, n = A.shape
    for p in range(first, last):
        squares = np.zeros(k)
        for a in range(k):
            z = 0.0
            for q in range(n):
                z += A[p, a, q] * height[p, q]
            squares[a] = z * z
        for g in range(len(noise)):
            volume, total = 1.0, 0.0
            for a in range(k):
                variance = noise[g] + rough[g] * D[p, a]
                volume *= variance / typical
                total += squares[a] / variance
            log_likelihood[p, g] = -0.5 * (math.log(volume) + total)


@njit(error_model="numpy", nogil=True, cache=True)
def normal_equations(
    A, D, height, where, rows, normal, width, posterior, noise, rough, cloud, points, centre, *rest
):
    """Add the matrix and the gradient of all clouds' twists.

    E = h^T P h / 2 is the misfit of the heights h, with P the inverse of their covariance C across
    the plane of slope b. A twist lifts members along the normal (dh) and moves them along the patch
    (dx), where they meet another height of the plane, and other distances in C:

        dE = (P h)^T (dh - b dx) - 1/2 (P h)^T dC (P h) + 1/2 tr(P dC)

    The last term is the mean of what stands before it, with the sign changed: the slopes are those
    of a surface that was fitted to the members' own noise, by which they would be drawn along it
    even at the true poses.
    """
    weight, first, last, H, gradient = rest
    _, k, n = A.shape
    for p in range(first, last):
        u, v = tangents(normal[p])
        precision, dual = np.zeros(k), np.zeros(k)
        pairs = np.flatnonzero(posterior[p] > LEAST)
        z, error, bend = np.zeros(k), np.zeros(n), np.zeros(n)
        residual, drawn = np.zeros(n), np.zeros((k, k))
        for a in range(k):
            own = 0.0
            for g in pairs:
                share = posterior[p, g] / (noise[g] + rough[g] * D[p, a])
                precision[a] += share
                dual[a] += share * rough[g]
                own += share * noise[g]
            for q in range(n):
                z[a] += A[p, a, q] * height[p, q]
            for q in range(n):
                residual[q] += A[p, a, q] * precision[a] * z[a]
                bend[q] += A[p, a, q] * dual[a] * z[a]
                error[q] += A[p, a, q] * own * z[a]
        # Entries of P - (P h) (P h)^T, each pair's times its roughness: what multiplies dC.
        for g in pairs:
            for a in range(k):
                share = posterior[p, g] * rough[g] / (noise[g] + rough[g] * D[p, a])
                for b in range(k):
                    drawn[a, b] += share / (noise[g] + rough[g] * D[p, b])
        for a in range(k):
            for b in range(k):
                drawn[a, b] *= -z[a] * z[b]
            drawn[a, a] += dual[a]
        scores = np.ascontiguousarray(A[p].T) @ drawn @ A[p]
        # The fitted surface is a plane and what the members bend it by; its slope at each member.
        G, right = np.zeros((3, 3)), np.zeros(3)
        slope, score = np.zeros((n, 2)), np.zeros((n, 2))
        for q in range(n):
            level = height[p, q] - error[q] / weight[rows[p, q]]
            for r in range(n):
                x = where[p, q, 0] - where[p, r, 0]
                y = where[p, q, 1] - where[p, r, 1]
                apart = math.sqrt(x * x + y * y)
                level -= apart * apart * apart * bend[r]
                slope[q, 0] += 3 * apart * x * bend[r]
                slope[q, 1] += 3 * apart * y * bend[r]
                score[q, 0] += 3 * apart * x * scores[q, r]
                score[q, 1] += 3 * apart * y * scores[q, r]
            basis = (1.0, where[p, q, 0], where[p, q, 1])
            for a in range(3):
                right[a] += basis[a] * level
                for b in range(3):
                    G[a, b] += basis[a] * basis[b]
        for a in range(3):
            G[a, a] *= 1 + NEAREST
            G[a, a] += NEAREST
        plane = np.linalg.solve(G, right)
        # F: how a twist of its cloud lifts each member over the surface, along the axes.
        F = np.zeros((n, k, 6))
        owner = np.empty(n, np.int64)
        owners = 0
        for q in range(n):
            i = rows[p, q]
            e = (
                normal[p]
                - (plane[1] + slope[q, 0]) / width[p] * u
                - (plane[2] + slope[q, 1]) / width[p] * v
            )
            force = (
                residual[q] * normal[p]
                + (score[q, 0] - plane[1] * residual[q]) / width[p] * u
                + (score[q, 1] - plane[2] * residual[q]) / width[p] * v
            )
            arm = points[i] - centre
            moment, turn = np.cross(arm, force), np.cross(arm, e)
            for b in range(3):
                gradient[6 * cloud[i] + b] += moment[b]
                gradient[6 * cloud[i] + 3 + b] += force[b]
            which = 0
            while which < owners and owner[which] != cloud[i]:
                which += 1
            if which == owners:
                owner[which] = cloud[i]
                owners += 1
            for a in range(k):
                share = A[p, a, q] * math.sqrt(precision[a])
                for b in range(3):
                    F[which, a, b] += share * turn[b]
                    F[which, a, b + 3] += share * e[b]
        for s in range(owners):
            i = 6 * owner[s]
            for t in range(owners):
                j = 6 * owner[t]
                for a in range(k):
                    for b in range(6):
                        for c in range(6):
                            H[i + b, j + c] += F[s, a, b] * F[t, a, c]
