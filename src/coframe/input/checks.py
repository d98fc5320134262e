# SPDX-License-Identifier: MIT
"""The door: clouds are checked here once, then centred and scaled. Everything behind it assumes good input."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.types import Array
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.input.source import Loaded, Source, order_statistics

LARGEST_NUMBER = 1e100  # the cube of any coordinate, and of any extent and its inverse, is a number
SCALE_RATIO = 1e6  # clouds whose extents differ by more than this cannot be parts of one scene
SAME_UNIT = 50.0  # and by more than this perhaps, but centimetres among metres are as likely
FLAT = 1e-9  # of the extent: points closer than this to a line are collinear


class InputError(ValueError):
    """What came in cannot be used; the message names it, says what was expected and what was found."""


def as_clouds(clouds: Iterable[Any], *, names: Sequence[str] | None = None) -> list[Float[Array, "_ D"]]:
    """The clouds as float64 arrays (N_j, D), or an `InputError` in one sentence.

    A cloud is an array-like of shape (N, 2) or (N, 3), or anything with `.points` or `.vertices`. `names` appear in messages.
    """
    if isinstance(clouds, np.ndarray) and clouds.ndim == 2:
        raise InputError("clouds: expected a sequence of at least two clouds, found a single array; pass a list of arrays")
    clouds = list(clouds)
    if len(clouds) < 2:
        alone = "" if names is None else "".join(f", {name}" for name in names)
        raise InputError(f"clouds: expected at least two clouds to register with each other, found {len(clouds)}{alone}")
    names = [f"cloud {j}" for j in range(len(clouds))] if names is None else list(names)
    checked = [as_cloud(cloud, name) for cloud, name in zip(clouds, names, strict=True)]
    check_alike([cloud.shape[1] for cloud in checked], [extent(cloud) for cloud in checked], names)
    return checked


def as_cloud(cloud: Any, name: str) -> Float[Array, "N D"]:
    """One cloud, checked."""
    for attribute in ("points", "vertices"):
        if hasattr(cloud, attribute):
            cloud = getattr(cloud, attribute)
            break
    try:
        points = np.asarray(cloud)
        if points.dtype.kind not in "fiu":
            raise TypeError
        points = np.array(points, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name}: expected an array of real numbers, found {_described(cloud)}") from None
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise InputError(f"{name}: expected shape (N, 2) or (N, 3), one point a row, found shape {points.shape}")
    N, D = points.shape
    if N <= D:
        raise InputError(f"{name}: expected at least {D + 1} points, found {N}")
    bad = np.flatnonzero(~np.isfinite(points).all(1))
    if len(bad):
        raise InputError(
            f"{name}: expected finite coordinates, found {points[bad[0]].tolist()} at point {bad[0]} "
            f"({len(bad)} such points of {N}); remove them first"
        )
    farthest = np.abs(points).max()
    if farthest > LARGEST_NUMBER:
        raise InputError(f"{name}: expected coordinates below {LARGEST_NUMBER:.0e}, found {farthest:.3g}; choose another unit")
    extent = np.ptp(points, axis=0).max()
    rounding = 8 * np.finfo(float).eps * farthest
    if extent <= rounding:
        raise InputError(f"{name}: expected points that differ, found all {N} at {points[0].tolist()}")
    if extent < 1 / LARGEST_NUMBER:
        least = f"{1 / LARGEST_NUMBER:.0e}"
        raise InputError(f"{name}: expected an extent of at least {least}, found {extent:.3g}; choose another unit")
    spread = np.linalg.svd(_sample(points - points.mean(0)), compute_uv=False)
    if D == 3 and spread[1] <= max(FLAT * spread[0], rounding):
        raise InputError(f"{name}: expected points that span a surface, found all {N} on one line")
    return points


def _sample(points: Float[Array, "N D"]) -> Float[Array, "S D"]:
    """The triangular factor of the points: the same singular values, at most D rows."""
    return np.asarray(np.linalg.qr(points, mode="r"))


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"{kind} of {value.dtype}" if isinstance(value, np.ndarray) else kind


def check_alike(dimensions: Sequence[int], extents: Sequence[float], names: Sequence[str]) -> None:
    """Raise when clouds cannot be parts of one scene."""
    if len(names) < 2:
        raise InputError(f"clouds: expected at least two clouds to register with each other, found {len(names)}")
    for dimension, name in zip(dimensions, names, strict=True):
        if dimension != dimensions[0]:
            raise InputError(f"{name}: expected {dimensions[0]} coordinates per point as in {names[0]}, found {dimension}")
    small, large = int(np.argmin(extents)), int(np.argmax(extents))
    if extents[large] > SCALE_RATIO * extents[small]:
        raise InputError(
            f"{names[small]}: expected clouds in one unit, found an extent of {extents[small]:.3g} "
            f"beside {extents[large]:.3g} of {names[large]}; check the units"
        )


def unit_doubt(extents: Sequence[float], names: Sequence[str]) -> str | None:
    """A sentence where clouds may be in different units."""
    small, large = int(np.argmin(extents)), int(np.argmax(extents))
    ratio = extents[large] / extents[small]
    return f"{names[large]} is {ratio:.0f} times as large as {names[small]}; check the units" if ratio > SAME_UNIT else None


def extent(points: Float[Array, "N D"]) -> float:
    """A robust size: the longest side of the box that holds the middle 98 % of each coordinate (of all, for small clouds)."""
    low, high = np.percentile(points, [1, 99], axis=0) if len(points) >= 100 else (points.min(0), points.max(0))
    return float((high - low).max()) or float(np.ptp(points, axis=0).max())


@dataclass(frozen=True)
class Summary:
    """What the whole must know of a cloud, of the points that count (those of a weight above zero)."""

    size: int  # all points
    count: int  # those that count
    median: Float[Array, " D"]
    low: Float[Array, " D"]
    high: Float[Array, " D"]
    extent: float  # see `extent`
    columns: Mapping[str, np.dtype] = field(default_factory=dict)

    @classmethod
    def of(cls, cloud: Source) -> "Summary":
        size = cloud.shape[0]
        if isinstance(cloud, Loaded):
            points, columns = cloud.counted().points, {name: column.dtype for name, column in cloud.columns.items()}
            box = points.min(0), points.max(0)
            return cls(size, len(points), np.median(points, axis=0), *box, extent(points), columns)
        near = cloud.counted()
        count = near.shape[0]
        trimmed = [_between(count, share) for share in (0.01, 0.99)] if count >= 100 else []
        ranks = [0, count - 1, (count - 1) // 2, count // 2]
        ranks += [rank for below, _ in trimmed for rank in (below, min(below + 1, count - 1))]
        low, high, a, b, *rest = order_statistics(lambda: (block.points for block in near.blocks()), ranks)
        inner = [_interpolated(rest[2 * i], rest[2 * i + 1], share) for i, (_, share) in enumerate(trimmed)] or [low, high]
        longest = float((inner[1] - inner[0]).max()) or float((high - low).max())
        columns = {name: cloud.dtype[name] for name in (cloud.dtype.names or ())[1:]}
        return cls(size, count, np.mean([a, b], axis=0), low, high, longest, columns)


def _between(count: int, share: float) -> tuple[int, float]:
    """The rank below a share of so many entries, and how far it lies from there to the next: as NumPy has it."""
    place = (count - 1) * share
    return int(np.floor(place)), place - np.floor(place)


def _interpolated(a: Float[Array, " D"], b: Float[Array, " D"], share: float) -> Float[Array, " D"]:
    return b - (b - a) * (1 - share) if share >= 0.5 else a + (b - a) * share


@dataclass(frozen=True)
class Frames:
    """How the clouds were centred and scaled: u = (v - centre_j) / scale. Poses and mixtures cross the border here."""

    centres: Float[Array, "M D"]
    scale: float  # user units per internal unit

    @classmethod
    def of(cls, clouds: Sequence[Float[Array, "_ D"]]) -> "Frames":
        """Medians as centres (stray points do not pull them) and the largest extent as the unit."""
        return cls.about([Summary.of(Loaded(cloud)) for cloud in clouds])

    @classmethod
    def about(cls, summaries: Sequence[Summary]) -> "Frames":
        """The same, from what is known of the clouds."""
        return cls(np.array([each.median for each in summaries]), max(each.extent for each in summaries))

    def middle(self, poses: Float[Array, "M D1 D1"]) -> Float[Array, " D"]:
        """Where the clouds' centres lie on average under user poses: a good origin for the internal common frame."""
        return np.asarray((geometry.rotation(poses) @ self.centres[..., None])[..., 0] + geometry.translation(poses)).mean(0)

    def only(self, cloud: int) -> "Frames":
        """The frame of one cloud."""
        return Frames(self.centres[cloud : cloud + 1], self.scale)

    def enter(self, clouds: Sequence[Float[Array, "_ D"]]) -> list[Float[Array, "_ D"]]:
        """Clouds in internal coordinates."""
        return [(cloud - frame.centres[0]) / frame.scale for cloud, frame in zip(clouds, self.each(), strict=True)]

    def each(self) -> list["Frames"]:
        """The frames of the clouds, one by one."""
        return [self.only(j) for j in range(len(self.centres))]

    def enter_poses(self, poses: Float[Array, "M D1 D1"], origin: Float[Array, " D"]) -> Float[Array, "M D1 D1"]:
        """User poses as internal ones; `origin` is the user's point that becomes the internal common origin."""
        R = geometry.rotation(poses)
        t = (R @ self.centres[..., None])[..., 0] + geometry.translation(poses) - origin
        return geometry.pose(R, t / self.scale)

    def leave_poses(self, poses: Float[Array, "M D1 D1"], origin: Float[Array, " D"]) -> Float[Array, "M D1 D1"]:
        """Internal poses as user ones: the inverse of `enter_poses`."""
        R = geometry.nearest_rotation(
            geometry.rotation(poses)
        )  # many small turns have left it; survey coordinates magnify that
        t = geometry.translation(poses) * self.scale + origin - (R @ self.centres[..., None])[..., 0]
        return geometry.pose(R, t)

    def enter_mixture(self, mixture: Mixture, origin: Float[Array, " D"]) -> Mixture:
        """A mixture of the user's in internal coordinates."""
        return replace(
            mixture,
            means=(mixture.means - origin) / self.scale,
            covariances=mixture.covariances / self.scale**2,
            outlier_density=mixture.outlier_density * self.scale**mixture.dimension,
        )

    def leave_mixture(self, mixture: Mixture, origin: Float[Array, " D"]) -> Mixture:
        """The inverse of `enter_mixture`."""
        return replace(
            mixture,
            means=mixture.means * self.scale + origin,
            covariances=mixture.covariances * self.scale**2,
            outlier_density=mixture.outlier_density / self.scale**mixture.dimension,
        )

    def enter_moments(self, moments: Moments, origin: Float[Array, " D"]) -> Moments:
        """Moments of the user's in internal coordinates, traces of second moments or whole ones."""
        return Moments(
            (moments.about - origin) / self.scale,
            moments.mass,
            moments.first / self.scale,
            moments.second / self.scale**2,
            moments.points,
        )

    def leave_moments(self, moments: Moments, origin: Float[Array, " D"]) -> Moments:
        """Internal moments in the user's units, about the user's points."""
        return Moments(
            moments.about * self.scale + origin,
            moments.mass,
            moments.first * self.scale,
            moments.second * self.scale**2,
            moments.points,
        )

    def leave_covariance(self, covariance: Float[Array, "M P P"]) -> Float[Array, "M P P"]:
        """Internal covariances of twists (omega, tau) in the user's units; angles have none."""
        D = self.centres.shape[1]
        units = np.ones(covariance.shape[1])
        units[-D:] = self.scale
        return covariance * np.outer(units, units)
