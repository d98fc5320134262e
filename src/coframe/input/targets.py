# SPDX-License-Identifier: MIT
"""Targets that scans observe, control points in a known frame, and check points.

A target that two scans observe ties them to each other; one whose position is known (a control
point) ties them to the frame of that position. Both are observations of the joint step
(`em.constraints.SharedPoint`). A check point takes no part in it: what the result says of its
position is compared with the known one.
"""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em import constraints
from coframe.errors import LARGEST_NUMBER, InputError, nearest, visible
from coframe.input.normalise import Normalisation
from coframe.io import naming
from coframe.io.files import as_path, read_small
from coframe.types import Array, Pose, Poses

# [limit] Width of a set of points across their longest direction, as a share of it: narrower ones
# are on one line, and a turn about it stays unknown.
ON_A_LINE = 0.01
# [format] What columns of a table may be called, in lower case.
COLUMNS = {
    "scan": ("scan", "cloud", "station", "setup"),
    "name": ("name", "target", "point", "id"),
    "x": ("x", "e", "east", "easting"),
    "y": ("y", "n", "north", "northing"),
    "z": ("z", "h", "height", "elevation", "up"),
    "sd": ("sd", "sigma", "std"),
    "role": ("role", "use"),
}
ROLES = ("control", "check")


@dataclass(frozen=True)
class Target:
    """Where a scan sees a target.

    Attributes
    ----------
    name : str
        Of the target: the same in all scans, and that of its control point.
    scan : int or str
        Number or name of the cloud.
    position : sequence of D floats
        Of the target's centre, in the cloud's own coordinates.
    sd : float
        Standard deviation of each coordinate [unit].

    Examples
    --------
    >>> coframe.Target("T1", "scan0", (4.203, -1.871, 0.332), sd=0.002)
    """

    name: str
    scan: int | str
    position: Sequence[float | int] | Array
    sd: float | int


@dataclass(frozen=True)
class ControlPoint:
    """A target whose position in the common frame is known, such as from a total station.

    Attributes
    ----------
    name : str
    position : sequence of D floats
    sd : float
        Standard deviation of each coordinate [unit]; 0: exact.
    check : bool
        Whether it is held out of the adjustment, to check the result.

    Examples
    --------
    >>> coframe.ControlPoint("T1", (512345.678, 5403210.987, 431.204), sd=0.001)
    """

    name: str
    position: Sequence[float | int] | Array
    sd: float | int = 0.0
    check: bool = False


@dataclass(frozen=True)
class Point:
    """One target with all of its observations, checked."""

    name: str
    clouds: tuple[int, ...]
    positions: Float[Array, "n D"]
    sds: tuple[float, ...]
    known: Float[Array, " D"] | None
    known_sd: float
    check: bool

    @property
    def role(self) -> str:
        """ "control", "check", or "tie" where no position is known."""
        return "tie" if self.known is None else "check" if self.check else "control"


