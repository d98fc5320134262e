# SPDX-License-Identifier: MIT
"""The E-step's inner loops, compiled by Numba. Speed is the point here, and each trick has its
sentence.

One call of `sweep` takes a run of points of one cloud, moves them by its pose, and adds to `sums`
what the M-step needs of every component: the posterior mass and the first and second moments of the
points about the component's mean. The posteriors themselves live for 32 points at a time and are
never stored.

Layout. Everything is three-dimensional (the callers pad 2-D data with a zero coordinate, which
costs less than a second set of kernels). Points come as rows x, y, z, w of a (4, N) array in kd
order, components as rows of a (ROWS, Kp) array in kd order, Kp a multiple of `CELL`. Exponents are
in base 2: 2**x is a shift and a polynomial, and the logarithm of the weight rides along as one more
addend.

Skipping. A component may be left out for a block of points when its density is below `threshold`
everywhere in the block's box. The caller sets threshold = log2(tolerance * c / K), c the density of
the uniform class, which every denominator contains: what is dropped is then less than tolerance * c
per point, and the posteriors of a point change by at most 2 * tolerance in sum. Without a uniform
class (c = 0) the densest component takes the place of c, block by block.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from coframe.compiled import njit

# [size] Points per block: whole vectors of any width, and few enough that their box is small.
LEAF = 32
# [size] Components per block.
CELL = 8
# [format] x, y, z and six coefficients of the quadratic form in base 2; of spheres x, y, z and
# -log2(e) / (2 variance).
FULL_ROWS = 9
# [format] sum a, sum a (x - mu) (3), sum a |x - mu|^2.
SPHERE_SUMS = 5
# [format] sum a, sum a (x - mu) (3), sum a (x - mu)(x - mu)^T (6: xx xy xz yy yz zz).
FULL_SUMS = 10
# [guard] log2 of a density that is zero beside any other.
NOTHING = -1e30

# `reassoc` lets LLVM vectorise the sums; the inputs are finite by construction.
FAST = {"contract", "nsz", "arcp", "reassoc", "nnan", "ninf"}
# Into the loops over rows go inlined functions (`forceinline`): a call passes every field of every
# array on the stack, which takes as long as half a row.
# Rounding by adding and subtracting a magic number must not be reassociated away.
EXACT = {"contract", "nsz", "nnan", "ninf"}


@intrinsic
def _bits(typingctx, x):
    """The bits of a double as an integer."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(x), codegen


