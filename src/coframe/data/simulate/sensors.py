# SPDX-License-Identifier: MIT
"""Sensors that look at a mesh: what each of them measures of it, and what it cannot see.

A sensor stands at a pose, which carries its own frame into that of the scene, and sends rays. Where
a ray hits a face, it measures a point; all noise is along the ray, so that its size along the
normal is that along the ray times the cosine of the angle of incidence. The pattern of the rays is
shifted at random, so that no two scans sample a surface at the same points. Points on no surface
(flying pixels) are marked as outliers; their normals are zeros, their sigma is along the ray.

Frames of cameras: x to the right, y down, z forward. Frames of lidars: x forward, z up.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from coframe.data.simulate.cast import Caster
from coframe.data.simulate.records import Scan, Scans
from coframe.geometry import exp_rotation, rotation, translation
from coframe.geometry import pose as pose_of
from coframe.types import Array, Pose, Poses

# [guard] Share of its distance by which a point lies before itself when the light that falls on it
# is followed: the face that it lies on does not shade it.
SHADE = 1e-6
# [guard] Share of the distance by which two neighbouring rays must differ in length to be on two
# surfaces.
JUMP = 0.05
# [guard] Share of the distance by which the end of each must be off the plane of the other: both
# may be on one surface that is seen at a grazing angle.
OFF_PLANE = 0.01


def turntable(
    caster: Caster,
    pose: Pose,
    rng: np.random.Generator,
    *,
    width: int = 160,
    height: int = 160,
    field: float = 40.0,
    baseline: float = 0.8,
    sigma: float = 0.0007,
    grazing: float = 75.0,
) -> Scan:
    """Scan a body with a triangulation scanner: a camera, and a laser to the right of it.

    The defaults are for a body whose longest side is 1, at a distance of 2.5: it fits into the
    image and gives some thousands of points; noise is that of a tenth of a millimetre on a body of
    15 cm.

    Parameters
    ----------
    caster : Caster
        Of the scene.
    pose : array (4, 4)
        Of the camera: x right, y down, z forward.
    rng : numpy.random.Generator
    width : int, optional
        Columns of the image.
    height : int, optional
        Rows of the image.
    field : float, optional
        Angle of view across the columns [degrees].
    baseline : float, optional
        From the camera to the laser, along x. A point is measured where both see it.
    sigma : float, optional
        Noise along the camera's ray.
    grazing : float, optional
        Angle of incidence up to which surface is measured, of the camera's ray and of the laser's
        [degrees].

    Returns
    -------
    Scan
    """
    directions = _image(width, height, field, rng).reshape(-1, 3)
    ranges, normals = _look(caster, pose, np.zeros(3), directions, np.inf)
    seen = _at_most(grazing, normals, directions) & np.isfinite(ranges)
    points = directions[seen] * ranges[seen, None]
    laser = np.array([baseline, 0.0, 0.0])
    seen[seen] = _lit(caster, pose, laser, points, normals[seen], grazing)
    return _measured(
        pose,
        np.zeros(3),
        directions[seen],
        ranges[seen],
        normals[seen],
        sigma=np.full(seen.sum(), sigma),
        errors=rng.normal(0, sigma, seen.sum()),
        outliers=np.zeros(seen.sum(), bool),
    )


def depth_camera(
    caster: Caster,
    pose: Pose,
    rng: np.random.Generator,
    *,
    width: int = 160,
    height: int = 120,
    field: float = 58.5,
    baseline: float = 0.075,
    near: float = 0.4,
    far: float = 6.0,
    noise: tuple[float, float, float] = (0.0012, 0.0019, 0.4),
    quantum: float = 1 / 348,
    flying: float = 0.3,
    grazing: float = 80.0,
) -> Scan:
    """Take a picture with a depth camera of structured light, in metres.

    The defaults are those of the first Kinect: its angle of view, the distance between its
    projector and its camera, disparities in eighths of a pixel at a focal length of 580 pixels, and
    the noise of the depth z [m] that Nguyen, Izadi and Lovell (2012) found, 0.0012 + 0.0019 (z -
    0.4)^2.

    Parameters
    ----------
    caster : Caster
        Of the scene.
    pose : array (4, 4)
        Of the camera: x right, y down, z forward.
    rng : numpy.random.Generator
    width : int, optional
        Columns of the image.
    height : int, optional
        Rows of the image.
    field : float, optional
        Angle of view across the columns [degrees].
    baseline : float, optional
        From the camera to the projector, along x [m]. A point is measured where both see it.
    near : float, optional
        Least depth [m].
    far : float, optional
        Largest depth [m].
    noise : three floats, optional
        (a, b, c): the standard deviation of the depth z is a + b (z - c)^2 [m].
    quantum : float, optional
        1 / z is measured in multiples of it [1/m]; 0 for any.
    flying : float, optional
        Share of the pixels beside the edge of something nearer that measure a depth between the
        two.
    grazing : float, optional
        Angle of incidence up to which surface is measured [degrees].

    Returns
    -------
    Scan
    """
    image = _image(width, height, field, rng)
    directions = image.reshape(-1, 3)
    ranges, normals = _look(caster, pose, np.zeros(3), directions, far / directions[:, 2])
    mixed = _mixed(ranges, normals, image, flying, rng)
    depth = np.where(np.isfinite(mixed), mixed, ranges) * directions[:, 2]
    seen = np.isfinite(depth) & (depth >= near) & _at_most(grazing, normals, directions)
    points = directions[seen] * ranges[seen, None]
    projector = np.array([baseline, 0.0, 0.0])
    seen[seen] = _lit(caster, pose, projector, points, normals[seen], grazing)
    z = depth[seen]
    sigma = noise[0] + noise[1] * (z - noise[2]) ** 2
    measured = z + rng.normal(size=len(z)) * sigma
    if quantum:
        measured = 1 / (quantum * np.maximum(np.rint(1 / (quantum * measured)), 1))
        sigma = np.hypot(sigma, quantum * z**2 / np.sqrt(12))
    forward = directions[seen, 2]
    return _measured(
        pose,
        np.zeros(3),
        directions[seen],
        z / forward,
        normals[seen],
        sigma=sigma / forward,
        errors=(measured - z) / forward,
        outliers=np.isfinite(mixed[seen]),
    )


def lidar(
    caster: Caster,
    pose: Pose,
    rng: np.random.Generator,
    *,
    rings: int = 32,
    steps: int = 900,
    sigma: float = 0.02,
    reach: float = 80.0,
    elevations: tuple[float, float] = (-30.0, 10.0),
    jitter: float = 0.25,
    mixed: float = 0.1,
    lost: float = 0.02,
    grazing: float = 87.0,
) -> Scan:
    """Turn a spinning lidar once, which stands still meanwhile.

    The defaults are about those of a lidar of 32 lasers on a car, in metres. The rings have the
    same elevations in every scan, as those of a real one have; the azimuth at which a turn begins
    is random.

    Parameters
    ----------
    caster : Caster
        Of the scene.
    pose : array (4, 4)
        Of the lidar: x forward, z up.
    rng : numpy.random.Generator
    rings : int, optional
        Lasers, at even elevations.
    steps : int, optional
        Shots of a laser in one turn.
    sigma : float, optional
        Noise of the range.
    reach : float, optional
        Largest range.
    elevations : two floats, optional
        Of the lowest and the highest ring [degrees].
    jitter : float, optional
        Each shot is off its azimuth by at most this share of a step, at random.
    mixed : float, optional
        Share of the shots beside the edge of something nearer that measure a range between the two.
    lost : float, optional
        Share of the shots that do not come back.
    grazing : float, optional
        Angle of incidence up to which a shot comes back [degrees].

    Returns
    -------
    Scan
    """
    shots = np.arange(steps) + rng.uniform(-jitter, jitter, (rings, steps)) + rng.uniform(0, steps)
    elevation = np.linspace(*elevations, rings)[:, None]
    directions = _sphere(shots * 360 / steps, np.broadcast_to(elevation, shots.shape))
    return _timed(caster, pose, directions, rng, sigma, reach, mixed, lost, grazing)


def terrestrial(
    caster: Caster,
    pose: Pose,
    rng: np.random.Generator,
    *,
    points: int = 200_000,
    sigma: float = 0.002,
    reach: float = 60.0,
    elevations: tuple[float, float] = (-60.0, 90.0),
    mixed: float = 0.1,
    lost: float = 0.01,
    grazing: float = 87.0,
) -> Scan:
    """Scan all around with a terrestrial laser scanner on its tripod.

    Rays have even steps in azimuth and elevation, so that the density of points falls with the
    square of the distance. The defaults are about those of a scanner of buildings, in metres.

    Parameters
    ----------
    caster : Caster
        Of the scene.
    pose : array (4, 4)
        Of the scanner: x forward, z up.
    rng : numpy.random.Generator
    points : int, optional
        Rays, about. Those that hit something within reach give a point.
    sigma : float, optional
        Noise of the range.
    reach : float, optional
        Largest range.
    elevations : two floats, optional
        Lowest, where the tripod begins, and highest [degrees].
    mixed : float, optional
        Share of the rays beside the edge of something nearer that measure a range between the two.
    lost : float, optional
        Share of the rays that do not come back.
    grazing : float, optional
        Angle of incidence up to which a ray comes back [degrees].

    Returns
    -------
    Scan
    """
    low, high = elevations
    step = np.sqrt(360 * (high - low) / points)
    columns = round(360 / step)
    rows = max(round((high - low) / step), 1)
    azimuth = (np.arange(columns) + rng.uniform(0, columns)) * 360 / columns
    elevation = low + (np.arange(rows) + rng.uniform()) * (high - low) / rows
    directions = _sphere(*np.meshgrid(azimuth, elevation))
    return _timed(caster, pose, directions, rng, sigma, reach, mixed, lost, grazing)


def airborne(
    caster: Caster,
    pose: Pose,
    rng: np.random.Generator,
    *,
    length: float,
    width: float,
    spacing: float,
    sigma: float = 0.05,
    tilt: float = 15.0,
    lost: float = 0.01,
    grazing: float = 85.0,
) -> Scan:
    """Scan a strip of terrain from an aircraft.

    Rays come down from the plane z = 0 of the sensor's frame, which lies above all of the terrain:
    vertical in the middle of the strip and outwards at its sides, from the line of flight if it is
    high enough for the width, or else as if from higher above.

    Parameters
    ----------
    caster : Caster
        Of the scene.
    pose : array (4, 4)
        Of the start of the strip: x along the flight, z up.
    rng : numpy.random.Generator
    length : float
        Of the strip, along x.
    width : float
        Of the strip on the ground, at the median height of the scene's vertices, along y, half of
        it on either side.
    spacing : float
        Between rays on the ground, along and across; each is off by at most half of it, at random.
    sigma : float, optional
        Noise of the range.
    tilt : float, optional
        Largest angle between a ray and the vertical [degrees].
    lost : float, optional
        Share of the rays that do not come back.
    grazing : float, optional
        Angle of incidence up to which a ray comes back [degrees].

    Returns
    -------
    Scan
    """
    along = max(round(length / spacing), 1)
    across = max(round(width / spacing), 1)
    row, column = np.meshgrid(np.arange(along), np.arange(across), indexing="ij")
    x = (row + rng.uniform(size=row.shape)).ravel() * length / along
    y = (column + rng.uniform(size=row.shape)).ravel() * width / across - width / 2
    ground = np.median((caster.mesh.vertices - translation(pose)) @ rotation(pose)[:, 2])
    slope = y * min(2 / width * np.tan(np.radians(tilt)), 1 / max(-ground, spacing))
    origins = np.column_stack([x, y + slope * ground, np.zeros_like(x)])
    directions = np.column_stack([np.zeros_like(x), slope, np.full_like(x, -1.0)])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    ranges, normals = _look(caster, pose, origins, directions, np.inf)
    seen = np.isfinite(ranges) & _at_most(grazing, normals, directions)
    seen &= rng.random(len(seen)) >= lost
    return _measured(
        pose,
        origins[seen],
        directions[seen],
        ranges[seen],
        normals[seen],
        sigma=np.full(seen.sum(), sigma),
        errors=rng.normal(0, sigma, seen.sum()),
        outliers=np.zeros(seen.sum(), bool),
    )


def gathered(
    name: str,
    scans: Sequence[Scan],
    rng: np.random.Generator,
    *,
    points: int | None = None,
    unit: str = "m",
) -> Scans:
    """Scans of one scene, with all that is true about them.

    Parameters
    ----------
    name : str
        Of the scene.
    scans : sequence of Scan
    rng : numpy.random.Generator
    points : int, optional
        Random points to keep of each scan; a scan of fewer keeps all. None: all.
    unit : str, optional
        Of lengths.

    Returns
    -------
    Scans
    """
    kept = [_some(len(scan.points), points, rng) for scan in scans]
    return Scans(
        name,
        clouds=[scan.points[rows] for scan, rows in zip(scans, kept, strict=True)],
        poses=np.array([scan.pose for scan in scans]),
        normals=[scan.normals[rows] for scan, rows in zip(scans, kept, strict=True)],
        sigma=[scan.sigma[rows] for scan, rows in zip(scans, kept, strict=True)],
        outliers=[scan.outliers[rows] for scan, rows in zip(scans, kept, strict=True)],
        sensors=np.zeros((len(scans), scans[0].points.shape[1])),
        unit=unit,
    )


def around(
    count: int,
    *,
    distance: float,
    degrees: float = 360.0,
    elevation: float = 15.0,
    variation: float = 3.0,
    rng: np.random.Generator,
) -> Poses:
    """Poses of cameras that look at the origin from directions about the vertical axis z.

    Parameters
    ----------
    count : int
    distance : float
        From the origin, about: it varies by as many hundredths as `variation` has degrees.
    degrees : float, optional
        Angle between the first direction and the last, the others evenly between; 360 for evenly
        all around. The first azimuth is random.
    elevation : float, optional
        Of the cameras above the plane z = 0 [degrees].
    variation : float, optional
        By how much azimuth, elevation, aim and roll vary at most, at random [degrees].
    rng : numpy.random.Generator

    Returns
    -------
    array (count, 4, 4)
        Each carries the frame of a camera (x right, y down, z forward) into that of the scene.
    """
    azimuth = np.linspace(0, degrees, count, endpoint=degrees < 360) + rng.uniform(0, 360)
    off = rng.uniform(-variation, variation, (count, 6))
    eyes = _sphere(azimuth + off[:, 0], elevation + off[:, 1])
    eyes *= distance * (1 + off[:, 2:3] / 100)
    straight = np.array([looking(eye, np.zeros(3)) for eye in eyes])
    return straight @ pose_of(exp_rotation(np.radians(off[:, 3:])), np.zeros((count, 3)))


def looking(eye: Sequence[float | int] | Array, target: Sequence[float | int] | Array) -> Pose:
    """The pose of an upright camera that looks at a point.

    Parameters
    ----------
    eye : three floats
        Position of the camera.
    target : three floats
        In the middle of its image; neither straight above nor below.

    Returns
    -------
    array (4, 4)
        Carries the frame of the camera (x right, y down, z forward) into that of the scene, whose z
        is up.
    """
    forward = np.asarray(target, float) - np.asarray(eye, float)
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    R = np.column_stack([right, np.cross(forward, right), forward])
    return pose_of(R, np.asarray(eye, float))


def _timed(
    caster: Caster,
    pose: Pose,
    rays: Float[Array, "H W 3"],
    rng: np.random.Generator,
    sigma: float,
    reach: float,
    mixed: float,
    lost: float,
    grazing: float,
) -> Scan:
    """A scan of a sensor that measures how long light takes along each ray of a grid."""
    directions = rays.reshape(-1, 3)
    ranges, normals = _look(caster, pose, np.zeros(3), directions, reach)
    between = _mixed(ranges, normals, rays, mixed, rng)
    seen = np.isfinite(ranges) & _at_most(grazing, normals, directions)
    seen &= rng.random(len(seen)) >= lost
    outliers = np.isfinite(between[seen])
    return _measured(
        pose,
        np.zeros(3),
        directions[seen],
        np.where(outliers, between[seen], ranges[seen]),
        normals[seen],
        sigma=np.full(seen.sum(), sigma),
        errors=rng.normal(0, sigma, seen.sum()),
        outliers=outliers,
    )


def _measured(
    pose: Pose,
    origins: Float[Array, "*N 3"],
    directions: Float[Array, "N 3"],
    ranges: Float[Array, " N"],
    normals: Float[Array, "N 3"],
    *,
    sigma: Float[Array, " N"],
    errors: Float[Array, " N"],
    outliers: Bool[Array, " N"],
) -> Scan:
    """The scan of ranges with errors along their rays; sigma is along the rays, too."""
    return Scan(
        points=origins + directions * (ranges + errors)[:, None],
        normals=np.where(outliers[:, None], 0.0, normals),
        sigma=np.where(outliers, sigma, sigma * -_cosine(normals, directions)),
        outliers=outliers,
        pose=pose,
    )


def _look(
    caster: Caster,
    pose: Pose,
    origins: Float[Array, "*N 3"],
    directions: Float[Array, "N 3"],
    far: float | Float[Array, " N"],
) -> tuple[Float[Array, " N"], Float[Array, "N 3"]]:
    """Range of each ray and normal of the face it hits, on the sensor's side; inf and zeros where
    it hits none.
    """
    R = rotation(pose)
    start = np.broadcast_to(origins @ R.T + translation(pose), directions.shape)
    ranges, face = caster.cast(start, directions @ R.T, far)
    normals = caster.normals[face] @ R
    normals *= -np.sign(_cosine(normals, directions))[:, None]
    normals[face < 0] = 0.0
    return ranges, normals


def _lit(
    caster: Caster,
    pose: Pose,
    source: Float[Array, " 3"],
    points: Float[Array, "N 3"],
    normals: Float[Array, "N 3"],
    grazing: float,
) -> Bool[Array, " N"]:
    """Whether light from a source falls on points that lie on the surface, from the right side."""
    way = points - source
    length = np.linalg.norm(way, axis=1)
    way /= length[:, None]
    R = rotation(pose)
    start = np.broadcast_to(R @ source + translation(pose), way.shape)
    _, face = caster.cast(start, way @ R.T, length * (1 - SHADE))
    return (face < 0) & _at_most(grazing, normals, way)


def _mixed(
    ranges: Float[Array, " N"],
    normals: Float[Array, "N 3"],
    rays: Float[Array, "H W 3"],
    share: float,
    rng: np.random.Generator,
) -> Float[Array, " N"]:
    """Range between the own surface and a nearer one beside it, for a share of the rays that pass
    the edge of one; inf for all other rays.

    Only rays that reach the surface behind are mixed: a point on a ray that hits the one in front
    would lie behind what the sensor sees.
    """
    H, W = rays.shape[:2]
    index = np.arange(H * W).reshape(H, W)
    pairs = [(index[1:], index[:-1]), (index[:, 1:], index[:, :-1])]
    directions = rays.reshape(-1, 3)
    front = np.full(H * W, np.inf)
    for one, other in pairs:
        for own, beside in ((one.ravel(), other.ravel()), (other.ravel(), one.ravel())):
            jump = np.isfinite(ranges[own]) & (ranges[own] > (1 + JUMP) * ranges[beside])
            own, beside = own[jump], beside[jump]
            between = (
                directions[own] * ranges[own, None] - directions[beside] * ranges[beside, None]
            )
            off = np.minimum(
                abs(_cosine(normals[own], between)), abs(_cosine(normals[beside], between))
            )
            edge = off > OFF_PLANE * ranges[beside]
            front[own[edge]] = np.minimum(front[own[edge]], ranges[beside[edge]])
    edges = np.flatnonzero(np.isfinite(front))
    chosen = edges[rng.random(len(edges)) < share]
    mixed = np.full(H * W, np.inf)
    mixed[chosen] = front[chosen] + rng.random(len(chosen)) * (ranges[chosen] - front[chosen])
    return mixed


def _image(
    width: int, height: int, field: float, rng: np.random.Generator
) -> Float[Array, "H W 3"]:
    """Rays through the pixels of a camera, all shifted by one random share of a pixel."""
    pixel = 2 * np.tan(np.radians(field) / 2) / width
    x, y = np.meshgrid(np.arange(width) - width / 2, np.arange(height) - height / 2)
    shift = rng.uniform(0, 1, 2)
    rays = np.stack([(x + shift[0]) * pixel, (y + shift[1]) * pixel, np.ones_like(x)], -1)
    return rays / np.linalg.norm(rays, axis=-1, keepdims=True)


def _sphere(azimuth: Float[Array, "*B"], elevation: Float[Array, "*B"]) -> Float[Array, "*B 3"]:
    """Unit vectors of angles [degrees], z up."""
    a, e = np.radians(azimuth), np.radians(elevation)
    return np.stack([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)], -1)


def _cosine(a: Float[Array, "N 3"], b: Float[Array, "N 3"]) -> Float[Array, " N"]:
    return np.einsum("nd,nd->n", a, b)


def _at_most(
    degrees: float, normals: Float[Array, "N 3"], directions: Float[Array, "N 3"]
) -> Bool[Array, " N"]:
    """Whether rays come in from the side of the normals, at an angle of incidence up to this."""
    return -_cosine(normals, directions) >= np.cos(np.radians(degrees))


def _some(count: int, points: int | None, rng: np.random.Generator) -> Array:
    """Rows to keep, in their order."""
    if points is None or points >= count:
        return np.arange(count)
    return np.sort(rng.choice(count, points, replace=False))
