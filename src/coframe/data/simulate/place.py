# SPDX-License-Identifier: MIT
"""A place with the stations of a sensor in it, and its scans."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from coframe.data.simulate import sensors, things
from coframe.data.simulate.cast import Caster
from coframe.data.simulate.mesh import Mesh, joined
from coframe.data.simulate.records import Scan, Scans
from coframe.geometry import identity, inverse, pose, rotation, transform, translation
from coframe.types import Array, Pose, Poses

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
    free: Float[Array, "F 4 4"] = field(default_factory=lambda: np.empty((0, 4, 4)))
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
    >>> from coframe.data.simulate.indoors import corridor
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


def _in_view(place: Place, still: Caster, station: Pose) -> Integer[Array, " n"]:
    """The free spots that the sensor sees: rows of place.free."""
    heads = translation(place.free) + np.array([0.0, 0.0, 1.2])
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
        inside |= ((world > low + np.array([0, 0, 0.01]) - margin) & (world < high + margin)).all(1)
    normals = np.where(inside[:, None], 0.0, scan.normals)
    return replace(scan, normals=normals, outliers=scan.outliers | inside)


def tripods(rng: np.random.Generator, at: Float[Array, "M 3"]) -> Poses:
    """Stations of a levelled scanner that looks anywhere.

    Parameters
    ----------
    rng : numpy.random.Generator
    at : array (M, 3)

    Returns
    -------
    array (M, 4, 4)
    """
    return np.array([things.upright(x, y, z, rng.uniform(0, 2 * np.pi)) for x, y, z in at])


def cameras(at: Float[Array, "M 3"], yaw: Float[Array, " M"], pitch: Float[Array, " M"]) -> Poses:
    """Stations of a camera: z forward, x right, y down.

    Parameters
    ----------
    at : array (M, 3)
    yaw : array (M,)
        Direction of view, counter-clockwise from x [rad].
    pitch : array (M,)
        Above the horizon [rad].

    Returns
    -------
    array (M, 4, 4)
    """
    forward = np.stack([np.cos(pitch) * np.cos(yaw), np.cos(pitch) * np.sin(yaw), np.sin(pitch)], 1)
    right = np.stack([np.sin(yaw), -np.cos(yaw), 0 * yaw], 1)
    return pose(np.stack([right, np.cross(forward, right), forward], -1), at)


def spots(rng: np.random.Generator, at: Float[Array, "F 2"]) -> Poses:
    """Where bodies may stand on the ground z = 0, looking anywhere.

    Parameters
    ----------
    rng : numpy.random.Generator
    at : array (F, 2)

    Returns
    -------
    array (F, 4, 4)
    """
    here = [things.upright(x, y, yaw=rng.uniform(0, 2 * np.pi)) for x, y in at]
    return np.array(here).reshape(-1, 4, 4)


def sway(rng: np.random.Generator, frames: int, periods: tuple[float, float]) -> Float[Array, " M"]:
    """Smooth noise of variance 1.

    Parameters
    ----------
    rng : numpy.random.Generator
    frames : int
    periods : two floats
        Shortest and longest wave [frames].

    Returns
    -------
    array (frames,)
    """
    length = rng.uniform(*periods, 6)
    phase = rng.uniform(0, 2 * np.pi, 6)
    waves: Float[Array, "M 6"] = np.cos(2 * np.pi * np.arange(frames)[:, None] / length + phase)
    return waves.sum(1) / np.sqrt(3)
