# SPDX-License-Identifier: MIT
"""Things of which places are put together: walls with relief, furniture, houses, cars, trees.

Each stands on z = 0, in metres. What varies is drawn from the generator.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from coframe.data.simulate.mesh import Mesh, Vector, ball, box, grid, joined, tube
from coframe.geometry import exp_rotation, pose, random_rotation
from coframe.types import Array, Pose

# Left, right, low, high, depth.
Patch: TypeAlias = tuple[float | int, float | int, float | int, float | int, float | int]


def upright(x: float, y: float, z: float = 0.0, yaw: float = 0.0) -> Pose:
    """The pose of something that stands upright.

    Parameters
    ----------
    x : float
    y : float
    z : float, optional
    yaw : float, optional
        Turn about the vertical, counter-clockwise from above [rad].

    Returns
    -------
    array (4, 4)
    """
    return pose(exp_rotation(np.array([0.0, 0.0, yaw])), np.array([x, y, z]))


def quads(corners: Float[Array, "Q 4 3"]) -> Mesh:
    """Flat pieces of four corners each, counter-clockwise when seen from outside.

    Parameters
    ----------
    corners : array (Q, 4, 3)

    Returns
    -------
    Mesh
    """
    first = 4 * np.arange(len(corners))[:, None, None]
    faces = (first + np.array([[0, 1, 2], [0, 2, 3]])).reshape(-1, 3)
    return Mesh(np.asarray(corners, float).reshape(-1, 3), faces)


def panel(width: float, height: float, patches: Sequence[Patch] = ()) -> Mesh:
    """An upright wall in the plane y = 0, seen from negative y, with recesses and raised parts.

    Parameters
    ----------
    width : float
        The wall covers x from 0 to it.
    height : float
    patches : sequence of (left, right, low, high, depth), optional
        Rectangles that lie deeper by so much, or stand out where it is negative. A later one
        replaces what earlier ones say about its part of the wall.

    Returns
    -------
    Mesh
    """
    edges = np.array([patch[:4] for patch in patches], float).reshape(-1, 4)
    x = np.unique(np.clip(np.concatenate([[0, width], edges[:, :2].ravel()]), 0, width))
    z = np.unique(np.clip(np.concatenate([[0, height], edges[:, 2:].ravel()]), 0, height))
    depth = np.zeros((len(x) - 1, len(z) - 1))
    for left, right, low, high, deep in patches:
        across = (x[:-1] >= left) & (x[1:] <= right)
        upward = (z[:-1] >= low) & (z[1:] <= high)
        depth[np.ix_(across, upward)] = deep
    i, j = (index.ravel() for index in np.indices(depth.shape))
    pieces = [_rectangles(x[[i, i + 1, i + 1, i]], depth[i, j], z[[j, j, j + 1, j + 1]])]
    # The sides of a recess join cells of different depth; seen from the deeper one.
    i, j = np.nonzero(depth[:-1] != depth[1:])
    a, b = depth[i, j], depth[i + 1, j]
    pieces.append(_rectangles(x[i + 1], np.stack([a, b, b, a]), z[[j, j, j + 1, j + 1]]))
    i, j = np.nonzero(depth[:, :-1] != depth[:, 1:])
    a, b = depth[i, j], depth[i, j + 1]
    pieces.append(_rectangles(x[[i, i + 1, i + 1, i]], np.stack([a, a, b, b]), z[j + 1]))
    return quads(np.concatenate(pieces))


def _rectangles(
    x: Float[Array, "..."], y: Float[Array, "..."], z: Float[Array, "..."]
) -> Float[Array, "Q 4 3"]:
    """Corners whose coordinates have the shapes (4, Q) or (Q,)."""
    return np.stack(np.broadcast_arrays(x, y, z), axis=-1).swapaxes(0, 1)


def door_patches(left: float, *, width: float = 0.95, height: float = 2.05) -> list[Patch]:
    """A door in a wall: a raised frame, a recess and two shallow fields in the leaf.

    Parameters
    ----------
    left : float
    width : float, optional
    height : float, optional

    Returns
    -------
    list of (left, right, low, high, depth)
    """
    right = left + width
    return [
        (left - 0.07, right + 0.07, 0.0, height + 0.07, -0.02),
        (left, right, 0.0, height, 0.12),
        (left + 0.15, right - 0.15, 0.15, 0.85, 0.14),
        (left + 0.15, right - 0.15, 1.05, height - 0.15, 0.14),
    ]


def window_patches(left: float, low: float, width: float, height: float) -> list[Patch]:
    """A window in a wall: a recess, bars in it, and a sill.

    Parameters
    ----------
    left : float
    low : float
    width : float
    height : float

    Returns
    -------
    list of (left, right, low, high, depth)
    """
    right, high, middle = left + width, low + height, left + width / 2
    return [
        (left, right, low, high, 0.14),
        (left + 0.07, right - 0.07, low + 0.07, high - 0.07, 0.18),
        (middle - 0.04, middle + 0.04, low, high, 0.14),
        (left - 0.05, right + 0.05, low - 0.06, low, -0.07),
    ]


def picture_patches(
    left: float, low: float, width: float, height: float, relief: float
) -> list[Patch]:
    """A framed picture on a wall, which stands out slightly.

    Parameters
    ----------
    left : float
    low : float
    width : float
    height : float
    relief : float

    Returns
    -------
    list of (left, right, low, high, depth)
    """
    edge = 0.05
    return [
        (left, left + width, low, low + height, -relief),
        (left + edge, left + width - edge, low + edge, low + height - edge, -relief / 2),
    ]


def cylinder(radius: float, low: float, high: float, *, sides: int = 20) -> Mesh:
    """An upright cylinder about the z axis, closed at both ends.

    Parameters
    ----------
    radius : float
    low : float
    high : float
    sides : int, optional

    Returns
    -------
    Mesh
    """
    return turned([(0.0, low), (radius, low), (radius, high), (0.0, high)], sides=sides)


def turned(profile: Sequence[tuple[float, float]], *, sides: int = 24) -> Mesh:
    """A body of revolution about the z axis.

    Parameters
    ----------
    profile : sequence of (radius, z)
        From below to above along the outside.
    sides : int, optional

    Returns
    -------
    Mesh
    """
    radius, z = np.array(profile, float).T
    phi = np.linspace(0, 2 * np.pi, sides, endpoint=False)[:, None]
    points = np.broadcast_arrays(np.cos(phi) * radius, np.sin(phi) * radius, z)
    return grid(np.stack(points, -1), close_u=True)


def person(rng: np.random.Generator) -> Mesh:
    """Somebody who stands: a capsule of a person's size.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    height, radius = rng.uniform(1.5, 1.9), rng.uniform(0.2, 0.28)
    angle = np.linspace(0, np.pi / 2, 7)
    below = [(radius * np.sin(a), radius * (1 - np.cos(a))) for a in angle]
    above = [(r, height - z) for r, z in below[::-1]]
    return turned([*below, *above], sides=16)


