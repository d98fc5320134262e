# SPDX-License-Identifier: MIT
"""The E-step's inner loops, compiled by Numba. Speed is the point here, and each trick has its sentence.

One call of `sweep` takes a run of points of one cloud, moves them by its pose, and adds to `sums` what the M-step needs of
every component: the posterior mass and the first and second moments of the points about the component's mean. The
posteriors themselves live for 32 points at a time and are never stored.

Layout. Everything is three-dimensional (the callers pad 2-D data with a zero coordinate, which costs less than a second set
of kernels). Points come as rows x, y, z, w of a (4, N) array in kd order, components as rows of a (ROWS, Kp) array in kd
order, Kp a multiple of `LEAF`. Exponents are in base 2: 2**x is a shift and a polynomial, and the logarithm of the weight
rides along as one more addend.

Skipping. A component may be left out for a block of points when its density is below `threshold` everywhere in the block's
box. The caller sets threshold = log2(tolerance * c / K), c the density of the uniform class, which every denominator
contains: what is dropped is then less than tolerance * c per point, and the posteriors of a point change by at most
2 * tolerance in sum. Without a uniform class (c = 0) the densest component takes the place of c, block by block.
"""

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

LEAF = 32  # points per block, and components per block: fits L1 with room, amortises a box test over 1024 pairs
SPHERE_ROWS = 5  # x, y, z, -log2(e) / (2 variance), log2 of the density at the mean
FULL_ROWS = 10  # x, y, z, six coefficients of the quadratic form in base 2, log2 of the density at the mean
SPHERE_SUMS = 5  # sum a, sum a (x - mu) (3), sum a |x - mu|^2
FULL_SUMS = 10  # sum a, sum a (x - mu) (3), sum a (x - mu)(x - mu)^T (6: xx xy xz yy yz zz)

NOTHING = -1e30  # log2 of a density that is zero beside any other

# `reassoc` lets LLVM vectorise the sums; the inputs are finite by construction.
FAST = {"contract", "nsz", "arcp", "reassoc", "nnan", "ninf"}
# Rounding by adding and subtracting a magic number must not be reassociated away.
EXACT = {"contract", "nsz", "nnan", "ninf"}


@intrinsic
def _bits(typingctx, x):
    integer = types.int64 if x == types.float64 else types.int32

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(integer.bitwidth))

    return integer(x), codegen


@intrinsic
def _float(typingctx, x):
    real = types.float64 if x == types.int64 else types.float32

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType() if real == types.float64 else ir.FloatType())

    return real(x), codegen


# 2**x = 2**n 2**f with n = round(x) and f in [-1/2, 1/2]: adding 1.5 * 2**52 leaves n in the low bits of the mantissa, a
# polynomial gives 2**f, and n is added to its exponent field. Seven times faster than a call of libm, because it vectorises.
# The coefficients interpolate 2**f at the Chebyshev nodes of [-1/2, 1/2]: degree 10 (relative error 3e-16) and 6 (3e-9).
@njit(fastmath=EXACT)
def _exp2_double(x):
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


@njit(fastmath=EXACT)
def _exp2_single(x):
    x = max(x, np.float32(-126.0))
    m = x + np.float32(12582912.0)
    f = x - (m - np.float32(12582912.0))
    r = np.float32(0.00015461444698564738)
    r = r * f + np.float32(0.0013400428177615747)
    r = r * f + np.float32(0.009618056678524656)
    r = r * f + np.float32(0.05550327226670303)
    r = r * f + np.float32(0.24022650922288757)
    r = r * f + np.float32(0.6931472067028326)
    r = r * f + np.float32(1.0)
    return _float(np.int32(_bits(r) + np.int32(_bits(m) << np.int32(23))))


def exp2(x):
    """2**x for the kernels, in the precision of x."""


@overload(exp2)
def _exp2(x):
    if x == types.float32:
        return lambda x: _exp2_single(x)
    return lambda x: _exp2_double(x)


