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
from coframe.types import Array

# The shape: a ball with bumps and dents. Each row is a direction (x, y, z), a height in log radius,
# and a sharpness.
RADIUS = 0.242
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

# Nowhere is the shape more than this many times larger than the patch of the ball below it.
LARGEST_STRETCH = 16

# Outliers lie around five points of a cloud, within this share of its extent: about what the
# authors' own views show.
OUTLIER_CENTRES = 5
OUTLIER_RADIUS = 0.25

# A surface seen face-on leaves six points in a pixel of the scanner, and one looks through one
# pixel in exp(6) = 400.
POINTS_PER_PIXEL = 6


@dataclass(frozen=True)
class SampledSurface:
    """Points spread evenly over a surface (in the plane: a curve), with unit normals that point out
    of the body.
    """

    points: Float[Array, "N D"]
    normals: Float[Array, "N D"]


@dataclass(frozen=True)
class SimulatedScene:
    """Clouds in their own frames and all that a registration should find out about them."""

    clouds: list[Float[Array, "_ D"]]
    poses: Float[Array, "M D1 D1"]  # carry each cloud into the common frame
    outliers: list[Bool[Array, " _"]]  # which points of each cloud lie on no surface
    noise_variances: Float[Array, " M"]  # per coordinate


def diameter(points: Float[Array, "N D"]) -> float:
    """The largest distance between two points, one of them on a side of the bounding box: the
    diameter, or close to it.
    """
    return float(cdist(points[[*points.argmin(0), *points.argmax(0)]], points).max())


def shape(count: int, rng: np.random.Generator, dimension: int = 3) -> SampledSurface:
    """`count` points, uniform in area, on a closed bumpy surface whose longest side is 1; in the
    plane, on its section z = 0.

    >>> shape(1000, np.random.default_rng(0)).points.shape
    (1000, 3)
    """
    parts = [_accepted(8192, rng, dimension)]
    while sum(len(part.points) for part in parts) < count:
        parts.append(_accepted(8192, rng, dimension))
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
    """`count` points, uniform in area, on a triangle mesh whose faces run counter-clockwise when
    seen from outside.

    >>> surface_of_mesh(np.eye(3), np.array([[0, 1, 2]]), 5, np.random.default_rng(0)).normals[0].round(3)
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
    """Which points a scanner far away in `direction` sees: not turned away by more than `grazing`
    degrees, and not hidden.

    A point is hidden when the front point of its pixel stands more than a pixel above its tangent
    plane.

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
    """Scans of `shape`, or of a given surface, from places around it. The body's frame is the
    common frame.

    views: number of clouds. The scanner starts on the z axis and goes about the y axis; in the
    plane it starts on the y axis. points: mean number of clean points in a cloud; each has between
    3/4 and 5/4 of it, and no two share a point. degrees: angle between the first view and the last,
    the others evenly between; four views all around need 270. noise_db: signal-to-noise ratio; the
    noise has the cloud's mean coordinate variance / 10^(noise_db / 10). None: no noise. outliers:
    how many outliers are added at the end of each cloud, around five of its points, as a share of
    the clean points. motion_degrees, motion_shift: a cloud's own frame is turned about the body by
    up to this angle, and moved along each axis
        by up to this share of the body's extent.
    dimension: 2 or 3; a given surface has its own.

    >>> scene(views=3, points=100, rng=np.random.default_rng(0)).poses.shape
    (3, 4, 4)
    """
    owner = rng.integers(views, size=0 if surface is None else len(surface.points))
    clean, poses = [], []
    for j, angle in enumerate(np.linspace(0, degrees, views)):
        if surface is None:
            body, free = shape(max(8 * points, 15_000), rng, dimension), np.True_
        else:
            body, free = surface, owner == j
        seen = free & scan(body, _turn(angle, body.points.shape[1])[:, -1])
        poses.append(_motion(body.points, motion_degrees, motion_shift, rng))
        clean.append(
            transform(
                inverse(poses[-1]), _some(body.points[seen], points * rng.uniform(0.75, 1.25), rng)
            )
        )
    return _spoilt(clean, np.array(poses), noise_db, outliers, rng)


def paper_views(
    points: Float[Array, "N 3"],
    degrees: Sequence[float] = (0.0, 10.0, 20.0, 30.0),
    count: tuple[int, int] = (1000, 2000),
    *,
    noise_db: float | None = 10.0,
    outliers: float = 0.3,
    rng: np.random.Generator,
) -> SimulatedScene:
    """The paper's simulated views of a model, by default those of its Table 1. `noise_db` and
    `outliers` are as in `scene`.

    The model is centred and scaled to an extent of 1. Each view turns it by its angle in the xz
    plane, loses the points with negative z, and keeps a random number of the others within `count`.
    The poses turn the views back.

    >>> len(paper_views(shape(5000, np.random.default_rng(0)).points, rng=np.random.default_rng(0)).clouds)
    4
    """
    model = (points - points.mean(0)) / diameter(points)
    turns = pose(np.array([_turn(angle, 3) for angle in degrees]), np.zeros((len(degrees), 3)))
    turned = [transform(turn, model) for turn in turns]
    clean = [_some(x[x[:, 2] >= 0], rng.uniform(*count), rng) for x in turned]
    return _spoilt(clean, inverse(turns), noise_db, outliers, rng)


def _directions(count: int, dimension: int, rng: np.random.Generator) -> Float[Array, "N D"]:
    u = rng.normal(size=(count, dimension))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    return u


def _turn(degrees: float, dimension: int) -> Float[Array, "D D"]:
    return exp_rotation(np.radians([degrees] if dimension == 2 else [0, degrees, 0]))


def _motion(
    body: Float[Array, "N D"], degrees: float, shift: float, rng: np.random.Generator
) -> Float[Array, "D1 D1"]:
    R, centre = random_rotation(rng, body.shape[1], degrees), body.mean(0)
    return pose(R, centre - R @ centre + diameter(body) * rng.uniform(-shift, shift, len(centre)))


def _some(
    points: Float[Array, "N D"], count: float, rng: np.random.Generator
) -> Float[Array, "n D"]:
    if len(points) < round(count):
        raise ValueError(
            f"a view needs {count:.0f} points but sees only {len(points)}: give more points, or ask"
            " for fewer"
        )
    return rng.choice(points, round(count), replace=False)


def _spoilt(
    clean: list[Float[Array, "_ D"]],
    poses: Float[Array, "M D1 D1"],
    noise_db: float | None,
    outliers: float,
    rng: np.random.Generator,
) -> SimulatedScene:
    variances = np.array(
        [0.0 if noise_db is None else x.var(0).mean() / 10 ** (noise_db / 10) for x in clean]
    )
    noisy = [x + rng.normal(0, np.sqrt(v), x.shape) for x, v in zip(clean, variances, strict=True)]
    strays = [_strays(x, round(outliers * len(x)), rng) for x in clean]
    labels = [
        np.repeat([False, True], [len(x), len(s)]) for x, s in zip(clean, strays, strict=True)
    ]
    return SimulatedScene(
        [np.concatenate(c) for c in zip(noisy, strays, strict=True)], poses, labels, variances
    )


def _strays(
    cloud: Float[Array, "N D"], count: int, rng: np.random.Generator
) -> Float[Array, "S D"]:
    D = cloud.shape[1]
    centres = rng.choice(cloud, OUTLIER_CENTRES, replace=False)
    in_ball = _directions(count, D, rng) * rng.random((count, 1)) ** (1 / D)
    strays: Float[Array, "S D"] = (
        rng.choice(centres, count) + OUTLIER_RADIUS * diameter(cloud) * in_ball
    )
    return strays