def table(rng: np.random.Generator) -> Mesh:
    """A table with four legs, its long side along x.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    x, y, z = rng.uniform(0.55, 0.8), rng.uniform(0.35, 0.45), rng.uniform(0.7, 0.78)
    top = box([-x, -y, z - 0.03], [x, y, z])
    return joined([top, *_legs(x - 0.05, y - 0.05, z - 0.03, 0.03)])


def chair(rng: np.random.Generator) -> Mesh:
    """A chair that looks along x.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    half, seat, back = rng.uniform(0.19, 0.23), rng.uniform(0.43, 0.48), rng.uniform(0.85, 1.0)
    parts = [box([-half, -half, seat - 0.04], [half, half, seat])]
    parts += _legs(half - 0.02, half - 0.02, seat - 0.04, 0.018)
    parts.append(box([-half, -half, seat + 0.15], [-half + 0.03, half, back]))
    parts += [
        box([-half, y - 0.02, seat], [-half + 0.03, y + 0.02, seat + 0.16])
        for y in (-half + 0.02, half - 0.02)
    ]
    return joined(parts)


def _legs(x: float, y: float, height: float, half: float) -> list[Mesh]:
    return [
        box([a * x - half, b * y - half, 0.0], [a * x + half, b * y + half, height])
        for a in (-1, 1)
        for b in (-1, 1)
    ]


