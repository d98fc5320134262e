# SPDX-License-Identifier: MIT
"""Several registrations as one: groups of clouds that nothing connects, their frames side by side."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.arrays import Array
from coframe.assess import Verdict
from coframe.em import Iteration, Status
from coframe.mixture import Mixture
from coframe.moments import Moments
from coframe.result import Registration


def side_by_side(
    parts: Sequence[Registration], groups: Sequence[Sequence[int]], clouds: Sequence[Float[Array, "_ D"]], names: Sequence[str]
) -> Registration:
    """Registrations of groups that have nothing in common as one, their frames beside each other along x so that none overlap.

    A group of one cloud has no part: nothing is known of it, and its points are outliers. `parts` are those of the others.
    """
    M, D = len(clouds), clouds[0].shape[1]
    K = [len(part.mixture) for part in parts]
    first = np.cumsum([0, *K])
    poses, covariance = geometry.identity(M, D), np.zeros((M, *parts[0].pose_covariance.shape[1:]))
    mass, visibility = np.zeros((M, first[-1])), np.zeros((M, first[-1]))
    first_moments, second = np.zeros((M, first[-1], D)), np.zeros((M, first[-1], *parts[0].moments.second.shape[2:]))
    points = np.array([float(len(cloud)) for cloud in clouds])
    means = np.zeros((first[-1], D))
    outlier, labels = [np.ones(len(c)) for c in clouds], [np.full(len(c), -1, np.int64) for c in clouds]
    found = [Verdict("failed", "no other cloud could be matched with it", 0.0, 0.0, 0.0, 0.0) for _ in clouds]
    right = 0.0
    for g, group in enumerate(groups):
        members = list(group)
        if g < len(parts):
            part, k = parts[g], slice(first[g], first[g + 1])
            poses[members], covariance[members] = part.poses, part.pose_covariance
            mass[members, k], first_moments[members, k], second[members, k] = (
                part.moments.mass,
                part.moments.first,
                part.moments.second,
            )
            visibility[members, k] = part.mixture.weights if part.mixture.visibility is None else part.mixture.visibility
            points[members], means[k] = part.moments.points, part.mixture.means
            for i, j in enumerate(members):
                outlier[j], found[j] = part.outlier_probability[i], part.verdicts[i]
                labels[j] = np.where(part.labels[i] < 0, -1, part.labels[i] + first[g])
        boxes = [geometry.transform(poses[j], clouds[j]) for j in members]
        left, width = min(box[:, 0].min() for box in boxes), max(np.ptp(box[:, 0]) for box in boxes)
        shift = np.zeros(D)
        shift[0] = right + 0.2 * width - left if g else 0.0
        poses[members, :D, D] += shift
        if g < len(parts):
            means[k] += shift
        right = max(box[:, 0].max() for box in boxes) + shift[0]
    shares = np.repeat([len(group) / M for group in groups[: len(parts)]], K)
    weights = np.concatenate([part.mixture.weights for part in parts]) * shares
    covariances = np.concatenate([part.mixture.covariances for part in parts])
    density = float(np.mean([part.mixture.outlier_density for part in parts]))
    longest = max(range(len(parts)), key=lambda g: parts[g].iterations)
    return Registration(
        clouds=tuple(clouds),
        names=tuple(names),
        poses=poses,
        mixture=Mixture(means, covariances, weights, density, visibility),
        moments=Moments(means, mass, first_moments, second, points),
        outlier_probability=tuple(outlier),
        labels=tuple(labels),
        verdicts=tuple(found),
        pose_covariance=covariance,
        history=_padded(parts[longest], groups[longest], poses),
        status=next((part.status for part in parts if not part.converged), Status.CONVERGED),
        groups=tuple(tuple(group) for group in groups),
    )


def _padded(part: Registration, group: Sequence[int], poses: Float[Array, "M D1 D1"]) -> tuple[Iteration, ...]:
    """The history of one group, the clouds of the others staying where they ended."""
    steps = []
    for step in part.history:
        all_poses = poses.copy()
        all_poses[list(group)] = step.poses
        steps.append(replace(step, poses=all_poses))
    return tuple(steps)
