# SPDX-License-Identifier: MIT
"""How accurate any method can be: the Cramer-Rao limit of a registration problem with known poses.

At the true poses all points are cut into cells of a few neighbours. In each cell the surface is a
plane (in the plane of drawing: a line) of unknown height and tilt, and its points scatter about it
along the normal. Height and tilt are profiled out: with J_i the height of point i per twist of its
own cloud, s_i its noise, and Q an orthonormal basis of the columns (1, tangents) / s,

    H = sum over cells of  (J/s)^T (I - Q Q^T) (J/s)

is the information about the twists of all clouds. Without the rows and columns of cloud 0, its
inverse is the least covariance that an unbiased method can have relative to cloud 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import gammaln

from coframe import geometry
from coframe.errors import InputError
from coframe.types import Array, Points, Poses

# [format] Of the eigenvalues of a cell's scatter, the largest ratio of the least to the next one:
# in thicker cells the points lie on more than one surface, or noise hides the surface.
THICKEST = 0.2
# [format] Cosine of the angle between true normals of points of one surface, at least: 45 degrees.
LEAST_COMMON = 0.7
# [format] [widths of a cell] How far apart points count whose unit normals differ by 1, so that
# cells end at edges and on either side of thin walls.
NORMALS_APART = 8.0
# [guard] Rounding of true normals, at most.
ROUNDING = 1e-4
# [guard] Share of the largest information below which a motion is not seen at all.
LEAST_SEEN = 1e-9
# [guard] Share of a motion that is not seen, below which a parameter has no part in it.
LEAST_PART = 1e-6
# [size] Directions over which the mean length of an error is averaged.
DIRECTIONS = 1024


@dataclass(frozen=True, eq=False)
class Limit:
    """The best that an unbiased method can do, relative to cloud 0.

    Clouds that no chain of shared cells connects with cloud 0, and motions that the surface does
    not resist (along a straight corridor), have an infinite limit.

    Attributes
    ----------
    angle : float
        [rad] Mean over clouds 1, 2, ... of the expected angle between found and true rotation.
    shift : float
        The same for the displacement of `centre`, in the unit of the clouds.
    angles, shifts : arrays (M,)
        Standard deviations of each cloud: the roots of the expected squared angle and squared
        displacement; 0 for cloud 0.
    covariance : array (P (M-1), P (M-1))
        Of the twists (omega, tau) of clouds 1, 2, ... about `centre`: P = 6, in the plane 3.
        Entries that are not known have inf on the diagonal and zeros beside it.
    centre : array (D,)
        The mean of all points at the true poses.
    cells : int
        How many cells of at least two clouds have contributed.
    rejected : float
        Share of the points that were left out, since their cells mix surfaces or noise hides the
        surface. Where it is large the limit is too large, too: give normals, or larger cells.
    """

    angle: float
    shift: float
    angles: Float[Array, " M"]
    shifts: Float[Array, " M"]
    covariance: Float[Array, "Q Q"]
    centre: Float[Array, " D"]
    cells: int
    rejected: float


def limit(
    clouds: Sequence[Float[Array, "_ D"]],
    poses: Poses,
    *,
    sigma: float | Sequence[float | Float[Array, " _"]],
    normals: Sequence[Float[Array, "_ D"]] | None = None,
    cell: int = 16,
    rng: np.random.Generator,
) -> Limit:
    """Compute the Cramer-Rao limit of registering clouds whose true poses are known.

    The surface is assumed to be flat over a cell, of unknown height and tilt in each, and nothing
    else is known of it: a cell of n points has 1 - D / n of the information that its points would
    have if the surface were known well. The noise is assumed to be independent from point to point.

    The weakness is curvature. In cells that are large for it, a method that knows the surface
    better than as a plane (by a finer model, since more points than those of a cell fix it) may
    be better than this limit by the square root of 1 - D / n; with n = 16 in space by 10 %. A
    surface whose relief is smaller than a cell has more information than this limit sees.

    Without true normals, those of planes through the noisy points are used. Their own errors look
    like information about motions that the surface does not resist, such as sliding along a plane:
    those then have a finite limit, too small by far. Give normals where that matters.

    Parameters
    ----------
    clouds : sequence of arrays (N_j, D)
        Each in its own frame.
    poses : array (M, D+1, D+1)
        The true poses.
    sigma : float, or sequence of floats or arrays (N_j,)
        Standard deviation of points along the normal: of all, of each cloud, or of each point.
    normals : sequence of arrays (N_j, D), optional
        True unit normals in the clouds' own frames, turned to the sensor; points whose normal is
        zero lie on no surface and are left out.
    cell : int, optional
        Points of a cell. Without normals it must be wider than the noise: where many points lie
        within the noise of each other, take more.
    rng : numpy.random.Generator
        Draws the axes along which the points are cut into cells.

    Returns
    -------
    Limit

    Raises
    ------
    InputError
        If there are fewer than two clouds, a sigma is not above 0, or cells are too small to fit a
        plane.

    Examples
    --------
    >>> from coframe import evaluate
    >>> best = evaluate.limit(clouds, truth, sigma=0.002, rng=np.random.default_rng(0))
    >>> coframe.metrics.rotation_errors(result.poses, truth)[1:].mean() / np.degrees(best.angle)
    """
    M, D = len(clouds), poses.shape[-1] - 1
    if len(poses) != M or M < 2:
        raise InputError(
            f"limit: expected two clouds or more and as many poses, found {M} and {len(poses)}"
        )
    if cell <= D + 1:
        raise InputError(f"limit: expected cells of more than {D + 1} points, found {cell}")
    P = geometry.degrees_of_freedom(D)
    counts = [len(cloud) for cloud in clouds]
    x = np.concatenate([geometry.transform(T, v) for T, v in zip(poses, clouds, strict=True)])
    owner = np.repeat(np.arange(M), counts)
    noise = _per_point(sigma, counts)
    n = None
    if normals is not None:
        n = np.concatenate(
            [v @ geometry.rotation(T).T for T, v in zip(poses, normals, strict=True)]
        )
        on_surface = (n != 0).any(1)
        x, owner, noise, n = x[on_surface], owner[on_surface], noise[on_surface], n[on_surface]
    # Far from the origin, as in UTM, products of coordinates would lose the digits that matter.
    centre = x.mean(0) if len(x) else np.zeros(D)
    x = x - centre
    radius = float(np.sqrt((x**2).sum(1).mean())) if len(x) else 1.0
    radius = radius or 1.0
    cells = _flat(x, n, _cells(x, n, cell, rng))
    rejected = 1 - float(cells.member.sum()) / len(x) if len(x) else 0.0
    cells = cells.shared(owner)
    information = _information(x / radius, owner, noise, cells, M)
    C = _inverted(information[P:, P:], _tied_to_first(owner, cells, M), P)
    # With coordinates in units of the radius, turns are found as arcs of that radius.
    unit = np.tile(np.repeat([1 / radius, 1.0], [P - D, D]), M - 1)
    C = C * unit[:, None] * unit
    blocks = np.array([C[P * j : P * (j + 1), P * j : P * (j + 1)] for j in range(M - 1)])
    turns, moves = blocks[:, : P - D, : P - D], blocks[:, P - D :, P - D :]
    return Limit(
        float(np.mean([mean_length(block) for block in turns])),
        float(np.mean([mean_length(block) for block in moves])),
        np.append(0.0, np.sqrt(np.trace(turns, axis1=1, axis2=2))),
        np.append(0.0, np.sqrt(np.trace(moves, axis1=1, axis2=2))),
        C,
        centre,
        len(cells.rows),
        rejected,
    )


def mean_length(covariance: Float[Array, "d d"]) -> float:
    """The expected length of a normally distributed error.

    A random vector is a direction u times an independent length r; its mean length is
    E[r] E|L u|, with L L^T the covariance. It is 0.92 of the root mean square length if all
    directions are alike in space, 0.80 if there is only one.

    Parameters
    ----------
    covariance : array (d, d)
        d is 1, 2 or 3.

    Returns
    -------
    float
        inf if a variance is.

    Examples
    --------
    >>> round(mean_length(np.eye(3)), 3)
    1.596
    """
    d = len(covariance)
    if not np.isfinite(covariance).all():
        return float("inf")
    step = np.arange(DIRECTIONS) + 0.5
    if d == 1:
        u = np.ones((1, 1))
    elif d == 2:
        angle = np.pi * step / DIRECTIONS
        u = np.stack([np.cos(angle), np.sin(angle)], 1)
    else:
        z = 1 - 2 * step / DIRECTIONS
        spiral = np.pi * (1 + 5**0.5) * step  # covers the sphere evenly
        across = np.sqrt(1 - z**2)
        u = np.stack([across * np.cos(spiral), across * np.sin(spiral), z], 1)
    spread = np.sqrt(np.maximum(np.einsum("ui,ij,uj->u", u, covariance, u), 0)).mean()
    return float(np.sqrt(2) * np.exp(gammaln((d + 1) / 2) - gammaln(d / 2)) * spread)


def _per_point(
    sigma: float | Sequence[float | Float[Array, " _"]], counts: Sequence[int]
) -> Float[Array, " N"]:
    of_clouds = list(sigma) if isinstance(sigma, Sequence) else [sigma] * len(counts)
    if len(of_clouds) != len(counts):
        raise InputError(
            f"sigma: expected one number, or one for each of {len(counts)} clouds, found"
            f" {len(of_clouds)}"
        )
    found = np.concatenate(
        [np.broadcast_to(np.asarray(s, float), c) for s, c in zip(of_clouds, counts, strict=True)]
    )
    if not (found > 0).all():
        raise InputError("sigma: expected standard deviations above 0 for all points")
    return found


def _cells(
    x: Points, normals: Points | None, size: int, rng: np.random.Generator
) -> Int[Array, "C n"]:
    """The leaves of a balanced k-d tree, `size` points each; a remainder of fewer is left out."""
    N, D = x.shape
    turn = np.linalg.qr(rng.normal(size=(D, D)))[0]
    where = x @ turn
    if normals is not None:
        width = float(np.ptp(where, axis=0).max(initial=0.0)) if N else 0.0
        width *= (size / max(N, size)) ** (1 / (D - 1))
        # Normals of a flat side differ by rounding alone, and not alike in all clouds: a cut there
        # would separate the clouds.
        blurred = normals @ turn + rng.normal(0, ROUNDING, x.shape)
        where = np.concatenate([where, NORMALS_APART * width * blurred], 1)
    leaves = []
    nodes = [np.arange(N)]
    while nodes:
        rows = nodes.pop()
        if len(rows) < 2 * size:
            leaves.append(rows[:size])
            continue
        axis = np.ptp(where[rows], axis=0).argmax()
        middle = len(rows) // size // 2 * size
        order = rows[np.argpartition(where[rows, axis], middle)]
        nodes += [order[:middle], order[middle:]]
    full = [rows for rows in leaves if len(rows) == size]
    return np.array(full, np.int64).reshape(-1, size)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells with the normal of their surface, and which of their points are members of it."""

    rows: Int[Array, "c n"]
    normal: Float[Array, "c D"]
    tangents: Float[Array, "c n T"]
    member: Bool[Array, "c n"]

    def shared(self, owner: Int[Array, " N"]) -> "_Cells":
        """Those that have members from more than one cloud."""
        owners = owner[self.rows]
        least = np.where(self.member, owners, owner.max(initial=0)).min(1)
        kept = np.where(self.member, owners, 0).max(1) > least
        return _Cells(self.rows[kept], self.normal[kept], self.tangents[kept], self.member[kept])


