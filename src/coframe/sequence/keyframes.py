# SPDX-License-Identifier: MIT
"""The back-end: key frames that see the same place, old ones among them, registered jointly.

This is what closes loops.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.em import seeding
from coframe.em.estep import Cloud, Sweep
from coframe.em.joint import Constraints, JointStep
from coframe.em.mixture import Mixture
from coframe.em.mstep import MixtureStep
from coframe.types import Array

FLOOR = 1e-7  # of the squared unit
AHEAD = 0.6  # of the unit: the place that a sensor looks at lies so far before it


@dataclass(frozen=True)
class Keyframe:
    """A frame that stays: its points, thinned out, and where it was taken."""

    index: int  # of its frame
    cloud: Cloud
    pose: Float[Array, "D1 D1"]
    part: int = 0  # of the sequence; poses of different parts have nothing in common

    @property
    def points(self) -> Float[Array, "N D"]:
        """In the frame of its part."""
        return geometry.transform(self.pose, self.cloud.points)


def viewpoint_distance(
    poses: Float[Array, "M D1 D1"], pose: Float[Array, "D1 D1"], unit: float
) -> Float[Array, " M"]:
    """How differently poses look at the scene: the distance of the sensors and of the places they
    look at, along z.
    """

    def looked_at(T: Array) -> Array:
        return geometry.translation(T) + AHEAD * unit * geometry.rotation(T)[..., :, -1]

    places = np.linalg.norm(geometry.translation(poses) - geometry.translation(pose), axis=1)
    return (places + np.linalg.norm(looked_at(poses) - looked_at(pose), axis=1)) / unit


def window(
    keyframes: Sequence[Keyframe], pose: Float[Array, "D1 D1"], count: int, unit: float
) -> Int[Array, " n"]:
    """The latest key frames and as many older ones, those that look at the same place from nearest
    by; in their order.
    """
    M = len(keyframes)
    if count >= M:
        return np.arange(M)
    recent = count // 2
    older = np.array([keyframe.pose for keyframe in keyframes[: M - recent]])
    near = np.argsort(viewpoint_distance(older, pose, unit), kind="stable")[: count - recent]
    return np.concatenate([np.sort(near), np.arange(M - recent, M)])


def register_window(
    keyframes: Sequence[Keyframe],
    components: int,
    unit: float,
    iterations: int,
    rng: np.random.Generator,
    threads: int | None = None,
    fixed: Sequence[int] = (0,),
) -> tuple[list[Keyframe], Mixture]:
    """The key frames moved by a few joint steps, those of `fixed` held, and a mixture of them all."""
    poses = np.array([keyframe.pose for keyframe in keyframes])
    points = np.concatenate([keyframe.points for keyframe in keyframes])
    D, floor = points.shape[1], FLOOR * unit**2
    mixture = seeding.seed(
        points, len(keyframes), components, floor, geometry.random_rotation(rng, D)
    )
    sweep = Sweep(
        [keyframe.cloud for keyframe in keyframes],
        threads=threads,
        tolerance=ALIGN.kernel_tolerance,
    )
    update = MixtureStep(floor)
    move = JointStep(Constraints(fixed=tuple(fixed)))
    moments, _ = sweep.moments(poses, mixture, full=True)
    mixture = update(moments, None, mixture)
    if len(keyframes) > len(fixed) + 1:
        for _ in range(iterations):
            moments, _ = sweep.moments(poses, mixture, full=True)
            poses, motions = move(moments, poses, mixture, 1.0)
            mixture = update(moments, motions, mixture)
    _, log_likelihood = sweep.moments(poses, mixture, full=True)
    density = seeding.outlier_density(seeding.typical_log_density(log_likelihood, sweep.points))
    mixture = replace(mixture, outlier_density=density)
    poses = geometry.pose(
        geometry.nearest_rotation(geometry.rotation(poses)), geometry.translation(poses)
    )
    return [
        replace(keyframe, pose=pose) for keyframe, pose in zip(keyframes, poses, strict=True)
    ], mixture
