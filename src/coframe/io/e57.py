# SPDX-License-Identifier: MIT
"""E57, the exchange format of terrestrial scanners: many scans in a file, each in its own frame
with its pose.

pye57's own reader needs a scan's worth of memory in advance, and its writer rounds coordinates to
floats (a decimetre in survey coordinates); both are bypassed for the library beneath it.
"""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from coframe import geometry
from coframe.errors import InputError, optional
from coframe.io.files import atomic, foreign
from coframe.io.scan import Scan, in_space, joined, points_in_space
from coframe.types import Array

# [size] Points per block.
ROWS = 1_000_000
CARTESIAN = ("cartesianX", "cartesianY", "cartesianZ")
SPHERICAL = ("sphericalRange", "sphericalAzimuth", "sphericalElevation")
COLOURS = ("colorRed", "colorGreen", "colorBlue")
# [format] The extension for normals, its prefix and its address.
EXTENSION = ("nor", "http://www.libe57.org/E57_NOR_surface_normals.txt")
NORMALS = ("nor:normalX", "nor:normalY", "nor:normalZ")
# [format] The one type of 64 bits that pye57 fills right: it refuses "i4", and where "i8" is a C
# long it writes 32 bits for each number.
WHOLE = "q"
OTHERS = {
    "intensity": "f8",
    "rowIndex": WHOLE,
    "columnIndex": WHOLE,
    "returnIndex": WHOLE,
    "returnCount": WHOLE,
    "timeStamp": "f8",
}
# [format] 0: a good point; 1: only its direction is known; 2: nothing is.
STATES = ("cartesianInvalidState", "sphericalInvalidState")
KNOWN = (
    dict.fromkeys((*CARTESIAN, *SPHERICAL, *COLOURS, *NORMALS), "f8")
    | OTHERS
    | dict.fromkeys(STATES, "i1")
)


def read_scans(path: str | os.PathLike[str]) -> list[Scan]:
    """Every scan that has points, in its own frame, with its pose."""
    scans = []
    with _opened(path) as (libe57, image, nodes):
        for j, node in enumerate(nodes):
            parts = list(_blocks(libe57, image, node, ROWS))
            if parts:
                scans.append(_named(joined(parts), node, j, len(nodes), path))
    if not scans:
        raise InputError(
            f"{path}: expected scans with points, found no points in it; leave the file out"
        )
    return scans


def blocks(path: str | os.PathLike[str], rows: int = ROWS) -> Iterator[Scan]:
    """The points of scan after scan, so many at a time; `name` and `pose` say which scan a block is
    of.
    """
    with _opened(path) as (libe57, image, nodes):
        for j, node in enumerate(nodes):
            yield from (
                _named(part, node, j, len(nodes), path)
                for part in _blocks(libe57, image, node, rows)
            )


def named_poses(path: str | os.PathLike[str]) -> list[tuple[str, Float[Array, "4 4"] | None]]:
    """Name and pose of each scan that has points, without reading these."""
    with _opened(path) as (_, _, nodes):
        return [
            (_name(node, j, len(nodes), path), _pose(node))
            for j, node in enumerate(nodes)
            if node["points"].childCount()
        ]


def read_poses(path: str | os.PathLike[str]) -> dict[str, Float[Array, "4 4"]]:
    """The poses of the scans by name, without their points."""
    return {name: np.eye(4) if T is None else T for name, T in named_poses(path)}


def coordinate_metadata(path: str | os.PathLike[str]) -> str:
    """What the file says of its reference system; "" where it says nothing."""
    with _opened(path) as (_, image, _):
        root = image.root()
        return (
            str(root["coordinateMetadata"].value()) if root.isDefined("coordinateMetadata") else ""
        )


def write_scans(path: str | os.PathLike[str], scans: Sequence[Scan], crs: str = "") -> None:
    """One file with all scans, each in its own frame with its pose; coordinates are doubles."""
    libe57 = optional("pye57.libe57", "e57", "E57 files")
    with atomic(path) as temporary, foreign():
        image = libe57.ImageFile(str(temporary), "w")
        try:
            data3d = _new_file(libe57, image, crs)
            for scan in scans:
                _append(libe57, image, data3d, scan)
        finally:
            image.close()


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[Any, Any, list[Any]]]:
    libe57 = optional("pye57.libe57", "e57", "E57 files")
    with foreign():
        image = libe57.ImageFile(os.fspath(path), "r")
        try:
            root = image.root()
            data3d = root["data3D"] if root.isDefined("data3D") else []
            yield libe57, image, [data3d[j] for j in range(len(data3d))]
        finally:
            image.close()