def shelf(rng: np.random.Generator) -> Mesh:
    """Shelves with books and boxes; the back is in the plane y = 0, the front looks to negative y.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    half, deep, boards = rng.uniform(0.4, 0.7), rng.uniform(0.28, 0.38), int(rng.integers(4, 7))
    spacing = rng.uniform(0.32, 0.38)
    high = boards * spacing
    parts = [box([x - 0.012, -deep, 0], [x + 0.012, 0, high + 0.02]) for x in (-half, half)]
    parts.append(box([-half, -0.01, 0], [half, 0, high]))
    for board in range(boards + 1):
        z = board * spacing
        parts.append(box([-half, -deep, z], [half, 0, z + 0.02]))
        x = -half + rng.uniform(0.02, 0.2)
        while board < boards and x < half - 0.1:
            width = rng.uniform(0.03, 0.12)
            front = rng.uniform(0.02, 0.12)
            top = z + spacing * rng.uniform(0.45, 0.9)
            parts.append(box([x, -deep + front, z], [min(x + width, half), -0.02, top]))
            x += width + (rng.uniform(0.1, 0.3) if rng.random() < 0.2 else 0.004)
    return joined(parts)


def cabinet(rng: np.random.Generator) -> Mesh:
    """A low cabinet with doors and things on it; back in y = 0, front looks to negative y.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    wide, deep, high = rng.uniform(0.9, 1.6), rng.uniform(0.35, 0.5), rng.uniform(0.6, 1.1)
    leaves = int(rng.integers(2, 4))
    size = wide / leaves
    patches = [
        (i * size + 0.02, (i + 1) * size - 0.02, 0.08, high - 0.03, -0.02) for i in range(leaves)
    ]
    front = panel(wide, high, patches).shifted([-wide / 2, -deep - 0.001, 0])
    things = [
        box([x, -0.3, high], [x + rng.uniform(0.08, 0.3), -0.1, high + rng.uniform(0.1, 0.4)])
        for x in rng.uniform(-wide / 2, wide / 2 - 0.3, 3)
    ]
    return joined([box([-wide / 2, -deep, 0], [wide / 2, 0, high]), front, *things])


def sofa(rng: np.random.Generator) -> Mesh:
    """A sofa with cushions; back in the plane y = 0, front looks to negative y.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    half, deep = rng.uniform(0.7, 1.0), rng.uniform(0.8, 0.95)
    parts = [
        box([-half, -deep, 0.08], [half, 0, 0.3]),
        box([-half, -0.25, 0.3], [half, 0, rng.uniform(0.75, 0.9)]),
        box([-half - 0.18, -deep, 0.08], [-half, 0, 0.6]),
        box([half, -deep, 0.08], [half + 0.18, 0, 0.6]),
    ]
    for side in (-1, 1):
        cushion = ball(1.0, rings=10).scaled([half / 2 - 0.02, 0.3, 0.12])
        parts.append(cushion.shifted([side * half / 2, -deep / 2 - 0.1, 0.33]))
    return joined(parts)


def boxes(rng: np.random.Generator) -> Mesh:
    """A few boxes, some on top of others.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    parts, high = [], 0.0
    for _ in range(int(rng.integers(2, 4))):
        x, y, z = rng.uniform(0.12, 0.3), rng.uniform(0.12, 0.25), rng.uniform(0.15, 0.4)
        one = box([-x, -y, high], [x, y, high + z])
        x, y = rng.uniform(-0.08, 0.08, 2)
        parts.append(one.moved(upright(x, y, yaw=rng.uniform(-0.5, 0.5))))
        high += z
    beside = box([-0.2, -0.15, 0], [0.2, 0.15, rng.uniform(0.2, 0.35)])
    parts.append(beside.moved(upright(0.5, rng.uniform(-0.2, 0.2), yaw=rng.uniform(-1, 1))))
    return joined(parts)


def floor_lamp(rng: np.random.Generator) -> Mesh:
    """A lamp that stands on the floor.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    high, wide = rng.uniform(1.4, 1.8), rng.uniform(0.15, 0.24)
    shade = turned([(wide, high - 0.28), (wide * 0.6, high)])
    return joined([cylinder(0.14, 0.0, 0.03), cylinder(0.015, 0.0, high - 0.02, sides=8), shade])


def ceiling_lamp(rng: np.random.Generator, ceiling: float) -> Mesh:
    """A lamp that hangs from the ceiling.

    Parameters
    ----------
    rng : numpy.random.Generator
    ceiling : float

    Returns
    -------
    Mesh
    """
    low, wide = ceiling - rng.uniform(0.5, 0.7), rng.uniform(0.15, 0.28)
    shade = turned([(wide, low), (wide * 0.85, low + 0.08), (0.03, low + wide * 0.9)])
    return joined([cylinder(0.008, low + 0.1, ceiling, sides=6), shade])


def plant(rng: np.random.Generator) -> Mesh:
    """A potted plant.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    pot = turned([(0.0, 0.0), (0.12, 0.0), (0.18, 0.32), (0.15, 0.32), (0.0, 0.28)])
    centre = [0.0, 0.0, rng.uniform(0.7, 0.9)]
    return joined([pot, leaves(rng, centre, [0.28, 0.28, 0.4], count=90, size=0.12)])


