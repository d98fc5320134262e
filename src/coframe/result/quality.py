# SPDX-License-Identifier: MIT
"""What a contract asks of a registration: figures for each scan and for each link between scans.

A link is a pair of clouds that see the same surface. Distances between two clouds are those of
points of one from the local plane of the other, so that the spacing of points does not count.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.errors import InputError
from coframe.result.registration import Registration
from coframe.types import Array

# [size] Points of a cloud that are compared with each of the others, at most.
SAMPLE = 2000
# [size] Points of all pairs together, at most.
COMPARISONS = 2_000_000
# [size] Points of a cloud that others are compared with, at most.
SURFACE = 50_000
# [size] Neighbours that a local plane is fitted to.
NEIGHBOURS = 8
# [limit] A point farther from another cloud than this multiple of the spacing there, or of the
# tolerance, is not on common surface; nor is one where either cloud is thicker than this multiple
# of what is usual, as at an edge.
REACH = 3.0
# [size] Places around one that say how thick a cloud usually is there.
AROUND = 64
# [guard] Points: a component with less of a cloud is not seen by it.
NOTHING = 1e-3
# [limit] How well an axis is held: standard deviation at the scan's points, in units of the
# scatter of a single point about the surface.
STRENGTHS = ((1.0, "strong"), (10.0, "weak"), (np.inf, "free"))
# [limit] Clouds up to which bridges are looked for.
BRIDGES = 400


@dataclass(frozen=True)
class Link:
    """Two clouds that see the same surface.

    Attributes
    ----------
    clouds : tuple of two str
    overlap : tuple of two floats
        Share of the points of each on surface that the other sees.
    rms : float or None
        Root mean square distance of single points of either from the local plane of the other,
        along its normal [unit]: it has the noise of a point. Those beyond three times itself are
        left out. None where too few points are near each other.
    within : float or None
        Share of the points on common surface whose distance from the local plane of the other is
        within the tolerance, far ones too.
    bridge : bool
        Whether nothing else connects the clouds on its two sides.
    weak : bool
        Whether both overlaps are too small for a cloud to count as aligned.
    """

    clouds: tuple[str, str]
    overlap: tuple[float, float]
    rms: float | None
    within: float | None
    bridge: bool
    weak: bool


@dataclass(frozen=True)
class ScanQuality:
    """How well one cloud is registered.

    Attributes
    ----------
    name : str
    rms : float or None
        Root mean square distance to all clouds that it is linked with [unit].
    within : float or None
        Share of those distances within the tolerance.
    sd : tuple of D floats
        Standard deviation of its points along the axes of the common frame, root mean square over
        the cloud [unit].
    strength : tuple of D str
        "strong", "weak" or "free" for each axis: whether `sd` is at most the scatter of a single
        point about the surface, up to ten times that, or more.
    target_rms : float or None
        Root mean square of the residuals of its targets [unit].
    """

    name: str
    rms: float | None
    within: float | None
    sd: tuple[float, ...]
    strength: tuple[str, ...]
    target_rms: float | None


@dataclass(frozen=True)
class Quality:
    """Figures for each scan and each link.

    Attributes
    ----------
    tolerance : float or None
        For `within` [unit].
    scans : tuple of ScanQuality
    links : tuple of Link
        Those with overlap, in the order of the clouds.
    """

    tolerance: float | None
    scans: tuple[ScanQuality, ...]
    links: tuple[Link, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def assess(
    result: Registration, tolerance: float | None = None, rng: np.random.Generator | None = None
) -> Quality:
    """Figures of a registration for each scan and for each link between scans.

    Parameters
    ----------
    result : Registration
    tolerance : float, optional
        Distances within it count as good [unit].
    rng : numpy.random.Generator, optional
        Chooses the points that are compared.

    Returns
    -------
    Quality

    Examples
    --------
    >>> coframe.assess(result, tolerance=0.006).links[0].within
    """
    if tolerance is not None and not 0 < tolerance < np.inf:
        raise InputError(f"tolerance: expected a length above 0, found {tolerance}")
    rng = np.random.default_rng(0) if rng is None else rng
    M = len(result.poses)
    overlap = overlaps(result)
    linked = np.triu(np.maximum(overlap, overlap.T) >= ALIGN.verdict.failed_overlap, 1)
    for a, b in zip(*np.nonzero(linked), strict=True):
        linked[a, b] = _same_group(result, int(a), int(b))
    pairs = np.argwhere(linked)
    each = max(1, min(SAMPLE, COMPARISONS // max(2 * len(pairs), 1)))
    distances = _distances(result, pairs, each, tolerance, rng)
    bridges = _bridges(pairs, M)
    links = tuple(
        Link(
            (result.names[a], result.names[b]),
            (float(overlap[a, b]), float(overlap[b, a])),
            _rms(near),
            _within(near, tolerance),
            bridge,
            bool(max(overlap[a, b], overlap[b, a]) < ALIGN.verdict.weak_overlap),
        )
        for (a, b), near, bridge in zip(pairs.tolist(), distances, bridges, strict=True)
    )
    own: list[list[Array]] = [[np.empty(0)] for _ in range(M)]
    for (a, b), near in zip(pairs.tolist(), distances, strict=True):
        own[a].append(near)
        own[b].append(near)
    sd = deviations_at_points(result)
    scans = tuple(
        ScanQuality(
            name,
            _rms(np.concatenate(own[j])),
            _within(np.concatenate(own[j]), tolerance),
            tuple(sd[j].tolist()),
            tuple(_strength(value, _scatter(result)) for value in sd[j].tolist()),
            _target_rms(result, name),
        )
        for j, name in enumerate(result.names)
    )
    return Quality(tolerance, scans, links)


def overlaps(result: Registration) -> Float[Array, "M M"]:
    """The share of cloud i's points on components that cloud j sees too, as for verdicts."""
    mass, M = result.moments.mass, len(result.poses)
    found = np.zeros((M, M))
    A = np.ascontiguousarray(mass.T)
    for i in range(M):
        k = np.flatnonzero(A[:, i] > NOTHING)
        own = A[k, i, None]
        found[i] = own[:, 0] @ (A[k] > ALIGN.verdict.min_shared * own) / result.moments.points[i]
    np.fill_diagonal(found, 0.0)
    return found