def _blocks(libe57: Any, image: Any, node: Any, rows: int) -> Iterator[Scan]:
    points = node["points"]
    if not points.childCount():
        return
    prototype = libe57.StructureNode(points.prototype())
    defined = {prototype.get(j).elementName() for j in range(prototype.childCount())}
    fields = [name for name in KNOWN if name in defined]
    if not set(CARTESIAN) <= set(fields) and not set(SPHERICAL) <= set(fields):
        raise ValueError("a scan has neither cartesian nor spherical coordinates")
    capacity = min(rows, points.childCount())
    limits = _colour_limits(node, prototype) if set(COLOURS) <= defined else None
    buffers = libe57.VectorSourceDestBuffer()
    columns = {name: np.empty(capacity, KNOWN[name]) for name in fields}
    for name, column in columns.items():
        buffers.append(libe57.SourceDestBuffer(image, name, column, capacity, True, True))
    reader = points.reader(buffers)
    try:
        while count := reader.read():
            yield _scan({name: column[:count].copy() for name, column in columns.items()}, limits)
    finally:
        reader.close()


def _colour_limits(node: Any, prototype: Any) -> list[float]:
    """The largest values that colours can have: as the scan says, else as their type does."""
    found = []
    for name in COLOURS:
        field = prototype[name]
        largest = float(field.maximum()) if hasattr(field, "maximum") else 255.0
        found.append(_value(node, "colorLimits", f"{name}Maximum", largest))
    return found


def _scan(columns: dict[str, Array], limits: list[float] | None) -> Scan:
    if set(CARTESIAN) <= set(columns):
        points = np.stack([columns.pop(name) for name in CARTESIAN], 1)
    else:
        r, azimuth, elevation = (columns.pop(name) for name in SPHERICAL)
        flat = r * np.cos(elevation)
        points = np.stack(
            [flat * np.cos(azimuth), flat * np.sin(azimuth), r * np.sin(elevation)], 1
        )
    states = [columns.pop(name) for name in STATES if name in columns]
    colours = normals = None
    if limits is not None:
        values = np.stack([columns.pop(name) for name in COLOURS], 1) * (
            255.0 / np.maximum(limits, 1e-300)
        )
        colours = np.asarray(np.rint(np.clip(values, 0, 255)), np.uint8)
    if set(NORMALS) <= set(columns):
        normals = np.stack([columns.pop(name) for name in NORMALS], 1)
    intensity = columns.pop("intensity", None)
    others = {
        name: column.astype(np.int64) if OTHERS[name] == WHOLE else column
        for name, column in columns.items()
        if name in OTHERS
    }
    scan = Scan(points, colours, normals, intensity, others)
    return scan[states[0] == 0] if states else scan


def _named(scan: Scan, node: Any, j: int, count: int, path: str | os.PathLike[str]) -> Scan:
    name = _name(node, j, count, path)
    return Scan(
        scan.points, scan.colours, scan.normals, scan.intensity, scan.columns, _pose(node), name
    )


def _name(node: Any, j: int, count: int, path: str | os.PathLike[str]) -> str:
    """The scan's own name; the file's when it has none and is alone."""
    own = str(node["name"].value()).strip() if node.isDefined("name") else ""
    return own or (Path(path).stem if count == 1 else f"{Path(path).stem} {j}")


def _pose(node: Any) -> Float[Array, "4 4"] | None:
    """Rotation and translation of a scan; None where the file has neither."""
    if not node.isDefined("pose"):
        return None
    pose, q, t = node["pose"], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    if pose.isDefined("rotation"):
        q = [float(pose["rotation"][key].value()) for key in "wxyz"]
    if pose.isDefined("translation"):
        t = [float(pose["translation"][key].value()) for key in "xyz"]
    if not np.isfinite([*q, *t]).all() or not any(q):
        raise ValueError("a scan's pose is not a rotation and a translation")
    return geometry.pose(Rotation.from_quat([*q[1:], q[0]]).as_matrix(), np.array(t))


def _value(node: Any, structure: str, key: str, default: float) -> float:
    if not node.isDefined(structure) or not node[structure].isDefined(key):
        return default
    return float(node[structure][key].value())


