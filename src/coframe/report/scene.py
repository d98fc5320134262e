# SPDX-License-Identifier: MIT
"""What the viewer draws: points of every cloud, poses of every iteration, the model under them.

Everything is relative to the scene's centre before it becomes single precision, so that survey
coordinates keep their digits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.em import mstep
from coframe.report import numbers
from coframe.report.markup import clean
from coframe.result.registration import Registration
from coframe.types import Array, Points, Poses

POINTS = 200_000  # [size] points of all clouds that are shown
POSES = 40_000  # [size] poses of all clouds in all frames
ELLIPSOIDS = 25_000  # [size] components in all key frames
EFFORT = 10_000_000  # [size] clouds x components x key frames
# [limit] [share of both widths] Height below which a scene lies on the ground.
LOW = 0.55
# [format] Files of survey: z is up.
SURVEY = (".e57", ".ptx", ".las", ".laz")
SPACING_SAMPLE = 4_000  # [size] points whose distance to neighbours is measured


@dataclass(frozen=True)
class Scene:
    """Arrays for the viewer, and a header that says what they mean.

    Frame 0 is the start, the last one the result.
    """

    header: dict[str, object]
    arrays: dict[str, Array]
    start: Poses  # frame 0, in the gauge of the result
    shown: int  # points


def shares(sizes: Sequence[int], budget: int) -> list[int]:
    """Points of each cloud to keep: all of a small one, the same number of every large one."""
    kept, left = [0] * len(sizes), budget
    for rank, j in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        kept[j] = max(1, min(sizes[j], left // (len(sizes) - rank)))
        left -= kept[j]
    return kept


def of(
    result: Registration,
    *,
    start: Poses | None,
    colours: Sequence[UInt8[Array, "_ 3"]] | None,
    rng: np.random.Generator,
    points: int = POINTS,
    poses: int = POSES,
    ellipsoids: int = ELLIPSOIDS,
) -> Scene:
    """The scene of a result.

    Points keep the random order in which they were drawn, so that any first part is a fair sample.
    """
    counts = shares([len(cloud) for cloud in result.clouds], points)
    drawn = [
        rng.permutation(len(cloud))[:count]
        for cloud, count in zip(result.clouds, counts, strict=True)
    ]
    chosen = [cloud[i] for cloud, i in zip(result.clouds, drawn, strict=True)]
    outlier = [~keep[i] for keep, i in zip(result.inliers(), drawn, strict=True)]
    centres = np.array([np.median(cloud, axis=0) for cloud in chosen])
    corners = np.array([np.percentile(cloud, [5, 95], axis=0) for cloud in chosen])
    corners = np.concatenate([corners, np.stack([corners[:, 0], centres], 1)], 1)

    aligned = np.concatenate(
        [geometry.transform(T, cloud) for T, cloud in zip(result.poses, chosen, strict=True)]
    )
    good = aligned[~np.concatenate(outlier)]
    origin, low, high = box(good if len(good) > 10 else aligned)
    frames, labels = _frames(result, start, corners, poses)
    most = max(2, min(ellipsoids // len(result.mixture), EFFORT // result.moments.mass.size))
    keys = np.unique(np.linspace(0, len(frames) - 1, min(len(frames), most)).round())
    components = np.sort(np.argsort(-result.mixture.weights, kind="stable")[:ellipsoids])
    arrays = {
        "points": _three(
            np.concatenate([cloud - c for cloud, c in zip(chosen, centres, strict=True)])
        ).astype("f4"),
        "outlier": np.concatenate(outlier).astype("u1"),
        "poses": np.stack([_relative(each, centres, origin) for each in frames]).astype("f4"),
        "model": np.stack(
            [_model(result, frames[int(f)], origin)[components] for f in keys]
        ).astype("f4"),
        "reliable": result.reliable()[components].astype("u1"),
    }
    if colours is not None:
        arrays["colours"] = np.concatenate(
            [np.asarray(c)[i] for c, i in zip(colours, drawn, strict=True)]
        ).astype("u1")
    header = {
        "dimension": result.mixture.dimension,
        "names": [clean(name) for name in result.names],
        "counts": counts,
        "frames": labels,
        "keys": [int(f) for f in keys],
        "components": len(components),
        "up": upright(result),
        "origin": _three(origin[None])[0].tolist(),
        "low": _three(low[None])[0].tolist(),
        "high": _three(high[None])[0].tolist(),
        "spacing": spacing(good if len(good) > 10 else aligned, rng),
    }
    return Scene(header, arrays, frames[0], sum(counts))


def upright(result: Registration) -> int:
    """The axis that is up: z with a coordinate system, in files of survey and in scenes much lower
    than wide; y otherwise, as of objects and images.
    """
    if result.mixture.dimension == 2:
        return 1
    survey = [Path(file).suffix.lower() in SURVEY for file in result.files]
    if result.crs or (survey and all(survey)):
        return 2
    means = result.mixture.means[result.reliable()]
    x, y, z = np.ptp(means if len(means) else result.mixture.means, axis=0)
    return 2 if z < LOW * min(x, y) else 1


def box(points: Points) -> tuple[Float[Array, " D"], Float[Array, " D"], Float[Array, " D"]]:
    """The middle of the box around nearly all points, and its corners relative to the middle."""
    low, high = np.percentile(points, [0.2, 99.8], axis=0)
    origin = (low + high) / 2
    return origin, low - origin, high - origin


def _frames(
    result: Registration, start: Poses | None, corners: Float[Array, "M C D"], limit: int
) -> tuple[list[Poses], list[str]]:
    """Poses from the start to the result in one gauge, at most `limit` in all, and their labels.

    Clouds that were added later (`extend`) keep their final pose in all frames.
    """
    frames = [] if start is None else [(start, "start")]
    histories = [
        np.concatenate([step.poses, result.poses[len(step.poses) :]]) for step in result.history
    ]
    frames += [(poses, f"iteration {i}") for i, poses in enumerate(histories, 1)]
    if len(frames) > (most := max(2, limit // len(result.poses))):
        frames = [frames[i] for i in np.linspace(0, len(frames) - 1, most).round().astype(int)]
    poses = [numbers.same_gauge(each, result, corners) for each, _ in frames]
    return [*poses, result.poses], [*(label for _, label in frames), "result"]


def _relative(
    poses: Poses, centres: Float[Array, "M D"], origin: Float[Array, " D"]
) -> Float[Array, "M 3 4"]:
    """Motions [R | t] from points about their cloud's centre to points about the scene's origin."""
    R = geometry.rotation(poses)
    t = (R @ centres[..., None])[..., 0] + geometry.translation(poses) - origin
    D = len(origin)
    out = np.zeros((len(poses), 3, 4))
    out[:, 2, 2] = 1
    out[:, :D, :D], out[:, :D, 3] = R, t
    return out


def _model(result: Registration, poses: Poses, origin: Float[Array, " D"]) -> Float[Array, "K 9"]:
    """The components under other poses of the clouds, as `roots` returns them.

    Points keep the component of the result, so components are wide where clouds are apart.
    """
    mixture = result.mixture
    means, covariances = mixture.means, mixture.covariances
    if poses is not result.poses:
        pooled = result.moments.moved_and_pooled(poses @ geometry.inverse(result.poses))
        means = mstep.means(pooled)
        covariances = mstep.covariances(pooled, means, 0.0, mixture.covariances)
    return roots(means - origin, covariances)


def roots(means: Float[Array, "K D"], covariances: Float[Array, "K D D"]) -> Float[Array, "K 9"]:
    """Mean and symmetric root of the covariance (xx, yx, yy, zx, zy, zz) of each component."""
    D = means.shape[1]
    values, axes = np.linalg.eigh(covariances)
    # [guard] The variance of a single point may be rounded to below zero.
    values = np.sqrt(np.maximum(values, np.maximum(1e-6 * values[:, -1:], 0)))
    root = np.zeros((len(means), 3, 3))
    root[:, 2, 2] = values[:, 0]  # In 2-D: as thick as narrow.
    root[:, :D, :D] = (axes * values[:, None, :]) @ np.swapaxes(axes, 1, 2)
    rows, columns = np.tril_indices(3)
    return np.concatenate([_three(means), root[:, rows, columns]], 1)


def _three(points: Points) -> Float[Array, "N 3"]:
    """Points of the plane in space."""
    return np.pad(points, [(0, 0), (0, 3 - points.shape[1])])


def spacing(points: Points, rng: np.random.Generator) -> float:
    """Typical distance between neighbours among the points."""
    some = points[rng.permutation(len(points))[:SPACING_SAMPLE]]
    distance = cKDTree(points).query(some, min(5, len(points)))[0][:, -1]
    return float(np.median(distance))
