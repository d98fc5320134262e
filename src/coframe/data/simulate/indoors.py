# SPDX-License-Identifier: MIT
"""Rooms, corridors, stairs and halls, in metres."""

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from coframe.data.simulate import things
from coframe.data.simulate.mesh import Mesh, box, joined, tube
from coframe.data.simulate.place import Place, cameras, sway, tripods
from coframe.data.simulate.place import spots as free_spots
from coframe.data.simulate.things import Patch, panel, upright
from coframe.geometry import transform, translation
from coframe.types import Array, Points, Poses

# [chosen: a tripod] Height of a terrestrial scanner [m].
TRIPOD = 1.6


def room(rng: np.random.Generator, *, sensor: str = "depth_camera") -> Place:
    """A furnished room.

    Parameters
    ----------
    rng : numpy.random.Generator
    sensor : str, optional
        "depth_camera": six to eight views from the middle of the room, of which neighbours share
        40 to 70 % of what they see. "terrestrial": three or four stations.

    Returns
    -------
    Place

    Examples
    --------
    >>> room(np.random.default_rng(0)).sensor
    'depth_camera'
    """
    mesh, half, free = _furnished(rng)
    if sensor == "terrestrial":
        count = int(rng.integers(3, 5))
        angle = rng.uniform(0, 2 * np.pi) + 2 * np.pi * np.arange(count) / count
        at = np.stack([np.cos(angle), np.sin(angle)], 1) * (half - 1.0)
        stations = tripods(rng, np.column_stack([at, np.full(count, TRIPOD)]))
        return Place("room", mesh, stations, sensor, {"points": 60_000}, free)
    count = int(rng.integers(6, 9))
    yaw = rng.uniform(0, 2 * np.pi) + np.radians(24) * np.arange(count)
    yaw = yaw + rng.normal(scale=np.radians(1.0), size=count)
    pitch = -np.radians(rng.uniform(16, 24, count))
    # A person turns on the spot with the camera in front of them.
    at = 0.35 * np.stack([np.cos(yaw), np.sin(yaw), 0 * yaw], 1)
    at += rng.normal(scale=0.05, size=(count, 3)) + np.array([0, 0, 1.5])
    return Place("room", mesh, cameras(at, yaw, pitch), "depth_camera", {}, free)


def room_path(rng: np.random.Generator, frames: int) -> Place:
    """A depth camera in a trembling hand on its way through a room.

    It moves about 2 cm and turns about 1.5 degrees a frame; after 240 frames it has looked around
    once.

    Parameters
    ----------
    rng : numpy.random.Generator
    frames : int

    Returns
    -------
    Place
        With a station for each frame.

    Examples
    --------
    >>> room_path(np.random.default_rng(0), 5).stations.shape
    (5, 4, 4)
    """
    mesh, _, free = _furnished(rng)
    turn = rng.uniform(0, 2 * np.pi) + np.radians(1.5) * np.arange(frames)
    yaw = turn + np.radians(8) * sway(rng, frames, (50.0, 120.0))
    pitch = -np.radians(18) + np.radians(6) * sway(rng, frames, (60.0, 150.0))
    at = 0.6 * np.stack([np.cos(turn), np.sin(turn), 0 * turn], 1) + [0, 0, 1.45]
    at += 0.15 * np.stack([sway(rng, frames, (50.0, 120.0)) for _ in range(3)], 1)
    tremble = np.stack([sway(rng, frames, (2.5, 8.0)) for _ in range(5)], 1)
    at += 0.003 * tremble[:, :3]
    yaw, pitch = yaw + 0.004 * tremble[:, 3], pitch + 0.004 * tremble[:, 4]
    return Place("path through a room", mesh, cameras(at, yaw, pitch), "depth_camera", {}, free)


