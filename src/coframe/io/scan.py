# SPDX-License-Identifier: MIT
"""What a cloud file holds, whatever its format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt8

from coframe import geometry
from coframe.errors import InputError
from coframe.types import Array, Points, Pose

# [format] The names that programs give to columns, in lower case; the first is the one we write.
COORDINATES = (
    ("x", "points:0", "cartesianx"),
    ("y", "points:1", "cartesiany"),
    ("z", "points:2", "cartesianz"),
)
NORMALS = (
    ("nx", "normal_x", "normalx", "normals:0"),
    ("ny", "normal_y", "normaly", "normals:1"),
    ("nz", "normal_z", "normalz", "normals:2"),
)
COLOURS = (
    ("red", "r", "diffuse_red", "colorred", "rgb:0"),
    ("green", "g", "diffuse_green", "colorgreen", "rgb:1"),
    ("blue", "b", "diffuse_blue", "colorblue", "rgb:2"),
)
INTENSITY = ("intensity", "scalar_intensity", "i", "reflectance")
# PCD: one 32-bit number 0xAARRGGBB, often called a float.
PACKED = ("rgb", "rgba")


@dataclass(frozen=True)
class Scan:
    """One cloud of a file: points, and what belongs to each of them.

    Attributes
    ----------
    points : array (N, D)
        In the scan's own frame.
    colours : uint8 array (N, 3) or None
        Red, green, blue.
    normals : array (N, 3) or None
    intensity : array (N,) or None
        In the file's unit.
    columns : mapping of str to array (N,)
        Whatever else the file says of its points.
    pose : array (4, 4) or None
        Carries the scan into the file's common frame, where the file has one.
    name : str
    """

    points: Points
    colours: UInt8[Array, "N 3"] | None = None
    normals: Float[Array, "N 3"] | None = None
    intensity: Shaped[Array, " N"] | None = None
    columns: Mapping[str, Shaped[Array, " N"]] = field(default_factory=dict)
    pose: Float[Array, "4 4"] | None = None
    name: str = ""

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, rows: slice | Bool[Array, " N"] | Int[Array, " R"]) -> "Scan":
        """Some of the points, with all that belongs to them."""
        return replace(
            self,
            points=self.points[rows],
            colours=None if self.colours is None else self.colours[rows],
            normals=None if self.normals is None else self.normals[rows],
            intensity=None if self.intensity is None else self.intensity[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
        )

    def measured(self) -> "Scan":
        """Without the rows whose coordinates are all NaN: a ray without a return."""
        missing = np.isnan(self.points).all(1)
        return self[~missing] if missing.any() else self

    def moved(self, pose: Pose) -> "Scan":
        """The scan in another frame: points, normals and its pose."""
        R = geometry.rotation(pose)
        turns = self.normals is not None and R.shape == (3, 3)
        return replace(
            self,
            points=geometry.transform(pose, self.points),
            normals=self.normals @ R.T if turns and self.normals is not None else self.normals,
            pose=None if self.pose is None else self.pose @ geometry.inverse(in_space(pose)),
        )

    def attributes(self) -> dict[str, Shaped[Array, " N"]]:
        """All columns but the coordinates, by the names we write."""
        found: dict[str, Array] = {}
        if self.normals is not None:
            found |= {
                names[0]: column for names, column in zip(NORMALS, self.normals.T, strict=True)
            }
        if self.colours is not None:
            found |= {
                names[0]: column for names, column in zip(COLOURS, self.colours.T, strict=True)
            }
        if self.intensity is not None:
            found[INTENSITY[0]] = self.intensity
        return found | {
            name: column
            for name, column in self.columns.items()
            if name not in found and name not in ("x", "y", "z")
        }

    def numeric_attributes(self) -> dict[str, Shaped[Array, " N"]]:
        """The attributes that are numbers: what a result keeps of a scan beside its points."""
        return {
            name: column
            for name, column in self.attributes().items()
            if column.dtype.kind in "fiub"
        }


def refuse_masked(name: str, value: Any) -> None:
    """Refuse arrays with masked entries: left out, results would no longer fit the user's rows."""
    each = [value] if isinstance(value, np.ndarray) else value
    if not isinstance(each, list | tuple):
        return
    for part in each:
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            raise InputError(
                f"{name}: expected values of which none is masked, found"
                f" {int(np.ma.getmaskarray(part).sum())} masked ones; pass the others, of points as"
                " cloud[~cloud.mask.any(1)].data"
            )


