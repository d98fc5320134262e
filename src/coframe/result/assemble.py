# SPDX-License-Identifier: MIT
"""From fits in internal coordinates to the user's result: the one path of all methods.

`register`, `refine`, `judge` and `paper.batch` differ in how they fit; what follows is the same:
poses, mixture and covariances in the user's units, a verdict per cloud, a label per point.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align.covariance import error_covariance
from coframe.align.recipe import ALIGN, AlignRecipe
from coframe.align.verdict import verdicts
from coframe.em.joint import UNCONSTRAINED, Constraints
from coframe.em.loop import Fit
from coframe.input.given import Given
from coframe.input.normalise import Normalisation
from coframe.input.source import Source
from coframe.result import labels, merged
from coframe.result.groups import side_by_side
from coframe.result.labels import CloudView, PointLabels
from coframe.result.registration import Registration
from coframe.types import Array, Pose, Poses


@dataclass(frozen=True)
class Solution:
    """A fit of a group of clouds, and how its coordinates relate to the user's."""

    fit: Fit
    frames: Normalisation
    origin: Float[Array, " D"]  # the user's point that is the internal common origin
    group: Sequence[int]  # the clouds of the fit, by their numbers
    constraints: Constraints = UNCONSTRAINED

    @property
    def poses(self) -> Poses:
        """In the user's coordinates."""
        return self.frames.leave_poses(self.fit.poses, self.origin)

    def views(self, first: int) -> list[CloudView]:
        """How the fit sees its clouds; its first component has number `first` in the result."""
        visibility = self.fit.mixture.visibility
        rows = [None] * len(self.group) if visibility is None else list(visibility[:, None])
        each = zip(self.frames.each(), self.fit.poses, rows, strict=True)
        return [CloudView(*view, first) for view in each]

    def registration(self, given: Given, recipe: AlignRecipe = ALIGN) -> Registration:
        """The result without its points. The fit's moments must be full."""
        fit, frames, origin = self.fit, self.frames, self.origin
        covariance = error_covariance(
            fit.moments, fit.mixture, fit.poses, self.constraints, fit.independent, recipe
        )
        mixture = frames.leave_mixture(fit.mixture, origin)
        moments = frames.leave_moments(fit.moments, origin)
        return Registration(
            clouds=(),
            names=tuple(given.names[j] for j in self.group),
            poses=self.poses,
            mixture=mixture,
            moments=moments,
            outlier_probability=(),
            labels=(),
            verdicts=verdicts(moments, mixture, recipe.verdict),
            pose_covariance=frames.leave_covariance(covariance),
            history=tuple(frames.leave_iteration(step, origin) for step in fit.history),
            status=fit.status,
            groups=(tuple(range(len(self.group))),),
        )


def assemble(
    given: Given,
    solutions: Sequence[Solution],
    *,
    groups: Sequence[Sequence[int]] | None = None,
    points: int = 0,
    output: Path | None = None,
    recipe: AlignRecipe = ALIGN,
) -> Registration:
    """The result of one fit, or of several groups that nothing connects, with its points.

    `groups` has those of the solutions first, then clouds on their own. Where not all points are in
    memory, the result has about `points` of each cloud, and all are written to `output`.
    """
    groups = [solution.group for solution in solutions] if groups is None else groups
    parts = [solution.registration(given, recipe) for solution in solutions]
    result = parts[0]
    if len(groups) > 1:
        result = side_by_side(parts, groups, given.names, given.sizes, lambda T: _spans(given, T))
    return _with_points(result, given, solutions, groups, points, output)


def _with_points(
    result: Registration,
    given: Given,
    solutions: Sequence[Solution],
    groups: Sequence[Sequence[int]],
    points: int,
    output: Path | None,
) -> Registration:
    """The result with what is known of every point, or of some where they are not all here."""
    first, views, mixtures = 0, [], []
    for solution in solutions:
        views.append(solution.views(first))
        mixtures.append(solution.fit.mixture)
        first += len(solution.fit.mixture)
    alone = len(groups) - len(solutions)
    one = solutions[0]
    anywhere = CloudView(one.frames.only(0), one.fit.poses[0], None)
    own_views = [*views, *[[anywhere]] * alone]
    own_mixtures = [*mixtures, *[None] * alone]
    seen = list(zip(groups, own_views, own_mixtures, strict=True))
    found: dict[int, PointLabels] = {}
    if given.loaded:
        for group, own, mixture in seen:
            some = given.clouds.subset(group)
            labelled = some.map(labels.label_points, own, shared=(mixture,))
            found |= zip(group, labelled, strict=True)
        clouds = [cloud.points for cloud in given.loaded]
        attributes = [cloud.columns for cloud in given.loaded]
        sizes: Sequence[int] = ()
    else:
        with merged.targets(given, output, result.poses) as targets:
            for group, own, mixture in seen:
                some = given.clouds.subset(group)
                where = [targets[j] for j in group]
                written = some.map(labels.write_points, own, where, shared=(mixture, points))
                found |= zip(group, written, strict=True)
        samples = [found[j] for j in range(len(found))]
        clouds = [each.points for each in samples if isinstance(each, labels.Some)]
        attributes = [each.columns for each in samples if isinstance(each, labels.Some)]
        sizes = given.sizes
    every = [found[j] for j in range(len(found))]
    result = replace(
        result,
        clouds=tuple(clouds),
        outlier_probability=tuple(each.outlier_probability for each in every),
        labels=tuple(each.labels for each in every),
    )
    if not given.files:
        return result
    return replace(
        result,
        attributes=tuple(attributes),
        files=tuple(str(file.absolute()) for file in given.files),
        sizes=tuple(sizes),
    )


def _spans(given: Given, poses: Poses) -> Float[Array, "M 2"]:
    """The least and the largest x of each cloud under given poses."""
    return np.array(given.clouds.map(_span, list(poses)))


def _span(cloud: Source, pose: Pose) -> tuple[float, float]:
    x = [geometry.transform(pose, block.points)[:, 0] for block in cloud.blocks()]
    return float(min(part.min() for part in x)), float(max(part.max() for part in x))
