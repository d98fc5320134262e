# SPDX-License-Identifier: MIT
"""Floor plans in the plane, and a laser scanner that moves through them.

A plan is made of rectangles: walls with gaps for doors, furniture, pillars. A scan is a fan of
rays, each ending at the first wall it hits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Integer

from coframe.data.simulate.records import Scan, Scans
from coframe.geometry import exp_rotation, pose
from coframe.types import Array

# [chosen: m] Thickness of a wall, width of a doorway.
WALL = 0.15
DOORWAY = 0.95
# [chosen: m] Furniture keeps this distance from the path of the scanner.
CLEARANCE = 0.45
# [chosen: rad] Standard deviation of the scanner's heading about the direction of its path.
HEADING = 0.15


@dataclass(frozen=True)
class Plan:
    """A floor seen from above, in m.

    Attributes
    ----------
    segments : array (S, 2, 2)
        Both ends of each straight piece of wall or furniture.
    path : array (P, 2)
        Corners of a way through the floor.
    """

    segments: Float[Array, "S 2 2"]
    path: Float[Array, "P 2"]


def plan(rng: np.random.Generator, *, kind: str) -> Plan:
    """Draw a floor plan.

    Parameters
    ----------
    rng : numpy.random.Generator
    kind : str
        "office": a corridor between different rooms; "repeated": a corridor between equal rooms
        with equal furniture; "hall": a hall with pillars in rows; "flat": a small apartment.

    Returns
    -------
    Plan
    """
    if kind == "office":
        rooms = [rng.uniform(2.6, 5.0, 7) for _ in range(2)]
        return _corridor(rng, rooms, corridor=2.0, depth=(3.5, 5.5), furniture=5, every=3)
    if kind == "repeated":
        equal = [np.full(7, 3.2)] * 2
        return _corridor(
            rng, equal, corridor=2.0, depth=(4.5, 4.5), furniture=4, every=3, equal=True
        )
    if kind == "hall":
        return _hall(rng)
    if kind == "flat":
        rooms = [rng.uniform(2.4, 4.2, 3) for _ in range(2)]
        return _corridor(rng, rooms, corridor=1.3, depth=(3.0, 4.2), furniture=5, every=2)
    raise ValueError(f"no floor is called {kind!r}: choose office, repeated, hall or flat")


def floor(
    rng: np.random.Generator,
    *,
    kind: str,
    scans: int = 12,
    points: int = 360,
    sigma: float = 0.01,
    field: float = 360.0,
    reach: float = 15.0,
    spacing: float = 1.5,
    outliers: float = 0.01,
) -> Scans:
    """Simulate laser scans along a way through a floor.

    Parameters
    ----------
    rng : numpy.random.Generator
    kind : str
        As in `plan`.
    scans : int, optional
    points : int, optional
        Rays of a scan; those that hit nothing within reach give no point.
    sigma : float, optional
        Standard deviation of the measured range in m.
    field : float, optional
        Angle of the fan in degrees, about straight ahead.
    reach : float, optional
        Longest range in m.
    spacing : float, optional
        Way from scan to scan in m; less where the whole way through the floor is shorter.
    outliers : float, optional
        Share of rays that end at something passing by, before the wall.

    Returns
    -------
    Scans
        In the plane. The frame of a scan has its x axis straight ahead.

    Examples
    --------
    >>> scans = floor(np.random.default_rng(0), kind="flat", scans=3)
    >>> [cloud.shape[1] for cloud in scans.clouds]
    [2, 2, 2]
    """
    layout = plan(rng, kind=kind)
    steps = np.linalg.norm(np.diff(layout.path, axis=0), axis=1)
    corners = np.cumsum([0, *steps])
    at = min(spacing, corners[-1] / max(scans - 1, 1)) * np.arange(scans)
    found = []
    for along in at:
        position = np.array([np.interp(along, corners, x) for x in layout.path.T])
        leg = min(int(np.searchsorted(corners, along, side="right")) - 1, len(steps) - 1)
        ahead = layout.path[leg + 1] - layout.path[leg]
        heading = np.arctan2(ahead[1], ahead[0]) + HEADING * rng.normal()
        found.append(
            scan_plan(
                layout.segments,
                pose(exp_rotation(np.array([heading])), position),
                rng,
                points=points,
                sigma=sigma,
                field=field,
                reach=reach,
                outliers=outliers,
            )
        )
    return Scans(
        name=f"floor {kind}",
        clouds=[scan.points for scan in found],
        poses=np.array([scan.pose for scan in found]),
        normals=[scan.normals for scan in found],
        sigma=[scan.sigma for scan in found],
        outliers=[scan.outliers for scan in found],
        sensors=np.zeros((len(found), 2)),
    )


def scan_plan(
    segments: Float[Array, "S 2 2"],
    pose: Float[Array, "3 3"],
    rng: np.random.Generator,
    *,
    points: int,
    sigma: float,
    field: float = 360.0,
    reach: float = 15.0,
    outliers: float = 0.0,
) -> Scan:
    """Scan segments from one position.

    Parameters
    ----------
    segments : array (S, 2, 2)
    pose : array (3, 3)
        Carries the scanner's frame into the plan's.
    rng : numpy.random.Generator
    points : int
        As in `floor`, and so are the following.
    sigma : float
    field : float, optional
    reach : float, optional
    outliers : float, optional

    Returns
    -------
    Scan
    """
    half = np.radians(field) / 2
    angle = np.linspace(-half, half, points, endpoint=field < 360)
    own = np.stack([np.cos(angle), np.sin(angle)], 1)
    R = pose[:2, :2]
    directions = own @ R.T
    distance, row = _first_hits(segments, pose[:2, 2], directions)
    kept = distance < reach
    distance, row, own, directions = (x[kept] for x in (distance, row, own, directions))
    ends = segments[row]
    along = ends[:, 1] - ends[:, 0]
    normals = np.stack([-along[:, 1], along[:, 0]], 1)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    cosine = np.einsum("ij,ij->i", normals, directions)
    normals *= -np.where(cosine > 0, 1.0, -1.0)[:, None]
    stray = rng.random(len(distance)) < outliers
    normals[stray] = 0
    true = np.where(stray, distance * rng.uniform(0.2, 0.9, len(distance)), distance)
    measured = true + sigma * rng.normal(size=len(distance))
    return Scan(
        points=measured[:, None] * own,
        normals=normals @ R,
        # The noise is along the ray: at a slant, less of it is along the normal.
        sigma=sigma * np.where(stray, 1.0, np.abs(cosine)),
        outliers=stray,
        pose=pose,
    )


def _first_hits(
    segments: Float[Array, "S 2 2"],
    origin: Float[Array, " 2"],
    directions: Float[Array, "N 2"],
) -> tuple[Float[Array, " N"], Integer[Array, " N"]]:
    """Distance to the first segment that each ray hits, infinite on a miss, and the segment."""
    along = segments[:, 1] - segments[:, 0]
    gap = segments[:, 0] - origin
    across = _cross(directions[:, None], along)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = _cross(gap, along) / across
        share = _cross(gap, directions[:, None]) / across
    hit = (distance > 0) & (share >= 0) & (share <= 1)
    distance = np.where(hit, distance, np.inf)
    row = distance.argmin(1)
    return distance[np.arange(len(distance)), row], row


def _cross(a: Float[Array, "*A 2"], b: Float[Array, "*B 2"]) -> Float[Array, "*C"]:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _rectangle(
    centre: Sequence[float | int] | Float[Array, " 2"],
    size: Sequence[float | int] | Float[Array, " 2"],
    angle: float = 0.0,
) -> Float[Array, "4 2 2"]:
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) / 2 * np.asarray(size, float)
    corners = corners @ exp_rotation(np.array([angle])).T + np.asarray(centre, float)
    return np.stack([corners, np.roll(corners, -1, axis=0)], axis=1)


def _wall(
    start: Sequence[float | int], end: Sequence[float | int], doors: Sequence[float] = ()
) -> list[Float[Array, "4 2 2"]]:
    """A wall along x or y with doorways at these distances from its start."""
    first, last = np.asarray(start, float), np.asarray(end, float)
    length = float(np.linalg.norm(last - first))
    along = (last - first) / length
    cuts = sorted(doors)
    begins = [-WALL / 2, *(door + DOORWAY / 2 for door in cuts)]
    ends = [*(door - DOORWAY / 2 for door in cuts), length + WALL / 2]
    parts = []
    for low, high in zip(begins, ends, strict=True):
        middle = first + along * (low + high) / 2
        size = np.abs(along) * (high - low) + (1 - np.abs(along)) * WALL
        parts.append(_rectangle(middle, size))
    return parts


def _furniture(
    rng: np.random.Generator, wide: float, deep: float, count: int
) -> list[tuple[Float[Array, " 2"], Float[Array, " 2"], float]]:
    """Centre, size and angle of pieces in a room from (0, 0) to (wide, deep), most at its walls."""
    pieces = []
    for _ in range(count):
        size = rng.uniform([0.35, 0.3], [1.5, 0.8])
        low, high = WALL / 2 + size / 2, np.array([wide, deep]) - WALL / 2 - size / 2
        centre = rng.uniform(low, np.maximum(high, low + 0.01))
        angle = rng.normal() * 0.02
        wall = rng.integers(5)
        if wall < 2:
            centre[0] = (low, high)[wall][0]
        elif wall < 4:
            centre[1] = (low, high)[wall - 2][1]
        else:
            angle = rng.uniform(0, np.pi)
        pieces.append((centre, size, angle))
    return pieces


def _corridor(
    rng: np.random.Generator,
    rooms: Sequence[Float[Array, " K"]],
    *,
    corridor: float,
    depth: tuple[float, float],
    furniture: int,
    every: int,
    equal: bool = False,
) -> Plan:
    """Rooms of these widths on both sides of a corridor along x; the way visits every so many."""
    length = max(float(widths.sum()) for widths in rooms)
    walls: list[Float[Array, "4 2 2"]] = []
    pieces: list[Float[Array, "4 2 2"]] = []
    visits: list[tuple[float, Float[Array, "2 2"]]] = []
    same = _furniture(rng, float(rooms[0][0]), depth[0], furniture) if equal else None
    for side, widths in zip((-1, 1), rooms, strict=True):
        deep = rng.uniform(*depth)
        edge = side * corridor / 2
        far = edge + side * deep
        starts = np.cumsum([0, *widths])
        share = np.full(len(widths), 0.3) if equal else rng.uniform(0.25, 0.75, len(widths))
        doors = starts[:-1] + share * widths
        walls += _wall([0, edge], [starts[-1], edge], list(doors))
        walls += _wall([0, far], [starts[-1], far])
        for x in starts[1:-1]:
            walls += _wall([x, edge], [x, far])
        for x in (0.0, starts[-1]):
            walls += _wall([x, edge], [x, far])
        if starts[-1] < length:
            walls += _wall([starts[-1], edge], [length, edge])
        for x, wide, door in zip(starts, widths, doors, strict=False):
            number = int(rng.integers(furniture - 2, furniture + 2))
            for centre, size, angle in same or _furniture(rng, wide, deep, number):
                at = [x + centre[0], edge + side * centre[1]]
                pieces.append(_rectangle(at, size, side * angle))
            middle = [x + 0.5 * wide, edge + side * 0.45 * deep]
            visits.append((door, np.array([[door, edge + side * 0.6], middle])))
    walls += _wall([0, -corridor / 2], [0, corridor / 2])
    walls += _wall([length, -corridor / 2], [length, corridor / 2])
    visits.sort(key=lambda visit: visit[0])

    def way(rooms: Sequence[tuple[float, Float[Array, "2 2"]]]) -> Float[Array, "P 2"]:
        corners = [np.array([0.8, 0.0])]
        for door, inside in rooms:
            corners += [np.array([door, 0.0]), *inside, inside[0], np.array([door, 0.0])]
        return np.array([*corners, np.array([length - 0.8, 0.0])])

    # Furniture leaves the way into every room free, so that equal rooms stay equal.
    return Plan(_furnished(walls, pieces, way(visits)), way(visits[::every]))


def _hall(rng: np.random.Generator) -> Plan:
    """Pillars in rows; niches and crates along the walls, a way around and across."""
    wide, deep = rng.uniform(18, 24), rng.uniform(12, 16)
    walls = [
        *_wall([0, 0], [wide, 0], [float(rng.uniform(2, wide - 2))]),
        *_wall([0, deep], [wide, deep]),
        *_wall([0, 0], [0, deep], [float(rng.uniform(2, deep - 2))]),
        *_wall([wide, 0], [wide, deep]),
        # Beyond the doorways.
        *_wall([-2, -2], [wide, -2]),
        *_wall([-2, -2], [-2, deep]),
    ]
    size = rng.uniform(0.4, 0.6)
    columns, rows = 5, 3
    for x in (np.arange(columns) + 0.5) / columns * wide:
        for y in (np.arange(rows) + 0.5) / rows * deep:
            walls.append(_rectangle([x, y], [size, size]))
    pieces = [_rectangle(*piece) for piece in _furniture(rng, wide, deep, 9)]
    low, high = 1 / rows * deep, (1 - 1 / rows) * deep
    way = np.array(
        [
            [0.06 * wide, low],
            [0.8 * wide, low],
            [0.8 * wide, high],
            [0.2 * wide, high],
            [0.2 * wide, low],
            [0.4 * wide, low],
            [0.4 * wide, high],
        ]
    )
    return Plan(_furnished(walls, pieces, way), way)


def _furnished(
    walls: Sequence[Float[Array, "4 2 2"]],
    pieces: Sequence[Float[Array, "4 2 2"]],
    path: Float[Array, "P 2"],
) -> Float[Array, "S 2 2"]:
    """The segments of walls and of those pieces of furniture that leave a way free."""
    steps = [np.linspace(a, b, 40) for a, b in pairwise(path)]
    way = np.concatenate(steps)
    kept = []
    for piece in pieces:
        corner, side, other = piece[0, 0], piece[0, 1] - piece[0, 0], piece[3, 0] - piece[0, 0]
        lengths = np.linalg.norm([side, other], axis=1)
        inner = (way - corner) @ (np.stack([side, other]) / lengths[:, None]).T
        outside = np.maximum(np.maximum(-inner, inner - lengths), 0)
        if np.linalg.norm(outside, axis=1).min() > CLEARANCE:
            kept.append(piece)
    return np.concatenate([*walls, *kept])
