# SPDX-License-Identifier: MIT
"""Groups of clouds that nothing connects as one registration, their frames side by side."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align.verdict import Verdict
from coframe.em.loop import Iteration, Status
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.result.registration import Registration
from coframe.types import Array, Poses


def side_by_side(
    parts: Sequence[Registration],
    groups: Sequence[Sequence[int]],
    names: Sequence[str],
    counts: Sequence[int],
    span: Callable[[Poses], Float[Array, "M 2"]],
) -> Registration:
    """Registrations of groups that have nothing in common as one, their frames beside each other
    along x so that none overlap.

    A group of one cloud has no part: nothing is known of it, and its points are outliers. `parts`
    are those of the others. `counts` are the points of each cloud, `span` tells the least and the
    largest x of each under given poses.
    """
    M, D = len(names), parts[0].mixture.dimension
    K = [len(part.mixture) for part in parts]
    first = np.cumsum([0, *K])
    poses, covariance = geometry.identity(M, D), np.zeros((M, *parts[0].pose_covariance.shape[1:]))
    mass, visibility = np.zeros((M, first[-1])), np.zeros((M, first[-1]))
    first_moments, second = (
        np.zeros((M, first[-1], D)),
        np.zeros((M, first[-1], *parts[0].moments.second.shape[2:])),
    )
    points = np.array(counts, float)
    means = np.zeros((first[-1], D))
    found = [
        Verdict("failed", "no other cloud could be matched with it", 0.0, 0.0, 0.0, 0.0)
        for _ in names
    ]
    for g, (group, part) in enumerate(zip(groups, parts, strict=False)):
        members, k = list(group), slice(first[g], first[g + 1])
        poses[members], covariance[members] = part.poses, part.pose_covariance
        mass[members, k], first_moments[members, k], second[members, k] = (
            part.moments.mass,
            part.moments.first,
            part.moments.second,
        )
        visibility[members, k] = (
            part.mixture.weights if part.mixture.visibility is None else part.mixture.visibility
        )
        points[members], means[k] = part.moments.points, part.mixture.means
        for i, j in enumerate(members):
            found[j] = part.verdicts[i]
    left, right = span(poses).T
    end = 0.0
    for g, group in enumerate(groups):
        members, shift = list(group), np.zeros(D)
        shift[0] = end + 0.2 * (right - left)[members].max() - left[members].min() if g else 0.0
        poses[members, :D, D] += shift
        if g < len(parts):
            means[first[g] : first[g + 1]] += shift
        end = right[members].max() + shift[0]
    shares = np.repeat([len(group) / M for group in groups[: len(parts)]], K)
    weights = np.concatenate([part.mixture.weights for part in parts]) * shares
    covariances = np.concatenate([part.mixture.covariances for part in parts])
    density = float(np.mean([part.mixture.outlier_density for part in parts]))
    longest = max(range(len(parts)), key=lambda g: parts[g].iterations)
    return Registration(
        clouds=(),
        names=tuple(names),
        poses=poses,
        mixture=Mixture(means, covariances, weights, density, visibility),
        moments=Moments(means, mass, first_moments, second, points),
        outlier_probability=(),
        labels=(),
        verdicts=tuple(found),
        pose_covariance=covariance,
        history=_padded(parts[longest], groups[longest], poses),
        status=next((part.status for part in parts if not part.converged), Status.CONVERGED),
        groups=tuple(tuple(group) for group in groups),
    )


def _padded(part: Registration, group: Sequence[int], poses: Poses) -> tuple[Iteration, ...]:
    """The history of one group beside the others, whose clouds stay where they ended."""
    steps = []
    shift = geometry.translation(poses)[group[0]] - geometry.translation(part.poses)[0]
    for step in part.history:
        all_poses = poses.copy()
        all_poses[list(group)] = step.poses
        all_poses[list(group), :-1, -1] += shift
        steps.append(replace(step, poses=all_poses))
    return tuple(steps)
