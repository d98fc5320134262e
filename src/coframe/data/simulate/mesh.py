# SPDX-License-Identifier: MIT
"""Triangle meshes, the one form of surface that simulated sensors look at, and simple ones of
which bodies and places are put together.

Meshes may cut through each other: what lies inside is hidden from every sensor outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from coframe.geometry import transform
from coframe.types import Array, Pose


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

    def scaled(self, factor: float | Sequence[float]) -> "Mesh":
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

    def shifted(self, by: Sequence[float]) -> "Mesh":
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


def box(low: Sequence[float], high: Sequence[float], *, inside_out: bool = False) -> Mesh:
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


def _angles(
    rings: int,
) -> tuple[Float[Array, "U V"], Float[Array, "U V"]]:
    theta = np.linspace(0, np.pi, rings + 1)[None, :]
    phi = np.linspace(0, 2 * np.pi, 2 * rings, endpoint=False)[:, None]
    return np.broadcast_to(theta, (2 * rings, rings + 1)), np.broadcast_to(
        phi, (2 * rings, rings + 1)
    )
