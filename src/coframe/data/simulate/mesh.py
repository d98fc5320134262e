# SPDX-License-Identifier: MIT
"""Triangle meshes, the one form of surface that simulated sensors look at, and simple ones of
which bodies and places are put together.

Meshes may cut through each other: what lies inside is hidden from every sensor outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Integer
from scipy.interpolate import CubicSpline, PchipInterpolator

from coframe.geometry import transform
from coframe.types import Array, Pose

# [chosen: enough for values that look normally distributed] Waves of an octave of `waves`.
TERMS = 24
# [guard] of a body of size 1: vertices closer together are the same.
SAME = 1e-9
# [size] Rings of a round end of `limb`.
END_RINGS = 7


# Three numbers.
Vector: TypeAlias = Sequence[float | int] | Float[Array, " 3"]


@dataclass(frozen=True)
class Mesh:
    """Triangles.

    Attributes
    ----------
    vertices : array (V, 3)
    faces : int array (F, 3)
        Rows of vertices, counter-clockwise when seen from outside.
    """

    vertices: Float[Array, "V 3"]
    faces: Integer[Array, "F 3"]

    def moved(self, motion: Pose) -> "Mesh":
        """The mesh after a rigid motion.

        Parameters
        ----------
        motion : array (4, 4)

        Returns
        -------
        Mesh
        """
        return Mesh(transform(motion, self.vertices), self.faces)

    def scaled(self, factor: float | Vector) -> "Mesh":
        """The mesh stretched about the origin.

        Parameters
        ----------
        factor : float or three floats
            For all axes or for each; positive.

        Returns
        -------
        Mesh
        """
        return Mesh(self.vertices * np.asarray(factor, float), self.faces)

    def shifted(self, by: Vector) -> "Mesh":
        """The mesh moved without a turn.

        Parameters
        ----------
        by : three floats

        Returns
        -------
        Mesh
        """
        return Mesh(self.vertices + np.asarray(by, float), self.faces)


def joined(meshes: Sequence[Mesh]) -> Mesh:
    """One mesh of all triangles.

    Parameters
    ----------
    meshes : sequence of Mesh

    Returns
    -------
    Mesh
    """
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    return Mesh(
        np.concatenate([mesh.vertices for mesh in meshes]),
        np.concatenate([m.faces + s for m, s in zip(meshes, starts, strict=False)]),
    )


def grid(points: Float[Array, "U V 3"], *, close_u: bool = False, close_v: bool = False) -> Mesh:
    """A surface through a grid of points, two triangles a cell.

    Seen from outside, u runs to the right and v runs up.

    Parameters
    ----------
    points : array (U, V, 3)
    close_u : bool, optional
        Whether the last row is joined to the first one.
    close_v : bool, optional
        Whether the last column is joined to the first one.

    Returns
    -------
    Mesh
    """
    U, V = points.shape[:2]
    index = np.arange(U * V).reshape(U, V)
    if close_u:
        index = np.concatenate([index, index[:1]])
    if close_v:
        index = np.concatenate([index, index[:, :1]], axis=1)
    a, b = index[:-1, :-1].ravel(), index[1:, :-1].ravel()
    c, d = index[1:, 1:].ravel(), index[:-1, 1:].ravel()
    faces = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    return Mesh(points.reshape(-1, 3).astype(float), faces)


def box(low: Vector, high: Vector, *, inside_out: bool = False) -> Mesh:
    """A box along the axes, seen from outside, or a room seen from inside.

    Parameters
    ----------
    low : three floats
    high : three floats
    inside_out : bool, optional

    Returns
    -------
    Mesh
    """
    corners = np.array([low, high], float)
    bits = np.array([[i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(8)])
    vertices = np.take_along_axis(corners, bits, axis=0)
    quads = np.array(
        [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    )
    faces = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
    return Mesh(vertices, faces[:, ::-1] if inside_out else faces)


def tube(path: Float[Array, "U 3"], radius: Float[Array, " U"] | float, *, sides: int = 16) -> Mesh:
    """A tube around a path with round ends left open where the radius does not go to zero.

    The frame is carried along the path without twist.

    Parameters
    ----------
    path : array (U, 3)
    radius : float or array (U,)
    sides : int, optional

    Returns
    -------
    Mesh
    """
    path = np.asarray(path, float)
    radii = np.broadcast_to(np.asarray(radius, float), len(path))
    along = np.gradient(path, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    across = np.empty_like(path)
    side = np.eye(3)[np.abs(along[0]).argmin()]
    for row, direction in enumerate(along):
        side = side - (side @ direction) * direction
        side = side / np.linalg.norm(side)
        across[row] = side
    up = np.cross(along, across)
    angle = np.linspace(0, 2 * np.pi, sides, endpoint=False)[:, None, None]
    rings = path + radii[:, None] * (np.cos(angle) * across + np.sin(angle) * up)
    return grid(rings, close_u=True)


def ball(radius: float = 1.0, *, rings: int = 48) -> Mesh:
    """A sphere about the origin.

    Parameters
    ----------
    radius : float, optional
    rings : int, optional
        From pole to pole; twice as many around.

    Returns
    -------
    Mesh
    """
    theta, phi = _angles(rings)
    directions = np.stack(
        [np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), -np.cos(theta)], -1
    )
    return grid(radius * directions, close_u=True)


def shell(upper: Float[Array, "U V 3"], lower: Float[Array, "U V 3"]) -> Mesh:
    """A closed surface of two grids of points that lie over each other, and the rim between them.

    Parameters
    ----------
    upper : array (U, V, 3)
        Seen from outside, u runs to the right and v runs up.
    lower : array (U, V, 3)
        The point of the other side below each point.

    Returns
    -------
    Mesh
    """
    around = np.concatenate([upper, lower[:, ::-1]], axis=1)
    first = np.stack([lower[0], upper[0]])
    last = np.stack([lower[-1], upper[-1]], axis=1)
    return welded(joined([grid(around, close_v=True), grid(first), grid(last)]))


def sheet(points: Float[Array, "U V 3"], thickness: float) -> Mesh:
    """A thin closed body on both sides of a grid of points.

    Parameters
    ----------
    points : array (U, V, 3)
    thickness : float

    Returns
    -------
    Mesh
    """
    normals = np.cross(np.gradient(points, axis=0), np.gradient(points, axis=1))
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    return shell(points + thickness / 2 * normals, points - thickness / 2 * normals)


def lathe(profile: Float[Array, "V 2"], *, sides: int = 96) -> Mesh:
    """A profile turned about the z axis.

    Parameters
    ----------
    profile : array (V, 2)
        Radius and z, from the axis at the bottom along the outside and back to the axis; a vessel's
        goes up the outside and down the inside.
    sides : int, optional

    Returns
    -------
    Mesh
    """
    angle = np.linspace(0, 2 * np.pi, sides, endpoint=False)[:, None]
    radius, z = profile.T
    rings = np.stack(
        [radius * np.cos(angle), radius * np.sin(angle), np.broadcast_to(z, (sides, len(z)))], -1
    )
    return welded(grid(rings, close_u=True))


def prism(outline: Float[Array, "U 2"], low: float, high: float) -> Mesh:
    """An upright body with the same outline at every height.

    Parameters
    ----------
    outline : array (U, 2)
        Counter-clockwise; its mean sees all of it.
    low : float
    high : float

    Returns
    -------
    Mesh
    """
    middle = np.broadcast_to(outline.mean(0), outline.shape)
    xy = np.stack([middle, outline, outline, middle], axis=1)
    z = np.broadcast_to([low, low, high, high], xy.shape[:2])
    return welded(grid(np.concatenate([xy, z[..., None]], axis=-1), close_u=True))


def rod(start: Vector, end: Vector, radius: float, *, sides: int = 32, steps: int = 1) -> Mesh:
    """A round bar with flat ends.

    Parameters
    ----------
    start : three floats
    end : three floats
    radius : float
    sides : int, optional
    steps : int, optional
        Rings of triangles along the bar.

    Returns
    -------
    Mesh
    """
    # The ends of the path come twice, almost, so that the radius can jump from zero.
    along = np.concatenate([[0.0], np.linspace(1e-7, 1 - 1e-7, steps + 1), [1.0]])[:, None]
    path = np.asarray(start, float) * (1 - along) + np.asarray(end, float) * along
    return welded(tube(path, np.array([0.0, *[radius] * (steps + 1), 0.0]), sides=sides))


def curve(controls: Float[Array, "C K"], count: int) -> Float[Array, "U K"]:
    """Points of a smooth curve through given ones.

    Parameters
    ----------
    controls : array (C, K)
    count : int
        Points of the curve.

    Returns
    -------
    array (count, K)
    """
    controls = np.asarray(controls, float)
    along = np.cumsum([0, *np.linalg.norm(np.diff(controls, axis=0), axis=1)])
    curve: Float[Array, "U K"] = CubicSpline(along, controls)(np.linspace(0, along[-1], count))
    return curve


def limb(
    controls: Float[Array, "C 3"],
    radii: Float[Array, " C"] | float,
    *,
    steps: int = 40,
    sides: int = 20,
) -> Mesh:
    """A bent body with round ends, such as a finger or a handle.

    Parameters
    ----------
    controls : array (C, 3)
        Points that its axis runs through.
    radii : float or array (C,)
        At these points.
    steps : int, optional
        Rings along it.
    sides : int, optional

    Returns
    -------
    Mesh
    """
    controls = np.asarray(controls, float)
    radii = np.broadcast_to(np.asarray(radii, float), len(controls))
    dense = curve(controls, 20 * steps)
    length = np.cumsum([0, *np.linalg.norm(np.diff(dense, axis=0), axis=1)])
    knots = np.cumsum([0, *np.linalg.norm(np.diff(controls, axis=0), axis=1)])
    radius = PchipInterpolator(knots / knots[-1] * length[-1], radii)
    bow = np.linspace(0, np.pi / 2, END_RINGS)
    first, last = min(radii[0], length[-1] / 2), min(radii[-1], length[-1] / 2)
    middle = np.linspace(first, length[-1] - last, steps + 2)[1:-1]
    along = np.concatenate(
        [first * (1 - np.cos(bow)), middle, length[-1] - last * (1 - np.cos(bow[::-1]))]
    )
    rounding = np.concatenate([np.sin(bow), np.ones(steps), np.sin(bow[::-1])])
    path = np.stack([np.interp(along, length, x) for x in dense.T], axis=1)
    return welded(tube(path, radius(along) * rounding, sides=sides))


def welded(mesh: Mesh) -> Mesh:
    """The mesh with vertices in one spot made one, and without triangles of no area.

    Parameters
    ----------
    mesh : Mesh

    Returns
    -------
    Mesh
    """
    _, first, row = np.unique(
        np.round(mesh.vertices / SAME), axis=0, return_index=True, return_inverse=True
    )
    faces = row.reshape(-1)[mesh.faces]
    a, b, c = faces.T
    return Mesh(mesh.vertices[first], faces[(a != b) & (b != c) & (c != a)])


def vertex_normals(mesh: Mesh) -> Float[Array, "V 3"]:
    """Unit normals at the vertices, from the triangles around them.

    Parameters
    ----------
    mesh : Mesh

    Returns
    -------
    array (V, 3)
    """
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    area = np.cross(b - a, c - a)
    total = np.zeros_like(mesh.vertices)
    for k in range(3):
        np.add.at(total, mesh.faces[:, k], area)
    return total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), np.finfo(float).tiny)


def displaced(mesh: Mesh, by: Float[Array, " V"]) -> Mesh:
    """The mesh with each vertex moved along its normal.

    Parameters
    ----------
    mesh : Mesh
    by : array (V,)
        How far outward.

    Returns
    -------
    Mesh
    """
    return Mesh(mesh.vertices + np.asarray(by)[:, None] * vertex_normals(mesh), mesh.faces)


def waves(
    points: Float[Array, "*N K"], rng: np.random.Generator, *, size: float, octaves: int = 1
) -> Float[Array, "*N"]:
    """A smooth random field at points: waves of random directions and phases.

    Parameters
    ----------
    points : array (..., K)
    rng : numpy.random.Generator
    size : float
        Length of the longest waves, about.
    octaves : int, optional
        Each further one adds waves of half the length and half the height.

    Returns
    -------
    array (...)
        With a variance of about 1 in the first octave.
    """
    value = np.zeros(points.shape[:-1])
    for octave in range(octaves):
        direction = rng.normal(size=(points.shape[-1], TERMS))
        direction /= np.linalg.norm(direction, axis=0)
        number = 2 * np.pi / size * 2**octave * rng.uniform(0.7, 1.3, TERMS)
        phase = rng.uniform(0, 2 * np.pi, TERMS)
        wave = np.cos(points @ (direction * number) + phase).sum(-1)
        value += 0.5**octave * np.sqrt(2 / TERMS) * wave
    return value


def _angles(
    rings: int,
) -> tuple[Float[Array, "U V"], Float[Array, "U V"]]:
    theta = np.linspace(0, np.pi, rings + 1)[None, :]
    phi = np.linspace(0, 2 * np.pi, 2 * rings, endpoint=False)[:, None]
    return np.broadcast_to(theta, (2 * rings, rings + 1)), np.broadcast_to(
        phi, (2 * rings, rings + 1)
    )
