# SPDX-License-Identifier: MIT
"""Validation of user input: clouds, poses, weights, fixed clouds, priors.

Whatever is wrong is one sentence that names it, says what was expected and what was found.
Everything behind these checks assumes good input.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from io import IOBase
from numbers import Integral
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em.constraints import Prior
from coframe.errors import LARGEST_NUMBER, InputError, one_line, visible
from coframe.geometry import extent
from coframe.input.normalise import Normalisation
from coframe.input.prior import PosePrior
from coframe.input.source import stray
from coframe.io.scan import refuse_masked
from coframe.types import Array, Points, Poses

# [limit] Clouds whose extents differ by a larger factor are refused.
SCALE_RATIO = 1e6
# [guard] Share of the extent: points closer than this to a line are collinear.
FLAT = 1e-9
# [limit] Share of the largest weight: less is no weight.
LEAST_WEIGHT = 1e-12
# [limit] Extents of the largest cloud: points farther from their cloud's median count as nothing.
STRAY = 1000.0
# [limit] Extents: the rounding of the square of a longer distance exceeds the smallest variance.
FAR = 1e4
# [limit] How far a rotation matrix may be from one.
RIGID = 1e-3
# What arrays of other libraries raise when they cannot be converted.
UNCONVERTIBLE = (TypeError, ValueError, RuntimeError, AttributeError, BufferError)


def as_clouds(
    clouds: Iterable[Any], *, names: Sequence[str] | None = None
) -> list[Float[Array, "_ D"]]:
    """The clouds as float64 arrays (N_j, D), or an `InputError` in one sentence.

    A cloud is an array-like of shape (N, 2) or (N, 3), or anything with `.points` or `.vertices`.
    `names` appear in messages.
    """
    clouds = as_list(clouds)
    if len(clouds) < 2:
        alone = "" if names is None else "".join(f", {name}" for name in names)
        raise InputError(
            "clouds: expected at least two clouds to register with each other, found"
            f" {len(clouds)}{alone}; name more files, or their folder"
        )
    names = [f"cloud {j}" for j in range(len(clouds))] if names is None else list(names)
    checked = [as_cloud(cloud, name) for cloud, name in zip(clouds, names, strict=True)]
    check_alike([cloud.shape[1] for cloud in checked], [extent(cloud) for cloud in checked], names)
    return checked


def as_list(clouds: Any) -> list[Any]:
    """The clouds as a list; an `InputError` for what cannot be several clouds."""
    if isinstance(clouds, str | bytes | bytearray | IOBase | Set) or not isinstance(
        clouds, Iterable
    ):
        single = any(hasattr(clouds, each) for each in ("points", "vertices", "__array__"))
        if single:
            raise InputError(
                f"clouds: expected a list of at least two clouds, found a single"
                f" {type(clouds).__name__}; pass a list"
            )
        raise InputError(
            "clouds: expected a list of arrays or of files, or a dictionary of names and clouds,"
            f" found {_described(clouds)}"
        )
    dimensions = getattr(clouds, "ndim", None)
    if dimensions in (0, 2) or any(hasattr(clouds, each) for each in ("points", "vertices")):
        raise InputError(
            "clouds: expected a list of at least two clouds, found a single"
            f" {'array' if isinstance(clouds, np.ndarray) else type(clouds).__name__}; pass a list"
            " of arrays"
        )
    return list(clouds)


def as_names(value: Any, count: int) -> list[str]:
    """Names as plain strings, one for each cloud, no two alike, each text on one line."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(
            f"names: expected a list of strings, one for each cloud, found {type(value).__name__}"
        )
    names = list(value)
    if len(names) != count:
        raise InputError(f"names: expected {count}, one for each cloud, found {len(names)}")
    for j, name in enumerate(names):
        check_name(name, f"names: expected strings, found {{}} for cloud {j}")
    for j, name in enumerate(names):
        if name in names[:j]:
            raise InputError(
                f"names: expected names that differ, found {name!r} for clouds {names.index(name)}"
                f" and {j}"
            )
    return [str(name) for name in names]


def as_name(value: Any, others: Sequence[str]) -> str:
    """The name of one more cloud, unlike those of the others."""
    check_name(value, "name: expected a string, found {}")
    if value in others:
        raise InputError(
            f"name: expected a name that no other cloud has, found {value!r}; choose another one"
        )
    return str(value)