@njit(fastmath=FAST, error_model="numpy")
def _densities_spheres(n, C, p, shift, beta, total):
    """beta[b, k] = 2**(log2 density of component k at point b - shift[b]), and the sums over k. Eq. (9)."""
    # Four points share each load of a component: the loads, not the arithmetic, were the bottleneck of one.
    cx, cy, cz, g, c = C[0], C[1], C[2], C[3], C[4]
    x0, x1, x2, x3 = p[0, 0], p[0, 1], p[0, 2], p[0, 3]
    y0, y1, y2, y3 = p[1, 0], p[1, 1], p[1, 2], p[1, 3]
    z0, z1, z2, z3 = p[2, 0], p[2, 1], p[2, 2], p[2, 3]
    s0, s1, s2, s3 = shift[0], shift[1], shift[2], shift[3]
    b0, b1, b2, b3 = beta[0], beta[1], beta[2], beta[3]
    t0 = t1 = t2 = t3 = p.dtype.type(0)
    for k in range(n):
        mx, my, mz, h, l = cx[k], cy[k], cz[k], g[k], c[k]
        dx, dy, dz = x0 - mx, y0 - my, z0 - mz
        v = exp2((dx * dx + dy * dy + dz * dz) * h + (l - s0))
        b0[k] = v
        t0 += v
        dx, dy, dz = x1 - mx, y1 - my, z1 - mz
        v = exp2((dx * dx + dy * dy + dz * dz) * h + (l - s1))
        b1[k] = v
        t1 += v
        dx, dy, dz = x2 - mx, y2 - my, z2 - mz
        v = exp2((dx * dx + dy * dy + dz * dz) * h + (l - s2))
        b2[k] = v
        t2 += v
        dx, dy, dz = x3 - mx, y3 - my, z3 - mz
        v = exp2((dx * dx + dy * dy + dz * dz) * h + (l - s3))
        b3[k] = v
        t3 += v
    total[0], total[1], total[2], total[3] = t0, t1, t2, t3


@njit(fastmath=FAST, error_model="numpy")
def _densities_full(n, C, p, shift, beta, total):
    """The same for full covariances: the exponent is a quadratic form with six coefficients (off-diagonals doubled)."""
    cx, cy, cz, c = C[0], C[1], C[2], C[9]
    qxx, qxy, qxz, qyy, qyz, qzz = C[3], C[4], C[5], C[6], C[7], C[8]
    x0, x1, x2, x3 = p[0, 0], p[0, 1], p[0, 2], p[0, 3]
    y0, y1, y2, y3 = p[1, 0], p[1, 1], p[1, 2], p[1, 3]
    z0, z1, z2, z3 = p[2, 0], p[2, 1], p[2, 2], p[2, 3]
    s0, s1, s2, s3 = shift[0], shift[1], shift[2], shift[3]
    b0, b1, b2, b3 = beta[0], beta[1], beta[2], beta[3]
    t0 = t1 = t2 = t3 = p.dtype.type(0)
    for k in range(n):
        mx, my, mz, l = cx[k], cy[k], cz[k], c[k]
        xx, xy, xz, yy, yz, zz = qxx[k], qxy[k], qxz[k], qyy[k], qyz[k], qzz[k]
        dx, dy, dz = x0 - mx, y0 - my, z0 - mz
        v = exp2(dx * (xx * dx + xy * dy + xz * dz) + dy * (yy * dy + yz * dz) + zz * dz * dz + (l - s0))
        b0[k] = v
        t0 += v
        dx, dy, dz = x1 - mx, y1 - my, z1 - mz
        v = exp2(dx * (xx * dx + xy * dy + xz * dz) + dy * (yy * dy + yz * dz) + zz * dz * dz + (l - s1))
        b1[k] = v
        t1 += v
        dx, dy, dz = x2 - mx, y2 - my, z2 - mz
        v = exp2(dx * (xx * dx + xy * dy + xz * dz) + dy * (yy * dy + yz * dz) + zz * dz * dz + (l - s2))
        b2[k] = v
        t2 += v
        dx, dy, dz = x3 - mx, y3 - my, z3 - mz
        v = exp2(dx * (xx * dx + xy * dy + xz * dz) + dy * (yy * dy + yz * dz) + zz * dz * dz + (l - s3))
        b3[k] = v
        t3 += v
    total[0], total[1], total[2], total[3] = t0, t1, t2, t3