def deviations_at_points(result: Registration) -> Float[Array, "M D"]:
    """Standard deviations of the clouds' points along the axes, root mean square over each cloud.

    A pose's error (omega, tau) moves the point x by tau + omega x (x - median).
    """
    found = []
    for cloud, pose, C in zip(result.clouds, result.poses, result.pose_covariance, strict=True):
        arms = (cloud - np.median(cloud, axis=0)) @ geometry.rotation(pose).T
        J = geometry.levers(arms[:: max(1, len(arms) // SAMPLE)])
        variances = np.einsum("nap,pq,naq->na", J, C, J)
        found.append(np.sqrt(np.maximum(variances, 0).mean(0)))
    return np.array(found)


def _scatter(result: Registration) -> float:
    """The usual scatter of a point about the surface [unit]."""
    thickness = np.sqrt(np.linalg.eigvalsh(result.mixture.covariances)[:, 0])
    return float(np.average(thickness, weights=result.mixture.weights))


def _strength(sd: float, scatter: float) -> str:
    return next(word for limit, word in STRENGTHS if sd <= limit * scatter or limit == np.inf)


def _target_rms(result: Registration, name: str) -> float | None:
    if result.targets is None:
        return None
    own = [each.distance for each in result.targets.residuals if each.scan == name]
    return float(np.sqrt(np.mean(np.square(own)))) if own else None


def _same_group(result: Registration, a: int, b: int) -> bool:
    return not result.groups or any(a in group and b in group for group in result.groups)


def _rms(distances: Float[Array, " n"]) -> float | None:
    """Root mean square of the distances within `REACH` times itself: what is farther is another
    surface, hidden from one of the two.
    """
    squares = np.sort(distances**2)
    while squares.size and squares[-1] > (limit := REACH**2 * squares.mean()):
        squares = squares[: np.searchsorted(squares, limit, side="right")]
    return float(np.sqrt(squares.mean())) if squares.size else None


def _within(distances: Float[Array, " n"], tolerance: float | None) -> float | None:
    if tolerance is None or not distances.size:
        return None
    return float((np.abs(distances) <= tolerance).mean())


def _distances(
    result: Registration,
    pairs: Int[Array, "L 2"],
    count: int,
    tolerance: float | None,
    rng: np.random.Generator,
) -> list[Float[Array, " _"]]:
    """Of each pair: how far some points of each lie from the other, along its normal."""
    if not len(pairs):
        return []
    # about a common origin: survey coordinates keep their digits
    origin = geometry.transform(result.poses[0], np.median(result.clouds[0], axis=0)[None])[0]
    clouds = [
        geometry.transform(pose, _some(cloud[keep], SURFACE, rng)) - origin
        for cloud, keep, pose in zip(result.clouds, result.inliers(), result.poses, strict=True)
    ]
    trees = [cKDTree(cloud) if len(cloud) > NEIGHBOURS else None for cloud in clouds]
    chosen = [_some(cloud, count, rng) for cloud in clouds]
    own = [
        None if tree is None else _planes(some, cloud, tree)
        for some, cloud, tree in zip(chosen, clouds, trees, strict=True)
    ]
    found = []
    for a, b in pairs.tolist():
        parts = [
            _to_plane(chosen[i], own[i], clouds[j], trees[j], tolerance)
            for i, j in ((a, b), (b, a))
        ]
        found.append(np.concatenate(parts))
    return found


def _some(points: Float[Array, "n D"], count: int, rng: np.random.Generator) -> Float[Array, "m D"]:
    return points if len(points) <= count else points[rng.choice(len(points), count, replace=False)]


@dataclass(frozen=True)
class _Planes:
    """The local planes of a surface near some points."""

    nearest: Float[Array, " n"]  # distance of the nearest point of the surface
    middles: Float[Array, "n D"]
    axes: Float[Array, "n D D"]  # columns; the first is the normal
    widths: Float[Array, "n D"]  # standard deviations along the axes; the first is the thickness
    spacing: Float[Array, " n"]
    reach: Float[Array, " n"]  # distance of the farthest neighbour from the middle

    @property
    def normals(self) -> Float[Array, "n D"]:
        return self.axes[:, :, 0]

    def flat(self, points: Float[Array, "n D"], some: Bool[Array, " n"]) -> Bool[Array, " n"]:
        """Which are planes and no edges, judged by `some` of them.

        An edge is thicker than the surface around it. It is also thick both beside what is usual
        and beside its own width: flat pieces that are thicker than usual are curved, or less
        precise.
        """
        thickness = self.widths[:, 0]
        around = cKDTree(points[some]).query(points, min(AROUND, int(some.sum())))[1]
        usual = np.median(thickness[some][around].reshape(len(points), -1), axis=1)
        wide = thickness**2 <= ALIGN.evidence.flat * self.widths[:, 1] ** 2
        thin = thickness <= REACH * np.median(thickness[some])
        return (thickness <= REACH * usual) & (wide | thin)


def _planes(points: Float[Array, "n D"], surface: Float[Array, "m D"], tree: cKDTree) -> _Planes:
    nearest, rows = tree.query(points, NEIGHBOURS)
    around = surface[rows]
    middles = around.mean(1)
    centred = around - middles[:, None]
    values, axes = np.linalg.eigh(np.einsum("nki,nkj->nij", centred, centred) / NEIGHBOURS)
    spacing = np.sqrt(values.sum(1) / NEIGHBOURS)
    reach = np.sqrt((centred**2).sum(2)).max(1)
    widths = np.sqrt(np.maximum(values, 0))
    return _Planes(nearest[:, 0], middles, axes, widths, spacing, reach)


def _to_plane(
    points: Float[Array, "n D"],
    own: _Planes | None,
    surface: Float[Array, "m D"],
    tree: cKDTree | None,
    tolerance: float | None,
) -> Float[Array, " _"]:
    """Distances of points from the local planes of a surface, of those that lie on it.

    These are near it and among its points, their own surface (with planes `own`) faces as it does,
    and both have a plane there, not an edge.
    """
    if tree is None or own is None or not len(points):
        return np.empty(0)
    planes = _planes(points, surface, tree)
    near = planes.nearest <= REACH * np.maximum(planes.spacing, tolerance or 0.0)
    near &= np.einsum("ni,ni->n", own.normals, planes.normals) ** 2 >= ALIGN.evidence.along
    if not near.any():
        return np.empty(0)
    along = np.einsum("ni,nij->nj", points - planes.middles, planes.axes)
    # Beyond the farthest of its neighbours, their plane would be extrapolated.
    near &= (along[:, 1:] ** 2).sum(1) <= planes.reach**2
    flat = planes.flat(points, near) & own.flat(points, np.ones(len(points), bool))
    return np.asarray(along[near & flat, 0])


def _bridges(pairs: Int[Array, "L 2"], count: int) -> list[bool]:
    """Which links are the only connection between what is on their two sides."""
    if count > BRIDGES:
        return [False] * len(pairs)
    whole = int(connected_components(_graph(pairs, count), directed=False)[0])
    tree = minimum_spanning_tree(_graph(pairs, count)).tocoo()
    trunk = set(zip(tree.row.tolist(), tree.col.tolist(), strict=True))
    found = []
    for i, (a, b) in enumerate(pairs.tolist()):
        bridge = (a, b) in trunk  # every spanning tree has all bridges
        if bridge:
            rest = _graph(np.delete(pairs, i, axis=0), count)
            bridge = int(connected_components(rest, directed=False)[0]) > whole
        found.append(bridge)
    return found


def _graph(pairs: Int[Array, "L 2"], count: int) -> Any:
    ones = np.ones(len(pairs))
    return coo_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(count, count))