def leaves(
    rng: np.random.Generator,
    centre: Vector,
    radii: Vector,
    *,
    count: int,
    size: float,
) -> Mesh:
    """Small triangles turned anyhow, most of them in the outer part of an ellipsoid.

    Parameters
    ----------
    rng : numpy.random.Generator
    centre : three floats
    radii : three floats
    count : int
    size : float
        Length of a leaf, about.

    Returns
    -------
    Mesh
    """
    out = rng.normal(size=(count, 3))
    out *= (rng.uniform(0.25, 1, (count, 1)) ** (1 / 3)) / np.linalg.norm(
        out, axis=1, keepdims=True
    )
    corners = rng.normal(scale=size / 2, size=(count, 3, 3))
    corners += np.asarray(centre) + (out * np.asarray(radii))[:, None]
    return Mesh(corners.reshape(-1, 3), np.arange(3 * count).reshape(-1, 3))


def tree(rng: np.random.Generator, *, leaf: float = 0.35) -> Mesh:
    """A tree: a bent trunk, a few branches, leaves.

    Parameters
    ----------
    rng : numpy.random.Generator
    leaf : float, optional
        Length of a leaf; fewer ones cover the same crown when they are larger.

    Returns
    -------
    Mesh
    """
    high, spread = rng.uniform(4.5, 8.0), rng.uniform(1.2, 2.2)
    z = np.linspace(0, high * 0.75, 8)
    bend = rng.normal(scale=0.02, size=2)
    trunk = np.stack([bend[0] * z**1.5, bend[1] * z**1.5, z], 1)
    thick = rng.uniform(0.1, 0.2)
    parts = [tube(trunk, np.linspace(thick, thick / 3, len(z)), sides=10)]
    parts[0] = joined([parts[0], turned([(thick * 1.6, 0.0), (thick, 0.25)], sides=10)])
    top = trunk[-1]
    for _ in range(4):
        start = trunk[rng.integers(3, 6)]
        end = start + rng.uniform([-0.7, -0.7, 0.6], [0.7, 0.7, 1.4]) * [spread, spread, 1.0]
        parts.append(tube(np.linspace(start, end, 4), np.linspace(0.05, 0.02, 4), sides=6))
        parts.append(
            leaves(
                rng,
                end.tolist(),
                [spread * 0.6] * 2 + [0.9],
                count=round(13.5 / leaf**2),
                size=leaf,
            )
        )
    parts.append(
        leaves(
            rng, top.tolist(), [spread, spread, high * 0.25], count=round(30.6 / leaf**2), size=leaf
        )
    )
    return joined(parts)