@njit(fastmath=FAST, error_model="numpy")
def _peaks(n, full, C, p, shift):
    """shift[b] = the largest exponent at point b, so that without a uniform class nothing underflows to 0 / 0."""
    for b in range(4):
        x, y, z = p[0, b], p[1, b], p[2, b]
        best = p.dtype.type(-3e38)
        if full:
            for k in range(n):
                dx, dy, dz = x - C[0, k], y - C[1, k], z - C[2, k]
                q = dx * (C[3, k] * dx + C[4, k] * dy + C[5, k] * dz) + dy * (C[6, k] * dy + C[7, k] * dz)
                best = max(best, q + C[8, k] * dz * dz + C[9, k])
        else:
            for k in range(n):
                dx, dy, dz = x - C[0, k], y - C[1, k], z - C[2, k]
                best = max(best, (dx * dx + dy * dy + dz * dz) * C[3, k] + C[4, k])
        shift[b] = best


@njit(fastmath=FAST, error_model="numpy")
def _add_five(n, beta, a, S, r):
    """S[r:r+5, k] += sum over four points b of beta[b, k] a[r:r+5, b]: five of the sums about the block's centre."""
    u0, u1, u2, u3 = beta[0], beta[1], beta[2], beta[3]
    a0, a1, a2, a3 = a[r, 0], a[r, 1], a[r, 2], a[r, 3]
    c0, c1, c2, c3 = a[r + 1, 0], a[r + 1, 1], a[r + 1, 2], a[r + 1, 3]
    d0, d1, d2, d3 = a[r + 2, 0], a[r + 2, 1], a[r + 2, 2], a[r + 2, 3]
    e0, e1, e2, e3 = a[r + 3, 0], a[r + 3, 1], a[r + 3, 2], a[r + 3, 3]
    f0, f1, f2, f3 = a[r + 4, 0], a[r + 4, 1], a[r + 4, 2], a[r + 4, 3]
    sa, sc, sd, se, sf = S[r], S[r + 1], S[r + 2], S[r + 3], S[r + 4]
    for k in range(n):
        b0, b1, b2, b3 = u0[k], u1[k], u2[k], u3[k]
        sa[k] += b0 * a0 + b1 * a1 + b2 * a2 + b3 * a3
        sc[k] += b0 * c0 + b1 * c1 + b2 * c2 + b3 * c3
        sd[k] += b0 * d0 + b1 * d1 + b2 * d2 + b3 * d3
        se[k] += b0 * e0 + b1 * e1 + b2 * e2 + b3 * e3
        sf[k] += b0 * f0 + b1 * f1 + b2 * f2 + b3 * f3


@njit(fastmath=FAST, error_model="numpy")
def _add_centred(n, full, beta, a, p, C, S):
    """The sums about each component's own mean, as single precision needs: about the block's centre they would cancel."""
    for b in range(4):
        x, y, z, w = p[0, b], p[1, b], p[2, b], a[0, b]
        u = beta[b]
        if full:
            for k in range(n):
                v = u[k] * w
                dx, dy, dz = x - C[0, k], y - C[1, k], z - C[2, k]
                vx, vy, vz = v * dx, v * dy, v * dz
                S[0, k] += v
                S[1, k] += vx
                S[2, k] += vy
                S[3, k] += vz
                S[4, k] += vx * dx
                S[5, k] += vx * dy
                S[6, k] += vx * dz
                S[7, k] += vy * dy
                S[8, k] += vy * dz
                S[9, k] += vz * dz
        else:
            for k in range(n):
                v = u[k] * w
                dx, dy, dz = x - C[0, k], y - C[1, k], z - C[2, k]
                S[0, k] += v
                S[1, k] += v * dx
                S[2, k] += v * dy
                S[3, k] += v * dz
                S[4, k] += v * (dx * dx + dy * dy + dz * dz)


def accumulate(n, full, beta, a, p, C, S):
    """Add four points to the sums: about the block's centre in double precision, about the means in single."""


@overload(accumulate)
def _accumulate(n, full, beta, a, p, C, S):
    if beta.dtype == types.float32:
        return lambda n, full, beta, a, p, C, S: _add_centred(n, full, beta, a, p, C, S)

    def about_block_centre(n, full, beta, a, p, C, S):
        _add_five(n, beta, a, S, 0)
        if full:
            _add_five(n, beta, a, S, 5)

    return about_block_centre


