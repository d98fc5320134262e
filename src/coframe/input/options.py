# SPDX-License-Identifier: MIT
"""The rest of `register`'s door: start poses, weights, anchors, priors, options. One sentence for whatever is wrong."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.types import Array
from coframe.input.checks import LARGEST_NUMBER, Frames, InputError, extent
from coframe.em.joint import Prior
from coframe.input.source import stray

MOTIONS = ("rigid", "translation", "yaw")
STARTS = ("auto", "identity", "match")
WITHOUT_EFFECT = ("threads",)  # on the result
LEAST_WEIGHT = 1e-12  # of the largest: less is no weight
STRAY = 1000.0  # extents of the largest cloud: points further from the median of their cloud count as nothing
FAR = 1e4  # extents: the rounding of the square of a longer way is more than the smallest variance
RIGID = 1e-3  # how far a rotation matrix may be from one


def check_whole(options: Any, least: Mapping[str, int]) -> None:
    """Refuse options that are not whole numbers of at least so much; `threads` may be None."""
    for name, smallest in least.items():
        value = getattr(options, name)
        if name == "threads" and value is None:
            continue
        if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < smallest:
            raise InputError(f"{name}: expected a whole number of at least {smallest}, found {value!r}")


@dataclass(frozen=True)
class Options:
    """The few things one may want to change. Left alone, each does well on scans of any size and unit."""

    components: int = 1000  # K of the last level, at most one for every 8 points
    points: int = 3000  # per cloud that a level sees; where there are more, the repetitions of the last level see others
    iterations: int = 20  # of a fit in the last level, at most; fits are repeated until the poses have settled
    tolerance: float = 1e-4  # share of the scene's radius: poses that move less in an iteration have settled
    motion: str = "rigid"  # how clouds may move: "rigid", "translation", or "yaw" (turns about the common z axis only)
    start: str = (
        "auto"  # "identity": clouds as they lie, or as poses say; "match": matched; "auto": looks first, matches in doubt
    )
    seed: int = 0  # of the choice of points and components
    threads: int | None = None  # None: all cores; the result does not depend on it

    def __post_init__(self) -> None:
        if self.motion not in MOTIONS:
            raise InputError(f"motion: expected one of {', '.join(MOTIONS)}, found {self.motion!r}")
        if self.start not in STARTS:
            raise InputError(f"start: expected one of {', '.join(STARTS)}, found {self.start!r}")
        least = {"components": 1, "points": 1, "iterations": 1, "seed": 0, "threads": 1}
        check_whole(self, least)
        if not isinstance(self.tolerance, Real) or not 0 <= self.tolerance < np.inf:
            raise InputError(f"tolerance: expected a finite number of at least 0, found {self.tolerance!r}")

    def record(self) -> dict[str, Any]:
        """What determines the result, as plain values: all but the threads."""
        return {"method": "register"} | {name: value for name, value in asdict(self).items() if name not in WITHOUT_EFFECT}


@dataclass(frozen=True)
class PosePrior:
    """A soft belief about the pose of one cloud: from a turntable, a GNSS receiver, a tracked scanner.

    `covariance` is that of (omega, tau): the cloud is turned by omega [rad] in the common frame, and its own origin is moved
    by tau [unit]. Infinite variances, all other entries of their rows and columns zero, say that nothing is known.
    """

    cloud: int
    pose: Float[Array, "D1 D1"]
    covariance: Float[Array, "P P"]


def numbers(name: str, value: Any) -> Float[Array, "..."]:
    """The value as a float array."""
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name}: expected an array of numbers, found {type(value).__name__}") from None


def as_poses(value: Any, count: int, dimension: int, name: str = "poses") -> Float[Array, "M D1 D1"]:
    """Rigid motions, one per cloud; small errors of rounding are taken out."""
    poses = numbers(name, value)
    expected = (count, dimension + 1, dimension + 1)
    if poses.shape != expected:
        raise InputError(f"{name}: expected shape {expected}, one matrix a cloud, found shape {poses.shape}")
    last_row = np.eye(dimension + 1)[-1]
    for j, pose in enumerate(poses):
        R = geometry.rotation(pose)
        small = bool((np.abs(R) <= 1 + RIGID).all()) and bool((np.abs(pose) <= LARGEST_NUMBER).all())  # false for NaN
        if not (small and np.abs(R @ R.T - np.eye(dimension)).max() < RIGID and np.linalg.det(R) > 0):
            raise InputError(f"{name}: expected a rotation and a translation, found {pose.tolist()} for cloud {j}")
        if not np.array_equal(pose[-1], last_row):
            raise InputError(f"{name}: expected a last row {last_row.tolist()}, found {pose[-1].tolist()} for cloud {j}")
    return geometry.pose(geometry.nearest_rotation(geometry.rotation(poses)), geometry.translation(poses))


def near(poses: Float[Array, "M D1 D1"], names: Sequence[str]) -> Float[Array, "M D1 D1"]:
    """Start poses in internal coordinates, where no cloud lies so far away that nothing of its shape is left after rounding."""
    distance = np.linalg.norm(geometry.translation(poses), axis=1)
    if not distance.max() <= FAR:
        j = int(distance.argmax())
        raise InputError(
            f"{names[j]}: expected clouds within {FAR:.0e} extents of each other, found it {distance[j]:.1e} away from "
            "their middle; give start poses that bring them together"
        )
    return poses


def as_weights(value: Any, clouds: Sequence[Float[Array, "_ D"]]) -> Sequence[Float[Array, " _"] | None]:
    """Weights per point, in the mean over the points that count one: only their ratios count. None where all count alike."""
    if value is None:
        ones = [np.ones(len(cloud)) for cloud in clouds]
        return [None if found is one else found for found, one in zip(_of_near(ones, clouds), ones, strict=True)]
    given = list(value) if isinstance(value, Iterable) and not isinstance(value, str | dict) else [value]
    if len(given) != len(clouds):
        raise InputError(f"weights: expected one array for each of {len(clouds)} clouds, found {len(given)}")
    checked = []
    for j, (weight, cloud) in enumerate(zip(given, clouds, strict=True)):
        array = numbers(f"weights of cloud {j}", weight)
        if array.shape != (len(cloud),):
            raise InputError(f"weights of cloud {j}: expected shape ({len(cloud)},), one a point, found shape {array.shape}")
        if not (np.isfinite(array).all() and (array >= 0).all()):
            raise InputError(f"weights of cloud {j}: expected finite numbers of at least 0, found {array.min()}")
        checked.append(array)
    top = max(float(array.max()) for array in checked) or 1.0
    checked = [np.where(array / top < LEAST_WEIGHT, 0.0, array / top) for array in checked]
    for j, (array, cloud) in enumerate(zip(checked, clouds, strict=True)):
        if (array > 0).sum() <= cloud.shape[1]:
            least = f"{LEAST_WEIGHT:.0e} of the largest weight"
            raise InputError(
                f"weights of cloud {j}: expected more than {cloud.shape[1]} above {least}, found {(array > 0).sum()}"
            )
    checked = _of_near(checked, clouds)
    mean = np.concatenate([array[array > 0] for array in checked]).mean()
    return [array / mean for array in checked]


def _of_near(weights: list[Float[Array, " _"]], clouds: Sequence[Float[Array, "_ D"]]) -> list[Float[Array, " _"]]:
    """Without weight where a point lies so far from all others that its square would drown theirs: a glitch of the sensor."""
    reach = STRAY * max(map(extent, clouds))
    found = []
    for weight, cloud in zip(weights, clouds, strict=True):
        far = stray(cloud, np.median(cloud, axis=0), reach)
        found.append(np.where(far, 0.0, weight) if far.any() and (~far & (weight > 0)).sum() > cloud.shape[1] else weight)
    return found


def as_fixed(value: Any, count: int) -> tuple[int, ...]:
    """Indices of clouds."""
    indices = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else None
    if indices is None:
        raise InputError(f"fixed: expected a list of clouds, found {value!r}")
    for j in indices:
        if not isinstance(j, Integral) or isinstance(j, bool | np.bool_) or not 0 <= int(j) < count:
            raise InputError(f"fixed: expected indices of clouds, 0 to {count - 1}, found {j!r}")
    return tuple(int(j) for j in indices)


def as_priors(value: Any, frames: Frames, origin: Float[Array, " D"]) -> tuple[Prior, ...]:
    """Priors in internal coordinates."""
    given = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    for prior in given:
        if not isinstance(prior, PosePrior):
            raise InputError(f"priors: expected a list of PosePrior, found {type(prior).__name__}")
        if not isinstance(prior.cloud, Integral) or not 0 <= int(prior.cloud) < len(frames.centres):
            raise InputError(f"priors: expected the index of a cloud, 0 to {len(frames.centres) - 1}, found {prior.cloud!r}")
    return tuple(_internal(prior, frames, origin) for prior in given)


def _internal(prior: PosePrior, frames: Frames, origin: Float[Array, " D"]) -> Prior:
    """A prior in internal coordinates, where the cloud's own origin lies at -centre / scale."""
    D = len(origin)
    pose = as_poses(numbers("priors", prior.pose)[None], 1, D, name="priors")
    units = np.ones(geometry.degrees_of_freedom(D))
    units[-D:] = frames.scale
    return Prior(
        prior.cloud,
        frames.only(prior.cloud).enter_poses(pose, origin)[0],
        _information(prior.covariance, D) * np.outer(units, units),
        -frames.centres[prior.cloud] / frames.scale,
    )


def _information(value: Any, dimension: int) -> Float[Array, "P P"]:
    """The inverse of a covariance, with zeros for what is unknown."""
    P = geometry.degrees_of_freedom(dimension)
    covariance = numbers("priors", value)
    if covariance.shape != (P, P):
        raise InputError(f"priors: expected a covariance of shape ({P}, {P}), found shape {covariance.shape}")
    known = np.isfinite(np.diagonal(covariance))
    part = covariance[np.ix_(known, known)]
    if np.isnan(covariance).any() or not np.allclose(part, part.T) or (len(part) and np.linalg.eigvalsh(part)[0] <= 0):
        raise InputError("priors: expected a symmetric positive definite covariance, found another matrix")
    information = np.zeros((P, P))
    information[np.ix_(known, known)] = np.linalg.inv(part)
    return information