@intrinsic
def _float(typingctx, x):
    """The double with the bits of an integer."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(x), codegen


# 2**x = 2**n 2**f with n = round(x) and f in [-1/2, 1/2]: adding 1.5 * 2**52 leaves n in the low
# bits of the mantissa, a polynomial gives 2**f, and n is added to its exponent field. Seven times
# faster than a call of libm, because it vectorises. The coefficients interpolate 2**f at the
# Chebyshev nodes of [-1/2, 1/2]: degree 10, relative error 3e-16.
@njit(fastmath=EXACT)
def exp2(x):
    """2**x for the kernels."""
    x = max(x, -1000.0)
    m = x + 6755399441055744.0
    f = x - (m - 6755399441055744.0)
    r = 7.072582572548229e-09
    r = r * f + 1.0208690372639245e-07
    r = r * f + 1.3215442609276775e-06
    r = r * f + 1.525265725977902e-05
    r = r * f + 0.0001540353044168443
    r = r * f + 0.0013333558230165855
    r = r * f + 0.009618129107606949
    r = r * f + 0.05550410866444771
    r = r * f + 0.24022650695910097
    r = r * f + 0.69314718055995
    r = r * f + 1.0
    return _float(_bits(r) + (_bits(m) << np.int64(52)))


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _exponents_spheres(X, x, y, z, h, l, threshold, out, i):
    """out[i, b] = log2 of the density of one component at the points of a block; how many reach the
    threshold. Eq. (9).
    """
    # Always 32 points, in lanes side by side: the loop has no remainder, and the component's
    # numbers stay in registers.
    near = 0
    for b in range(LEAF):
        dx, dy, dz = X[0, b] - x, X[1, b] - y, X[2, b] - z
        v = (dx * dx + dy * dy + dz * dz) * h + l
        out[i, b] = v
        near += v >= threshold
    return near


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _exponents_full(X, x, y, z, xx, xy, xz, yy, yz, zz, l, threshold, out, i):
    """Eq. (9) for a full covariance, otherwise as `_exponents_spheres`.

    The exponent is a quadratic form with six coefficients (off-diagonals doubled).
    """
    near = 0
    for b in range(LEAF):
        dx, dy, dz = X[0, b] - x, X[1, b] - y, X[2, b] - z
        v = dx * (xx * dx + xy * dy + xz * dz) + dy * (yy * dy + yz * dz) + zz * dz * dz + l
        out[i, b] = v
        near += v >= threshold
    return near


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _powers(beta, i, total):
    """beta[i] = 2**beta[i] in place, and total += beta[i]."""
    for b in range(LEAF):
        v = exp2(beta[i, b])
        beta[i, b] = v
        total[b] += v


@njit(fastmath=FAST, error_model="numpy")
def _powers_over(beta, i, shift, total):
    """beta[i] = 2**(beta[i] - shift) in place, and total += beta[i]."""
    for b in range(LEAF):
        v = exp2(beta[i, b] - shift[b])
        beta[i, b] = v
        total[b] += v


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _add_sphere(beta, i, r, X, x, y, z, sums, k):
    """Add the block's points to the moments of one component, about its mean (elsewhere they would
    cancel).
    """
    s = sx = sy = sz = q = 0.0
    for b in range(LEAF):
        v = beta[i, b] * r[b]
        dx, dy, dz = X[0, b] - x, X[1, b] - y, X[2, b] - z
        s += v
        sx += v * dx
        sy += v * dy
        sz += v * dz
        q += v * (dx * dx + dy * dy + dz * dz)
    sums[k, 0] += s
    sums[k, 1] += sx
    sums[k, 2] += sy
    sums[k, 3] += sz
    sums[k, 4] += q


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _add_full(beta, i, r, X, x, y, z, sums, k):
    """Add one component's sums of a block, with all six second moments."""
    s = sx = sy = sz = xx = xy = xz = yy = yz = zz = 0.0
    for b in range(LEAF):
        v = beta[i, b] * r[b]
        dx, dy, dz = X[0, b] - x, X[1, b] - y, X[2, b] - z
        vx, vy, vz = v * dx, v * dy, v * dz
        s += v
        sx += vx
        sy += vy
        sz += vz
        xx += vx * dx
        xy += vx * dy
        xz += vx * dz
        yy += vy * dy
        yz += vy * dz
        zz += vz * dz
    sums[k, 0] += s
    sums[k, 1] += sx
    sums[k, 2] += sy
    sums[k, 3] += sz
    sums[k, 4] += xx
    sums[k, 5] += xy
    sums[k, 6] += xz
    sums[k, 7] += yy
    sums[k, 8] += yz
    sums[k, 9] += zz


@njit(fastmath=FAST, error_model="numpy")
def _gap(low, high, box_low, box_high):
    """The distance between two intervals."""
    return max(max(low - box_high, box_low - high), 0.0)


@njit(fastmath=FAST, error_model="numpy")
def _surviving_blocks(full, box, B, heaviest, threshold, hit, near):
    """The blocks of components that may reach into the box of points; their indices into `near`,
    their number returned.
    """
    lx, hx, ly, hy, lz, hz = box[0], box[1], box[2], box[3], box[4], box[5]
    blocks = B.shape[1]
    # First a loop without branches, which vectorises, then the compaction.
    if full:  # an ellipsoid d^T P d <= q lies in the box |d_i| <= sqrt(q Sigma_ii)
        for k in range(blocks):
            q = 2 * math.log(2.0) * (heaviest[k] - threshold)
            dx, dy, dz = (
                _gap(B[0, k], B[1, k], lx, hx),
                _gap(B[2, k], B[3, k], ly, hy),
                _gap(B[4, k], B[5, k], lz, hz),
            )
            hit[k] = min(min(q * B[6, k] - dx * dx, q * B[7, k] - dy * dy), q * B[8, k] - dz * dz)
    else:
        for k in range(blocks):
            dx, dy, dz = (
                _gap(B[0, k], B[1, k], lx, hx),
                _gap(B[2, k], B[3, k], ly, hy),
                _gap(B[4, k], B[5, k], lz, hz),
            )
            hit[k] = (dx * dx + dy * dy + dz * dz) * B[6, k] + heaviest[k] - threshold
    n = 0
    for k in range(blocks):
        near[n] = k
        n += hit[k] >= 0
    return n