def check_name(name: Any, message: str) -> None:
    """Refuse what is no text on one line; `message` has room for what was found."""
    if not isinstance(name, str):
        raise InputError(message.format(f"{name!r} ({type(name).__name__})") + "; pass text")
    if not name.strip():
        raise InputError(message.format("an empty one") + "; leave names out to have them chosen")
    if visible(name) != name:
        raise InputError(message.format(repr(name)) + "; pass text on one line")


def as_cloud(cloud: Any, name: str) -> Points:
    """One cloud, checked."""
    given = cloud
    try:
        for attribute in ("points", "vertices"):
            if hasattr(cloud, attribute):
                cloud = getattr(cloud, attribute)
                break
        columns = _coordinates(cloud, name)
        if columns is None:
            refuse_masked(name, cloud)
        points = np.asarray(cloud) if columns is None else np.stack(columns, 1)
        if points.dtype.kind not in "fiu":
            raise TypeError
        points = np.array(points, dtype=np.float64)
    except InputError:
        raise
    except UNCONVERTIBLE as error:
        why = f" ({one_line(error)})" if hasattr(given, "__array__") and str(error) else ""
        raise InputError(
            f"{name}: expected an array of real numbers, found {_described(given)}{why}"
        ) from None
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise InputError(
            f"{name}: expected shape (N, 2) or (N, 3), one point a row, found shape {points.shape}"
        )
    N, D = points.shape
    if N <= D:
        raise InputError(f"{name}: expected at least {D + 1} points, found {N}")
    bad = np.flatnonzero(~np.isfinite(points).all(1))
    if len(bad):
        raise InputError(
            f"{name}: expected finite coordinates, found {points[bad[0]].tolist()} at point"
            f" {bad[0]} ({len(bad)} such points of {N}); remove them first"
        )
    farthest = np.abs(points).max()
    if farthest > LARGEST_NUMBER:
        raise InputError(
            f"{name}: expected coordinates below {LARGEST_NUMBER:.0e}, found {farthest:.3g}; choose"
            " another unit"
        )
    extent = np.ptp(points, axis=0).max()
    rounding = 8 * np.finfo(float).eps * farthest
    if extent <= rounding:
        raise InputError(
            f"{name}: expected points that differ, found all {N} at {points[0].tolist()}"
        )
    if extent < 1 / LARGEST_NUMBER:
        least = f"{1 / LARGEST_NUMBER:.0e}"
        raise InputError(
            f"{name}: expected an extent of at least {least}, found {extent:.3g}; choose another"
            " unit"
        )
    spread = np.linalg.svd(_triangular_factor(points - points.mean(0)), compute_uv=False)
    if D == 3 and spread[1] <= max(FLAT * spread[0], rounding):
        raise InputError(f"{name}: expected points that span a surface, found all {N} on one line")
    return points


def _triangular_factor(points: Points) -> Float[Array, "S D"]:
    """The triangular factor of the points: the same singular values, at most D rows."""
    return np.asarray(np.linalg.qr(points, mode="r"))


def _coordinates(table: Any, name: str) -> list[Array] | None:
    """The columns x, y and perhaps z of a table with named columns, in this order."""
    fields = getattr(getattr(table, "dtype", None), "names", None)
    names = getattr(table, "columns", None) if fields is None else fields
    if names is None or not hasattr(table, "__getitem__"):
        return None
    known = {str(each).lower(): each for each in names}
    if "x" in known and "y" in known:
        axes = [known[axis] for axis in "xyz" if axis in known]
        for axis in axes:
            refuse_masked(name, table[axis])
        return [np.asarray(table[axis]) for axis in axes]
    if fields is None:
        return None
    raise InputError(
        f"{name}: expected columns x, y and perhaps z, found {', '.join(map(str, names))}; rename"
        " them, or pass an array of shape (N, 3)"
    )


def _described(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, bytes | bytearray):
        return f"{kind}; of the name of a file, pass os.fsdecode(...)"
    if isinstance(value, IOBase):
        return f"an open file ({kind}); pass its path"
    if isinstance(value, Set):
        return f"{kind}, which has no order; pass a list"
    return f"{kind} of {value.dtype}" if isinstance(value, np.ndarray) else kind