@njit(fastmath=FAST, error_model="numpy")
def _scatter(n, full, centred, index, C, S, sums):
    """Add the block's sums to those of the components they belong to, about the components' means and in double precision."""
    for i in range(n):
        out = sums[index[i]]
        mx, my, mz = np.float64(C[0, i]), np.float64(C[1, i]), np.float64(C[2, i])
        if centred:
            mx = my = mz = 0.0
        a = np.float64(S[0, i])
        bx, by, bz = np.float64(S[1, i]), np.float64(S[2, i]), np.float64(S[3, i])
        dx, dy, dz = bx - a * mx, by - a * my, bz - a * mz
        out[0] += a
        out[1] += dx
        out[2] += dy
        out[3] += dz
        if full:  # sum a (x - m)(y - n) = sum a x y - m sum a y - n sum a (x - m)
            out[4] += S[4, i] - mx * bx - mx * dx
            out[5] += S[5, i] - mx * by - my * dx
            out[6] += S[6, i] - mx * bz - mz * dx
            out[7] += S[7, i] - my * by - my * dy
            out[8] += S[8, i] - my * bz - mz * dy
            out[9] += S[9, i] - mz * bz - mz * dz
        else:
            out[4] += S[4, i] - mx * (bx + dx) - my * (by + dy) - mz * (bz + dz)


@njit(fastmath=FAST, error_model="numpy")
def _gap(low, high, box_low, box_high):
    """The distance between two intervals."""
    return max(max(low - box_high, box_low - high), 0.0)


@njit(fastmath=FAST, error_model="numpy")
def _surviving_blocks(full, box, B, heaviest, threshold, hit, near):
    """The blocks of components that may reach into the box of points; their indices into `near`, their number returned."""
    lx, hx, ly, hy, lz, hz = box[0], box[1], box[2], box[3], box[4], box[5]
    blocks = B.shape[1]
    # First a loop without branches, which vectorises, then the compaction.
    if full:  # an ellipsoid d^T P d <= q lies in the box |d_i| <= sqrt(q Sigma_ii)
        for k in range(blocks):
            q = 2 * math.log(2.0) * (heaviest[k] - threshold)
            dx, dy, dz = _gap(B[0, k], B[1, k], lx, hx), _gap(B[2, k], B[3, k], ly, hy), _gap(B[4, k], B[5, k], lz, hz)
            hit[k] = min(min(q * B[6, k] - dx * dx, q * B[7, k] - dy * dy), q * B[8, k] - dz * dz)
    else:
        for k in range(blocks):
            dx, dy, dz = _gap(B[0, k], B[1, k], lx, hx), _gap(B[2, k], B[3, k], ly, hy), _gap(B[4, k], B[5, k], lz, hz)
            hit[k] = (dx * dx + dy * dy + dz * dz) * B[6, k] + heaviest[k] - threshold
    n = 0
    for k in range(blocks):
        near[n] = k
        n += hit[k] >= 0
    return n


@njit(fastmath=FAST, error_model="numpy")
def _surviving_components(full, box, components, spread, log_weight, threshold, near, blocks, index):
    """The components of those blocks that may reach into the box; their indices into `index`, their number returned."""
    lx, hx, ly, hy, lz, hz = box[0], box[1], box[2], box[3], box[4], box[5]
    n = 0
    for i in range(blocks):
        k0 = near[i] * LEAF
        for k in range(k0, k0 + LEAF):
            x, y, z, l = components[0, k], components[1, k], components[2, k], log_weight[k]
            dx, dy, dz = _gap(x, x, lx, hx), _gap(y, y, ly, hy), _gap(z, z, lz, hz)
            index[n] = k  # written always, kept only when the component survives: no branch to mispredict
            if full:
                q = 2 * math.log(2.0) * (l - threshold)
                n += (dx * dx <= q * spread[0, k]) & (dy * dy <= q * spread[1, k]) & (dz * dz <= q * spread[2, k])
            else:
                n += (dx * dx + dy * dy + dz * dz) * components[3, k] + l >= threshold
    return n