@dataclass(frozen=True)
class Survey:
    """All targets that scans observe."""

    points: tuple[Point, ...] = ()

    @property
    def in_control_frame(self) -> bool:
        """Whether the common frame is that of control points."""
        return any(point.role == "control" for point in self.points)

    def settles(self, group: Sequence[int], motion: str) -> bool:
        """Whether the control points that a group sees settle its frame."""
        known = [
            point.known
            for point in self.points
            if point.role == "control" and set(point.clouds) & set(group)
        ]
        here = np.array(known, float)
        return bool(known) and fitted(here, here, motion) is not None

    def internal(
        self, frames: Normalisation, origin: Float[Array, " D"], group: Sequence[int], motion: str
    ) -> tuple[constraints.SharedPoint | None, ...]:
        """Each point in internal coordinates; None for those that tie nothing in a group.

        Known positions count where they settle the frame of the group. Check points tie nothing.
        """
        known = self.settles(group, motion)
        return tuple(_internal(point, frames, origin, list(group), known) for point in self.points)

    def start(self, count: int, dimension: int, motion: str) -> Poses | None:
        """Start poses from the targets alone; None where they do not connect all clouds.

        Scan after scan is fitted to the targets whose position is known by then: that with the most
        of them first.
        """
        points = [point for point in self.points if point.role != "check"]
        known: dict[int, list[Array]] = {
            i: [point.known] for i, point in enumerate(points) if point.known is not None
        }
        seen = [
            {
                i: point.positions[point.clouds.index(j)]
                for i, point in enumerate(points)
                if j in point.clouds
            }
            for j in range(count)
        ]
        poses: dict[int, Pose] = {}
        if not known and seen:
            first = max(range(count), key=lambda j: len(seen[j]))
            poses[first] = np.eye(dimension + 1)
            known = {i: [position] for i, position in seen[first].items()}
        while len(poses) < count:
            left = [j for j in range(count) if j not in poses]
            shared = {j: [i for i in seen[j] if i in known] for j in left}
            j = max(left, key=lambda j: len(shared[j]))
            own = np.array([seen[j][i] for i in shared[j]]).reshape(-1, dimension)
            where = np.array([np.mean(known[i], axis=0) for i in shared[j]]).reshape(-1, dimension)
            pose = fitted(own, where, motion)
            if pose is None:
                return None
            poses[j] = pose
            for i, position in seen[j].items():
                if points[i].known is None:
                    known.setdefault(i, []).append(geometry.transform(pose, position[None])[0])
        return np.array([poses[j] for j in range(count)])

    def georeferenced(self, poses: Poses, group: Sequence[int], motion: str) -> Poses:
        """The poses, those of a group moved together into the frame of its control points.

        Unchanged where the group sees too few of them.
        """
        if not self.settles(group, motion):
            return poses
        pairs = [
            (poses[j], position, point.known)
            for point in self.points
            if point.role == "control"
            for j, position in zip(point.clouds, point.positions, strict=True)
            if j in group
        ]
        where = [geometry.transform(pose, position[None])[0] for pose, position, _ in pairs]
        moved = fitted(np.array(where), np.array([known for *_, known in pairs]), motion)
        if moved is None:
            return poses
        found = poses.copy()
        found[list(group)] = moved @ poses[list(group)]
        return found

    def arrays(self) -> list[Array]:
        """All that the result depends on, for its fingerprint."""
        return [
            np.asarray(value)
            for point in self.points
            for value in (
                point.name,
                point.clouds,
                point.positions,
                point.sds,
                np.empty(0) if point.known is None else point.known,
                point.known_sd,
                point.check,
            )
        ]


NO_SURVEY = Survey()


def fitted(
    source: Float[Array, "n D"], target: Float[Array, "n D"], motion: str = "rigid"
) -> Pose | None:
    """The motion of a kind that carries points onto others; None where they leave it open."""
    D = source.shape[1]
    turning = {"rigid": D, "yaw": 2, "translation": 0}[motion]
    if not len(source):
        return None
    if turning and not _spread(source[:, :turning]):
        return None
    # Large coordinates lose nothing: what is fitted is about the means.
    a, b = source.mean(0), target.mean(0)
    R = np.eye(D)
    if turning:
        part = geometry.procrustes(
            (source - a)[:, :turning], (target - b)[:, :turning], np.ones(len(source))
        )
        R[:turning, :turning] = geometry.rotation(part)
    return geometry.pose(R, b - R @ a)


def _spread(points: Float[Array, "n D"]) -> bool:
    """Whether points settle a turn: two in the plane, three off a line in space."""
    values = np.linalg.svd(points - points.mean(0), compute_uv=False)
    if points.shape[1] == 2:
        return len(points) > 1 and bool(values[0] > 0)
    return len(points) > 2 and bool(values[1] > ON_A_LINE * values[0] > 0)


def _internal(
    point: Point,
    frames: Normalisation,
    origin: Float[Array, " D"],
    group: list[int],
    referenced: bool,
) -> constraints.SharedPoint | None:
    own = [i for i, j in enumerate(point.clouds) if j in group]
    known = point.known if point.role == "control" and referenced else None
    if point.role == "check" or not own or len(own) + (known is not None) < 2:
        return None
    clouds = [group.index(point.clouds[i]) for i in own]
    weights = [(frames.scale / point.sds[i]) ** 2 for i in own]
    exact = point.known_sd == 0
    return constraints.SharedPoint(
        np.array(clouds),
        (point.positions[own] - frames.centres[clouds]) / frames.scale,
        np.array(weights),
        None if known is None else (known - origin) / frames.scale,
        0.0 if known is None else np.inf if exact else (frames.scale / point.known_sd) ** 2,
    )


