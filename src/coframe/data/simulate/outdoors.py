# SPDX-License-Identifier: MIT
"""Facades, streets and terrain, in metres."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from coframe.data.simulate import things
from coframe.data.simulate.mesh import Mesh, box, grid, joined
from coframe.data.simulate.place import Place, sway, tripods
from coframe.data.simulate.place import spots as free_spots
from coframe.data.simulate.things import Patch, panel, upright
from coframe.geometry import exp_rotation, pose, transform
from coframe.types import Array, Pose, Poses

# [chosen: a tripod] Height of a terrestrial scanner [m].
TRIPOD = 1.6
# [chosen: on the roof of a car] Height of a lidar [m].
ROOF = 1.9
# [chosen: two lanes and parked cars on both sides] From the middle of the road to the kerb, to the
# middle of a parked car, to the sensor's lane, to the front gardens [m].
KERB = 4.6
PARKED = 3.55
LANE = 1.4
GARDEN = 7.2
# [chosen: wider than GARDEN, so that ground inside of a bend does not fold] Radius of the corners
# of a block [m].
CORNER = 12.0
# [chosen: within a zone of UTM, in central Europe] Where places with map coordinates lie [m].
UTM = (512_000.0, 5_403_000.0, 480.0)


def facade(rng: np.random.Generator, *, unique: bool = False) -> Place:
    """A building front with equal windows, scanned from positions along the street.

    Parameters
    ----------
    rng : numpy.random.Generator
    unique : bool, optional
        With an entrance, balconies, a shop sign, a downpipe and bicycles.

    Returns
    -------
    Place

    Examples
    --------
    >>> len(facade(np.random.default_rng(0)).repeats)
    1
    """
    spacing, storeys = rng.uniform(2.6, 3.4), int(rng.integers(3, 5))
    storey, columns = rng.uniform(3.0, 3.4), 20
    wide, high = columns * spacing, storeys * storey + 0.6
    across, tall = rng.uniform(1.0, spacing - 1.2), rng.uniform(1.4, 1.9)
    patches: list[Patch] = [(0, wide, 0, 0.6, -0.05), (0, wide, storey - 0.1, storey + 0.1, -0.06)]
    patches.append((0, wide, high - 0.4, high, -0.3))
    parts: list[Mesh] = []
    middles = (np.arange(columns) + 0.5) * spacing
    for level in range(storeys):
        for middle in middles:
            low = level * storey + 1.0
            patches += things.window_patches(middle - across / 2, low, across, tall)
    if unique:
        column = columns // 2 + int(rng.integers(-2, 2))
        for place in (column, column + int(rng.choice([-4, 4, 5]))):
            middle = middles[place]
            patches.append((middle - across / 2 - 0.06, middle + across / 2 + 0.06, 0.9, 3.0, 0.0))
            patches += things.door_patches(middle - 0.7, width=1.4, height=2.5)
            parts.append(box([middle - 1.1, -1.1, 0], [middle + 1.1, 0, 0.16]))
            parts.append(box([middle - 1.2, -1.0, 2.75], [middle + 1.2, 0, 2.9]))
        for _ in range(9):
            middle = middles[columns // 2 + int(rng.integers(-6, 6))]
            low = storey * int(rng.integers(1, storeys)) + 0.1
            parts.append(box([middle - 1.1, -1.1, low], [middle + 1.1, 0, low + 0.15]))
            parts.append(box([middle - 1.1, -1.1, low + 0.15], [middle + 1.1, -1.05, low + 1.0]))
        for x in middles[columns // 2] + spacing * (rng.choice(10, 3, replace=False) - 4.5):
            pipe = things.cylinder(0.06, 0.0, high, sides=10)
            parts.append(pipe.shifted([x, -0.12, 0]))
        sign = middles[columns // 2 + int(rng.integers(-5, 4))]
        parts.append(box([sign, -0.9, storey - 0.4], [sign + 0.1, 0, storey + 0.4]))
        for x in rng.uniform(0.25, 0.75, 4) * wide:
            parts.append(things.bicycle(rng).moved(upright(x, -0.6, 0.12, rng.uniform(-0.2, 0.2))))
    parts.append(panel(wide, high, patches))
    # The pavement and the road before it.
    profile = [(-14.0, 0.0), (-3.2, 0.0), (-3.2, 0.12), (0.5, 0.14)]
    ground = np.array([[[x, y, z] for y, z in profile] for x in (0.0, wide)])
    parts.append(grid(ground))
    x = wide / 2 + 6.5 * (np.arange(4) - 1.5) + rng.uniform(-0.5, 0.5, 4)
    at = np.stack([x, rng.uniform(-9.5, -8.5, 4), np.full(4, TRIPOD)], 1)
    free = np.stack([rng.uniform(0.2, 0.8, 300) * wide, rng.uniform(-7, -1, 300)], 1)
    return Place(
        "facade with unique things" if unique else "facade",
        joined(parts).shifted([-wide / 2, 0, 0]),
        tripods(rng, at - [wide / 2, 0, 0]),
        "terrestrial",
        {"points": 100_000, "reach": 14.0},
        free_spots(rng, free - [wide / 2, 0]),
        repeats=np.empty((0, 3)) if unique else np.array([[spacing, 0.0, 0.0]]),
    )


@dataclass(frozen=True)
class _Road:
    """The middle line of a road: points, headings [rad, without jumps] and lengths up to each."""

    points: Float[Array, "P 2"]
    heading: Float[Array, " P"]
    length: Float[Array, " P"]
    closed: bool

    def at(self, s: float, across: float = 0.0, z: float = 0.0, yaw: float = 0.0) -> Pose:
        """Upright pose beside the road, x forward, shifted to the left by `across`."""
        s = s % self.length[-1] if self.closed else s
        x, y = (np.interp(s, self.length, column) for column in self.points.T)
        ahead = float(np.interp(s, self.length, self.heading))
        return upright(float(x), float(y), yaw=ahead) @ upright(0.0, across, z, yaw)


def street(rng: np.random.Generator, *, step: float = 6.0, count: int = 6) -> Place:
    """A street with house fronts, parked cars, trees and lamps, seen by a lidar that drives by.

    Parameters
    ----------
    rng : numpy.random.Generator
    step : float, optional
        Between frames [m].
    count : int, optional
        Frames.

    Returns
    -------
    Place

    Examples
    --------
    >>> street(np.random.default_rng(0), count=3).stations.shape
    (3, 4, 4)
    """
    driven, margin = step * (count - 1), 45.0
    s = np.arange(0, driven + 2 * margin + 0.5, 0.5)
    bend = np.radians(rng.uniform(6, 14)) * rng.choice([-1, 1])
    heading = bend * np.sin(2 * np.pi * (s - margin) / rng.uniform(90, 140))
    ahead = np.stack([np.cos(heading), np.sin(heading)], 1) * 0.5
    points = np.concatenate([[[0.0, 0.0]], np.cumsum((ahead[1:] + ahead[:-1]) / 2, axis=0)])
    road = _Road(points, heading, s, closed=False)
    mesh, free = _built(rng, road)
    stations = _driven(rng, road, margin + step * np.arange(count))
    return Place("street", mesh, stations, "lidar", {"reach": 60.0}, free, traffic=True)


def street_path(rng: np.random.Generator, frames: int, step: float = 1.0) -> Place:
    """A lidar that drives around a block and, with frames enough, passes its start again.

    Parameters
    ----------
    rng : numpy.random.Generator
    frames : int
    step : float, optional
        Between frames [m]. The way around the block is nine tenths of all steps, and 180 m at
        least.

    Returns
    -------
    Place
        With a station for each frame.

    Examples
    --------
    >>> street_path(np.random.default_rng(0), 10).stations.shape
    (10, 4, 4)
    """
    around = max(180.0, 0.9 * frames * step)
    legs = (around - 2 * np.pi * CORNER) / 2
    long = legs * rng.uniform(0.5, 0.6)
    road = _block(long, legs - long)
    mesh, free = _built(rng, road)
    stations = _driven(rng, road, long / 3 + step * np.arange(frames))
    options = {"reach": 60.0}
    return Place("street around a block", mesh, stations, "lidar", options, free, traffic=True)


def _block(long: float, short: float) -> _Road:
    """A rectangle with round corners, driven to the left."""
    at, heading = np.zeros(2), 0.0
    points, headings = [at], [heading]
    for leg in (long, short, long, short):
        ahead = np.array([np.cos(heading), np.sin(heading)])
        for s in np.arange(0.5, leg, 0.5):
            points.append(at + s * ahead)
            headings.append(heading)
        at = at + leg * ahead
        left = np.array([-ahead[1], ahead[0]])
        for angle in np.linspace(0, np.pi / 2, 40):
            points.append(at + CORNER * (np.sin(angle) * ahead + (1 - np.cos(angle)) * left))
            headings.append(heading + angle)
        at, heading = points[-1], headings[-1]
    line = np.array(points)
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
    return _Road(line, np.array(headings), length, closed=True)


def _driven(rng: np.random.Generator, road: _Road, s: Float[Array, " M"]) -> Poses:
    """Stations of a lidar on a car that sways a little."""
    count = len(s)
    across = -LANE + 0.2 * sway(rng, count, (30.0, 80.0))
    yaw, pitch, roll = (np.radians(a) * sway(rng, count, (5.0, 25.0)) for a in (1.0, 0.4, 0.4))
    z = ROOF + 0.01 * sway(rng, count, (4.0, 15.0))
    return np.array(
        [
            road.at(s[i], across[i], z[i], yaw[i])
            @ pose(exp_rotation(np.array([roll[i], pitch[i], 0.0])), np.zeros(3))
            for i in range(count)
        ]
    )


def _built(rng: np.random.Generator, road: _Road) -> tuple[Mesh, Poses]:
    """A street along a road, and where people and cars move on it."""
    whole = float(road.length[-1])
    parts = [_carriageway(road), _base(road)]
    line = cKDTree(road.points)
    for side in (-1, 1):
        parts += _houses(rng, road, line, side)
        s = rng.uniform(2, 8)
        while s < whole - 6:
            if rng.random() < 0.7:
                yaw = rng.normal(scale=0.03) + (0.0 if side < 0 else np.pi)
                here = road.at(s, side * (PARKED + rng.normal(scale=0.08)), 0.01, yaw)
                parts.append(things.car(rng).moved(here))
            s += rng.uniform(5.5, 8.0)
        s = rng.uniform(3, 12)
        while s < whole - 6:
            here = road.at(s, side * (KERB + 0.7), 0.12, -side * np.pi / 2)
            make = things.tree if rng.random() < 0.6 else things.lamp_post
            parts.append(make(rng).moved(here))
            s += rng.uniform(7.0, 16.0)
        for s in rng.uniform(2, whole - 2, round(whole / 15)):
            what = (things.bicycle, things.boxes, things.bench)[rng.integers(3)]
            turn = 0.0 if side > 0 else np.pi
            here = road.at(s, side * (GARDEN - 0.5), 0.15, turn + rng.normal(scale=0.1))
            parts.append(what(rng).moved(here))
    free = [
        road.at(s, across, 0.1, np.pi if across > 0 else 0.0)
        for s in np.arange(1.0, whole, 2.5)
        for across in (LANE, KERB + 1.6, -KERB - 1.6)
    ]
    return joined(parts), np.array(free)


def _carriageway(road: _Road) -> Mesh:
    """Road with camber, kerbs and pavements that slope towards them."""
    across = np.linspace(-KERB, KERB, 9)
    camber = 0.09 * (1 - (across / KERB) ** 2)
    profile = np.array(
        [
            (-GARDEN - 2, 0.16),
            (-GARDEN, 0.16),
            (-KERB, 0.12),
            *zip(across, camber, strict=True),
            (KERB, 0.12),
            (GARDEN, 0.16),
            (GARDEN + 2, 0.16),
        ]
    )
    s = np.linspace(0, road.length[-1], max(2, round(road.length[-1] / 2)))
    zeros = np.zeros(len(profile))
    local = np.stack([zeros, profile[:, 0], profile[:, 1]], 1)
    if road.closed:
        s = s[:-1]
    return grid(
        np.array([transform(road.at(x), local[::-1]) for x in s])[:, ::-1], close_u=road.closed
    )


def _base(road: _Road) -> Mesh:
    """Flat ground below everything, which shows between houses."""
    low, high = road.points.min(0) - 40, road.points.max(0) + 40
    return box([*low, -0.4], [*high, -0.05])


def _houses(rng: np.random.Generator, road: _Road, line: cKDTree, side: int) -> list[Mesh]:
    """House fronts along one side of the road; none stands on the pavement."""
    parts, s = [], 0.5
    whole = float(road.length[-1])
    while s < whole - 6:
        width = rng.uniform(7, 13)
        back = rng.choice([0.2, 0.2, 0.8, 1.5])
        turn = 0.0 if side > 0 else np.pi
        start = upright(-width / 2, 0.0)
        here = road.at(s + width / 2, side * (GARDEN + back), 0.0, turn) @ start
        edge = np.stack([np.linspace(0, width, 9), np.zeros(9), np.zeros(9)], 1)
        foot = np.concatenate([edge, edge + np.array([0, 8.0, 0])])
        if line.query(transform(here, foot)[:, :2])[0].min() > GARDEN - 0.3:
            parts.append(things.house(rng, width).moved(here))
            s += width + (rng.uniform(1.5, 5) if rng.random() < 0.3 else 0.05)
        else:
            s += 2.0
    return parts


def terrain(
    rng: np.random.Generator,
    *,
    strips: int = 4,
    length: float = 200.0,
    width: float = 80.0,
    spacing: float = 0.7,
    overlap: float = 0.4,
    georeferenced: bool = True,
) -> Place:
    """Hills with ridges, terraced fields, houses and trees, in UTM, flown over in strips.

    Parameters
    ----------
    rng : numpy.random.Generator
    strips : int, optional
    length : float, optional
        Of a strip [m].
    width : float, optional
        Of a strip [m].
    spacing : float, optional
        Of points on the ground [m].
    overlap : float, optional
        Of neighbouring strips, as a share of their width.
    georeferenced : bool, optional
        Points are in UTM, as surveyors have them, and the true poses are identity. False: each
        strip is in the frame of its sensor.

    Returns
    -------
    Place

    Examples
    --------
    >>> terrain(np.random.default_rng(0), strips=2).stations.shape
    (2, 4, 4)
    """
    apart = (1 - overlap) * width
    size = np.array([length + 60, (strips - 1) * apart + width + 60])
    land, height = _landscape(rng, size)
    parts, roofs = [land], rng.uniform(0.1, 0.9, (max(4, round(size.prod() / 3500)), 2)) * size
    for (x, y), z in zip(roofs, height(roofs), strict=True):
        parts.append(things.hut(rng).moved(upright(x, y, z, rng.uniform(0, np.pi))))
    groves = rng.uniform(0, 1, (8, 2)) * size
    spots = (groves[:, None] + rng.normal(scale=9, size=(8, 10, 2))).reshape(-1, 2)
    spots = np.concatenate([spots, rng.uniform(0, 1, (40, 2)) * size])
    spots = spots[((spots > 1) & (spots < size - 1)).all(1)]
    spots = spots[cKDTree(roofs).query(spots)[0] > 10]
    for (x, y), z in zip(spots, height(spots), strict=True):
        tree = things.tree(rng, leaf=0.7).scaled(rng.uniform(1, 1.7))
        parts.append(tree.moved(upright(x, y, z - 0.1)))
    flight = float(land.vertices[:, 2].max()) + 250
    stations = []
    for i in range(strips):
        across = 30 + width / 2 + i * apart
        back = i % 2 == 1
        stations.append(
            upright(30.0 + length if back else 30.0, across, flight, np.pi if back else 0.0)
        )
    options = {"length": length, "width": width, "spacing": spacing}
    free = rng.uniform(0.1, 0.9, (400, 2)) * size
    lifted = np.column_stack([free, height(free)])
    return Place(
        "terrain",
        joined(parts),
        np.array(stations),
        "airborne",
        options,
        np.array([upright(x, y, z, rng.uniform(0, 6)) for x, y, z in lifted]),
        traffic=True,
        origin=np.array(UTM) + np.round(rng.uniform(-9000, 9000, 3) * [1, 1, 0.02], 3),
        georeferenced=georeferenced,
    )


def _landscape(
    rng: np.random.Generator, size: Float[Array, " 2"]
) -> tuple[Mesh, Callable[[Float[Array, "n 2"]], Float[Array, " n"]]]:
    """A height field, and the height at points of it."""
    waves = 60
    lengths = np.exp(rng.uniform(np.log(12), np.log(220), waves))
    angle, phase = rng.uniform(0, 2 * np.pi, (2, waves))
    vectors = 2 * np.pi / lengths[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    ridge_at, ridge_turn = rng.uniform(0.3, 0.7, 2) * size, rng.uniform(0, np.pi)
    ridge = np.array([-np.sin(ridge_turn), np.cos(ridge_turn)])
    along = np.array([ridge[1], -ridge[0]])
    field_at = rng.uniform(0.2, 0.8, 2) * size
    field_size = rng.uniform(0.2, 0.35) * size.min()
    rise = rng.uniform(1.0, 1.8)

    def height(at: Float[Array, "n 2"]) -> Float[Array, " n"]:
        z = 0.012 * (lengths * np.cos(at @ vectors.T + phase)).sum(1)
        # A crest that winds; its sides fall by up to 14 m.
        off = (at - ridge_at) @ ridge + 9 * np.sin((at - ridge_at) @ along / 28)
        z = z + 14 * np.exp(-np.abs(off) / 22)
        # Terraces: flat fields with steep banks between them.
        level = z / rise
        step = np.floor(level) + np.clip((level % 1 - 0.8) / 0.2, 0, 1)
        share = np.clip(2 - 2 * np.linalg.norm(at - field_at, axis=1) / field_size, 0, 1)
        terraced: Float[Array, " n"] = (1 - share) * z + share * rise * step
        return terraced

    counts = np.ceil(size / 1.25).astype(int) + 1
    x, y = (np.linspace(0, side, n) for side, n in zip(size, counts, strict=True))
    at = np.stack(np.meshgrid(x, y, indexing="ij"), -1)
    z = height(at.reshape(-1, 2)).reshape(at.shape[:2])
    return grid(np.concatenate([at, z[..., None]], -1)), height