def _new_file(libe57: Any, image: Any, crs: str) -> Any:
    image.extensionsAdd("", libe57.E57_V1_0_URI)
    image.extensionsAdd(*EXTENSION)
    root = image.root()
    root.set("formatName", libe57.StringNode(image, "ASTM E57 3D Imaging Data File"))
    root.set("guid", libe57.StringNode(image, f"{{{uuid.uuid4()}}}"))
    root.set("versionMajor", libe57.IntegerNode(image, libe57.E57_FORMAT_MAJOR))
    root.set("versionMinor", libe57.IntegerNode(image, libe57.E57_FORMAT_MINOR))
    root.set("e57LibraryVersion", libe57.StringNode(image, libe57.E57_LIBRARY_ID))
    root.set("coordinateMetadata", libe57.StringNode(image, crs))
    data3d = libe57.VectorNode(image, True)
    root.set("data3D", data3d)
    root.set("images2D", libe57.VectorNode(image, True))
    return data3d


def _append(libe57: Any, image: Any, data3d: Any, scan: Scan) -> None:
    node = libe57.StructureNode(image)
    data3d.append(node)
    node.set("guid", libe57.StringNode(image, f"{{{uuid.uuid4()}}}"))
    node.set(
        "name", libe57.StringNode(image, "".join(c if c.isprintable() else " " for c in scan.name))
    )
    T = np.eye(4) if scan.pose is None else in_space(scan.pose)
    x, y, z, w = Rotation.from_matrix(T[:3, :3]).as_quat(canonical=True)
    pose = libe57.StructureNode(image)
    node.set("pose", pose)
    for key, numbers in (
        ("rotation", {"w": w, "x": x, "y": y, "z": z}),
        ("translation", dict(zip("xyz", T[:3, 3], strict=True))),
    ):
        part = libe57.StructureNode(image)
        for name, number in numbers.items():
            part.set(name, libe57.FloatNode(image, float(number)))
        pose.set(key, part)

    columns, prototype = _columns(scan), libe57.StructureNode(image)
    if scan.colours is not None:
        limits = libe57.StructureNode(image)
        for name in COLOURS:
            limits.set(f"{name}Minimum", libe57.IntegerNode(image, 0))
            limits.set(f"{name}Maximum", libe57.IntegerNode(image, 255))
        node.set("colorLimits", limits)
    if "intensity" in columns and len(scan):
        limits = libe57.StructureNode(image)
        limits.set("intensityMinimum", libe57.FloatNode(image, float(columns["intensity"].min())))
        limits.set("intensityMaximum", libe57.FloatNode(image, float(columns["intensity"].max())))
        node.set("intensityLimits", limits)
    buffers = libe57.VectorSourceDestBuffer()
    for name, column in columns.items():
        if column.dtype == np.uint8:
            kind = libe57.IntegerNode(image, 0, 0, 255)
        elif column.dtype.kind == "i":
            low, high = int(column.min()), int(column.max())
            kind = libe57.IntegerNode(image, low, low, high)
        else:
            kind = libe57.FloatNode(image, 0.0, libe57.E57_DOUBLE)
        prototype.set(name, kind)
        buffers.append(
            libe57.SourceDestBuffer(image, name, column, max(len(column), 1), True, True)
        )
    points = libe57.CompressedVectorNode(image, prototype, libe57.VectorNode(image, True))
    node.set("points", points)
    writer = points.writer(buffers)
    if len(scan):
        writer.write(len(scan))
    writer.close()


def _columns(scan: Scan) -> dict[str, Array]:
    # libe57 refuses empty buffers.
    points = points_in_space(scan.points) if len(scan) else np.zeros((1, 3))
    columns: dict[str, Array] = {
        name: np.ascontiguousarray(axis) for name, axis in zip(CARTESIAN, points.T, strict=True)
    }
    if not len(scan):
        return columns
    if scan.intensity is not None:
        columns["intensity"] = np.asarray(scan.intensity, float)
    if scan.normals is not None:
        columns |= {
            name: np.array(axis, float) for name, axis in zip(NORMALS, scan.normals.T, strict=True)
        }
    for name, column in scan.columns.items():
        if name in OTHERS:
            columns[name] = np.empty(len(scan), OTHERS[name])
            columns[name][:] = column
    if scan.colours is not None:
        columns |= {
            name: np.ascontiguousarray(axis)
            for name, axis in zip(COLOURS, scan.colours.T, strict=True)
        }
    return columns