def in_space(pose: Pose) -> Float[Array, "4 4"]:
    """A pose of the plane as one of space, which leaves z alone; one of space as it is."""
    D = len(pose) - 1
    T = np.eye(4)
    T[:D, :D], T[:D, 3] = pose[:D, :D], pose[:D, D]
    return T


def points_in_space(points: Points) -> Float[Array, "N 3"]:
    """Points of the plane as points of space with z = 0; points of space as a copy."""
    padded = np.zeros((len(points), 3))
    padded[:, : points.shape[1]] = points
    return padded


def of_columns(
    columns: Mapping[str, Shaped[Array, " N"]], *, name: str = "", pose: Array | None = None
) -> Scan:
    """A scan from named columns: x, y and perhaps z; normals, colours and intensity where their
    names are known.
    """
    left = dict(columns)
    axes = [_take(left, names) for names in COORDINATES]
    if axes[0] is None or axes[1] is None:
        raise ValueError(f"no columns x and y among {', '.join(map(repr, columns)) or 'none'}")
    normals = _triple(left, NORMALS)
    colours = _triple(left, COLOURS)
    packed = None if colours is not None else _take(left, PACKED)
    if packed is not None and packed.dtype.itemsize == 4:
        bits = np.ascontiguousarray(packed.astype(packed.dtype.newbyteorder("="))).view("u4")
        colours = np.stack([bits >> 16 & 255, bits >> 8 & 255, bits & 255], 1).astype(np.uint8)
    return Scan(
        points=_together([axis for axis in axes if axis is not None], np.float64),
        colours=None if colours is None else as_colours(colours),
        normals=None if normals is None else np.asarray(normals, np.float64),
        intensity=_take(left, INTENSITY),
        columns=left,
        pose=pose,
        name=name,
    )


def _take(columns: dict[str, Array], names: Sequence[str]) -> Array | None:
    for key in columns:
        if key.lower() in names and columns[key].ndim == 1:
            return columns.pop(key)
    return None


def _triple(columns: dict[str, Array], names: Sequence[Sequence[str]]) -> Array | None:
    """Three columns side by side, or None when not all of them are there."""
    tried = dict(columns)
    found = [_take(tried, each) for each in names]
    if any(column is None for column in found):
        return None
    for key in set(columns) - set(tried):
        del columns[key]
    return np.stack([column for column in found if column is not None], 1)


def _together(columns: Sequence[Array], dtype: type) -> Array:
    """np.stack(columns, 1) with one copy less."""
    together: Array = np.empty((len(columns[0]), len(columns)), dtype)
    for j, column in enumerate(columns):
        if column.dtype.kind not in "fiub":
            raise ValueError(f"coordinates are numbers, not {column.dtype}")
        together[:, j] = column
    return together


def as_colours(values: Shaped[Array, "N 3"]) -> UInt8[Array, "N 3"]:
    """Colours as bytes, from bytes, 16-bit numbers, fractions of 1, or any numbers up to 255."""
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        return (values >> 8).astype(np.uint8)
    if values.dtype.kind == "f":
        values = np.nan_to_num(values, posinf=0, neginf=0)
        if values.size and values.max() <= 1:
            values = values * 255
        return np.asarray(np.rint(np.clip(values, 0, 255)), np.uint8)
    return np.asarray(np.clip(values, 0, 255), np.uint8)


def joined(scans: Sequence[Scan]) -> Scan:
    """Blocks of one file, one behind the other."""
    first = scans[0]
    if len(scans) == 1:
        return first

    def together(parts: Sequence[Array | None]) -> Array | None:
        present = [part for part in parts if part is not None]
        return np.concatenate(present) if len(present) == len(parts) else None

    return replace(
        first,
        points=np.concatenate([scan.points for scan in scans]),
        colours=together([scan.colours for scan in scans]),
        normals=together([scan.normals for scan in scans]),
        intensity=together([scan.intensity for scan in scans]),
        columns={
            name: np.concatenate([scan.columns[name] for scan in scans]) for name in first.columns
        },
    )