def check_alike(dimensions: Sequence[int], extents: Sequence[float], names: Sequence[str]) -> None:
    """Raise when clouds cannot be parts of one scene."""
    if len(names) < 2:
        raise InputError(
            f"clouds: expected at least two clouds to register with each other, found {len(names)};"
            " name more files, or their folder"
        )
    for dimension, name in zip(dimensions, names, strict=True):
        if dimension != dimensions[0]:
            raise InputError(
                f"{name}: expected {dimensions[0]} coordinates per point as in {names[0]}, found"
                f" {dimension}"
            )
    small, large = int(np.argmin(extents)), int(np.argmax(extents))
    if extents[large] > SCALE_RATIO * extents[small]:
        raise InputError(
            f"{names[small]}: expected clouds in one unit, found an extent of {extents[small]:.3g} "
            f"beside {extents[large]:.3g} of {names[large]}; check the units"
        )


def numbers(name: str, value: Any) -> Float[Array, "..."]:
    """The value as a float array."""
    refuse_masked(name, value)
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiubO":
            raise TypeError
        return np.asarray(array, dtype=float)
    except UNCONVERTIBLE:
        advice = ""
        if "pose" in name and isinstance(value, str | PathLike):
            advice = "; read files with coframe.io.poses.read_for"
        raise InputError(
            f"{name}: expected an array of numbers, found {type(value).__name__}{advice}"
        ) from None


def as_poses(value: Any, count: int, dimension: int, name: str = "poses") -> Poses:
    """Rigid motions, one per cloud; small errors of rounding are taken out."""
    poses = numbers(name, value)
    expected = (count, dimension + 1, dimension + 1)
    if poses.shape != expected:
        raise InputError(
            f"{name}: expected shape {expected}, one matrix a cloud, found shape {poses.shape}"
        )
    last_row = np.eye(dimension + 1)[-1]
    for j, pose in enumerate(poses):
        R = geometry.rotation(pose)
        # false for NaN
        small = bool((np.abs(R) <= 1 + RIGID).all()) and bool(
            (np.abs(pose) <= LARGEST_NUMBER).all()
        )
        if not (
            small and np.abs(R @ R.T - np.eye(dimension)).max() < RIGID and np.linalg.det(R) > 0
        ):
            raise InputError(
                f"{name}: expected a rotation and a translation, found {pose.tolist()} for"
                f" cloud {j}"
            )
        if not np.array_equal(pose[-1], last_row):
            raise InputError(
                f"{name}: expected a last row {last_row.tolist()}, found {pose[-1].tolist()} for"
                f" cloud {j}"
            )
    return geometry.pose(
        geometry.nearest_rotation(geometry.rotation(poses)), geometry.translation(poses)
    )


def check_near(poses: Poses, names: Sequence[str]) -> Poses:
    """Start poses in internal coordinates, none so far away that its shape is lost to rounding."""
    distance = np.linalg.norm(geometry.translation(poses), axis=1)
    if not distance.max() <= FAR:
        j = int(distance.argmax())
        raise InputError(
            f"{names[j]}: expected clouds within {FAR:.0e} extents of each other, found it"
            f" {distance[j]:.1e} away from their middle; give start poses that bring them together"
        )
    return poses


def as_weights(
    value: Any, clouds: Sequence[Float[Array, "_ D"]]
) -> Sequence[Float[Array, " _"] | None]:
    """Weights per point, in the mean over the points that count one: only their ratios count.

    None where all count alike.
    """
    if value is None:
        ones = [np.ones(len(cloud)) for cloud in clouds]
        return [
            None if found is one else found
            for found, one in zip(_without_strays(ones, clouds), ones, strict=True)
        ]
    given = (
        list(value)
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        else [value]
    )
    if len(given) != len(clouds):
        raise InputError(
            f"weights: expected one array for each of {len(clouds)} clouds, found {len(given)}"
        )
    checked = []
    for j, (weight, cloud) in enumerate(zip(given, clouds, strict=True)):
        array = numbers(f"weights of cloud {j}", weight)
        if array.shape != (len(cloud),):
            raise InputError(
                f"weights of cloud {j}: expected shape ({len(cloud)},), one a point, found shape"
                f" {array.shape}"
            )
        if not (np.isfinite(array).all() and (array >= 0).all()):
            raise InputError(
                f"weights of cloud {j}: expected finite numbers of at least 0, found {array.min()}"
            )
        checked.append(array)
    top = max(float(array.max()) for array in checked) or 1.0
    checked = [np.where(array / top < LEAST_WEIGHT, 0.0, array / top) for array in checked]
    for j, (array, cloud) in enumerate(zip(checked, clouds, strict=True)):
        if (array > 0).sum() <= cloud.shape[1]:
            least = f"{LEAST_WEIGHT:.0e} of the largest weight"
            raise InputError(
                f"weights of cloud {j}: expected more than {cloud.shape[1]} above {least}, found"
                f" {(array > 0).sum()}"
            )
    checked = _without_strays(checked, clouds)
    mean = np.concatenate([array[array > 0] for array in checked]).mean()
    return [array / mean for array in checked]


