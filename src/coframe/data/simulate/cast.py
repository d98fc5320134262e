# SPDX-License-Identifier: MIT
"""Rays to the first triangle of a mesh that they hit."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from coframe.data.simulate.mesh import Mesh
from coframe.types import Array


@dataclass(frozen=True)
class Caster:
    """Casts rays at a mesh: its triangles in a tree of boxes.

    Make one with `Caster.of`; it can look at its mesh from any number of sensors, and from several
    threads at a time.

    Attributes
    ----------
    mesh : Mesh
    normals : array (F, 3)
        Unit normal of each face, on the side from which it is counter-clockwise; zeros for faces
        without area, which no ray hits.
    bounds : array (B, 6)
        Lowest and highest corner of each node of the tree.
    links : int array (B, 2)
        Of a leaf, its first triangle and their number; of another node, its first child (the second
        follows) and 0.
    triangles : array (F, 10)
        In the order of the leaves: a corner, the two edges from there, and twice the area as a ray
        sees it below which the ray runs along the triangle and misses it.
    faces : int array (F,)
        Number of each triangle in the mesh.
    depth : int
        Of the tree.

    Examples
    --------
    >>> from coframe.data.simulate.mesh import box
    >>> caster = Caster.of(box((-1, -1, -1), (1, 1, 1)))
    >>> distance, face = caster.cast(np.array([[0.0, 0.2, 5.0]]), np.array([[0.0, 0.0, -1.0]]))
    >>> distance
    array([4.])
    """

    mesh: Mesh
    normals: Float[Array, "F 3"]
    bounds: Float[Array, "B 6"]
    links: Integer[Array, "B 2"]
    triangles: Float[Array, "F 10"]
    faces: Integer[Array, " F"]
    depth: int

    @staticmethod
    def of(mesh: Mesh) -> "Caster":
        """Build the tree of a mesh.

        Parameters
        ----------
        mesh : Mesh
            At least one face. Faces are seen from both sides.

        Returns
        -------
        Caster
        """
        from coframe.data.simulate import cast_kernels

        if not len(mesh.faces):
            raise ValueError("the mesh has no faces: give one with at least one triangle")
        corners = np.ascontiguousarray(mesh.vertices[mesh.faces], float)
        # Flat boxes get a thickness, and rounding in the distance to a box hides no triangle.
        margin = cast_kernels.ROUNDING * np.abs(corners).max()
        bounds, links, order, depth = cast_kernels.build(
            corners.min(1) - margin, corners.max(1) + margin
        )
        a = corners[:, 1] - corners[:, 0]
        b = corners[:, 2] - corners[:, 0]
        normals = np.cross(a, b)
        length = np.linalg.norm(normals, axis=1, keepdims=True)
        parallel = cast_kernels.PARALLEL * np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        triangles = np.column_stack([corners[:, 0], a, b, parallel])[order]
        normals = np.divide(normals, length, out=np.zeros_like(normals), where=length > 0)
        return Caster(mesh, normals, bounds, links, triangles, order, int(depth))

    def cast(
        self,
        origins: Float[Array, "N 3"],
        directions: Float[Array, "N 3"],
        far: float | Float[Array, " N"] = np.inf,
    ) -> tuple[Float[Array, " N"], Integer[Array, " N"]]:
        """Cast rays.

        Parameters
        ----------
        origins : array (N, 3)
        directions : array (N, 3)
            Unit vectors.
        far : float or array (N,), optional
            How far each ray goes.

        Returns
        -------
        distance : array (N,)
            To the first face that is hit; inf where there is none.
        face : int array (N,)
            Its number in the mesh; -1 where there is none.
        """
        from coframe.data.simulate import cast_kernels

        N = len(origins)
        distance = np.empty(N)
        face = np.empty(N, np.int64)
        cast_kernels.cast(
            np.ascontiguousarray(origins, float),
            np.ascontiguousarray(directions, float),
            np.ascontiguousarray(np.broadcast_to(np.asarray(far, float), N)),
            self.bounds,
            self.links,
            self.triangles,
            self.faces,
            self.depth,
            distance,
            face,
        )
        return distance, face
