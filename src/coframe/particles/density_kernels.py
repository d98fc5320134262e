# SPDX-License-Identifier: MIT
"""Kernels of the search: densities on a grid of cells, and the score of a particle's poses.

Points always have three coordinates here; in the plane the third is zero and the grid has one
layer. A grid has the cell (i, j, k) centred at `origin + cell * (i, j, k)`. A pose is a rotation
and a shift that carry a centred particle into the frame of the grid.
"""

import numpy as np

from coframe.compiled import njit

# [guard] Standard deviations after which a blurred point has no mass left.
REACH = 3.0
# [guard] Probability that a point is an outlier as long as the structure is not known.
EVEN = 0.5
# [size] Trials of a step of a climb, each half as long as the one before.
HALVINGS = 4
# [size] Steps of a climb at most.
CYCLES = 30
# [guard] Share of the trace that is added to each element of a climb's diagonal.
DAMPING = 1e-3
# [limit] Log odds: a climb ends where a step gains less. One in a hundred changes no verdict.
ENOUGH = 0.01
# [size] [rad, radius] Steps of a climb are multiples of this, so that rounding errors of the input
# do not grow from sweep to sweep.
QUANTUM = 2.0**-14


@njit(cache=True, nogil=True)
def splat(grid, points, weights, blur, rotation, shift, origin, cell, sign):
    """Add (sign 1) or subtract (sign -1) a particle, each point blurred by a Gaussian.

    The same points, pose and blur change the grid by the same amounts, up to rounding.
    """
    n0, n1, n2 = grid.shape
    k0 = np.empty(n0)
    k1 = np.empty(n1)
    k2 = np.ones(n2)
    c = np.empty(3)
    reach = REACH * blur / cell
    factor = 0.5 * (cell / blur) ** 2
    norm = cell / (blur * np.sqrt(2 * np.pi))
    for i in range(len(points)):
        for d in range(3):
            x = shift[d]
            for e in range(3):
                x += rotation[d, e] * points[i, e]
            c[d] = (x - origin[d]) / cell
        a0 = max(0, int(np.ceil(c[0] - reach)))
        b0 = min(n0 - 1, int(np.floor(c[0] + reach)))
        a1 = max(0, int(np.ceil(c[1] - reach)))
        b1 = min(n1 - 1, int(np.floor(c[1] + reach)))
        a2 = 0
        b2 = 0
        if n2 > 1:
            a2 = max(0, int(np.ceil(c[2] - reach)))
            b2 = min(n2 - 1, int(np.floor(c[2] + reach)))
            for w in range(a2, b2 + 1):
                k2[w] = norm * np.exp(-factor * (w - c[2]) ** 2)
        for u in range(a0, b0 + 1):
            k0[u] = norm * np.exp(-factor * (u - c[0]) ** 2)
        for v in range(a1, b1 + 1):
            k1[v] = norm * np.exp(-factor * (v - c[1]) ** 2)
        for u in range(a0, b0 + 1):
            for v in range(a1, b1 + 1):
                mass = sign * weights[i] * k0[u] * k1[v]
                for w in range(a2, b2 + 1):
                    grid[u, v, w] += mass * k2[w]


@njit(cache=True, nogil=True)
def log_density(grid, mass, outliers):
    """Per cell: log-likelihood of a point, less that of an outlier.

    A point is an outlier, spread evenly, with the probability `outliers`.
    """
    out = np.empty_like(grid)
    flat = grid.ravel()
    result = out.ravel()
    scale = (1 - outliers) / outliers * grid.size / mass
    for i in range(grid.size):
        # Rounding leaves less than nothing where a particle was subtracted.
        result[i] = np.log(1 + scale * max(flat[i], 0.0))
    return out