def _furnished(rng: np.random.Generator) -> tuple[Mesh, Float[Array, " 2"], Poses]:
    """A room about the origin: its mesh, half its sides, and where people may stand."""
    half = np.array([rng.uniform(2.1, 3.1), rng.uniform(1.9, 2.6)])
    high = rng.uniform(2.4, 3.1)
    floor, ceiling = box([*-half, -0.2], [*half, 0.0]), box([*-half, high], [*half, high + 0.2])
    parts, taken = [floor, ceiling], []
    x, y = half
    corners = [(-x, y, 0.0), (x, y, -np.pi / 2), (x, -y, np.pi), (-x, -y, np.pi / 2)]
    kinds = rng.permutation(["door", "window", "pictures", "pictures"])
    for (left, deep, yaw), kind in zip(corners, kinds, strict=True):
        frame = upright(left, deep, yaw=yaw)
        wide = 2 * float(x if round(yaw / np.pi * 2) % 2 == 0 else y)
        patches, blocked = _room_wall(rng, wide, high, kind)
        parts.append(panel(wide, high, patches).moved(frame))
        at = 0.55
        while at < wide - 0.9:
            make = (things.shelf, things.cabinet, things.sofa, things.boxes, things.plant)[
                rng.choice(5, p=[0.25, 0.25, 0.15, 0.2, 0.15])
            ]
            # Sofas and boxes do not reach up to a window.
            if kind == "window" and make is things.shelf:
                make = things.cabinet
            item = make(rng)
            low, up = item.vertices[:, 0].min(), item.vertices[:, 0].max()
            end = at + up - low
            if end < wide - 0.4 and not any(at < b and end > a for a, b in blocked):
                back = 0.02 + max(0.0, item.vertices[:, 1].max())
                parts.append(item.moved(frame @ upright(at - low, -back)))
                taken.append(transform(frame, np.array([[at + (up - low) / 2, -0.3, 0]]))[0, :2])
                at = end
            at += rng.uniform(0.1, 0.5)
    spot = rng.uniform(-0.25, 0.25, 2) * half
    yaw = rng.uniform(-0.4, 0.4)
    dining = upright(spot[0], spot[1], yaw=yaw)
    parts.append(things.table(rng).moved(dining))
    for side in rng.permutation(4)[: rng.integers(2, 5)]:
        seat = [
            (0.75, 0.0, np.pi),
            (-0.75, 0.0, 0.0),
            (0.0, 0.6, -np.pi / 2),
            (0.0, -0.6, np.pi / 2),
        ]
        a, b, turn = seat[side]
        here = dining @ upright(a + rng.normal(scale=0.08), b, yaw=turn + rng.normal(scale=0.2))
        parts.append(things.chair(rng).moved(here))
        taken.append(translation(here)[:2])
    parts.append(box([-0.15, -0.1, 0], [0.1, 0.1, 0.9]).moved(dining @ upright(0.2, 0.1)))
    parts.append(things.ceiling_lamp(rng, high).moved(upright(*spot)))
    corner = rng.choice([-1, 1], 2) * (half - 0.3)
    parts.append(things.floor_lamp(rng).moved(upright(*corner)))
    taken.append(spot)
    spots = rng.uniform(-1, 1, (200, 2)) * (half - 0.5)
    clear = cKDTree(np.array(taken)).query(spots)[0] > 0.7
    return joined(parts), half, free_spots(rng, spots[clear])


def _room_wall(
    rng: np.random.Generator, wide: float, high: float, kind: str
) -> tuple[list[Patch], list[tuple[float, float]]]:
    """Relief of a wall, and the parts of its length that furniture leaves free."""
    patches: list[Patch] = [(0, wide, 0, 0.08, -0.015)]
    if kind == "door":
        left = rng.uniform(0.4, wide - 1.5)
        return patches + things.door_patches(left), [(left - 0.2, left + 1.15)]
    if kind == "window":
        count = int(rng.integers(1, 3))
        size = wide / count
        for i in range(count):
            across = rng.uniform(0.9, min(1.5, size - 0.4))
            left = i * size + (size - across) / 2 + rng.uniform(-0.1, 0.1)
            tall = min(1.4, high - 1.2)
            patches += things.window_patches(left, 0.95, across, tall)
            ribs = np.arange(left, left + across - 0.06, 0.12)
            patches += [(rib, rib + 0.07, 0.15, 0.75, -0.07) for rib in ribs]
        return patches, []
    at = rng.uniform(0.3, 0.8)
    while at < wide - 0.9:
        across, tall = rng.uniform(0.3, 0.8), rng.uniform(0.3, 0.7)
        low = rng.uniform(1.3, 1.6)
        patches += things.picture_patches(at, low, across, tall, rng.uniform(0.02, 0.05))
        at += across + rng.uniform(0.3, 1.0)
    return patches, []