def lamp_post(rng: np.random.Generator) -> Mesh:
    """A street lamp whose arm reaches along x.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    high, reach = rng.uniform(5.0, 7.0), rng.uniform(0.6, 1.4)
    arm = np.array([[0, 0, high - 0.4], [0.15, 0, high - 0.1], [reach, 0, high]], float)
    return joined(
        [
            cylinder(0.1, 0.0, 0.9, sides=12),
            cylinder(0.06, 0.9, high - 0.3, sides=12),
            tube(arm, 0.045, sides=8),
            box([reach - 0.1, -0.12, high - 0.08], [reach + 0.45, 0.12, high + 0.04]),
        ]
    )


def car(rng: np.random.Generator) -> Mesh:
    """A car that drives along x.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    length, wide, high = rng.uniform(3.8, 4.9), rng.uniform(1.7, 1.9), rng.uniform(1.4, 1.75)
    bonnet, tail = rng.uniform(0.26, 0.33), rng.choice([0.02, 0.14])
    waist = high * rng.uniform(0.55, 0.62)
    profile = np.array(
        [  # along the car as a share of its length, height; clockwise from the rear bumper
            (0.02, 0.25), (0.0, 0.45), (0.0, waist - 0.05), (tail, waist + 0.04),
            (tail + 0.10, high - 0.06), (tail + 0.22, high), (bonnet + 0.28, high - 0.01),
            (bonnet + 0.22 + 0.16, high - 0.12), (1 - bonnet + 0.03, waist + 0.08),
            (0.97, waist - 0.08), (1.0, waist - 0.25), (1.0, 0.4), (0.98, 0.25),
        ]
    )  # fmt: skip
    profile[7, 0] = min(profile[7, 0], profile[8, 0] - 0.06)
    x = (profile[:, 0] - 0.5) * length
    z = profile[:, 1]
    rows = []
    for share in (-1, -1, -0.9, 0.9, 1, 1):
        # The body narrows above the waist and closes at the sides.
        lean = np.where(z > waist, 1 - 0.22 * (z - waist) / (high - waist), 1.0)
        rows.append(np.stack([x, share * wide / 2 * lean, z], 1))
    middle = np.array([0.0, 0.0, 0.55])
    for end in (0, -1):
        rows[end] = rows[end] * [0, 1, 0] + middle
    inner = [1, 4]
    for row in inner:
        rows[row][:, [0, 2]] = middle[[0, 2]] + 0.96 * (rows[row][:, [0, 2]] - middle[[0, 2]])
    body = grid(np.array(rows), close_v=True)
    wheels = []
    for at in (-0.31, 0.31):
        for side in (-1, 1):
            wheel = cylinder(0.31, -0.11, 0.11)
            turn = pose(
                exp_rotation(np.array([np.pi / 2, 0.0, 0.0])),
                np.array([at * length, side * (wide / 2 - 0.1), 0.31]),
            )
            wheels.append(wheel.moved(turn))
    return joined([body, *wheels])


def bicycle(rng: np.random.Generator) -> Mesh:
    """A bicycle along x.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    angle = np.linspace(0, 2 * np.pi, 25)
    size = rng.uniform(0.3, 0.35)
    around = np.stack([size * np.cos(angle), 0 * angle, size * np.sin(angle) + size], 1)
    wheels = [tube(around + np.array([x, 0, 0]), 0.025, sides=6) for x in (-0.52, 0.52)]
    bars = [
        [(-0.52, size), (-0.15, 0.85)],
        [(-0.1, 0.3), (-0.17, 0.95)],
        [(-0.1, 0.3), (0.38, 0.75)],
        [(-0.15, 0.8), (0.38, 0.8)],
        [(0.52, size), (0.36, 1.0)],
    ]
    frame = [tube(np.array([[x, 0, z] for x, z in bar]), 0.02, sides=6) for bar in bars]
    handle = tube(np.array([[0.36, -0.25, 1.0], [0.36, 0.25, 1.0]]), 0.018, sides=6)
    saddle = box([-0.3, -0.07, 0.93], [-0.05, 0.07, 0.99])
    return joined([*wheels, *frame, handle, saddle])


def bench(rng: np.random.Generator) -> Mesh:
    """A bench along x, its back in the plane y = 0.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    half = rng.uniform(0.5, 0.9)
    parts = [box([-half, y - 0.12, 0.4], [half, y, 0.45]) for y in (-0.02, -0.16, -0.3)]
    parts += [box([x - 0.03, -0.4, 0], [x + 0.03, -0.04, 0.4]) for x in (-half + 0.1, half - 0.1)]
    parts.append(box([-half, -0.05, 0.55], [half, -0.01, 0.8]))
    return joined(parts)