@njit(cache=True, nogil=True)
def score_grid(table, points, weights, rotations, shifts, origin, cell, out):
    """Scores of all rotations, each with all shifts by whole cells, into `out`."""
    n0, n1, n2 = table.shape
    flat = table.ravel()
    offsets = np.empty(len(shifts), np.int64)
    reach = np.zeros(3, np.int64)
    for s in range(len(shifts)):
        offsets[s] = (shifts[s, 0] * n1 + shifts[s, 1]) * n2 + shifts[s, 2]
        for d in range(3):
            reach[d] = max(reach[d], abs(shifts[s, d]))
    for r in range(len(rotations)):
        R = rotations[r]
        row = out[r]
        row[:] = 0.0
        for i in range(len(points)):
            x, y, z = points[i, 0], points[i, 1], points[i, 2]
            a = int(np.floor((R[0, 0] * x + R[0, 1] * y + R[0, 2] * z - origin[0]) / cell + 0.5))
            b = int(np.floor((R[1, 0] * x + R[1, 1] * y + R[1, 2] * z - origin[1]) / cell + 0.5))
            c = 0
            if n2 > 1:
                c = int(
                    np.floor((R[2, 0] * x + R[2, 1] * y + R[2, 2] * z - origin[2]) / cell + 0.5)
                )
            weight = weights[i]
            if (
                reach[0] <= a < n0 - reach[0]
                and reach[1] <= b < n1 - reach[1]
                and reach[2] <= c < n2 - reach[2]
            ):
                # No shift leaves the grid; a loop without tests is two to four times as fast.
                at = (a * n1 + b) * n2 + c
                for s in range(len(offsets)):
                    row[s] += weight * flat[at + offsets[s]]
                continue
            for s in range(len(shifts)):
                u = a + shifts[s, 0]
                v = b + shifts[s, 1]
                w = c + shifts[s, 2]
                if 0 <= u < n0 and 0 <= v < n1 and 0 <= w < n2:
                    row[s] += weight * flat[(u * n1 + v) * n2 + w]


@njit(cache=True, nogil=True)
def slope(flat, shape, x, y, z, origin, cell, gradient):
    """Value of a grid at a place, linear between cells, and its gradient; zero outside."""
    n0, n1, n2 = shape
    gradient[:] = 0.0
    p = (x - origin[0]) / cell
    q = (y - origin[1]) / cell
    u = int(np.floor(p))
    v = int(np.floor(q))
    if u < 0 or v < 0 or u >= n0 - 1 or v >= n1 - 1:
        return 0.0
    p -= u
    q -= v
    at = (u * n1 + v) * n2
    if n2 == 1:
        low = flat[at + 1] - flat[at]
        high = flat[at + n1 + 1] - flat[at + n1]
        left = flat[at] + q * low
        right = flat[at + n1] + q * high
        gradient[0] = (right - left) / cell
        gradient[1] = (low + p * (high - low)) / cell
        return left + p * (right - left)
    s = (z - origin[2]) / cell
    w = int(np.floor(s))
    if w < 0 or w >= n2 - 1:
        return 0.0
    s -= w
    at += w
    row = n1 * n2
    d00 = flat[at + 1] - flat[at]
    d01 = flat[at + n2 + 1] - flat[at + n2]
    d10 = flat[at + row + 1] - flat[at + row]
    d11 = flat[at + row + n2 + 1] - flat[at + row + n2]
    f00 = flat[at] + s * d00
    f01 = flat[at + n2] + s * d01
    f10 = flat[at + row] + s * d10
    f11 = flat[at + row + n2] + s * d11
    left = f00 + q * (f01 - f00)
    right = f10 + q * (f11 - f10)
    gradient[0] = (right - left) / cell
    gradient[1] = ((1 - p) * (f01 - f00) + p * (f11 - f10)) / cell
    gradient[2] = ((1 - p) * (d00 + q * (d01 - d00)) + p * (d10 + q * (d11 - d10))) / cell
    return left + p * (right - left)


@njit(cache=True, nogil=True)
def values(table, points, R, shift, origin, cell):
    """Values at the points of a particle in one pose, linear between cells."""
    flat = table.ravel()
    out = np.empty(len(points))
    gradient = np.empty(3)
    for i in range(len(points)):
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        out[i] = slope(
            flat,
            table.shape,
            R[0, 0] * x + R[0, 1] * y + R[0, 2] * z + shift[0],
            R[1, 0] * x + R[1, 1] * y + R[1, 2] * z + shift[1],
            R[2, 0] * x + R[2, 1] * y + R[2, 2] * z + shift[2],
            origin,
            cell,
            gradient,
        )
    return out


@njit(cache=True, nogil=True)
def score(table, points, weights, R, shift, origin, cell):
    """Score of one pose."""
    found = values(table, points, R, shift, origin, cell)
    total = 0.0
    for i in range(len(points)):
        total += weights[i] * found[i]
    return total