def _without_strays(
    weights: list[Float[Array, " _"]], clouds: Sequence[Float[Array, "_ D"]]
) -> list[Float[Array, " _"]]:
    """Without weight where a point lies so far away that its square would drown the others'."""
    reach = STRAY * max(map(extent, clouds))
    found = []
    for weight, cloud in zip(weights, clouds, strict=True):
        far = stray(cloud, np.median(cloud, axis=0), reach)
        found.append(
            np.where(far, 0.0, weight)
            if far.any() and (~far & (weight > 0)).sum() > cloud.shape[1]
            else weight
        )
    return found


def as_indices(value: Any, count: int, name: str) -> tuple[int, ...]:
    """Indices of clouds, for the argument of that name."""
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    indices = list(value) if several else None
    if indices is None:
        raise InputError(f"{name}: expected a list of clouds, found {value!r}")
    for j in indices:
        if not isinstance(j, Integral) or isinstance(j, bool | np.bool_) or not 0 <= int(j) < count:
            raise InputError(f"{name}: expected indices of clouds, 0 to {count - 1}, found {j!r}")
    return tuple(int(j) for j in indices)


def as_priors(value: Any, frames: Normalisation, origin: Float[Array, " D"]) -> tuple[Prior, ...]:
    """Priors in internal coordinates."""
    given = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    for prior in given:
        if not isinstance(prior, PosePrior):
            raise InputError(f"priors: expected a list of PosePrior, found {type(prior).__name__}")
        if not isinstance(prior.cloud, Integral) or not 0 <= int(prior.cloud) < len(frames.centres):
            raise InputError(
                f"priors: expected the index of a cloud, 0 to {len(frames.centres) - 1}, found"
                f" {prior.cloud!r}"
            )
    return tuple(_internal(prior, frames, origin) for prior in given)


def _internal(prior: PosePrior, frames: Normalisation, origin: Float[Array, " D"]) -> Prior:
    """A prior in internal coordinates, whose origin is the cloud's median."""
    D = len(origin)
    pose = as_poses(numbers("priors", prior.pose)[None], 1, D, name="priors")
    units = np.ones(geometry.degrees_of_freedom(D))
    units[-D:] = frames.scale
    centre = frames.centres[prior.cloud]
    point = np.zeros(D)
    if prior.about is not None:
        about = numbers("priors", prior.about)
        if about.shape != (D,) or not (np.abs(about) <= LARGEST_NUMBER).all():  # false for NaN
            raise InputError(f"priors: expected a point of {D} coordinates in about, found {about}")
        point = (about - centre) / frames.scale
    return Prior(
        prior.cloud,
        frames.only(prior.cloud).enter_poses(pose, origin)[0],
        _information(prior.covariance, D) * np.outer(units, units),
        point,
    )


def _information(value: Any, dimension: int) -> Float[Array, "P P"]:
    """The inverse of a covariance, with zeros for what is unknown."""
    P = geometry.degrees_of_freedom(dimension)
    covariance = numbers("priors", value)
    if covariance.shape != (P, P):
        raise InputError(
            f"priors: expected a covariance of shape ({P}, {P}), found shape {covariance.shape}"
        )
    known = np.isfinite(np.diagonal(covariance))
    part = covariance[np.ix_(known, known)]
    if (
        np.isnan(covariance).any()
        or not np.allclose(part, part.T)
        or (len(part) and np.linalg.eigvalsh(part)[0] <= 0)
    ):
        raise InputError(
            "priors: expected a symmetric positive definite covariance, found another matrix"
        )
    information = np.zeros((P, P))
    information[np.ix_(known, known)] = np.linalg.inv(part)
    return information