def corridor(
    rng: np.random.Generator,
    *,
    length: float = 27.0,
    doors: bool = True,
    unique: bool = False,
    reach: float = 6.0,
    step: float = 5.0,
) -> Place:
    """A corridor seen through windows of 12 m, 5 m apart.

    Parameters
    ----------
    rng : numpy.random.Generator
    length : float, optional
        Of the part that is seen; its ends lie beyond [m].
    doors : bool, optional
        Door recesses and lamps every 3 m. False: nothing but what fixes the position across, so
        that the position along the corridor is not determined at all.
    unique : bool, optional
        With benches, signs, extinguishers and a niche, which fix the position along it.
    reach : float, optional
        Of the terrestrial scanner: half the length of a window [m].
    step : float, optional
        Between neighbouring stations [m].

    Returns
    -------
    Place

    Examples
    --------
    >>> corridor(np.random.default_rng(0)).stations[:, 0, 3].round()
    array([ 6., 11., 16., 21.])
    """
    period, beyond = 3.0, 4.5
    wide, high = rng.uniform(1.8, 2.6), rng.uniform(2.4, 2.9)
    whole = length + 2 * beyond
    left: list[Patch] = [(0, whole, 0, 0.09, -0.018)]
    right: list[Patch] = [(0, whole, 0, 0.09, -0.018)]
    parts = [
        box([0, -wide / 2, -0.2], [whole, wide / 2, 0]),
        box([0, -wide / 2, high], [whole, wide / 2, high + 0.2]),
    ]
    if doors:
        first, other = rng.uniform(0.2, 1.6, 2)
        lamp = rng.uniform(0.5, 1.5)
        for start in np.arange(0, whole - period + 0.5, period):
            left += things.door_patches(start + first)
            right += things.door_patches(start + other)
            at = start + lamp
            parts.append(box([at, -0.15, high - 0.08], [at + 1.2, 0.15, high]))
            for side, door in ((1, first), (-1, other)):
                knob = tube(
                    np.array([[0.0, 0, 0], [0.0, 0.08, 0], [0.12, 0.08, 0]]), 0.012, sides=6
                )
                along = start + door + 0.1 if side > 0 else whole - (start + door + 0.1)
                at_wall = upright(along, side * (wide / 2 + 0.12), 1.05, np.pi if side > 0 else 0.0)
                parts.append(knob.moved(at_wall))
    else:
        parts.append(box([0, -0.06, high - 0.06], [whole, 0.06, high]))
    if unique:
        niche = rng.uniform(beyond + 0.35 * length, beyond + 0.5 * length)
        left.append((niche, niche + 1.8, 0, 2.2, 1.1))
        parts += _corridor_things(rng, wide, high, beyond, length, niche)
    parts.append(panel(whole, high, left).moved(upright(0.0, wide / 2)))
    parts.append(panel(whole, high, right).moved(upright(whole, -wide / 2, yaw=np.pi)))
    parts.append(panel(wide, high).moved(upright(whole, wide / 2, yaw=-np.pi / 2)))
    parts.append(panel(wide, high).moved(upright(0.0, -wide / 2, yaw=np.pi / 2)))
    x = np.arange(reach, length - reach + 1e-6, step)
    at = np.stack([x, rng.uniform(-0.2, 0.2, len(x)), np.full(len(x), TRIPOD)], 1)
    free = np.stack([rng.uniform(0, length, 300), rng.uniform(-0.5, 0.5, 300) * (wide - 0.8)], 1)
    kind = ("with doors" if doors else "without doors") + (", with unique things" if unique else "")
    return Place(
        f"corridor {kind}",
        joined(parts).shifted([-beyond, 0, 0]),
        tripods(rng, at),
        "terrestrial",
        {"points": 60_000, "reach": reach},
        free_spots(rng, free),
        repeats=np.empty((0, 3)) if unique else np.array([[period, 0.0, 0.0]]),
    )


def _corridor_things(
    rng: np.random.Generator, wide: float, high: float, start: float, length: float, niche: float
) -> list[Mesh]:
    """Benches, plants, boxes, signs and extinguishers, about one on each 1.7 m."""
    parts = []
    makers = (things.bench, things.extinguisher, things.plant, things.boxes, things.cabinet)
    count = int(length / 1.7)
    for i in range(count):
        at = start + (i + rng.uniform(0.2, 0.8)) * length / count
        if rng.random() < 0.25:
            low, size = high - rng.uniform(0.3, 0.5), rng.uniform(0.2, 0.45)
            y = rng.uniform(-0.4, 0.4)
            parts.append(box([at, y - size, low], [at + 0.04, y + size, low + 0.22]))
            continue
        item = makers[rng.integers(len(makers))](rng)
        side = rng.choice([-1, 1])
        if side > 0 and niche - 0.8 < at < niche + 2.6:
            side = -1
        back = 0.02 + max(0.0, item.vertices[:, 1].max())
        here = upright(at, side * (wide / 2 - back), yaw=0.0 if side > 0 else np.pi)
        parts.append(item.moved(here))
    inside = things.boxes(rng).moved(upright(niche + 0.7, wide / 2 + 0.6, yaw=rng.uniform(0, 3)))
    return [*parts, inside]


