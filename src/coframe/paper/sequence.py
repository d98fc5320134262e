# SPDX-License-Identifier: MIT
"""A sequence as the paper tracks it: a front-end of JRMPC-B, a back-end of JRMPC-I, both as
published (see `coframe.paper`).

The front-end registers groups of N_f frames, one frame shared with the next group, and keeps the
means of each group's mixture without outliers: the mean set. The back-end has a window of N_b mean
sets: each new one is integrated (JRMPC-I), and the window refined (JRMPC-B). At the end, one
thinned set per hundred frames may be registered jointly. What the paper leaves open: groups start
at the pose of the shared frame and at rest, means start on random points, and start variances
follow from the spacing of the points and stay for the first iterations, as it advises.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from coframe import geometry, paper
from coframe.errors import InputError
from coframe.input.options import check_whole
from coframe.io.frames import FrameSource, strided
from coframe.io.trajectory import Trajectory
from coframe.paper import initial
from coframe.result.registration import Registration
from coframe.threads import quiet_blas
from coframe.types import Array


@dataclass(frozen=True)
class PublishedOptions:
    """The settings of the paper's experiment on freiburg1_desk.

    Parameters
    ----------
    downsampling
        Every so many points of a frame are kept (paper).
    group
        N_f, frames that are registered together (paper).
    window
        N_b, mean sets that are registered together (paper).
    front_components, back_components
        K of the front-end and of the back-end (paper).
    front_iterations
        Iterations of the front-end; not in the paper (0.1, unknown).
    refinements
        Iterations that refine the window (paper).
    block
        Frames of a set of the last joint registration; 0: none (paper).
    velocity
        Start frames with the motion of the last group instead of at rest; not in the paper.
    gamma
        Outliers per inlier; None: 1/K, which are the paper's priors of 1/(K + 1).
    epsilon
        Variance added to every component [squared unit] (paper).
    max_variance
        Components whose variance is above so many times the median are outliers (paper: the
        authors' program; the text says 2).
    neighbours
        Points that a component should cover at the start; not in the paper (0.1, unknown).
    spacing_points
        Points from which the spacing of all is taken; not in the paper (0.1, unknown).
    fixed_share
        Share of the iterations that leave the start variances alone (paper).
    seed, threads
        As in `TrackOptions`.

    Raises
    ------
    InputError
        If a count is not a whole number or too small.

    Examples
    --------
    >>> coframe.track_published(frames, options=coframe.PublishedOptions(downsampling=200))
    """

    downsampling: int = 50
    group: int = 3
    window: int = 10
    front_components: int = 6000
    back_components: int = 3000
    front_iterations: int = 50
    refinements: int = 50
    block: int = 100
    velocity: bool = False
    gamma: float | None = None
    epsilon: float = 1e-6
    max_variance: float = 2.5
    neighbours: int = 4
    spacing_points: int = 1000
    fixed_share: float = 0.6
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        positive = ("downsampling", "front_components", "back_components", "threads")
        least = dict.fromkeys((*positive, "neighbours", "spacing_points"), 1)
        least |= dict.fromkeys(("group", "window"), 2)
        least |= dict.fromkeys(("block", "front_iterations", "refinements", "seed"), 0)
        check_whole(self, least)


@dataclass(frozen=True, eq=False)
class MeanSet:
    """What is left of a group of frames."""

    frames: tuple[int, ...]
    points: Float[Array, "N 3"]  # in the frame of the group's first frame
    relative: Float[Array, "n 4 4"]  # poses of the frames there

    @property
    def motion(self) -> Float[Array, "4 4"]:
        """From the last frame but one to the last."""
        return (
            geometry.inverse(self.relative[-2]) @ self.relative[-1]
            if len(self.relative) > 1
            else np.eye(4)
        )


@dataclass(eq=False)
class BackEnd:
    """A window of mean sets, and the poses of all sets."""

    options: PublishedOptions
    rng: np.random.Generator
    sets: list[MeanSet] = field(default_factory=list)
    poses: list[Array] = field(default_factory=list)  # of the sets, in the frame of the first one
    model: Registration | None = None  # of the window, in a frame of its own

    def add(self, new: MeanSet) -> None:
        """The next set, which begins with the frame that the last one ends with."""
        options = self.options
        if not self.sets:
            self.sets, self.poses = [new], [np.eye(4)]
            return
        start = self.poses[-1] @ self.sets[-1].relative[-1]
        self.sets.append(new)
        self.poses.append(start)
        first = max(0, len(self.sets) - options.window)
        clouds = [each.points for each in self.sets[first:]]
        if self.model is None:
            self.model = register_from_points(
                clouds,
                np.array(self.poses),
                options.back_components,
                options.refinements,
                options,
                self.rng,
            )
        else:
            self.model = self._integrate(new, start, clouds)
        # The window's frame is free; its oldest set stays where it was.
        back = self.poses[first] @ geometry.inverse(self.model.poses[0])
        self.poses[first:] = list(back @ self.model.poses)

    def _integrate(self, new: MeanSet, start: Array, clouds: Sequence[Array]) -> Registration:
        """Algorithm 2 with the new set, then Algorithm 1 over the window."""
        options, model = self.options, self.model
        assert model is not None
        given: dict[str, Any] = {
            "gamma": options.gamma,
            "epsilon": options.epsilon,
            "threads": options.threads,
        }
        inside = model.poses[-1] @ geometry.inverse(self.poses[-2]) @ start  # in the window's frame
        rejected = min(
            options.back_components // options.window, len(model.mixture), len(new.points)
        )
        both = paper.integrate(model, new.points, inside, rejected=rejected, rng=self.rng, **given)
        poses, mixture = both.poses[-len(clouds) :], both.mixture
        return refine_window(clouds, mixture.means, poses, options.refinements, options, self.rng)


@quiet_blas()
def track_published(
    source: FrameSource,
    *,
    options: PublishedOptions | None = None,
    on_group: Callable[[int, int], object] = lambda done, total: None,
) -> Trajectory:
    """Follow a sensor as the paper does; `coframe.track` is ours. Losses are not noticed.

    Parameters
    ----------
    source
        Frames that `open_frames` has opened.
    options
        The settings of the paper's experiment, by default.
    on_group
        Called after each group of frames with the number of groups done and of all.

    Returns
    -------
    Trajectory
        A pose for each frame, in the first one's frame.

    Examples
    --------
    >>> path = coframe.track_published(coframe.open_frames("rgbd_dataset_freiburg1_desk", step=1))
    """
    options = PublishedOptions() if options is None else options
    if not isinstance(options, PublishedOptions):
        raise InputError(f"options: expected PublishedOptions, found {type(options).__name__}")
    if not isinstance(source, FrameSource):
        raise InputError(f"source: expected frames from open_frames, found {type(source).__name__}")
    rng = np.random.default_rng(options.seed)
    starts = range(0, max(len(source) - 1, 1), options.group - 1)
    back, shared = BackEnd(options, rng), None
    for done, start in enumerate(starts):
        indices = range(start, min(start + options.group, len(source)))
        read = [
            strided(source[i], options.downsampling).points
            for i in indices[0 if shared is None else 1 :]
        ]
        clouds = read if shared is None else [shared, *read]
        shared = clouds[-1]
        motion = back.sets[-1].motion if options.velocity and back.sets else np.eye(4)
        back.add(mean_set(tuple(indices), clouds, motion, options, rng))
        on_group(done + 1, len(starts))
    moves = joint_blocks(back.sets, back.poses, options, rng) if options.block else back.poses
    poses = np.tile(np.eye(4), (len(source), 1, 1))
    for each, pose in zip(back.sets, moves, strict=True):
        for i, relative in zip(each.frames, each.relative, strict=True):
            poses[i] = pose @ relative
    return Trajectory(source.times, poses)


def mean_set(
    frames: tuple[int, ...],
    clouds: Sequence[Float[Array, "_ 3"]],
    motion: Float[Array, "4 4"],
    options: PublishedOptions,
    rng: np.random.Generator,
) -> MeanSet:
    """The front-end: a group of frames registered, each starting `motion` after the last, and the
    means of what is surface.
    """
    if len(clouds) == 1:
        return MeanSet(frames, clouds[0], np.eye(4)[None])
    start = np.array([np.linalg.matrix_power(motion, i) for i in range(len(clouds))])
    result = register_from_points(
        clouds, start, options.front_components, options.front_iterations, options, rng
    )
    mixture = result.mixture
    surface = mixture.variances <= options.max_variance * np.median(mixture.variances)
    back = geometry.inverse(result.poses[0])
    return MeanSet(frames, geometry.transform(back, mixture.means[surface]), back @ result.poses)


def register_from_points(
    clouds: Sequence[Float[Array, "_ 3"]],
    poses: Float[Array, "M 4 4"],
    components: int,
    iterations: int,
    options: PublishedOptions,
    rng: np.random.Generator,
) -> Registration:
    """JRMPC-B on clouds that are roughly aligned, means on some of their points."""
    means = initial.means_on_points(clouds, poses, min(components, sum(map(len, clouds))), rng)
    return refine_window(clouds, means, poses, iterations, options, rng)


def refine_window(
    clouds: Sequence[Float[Array, "_ 3"]],
    means: Float[Array, "K 3"],
    poses: Float[Array, "M 4 4"],
    iterations: int,
    options: PublishedOptions,
    rng: np.random.Generator,
) -> Registration:
    """JRMPC-B with start variances that cover a few points each and stay for most iterations, as
    the paper advises.
    """
    points = np.concatenate(
        [geometry.transform(T, cloud) for T, cloud in zip(poses, clouds, strict=True)]
    )
    few = points[rng.choice(len(points), min(options.spacing_points, len(points)), replace=False)]
    nearest = cKDTree(means).query(few, min(options.neighbours, len(means)))[0]
    distance = nearest.reshape(len(few), -1)[:, -1]
    return paper.batch(
        clouds,
        means,
        variances=float(np.median(distance)) ** 2,
        poses=poses,
        gamma=options.gamma,
        epsilon=options.epsilon,
        iterations=iterations,
        fixed_variances=round(options.fixed_share * iterations),
        threads=options.threads,
    )


def joint_blocks(
    sets: Sequence[MeanSet],
    poses: Sequence[Float[Array, "4 4"]],
    options: PublishedOptions,
    rng: np.random.Generator,
) -> list[Float[Array, "4 4"]]:
    """The poses of the sets after the sets of each hundred frames, merged and thinned, were
    registered jointly.
    """
    block = np.array([each.frames[0] // options.block for each in sets])
    if block[-1] == 0:
        return list(poses)
    merged = []
    for b in range(block[-1] + 1):
        inside = [
            geometry.transform(poses[i], sets[i].points)
            for i in np.flatnonzero(block == b).tolist()
        ]
        points = np.concatenate(inside)
        merged.append(
            points[
                rng.choice(len(points), min(options.front_components, len(points)), replace=False)
            ]
        )
    rest = geometry.identity(len(merged), 3)
    result = register_from_points(
        merged, rest, options.back_components, options.refinements, options, rng
    )
    moves = geometry.inverse(result.poses[0]) @ result.poses
    return [moves[b] @ pose for b, pose in zip(block, poses, strict=True)]