@njit(cache=True, nogil=True)
def slopes(table, points, weights, R, shift, origin, cell, g, H):
    """Score of a pose, its gradient, and the sum of the outer products of the points' gradients.

    Parameters are a turn about the particle's own place, in the frame of the grid, and a shift.
    """
    flat = table.ravel()
    g[:] = 0.0
    H[:] = 0.0
    along = np.empty(3)
    own = np.empty(6)
    total = 0.0
    for i in range(len(points)):
        x = R[0, 0] * points[i, 0] + R[0, 1] * points[i, 1] + R[0, 2] * points[i, 2]
        y = R[1, 0] * points[i, 0] + R[1, 1] * points[i, 1] + R[1, 2] * points[i, 2]
        z = R[2, 0] * points[i, 0] + R[2, 1] * points[i, 1] + R[2, 2] * points[i, 2]
        total += weights[i] * slope(
            flat, table.shape, x + shift[0], y + shift[1], z + shift[2], origin, cell, along
        )
        own[0] = y * along[2] - z * along[1]
        own[1] = z * along[0] - x * along[2]
        own[2] = x * along[1] - y * along[0]
        own[3] = along[0]
        own[4] = along[1]
        own[5] = along[2]
        for d in range(6):
            g[d] += weights[i] * own[d]
            for e in range(d + 1):
                H[d, e] += weights[i] * own[d] * own[e]
    for d in range(6):
        for e in range(d):
            H[e, d] = H[d, e]
    return total


@njit(cache=True, nogil=True)
def turned(R, step):
    """R after a turn by a rotation vector in the grid's frame."""
    angle = np.sqrt(step[0] ** 2 + step[1] ** 2 + step[2] ** 2)
    if angle == 0:
        return R.copy()
    a = step / angle
    c, s = np.cos(angle), np.sin(angle)
    out = np.empty((3, 3))
    for e in range(3):
        along = (a[0] * R[0, e] + a[1] * R[1, e] + a[2] * R[2, e]) * (1 - c)
        out[0, e] = c * R[0, e] + s * (a[1] * R[2, e] - a[2] * R[1, e]) + along * a[0]
        out[1, e] = c * R[1, e] + s * (a[2] * R[0, e] - a[0] * R[2, e]) + along * a[1]
        out[2, e] = c * R[2, e] + s * (a[0] * R[1, e] - a[1] * R[0, e]) + along * a[2]
    return out


@njit(cache=True, nogil=True)
def climb(table, points, weights, R, shift, origin, cell, turn_step, shift_step):
    """Improve a pose to the nearest maximum of its score: the score and the pose.

    The table is a log density, so that the outer products of the points' gradients stand in for
    the Hessian (Berndt, Hall, Hall and Hausman 1974). A step is at most `turn_step` long [rad] and
    `shift_step`, and is halved until the score rises.
    """
    first = 2 if table.shape[2] == 1 else 0
    last = 5 if table.shape[2] == 1 else 6
    R = R.copy()
    shift = shift.copy()
    g = np.empty(6)
    H = np.empty((6, 6))
    new_g = np.empty(6)
    new_H = np.empty((6, 6))
    step = np.zeros(6)
    best = slopes(table, points, weights, R, shift, origin, cell, g, H)
    for _ in range(CYCLES):
        # Directions in which nothing changes get no step: a little is added to the diagonal.
        some = H[first:last, first:last].copy()
        trace = 0.0
        for d in range(len(some)):
            trace += some[d, d]
        if trace == 0:
            break
        for d in range(len(some)):
            some[d, d] += DAMPING * trace
        step[first:last] = np.linalg.solve(some, g[first:last])
        turn = np.sqrt(step[0] ** 2 + step[1] ** 2 + step[2] ** 2)
        far = np.sqrt(step[3] ** 2 + step[4] ** 2 + step[5] ** 2)
        step /= max(1.0, turn / turn_step, far / shift_step)
        step = np.rint(step / QUANTUM) * QUANTUM
        better = False
        for _ in range(HALVINGS):
            trial = turned(R, step[:3])
            moved = shift + step[3:]
            value = slopes(table, points, weights, trial, moved, origin, cell, new_g, new_H)
            if value > best:
                better = True
                break
            step = np.rint(step / (2 * QUANTUM)) * QUANTUM
        if not better:
            break
        rise = value - best
        best = value
        R = trial
        shift = moved
        g[:] = new_g
        H[:] = new_H
        if rise < ENOUGH:
            break
    return best, R, shift


@njit(cache=True, nogil=True)
def turn_between(A, B):
    """Angle between two rotations [rad]."""
    trace = 0.0
    for d in range(3):
        for e in range(3):
            trace += A[d, e] * B[d, e]
    return np.arccos(min(1.0, max(-1.0, (trace - 1) / 2)))


