# SPDX-License-Identifier: MIT
"""The back-end of `track`: key frames that see the same scene, registered jointly.

Old key frames are among them, and so loops close.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.em import seeding
from coframe.em.constraints import Constraints
from coframe.em.estep import EM_TOLERANCE, Cloud, Sweep
from coframe.em.joint import JointStep
from coframe.em.mixture import Mixture
from coframe.em.mstep import MixtureStep
from coframe.em.recipe import ModelRecipe
from coframe.sequence.recipe import SEQUENCE
from coframe.types import Array, Points, Pose, Poses

# [limit] Key frames that a joint registration moves, at least: two stay where localisation has put
# them. So many begin a segment, and segments of fewer are not searched for.
MIN_KEYFRAMES = 3


@dataclass(frozen=True, eq=False)
class Keyframe:
    """A frame that is kept: its sampled points and its pose."""

    index: int  # of its frame; -1: it comes from the map
    cloud: Cloud
    pose: Pose
    segment: int = 0  # of the sequence; poses of different segments have no common frame

    @property
    def points(self) -> Points:
        """In the frame of its segment."""
        return geometry.transform(self.pose, self.cloud.points)


def members(keyframes: Sequence[Keyframe], segment: int) -> Int[Array, " n"]:
    """Indices of the key frames of a segment."""
    return np.flatnonzero([keyframe.segment == segment for keyframe in keyframes])


def viewpoint_distance(poses: Poses, pose: Pose, unit: float) -> Float[Array, " M"]:
    """[unit] How differently poses look at the scene: the distance of the sensors plus that of two
    points before them, along z, half a unit away: in the middle of what a frame shows.
    """

    def looked_at(T: Array) -> Array:
        return geometry.translation(T) + unit / 2 * geometry.rotation(T)[..., :, -1]

    sensors = np.linalg.norm(geometry.translation(poses) - geometry.translation(pose), axis=1)
    return (sensors + np.linalg.norm(looked_at(poses) - looked_at(pose), axis=1)) / unit


def window(
    keyframes: Sequence[Keyframe],
    among: Int[Array, " n"],
    pose: Pose,
    count: int,
    unit: float,
) -> list[int]:
    """Of the key frames `among`, half of `count` the latest, half older ones that look at the scene
    most like `pose`; in their order.
    """
    if count >= len(among):
        return among.tolist()
    recent = count // 2
    older = np.array([keyframes[i].pose for i in among[: len(among) - recent]])
    distance = viewpoint_distance(older, pose, unit)
    near = np.argsort(distance, kind="stable")[: count - recent]
    return [*among[np.sort(near)].tolist(), *among[len(among) - recent :].tolist()]


def register_window(
    keyframes: Sequence[Keyframe],
    components: int,
    unit: float,
    iterations: int,
    rng: np.random.Generator,
    threads: int | None = None,
    fixed: Sequence[int] = (),
    recipe: ModelRecipe = SEQUENCE.model,
) -> tuple[list[Keyframe], Mixture]:
    """The key frames after a few joint steps, some of them fixed or else the first one, and a
    mixture of them all.
    """
    poses = np.array([keyframe.pose for keyframe in keyframes])
    points = np.concatenate([keyframe.points for keyframe in keyframes])
    D = points.shape[1]
    floor = ALIGN.min_variance * unit**2
    turn = geometry.random_rotation(rng, D)
    mixture = seeding.seed(points, len(keyframes), components, floor, turn, recipe)
    clouds = [keyframe.cloud for keyframe in keyframes]
    sweep = Sweep(clouds, threads=threads, tolerance=EM_TOLERANCE)
    update = MixtureStep(floor, recipe=recipe)
    move = JointStep(Constraints(fixed=tuple(fixed) or (0,)), recipe=recipe)
    moments, _ = sweep.moments(poses, mixture, full=True)
    mixture = update(moments, None, mixture)
    if len(keyframes) >= MIN_KEYFRAMES:
        for _ in range(iterations):
            moments, _ = sweep.moments(poses, mixture, full=True)
            poses, motions = move(moments, poses, mixture, 1.0)
            mixture = update(moments, motions, mixture)
    _, log_likelihood = sweep.moments(poses, mixture, full=True)
    density = seeding.outlier_density(
        seeding.typical_log_density(log_likelihood, sweep.points), recipe
    )
    mixture = replace(mixture, outlier_density=density)
    poses = geometry.pose(
        geometry.nearest_rotation(geometry.rotation(poses)), geometry.translation(poses)
    )
    return [replace(k, pose=pose) for k, pose in zip(keyframes, poses, strict=True)], mixture