def stairs(rng: np.random.Generator, *, unique: bool = False) -> Place:
    """A stairwell: flights with equal steps, landings, railings; a station on each landing.

    Parameters
    ----------
    rng : numpy.random.Generator
    unique : bool, optional
        With something else on each landing. False: a storey looks like every other.

    Returns
    -------
    Place

    Examples
    --------
    >>> stairs(np.random.default_rng(0), unique=True).stations.shape
    (5, 4, 4)
    """
    rise, going, steps = rng.uniform(0.155, 0.175), rng.uniform(0.27, 0.3), int(rng.integers(9, 11))
    flight, gap, landing = rng.uniform(1.05, 1.3), rng.uniform(0.2, 0.4), rng.uniform(1.3, 1.6)
    storey, wide = 2 * steps * rise, 2 * flight + gap
    start, end = landing, landing + steps * going
    deep = end + landing
    # Two storeys below the stations and two above them, so that neither end is seen.
    storeys, below = 7, 2
    bare, door_left = deep, rng.uniform(0.3, wide - 1.4)
    window_left = rng.uniform(0.4, wide - 1.4)
    parts, south, north = [], [], []
    for level in range(storeys):
        low = level * storey
        parts.append(box([0, 0, low - 0.2], [wide, start, low]))
        half = low + storey / 2
        parts.append(box([0, end, half - 0.2], [wide, deep, half]))
        south += [_lifted(patch, low) for patch in things.door_patches(wide - door_left - 0.95)]
        north += [
            _lifted(patch, half) for patch in things.window_patches(window_left, 0.9, 1.0, 1.2)
        ]
        for step in range(steps):
            y, z = start + step * going, low + (step + 1) * rise
            parts.append(box([0, y, z - 0.22], [flight, y + going, z]))
            y, z = end - step * going, half + (step + 1) * rise
            parts.append(box([flight + gap, y - going, z - 0.22], [wide, y, z]))
        parts += _railing(flight, start, end, low, half)
        parts += _railing(flight + gap, end, start, half, low + storey)
    whole = storeys * storey
    parts.append(panel(wide, whole, north).moved(upright(0.0, deep)))
    parts.append(panel(wide, whole, south).moved(upright(wide, 0.0, yaw=np.pi)))
    parts.append(panel(bare, whole).moved(upright(wide, deep, yaw=-np.pi / 2)))
    parts.append(panel(bare, whole).moved(upright(0.0, 0.0, yaw=np.pi / 2)))
    at, free = [], []
    for landing_number in range(5):
        z = storey * (below + landing_number / 2)
        middle = 0.75 * landing if landing_number % 2 == 0 else deep - 0.75 * landing
        at.append([wide / 2, middle, z + TRIPOD] + rng.normal(scale=0.1, size=3) * [1, 1, 0.3])
        free += [upright(x, middle, z, rng.uniform(0, 6)) for x in rng.uniform(0.4, wide - 0.4, 6)]
        if unique:
            parts += _landing_things(rng, landing_number, wide, deep, z)
    return Place(
        "stairs with unique things" if unique else "stairs",
        joined(parts).shifted([0, 0, -below * storey]),
        tripods(rng, np.array(at) - [0, 0, below * storey]),
        "terrestrial",
        {"points": 60_000, "reach": 5.0},
        upright(0.0, 0.0, -below * storey) @ np.array(free),
        repeats=np.empty((0, 3)) if unique else np.array([[0.0, 0.0, storey]]),
    )


def _lifted(patch: Patch, by: float) -> Patch:
    left, right, low, high, depth = patch
    return left, right, low + by, high + by, depth


def _railing(x: float, y0: float, y1: float, z0: float, z1: float) -> list[Mesh]:
    rail = np.array([[x, y0, z0 + 0.95], [x, y1, z1 + 0.95]])
    parts = [tube(rail, 0.025, sides=8)]
    for share in np.linspace(0.03, 0.97, 8):
        y, z = y0 + share * (y1 - y0), z0 + share * (z1 - z0)
        parts.append(tube(np.array([[x, y, z - 0.1], [x, y, z + 0.95]]), 0.01, sides=6))
    return parts