@njit(cache=True, nogil=True)
def sample_chain(
    grid,
    points,
    first,
    weights,
    masses,
    blur,
    R,
    t,
    rotations,
    spins,
    shifts,
    origin,
    cell,
    order,
    noise,
    scores,
):
    """One sweep of Gibbs sampling: each particle draws its pose given those of all others.

    `spins` turn the rotations anew for each particle; `noise` holds Gumbel numbers, so that the
    largest sum of score and noise is a draw from the posterior.
    """
    M = len(first) - 1
    buffer = np.empty((len(rotations), len(shifts)))
    for step in range(len(order)):
        j = order[step]
        own = points[first[j] : first[j + 1]]
        weight = weights[first[j] : first[j + 1]]
        mass = masses[first[j] : first[j + 1]]
        splat(grid, own, mass, blur, R[j], t[j], origin, cell, -1.0)
        table = log_density(grid, M - 1.0, EVEN)
        spun = own @ spins[j].T
        score_grid(table, spun, weight, rotations, shifts, origin, cell, buffer)
        best = -np.inf
        r = 0
        s = 0
        for a in range(len(rotations)):
            for b in range(len(shifts)):
                value = buffer[a, b] + noise[j, a, b]
                if value > best:
                    best = value
                    r = a
                    s = b
        scores[j] = buffer[r, s]
        R[j] = rotations[r] @ spins[j]
        for d in range(3):
            t[j, d] = cell * shifts[s, d]
        splat(grid, own, mass, blur, R[j], t[j], origin, cell, 1.0)


@njit(cache=True, nogil=True)
def find_candidates(
    table, points, weights, rotations, shifts, origin, cell, turn_apart, shift_apart, R, t
):
    """The best poses of a grid search; returns how many.

    Any two differ by `turn_apart` [rad] or by `shift_apart` at least.
    """
    scores = np.empty((len(rotations), len(shifts)))
    score_grid(table, points, weights, rotations, shifts, origin, cell, scores)
    near = np.empty(len(shifts), np.bool_)
    for found in range(len(R)):
        best = np.argmax(scores)
        r = best // len(shifts)
        s = best % len(shifts)
        if scores[r, s] == -np.inf:
            return found
        R[found] = rotations[r]
        for d in range(3):
            t[found, d] = cell * shifts[s, d]
        for other in range(len(shifts)):
            square = 0.0
            for d in range(3):
                square += (cell * (shifts[other, d] - shifts[s, d])) ** 2
            near[other] = square < shift_apart**2
        for other in range(len(rotations)):
            if turn_between(rotations[r], rotations[other]) < turn_apart:
                for k in range(len(shifts)):
                    if near[k]:
                        scores[other, k] = -np.inf
    return len(R)


@njit(cache=True, nogil=True)
def crowding(points, first, blur):
    """Per point: how many points of its particle lie where it lies, at this blur."""
    out = np.empty(len(points))
    factor = 0.25 / blur**2
    for j in range(len(first) - 1):
        for n in range(first[j], first[j + 1]):
            total = 0.0
            for m in range(first[j], first[j + 1]):
                square = 0.0
                for d in range(3):
                    square += (points[n, d] - points[m, d]) ** 2
                total += np.exp(-factor * square)
            out[n] = total
    return out


@njit(cache=True, nogil=True)
def gather(
    points, noise, R, t, means, variances, priors, outlier, D, seen, precision, pulled, scatter
):
    """Add one particle's sums: posteriors, precisions, weighted points, scatter; its log-lik."""
    K = len(means)
    p = np.empty(K)
    total = 0.0
    local = np.empty((K, 3))
    for k in range(K):
        for d in range(3):
            local[k, d] = 0.0
            for e in range(3):
                local[k, d] += R[e, d] * (means[k, e] - t[e])
    w = np.empty(3)
    for n in range(len(points)):
        whole = outlier
        for k in range(K):
            square = 0.0
            volume = 1.0
            for d in range(D):
                v = variances[k] + noise[n, d]
                square += (points[n, d] - local[k, d]) ** 2 / v
                volume *= 2 * np.pi * v
            p[k] = priors[k] * np.exp(-0.5 * square) / np.sqrt(volume)
            whole += p[k]
        total += np.log(whole)
        for k in range(K):
            a = p[k] / whole
            if a < 1e-9:
                continue
            seen[k] += a
            spread = 0.0
            for d in range(D):
                w[d] = 1 / (variances[k] + noise[n, d])
                r = points[n, d] - local[k, d]
                spread += (r * variances[k] * w[d]) ** 2 + variances[k] * noise[n, d] * w[d]
            scatter[k] += a * spread / D
            for d in range(D):
                # In the frame of the model: R diag(w) R^T, and times the point.
                for e in range(D):
                    entry = 0.0
                    for c in range(D):
                        entry += R[d, c] * w[c] * R[e, c]
                    precision[k, d, e] += a * entry
                    place = t[e]
                    for c in range(D):
                        place += R[e, c] * points[n, c]
                    pulled[k, d] += a * entry * place
    return total
