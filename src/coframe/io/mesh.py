# SPDX-License-Identifier: MIT
"""Meshes as clouds: OBJ, STL and OFF, by their vertices or by points drawn from their surface."""

import logging
import os
import re
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe.errors import optional
from coframe.io.files import atomic, foreign
from coframe.io.scan import Scan
from coframe.types import Array


def read_scan(
    path: str | os.PathLike[str],
    *,
    kind: str | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> Scan:
    """The distinct vertices of a mesh, or `samples` points spread evenly over its surface.

    kind: "obj", "stl" or "off", where the suffix does not say it.
    """
    mesh = _mesh(path, kind)
    faces = getattr(mesh, "faces", ())
    if samples is None:
        points = np.array(mesh.vertices, np.float64).reshape(-1, 3)
        colours = _vertex_colours(mesh, len(points))
        if (
            kind or Path(path).suffix.lower().lstrip(".")
        ) == "stl":  # which repeats a vertex in every triangle around it
            points = np.unique(points, axis=0)
        if not len(points):
            raise ValueError("it has no vertices")
        return Scan(
            points,
            colours=colours if colours is not None and len(colours) == len(points) else None,
            name=Path(path).stem,
        )
    if not len(faces):
        raise ValueError("it has no faces to draw points from")
    sampling = optional("trimesh.sample", "mesh", "meshes")
    with foreign():
        points, index = sampling.sample_surface(mesh, samples, seed=seed)
        normals = np.array(mesh.face_normals, np.float64)[index]
    return Scan(np.array(points, np.float64), normals=normals, name=Path(path).stem)


def move(
    source: str | os.PathLike[str], target: str | os.PathLike[str], pose: Float[Array, "4 4"]
) -> None:
    """A copy with the vertices moved, faces kept."""
    mesh = _mesh(source, None)
    with atomic(target) as temporary, foreign():
        mesh.apply_transform(pose)
        mesh.export(str(temporary), file_type=Path(target).suffix.lower().lstrip("."))


def _mesh(path: str | os.PathLike[str], kind: str | None) -> Any:
    """Loaded from an open file, so that materials and textures it names are not looked for."""
    trimesh = optional("trimesh", "mesh", "meshes")
    # else what it logs of a bad file reaches the terminal
    logging.getLogger("trimesh").addHandler(logging.NullHandler())
    if (kind or Path(path).suffix.lower()[1:]) == "obj":
        _check_indices(path)
    with open(path, "rb") as file, foreign():
        options = {
            "file_type": kind or Path(path).suffix.lower().lstrip("."),
            "process": False,
            "skip_materials": True,
        }
        if options["file_type"] == "obj":
            options |= {"maintain_order": True}
        else:
            del options["skip_materials"]
        loaded = trimesh.load(file, **options)
        return loaded.to_mesh() if hasattr(loaded, "to_mesh") else loaded


def _check_indices(path: str | os.PathLike[str]) -> None:
    """Refuse faces with numbers that have more digits than the file has bytes: trimesh makes room
    for as many vertices.
    """
    digits = len(str(os.stat(path).st_size)) + 1
    long = re.compile(rb"^[ \t]*f[ \t][^\r\n]*?\d{%d}" % digits, re.MULTILINE)
    with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        if long.search(text):
            raise ValueError("a face has vertices that it cannot hold")


def _vertex_colours(mesh: Any, count: int) -> Array | None:
    visual = getattr(mesh, "visual", None)
    if visual is None or getattr(visual, "kind", None) != "vertex":
        return None
    colours = np.asarray(visual.vertex_colors)
    return (
        colours[:, :3].astype(np.uint8) if colours.shape[0] == count and colours.ndim == 2 else None
    )