@njit(fastmath=FAST, error_model="numpy")
def _surviving_components(
    full, box, components, reach, log_weight, threshold, near, blocks, hit, index
):
    """The components of those blocks that may reach into the box; their indices into `index`, their
    number returned.
    """
    ox, oy, oz = 0.5 * (box[0] + box[1]), 0.5 * (box[2] + box[3]), 0.5 * (box[4] + box[5])
    sx, sy, sz = 0.5 * (box[1] - box[0]), 0.5 * (box[3] - box[2]), 0.5 * (box[5] - box[4])
    cx, cy, cz = components[0], components[1], components[2]
    n = 0
    for i in range(blocks):
        k0 = near[i] * CELL
        if full:
            # The ellipsoid's own box, and its slab: d^T P d >= (u . d)^2 for u = P e / sqrt(e . P
            # e), whatever e. With e the axis of the stiffest entry, u is nearly the normal of a
            # flat component: one on the same wall, a step behind, goes.
            xx, yy, zz, ux, uy, uz = reach[0], reach[1], reach[2], reach[3], reach[4], reach[5]
            for k in range(k0, k0 + CELL):
                q = 2 * math.log(2.0) * (log_weight[k] - threshold)
                x, y, z = cx[k] - ox, cy[k] - oy, cz[k] - oz
                dx, dy, dz = max(abs(x) - sx, 0.0), max(abs(y) - sy, 0.0), max(abs(z) - sz, 0.0)
                u = (
                    abs(ux[k] * x + uy[k] * y + uz[k] * z)
                    - abs(ux[k]) * sx
                    - abs(uy[k]) * sy
                    - abs(uz[k]) * sz
                )
                u = max(u, 0.0)
                inside = min(
                    min(q * xx[k] - dx * dx, q * yy[k] - dy * dy),
                    min(q * zz[k] - dz * dz, q - u * u),
                )
                hit[k - k0] = inside
        else:
            h = components[3]
            for k in range(k0, k0 + CELL):
                dx, dy, dz = (
                    max(abs(cx[k] - ox) - sx, 0.0),
                    max(abs(cy[k] - oy) - sy, 0.0),
                    max(abs(cz[k] - oz) - sz, 0.0),
                )
                hit[k - k0] = (dx * dx + dy * dy + dz * dz) * h[k] + log_weight[k] - threshold
        for k in range(CELL):
            # written always, kept only when the component survives: no branch to mispredict
            index[n] = k0 + k
            n += hit[k] >= 0
    return n


@njit(fastmath=FAST, error_model="numpy")
def _densest(full, box, components, stiffest, log_weight):
    """A lower bound, over the box, of the log2 density of the densest component: what stands in for
    c when there is no c.
    """
    best = -1e300
    for k in range(log_weight.shape[0]):
        fx = max(abs(components[0, k] - box[0]), abs(components[0, k] - box[1]))
        fy = max(abs(components[1, k] - box[2]), abs(components[1, k] - box[3]))
        fz = max(abs(components[2, k] - box[4]), abs(components[2, k] - box[5]))
        best = max(best, log_weight[k] + (fx * fx + fy * fy + fz * fz) * stiffest[k])
    return best


@njit(fastmath=FAST, error_model="numpy")
def _move(V, R, t, s, m, X, weight, box):
    """The block's m points from V[:, s] on, moved, into X, with their weights and their box; X is
    filled up with weight 0.
    """
    for b in range(LEAF):
        i = s + min(b, m - 1)
        x, y, z = V[0, i], V[1, i], V[2, i]
        weight[b] = V[3, i] if b < m else 0.0
        for d in range(3):
            X[d, b] = R[d, 0] * x + R[d, 1] * y + R[d, 2] * z + t[d]
    for d in range(3):
        low = high = X[d, 0]
        for b in range(LEAF):
            low, high = min(low, X[d, b]), max(high, X[d, b])
        box[2 * d], box[2 * d + 1] = low, high