def extinguisher(rng: np.random.Generator) -> Mesh:
    """A fire extinguisher on the wall y = 0.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    low = rng.uniform(0.7, 0.9)
    flask = turned(
        [(0.0, low), (0.08, low), (0.08, low + 0.4), (0.03, low + 0.47), (0.03, low + 0.55)]
    )
    return joined(
        [flask, box([-0.1, -0.02, low + 0.6], [0.1, 0, low + 0.9]).shifted([0, 0.1, 0])]
    ).shifted([0, -0.1, 0])


def house(rng: np.random.Generator, width: float) -> Mesh:
    """A house with a gabled roof; its front, in the plane y = 0 from x = 0 on, looks to negative y.

    Parameters
    ----------
    rng : numpy.random.Generator
    width : float

    Returns
    -------
    Mesh
    """
    storeys = int(rng.integers(2, 5))
    storey, deep = rng.uniform(2.8, 3.3), rng.uniform(7.0, 10.0)
    high, roof = storeys * storey + 0.4, rng.uniform(1.5, 3.0)
    columns = max(2, round(width / rng.uniform(2.2, 3.2)))
    spacing = width / columns
    wide, tall = rng.uniform(0.9, min(1.5, spacing - 0.6)), rng.uniform(1.2, 1.7)
    patches: list[Patch] = [(0, width, 0, rng.uniform(0.3, 0.8), -0.04)]
    patches.append((0, width, high - 0.25, high, -rng.uniform(0.05, 0.25)))
    entrance = int(rng.integers(columns))
    things = []
    for floor in range(storeys):
        for column in range(columns):
            middle = (column + 0.5) * spacing
            if floor == 0 and column == entrance:
                patches += door_patches(middle - 0.55, width=1.1, height=2.2)
                continue
            low = floor * storey + rng.choice([0.9, 1.0])
            patches += window_patches(middle - wide / 2, low, wide, tall)
            if floor > 0 and rng.random() < 0.12:
                slab = box([middle - 0.9, -1.0, low - 0.9], [middle + 0.9, 0, low - 0.75])
                rail = box([middle - 0.9, -1.0, low - 0.75], [middle + 0.9, -0.95, low + 0.15])
                things += [slab, rail]
    steps = box(
        [(entrance + 0.5) * spacing - 0.7, -0.7, 0], [(entrance + 0.5) * spacing + 0.7, 0, 0.15]
    )
    front = panel(width, high, patches)
    eaves = rng.uniform(0.2, 0.5)
    chimney = box([0, -0.3, 0], [0.6, 0.3, 1.4]).shifted(
        [rng.uniform(0.5, width - 1.1), deep / 2 + 0.8, high + roof * 0.6]
    )
    return joined([front, *things, steps, _shell(width, deep, high, roof, eaves), chimney])


def _shell(width: float, deep: float, high: float, roof: float, eaves: float) -> Mesh:
    """Sides, back and gabled roof of a house; its front is open."""
    corners = []
    for x, turn in ((0.0, -1), (width, 1)):
        side = np.array([[x, 0, 0], [x, deep, 0], [x, deep, high], [x, 0, high]])
        gable = np.array([[x, 0, high], [x, deep, high], [x, deep / 2, high + roof]])
        corners += [side[::turn], np.concatenate([gable, gable[-1:]])[::turn]]
    corners.append(np.array([[width, deep, 0], [0, deep, 0], [0, deep, high], [width, deep, high]]))
    drop = eaves * roof / (deep / 2)
    for y in (-eaves, deep + eaves):
        slope = np.array([[0, y, high - drop], [width, y, high - drop]])
        ridge = np.array([[width, deep / 2, high + roof], [0, deep / 2, high + roof]])
        piece = np.concatenate([slope, ridge])
        corners.append(piece if y < 0 else piece[::-1])
    return quads(np.array(corners))


def hut(rng: np.random.Generator) -> Mesh:
    """A plain house for a landscape, about the origin; its walls reach into the ground.

    Parameters
    ----------
    rng : numpy.random.Generator

    Returns
    -------
    Mesh
    """
    wide, deep, high = rng.uniform(8, 16), rng.uniform(7, 11), rng.uniform(3, 6.5)
    walls = box([0, 0, -5], [wide, deep, high])
    roof = _shell(wide, deep, high, rng.uniform(2, 4), rng.uniform(0.3, 0.7))
    return joined([walls, roof]).shifted([-wide / 2, -deep / 2, 0])


def debris(rng: np.random.Generator, centre: Vector, spread: float, count: int) -> Mesh:
    """Boxes turned anyhow about a point, such as goods on a pallet.

    Parameters
    ----------
    rng : numpy.random.Generator
    centre : three floats
    spread : float
    count : int

    Returns
    -------
    Mesh
    """
    parts = []
    for _ in range(count):
        half = rng.uniform(0.15, 0.5, 3)
        at = np.asarray(centre) + rng.normal(scale=spread, size=3) * [1, 1, 0.3]
        at[2] += half[2]
        parts.append(box(-half, half).moved(pose(random_rotation(rng, 3, 15.0), at)))
    return joined(parts)
