# SPDX-License-Identifier: MIT
"""Scenes with known poses: a shape without symmetry, a scanner that sees a part of it, noise and
outliers.

Every function draws from the generator it is given, so a seed fixes its result. With the same seed,
scenes that differ only in noise and outliers hold the same points underneath.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.linalg import null_space
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from coframe.geometry import exp_rotation, inverse, pose, random_rotation, transform
from coframe.types import Array, Points, Pose, Poses

# The body is a ball with bumps and dents.
# [chosen so that the longest side of the body is 1] Radius of the ball.
RADIUS = 0.242
# [chosen by hand, so that no view looks like another] A bump a row: its direction (x, y, z), its
# height in log radius, its sharpness.
FEATURES = np.array(
    [
        [0.55, -0.25, 0.80, 0.35, 2.0],  # belly and back
        [-0.90, 0.10, 0.20, 0.45, 3.0],
        [0.15, 0.95, 0.25, 0.70, 12.0],  # head and limbs
        [0.90, 0.40, -0.10, 0.90, 35.0],
        [-0.45, 0.60, -0.70, 0.70, 40.0],
        [0.35, -0.80, -0.50, 0.80, 25.0],
        [-0.60, -0.70, 0.40, 0.65, 45.0],
        [-0.20, 0.30, 0.95, 0.55, 55.0],
        [0.50, 0.55, 0.70, -0.40, 18.0],  # dents
        [-0.75, -0.20, -0.65, -0.45, 14.0],
        [0.60, -0.65, 0.10, -0.35, 25.0],
        [-0.55, 0.25, 0.75, -0.16, 120.0],
        [0.25, 0.15, -0.95, 0.30, 60.0],  # knobs
        [-0.95, 0.35, 0.05, 0.16, 150.0],
        [0.30, -0.40, 0.85, 0.14, 150.0],
        [0.75, -0.20, -0.60, 0.16, 140.0],
        [-0.10, -0.95, 0.10, 0.15, 130.0],
    ]
)

# [derived: bounds the area of the body over that of the ball, everywhere] Rejection sampling.
LARGEST_STRETCH = 16
# [size] Directions drawn at a time.
DIRECTIONS = 8192
# [paper: about what the authors' own views show] Points of a cloud around which its outliers lie.
OUTLIER_CENTRES = 5
# [paper: about what the authors' own views show] Share of the diameter within which they lie.
OUTLIER_RADIUS = 0.25
# [chosen: the scanner looks through one pixel in exp(6) = 400] Points in a pixel of a surface seen
# face-on.
POINTS_PER_PIXEL = 6
# [chosen: most of the body is hidden in any view] Points on the body for each that a view keeps,
# and points on it at least.
POINTS_ON_BODY = 8
LEAST_ON_BODY = 15_000
# [chosen] Sizes of simulated clouds over their mean, least and most.
SIZES = (0.75, 1.25)


@dataclass(frozen=True)
class SampledSurface:
    """Points spread evenly over a surface (in the plane: a curve).

    Attributes
    ----------
    points : array (N, D)
    normals : array (N, D)
        Unit vectors that point out of the body.
    """

    points: Points
    normals: Points


@dataclass(frozen=True)
class SimulatedScene:
    """Clouds in their own frames, and all that a registration should find out about them.

    Attributes
    ----------
    clouds : list of arrays (N_j, D)
    poses : array (M, D+1, D+1)
        Carry each cloud into the common frame.
    outliers : list of bool arrays (N_j,)
        Which points of each cloud lie on no surface.
    noise_variances : array (M,)
        Per coordinate.
    """

    clouds: list[Float[Array, "_ D"]]
    poses: Poses
    outliers: list[Bool[Array, " _"]]
    noise_variances: Float[Array, " M"]


def diameter(points: Points) -> float:
    """The largest distance between two points, one of them on a side of the bounding box.

    Parameters
    ----------
    points : array (N, D)

    Returns
    -------
    float
        The diameter, or close to it.
    """
    return float(cdist(points[[*points.argmin(0), *points.argmax(0)]], points).max())


def shape(count: int, rng: np.random.Generator, dimension: int = 3) -> SampledSurface:
    """Draw points, uniform in area, on a closed bumpy surface whose longest side is 1.

    Parameters
    ----------
    count : int
    rng : numpy.random.Generator
    dimension : int, optional
        3, or 2 for the section z = 0.

    Returns
    -------
    SampledSurface

    Examples
    --------
    >>> shape(1000, np.random.default_rng(0)).points.shape
    (1000, 3)
    """
    parts = [_accepted(DIRECTIONS, rng, dimension)]
    while sum(len(part.points) for part in parts) < count:
        parts.append(_accepted(DIRECTIONS, rng, dimension))
    points = np.concatenate([part.points for part in parts])
    normals = np.concatenate([part.normals for part in parts])
    return SampledSurface(points[:count], normals[:count])


def _accepted(tries: int, rng: np.random.Generator, dimension: int) -> SampledSurface:
    u = _directions(tries, dimension, rng)
    centres, height, sharpness = FEATURES[:, :3], FEATURES[:, 3], FEATURES[:, 4]
    centres = (centres / np.linalg.norm(centres, axis=1, keepdims=True))[:, :dimension]
    # r(u) = RADIUS exp(sum_i height_i exp(sharpness_i (u.c_i - 1))); the normal is along u minus
    # the slope, grad log r.
    bumps = height * np.exp(sharpness * (u @ centres.T - 1))
    gradient = (bumps * sharpness) @ centres
    normals = u - gradient + (gradient * u).sum(1, keepdims=True) * u
    steepness = np.linalg.norm(normals, axis=1, keepdims=True)
    swelling = np.exp(bumps.sum(1, keepdims=True))
    kept = rng.random(tries) * LARGEST_STRETCH < (swelling ** (dimension - 1) * steepness)[:, 0]
    return SampledSurface((RADIUS * swelling * u)[kept], (normals / steepness)[kept])


def surface_of_mesh(
    vertices: Float[Array, "V 3"],
    faces: Integer[Array, "F 3"],
    count: int,
    rng: np.random.Generator,
) -> SampledSurface:
    """Draw points, uniform in area, on a triangle mesh.

    Parameters
    ----------
    vertices : array (V, 3)
    faces : int array (F, 3)
        Counter-clockwise when seen from outside.
    count : int
    rng : numpy.random.Generator

    Returns
    -------
    SampledSurface

    Examples
    --------
    >>> faces = np.array([[0, 1, 2]])
    >>> surface_of_mesh(np.eye(3), faces, 5, np.random.default_rng(0)).normals[0].round(3)
    array([0.577, 0.577, 0.577])
    """
    a, b, c = vertices[faces].swapaxes(0, 1)
    normals = np.cross(b - a, c - a)
    area = np.linalg.norm(normals, axis=1)
    f = rng.choice(len(faces), count, p=area / area.sum())
    s, t = rng.random((2, count, 1))
    s, t = np.where(s + t > 1, 1 - s, s), np.where(s + t > 1, 1 - t, t)
    return SampledSurface(a[f] + s * (b - a)[f] + t * (c - a)[f], normals[f] / area[f, None])


def scan(
    surface: SampledSurface, direction: Float[Array, " D"], *, grazing: float = 80.0
) -> Bool[Array, " N"]:
    """Which points of a surface a scanner far away sees.

    A point is hidden when the front point of its pixel stands more than a pixel above its tangent
    plane.

    Parameters
    ----------
    surface : SampledSurface
    direction : array (D,)
        From the surface to the scanner.
    grazing : float, optional
        Points turned away by more are not seen [degrees].

    Returns
    -------
    bool array (N,)

    Examples
    --------
    >>> body = shape(20_000, np.random.default_rng(0))
    >>> cloud = body.points[scan(body, np.array([0.0, 0.0, 1.0]))]
    """
    points, normals = surface.points, surface.normals
    d = direction / np.linalg.norm(direction)
    spacing = 2 * cKDTree(points).query(points, k=2)[0][:, 1].mean()  # that of random points
    pixel = spacing * POINTS_PER_PIXEL ** (1 / (points.shape[1] - 1))
    image = np.floor(points @ null_space(d[None]) / pixel).astype(int)
    image -= image.min(0)
    index = np.ravel_multi_index(tuple(image.T), tuple(image.max(0) + 1))
    nearest_last = np.argsort(points @ d)
    front = np.zeros(index.max() + 1, dtype=int)
    front[index[nearest_last]] = nearest_last
    above = ((points[front[index]] - points) * normals).sum(1)
    seen: Bool[Array, " N"] = (normals @ d > np.cos(np.radians(grazing))) & (above < pixel)
    return seen


def scene(
    views: int = 4,
    points: int = 1500,
    *,
    degrees: float = 90.0,
    noise_db: float | None = None,
    outliers: float = 0.0,
    motion_degrees: float = 10.0,
    motion_shift: float = 0.05,
    dimension: int = 3,
    surface: SampledSurface | None = None,
    rng: np.random.Generator,
) -> SimulatedScene:
    """Simulate scans from positions around `shape` or a given surface, in whose frame the true
    poses are.

    Parameters
    ----------
    views : int, optional
        Number of clouds. The scanner starts on the z axis and goes about the y axis; in the plane
        it starts on the y axis.
    points : int, optional
        Mean number of clean points in a cloud; each has between 3/4 and 5/4 of it, and no two share
        a point.
    degrees : float, optional
        Angle between the first view and the last, the others evenly between; four views all around
        need 270.
    noise_db : float, optional
        Signal-to-noise ratio: the noise has the cloud's mean coordinate variance /
        10^(noise_db / 10). None: no noise.
    outliers : float, optional
        Outliers at the end of each cloud, around five of its points, as a share of its clean
        points.
    motion_degrees : float, optional
        Angle at most by which a cloud's own frame is turned about the body.
    motion_shift : float, optional
        Share of the body's diameter by which it is moved along each axis, at most.
    dimension : int, optional
        2 or 3; a given surface has its own.
    surface : SampledSurface, optional
    rng : numpy.random.Generator

    Returns
    -------
    SimulatedScene

    Raises
    ------
    ValueError
        If a view sees fewer points than it needs.

    Examples
    --------
    >>> scene(views=3, points=100, rng=np.random.default_rng(0)).poses.shape
    (3, 4, 4)
    """
    owner = rng.integers(views, size=0 if surface is None else len(surface.points))
    clean, poses = [], []
    for j, angle in enumerate(np.linspace(0, degrees, views)):
        if surface is None:
            body, free = (
                shape(max(POINTS_ON_BODY * points, LEAST_ON_BODY), rng, dimension),
                np.True_,
            )
        else:
            body, free = surface, owner == j
        seen = free & scan(body, _turn(angle, body.points.shape[1])[:, -1])
        poses.append(_motion(body.points, motion_degrees, motion_shift, rng))
        clean.append(
            transform(
                inverse(poses[-1]), _some(body.points[seen], points * rng.uniform(*SIZES), rng)
            )
        )
    return _with_noise_and_outliers(clean, np.array(poses), noise_db, outliers, rng)


def paper_views(
    points: Float[Array, "N 3"],
    degrees: Sequence[float] = (0.0, 10.0, 20.0, 30.0),
    count: tuple[int, int] = (1000, 2000),
    *,
    noise_db: float | None = 10.0,
    outliers: float = 0.3,
    rng: np.random.Generator,
) -> SimulatedScene:
    """Simulate the paper's views of a model, by default those of its Table 1.

    The model is centred and scaled to a diameter of 1. Each view turns it by its angle in the xz
    plane, loses the points with negative z, and keeps a random number of the others. The poses turn
    the views back.

    Parameters
    ----------
    points : array (N, 3)
        Of the model.
    degrees : sequence of float, optional
        The angle of each view.
    count : (int, int), optional
        Points of a view, least and most.
    noise_db : float, optional
        As in `scene`.
    outliers : float, optional
        As in `scene`.
    rng : numpy.random.Generator

    Returns
    -------
    SimulatedScene

    Examples
    --------
    >>> model = shape(5000, np.random.default_rng(0)).points
    >>> len(paper_views(model, rng=np.random.default_rng(0)).clouds)
    4
    """
    model = (points - points.mean(0)) / diameter(points)
    turns = pose(np.array([_turn(angle, 3) for angle in degrees]), np.zeros((len(degrees), 3)))
    turned = [transform(turn, model) for turn in turns]
    clean = [_some(x[x[:, 2] >= 0], rng.uniform(*count), rng) for x in turned]
    return _with_noise_and_outliers(clean, inverse(turns), noise_db, outliers, rng)


def _directions(count: int, dimension: int, rng: np.random.Generator) -> Points:
    u = rng.normal(size=(count, dimension))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    return u


def _turn(degrees: float, dimension: int) -> Float[Array, "D D"]:
    return exp_rotation(np.radians([degrees] if dimension == 2 else [0, degrees, 0]))


def _motion(body: Points, degrees: float, shift: float, rng: np.random.Generator) -> Pose:
    R, centre = random_rotation(rng, body.shape[1], degrees), body.mean(0)
    return pose(R, centre - R @ centre + diameter(body) * rng.uniform(-shift, shift, len(centre)))


def _some(points: Points, count: float, rng: np.random.Generator) -> Float[Array, "n D"]:
    if len(points) < round(count):
        raise ValueError(
            f"a view needs {count:.0f} points but sees only {len(points)}: give more points, or ask"
            " for fewer"
        )
    return rng.choice(points, round(count), replace=False)


def _with_noise_and_outliers(
    clean: list[Float[Array, "_ D"]],
    poses: Poses,
    noise_db: float | None,
    outliers: float,
    rng: np.random.Generator,
) -> SimulatedScene:
    variances = np.array(
        [0.0 if noise_db is None else x.var(0).mean() / 10 ** (noise_db / 10) for x in clean]
    )
    noisy = [x + rng.normal(0, np.sqrt(v), x.shape) for x, v in zip(clean, variances, strict=True)]
    strays = [_outliers(x, round(outliers * len(x)), rng) for x in clean]
    labels = [
        np.repeat([False, True], [len(x), len(s)]) for x, s in zip(clean, strays, strict=True)
    ]
    return SimulatedScene(
        [np.concatenate(c) for c in zip(noisy, strays, strict=True)], poses, labels, variances
    )


def _outliers(
    cloud: Points, count: int, rng: np.random.Generator, radius: float = OUTLIER_RADIUS
) -> Float[Array, "S D"]:
    D = cloud.shape[1]
    centres = rng.choice(cloud, OUTLIER_CENTRES, replace=False)
    in_ball = _directions(count, D, rng) * rng.random((count, 1)) ** (1 / D)
    found: Float[Array, "S D"] = rng.choice(centres, count) + radius * diameter(cloud) * in_ball
    return found