def _flat(x: Points, normals: Points | None, rows: Int[Array, "C n"]) -> _Cells:
    """The cells on one surface; of those that mix surfaces, the points on the largest of them."""
    offset = x[rows] - x[rows].mean(1, keepdims=True)
    if normals is None:
        values, axes = np.linalg.eigh(np.swapaxes(offset, 1, 2) @ offset)
        kept = values[:, 0] < THICKEST * values[:, 1]
        rows, axes, offset = rows[kept], axes[kept], offset[kept]
        member = np.ones(rows.shape, bool)
    else:
        n = normals[rows]
        alike = n @ np.swapaxes(n, 1, 2) >= LEAST_COMMON
        member = alike[np.arange(len(rows)), alike.sum(2).argmax(1)]
        mean = (n * member[..., None]).mean(1, keepdims=True)
        # The first right singular vector is the normal, the others are tangents.
        axes = np.swapaxes(np.linalg.svd(mean)[2], 1, 2)
    return _Cells(rows, axes[:, :, 0], offset @ axes[:, :, 1:], member)


def _information(
    x: Points, owner: Int[Array, " N"], sigma: Float[Array, " N"], cells: _Cells, M: int
) -> Float[Array, "A A"]:
    """H: blocks of points of one cloud, less what the cells' heights and tilts explain."""
    (C, size), D = cells.rows.shape, x.shape[1]
    P = geometry.degrees_of_freedom(D)
    points = cells.rows.ravel()
    weight = cells.member.ravel() / sigma[points]
    across = np.repeat(cells.normal, size, axis=0)
    J = np.einsum("kd,kdp->kp", across, geometry.levers(x[points])) * weight[:, None]
    plane = np.concatenate([np.ones((C, size, 1)), cells.tangents], 2)
    Q = np.linalg.qr(plane * weight.reshape(C, size, 1))[0].reshape(C * size, D)
    cloud = owner[points]
    H = np.zeros((M, P, M, P))
    H[np.arange(M), :, np.arange(M), :] = _sums(cloud, M, J[:, :, None] * J[:, None, :])
    # What the points of a cloud in a cell say about its plane: one block (D, P) for each.
    pairs, pair = np.unique(np.repeat(np.arange(C), size) * M + cloud, return_inverse=True)
    blocks = _sums(pair, len(pairs), Q[:, :, None] * J[:, None, :])
    row = np.broadcast_to((pairs // M * D)[:, None, None] + np.arange(D)[:, None], blocks.shape)
    column = np.broadcast_to((pairs % M * P)[:, None, None] + np.arange(P), blocks.shape)
    B = sparse.csr_array((blocks.ravel(), (row.ravel(), column.ravel())), shape=(C * D, M * P))
    return H.reshape(M * P, M * P) - (B.T @ B).toarray()


def _sums(index: Int[Array, " n"], count: int, values: Float[Array, "n a b"]) -> Array:
    """The sums of the blocks with the same index."""
    _, a, b = values.shape
    found = np.empty((count, a, b))
    for i in range(a):
        for j in range(b):
            found[:, i, j] = np.bincount(index, values[:, i, j], minlength=count)
    return found


def _tied_to_first(owner: Int[Array, " N"], cells: _Cells, M: int) -> Bool[Array, " M"]:
    """Which clouds a chain of shared cells connects with cloud 0."""
    members = owner[cells.rows][cells.member]
    cell = np.nonzero(cells.member)[0]
    seen = sparse.csr_array((np.ones(len(cell)), (cell, members)), shape=(len(cells.rows), M))
    labels = connected_components(seen.T @ seen, directed=False)[1]
    return np.asarray(labels == labels[0])


def _inverted(H: Float[Array, "q q"], tied: Bool[Array, " M"], P: int) -> Float[Array, "q q"]:
    """The inverse of the information; motions of which it has none are infinitely uncertain."""
    C = np.zeros_like(H)
    known = np.repeat(tied[1:], P)
    unseen = ~known
    if known.any():
        values, vectors = np.linalg.eigh(H[np.ix_(known, known)])
        seen = values > LEAST_SEEN * values[-1]
        part = (vectors[:, ~seen] ** 2).sum(1)
        C[np.ix_(known, known)] = (vectors[:, seen] / values[seen]) @ vectors[:, seen].T
        unseen[np.flatnonzero(known)[part > LEAST_PART]] = True
    C[unseen] = 0
    C[:, unseen] = 0
    C[unseen, unseen] = np.inf
    return C
