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
# [size] Halvings of the step of a climb; the last step is below the cells' own resolution.
HALVINGS = 4
# [size] Cycles of a climb at most, far above what is used.
CYCLES = 60


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
    for r in range(len(rotations)):
        R = rotations[r]
        out[r] = 0.0
        for i in range(len(points)):
            x, y, z = points[i, 0], points[i, 1], points[i, 2]
            a = int(np.floor((R[0, 0] * x + R[0, 1] * y + R[0, 2] * z - origin[0]) / cell + 0.5))
            b = int(np.floor((R[1, 0] * x + R[1, 1] * y + R[1, 2] * z - origin[1]) / cell + 0.5))
            c = 0
            if n2 > 1:
                c = int(
                    np.floor((R[2, 0] * x + R[2, 1] * y + R[2, 2] * z - origin[2]) / cell + 0.5)
                )
            for s in range(len(shifts)):
                u = a + shifts[s, 0]
                v = b + shifts[s, 1]
                w = c + shifts[s, 2]
                if 0 <= u < n0 and 0 <= v < n1 and 0 <= w < n2:
                    out[r, s] += weights[i] * flat[(u * n1 + v) * n2 + w]


@njit(cache=True, nogil=True)
def interpolated(flat, shape, x, y, z, R, shift, origin, cell):
    """Value of a grid at a moved point, linear between cells; zero outside."""
    n0, n1, n2 = shape
    p = (R[0, 0] * x + R[0, 1] * y + R[0, 2] * z + shift[0] - origin[0]) / cell
    q = (R[1, 0] * x + R[1, 1] * y + R[1, 2] * z + shift[1] - origin[1]) / cell
    u = int(np.floor(p))
    v = int(np.floor(q))
    if u < 0 or v < 0 or u >= n0 - 1 or v >= n1 - 1:
        return 0.0
    p -= u
    q -= v
    at = (u * n1 + v) * n2
    if n2 == 1:
        low = flat[at] * (1 - q) + flat[at + 1] * q
        high = flat[at + n1] * (1 - q) + flat[at + n1 + 1] * q
        return low * (1 - p) + high * p
    s = (R[2, 0] * x + R[2, 1] * y + R[2, 2] * z + shift[2] - origin[2]) / cell
    w = int(np.floor(s))
    if w < 0 or w >= n2 - 1:
        return 0.0
    s -= w
    at += w
    row = n1 * n2
    low = (flat[at] * (1 - s) + flat[at + 1] * s) * (1 - q)
    low += (flat[at + n2] * (1 - s) + flat[at + n2 + 1] * s) * q
    at += row
    high = (flat[at] * (1 - s) + flat[at + 1] * s) * (1 - q)
    high += (flat[at + n2] * (1 - s) + flat[at + n2 + 1] * s) * q
    return low * (1 - p) + high * p


@njit(cache=True, nogil=True)
def score(table, points, weights, R, shift, origin, cell):
    """Score of one pose, interpolated linearly between cells."""
    flat = table.ravel()
    total = 0.0
    for i in range(len(points)):
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        value = interpolated(flat, table.shape, x, y, z, R, shift, origin, cell)
        total += weights[i] * value
    return total


@njit(cache=True, nogil=True)
def values(table, points, R, shift, origin, cell):
    """Values at the points of a particle in one pose."""
    flat = table.ravel()
    out = np.empty(len(points))
    for i in range(len(points)):
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        out[i] = interpolated(flat, table.shape, x, y, z, R, shift, origin, cell)
    return out


@njit(cache=True, nogil=True)
def turned(R, axis, angle):
    """R after a turn about a coordinate axis of the grid's frame."""
    c, s = np.cos(angle), np.sin(angle)
    i = (axis + 1) % 3
    j = (axis + 2) % 3
    out = R.copy()
    for d in range(3):
        out[i, d] = c * R[i, d] - s * R[j, d]
        out[j, d] = s * R[i, d] + c * R[j, d]
    return out


@njit(cache=True, nogil=True)
def climb(table, points, weights, R, shift, origin, cell, turn_step, shift_step):
    """Improve a pose by steps along its parameters, halved when none helps: its score and pose."""
    flat = table.shape[2] == 1
    first = 2 if flat else 0
    dimension = 2 if flat else 3
    R = R.copy()
    shift = shift.copy()
    best = score(table, points, weights, R, shift, origin, cell)
    halvings = 0
    for _ in range(CYCLES):
        better = False
        for axis in range(first, 3):
            for sign in (-1.0, 1.0):
                trial = turned(R, axis, sign * turn_step)
                # About the particle's own place: the shift stays.
                value = score(table, points, weights, trial, shift, origin, cell)
                if value > best:
                    best = value
                    R = trial
                    better = True
                    break
        for axis in range(dimension):
            for sign in (-1.0, 1.0):
                moved = shift.copy()
                moved[axis] += sign * shift_step
                value = score(table, points, weights, R, moved, origin, cell)
                if value > best:
                    best = value
                    shift = moved
                    better = True
                    break
        if not better:
            turn_step /= 2
            shift_step /= 2
            halvings += 1
            if halvings > HALVINGS:
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
