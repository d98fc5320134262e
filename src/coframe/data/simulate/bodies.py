# SPDX-License-Identifier: MIT
"""Bodies made of formulas, as triangle meshes, from smooth and nearly symmetric to thin, branching,
folded and with fine relief.

Every body is closed or a union of closed parts that cut through each other. The generator varies
its proportions, so a name with two seeds gives two shapes of a kind.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from scipy.interpolate import PchipInterpolator

from coframe.data.simulate.mesh import (
    Mesh,
    Vector,
    ball,
    box,
    curve,
    displaced,
    grid,
    joined,
    lathe,
    limb,
    prism,
    rod,
    sheet,
    shell,
    tube,
    vertex_normals,
    waves,
    welded,
)
from coframe.geometry import exp_rotation, pose
from coframe.types import Array


def _fitted(*parts: Mesh) -> Mesh:
    """The parts as one mesh whose longest side is 1, about the middle of its box."""
    mesh = joined(parts)
    low, high = mesh.vertices.min(0), mesh.vertices.max(0)
    return welded(Mesh((mesh.vertices - (low + high) / 2) / (high - low).max(), mesh.faces))


def _turned(mesh: Mesh, degrees: Vector, to: Vector = (0, 0, 0)) -> Mesh:
    """The mesh turned by a rotation vector, then shifted."""
    return mesh.moved(
        pose(exp_rotation(np.radians(np.asarray(degrees, float))), np.asarray(to, float))
    )


def _blob(
    centre: Vector,
    size: Vector,
    degrees: Vector = (0, 0, 0),
    *,
    rings: int = 32,
) -> Mesh:
    """An ellipsoid with these half axes."""
    return _turned(welded(ball(rings=rings)).scaled(size), degrees, centre)


def _star(radius: Callable[[Float[Array, "V 3"]], Float[Array, " V"]], *, rings: int = 72) -> Mesh:
    """The surface at the given radius in each direction."""
    sphere = welded(ball(rings=rings))
    return Mesh(sphere.vertices * radius(sphere.vertices)[:, None], sphere.faces)


def _square(count: int) -> tuple[Float[Array, "U V"], Float[Array, "U V"]]:
    """A grid of points of the square from -1 to 1."""
    side = np.linspace(-1, 1, count)
    u, v = np.meshgrid(side, side, indexing="ij")
    return u, v


def _slab(x: Float[Array, "U V"], y: Float[Array, "U V"], z: Float[Array, "U V"]) -> Mesh:
    """A block whose upper side has the height z and whose lower side is flat."""
    return shell(np.stack([x, y, z], -1), np.stack([x, y, np.zeros_like(z)], -1))


def _profile(controls: Sequence[Sequence[float | int]], count: int = 120) -> Float[Array, "V 2"]:
    """A smooth profile for `lathe` whose ends lie on the axis."""
    corners = np.array(controls, float)
    along = np.cumsum([0, *np.linalg.norm(np.diff(corners, axis=0), axis=1)])
    # Between two corners it stays between their values, so that thin walls do not cut each other.
    smooth = PchipInterpolator(along, corners)
    even: Float[Array, "V 2"] = smooth(np.union1d(along, np.linspace(0, along[-1], count)))
    return even


def _step(x: Float[Array, "*N"], width: float) -> Float[Array, "*N"]:
    """From 0 where x is well below zero to 1 where it is well above."""
    return 0.5 * (1 + np.tanh(x / width))


def _direction(rng: np.random.Generator) -> Float[Array, " 3"]:
    u = rng.normal(size=3)
    return u / np.linalg.norm(u)


# Smooth


def _pebble(rng: np.random.Generator) -> Mesh:
    """Smooth: an ellipsoid with a few low waves."""
    size = [1.0, rng.uniform(0.65, 0.85), rng.uniform(0.4, 0.6)]
    body = _star(lambda u: np.exp(0.12 * waves(u, rng, size=2.2)))
    return _fitted(body.scaled(size))


def _bumpy_ball(rng: np.random.Generator) -> Mesh:
    """Smooth: a ball with bumps and dents of one size."""
    return _fitted(_star(lambda u: np.exp(0.13 * waves(u, rng, size=rng.uniform(0.7, 1.0)))))


def _superformula_star(rng: np.random.Generator) -> Mesh:
    """Smooth: rounded arms in a ring, each a little different."""
    arms, sharp = int(rng.integers(4, 7)), rng.uniform(0.5, 0.9)

    def radius(u: Float[Array, "V 3"]) -> Float[Array, " V"]:
        angle = np.arctan2(u[:, 1], u[:, 0])
        ring = np.abs(np.cos(arms * angle / 2)) ** 2 + np.abs(np.sin(arms * angle / 2)) ** 6
        wide = ring ** (-sharp)
        flat = np.sqrt(1 - u[:, 2] ** 2) * (wide - 1) + 1
        return flat * np.exp(0.13 * waves(u, rng, size=1.3))

    return _fitted(_star(radius, rings=90).scaled([1, 1, 0.6]))


def _snail_shell(rng: np.random.Generator) -> Mesh:
    """Smooth, with ribs: a tube that winds up a cone and grows, open at its mouth."""
    turns, growth = rng.uniform(2.8, 3.6), rng.uniform(0.14, 0.18)
    angle = np.linspace(0, 2 * np.pi * turns, 420)
    size = np.exp(growth * (angle - angle[-1]))
    rise = rng.uniform(1.1, 1.7)
    path = np.stack([size * np.cos(angle), size * np.sin(angle), -rise * size], 1)
    radius = 0.52 * size * (1 + 0.035 * np.cos(rng.uniform(14, 18) * angle))
    sides = 48
    rings = tube(path, radius, sides=sides).vertices.reshape(sides, -1, 3)
    inside = path + 0.86 * (rings - path)
    depth = 60
    middle = np.broadcast_to(path[[0, -depth]], (sides, 2, 3))
    surface = np.concatenate(
        [middle[:, :1], rings, inside[:, : -depth - 1 : -1], middle[:, 1:]], axis=1
    )
    return _fitted(welded(grid(surface, close_u=True)))


# Nearly symmetric


def _dimpled_egg(rng: np.random.Generator) -> Mesh:
    """Nearly symmetric: a body of revolution but for one shallow dent on its side."""
    point = np.array([np.cos(0.3), 0, np.sin(0.3)])
    depth, width = rng.uniform(0.04, 0.07), rng.uniform(0.25, 0.4)

    def radius(u: Float[Array, "V 3"]) -> Float[Array, " V"]:
        dent = np.exp(-((u - point) ** 2).sum(1) / (2 * width**2))
        return 1 - depth * dent

    egg = _star(radius).scaled([0.75, 0.75, rng.uniform(0.95, 1.1)])
    pointed = 1 - 0.2 * egg.vertices[:, 2:] * np.array([1, 1, 0])
    return _fitted(Mesh(egg.vertices * pointed, egg.faces))


def _chipped_bowl(rng: np.random.Generator) -> Mesh:
    """Nearly symmetric and thin: a bowl of revolution with one chip in its rim and a faint wave."""
    depth, thick = rng.uniform(0.45, 0.65), rng.uniform(0.035, 0.05)
    foot = 0.35
    outside = [(0, 0.03), (0.2, 0.02), (foot, 0), (foot + 0.03, 0.04), (0.75, 0.35 * depth)]
    rim = [(1.0, depth), (1.0 - thick, depth + 0.01)]
    inside = [(0.75 - thick, 0.35 * depth + thick), (0.3, 0.06 + thick), (0, 0.05 + thick)]
    bowl = lathe(_profile([*outside, *rim, *inside], 150), sides=144)
    x, y, z = bowl.vertices.T
    chip = np.exp(-((np.arctan2(y, x) / 0.16) ** 2)) * _step(np.hypot(x, y) - 0.9, 0.03)
    wave = 0.008 * waves(bowl.vertices, rng, size=1.5)
    return _fitted(Mesh(np.stack([x, y, z + wave - 0.1 * chip], 1), bowl.faces))


def _bottle(rng: np.random.Generator) -> Mesh:
    """Nearly symmetric: a body of revolution but for a raised label and a slight lean."""
    wide, neck = rng.uniform(0.26, 0.34), rng.uniform(0.07, 0.1)
    shoulder = rng.uniform(1.05, 1.3)
    outside = [(0, 0.04), (0.6 * wide, 0.02), (wide, 0.06), (wide, 0.5), (wide, shoulder - 0.2)]
    above = [(0.62 * wide, shoulder + 0.05), (neck, shoulder + 0.25), (neck, 1.75)]
    mouth = [(neck + 0.03, 1.8), (neck + 0.02, 1.86), (neck - 0.02, 1.86), (neck - 0.03, 1.7)]
    body = lathe(_profile([*outside, *above, *mouth, (0, 1.55)], 200), sides=128)
    x, y, z = body.vertices.T
    angle = np.arctan2(y, x)
    label = _step(0.9 - np.abs(angle), 0.02) * _step(0.26 - np.abs(z - 0.5), 0.01)
    letters = np.sin(14 * angle + 3 * np.sin(9 * z)) * np.sin(38 * z) > 0.2
    body = displaced(body, label * (0.012 + 0.008 * letters))
    lean = 0.02 * body.vertices[:, 2] ** 2
    return _fitted(Mesh(body.vertices + lean[:, None] * np.array([0, 1, 0]), body.faces))


# Vessels and other bodies of the household


def _vase(rng: np.random.Generator) -> Mesh:
    """A vessel of revolution with one handle and a relief around its belly."""
    belly, neck, foot = rng.uniform(0.42, 0.55), rng.uniform(0.14, 0.2), rng.uniform(0.2, 0.28)
    outside = [(0, 0.02), (foot, 0), (foot, 0.06), (belly, 0.55), (neck, 1.15), (neck + 0.1, 1.4)]
    inside = [(neck + 0.06, 1.41), (neck - 0.04, 1.15), (belly - 0.08, 0.6), (0, 0.15)]
    body = lathe(_profile([*outside, *inside], 180), sides=128)
    x, y, z = body.vertices.T
    outer = np.einsum("ij,ij->i", vertex_normals(body)[:, :2], body.vertices[:, :2]) > 0
    pattern = np.sin(5 * np.arctan2(y, x) + 9 * z) * np.exp(-(((z - 0.6) / 0.25) ** 2))
    outer = outer * _step(1.2 - z, 0.03)
    body = displaced(body, 0.015 * outer * (pattern + 0.7 * waves(body.vertices, rng, size=0.35)))
    handle = np.array(
        [
            [neck - 0.01, 0, 1.2],
            [neck + 0.22, 0, 1.27],
            [belly + 0.1, 0, 0.95],
            [belly - 0.06, 0, 0.7],
        ]
    )
    return _fitted(body, limb(handle, rng.uniform(0.035, 0.05)))


def _mug(rng: np.random.Generator) -> Mesh:
    """A straight vessel with a handle and a raised drawing."""
    high, wide, thick = rng.uniform(0.9, 1.2), rng.uniform(0.38, 0.46), 0.04
    outline = [(0, 0.03), (wide - 0.1, 0.0), (wide, 0.06), (wide, 0.5 * high), (wide, high - 0.05)]
    rim = [(wide - thick / 2, high), (wide - thick, high - 0.05)]
    inside = [(wide - thick, 0.5 * high), (wide - thick, 0.14), (wide - 0.14, 0.07), (0, 0.07)]
    body = lathe(_profile([*outline, *rim, *inside], 160), sides=128)
    x, y, z = body.vertices.T
    outer = np.hypot(x, y) > wide - thick / 2
    drawing = waves(np.stack([np.arctan2(y, x) * wide, z], -1), rng, size=0.25)
    where = _step(1.0 - np.abs(np.abs(np.arctan2(y, x)) - 1.7), 0.1) * outer
    where = where * _step(high - 0.12 - z, 0.02) * _step(z - 0.12, 0.02)
    body = displaced(body, 0.012 * where * np.tanh(3 * drawing))
    low, top = rng.uniform(0.18, 0.26) * high, rng.uniform(0.78, 0.86) * high
    handle = np.array(
        [
            [wide - 0.03, 0, top],
            [wide + 0.2, 0, top + 0.03],
            [wide + 0.27, 0, (low + 2 * top) / 3],
            [wide + 0.16, 0, low + 0.05],
            [wide - 0.03, 0, low],
        ]
    )
    return _fitted(body, limb(handle, 0.045))


def _teapot(rng: np.random.Generator) -> Mesh:
    """A round body with spout, handle, lid and knob."""
    wide, high = rng.uniform(0.48, 0.58), rng.uniform(0.6, 0.75)
    body = lathe(
        _profile(
            [
                (0, 0),
                (0.3, 0),
                (wide, 0.4 * high),
                (0.33, 0.92 * high),
                (0.3, high),
                (0, 0.97 * high),
            ]
        ),
        sides=112,
    )
    lid = lathe(_profile([(0, -0.05), (0.28, -0.02), (0.25, 0.05), (0.1, 0.12), (0, 0.13)], 40))
    x, z = wide - 0.12, high
    spout = np.array([[x, 0, 0.3 * z], [x + 0.3, 0, 0.42 * z], [x + 0.42, 0, 0.9 * z]])
    spout = np.concatenate([spout, [[x + 0.55, 0.01, 1.1 * z]]])
    handle = np.array(
        [[-x, 0, 0.85 * z], [-x - 0.3, 0, 0.9 * z], [-x - 0.36, 0.02, 0.5 * z], [-x, 0, 0.2 * z]]
    )
    body = displaced(body, 0.006 * waves(body.vertices, rng, size=0.4))
    return _fitted(
        body,
        lid.shifted([0, 0, high]),
        _blob([0, 0, high + 0.16], [0.06, 0.06, 0.05], rings=20),
        limb(spout, np.array([0.15, 0.1, 0.06, 0.05])),
        limb(handle, rng.uniform(0.04, 0.055)),
    )


def _table_lamp(rng: np.random.Generator) -> Mesh:
    """A heavy foot, two thin arms with joints, a thin shade that is open below."""
    foot = lathe(np.array([(0, 0), (0.3, 0), (0.3, 0.04), (0.25, 0.08), (0.05, 0.1), (0, 0.1)]))
    elbow = np.array([-rng.uniform(0.2, 0.35), rng.uniform(-0.1, 0.1), rng.uniform(0.65, 0.8)])
    head = np.array([rng.uniform(0.25, 0.4), rng.uniform(-0.1, 0.1), rng.uniform(1.1, 1.3)])
    inside = [(0, 0.2), (0.08, 0.2), (0.23, -0.14)]
    outside = [(0.255, -0.14), (0.1, 0.22), (0.09, 0.24), (0, 0.24)]
    shade = lathe(_profile([*inside, *outside], 60))
    arm = rng.uniform(0.018, 0.026)
    offset = np.array([0, 0.03, 0])
    return _fitted(
        foot,
        rod([0, 0, 0.08], elbow, arm, steps=30),
        rod(elbow + offset, head + offset, arm, steps=30),
        rod(elbow - 2 * offset, elbow + 2 * offset, 0.05),
        rod(head - offset, head + 2 * offset, 0.045),
        _turned(shade, [0, -rng.uniform(15, 40), 0], head - np.array([0, 0, 0.12])),
        _blob(head - np.array([0, 0, 0.15]), [0.06, 0.06, 0.09], rings=20),
        limb(np.array([[0.28, 0.05, 0.03], [0.42, 0.15, 0.015], [0.5, -0.05, 0.015]]), 0.014),
    )


def _chair(rng: np.random.Generator) -> Mesh:
    """Thin legs, a curved seat, a back of slats, an arm rest on one side."""
    high, back = rng.uniform(0.45, 0.55), rng.uniform(0.95, 1.15)
    u, v = _square(60)
    hollow = 0.03 * (u**2 + v**2) + 0.004 * waves(np.stack([u, v], -1), rng, size=0.6)
    parts = [sheet(np.stack([0.25 * u, 0.26 * v, high + hollow], -1), 0.03)]
    for x, y in [(-1, -1), (-1, 1), (1, -1), (1, 1)]:
        foot = [0.27 * x, 0.27 * y, 0.0]
        parts.append(limb(np.array([[0.22 * x, 0.22 * y, high], foot]), np.array([0.028, 0.018])))
    for left in (-0.22, 0.22):
        post = np.array([[-0.22, left, high], [-0.27, left, 0.75], [-0.33, left, back]])
        parts.append(limb(post, 0.022, steps=60))
    for level in np.linspace(0.3, 0.95, int(rng.integers(3, 6))):
        z = high + level * (back - high)
        bend = np.array([[-0.25, -0.22, z], [-0.31 - 0.03 * level, 0, z], [-0.25, 0.22, z]])
        parts.append(limb(bend - np.array([0.06 * level, 0, 0]), 0.018))
    rest = [[-0.26, -0.23, high + 0.22], [0.0, -0.27, high + 0.24], [0.2, -0.25, high + 0.2]]
    parts.append(limb(np.array([*rest, [0.2, -0.23, high]]), 0.02, steps=60))
    parts.append(limb(np.array([[0.24, -0.24, 0.2], [0.24, 0.24, 0.2]]), 0.014))
    return _fitted(*parts)


def _house(rng: np.random.Generator) -> Mesh:
    """A small house with tiled roof, windows, door, chimney and a lower annex."""
    wide, deep, high = rng.uniform(0.35, 0.45), rng.uniform(0.25, 0.32), rng.uniform(0.3, 0.42)
    ridge = high + rng.uniform(0.2, 0.3)
    parts = [box([-wide, -deep, 0], [wide, deep, high])]
    gable = np.array([[-deep, high - 0.01], [deep, high - 0.01], [0, ridge]])
    attic = prism(gable, -wide, wide).vertices[:, [2, 0, 1]]
    parts.append(Mesh(attic, prism(gable, -wide, wide).faces))
    u, v = _square(90)
    tiles = 0.008 * np.abs(np.sin(18 * u)) + 0.01 * ((9 * v) % 1.0)
    for side in (-1, 1):
        y = side * (deep + 0.05) * (1 + v) / 2
        z = ridge + 0.01 - (ridge - high) * np.abs(y) / deep
        roof = np.stack([side * -(wide + 0.04) * u, y, z + tiles], -1)
        parts.append(sheet(roof, 0.025))
    chimney = rng.uniform(-0.6, 0.6) * wide
    parts.append(box([chimney, 0.1, high], [chimney + 0.07, 0.17, ridge + 0.12]))
    for x in np.linspace(-0.7, 0.7, int(rng.integers(3, 5))) * wide:
        for side in (-1, 1):
            if side == 1 or x < 0.3 * wide:
                wall = side * deep
                parts.append(box([x - 0.04, wall - 0.012, 0.14], [x + 0.04, wall + 0.012, 0.25]))
                parts.append(box([x - 0.05, wall - 0.03, 0.125], [x + 0.05, wall + 0.03, 0.14]))
    parts.append(box([0.5 * wide, -deep - 0.02, 0], [0.5 * wide + 0.1, -deep, 0.22]))
    parts.append(box([0.5 * wide - 0.04, -deep - 0.09, 0], [0.5 * wide + 0.14, -deep, 0.03]))
    annex = rng.uniform(0.15, 0.25)
    parts.append(box([wide, -0.5 * deep, 0], [wide + annex, deep, 0.6 * high]))
    parts.append(
        box([wide, -0.5 * deep - 0.02, 0.6 * high], [wide + annex + 0.03, deep + 0.02, 0.65 * high])
    )
    return _fitted(*parts)


def _car(rng: np.random.Generator) -> Mesh:
    """A body with bonnet, cabin and boot, wheels with arches, one mirror and an antenna."""
    count = 150
    x = np.linspace(-1, 1, count)
    cabin = rng.uniform(0.26, 0.34) * _step(x + 0.62, 0.09) * _step(0.3 - x, 0.1)
    top = 0.34 + cabin + 0.02 * np.cos(3 * x)
    ends = (1 - np.abs(x) ** 12) ** 0.5
    half = rng.uniform(0.38, 0.44) * (0.92 + 0.08 * np.cos(1.4 * x))
    angle = np.linspace(0, 2 * np.pi, 120, endpoint=False)[:, None]
    c, s = np.cos(angle), np.sin(angle)
    square = 0.35
    across = np.sign(c) * np.abs(c) ** square
    up = np.sign(s) * np.abs(s) ** square
    middle, tall = (top + 0.1) / 2, (top - 0.1) / 2
    narrow = 1 - 0.22 * np.clip((middle + tall * up - 0.36) / 0.3, 0, 1)
    y = -half * across * narrow * ends
    z = middle + tall * up * ends
    hull = welded(grid(np.stack([np.broadcast_to(x, y.shape), -y, z], -1), close_u=True))
    parts = [hull]
    wheel = rng.uniform(0.15, 0.18)
    front, rear = rng.uniform(0.58, 0.66), -rng.uniform(0.55, 0.62)
    tyre = [(0, 0), (0.5 * wheel, 0), (0.6 * wheel, 0.03), (wheel, 0.02), (wheel, 0.13)]
    rim = lathe(np.array([*tyre, (0.6 * wheel, 0.12), (0.5 * wheel, 0.15), (0, 0.15)]), sides=40)
    for at in (front, rear):
        for side in (-1, 1):
            parts.append(_turned(rim, [side * -90, 0, 0], [at, side * 0.3, wheel]))
    parts.append(_blob([0.18, -0.48, 0.42], [0.03, 0.06, 0.045], rings=16))
    parts.append(limb(np.array([[-0.6, 0.2, 0.4], [-0.72, 0.2, 0.8]]), 0.012))
    parts.append(box([0.9, -0.3, 0.14], [1.02, 0.3, 0.22]))
    parts.append(box([-1.02, -0.32, 0.16], [-0.9, 0.32, 0.24]))
    return _fitted(*parts)


# Thin


def _leaf(rng: np.random.Generator) -> Mesh:
    """Thin: a curved leaf with veins and a stalk."""
    along = np.linspace(0, 1, 160)[:, None]
    across = np.linspace(-1, 1, 70)[None, :]
    width = 0.005 + rng.uniform(0.24, 0.32) * np.sin(np.pi * along**0.8) ** 0.9
    width = width * (1 + 0.05 * np.sin(rng.uniform(40, 55) * along) * np.sign(across))
    y = width * across
    bend, curl = rng.uniform(0.15, 0.3), rng.uniform(0.3, 0.9)
    veins = (
        0.008 * np.cos(26 * (along - 0.6 * np.abs(across) * width)) * np.minimum(np.abs(y) * 9, 1)
    )
    z = bend * np.sin(2.4 * along) + curl * y * np.abs(y) + 0.4 * y**2 + veins
    z = z + 0.05 * waves(np.stack(np.broadcast_arrays(along, y), -1), rng, size=0.7)
    side = rng.uniform(0.1, 0.25) * along**2
    points = np.stack(np.broadcast_arrays(along, y + side, z), -1)
    stalk = np.array([points[30, 35], points[0, 35], points[0, 35] + [-0.2, -0.04, -0.03]])
    return _fitted(sheet(points, 0.012), limb(stalk, np.array([0.008, 0.012, 0.014])))


def _crumpled_paper(rng: np.random.Generator) -> Mesh:
    """Thin: a square of paper with ridges at random, half unfolded."""
    u, v = _square(120)
    z = np.zeros_like(u)
    for size in (0.5, 0.35, 0.3, 0.2, 0.2, 0.14, 0.14, 0.1, 0.1, 0.08, 0.08, 0.06):
        angle, offset = rng.uniform(0, np.pi), rng.uniform(-0.6, 0.6)
        across = np.cos(angle) * u + np.sin(angle) * v - offset
        z += rng.choice([-1, 1]) * size * np.sqrt(across**2 + 1e-4)
    z -= z.mean()
    points = np.stack([0.8 * u, 0.8 * v, z], -1)
    points += 0.06 * np.stack([waves(np.stack([u, v], -1), rng, size=0.8) for _ in range(3)], -1)
    return _fitted(sheet(points, 0.015))


def _relief_plate(rng: np.random.Generator) -> Mesh:
    """Thin: a flat oblong plate with a frame and a relief of low waves on its upper side."""
    u, v = _square(140)
    long = rng.uniform(0.6, 0.8)
    frame = _step(np.maximum(np.abs(u), np.abs(v)) - 0.9, 0.01)
    relief = 0.035 * waves(np.stack([u, long * v], -1), rng, size=0.6, octaves=4)
    return _fitted(_slab(u, long * v, 0.12 + 0.05 * frame + (1 - frame) * relief))


def _medal(rng: np.random.Generator) -> Mesh:
    """Thin, with fine relief: a disc with a raised rim, letters around it and a head in profile."""
    rings, sides, thick = 84, 230, 0.12
    r = np.linspace(0, 1, rings)
    angle = np.linspace(0, 2 * np.pi, sides, endpoint=False)[:, None]
    x, y = r * np.cos(angle), r * np.sin(angle)
    rim = 0.03 * _step(r - 0.93, 0.01)
    letters = np.sin(rng.integers(17, 24) * angle + 2 * np.sin(5 * angle + rng.uniform(0, 6)))
    band = _step(0.07 - np.abs(r - 0.8), 0.01)
    text = 0.02 * band * (np.tanh(4 * letters) * np.sin(40 * r) > 0.1)
    head = np.zeros_like(x)
    for cx, cy, a, b in [(0.0, 0.12, 0.36, 0.4), (0.3, 0.05, 0.14, 0.1), (-0.05, -0.4, 0.22, 0.3)]:
        cx, cy = cx + rng.uniform(-0.05, 0.05), cy + rng.uniform(-0.05, 0.05)
        head = np.maximum(
            head, 0.09 * np.sqrt(np.maximum(1 - ((x - cx) / a) ** 2 - ((y - cy) / b) ** 2, 0))
        )
    hair = 0.008 * np.sin(50 * np.hypot(x + 0.5, y)) * (head > 0) * _step(y - 0.1, 0.05)
    front = thick / 2 + rim + text + head + hair
    sketch = waves(np.stack([x, y], -1), rng, size=0.25, octaves=3)
    back = thick / 2 + rim + 0.02 * _step(0.88 - r, 0.02) * sketch
    surface = np.concatenate(
        [np.stack(np.broadcast_arrays(x, y, -back), -1), np.stack([x, y, front], -1)[:, ::-1]],
        axis=1,
    )
    # All vertices of the middle of a side have one height, since the relief depends on x and y.
    surface[:, 0], surface[:, -1] = surface[:, 0].mean(0), surface[:, -1].mean(0)
    return _fitted(welded(grid(surface, close_u=True)))


# Folded


def _folded_sheet(rng: np.random.Generator) -> Mesh:
    """Folded: a sheet with round creases that are not parallel; its two sides see each other."""
    s, v = np.linspace(0, 1, 200), np.linspace(-1, 1, 60)
    ds = s[1]
    bends = np.radians([rng.uniform(100, 150), -rng.uniform(110, 160), rng.uniform(60, 120)])
    at = np.array([0.22, 0.5, 0.75]) + rng.uniform(-0.05, 0.05, 3)
    slant = rng.uniform(-0.06, 0.06, 3)
    creases = at[:, None, None] + slant[:, None, None] * v
    heading = (bends[:, None, None] * _step(s[:, None] - creases, 0.025)).sum(0)
    points = np.stack(
        [
            np.cumsum(np.cos(heading), 0) * ds,
            np.broadcast_to(0.3 * v, heading.shape),
            np.cumsum(np.sin(heading), 0) * ds,
        ],
        -1,
    )
    points[..., 2] += 0.012 * waves(points[..., :2], rng, size=0.3)
    return _fitted(sheet(points, 0.014))


def _rolled_cloth(rng: np.random.Generator) -> Mesh:
    """Folded: cloth that hangs over a point, with pleats that deepen outward."""
    r, angle = np.linspace(0.02, 1, 90), np.linspace(0, 2 * np.pi, 220)[:, None]
    folds = int(rng.integers(5, 8))
    phase = rng.uniform(0, 6, 3)
    pleat = np.sin(folds * angle + phase[0]) + 0.5 * np.sin((folds + 2) * angle + phase[1])
    out = 0.55 * np.sin(np.minimum(1.9 * r, 1.5)) * (1 + 0.34 * r**2 * pleat)
    z = -0.9 * r**1.6 + 0.08 * r * np.sin(2 * angle + phase[2])
    swirl = angle + 0.35 * r**2 * np.cos(folds * angle + phase[0])
    # The first and last columns are almost together: a slit, so that the cloth is a single sheet.
    open_angle = swirl * 0.985
    points = np.stack([out * np.cos(open_angle), out * np.sin(open_angle), z], -1)
    return _fitted(sheet(points, 0.014))


def _knot(rng: np.random.Generator) -> Mesh:
    """Folded: a trefoil of a tube whose thickness varies and which has a few knobs."""
    t = np.linspace(0, 2 * np.pi, 361)[:-1]
    path = np.stack(
        [np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -1.2 * np.sin(3 * t)], 1
    )
    phase = rng.uniform(0, 2 * np.pi, 2)
    path *= 1 + 0.12 * np.sin(t + phase[0])[:, None]
    radius = 0.48 + 0.14 * np.sin(t + phase[1]) + 0.04 * np.sin(9 * t)
    along = np.roll(path, -1, 0) - np.roll(path, 1, 0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    # A frame that returns to itself: the cross product with a direction that the path never has.
    side = np.cross(along, path)
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    up = np.cross(along, side)
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)[:, None, None]
    rings = path + radius[:, None] * (np.cos(angle) * side + np.sin(angle) * up)
    mesh = grid(rings, close_u=True, close_v=True)
    knobs = [
        _blob(path[k] + radius[k] * up[k], [0.2, 0.2, 0.2], rings=16)
        for k in rng.choice(len(path), 4, replace=False)
    ]
    return _fitted(mesh, *knobs)


def _spring(rng: np.random.Generator) -> Mesh:
    """Folded: a conical helix with a hook at one end."""
    turns = rng.uniform(4.5, 6.5)
    t = np.linspace(0, 1, 60)
    wide = 0.36 - rng.uniform(0.1, 0.18) * t
    angle = 2 * np.pi * turns * t
    path = np.stack([wide * np.cos(angle), wide * np.sin(angle), 1.1 * t**1.15], 1)
    path = np.concatenate([path, path[-1:] * [0.3, 0.3, 1] + [[0, 0, 0.08]]])
    path = np.concatenate([path, [[0.08, 0.0, 1.35], [-0.05, 0.06, 1.42], [-0.12, 0.05, 1.32]]])
    return _fitted(limb(path, rng.uniform(0.035, 0.05), steps=700, sides=22))


# Branching


def _coral(rng: np.random.Generator) -> Mesh:
    """Branching: limbs that fork in all directions, rough."""
    parts: list[Mesh] = []

    def grow(
        start: Float[Array, " 3"], heading: Float[Array, " 3"], size: float, left: int
    ) -> None:
        bend = start + 0.5 * size * heading + 0.08 * size * rng.normal(size=3)
        end = start + size * (heading + 0.15 * rng.normal(size=3))
        thick = np.array([0.16, 0.13, 0.11]) * size + 0.006
        branch = limb(np.array([start, bend, end]), thick, steps=12, sides=12)
        parts.append(displaced(branch, 0.006 * waves(branch.vertices, rng, size=0.06)))
        for _ in range(int(rng.integers(2, 4)) if left else 0):
            turned = heading + 1.0 * _direction(rng) + np.array([0, 0, 0.15])
            grow(end, turned / np.linalg.norm(turned), size * rng.uniform(0.65, 0.85), left - 1)

    grow(np.zeros(3), np.array([0.0, 0.0, 1.0]), 0.3, 4)
    return _fitted(*parts)


def _tree(rng: np.random.Generator) -> Mesh:
    """Branching: a trunk with thin branches along it and clumps of leaves."""
    lean = rng.uniform(-0.12, 0.12, 2)
    trunk = np.array([[0, 0, 0], [0.03, 0, 0.35], [*lean, 0.75], [*(1.4 * lean), 1.05]])
    parts = [limb(trunk, np.array([0.07, 0.045, 0.03, 0.012]), steps=60)]
    for level in np.linspace(0.35, 0.98, int(rng.integers(9, 13))):
        start = curve(trunk, 101)[int(100 * level)]
        angle = rng.uniform(0, 2 * np.pi)
        out = np.array([np.cos(angle), np.sin(angle), rng.uniform(0.2, 0.8)])
        length = rng.uniform(0.25, 0.45) * (1.35 - level)
        end = start + length * out
        middle = (start + end) / 2 + [0, 0, 0.03]
        parts.append(limb(np.array([start, middle, end]), np.array([0.02, 0.014, 0.008])))
        clump = _blob(end, rng.uniform(0.06, 0.12, 3), rings=24)
        parts.append(displaced(clump, 0.012 * waves(clump.vertices, rng, size=0.06)))
    return _fitted(*parts)


def _cactus(rng: np.random.Generator) -> Mesh:
    """Branching: a ribbed column with two or three bent arms."""
    ribs = int(rng.integers(9, 13))
    column = limb(np.array([[0, 0, 0], [0, 0, 0.5], [0, 0, 1.0]]), 0.13, steps=120, sides=110)
    angle = np.arctan2(column.vertices[:, 1], column.vertices[:, 0])
    widened = 1 + 0.1 * np.cos(ribs * angle)[:, None] * np.array([1, 1, 0])
    column = Mesh(column.vertices * widened, column.faces)
    parts = [displaced(column, 0.004 * waves(column.vertices, rng, size=0.12))]
    for turn in np.arange(int(rng.integers(2, 4))) * 2.3 + rng.uniform(0, 6):
        out = np.array([np.cos(turn), np.sin(turn), 0])
        low, reach, tall = rng.uniform(0.3, 0.6), rng.uniform(0.22, 0.3), rng.uniform(0.15, 0.4)
        bend = [
            0.05 * out,
            0.8 * reach * out,
            reach * out + [0, 0, 0.12],
            reach * out + [0, 0, 0.12 + tall],
        ]
        arm = limb(
            np.array(bend) + np.array([0, 0, low]),
            np.array([0.06, 0.07, 0.075, 0.06]),
            steps=60,
            sides=48,
        )
        parts.append(displaced(arm, 0.006 * waves(arm.vertices, rng, size=0.06)))
    return _fitted(*parts)


def _hand(rng: np.random.Generator) -> Mesh:
    """Branching: a palm with four bent fingers, a thumb and a wrist."""
    palm = _blob([0, 0, 0.42], [0.23, 0.09, 0.27], rings=48)
    parts = [displaced(palm, 0.006 * waves(palm.vertices, rng, size=0.15))]
    wrist = np.array([[0.0, 0.01, -0.1], [0, 0, 0.1], [0, 0, 0.35]])
    parts.append(limb(wrist, np.array([0.1, 0.1, 0.13]), sides=32))
    for k, length in enumerate([0.36, 0.46, 0.5, 0.44]):
        x = 0.17 - 0.11 * k
        spread, curl = 0.25 * x + rng.uniform(-0.03, 0.03), rng.uniform(0.0, 0.22)
        reach = length * rng.uniform(0.9, 1.1)
        joints = np.array([[x, 0, 0.5], [x, 0.01, 0.62]])
        tip = [x + 1.2 * spread, -curl, 0.62 + reach * (1 - 0.6 * curl)]
        knuckle = [x + 0.5 * spread, -0.2 * curl, 0.62 + 0.5 * reach]
        radii = np.array([0.055, 0.054, 0.047, 0.038]) * rng.uniform(0.92, 1.05)
        finger = limb(np.array([*joints, knuckle, tip]), radii, steps=70, sides=28)
        creases = np.sin(40 * finger.vertices[:, 2])
        parts.append(displaced(finger, 0.003 * creases))
    out = rng.uniform(0.36, 0.46)
    thumb = [[0.1, -0.02, 0.3], [0.24, -0.06, 0.4], [out, -0.12, rng.uniform(0.55, 0.68)]]
    parts.append(limb(np.array(thumb), np.array([0.075, 0.062, 0.045]), steps=60, sides=28))
    return _fitted(*parts)


def _animal(rng: np.random.Generator) -> Mesh:
    """Branching: a four-legged body with neck, head, ears and tail."""
    long, tall = rng.uniform(0.36, 0.46), rng.uniform(0.35, 0.48)
    fat = rng.uniform(0.13, 0.18)
    trunk = limb(
        np.array([[-long, 0, tall], [0, 0, tall + 0.03], [long, 0, tall + 0.02]]),
        np.array([0.9 * fat, fat, 1.05 * fat]),
        steps=60,
        sides=48,
    )
    parts = [displaced(trunk, 0.005 * waves(trunk.vertices, rng, size=0.15, octaves=2))]
    for x in (-0.78 * long, 0.78 * long):
        for y in (-0.6 * fat, 0.6 * fat):
            step = rng.uniform(-0.12, 0.12)
            bend = [x + 0.5 * step + 0.03, y, 0.5 * tall]
            foot = [x + step, y, 0.03]
            toe = [x + step + 0.06, y, 0.025]
            radii = np.array([0.085, 0.05, 0.035, 0.035])
            parts.append(limb(np.array([[x, y, tall], bend, foot, toe]), radii))
    look = rng.uniform(-0.12, 0.12)
    head = np.array([long + 0.24, look, tall + rng.uniform(0.2, 0.36)])
    parts.append(limb(np.array([[long - 0.05, 0, tall + 0.05], head]), np.array([0.11, 0.07])))
    snout = head + np.array([0.17, 0.5 * look, -0.06])
    parts.append(
        limb(
            np.array([head - np.array([0.04, 0, 0]), head + np.array([0.06, 0, 0]), snout]),
            np.array([0.09, 0.085, 0.045]),
        )
    )
    for side in (-1, 1):
        ear = head + np.array([-0.03, 0.06 * side, 0.06])
        parts.append(_blob(ear, [0.02, 0.03, 0.075], [side * -25, 0, 0], rings=16))
    tail = [
        [-long, 0, tall + 0.05],
        [-long - 0.15, 0.03, tall],
        [-long - 0.2, rng.uniform(-0.15, 0.15), tall - 0.2],
    ]
    parts.append(limb(np.array(tail), np.array([0.04, 0.025, 0.015])))
    return _fitted(*parts)


# Relief


def _rock(rng: np.random.Generator) -> Mesh:
    """Relief: rough at every scale."""
    size = [1.0, rng.uniform(0.7, 0.9), rng.uniform(0.6, 0.8)]
    body = _star(lambda u: np.exp(0.17 * waves(u, rng, size=1.6, octaves=6)), rings=120)
    return _fitted(body.scaled(size))


def _horned_head(rng: np.random.Generator) -> Mesh:
    """Relief: a head with a muzzle, two curled horns, ears, and hair all over."""

    def radius(u: Float[Array, "V 3"]) -> Float[Array, " V"]:
        muzzle = np.exp(-((u - np.array([0.92, 0, -0.39])) ** 2).sum(1) / 0.18)
        chin = np.exp(-((u - np.array([0.6, 0, -0.8])) ** 2).sum(1) / 0.08)
        sockets = sum(
            np.exp(-((u - np.array([0.8, 0.45 * s, 0.35])) ** 2).sum(1) / 0.02) for s in (-1, 1)
        )
        return 0.4 + 0.28 * muzzle + 0.06 * chin - 0.06 * sockets + 0.02 * waves(u, rng, size=1.0)

    head = _star(radius, rings=120).scaled([1, 0.8, 1.05])
    # Strands: waves much longer along z than across.
    strands = waves(head.vertices * np.array([1, 1, 0.2]), rng, size=0.035)
    smooth = _step(0.35 - head.vertices[:, 0], 0.06)
    parts = [displaced(head, 0.008 * strands * smooth)]
    for side in (-1, 1):
        t = np.linspace(0, rng.uniform(3.6, 4.6), 12)
        out = 0.2 + 0.1 * t
        horn = np.stack([-0.1 - 0.25 * np.sin(t), side * out, 0.3 + 0.22 * (1 - np.cos(t))], 1)
        curl = limb(horn, np.linspace(0.1, 0.02, 12), steps=120, sides=24)
        rings = np.sin(30 * np.arctan2(curl.vertices[:, 2] - 0.5, curl.vertices[:, 0] + 0.1))
        parts.append(displaced(curl, 0.005 * rings))
        ear = limb(
            np.array([[-0.1, 0.28 * side, 0.1], [-0.15, 0.5 * side, rng.uniform(0, 0.1)]]), 0.05
        )
        parts.append(ear)
    return _fitted(*parts)


def _carved_column(rng: np.random.Generator) -> Mesh:
    """Relief: a fluted drum with a spiral frieze and a broken upper end."""
    flutes, turns = int(rng.integers(11, 16)), rng.uniform(1.5, 2.5)
    wide = rng.uniform(0.2, 0.26)
    z = np.linspace(0, 1, 150)
    top = np.stack([wide * 0.9 * np.linspace(1, 0, 30)[1:], np.ones(29)], 1)
    side = np.stack([wide * (1.1 - 0.2 * z + 0.12 * _step(0.06 - z, 0.008)), z], 1)
    body = lathe(np.concatenate([[(0.0, 0.0)], side, top]), sides=150)
    x, y, height = body.vertices.T
    angle = np.arctan2(y, x)
    frieze = np.cos(angle - 2 * np.pi * turns * height)
    cut = 0.013 * np.cos(flutes * angle) * _step(-frieze, 0.1)
    figures = 0.01 * _step(frieze - 0.2, 0.1) * waves(body.vertices, rng, size=0.08)
    on_side = (height > 0.03) * _step(0.93 - height, 0.015)
    body = displaced(body, on_side * (cut + figures))
    broken = (
        0.06 * waves(body.vertices[:, :2], rng, size=0.4, octaves=3) * _step(height - 0.9, 0.03)
    )
    return _fitted(Mesh(body.vertices + broken[:, None] * np.array([0, 0, 1]), body.faces))


def _brain(rng: np.random.Generator) -> Mesh:
    """Relief: an oblong body with winding furrows and a deep one along its middle."""
    seed = rng.uniform(0.22, 0.3)

    def radius(u: Float[Array, "V 3"]) -> Float[Array, " V"]:
        furrows = np.abs(waves(u, rng, size=seed * 2))
        middle = np.exp(-((u[:, 1] / 0.06) ** 2)) * _step(u[:, 2] + 0.1, 0.2)
        low = 0.05 * waves(u, rng, size=2.0)
        return 0.9 + low + 0.12 * np.tanh(2.5 * furrows) - 0.16 * middle

    cortex = _star(radius, rings=110).scaled([1.0, rng.uniform(0.75, 0.85), 0.7])
    stem = np.array([[-0.2, 0, -0.4], [-0.3, 0.02, -0.7], [-0.42, 0.02, -0.95]])
    return _fitted(cortex, limb(stem, np.array([0.2, 0.15, 0.12])))


# Machined


def _gear(rng: np.random.Generator) -> Mesh:
    """Machined: a wheel with teeth, a hub with a keyway on one side, unequal pockets."""
    teeth, rings = int(rng.integers(11, 18)), 58
    r = np.linspace(0, 1, rings)
    angle = np.linspace(0, 2 * np.pi, 20 * teeth, endpoint=False)[:, None]
    outer = 1 + 0.09 * np.tanh(3 * np.sin(teeth * angle))
    x, y = r * outer * np.cos(angle), r * outer * np.sin(angle)
    flat = np.hypot(x, y)
    front = 0.13 + 0.14 * _step(0.3 - flat, 0.008) - 0.2 * _step(0.14 - flat, 0.008)
    keyway = _step(0.2 - flat, 0.01) * _step(0.04 - np.abs(y), 0.008) * (x > 0)
    front = front - 0.15 * keyway * _step(flat - 0.14, 0.01)
    for at, wide in zip(
        rng.uniform(0, 0.7) + np.array([0, 1.4, 2.6, 4.4]), rng.uniform(0.1, 0.22, 4), strict=True
    ):
        pocket = np.hypot(x - 0.6 * np.cos(at), y - 0.6 * np.sin(at))
        front = front - 0.1 * _step(wide - pocket, 0.008)
    back = np.broadcast_to(0.1 + 0.04 * _step(0.4 - flat, 0.008), front.shape)
    surface = np.concatenate(
        [np.stack([x, y, -back], -1), np.stack([x, y, front], -1)[:, ::-1]], axis=1
    )
    surface[:, 0], surface[:, -1] = surface[:, 0].mean(0), surface[:, -1].mean(0)
    return _fitted(welded(grid(surface, close_u=True)))


def _bracket(rng: np.random.Generator) -> Mesh:
    """Machined: two plates at a right angle with round dents for holes, a rib and a boss."""
    u, v = _square(90)
    long, high, thick = rng.uniform(0.45, 0.55), rng.uniform(0.3, 0.42), 0.07

    def plate(length: float, holes: Sequence[tuple[float, float, float]]) -> Mesh:
        z = np.full_like(u, thick)
        for cx, cy, radius in holes:
            z -= 0.05 * _step(radius - np.hypot(length * u - cx, 0.3 * v - cy), 0.004)
        return _slab(length * u, 0.3 * v, z)

    base = plate(
        long,
        [
            (0.3 * long, -0.15, rng.uniform(0.05, 0.08)),
            (0.65 * long, 0.12, rng.uniform(0.03, 0.05)),
            (-0.1 * long, 0.15, 0.04),
        ],
    )
    wall = plate(high, [(0.2 * high, 0.1, rng.uniform(0.05, 0.09)), (0.4 * high, -0.15, 0.04)])
    wall = _turned(wall, [0, -90, 0], [-long + 0.9 * thick, 0.01, high + 0.02])
    rib = np.array([[-long, 0.0], [0.2 * long, 0.0], [-long, 1.3 * high]])
    rib = np.concatenate(
        [rib[k] + (rib[(k + 1) % 3] - rib[k]) * np.linspace(0, 1, 9)[:-1, None] for k in range(3)]
    )
    at = rng.uniform(-0.05, 0.05)
    upright = _turned(prism(rib, -0.03, 0.03), [90, 0, 0], [0, at, 0.5 * thick])
    boss = rod([0.7 * long, -0.14, 0], [0.7 * long, -0.14, 0.17], 0.09, sides=60)
    pin = rod([0.7 * long, -0.14, 0.1], [0.7 * long, -0.14, 0.24], 0.04, sides=40)
    return _fitted(base, wall, upright, boss, pin)


def _crankshaft(rng: np.random.Generator) -> Mesh:
    """Machined: journals on one axis, pins off it at unequal angles, webs with counterweights."""
    throws = int(rng.integers(3, 5))
    pitch, arm = 0.3, rng.uniform(0.1, 0.14)
    parts: list[Mesh] = []
    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    for k in range(throws):
        turn = 2 * np.pi * k / throws + rng.uniform(-0.2, 0.2)
        x = k * pitch
        pin = arm * np.array([np.cos(turn), np.sin(turn)])
        parts.append(rod([x - 0.1, 0, 0], [x - 0.04, 0, 0], 0.07, steps=6, sides=48))
        parts.append(rod([x, *pin], [x + 0.12, *pin], 0.055, steps=10, sides=48))
        for low in (x - 0.05, x + 0.11):
            heavy = rng.uniform(0.19, 0.24)
            shape = np.where(np.cos(angle - turn) < -0.1, heavy, 0.13 + 0.08 * np.cos(angle - turn))
            outline = np.stack([shape * np.cos(angle), shape * np.sin(angle)], 1)
            web = prism(outline, low, low + 0.06)
            parts.append(Mesh(web.vertices[:, [2, 0, 1]], web.faces))
        parts.append(rod([x + 0.15, 0, 0], [x + 0.23, 0, 0], 0.07, steps=6, sides=48))
    end = throws * pitch
    parts.append(rod([-0.45, 0, 0], [-0.08, 0, 0], 0.05, steps=20, sides=48))
    parts.append(rod([-0.42, 0, 0.03], [-0.25, 0, 0.03], 0.03, steps=10))
    parts.append(rod([end - 0.1, 0, 0], [end, 0, 0], 0.2, steps=10, sides=90))
    for turn in np.arange(5) * 1.15:
        bolt = 0.14 * np.array([np.cos(turn), np.sin(turn)])
        parts.append(rod([end - 0.02, *bolt], [end + 0.03, *bolt], 0.025))
    return _fitted(*parts)


def _drill(rng: np.random.Generator) -> Mesh:
    """Machined: a motor with grip, trigger, battery, chuck and a twisted bit."""
    long = rng.uniform(0.28, 0.36)
    motor = limb(
        np.array([[-long, 0, 0], [0, 0, 0], [0.25, 0, 0]]), np.array([0.13, 0.14, 0.1]), sides=48
    )
    slots = 0.006 * (np.sin(70 * motor.vertices[:, 0]) > 0.3) * (motor.vertices[:, 0] < -0.5 * long)
    chuck = lathe(
        np.array([(0, 0), (0.08, 0), (0.085, 0.05), (0.08, 0.12), (0.04, 0.2), (0, 0.2)]), sides=60
    )
    t = np.linspace(0, 1, 140)
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)[:, None]
    size = 0.03 * np.concatenate([[0.0], np.ones(128), np.linspace(1, 0, 11)])
    oval = size * np.where(np.cos(angle) ** 2 > 0.3, 1.0, 0.55)
    turn = angle + 18 * t
    bit = np.stack(
        [oval * np.cos(turn), oval * np.sin(turn), np.broadcast_to(0.4 * t, oval.shape)], -1
    )
    grip = np.array([[-0.12, 0, 0], [-0.18, 0, -0.25], [-0.16, 0, -0.45]])
    parts = [
        displaced(motor, -slots),
        _turned(chuck, [0, 90, 0], [0.28, 0, 0]),
        _turned(welded(grid(bit, close_u=True)), [0, 90, 0], [0.42, 0, 0]),
        limb(grip, np.array([0.07, 0.06, 0.065]), sides=32, steps=60),
        box([-0.3, -0.08, -0.55], [0.05, 0.07, -0.43]),
        _blob([-0.06, 0, -0.17], [0.035, 0.025, 0.06], rings=16),
        limb(np.array([[0.1, 0.05, 0.02], [0.1, rng.uniform(0.25, 0.35), 0.05]]), 0.035),
    ]
    return _fitted(*parts)


# Name of a body, and the function that makes one from a random generator: a mesh whose longest side
# is 1, about the middle of its box.
BODIES: dict[str, Callable[[np.random.Generator], Mesh]] = {
    "pebble": _pebble,
    "bumpy ball": _bumpy_ball,
    "superformula star": _superformula_star,
    "snail shell": _snail_shell,
    "dimpled egg": _dimpled_egg,
    "chipped bowl": _chipped_bowl,
    "bottle": _bottle,
    "vase": _vase,
    "mug": _mug,
    "teapot": _teapot,
    "table lamp": _table_lamp,
    "chair": _chair,
    "house": _house,
    "car": _car,
    "leaf": _leaf,
    "crumpled paper": _crumpled_paper,
    "relief plate": _relief_plate,
    "medal": _medal,
    "folded sheet": _folded_sheet,
    "rolled cloth": _rolled_cloth,
    "knot": _knot,
    "spring": _spring,
    "coral": _coral,
    "tree": _tree,
    "cactus": _cactus,
    "hand": _hand,
    "animal": _animal,
    "rock": _rock,
    "horned head": _horned_head,
    "carved column": _carved_column,
    "brain": _brain,
    "gear": _gear,
    "bracket": _bracket,
    "crankshaft": _crankshaft,
    "drill": _drill,
}

# What is hard about bodies, and the names of those of which it is true.
KINDS: dict[str, tuple[str, ...]] = {
    "smooth": ("pebble", "bumpy ball", "superformula star", "snail shell", "teapot"),
    "nearly symmetric": ("dimpled egg", "chipped bowl", "bottle", "vase", "mug"),
    "thin": ("leaf", "crumpled paper", "relief plate", "medal", "chair", "table lamp"),
    "branching": ("coral", "tree", "cactus", "hand", "animal"),
    "folded": ("folded sheet", "rolled cloth", "knot", "spring"),
    "relief": ("rock", "horned head", "carved column", "brain"),
    "machined": ("gear", "bracket", "crankshaft", "drill", "car", "house"),
}
