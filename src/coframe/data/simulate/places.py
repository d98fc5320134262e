# SPDX-License-Identifier: MIT
"""Rooms, corridors, stairs, facades, halls, streets and terrain, with the stations of a sensor in
them, in metres.

A seed makes another place: sizes, furniture and positions are drawn from the generator. Places
that repeat themselves (`unique=False`) look the same from stations a period apart, so that nothing
but the start poses says which of several alignments is the true one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from coframe.data.simulate import sensors, things
from coframe.data.simulate.cast import Caster
from coframe.data.simulate.mesh import Mesh, box, grid, joined, tube
from coframe.data.simulate.records import Scan, Scans
from coframe.data.simulate.things import Patch, panel, upright
from coframe.geometry import exp_rotation, identity, inverse, pose, rotation, transform, translation
from coframe.types import Array, Points, Pose, Poses

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
# [chosen] Moving bodies stand at least so far from the sensor, and at most [m].
NEAREST_BODY = 1.5
FARTHEST_BODY = 18.0

SENSORS: dict[str, Callable[..., Scan]] = {
    "airborne": sensors.airborne,
    "depth_camera": sensors.depth_camera,
    "lidar": sensors.lidar,
    "terrestrial": sensors.terrestrial,
}


@dataclass(frozen=True)
class Place:
    """A place and the stations of a sensor in it.

    Attributes
    ----------
    name : str
    mesh : Mesh
    stations : array (M, 4, 4)
        Poses of the sensor, which carry its frame into the frame of the mesh.
    sensor : str
        Name of a function of `coframe.data.simulate.sensors`.
    options : dict
        Its keywords.
    free : array (F, 4, 4)
        Where moving bodies may stand; x is the direction in which they go.
    traffic : bool
        Whether cars are among the moving bodies.
    repeats : array (R, 3)
        Shifts after which all that the stations see of the place coincides with itself; none where
        something unique is in it.
    origin : array (3,)
        Position of the mesh's origin in the common frame, such as UTM coordinates.
    georeferenced : bool
        Whether the sensor gives its points in the common frame, not in its own.
    """

    name: str
    mesh: Mesh
    stations: Poses
    sensor: str
    options: dict[str, Any] = field(default_factory=dict)
    free: Poses = field(default_factory=lambda: np.empty((0, 4, 4)))
    traffic: bool = False
    repeats: Float[Array, "R 3"] = field(default_factory=lambda: np.empty((0, 3)))
    origin: Float[Array, " 3"] = field(default_factory=lambda: np.zeros(3))
    georeferenced: bool = False


def scanned(
    place: Place, rng: np.random.Generator, *, points: int | None = None, moving: int = 0
) -> Scans:
    """Scan a place from all of its stations.

    Parameters
    ----------
    place : Place
    rng : numpy.random.Generator
        For the sensor's noise, the choice of points and the moving bodies.
    points : int, optional
        Random points kept of each cloud, at most. None: all.
    moving : int, optional
        People and cars that stand somewhere else in every scan and hide what is behind. Their
        points count as outliers. Where a station sees no free ground there are fewer.

    Returns
    -------
    Scans

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scans = scanned(corridor(rng), rng, points=2000)
    >>> len(scans.clouds), scans.unit
    (4, 'm')
    """
    still = Caster.of(place.mesh)
    scans = []
    for station in place.stations:
        bodies = _moving_bodies(place, still, station, moving, rng)
        caster = Caster.of(joined([place.mesh, *bodies])) if bodies else still
        scan = SENSORS[place.sensor](caster, station, rng, **place.options)
        scans.append(_without_surface(scan, bodies))
    gathered = sensors.gathered(place.name, scans, rng, points=points)
    return _in_common_frame(place, gathered)


def _in_common_frame(place: Place, scans: Scans) -> Scans:
    """Add the origin of the place; points of georeferenced sensors go into the common frame."""
    shift = pose(np.eye(3), place.origin)
    poses = shift @ scans.poses
    if not place.georeferenced:
        return replace(scans, poses=poses)
    normals = scans.normals
    return replace(
        scans,
        clouds=[transform(T, cloud) for T, cloud in zip(poses, scans.clouds, strict=True)],
        poses=identity(len(poses), 3),
        normals=None
        if normals is None
        else [n @ rotation(T).T for T, n in zip(poses, normals, strict=True)],
        sensors=translation(poses),
    )


def _moving_bodies(
    place: Place, still: Caster, station: Pose, count: int, rng: np.random.Generator
) -> list[Mesh]:
    if not count or not len(place.free):
        return []
    at = place.free[_in_view(place, still, station)]
    bodies = []
    for spot in rng.permutation(len(at))[:count]:
        here = at[spot]
        # A car needs more room than a person.
        far = np.linalg.norm(translation(here)[:2] - translation(station)[:2]) > 3 * NEAREST_BODY
        drives = place.traffic and far and rng.random() < 0.5
        body = things.car(rng) if drives else things.person(rng)
        bodies.append(body.moved(here))
    return bodies


def _in_view(place: Place, still: Caster, station: Pose) -> Float[Array, " n"]:
    """The free spots that the sensor sees: rows of place.free."""
    heads = translation(place.free) + [0.0, 0.0, 1.2]
    seen = transform(inverse(station), heads)
    if place.sensor == "airborne":
        inside = (seen[:, 0] > 0) & (seen[:, 0] < place.options["length"])
        return np.flatnonzero(inside & (np.abs(seen[:, 1]) < place.options["width"] / 2))
    distance = np.linalg.norm(seen, axis=1)
    farthest = min(FARTHEST_BODY, place.options.get("reach", np.inf))
    near = np.flatnonzero((distance > NEAREST_BODY) & (distance < farthest))
    if place.sensor == "depth_camera":
        near = near[seen[near, 2] > 0.9 * distance[near]]
    rays = (heads[near] - translation(station)) / distance[near, None]
    wall, _ = still.cast(np.broadcast_to(translation(station), rays.shape).copy(), rays)
    return near[wall > distance[near]]


def _without_surface(scan: Scan, bodies: Sequence[Mesh]) -> Scan:
    """The scan with the points on moving bodies marked as outliers."""
    inside = np.zeros(len(scan.points), dtype=bool)
    world = transform(scan.pose, scan.points)
    for body in bodies:
        low, high = body.vertices.min(0), body.vertices.max(0)
        margin = 4 * scan.sigma[:, None]
        # What is within a centimetre of the ground is the ground.
        inside |= ((world > low + [0, 0, 0.01] - margin) & (world < high + margin)).all(1)
    normals = np.where(inside[:, None], 0.0, scan.normals)
    return replace(scan, normals=normals, outliers=scan.outliers | inside)


# Rooms


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
        stations = _tripods(rng, np.column_stack([at, np.full(count, TRIPOD)]))
        return Place("room", mesh, stations, sensor, {"points": 60_000}, free)
    count = int(rng.integers(6, 9))
    yaw = rng.uniform(0, 2 * np.pi) + np.radians(24) * np.arange(count)
    yaw = yaw + rng.normal(scale=np.radians(1.0), size=count)
    pitch = -np.radians(rng.uniform(8, 16, count))
    # A person turns on the spot with the camera in front of them.
    at = 0.35 * np.stack([np.cos(yaw), np.sin(yaw), 0 * yaw], 1)
    at += rng.normal(scale=0.05, size=(count, 3)) + [0, 0, 1.5]
    return Place("room", mesh, _cameras(at, yaw, pitch), "depth_camera", {}, free)


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
    yaw = turn + np.radians(8) * _sway(rng, frames, (50, 120))
    pitch = -np.radians(12) + np.radians(6) * _sway(rng, frames, (60, 150))
    at = 0.6 * np.stack([np.cos(turn), np.sin(turn), 0 * turn], 1) + [0, 0, 1.45]
    at += 0.15 * np.stack([_sway(rng, frames, (50, 120)) for _ in range(3)], 1)
    tremble = np.stack([_sway(rng, frames, (2.5, 8)) for _ in range(5)], 1)
    at += 0.003 * tremble[:, :3]
    yaw, pitch = yaw + 0.004 * tremble[:, 3], pitch + 0.004 * tremble[:, 4]
    return Place("path through a room", mesh, _cameras(at, yaw, pitch), "depth_camera", {}, free)


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
    dining = upright(*spot, yaw=yaw)
    parts.append(things.table(rng).moved(dining))
    for side in rng.permutation(4)[: rng.integers(2, 5)]:
        seat = [(0.75, 0.0, np.pi), (-0.75, 0.0, 0.0), (0.0, 0.6, -np.pi / 2), (0.0, -0.6, np.pi / 2)]
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
    return joined(parts), half, _spots(rng, spots[clear])


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


# Places that may repeat themselves


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
                knob = tube(np.array([[0.0, 0, 0], [0.0, 0.08, 0], [0.12, 0.08, 0]]), 0.012, sides=6)
                along = start + door + 0.1 if side > 0 else whole - (start + door + 0.1)
                at_wall = upright(along, side * (wide / 2 + 0.12), 1.05, np.pi if side > 0 else 0.0)
                parts.append(knob.moved(at_wall))
    else:
        parts.append(box([0, -0.06, high - 0.06], [whole, 0.06, high]))
    if unique:
        niche = rng.uniform(beyond + 0.35 * length, beyond + 0.5 * length)
        left.append((niche, niche + 1.8, 0, 2.2, 1.1))
        parts += _corridor_things(rng, wide, high, beyond, length, niche)
    parts.append(panel(whole, high, left).moved(upright(0, wide / 2)))
    parts.append(panel(whole, high, right).moved(upright(whole, -wide / 2, yaw=np.pi)))
    parts.append(panel(wide, high).moved(upright(whole, wide / 2, yaw=-np.pi / 2)))
    parts.append(panel(wide, high).moved(upright(0, -wide / 2, yaw=np.pi / 2)))
    x = np.arange(reach, length - reach + 1e-6, step)
    at = np.stack([x, rng.uniform(-0.2, 0.2, len(x)), np.full(len(x), TRIPOD)], 1)
    free = np.stack(
        [rng.uniform(0, length, 300), rng.uniform(-0.5, 0.5, 300) * (wide - 0.8)], 1
    )
    kind = ("with doors" if doors else "without doors") + (", with unique things" if unique else "")
    return Place(
        f"corridor {kind}",
        joined(parts).shifted([-beyond, 0, 0]),
        _tripods(rng, at),
        "terrestrial",
        {"points": 60_000, "reach": reach},
        _spots(rng, free),
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
        north += [_lifted(patch, half) for patch in things.window_patches(window_left, 0.9, 1.0, 1.2)]
        for step in range(steps):
            y, z = start + step * going, low + (step + 1) * rise
            parts.append(box([0, y, z - 0.22], [flight, y + going, z]))
            y, z = end - step * going, half + (step + 1) * rise
            parts.append(box([flight + gap, y - going, z - 0.22], [wide, y, z]))
        parts += _railing(flight, start, end, low, half)
        parts += _railing(flight + gap, end, start, half, low + storey)
    whole = storeys * storey
    parts.append(panel(wide, whole, north).moved(upright(0, deep)))
    parts.append(panel(wide, whole, south).moved(upright(wide, 0, yaw=np.pi)))
    parts.append(panel(bare, whole).moved(upright(wide, deep, yaw=-np.pi / 2)))
    parts.append(panel(bare, whole).moved(upright(0, 0, yaw=np.pi / 2)))
    at, free = [], []
    for landing_number in range(5):
        z = storey * (below + landing_number / 2)
        middle = landing / 2 if landing_number % 2 == 0 else deep - landing / 2
        at.append([wide / 2, middle, z + TRIPOD] + rng.normal(scale=0.1, size=3) * [1, 1, 0.3])
        free += [upright(x, middle, z, rng.uniform(0, 6)) for x in rng.uniform(0.4, wide - 0.4, 6)]
        if unique:
            parts += _landing_things(rng, landing_number, wide, deep, z)
    return Place(
        "stairs with unique things" if unique else "stairs",
        joined(parts).shifted([0, 0, -below * storey]),
        _tripods(rng, np.array(at) - [0, 0, below * storey]),
        "terrestrial",
        {"points": 60_000, "reach": 5.0},
        upright(0, 0, -below * storey) @ np.array(free),
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
            pipe = things.cylinder(0.06, 0, high, sides=10)
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
        _tripods(rng, at - [wide / 2, 0, 0]),
        "terrestrial",
        {"points": 100_000, "reach": 14.0},
        _spots(rng, free - [wide / 2, 0]),
        repeats=np.empty((0, 3)) if unique else np.array([[spacing, 0.0, 0.0]]),
    )


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
                things.cylinder(size, 0, high)
                if round_pillar
                else box([-size, -size, 0], [size, size, high])
            )
            parts.append(joined([foot, pillar]).shifted([x, y, 0]))
    bays = np.array([(a, b) for a in (-0.5, 0.5) for b in (-0.5, 0.5)]) * spacing
    at = bays + rng.uniform(-0.25, 0.25, (4, 2)) * spacing
    if unique:
        parts += _hall_things(rng, spacing, at)
    cells = np.array([(a, b) for a in range(-4, 4) for b in range(-4, 4)]) + 0.5
    free = cells * spacing + rng.uniform(-0.3, 0.3, cells.shape) * spacing
    return Place(
        "hall with unique things" if unique else "hall",
        joined(parts),
        _tripods(rng, np.column_stack([at, np.full(4, TRIPOD)])),
        "terrestrial",
        {"points": 100_000, "reach": 10.0},
        _spots(rng, free),
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
        here = upright(*at, yaw=rng.uniform(0, 2 * np.pi))
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


# Streets


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
        return upright(float(x), float(y), yaw=ahead) @ upright(0, across, z, yaw)


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
    across = -LANE + 0.2 * _sway(rng, count, (30, 80))
    yaw, pitch, roll = (np.radians(a) * _sway(rng, count, (5, 25)) for a in (1.0, 0.4, 0.4))
    z = ROOF + 0.01 * _sway(rng, count, (4, 15))
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
        start = upright(-width / 2, 0)
        here = road.at(s + width / 2, side * (GARDEN + back), 0.0, turn) @ start
        edge = np.stack([np.linspace(0, width, 9), np.zeros(9), np.zeros(9)], 1)
        foot = np.concatenate([edge, edge + [0, 8.0, 0]])
        if line.query(transform(here, foot)[:, :2])[0].min() > GARDEN - 0.3:
            parts.append(things.house(rng, width).moved(here))
            s += width + (rng.uniform(1.5, 5) if rng.random() < 0.3 else 0.05)
        else:
            s += 2.0
    return parts


# Terrain


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
    tilt = 15.0
    apart = (1 - overlap) * width
    size = np.array([length + 60, (strips - 1) * apart + width + 60])
    land, height = _landscape(rng, size)
    parts, roofs = [land], rng.uniform(0.1, 0.9, (max(4, round(size.prod() / 3500)), 2)) * size
    for at in roofs:
        z = float(height(at[None])[0])
        parts.append(things.hut(rng).moved(upright(*at, z, rng.uniform(0, np.pi))))
    groves = rng.uniform(0, 1, (8, 2)) * size
    spots = (groves[:, None] + rng.normal(scale=9, size=(8, 10, 2))).reshape(-1, 2)
    spots = np.concatenate([spots, rng.uniform(0, 1, (40, 2)) * size])
    clear = cKDTree(roofs).query(spots)[0] > 10
    inside = ((spots > 1) & (spots < size - 1)).all(1)
    for at in spots[clear & inside]:
        z = float(height(at[None])[0])
        parts.append(things.tree(rng).scaled(rng.uniform(1, 1.7)).moved(upright(*at, z - 0.1)))
    ground = land.vertices[:, 2]
    flight = float(ground.max()) + 25
    # Rays go outwards below the plane where they begin.
    narrower = 2 * (flight - float(ground.mean())) * np.tan(np.radians(tilt))
    stations = []
    for i in range(strips):
        across = 30 + width / 2 + i * apart
        back = i % 2 == 1
        stations.append(
            upright(30 + length if back else 30, across, flight, np.pi if back else 0.0)
        )
    options = {"length": length, "width": width - narrower, "spacing": spacing, "tilt": tilt}
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


# Stations


def _tripods(rng: np.random.Generator, at: Float[Array, "M 3"]) -> Poses:
    """Levelled scanners that look anywhere."""
    return np.array([upright(*map(float, row), rng.uniform(0, 2 * np.pi)) for row in at])


def _spots(rng: np.random.Generator, at: Float[Array, "F 2"]) -> Poses:
    return np.array([upright(x, y, yaw=rng.uniform(0, 2 * np.pi)) for x, y in at]).reshape(-1, 4, 4)


def _cameras(
    at: Float[Array, "M 3"], yaw: Float[Array, " M"], pitch: Float[Array, " M"]
) -> Poses:
    """Cameras at some points: z forward, x right, y down."""
    forward = np.stack([np.cos(pitch) * np.cos(yaw), np.cos(pitch) * np.sin(yaw), np.sin(pitch)], 1)
    right = np.stack([np.sin(yaw), -np.cos(yaw), 0 * yaw], 1)
    return pose(np.stack([right, np.cross(forward, right), forward], -1), at)


def _sway(
    rng: np.random.Generator, frames: int, periods: tuple[float, float]
) -> Float[Array, " M"]:
    """Smooth noise of variance 1 over the frames."""
    length = rng.uniform(*periods, 6)
    phase = rng.uniform(0, 2 * np.pi, 6)
    waves: Float[Array, "M 6"] = np.cos(2 * np.pi * np.arange(frames)[:, None] / length + phase)
    return waves.sum(1) / np.sqrt(3)