def as_survey(
    targets: Any, control: Any, names: Sequence[str], dimension: int, motion: str = "rigid"
) -> Survey:
    """Targets and control points, checked against the clouds and each other."""
    observed = _records("targets", targets, Target, read_targets)
    given = _records("control", control, ControlPoint, read_control)
    if not observed:
        if given:
            raise InputError(
                "control: expected targets that scans observe beside control points, found none;"
                " give targets"
            )
        return NO_SURVEY
    by_name: dict[str, ControlPoint] = {}
    for each in given:
        if each.name in by_name:
            raise InputError(f"control: expected each point once, found {each.name!r} twice")
        by_name[each.name] = each
        _check_position("control", each.name, each.position, dimension)
        _check_deviation("control", each.name, each.sd, least=0.0)
    seen: dict[str, dict[int, Target]] = {}
    for target in observed:
        _check_position("targets", target.name, target.position, dimension)
        _check_deviation("targets", target.name, target.sd)
        j = _cloud(target.scan, names)
        if j in seen.setdefault(target.name, {}):
            raise InputError(
                f"targets: expected one observation of {target.name!r} in {names[j]}, found two;"
                " give their mean"
            )
        seen[target.name][j] = target
    unknown = [name for name in by_name if name not in seen]
    if given and len(unknown) == len(by_name):
        raise InputError(
            f"control: expected names of targets, found {visible(unknown[0])!r};"
            f" {nearest(unknown[0], list(seen))}"
        )
    points = tuple(_point(name, each, by_name.get(name)) for name, each in seen.items())
    _check_control(points, motion, bool([each for each in given if not each.check]))
    return Survey(points)


def _point(name: str, seen: Mapping[int, Target], control: ControlPoint | None) -> Point:
    return Point(
        name,
        tuple(seen),
        np.array([target.position for target in seen.values()], float),
        tuple(float(target.sd) for target in seen.values()),
        None if control is None else np.array(control.position, float),
        0.0 if control is None else float(control.sd),
        control is not None and control.check,
    )


def _check_control(points: Sequence[Point], motion: str, wanted: bool) -> None:
    """Control points must settle the common frame."""
    known = [point.known for point in points if point.role == "control"]
    if not wanted:
        if any(point.role == "check" for point in points):
            raise InputError(
                "control: expected control points beside check points, found none; check points"
                " alone leave the common frame open"
            )
        return
    here = np.array(known, float)
    if not known or fitted(here, here, motion) is None:
        needed = {"rigid": "three points off a line", "yaw": "two points", "translation": "one"}
        raise InputError(
            f"control: expected {needed[motion]} or more that scans see as targets, found"
            f" {len(known)}{' on a line' if len(known) > 2 else ''}; measure more of them, or leave"
            " control out"
        )


def _records(name: str, value: Any, kind: type, read: Any) -> list[Any]:
    """A list of records from what the user gave: records, or a file of them."""
    if value is None:
        return []
    if isinstance(value, str | os.PathLike):
        return list(read(value))
    found = list(value) if isinstance(value, Iterable) else [value]
    for each in found:
        if not isinstance(each, kind):
            raise InputError(
                f"{name}: expected a file or a list of coframe.{kind.__name__}, found"
                f" {type(each).__name__}"
            )
    return found


def _check_position(what: str, name: Any, position: Any, dimension: int) -> None:
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{what}: expected names, found {name!r}")
    try:
        found = np.array(position, float)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.shape != (dimension,) or not (np.abs(found) <= LARGEST_NUMBER).all():
        raise InputError(
            f"{what}: expected {dimension} coordinates of {visible(name)!r}, found {position!r}"
        )


def _check_deviation(what: str, name: str, sd: Any, least: float | None = None) -> None:
    good = isinstance(sd, int | float | np.number) and np.isfinite(sd) and sd >= 0
    if not good or (least is None and sd == 0):
        raise InputError(
            f"{what}: expected a standard deviation above 0 of {visible(name)!r}, found {sd!r}"
        )


def _cloud(scan: Any, names: Sequence[str]) -> int:
    """The number of the cloud that is meant: by number, or by name (`naming.find`)."""
    if isinstance(scan, Integral) and not isinstance(scan, bool):
        if 0 <= int(scan) < len(names):
            return int(scan)
        raise InputError(f"targets: expected a cloud from 0 to {len(names) - 1}, found {int(scan)}")
    return naming.find(names, str(scan), "targets")


def read_targets(path: str | os.PathLike[str], sd: float | None = None) -> list[Target]:
    """Read where scans see targets: a table with scan, name, x, y, z and, if known, sd.

    Columns are apart by commas, semicolons, tabs or blanks. A first line with their names may put
    them in any order.

    Parameters
    ----------
    path : path
    sd : float, optional
        Standard deviation of those that have none in the table [unit].

    Returns
    -------
    list of Target

    Raises
    ------
    InputError
        If the file is no such table, or has no standard deviations and none are given.

    Examples
    --------
    >>> coframe.register(files, targets=coframe.read_targets("targets.csv", sd=0.002))
    """
    found = []
    for line, row in _table(path, ("scan", "name", "x", "y", "z", "sd")):
        own = row.get("sd", sd)
        if own is None:
            raise InputError(
                f"{path}: line {line}: expected a standard deviation of the target, found none; add"
                " a column sd, or give one for all (--target-sd)"
            )
        found.append(Target(row["name"], row["scan"], _position(row), own))
    return found


