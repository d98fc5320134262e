# SPDX-License-Identifier: MIT
"""How clouds are centred and scaled, and how results get back to the user's coordinates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.em.loop import Iteration
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.geometry import extent
from coframe.input.quantiles import order_statistics
from coframe.input.source import InMemory, Source
from coframe.types import Array, Poses


@dataclass(frozen=True)
class Summary:
    """What the whole must know of a cloud: of its points of a weight above zero."""

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
        if isinstance(cloud, InMemory):
            points, columns = (
                cloud.counted().points,
                {name: column.dtype for name, column in cloud.columns.items()},
            )
            box = points.min(0), points.max(0)
            return cls(size, len(points), np.median(points, axis=0), *box, extent(points), columns)
        near = cloud.counted()
        count = near.shape[0]
        trimmed = [_between(count, share) for share in (0.01, 0.99)] if count >= 100 else []
        ranks = [0, count - 1, (count - 1) // 2, count // 2]
        ranks += [rank for below, _ in trimmed for rank in (below, min(below + 1, count - 1))]
        low, high, a, b, *rest = order_statistics(
            lambda: (block.points for block in near.blocks()), ranks
        )
        inner = [
            _interpolated(rest[2 * i], rest[2 * i + 1], share)
            for i, (_, share) in enumerate(trimmed)
        ] or [low, high]
        longest = float((inner[1] - inner[0]).max()) or float((high - low).max())
        columns = {name: cloud.dtype[name] for name in (cloud.dtype.names or ())[1:]}
        return cls(size, count, np.mean([a, b], axis=0), low, high, longest, columns)


def _between(count: int, share: float) -> tuple[int, float]:
    """The rank below a share of so many entries, and how far it lies from there to the next: as
    NumPy has it.
    """
    place = (count - 1) * share
    return int(np.floor(place)), place - np.floor(place)


def _interpolated(a: Float[Array, " D"], b: Float[Array, " D"], share: float) -> Float[Array, " D"]:
    return b - (b - a) * (1 - share) if share >= 0.5 else a + (b - a) * share


# [format] Distance of the outer points from the scene's centre: the largest cloud has extent one.
RADIUS = 0.5


@dataclass(frozen=True)
class Normalisation:
    """How the clouds were centred and scaled: u = (v - centre_j) / scale.

    Poses and mixtures cross the border here.
    """

    centres: Float[Array, "M D"]
    scale: float  # user units per internal unit

    @classmethod
    def of(cls, clouds: Sequence[Float[Array, "_ D"]]) -> "Normalisation":
        """Medians as centres (stray points do not move them) and the largest extent as the unit."""
        return cls.about([Summary.of(InMemory(cloud)) for cloud in clouds])

    @classmethod
    def about(cls, summaries: Sequence[Summary]) -> "Normalisation":
        """From the summaries of the clouds: medians as centres, the largest extent as the unit."""
        return cls(
            np.array([each.median for each in summaries]), max(each.extent for each in summaries)
        )

    def middle(self, poses: Poses) -> Float[Array, " D"]:
        """Where the clouds' centres lie on average under user poses: a good origin for the internal
        common frame.
        """
        return np.asarray(
            (geometry.rotation(poses) @ self.centres[..., None])[..., 0]
            + geometry.translation(poses)
        ).mean(0)

    def only(self, cloud: int) -> "Normalisation":
        """The frame of one cloud."""
        return Normalisation(self.centres[cloud : cloud + 1], self.scale)

    def enter(self, clouds: Sequence[Float[Array, "_ D"]]) -> list[Float[Array, "_ D"]]:
        """Clouds in internal coordinates."""
        return [
            (cloud - frame.centres[0]) / frame.scale
            for cloud, frame in zip(clouds, self.each(), strict=True)
        ]

    def each(self) -> list["Normalisation"]:
        """The frames of the clouds, one by one."""
        return [self.only(j) for j in range(len(self.centres))]

    def enter_poses(self, poses: Poses, origin: Float[Array, " D"]) -> Poses:
        """User poses as internal ones; `origin` is the user's point that becomes the internal
        common origin.
        """
        R = geometry.rotation(poses)
        t = (R @ self.centres[..., None])[..., 0] + geometry.translation(poses) - origin
        return geometry.pose(R, t / self.scale)

    def leave_poses(self, poses: Poses, origin: Float[Array, " D"]) -> Poses:
        """Internal poses as user ones: the inverse of `enter_poses`."""
        # many small turns have left it; survey coordinates magnify that
        R = geometry.nearest_rotation(geometry.rotation(poses))
        t = (
            geometry.translation(poses) * self.scale
            + origin
            - (R @ self.centres[..., None])[..., 0]
        )
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

    def leave_iteration(self, step: Iteration, origin: Float[Array, " D"]) -> Iteration:
        """An iteration in the user's coordinates; its likelihood is then per user volume."""
        volume = step.points * len(origin) * np.log(self.scale)
        poses = self.leave_poses(step.poses, origin)
        return replace(step, log_likelihood=step.log_likelihood - volume, poses=poses)