def _landing_things(
    rng: np.random.Generator, number: int, wide: float, deep: float, z: float
) -> list[Mesh]:
    """Something in a corner of a landing, and something on the wall."""
    makers = (things.plant, things.boxes, things.bicycle, things.cabinet, things.boxes)
    near = number % 2 == 0
    item = makers[number](rng)
    x = wide - 0.6 if rng.random() < 0.5 else 0.6
    y, yaw = (0.3, np.pi) if near else (deep - 0.3, 0.0)
    board = box([0, 0, 0], [rng.uniform(0.3, 0.8), 0.05, rng.uniform(0.3, 0.6)])
    on_wall = board.shifted([rng.uniform(0.2, wide - 1), 0.0 if near else deep - 0.05, z + 1.3])
    return [item.moved(upright(x, y, z, yaw)), on_wall]


def hall(rng: np.random.Generator, *, unique: bool = False) -> Place:
    """A hall with equal pillars on a grid.

    Parameters
    ----------
    rng : numpy.random.Generator
    unique : bool, optional
        With goods, a partition, a machine and a cart. False: the stations see neither a wall nor
        anything else that says between which pillars they are.

    Returns
    -------
    Place

    Examples
    --------
    >>> len(hall(np.random.default_rng(0)).repeats)
    2
    """
    spacing, high = rng.uniform(4.5, 5.5), rng.uniform(3.2, 4.2)
    size, beam = rng.uniform(0.2, 0.3), rng.uniform(0.25, 0.4)
    outer = 4.5 * spacing
    parts = [box([-outer, -outer, -0.2], [outer, outer, 0])]
    parts.append(box([-outer, -outer, high], [outer, outer, high + 0.2]))
    parts.append(box([-outer, -outer, -0.1], [outer, outer, high + 0.1], inside_out=True))
    lines = spacing * np.arange(-4, 5)
    half = size / 2 if (round_pillar := rng.random() < 0.5) else size
    for x in lines:
        parts.append(box([x - half, -outer, high - beam], [x + half, outer, high]))
        for y in lines:
            foot = box([-size - 0.08, -size - 0.08, 0], [size + 0.08, size + 0.08, 0.15])
            pillar = (
                things.cylinder(size, 0.0, high)
                if round_pillar
                else box([-size, -size, 0], [size, size, high])
            )
            parts.append(joined([foot, pillar]).shifted([x, y, 0]))
    bays = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)]) * spacing
    at = bays + rng.uniform(-0.25, 0.25, (4, 2)) * spacing
    if unique:
        parts += _hall_things(rng, spacing, at)
    cells = np.array([(a, b) for a in range(-4, 4) for b in range(-4, 4)]) + 0.5
    free = cells * spacing + rng.uniform(-0.3, 0.3, cells.shape) * spacing
    return Place(
        "hall with unique things" if unique else "hall",
        joined(parts),
        tripods(rng, np.column_stack([at, np.full(4, TRIPOD)])),
        "terrestrial",
        {"points": 100_000, "reach": 10.0},
        free_spots(rng, free),
        repeats=np.empty((0, 3)) if unique else spacing * np.eye(3)[:2],
    )


def _hall_things(rng: np.random.Generator, spacing: float, stations: Points) -> list[Mesh]:
    """Goods on pallets, shelves and a partition, away from the stations."""
    parts = []
    makers = (things.boxes, things.cabinet, things.car, things.shelf, things.bench)
    for _ in range(22):
        at = rng.uniform(-1.9, 1.9, 2) * spacing
        if np.linalg.norm(stations - at, axis=1).min() < 2.5:
            continue
        here = upright(at[0], at[1], yaw=rng.uniform(0, 2 * np.pi))
        if rng.random() < 0.35:
            pallet = box([-0.6, -0.4, 0], [0.6, 0.4, 0.14])
            parts.append(pallet.moved(here))
            parts.append(things.debris(rng, np.array([*at, 0.14]), 0.35, 6))
        else:
            parts.append(makers[rng.integers(len(makers))](rng).moved(here))
    end = rng.uniform(0.9, 1.5) * spacing
    wall = box([0, -0.08, 0], [spacing * 0.8, 0.08, rng.uniform(1.8, 2.6)])
    parts.append(wall.moved(upright(end, rng.uniform(-1, 1) * spacing, yaw=rng.uniform(1, 2))))
    return parts