def read_control(
    path: str | os.PathLike[str], check: Iterable[str] = (), sd: float = 0.0
) -> list[ControlPoint]:
    """Read known positions of targets: a table with name, x, y, z and, if known, sd and role.

    Its format is that of `read_targets`; role is "control" or "check".

    Parameters
    ----------
    path : path
    check : iterable of str
        Names of points that are held out to check the result, beside those of this role.
    sd : float
        Standard deviation of those that have none in the table [unit]; 0: exact.

    Returns
    -------
    list of ControlPoint

    Raises
    ------
    InputError
        If the file is no such table, or `check` names a point that is not in it.

    Examples
    --------
    >>> coframe.read_control("control.csv", check=["T7", "T9"])
    """
    found = []
    for line, row in _table(path, ("name", "x", "y", "z", "sd", "role")):
        role = row.get("role", "control").lower()
        if role not in ROLES:
            raise InputError(
                f"{path}: line {line}: expected the role control or check, found {role!r}"
            )
        found.append(ControlPoint(row["name"], _position(row), row.get("sd", sd), role == "check"))
    names = [point.name for point in found]
    wanted = list(check)
    for name in wanted:
        if name not in names:
            raise InputError(
                f"check: expected names of control points, found {visible(name)!r};"
                f" {nearest(visible(name), names)}"
            )
    return [replace(point, check=point.check or point.name in wanted) for point in found]


def _position(row: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(row[axis] for axis in "xyz" if axis in row)


def _table(path: str | os.PathLike[str], order: Sequence[str]) -> list[tuple[int, dict[str, Any]]]:
    """The rows of a table by the names of their columns, with their line numbers."""
    path = as_path(path)
    try:
        text = read_small(path).decode("utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{path}: expected a table of points, found nothing that can be read"
            f" ({error.strerror}); check the path"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected a table in UTF-8, found other text") from None
    lines = [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise InputError(f"{path}: expected a table of points, found no lines")
    mark = next((mark for mark in ";\t," if mark in lines[0][1]), None)
    rows = [(number, _fields(line, mark)) for number, line in lines]
    heading = _heading(rows[0][1])
    if heading is not None:
        rows = rows[1:]
    columns = list(order) if heading is None else heading
    missing = [name for name in order[: order.index("y") + 1] if name not in columns]
    if missing:
        raise InputError(
            f"{path}: expected columns {', '.join(order[: order.index('z') + 1])}, found no"
            f" {missing[0]}; name them in the first line"
        )
    return [(number, _row(path, number, fields, columns)) for number, fields in rows]


def _fields(line: str, mark: str | None) -> list[str]:
    if mark is None:
        return line.split()
    fields = [field.strip() for field in next(csv.reader([line], delimiter=mark))]
    # a decimal comma is possible where commas do not part the columns
    return fields if mark == "," else [_with_point(field) for field in fields]


def _with_point(field: str) -> str:
    point = field.replace(",", ".", 1)
    try:
        float(point)
    except ValueError:
        return field
    return point


def _heading(fields: Sequence[str]) -> list[str] | None:
    """The names of the columns, if these are such: unknown ones as they are."""
    meant = {alias: name for name, aliases in COLUMNS.items() for alias in aliases}
    found = [meant.get(field.lower(), field.lower()) for field in fields]
    return found if "name" in found and "x" in found and "y" in found else None


def _row(
    path: os.PathLike[str], line: int, fields: Sequence[str], columns: Sequence[str]
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column, field in zip(columns, fields, strict=False):
        if not field:
            continue
        if column in ("x", "y", "z", "sd"):
            try:
                row[column] = float(field)
            except ValueError:
                raise InputError(
                    f"{path}: line {line}: expected a number as {column}, found {field[:40]!r}"
                ) from None
        elif column in COLUMNS:
            row[column] = field
    wanted = [name for name in ("scan", "name", "x", "y") if name in columns and name not in row]
    if wanted:
        raise InputError(
            f"{path}: line {line}: expected {', '.join(columns)}, found no {wanted[0]}"
        )
    return row
