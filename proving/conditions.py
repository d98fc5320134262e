# SPDX-License-Identifier: MIT
"""What a method is given of a scene: conditions that turn scans into problems.

A condition is a function of scans and a random generator. `other` are scans of another scene of the
same family and half, for conditions that need something foreign.

Unless said otherwise clouds are scattered first: each is moved by a random rigid motion, so that
its own frame says nothing about where it belongs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import cKDTree

from coframe import geometry
from coframe.data.simulate import Scans
from coframe.types import Array, Poses

# [size] Extents of a cloud: how far apart scattered clouds may lie.
SCATTER = 3.0


@dataclass(frozen=True, eq=False)
class Given:
    """Scans with what a method is given about them, and which clouds belong to nothing."""

    scans: Scans
    start: Poses | None = None
    foreign: tuple[int, ...] = ()


Condition = Callable[[Scans, np.random.Generator, Scans], Given]


def nothing(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """No start poses."""
    return Given(scattered(scans, rng))


def near(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """True poses disturbed by up to 8 degrees and 2 % of the extent."""
    scans = scattered(scans, rng)
    return Given(scans, disturbed(scans, rng, degrees=8.0, share=0.02))


def far(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """True poses disturbed by up to 20 degrees and 5 % of the extent."""
    scans = scattered(scans, rng)
    return Given(scans, disturbed(scans, rng, degrees=20.0, share=0.05))


def true(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """The true poses, which should stay."""
    return Given(scans, scans.poses.copy())


def in_own_frame(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """No start poses, and clouds as the sensor or the map has them: not scattered."""
    return Given(scans)


def noise(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """Noise 25 dB below the cloud's own variance in every coordinate; starts as in `near`."""
    return near(noisy(scans, rng, 25.0), rng, other)