@njit(fastmath=FAST, error_model="numpy")
def _gather(rows, n, box, components, log_weight, index, C):
    """Copy the surviving components, moved to the box's centre, into contiguous rows of C, padded to whole vectors."""
    for d in range(3):
        o = 0.5 * (box[2 * d] + box[2 * d + 1])
        for i in range(n):
            C[d, i] = components[d, index[i]] - o
    for r in range(3, rows - 1):
        for i in range(n):
            C[r, i] = components[r, index[i]]
    for i in range(n):
        C[rows - 1, i] = log_weight[index[i]]
    padded = (n + 7) // 8 * 8  # no scalar remainder loop
    for i in range(n, padded):
        for r in range(rows - 1):
            C[r, i] = 0
        C[rows - 1, i] = NOTHING
    return padded


@njit(fastmath=FAST, error_model="numpy")
def _densest(full, box, components, stiffest, log_weight):
    """A lower bound, over the box, of the log2 density of the densest component: what stands in for c when there is no c."""
    best = -1e300
    for k in range(log_weight.shape[0]):
        fx = max(abs(components[0, k] - box[0]), abs(components[0, k] - box[1]))
        fy = max(abs(components[1, k] - box[2]), abs(components[1, k] - box[3]))
        fz = max(abs(components[2, k] - box[4]), abs(components[2, k] - box[5]))
        best = max(best, log_weight[k] + (fx * fx + fy * fy + fz * fz) * stiffest[k])
    return best


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def sweep(
    V, R, t, components, spread, stiffest, boxes, log_weight, heaviest, tolerance, c, start, stop, work, sums, density, label
):
    """One cloud's points V[:, start:stop] under the pose R, t: add their moments to sums (Kp, 5 or 10).

    Returns the weighted log-likelihood (natural logarithm) and the number of pairs evaluated. `density` and `label`, when they
    are not empty, receive each point's total density and its most probable component (-1: the uniform class).
    `tolerance` < 0 evaluates every pair.
    """
    full = components.shape[0] == 9
    rows = FULL_ROWS if full else SPHERE_ROWS
    n_sums = FULL_SUMS if full else SPHERE_SUMS
    real = work.dtype.type
    centred = work.itemsize == 4
    blocks = boxes.shape[1]
    C, beta, S = work[:rows], work[rows : rows + 4], work[rows + 4 : rows + 4 + n_sums]
    p = np.empty((3, 4), work.dtype)
    a = np.zeros((FULL_SUMS, 4), work.dtype)
    shift, total = np.zeros(4, work.dtype), np.zeros(4, work.dtype)
    X = np.empty((3, LEAF))
    box = np.empty(6)
    hit, near, index = np.empty(blocks), np.empty(blocks + 1, np.int64), np.empty(components.shape[1] + 1, np.int64)
    keep = tolerance / components.shape[1]
    loglik = 0.0
    pairs = 0
    for s in range(start, stop, LEAF):
        m = min(LEAF, stop - s)
        for d in range(3):
            box[2 * d], box[2 * d + 1] = 1e300, -1e300
        for i in range(m):
            x, y, z = V[0, s + i], V[1, s + i], V[2, s + i]
            for d in range(3):
                v = R[d, 0] * x + R[d, 1] * y + R[d, 2] * z + t[d]
                X[d, i] = v
                box[2 * d] = min(box[2 * d], v)
                box[2 * d + 1] = max(box[2 * d + 1], v)
        ox, oy, oz = 0.5 * (box[0] + box[1]), 0.5 * (box[2] + box[3]), 0.5 * (box[4] + box[5])

        threshold = -1e300
        if tolerance >= 0:
            floor = math.log2(c) if c > 0 else _densest(full, box, components, stiffest, log_weight)
            threshold = floor + math.log2(keep)
        n = _surviving_blocks(full, box, boxes, heaviest, threshold, hit, near)
        n = _surviving_components(full, box, components, spread, log_weight, threshold, near, n, index)
        padded = _gather(rows, n, box, components, log_weight, index, C)
        pairs += n * m
        for r in range(n_sums):
            for k in range(padded):
                S[r, k] = 0

        for i0 in range(0, m, 4):
            for b in range(4):
                i = min(i0 + b, m - 1)  # the last group repeats its last point, with weight 0
                p[0, b], p[1, b], p[2, b] = real(X[0, i] - ox), real(X[1, i] - oy), real(X[2, i] - oz)
            if c <= 0:
                _peaks(padded, full, C, p, shift)
            if full:
                _densities_full(padded, C, p, shift, beta, total)
            else:
                _densities_spheres(padded, C, p, shift, beta, total)
            for b in range(4):
                i = i0 + b
                w = V[3, s + i] if i < m else 0.0
                den = np.float64(total[b]) + c
                r = w / den
                if i < m:
                    loglik += w * (math.log(den) + shift[b] * math.log(2.0))
                x, y, z = X[0, min(i, m - 1)] - ox, X[1, min(i, m - 1)] - oy, X[2, min(i, m - 1)] - oz
                a[0, b], a[1, b], a[2, b], a[3, b] = r, r * x, r * y, r * z
                if full:
                    a[4, b], a[5, b], a[6, b] = r * x * x, r * x * y, r * x * z
                    a[7, b], a[8, b], a[9, b] = r * y * y, r * y * z, r * z * z
                else:
                    a[4, b] = r * (x * x + y * y + z * z)
                if i < m and density.size:
                    density[s + i] = den * 2.0 ** np.float64(shift[b])
                if i < m and label.size:
                    best, where = real(c), -1
                    for k in range(n):
                        if beta[b, k] > best:
                            best, where = beta[b, k], index[k]
                    label[s + i] = where
            accumulate(padded, full, beta, a, p, C, S)
        _scatter(n, full, centred, index, C, S, sums)
    return loglik, pairs