@njit(fastmath=FAST, error_model="numpy")
def _log_sum(m, dens, weight):
    """Sum of weight * log(density) over a block."""
    # Four points of one weight share one logarithm, that of their product, unless it might leave
    # the range of a double.
    total = 0.0
    for i in range(0, m - m % 4, 4):
        a, b, c, d, w = dens[i], dens[i + 1], dens[i + 2], dens[i + 3], weight[i]
        safe = (min(min(a, b), min(c, d)) > 1e-70) & (max(max(a, b), max(c, d)) < 1e70)
        if safe & (weight[i + 1] == w) & (weight[i + 2] == w) & (weight[i + 3] == w):
            total += w * math.log((a * b) * (c * d))
        else:
            total += (
                w * math.log(a)
                + weight[i + 1] * math.log(b)
                + weight[i + 2] * math.log(c)
                + weight[i + 3] * math.log(d)
            )
    for i in range(m - m % 4, m):
        total += weight[i] * math.log(dens[i])
    return total


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def sweep(
    V,
    R,
    t,
    components,
    reach,
    stiffest,
    boxes,
    log_weight,
    heaviest,
    tolerance,
    c,
    start,
    stop,
    sums,
    density,
    label,
):
    """One cloud's points V[:, start:stop] under the pose R, t: add their moments to sums (Kp, 5 or
    10).

    Returns the weighted log-likelihood (natural logarithm) and the number of pairs evaluated.
    `density` and `label`, when they are not empty, receive each point's total density and its most
    probable component (-1: the uniform class). `tolerance` < 0 evaluates every pair.
    """
    full = components.shape[0] == FULL_ROWS
    blocks = boxes.shape[1]
    X, box = np.empty((3, LEAF)), np.empty(6)
    moved = np.empty((3, LEAF))
    # of the block's points: exponents first, then densities
    beta = np.empty((components.shape[1], LEAF))
    shift, total, r = np.zeros(LEAF), np.zeros(LEAF), np.zeros(LEAF)
    dens, weight = np.empty(LEAF), np.empty(LEAF)
    hit, near, index = (
        np.empty(max(blocks, CELL)),
        np.empty(blocks + 1, np.int64),
        np.empty(components.shape[1] + 1, np.int64),
    )
    keep = tolerance / components.shape[1]
    loglik = 0.0
    pairs = 0
    for s in range(start, stop, LEAF):
        m = min(LEAF, stop - s)
        _move(V, R, t, s, m, moved, weight, box)
        ox, oy, oz = 0.5 * (box[0] + box[1]), 0.5 * (box[2] + box[3]), 0.5 * (box[4] + box[5])
        for b in range(LEAF):  # seen from the middle of the box
            X[0, b], X[1, b], X[2, b] = moved[0, b] - ox, moved[1, b] - oy, moved[2, b] - oz

        threshold = -1e300
        if tolerance >= 0:
            floor = math.log2(c) if c > 0 else _densest(full, box, components, stiffest, log_weight)
            threshold = floor + math.log2(keep)
        n = _surviving_blocks(full, box, boxes, heaviest, threshold, hit, near)
        n = _surviving_components(
            full, box, components, reach, log_weight, threshold, near, n, hit, index
        )
        pairs += n * m

        for b in range(LEAF):
            shift[b] = total[b] = 0
        seen, limit = 0, max(threshold, -1e38)
        for i in range(n):
            k = index[i]
            x, y, z = components[0, k] - ox, components[1, k] - oy, components[2, k] - oz
            l = log_weight[k]
            if full:
                xx, xy, xz = components[3, k], components[4, k], components[5, k]
                yy, yz, zz = components[6, k], components[7, k], components[8, k]
                reached = _exponents_full(X, x, y, z, xx, xy, xz, yy, yz, zz, l, limit, beta, seen)
            else:
                reached = _exponents_spheres(X, x, y, z, components[3, k], l, limit, beta, seen)
            if c > 0 and reached > 0:  # while the row is at hand
                _powers(beta, seen, total)
            # the next row takes this place when no point of the block is near enough
            index[seen] = k
            seen += reached > 0

        # without a uniform class, densities relative to the largest: nothing underflows to 0 / 0
        if c <= 0:
            for b in range(LEAF):
                shift[b] = -3e38
            for i in range(seen):
                for b in range(LEAF):
                    shift[b] = max(shift[b], beta[i, b])
            for i in range(seen):
                _powers_over(beta, i, shift, total)
        for b in range(LEAF):
            dens[b] = total[b] + c
            r[b] = weight[b] / dens[b]
        for i in range(seen):
            k = index[i]
            x, y, z = components[0, k] - ox, components[1, k] - oy, components[2, k] - oz
            if full:
                _add_full(beta, i, r, X, x, y, z, sums, k)
            else:
                _add_sphere(beta, i, r, X, x, y, z, sums, k)
        loglik += _log_sum(m, dens, weight)
        for b in range(m):
            loglik += weight[b] * shift[b] * math.log(2.0)
        if density.size:
            for b in range(m):
                density[s + b] = dens[b] * 2.0 ** np.float64(shift[b])
                best, label[s + b] = c, -1
                for i in range(seen):
                    if beta[i, b] > best:
                        best, label[s + b] = beta[i, b], index[i]
    return loglik, pairs