def more_noise(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """Noise 15 dB below the cloud's own variance in every coordinate; starts as in `near`."""
    return near(noisy(scans, rng, 15.0), rng, other)


def clutter(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """30 % of each cloud's points are uniform in a box around it; starts as in `near`."""
    added = []
    for cloud in scans.clouds:
        low, high = cloud.min(0), cloud.max(0)
        margin = 0.1 * (high - low)
        count = round(len(cloud) * 0.3 / 0.7)
        added.append(rng.uniform(low - margin, high + margin, (count, cloud.shape[1])))
    return near(with_outliers(scans, added), rng, other)


def moving(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """A small body, a sixth of a cloud's points, stands somewhere else in each cloud; no start."""
    added = []
    for j, cloud in enumerate(scans.clouds):
        size = extent(cloud)
        body = other.clouds[j % len(other.clouds)]
        body = (body - np.median(body, axis=0)) * (0.25 * size / extent(body))
        body = body[rng.permutation(len(body))[: len(cloud) // 5]]
        direction = rng.normal(size=cloud.shape[1])
        direction *= rng.uniform(0.2, 0.6) * size / np.linalg.norm(direction)
        added.append(body + np.median(cloud, axis=0) + direction)
    return nothing(with_outliers(scans, added), rng, other)


def overlapping(share: float) -> Condition:
    """Clouds in a row along the scene, of which neighbours share so much; no start poses.

    The points of all scans are dealt out to windows along the longest axis of the scene. Each point
    goes to one window alone, so that the noise of different clouds is independent.
    """

    def condition(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
        return nothing(windows(scans, rng, share), rng, other)

    condition.__doc__ = f"Clouds in a row, neighbours share {share:.0%} of their points; no start."
    return condition


def densities(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """From a tenth of the points to all of them, in random order; no start poses."""
    shares = rng.permutation(np.geomspace(0.1, 1.0, len(scans.clouds)))
    rows = [
        np.sort(rng.permutation(len(cloud))[: max(round(share * len(cloud)), 50)])
        for cloud, share in zip(scans.clouds, shares, strict=True)
    ]
    return nothing(subset(scans, rows), rng, other)


def foreign(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """One cloud is of another scene; no start poses."""
    odd = int(rng.integers(len(scans.clouds)))
    stranger = int(rng.integers(len(other.clouds)))
    clouds = list(scans.clouds)
    clouds[odd] = other.clouds[stranger]
    poses = scans.poses.copy()
    poses[odd] = np.eye(len(poses[odd]))
    empty = np.zeros_like(clouds[odd])
    scans = replace(
        scans,
        clouds=clouds,
        poses=poses,
        normals=exchanged(scans.normals, odd, empty),
        sigma=exchanged(scans.sigma, odd, np.ones(len(empty))),
        outliers=exchanged(scans.outliers, odd, np.ones(len(empty), bool)),
    )
    return replace(nothing(scans, rng, other), foreign=(odd,))


def wrong_start(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """Starts as in `near`, but one cloud is turned by 60 to 90 degrees."""
    given = near(scans, rng, other)
    assert given.start is not None
    odd = int(rng.integers(1, len(scans.clouds)))
    axis = rng.normal(size=1 if scans.clouds[0].shape[1] == 2 else 3)
    turn = axis / np.linalg.norm(axis) * np.radians(rng.uniform(60.0, 90.0))
    start = given.start.copy()
    start[odd] = turned_about_centre(
        given.scans, odd, start[odd], turn, np.zeros(len(start[0]) - 1)
    )
    return replace(given, start=start)


def shuffled(scans: Scans, rng: np.random.Generator, other: Scans) -> Given:
    """Clouds and points in random order; no start poses."""
    order = rng.permutation(len(scans.clouds))
    scans = subset(scans, [rng.permutation(len(cloud)) for cloud in scans.clouds])

    def ordered(values: list[Array] | None) -> list[Array] | None:
        return None if values is None else [values[j] for j in order]

    scans = replace(
        scans,
        clouds=[scans.clouds[j] for j in order],
        poses=scans.poses[order],
        normals=ordered(scans.normals),
        sigma=ordered(scans.sigma),
        outliers=ordered(scans.outliers),
        sensors=None if scans.sensors is None else scans.sensors[order],
    )
    return nothing(scans, rng, other)


CONDITIONS: dict[str, Condition] = {
    "nothing": nothing,
    "near": near,
    "far": far,
    "true": true,
    "in_own_frame": in_own_frame,
    "noise": noise,
    "more_noise": more_noise,
    "clutter": clutter,
    "moving": moving,
    "overlap_10": overlapping(0.1),
    "overlap_30": overlapping(0.3),
    "overlap_60": overlapping(0.6),
    "overlap_90": overlapping(0.9),
    "densities": densities,
    "foreign": foreign,
    "wrong_start": wrong_start,
    "shuffled": shuffled,
}


# What conditions are made of


def extent(cloud: Float[Array, "N D"]) -> float:
    """The longest side of a cloud's box."""
    return float(np.ptp(cloud, axis=0).max())


def scattered(scans: Scans, rng: np.random.Generator) -> Scans:
    """Each cloud moved by a random rigid motion about its own centre, and its pose with it."""
    size = float(np.median([extent(cloud) for cloud in scans.clouds]))
    D = scans.clouds[0].shape[1]
    motions = []
    for cloud in scans.clouds:
        R = geometry.random_rotation(rng, D, 180.0)
        shift = rng.uniform(-SCATTER, SCATTER, D) * size
        motions.append(geometry.pose(R, shift - R @ np.median(cloud, axis=0)))
    moved = np.array(motions)
    clouds = [geometry.transform(T, v) for T, v in zip(moved, scans.clouds, strict=True)]
    turned = scans.normals
    if turned is not None:
        turned = [n @ geometry.rotation(T).T for T, n in zip(moved, turned, strict=True)]
    sensors = scans.sensors
    if sensors is not None:
        sensors = np.array(
            [geometry.transform(T, s[None])[0] for T, s in zip(moved, sensors, strict=True)]
        )
    poses = scans.poses @ geometry.inverse(moved)
    return replace(scans, clouds=clouds, normals=turned, poses=poses, sensors=sensors)


def disturbed(scans: Scans, rng: np.random.Generator, *, degrees: float, share: float) -> Poses:
    """True poses, all but the first turned about the cloud's centre by up to so many degrees and
    shifted along each axis by up to so large a share of the extent.
    """
    start = scans.poses.copy()
    D = start.shape[1] - 1
    for j in range(1, len(start)):
        turn = geometry.log_rotation(geometry.random_rotation(rng, D, degrees))
        shift = rng.uniform(-share, share, D) * extent(scans.clouds[j])
        start[j] = turned_about_centre(scans, j, start[j], turn, shift)
    return start


def turned_about_centre(
    scans: Scans,
    cloud: int,
    pose: Float[Array, "D1 D1"],
    turn: Float[Array, " W"],
    shift: Float[Array, " D"],
) -> Float[Array, "D1 D1"]:
    """A pose after a turn about the place of the cloud's median, and a shift."""
    centre = geometry.transform(pose, np.median(scans.clouds[cloud], axis=0)[None])[0]
    motion = geometry.exp(np.concatenate([turn, shift]))
    return geometry.about(motion[None], centre)[0] @ pose


def noisy(scans: Scans, rng: np.random.Generator, decibels: float) -> Scans:
    """Gaussian noise so far below the mean variance of each cloud's coordinates."""
    deviations = [np.sqrt(v.var(0).mean() / 10 ** (decibels / 10)) for v in scans.clouds]
    clouds = [
        v + s * rng.normal(size=v.shape) for v, s in zip(scans.clouds, deviations, strict=True)
    ]
    sigma = scans.sigma
    if sigma is not None:
        sigma = [np.hypot(each, s) for each, s in zip(sigma, deviations, strict=True)]
    return replace(scans, clouds=clouds, sigma=sigma)


def with_outliers(scans: Scans, added: list[Float[Array, "_ D"]]) -> Scans:
    """Clouds with further points that lie on no surface of the scene."""
    clouds = [np.concatenate(pair) for pair in zip(scans.clouds, added, strict=True)]
    normals, sigma = scans.normals, scans.sigma
    if normals is not None:
        pairs = zip(normals, added, strict=True)
        normals = [np.concatenate([n, np.zeros_like(a)]) for n, a in pairs]
    if sigma is not None:
        pairs = zip(sigma, added, strict=True)
        sigma = [np.r_[s, np.full(len(a), np.median(s))] for s, a in pairs]
    outliers = scans.outliers or [np.zeros(len(v), bool) for v in scans.clouds]
    outliers = [np.r_[o, np.ones(len(a), bool)] for o, a in zip(outliers, added, strict=True)]
    return replace(scans, clouds=clouds, normals=normals, sigma=sigma, outliers=outliers)


def subset(scans: Scans, rows: list[Array]) -> Scans:
    """Some points of each cloud, in the order of the rows."""

    def chosen(values: list[Array] | None) -> list[Array] | None:
        return None if values is None else [v[r] for v, r in zip(values, rows, strict=True)]

    return replace(
        scans,
        clouds=[v[r] for v, r in zip(scans.clouds, rows, strict=True)],
        normals=chosen(scans.normals),
        sigma=chosen(scans.sigma),
        outliers=chosen(scans.outliers),
    )


def exchanged(values: list[Array] | None, index: int, value: Array) -> list[Array] | None:
    """A list with one entry exchanged; None stays None."""
    return None if values is None else [*values[:index], value, *values[index + 1 :]]


def windows(scans: Scans, rng: np.random.Generator, share: float) -> Scans:
    """The points of all scans, dealt out to as many windows along the longest axis.

    Windows are cut at quantiles of the points: neighbours share `share` of the points that they
    cover. A point goes to one of the windows that cover it, at random.
    """
    M = len(scans.clouds)
    points = np.concatenate(
        [geometry.transform(T, v) for T, v in zip(scans.poses, scans.clouds, strict=True)]
    )
    centred = points - points.mean(0)
    axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    place = np.empty(len(points))
    place[np.argsort(centred @ axis)] = (np.arange(len(points)) + 0.5) / len(points)
    width = 1.0 / (1.0 + (M - 1) * (1.0 - share))
    begin = np.arange(M) * width * (1.0 - share)
    covered = (place[:, None] >= begin) & (place[:, None] <= begin + width)
    covered[~covered.any(1), -1] = True  # rounding at the far end
    window = np.where(covered, rng.random(covered.shape), -1.0).argmax(1)
    rows = [rng.permutation(np.flatnonzero(window == j)) for j in range(M)]

    def dealt(values: list[Array] | None) -> list[Array] | None:
        return None if values is None else [np.concatenate(values)[r] for r in rows]

    normals = scans.normals
    if normals is not None:
        pairs = zip(scans.poses, normals, strict=True)
        normals = [n @ geometry.rotation(T).T for T, n in pairs]
    return replace(
        scans,
        clouds=[points[r] for r in rows],
        poses=geometry.identity(M, points.shape[1]),
        normals=dealt(normals),
        sigma=dealt(scans.sigma),
        outliers=dealt(scans.outliers),
        sensors=None,
    )


def overlap(
    clouds: list[Float[Array, "_ D"]], poses: Poses, leave_out: tuple[int, ...] = ()
) -> float:
    """Mean share of a cloud's points that its best neighbour sees, too, at these poses.

    A point is seen by another cloud if that has a point within three times the typical distance
    between neighbouring points of the sparser of the two clouds.
    """
    kept = [j for j in range(len(clouds)) if j not in leave_out]
    moved = [
        geometry.transform(poses[j], clouds[j])[:: max(len(clouds[j]) // 2000, 1)] for j in kept
    ]
    trees = [cKDTree(points) for points in moved]
    spacing = [
        float(np.median(tree.query(points, k=2)[0][:, 1]))
        for tree, points in zip(trees, moved, strict=True)
    ]
    shares = np.zeros((len(kept), len(kept)))
    for a, points in enumerate(moved):
        for b, tree in enumerate(trees):
            if a != b:
                shares[a, b] = seen(points, tree, 3.0 * max(spacing[a], spacing[b])).mean()
    return float(shares.max(1).mean())


def seen(points: Float[Array, "n D"], tree: cKDTree, reach: float) -> Bool[Array, " n"]:
    """Which points have a neighbour in the tree within the reach."""
    return np.isfinite(tree.query(points, distance_upper_bound=reach)[0])