@njit(error_model="numpy", nogil=True, cache=True)
def invert(A, inverse):
    """Inverses (K, 3, 3) of symmetric positive definite matrices by Cholesky, and log det; returns the first bad one, or -1."""
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


@njit(nogil=True, cache=True)
def kd_order(points, leaf):
    """The order of the points (N, D) in the leaves of a balanced kd-tree with `leaf` points a leaf: neighbours share a block.

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
        while a < b:  # Hoare's selection; equal keys are swapped too, so runs of duplicates stay balanced
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
    """Add up the tasks' sums (T, Kp, S) of one cloud, in their order, and lay them out as moments in the mixture's order."""
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


@njit
def _total(sums, tasks, i, r):
    v = sums[0, i, r]
    for task in range(1, tasks):
        v += sums[task, i, r]
    return v


@njit(fastmath=FAST, error_model="numpy", nogil=True, cache=True)
def pool_moved(about, mass, first, second, R, t, total_mass, total_first, total_second):
    """Add up full moments (M, K, ...) about `about` (K, D), each cloud moved by its R (M, D, D), t (M, D)."""
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
def joint_system(mass, first, second, arm, precisions, H, g):
    """The normal equations of `joint.poses`: gradient g (6M,) and Gauss-Newton matrix H (6M, 6M) of -Q, means profiled out.

    mass (M, K), first (M, K, 3), second (M, K, 3, 3) are moments about the means; arm (K, 3) leads from the centre of rotation
    to the means. A component adds blocks only for the clouds that see it, which is what keeps many clouds cheap.
    """
    M, K = mass.shape
    B = np.empty((M, 3, 6))
    seen = np.empty(M, np.int64)
    for k in range(K):
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
        n = 0
        for j in range(M):
            a = mass[j, k]
            if a <= 1e-9 * A:
                continue
            b0, b1, b2 = first[j, k, 0], first[j, k, 1], first[j, k, 2]
            C = second[j, k]
            r0, r1, r2 = a * e0 + b0, a * e1 + b1, a * e2 + b2  # sum of alpha r, r the arm of a point
            # Second moments of the arms, sum alpha r r^T.
            qxx = C[0, 0] + e0 * (r0 + b0)
            qyy = C[1, 1] + e1 * (r1 + b1)
            qzz = C[2, 2] + e2 * (r2 + b2)
            qxy = C[0, 1] + e0 * r1 + b0 * e1
            qxz = C[0, 2] + e0 * r2 + b0 * e2
            qyz = C[1, 2] + e1 * r2 + b1 * e2
            # The gradient: torque sum r x P (y - d), and force sum P (y - d).
            f0, f1, f2 = b0 - a * d0, b1 - a * d1, b2 - a * d2
            p0, p1, p2 = xx * f0 + xy * f1 + xz * f2, xy * f0 + yy * f1 + yz * f2, xz * f0 + yz * f1 + zz * f2
            # S = sum alpha (y - d) r^T, row by row
            s00, s01, s02 = f0 * e0 + C[0, 0] - d0 * b0, f0 * e1 + C[0, 1] - d0 * b1, f0 * e2 + C[0, 2] - d0 * b2
            s10, s11, s12 = f1 * e0 + C[1, 0] - d1 * b0, f1 * e1 + C[1, 1] - d1 * b1, f1 * e2 + C[1, 2] - d1 * b2
            s20, s21, s22 = f2 * e0 + C[2, 0] - d2 * b0, f2 * e1 + C[2, 1] - d2 * b1, f2 * e2 + C[2, 2] - d2 * b2
            i = 6 * j
            g[i] += (xz * s01 + yz * s11 + zz * s21) - (xy * s02 + yy * s12 + yz * s22)
            g[i + 1] += (xx * s02 + xy * s12 + xz * s22) - (xz * s00 + yz * s10 + zz * s20)
            g[i + 2] += (xy * s00 + yy * s10 + yz * s20) - (xx * s01 + xy * s11 + xz * s21)
            g[i + 3] += p0
            g[i + 4] += p1
            g[i + 5] += p2
            # The cloud's own block: sum alpha J^T P J with J = [-[r]x, I].
            H[i, i] += yy * qzz - 2 * yz * qyz + zz * qyy
            H[i + 1, i + 1] += xx * qzz - 2 * xz * qxz + zz * qxx
            H[i + 2, i + 2] += xx * qyy - 2 * xy * qxy + yy * qxx
            H[i, i + 1] += yz * qxz + xz * qyz - xy * qzz - zz * qxy
            H[i, i + 2] += xy * qyz + yz * qxy - yy * qxz - xz * qyy
            H[i + 1, i + 2] += xy * qxz + xz * qxy - xx * qyz - yz * qxx
            H[i, i + 3] += r1 * xz - r2 * xy
            H[i, i + 4] += r1 * yz - r2 * yy
            H[i, i + 5] += r1 * zz - r2 * yz
            H[i + 1, i + 3] += r2 * xx - r0 * xz
            H[i + 1, i + 4] += r2 * xy - r0 * yz
            H[i + 1, i + 5] += r2 * xz - r0 * zz
            H[i + 2, i + 3] += r0 * xy - r1 * xx
            H[i + 2, i + 4] += r0 * yy - r1 * xy
            H[i + 2, i + 5] += r0 * yz - r1 * xz
            H[i + 3, i + 3] += a * xx
            H[i + 3, i + 4] += a * xy
            H[i + 3, i + 5] += a * xz
            H[i + 4, i + 4] += a * yy
            H[i + 4, i + 5] += a * yz
            H[i + 5, i + 5] += a * zz
            # L^T sum alpha J, for what the shared mean takes back.
            c = B[n]
            c[0, 0], c[0, 1], c[0, 2] = l20 * r1 - l10 * r2, l00 * r2 - l20 * r0, l10 * r0 - l00 * r1
            c[1, 0], c[1, 1], c[1, 2] = l21 * r1 - l11 * r2, -l21 * r0, l11 * r0
            c[2, 0], c[2, 1], c[2, 2] = l22 * r1, -l22 * r0, 0.0
            c[0, 3], c[0, 4], c[0, 5] = a * l00, a * l10, a * l20
            c[1, 3], c[1, 4], c[1, 5] = 0.0, a * l11, a * l21
            c[2, 3], c[2, 4], c[2, 5] = 0.0, 0.0, a * l22
            seen[n] = j
            n += 1
        w = 1 / A
        for p in range(n):
            for q in range(p, n):
                for r in range(6):
                    u0, u1, u2 = B[p, 0, r] * w, B[p, 1, r] * w, B[p, 2, r] * w
                    for s in range(6):
                        H[6 * seen[p] + r, 6 * seen[q] + s] -= u0 * B[q, 0, s] + u1 * B[q, 1, s] + u2 * B[q, 2, s]
    # Only the upper triangle was built.
    for i in range(6 * M):
        for j in range(i):
            H[i, j] = H[j, i]