@njit(nogil=True, cache=True)
def kd_order(points, leaf):
    """The order of the points (N, D) in the leaves of a balanced kd-tree with `leaf` points a leaf:
    neighbours share a block.

    Each range is split at a multiple of `leaf` across its longest side, by quickselect.
    """
    n = points.shape[0]
    order = np.arange(n)
    stack = np.empty((128, 2), np.int64)
    stack[0, 0], stack[0, 1] = 0, n
    depth = 1
    while depth > 0:
        depth -= 1
        low, high = stack[depth, 0], stack[depth, 1]
        if high - low <= leaf:
            continue
        axis, longest = 0, -1.0
        for d in range(points.shape[1]):
            smallest = largest = points[order[low], d]
            for i in range(low + 1, high):
                v = points[order[i], d]
                smallest, largest = min(smallest, v), max(largest, v)
            if largest - smallest > longest:
                axis, longest = d, largest - smallest
        middle = low + (high - low + leaf - 1) // leaf // 2 * leaf
        a, b = low, high - 1
        # Hoare's selection; equal keys are swapped too, so runs of duplicates stay balanced
        while a < b:
            pivot = points[order[(a + b) // 2], axis]
            i, j = a, b
            while i <= j:
                while points[order[i], axis] < pivot:
                    i += 1
                while points[order[j], axis] > pivot:
                    j -= 1
                if i <= j:
                    order[i], order[j] = order[j], order[i]
                    i += 1
                    j -= 1
            if middle <= j:
                b = j
            elif middle >= i:
                a = i
            else:
                break
        stack[depth, 0], stack[depth, 1] = low, middle
        stack[depth + 1, 0], stack[depth + 1, 1] = middle, high
        depth += 2
    return order


@njit(nogil=True, cache=True)
def collect(sums, order, mass, first, second):
    """Add up the tasks' sums (T, Kp, S) of one cloud, in their order, and lay them out as moments
    in the mixture's order.
    """
    tasks, D, full = sums.shape[0], first.shape[1], sums.shape[2] == FULL_SUMS
    for i in range(order.shape[0]):
        k = order[i]
        mass[k] = _total(sums, tasks, i, 0)
        for d in range(D):
            first[k, d] = _total(sums, tasks, i, 1 + d)
        if full:
            for d in range(D):
                for e in range(d, D):
                    v = _total(sums, tasks, i, 4 + 3 * d - d * (d + 1) // 2 + e)
                    second[k, d * D + e] = v
                    second[k, e * D + d] = v
        else:
            second[k, 0] = _total(sums, tasks, i, 4)


@njit()
def _total(sums, tasks, i, r):
    v = sums[0, i, r]
    for task in range(1, tasks):
        v += sums[task, i, r]
    return v
