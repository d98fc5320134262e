# SPDX-License-Identifier: MIT
"""Directions in which a frame does not say where its sensor is: along a tunnel, over a plain.

A flat component holds a frame along its normal. The information of a frame about its translation,
its turn being free, is summed over the components that it sees. The normal of a component is itself
known to a certain angle only, by the noise and the width of its points; so even a perfect tunnel
seems to hold a frame a little along its axis. A direction is undetermined where a frame is held no
more than these errors of the normals explain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from coframe import geometry
from coframe.em.localise import MIN_MASS
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.types import Array, Pose


@dataclass(frozen=True, eq=False)
class Stretch:
    """Successive frames that leave a direction undetermined.

    Attributes
    ----------
    first, last : int
        Indices of frames.
    direction : array (3,)
        Unit vector in the common frame, up to its sign: the mean of the frames'.
    ratio : float
        Information in this direction over that in the best determined one, the mean of the frames'.
    """

    first: int
    last: int
    direction: Float[Array, " 3"]
    ratio: float


@dataclass(frozen=True, eq=False)
class Hold:
    """How a frame is held in its weakest direction."""

    direction: Float[Array, " 3"]  # in the frame's own axes
    ratio: float  # information there over that in the strongest direction
    free: bool  # whether errors of the normals explain all of it


def weakest(moments: Moments, mixture: Mixture, pose: Pose, frames: int) -> Hold:
    """The direction in which a frame is held least, by its moments, and by a mixture of so many
    frames.
    """
    seen = moments.mass > MIN_MASS
    if not seen.any():
        return Hold(np.array([0.0, 0.0, 1.0]), 1.0, False)
    mass = moments.mass[seen]
    arms = moments.about[seen] + moments.first[seen] / mass[:, None]
    arms = arms - mass @ arms / mass.sum()
    values, axes = (each[seen] for each in mixture.principal_axes)
    thin = values[:, 0]
    points = mass * frames  # that have made a component
    stiffness = [mass / thin]
    apparent = np.zeros((3, 3))
    for j in (1, 2):
        wide, tangents = values[:, j], axes[:, :, j]
        # [rad^2] Variance of the normal's angle towards a tangent: first-order perturbation of the
        # axes of so many points. Where the two axes cannot be told apart, the component is thin
        # along both.
        product, gap = thin * wide, points * (wide - thin) ** 2
        alike = product >= gap
        error = np.where(alike, 0.0, product / np.where(alike, 1.0, gap))
        stiffness.append(np.where(alike, mass / wide, 0.0))
        apparent += ((mass / thin * error)[:, None] * tangents).T @ tangents
    along = np.moveaxis(axes, 2, 0).reshape(-1, 3)  # all first axes, all second ones, ...
    H = _held(np.concatenate(stiffness), along, np.tile(arms, (3, 1)))
    turn = H[:3, :3] + np.finfo(float).eps * np.trace(H[:3, :3]) * np.eye(3)
    information, directions = np.linalg.eigh(
        H[3:, 3:] - H[3:, :3] @ np.linalg.solve(turn, H[:3, 3:])
    )
    direction = directions[:, 0]
    # At least half of it is no more than what the errors lead one to expect.
    free = bool(information[0] <= 2 * direction @ apparent @ direction)
    ratio = max(information[0], 0.0) / max(information[2], np.finfo(float).tiny)
    return Hold(geometry.rotation(pose).T @ direction, float(ratio), free)


def _held(
    stiffness: Float[Array, " K"], normals: Float[Array, "K 3"], arms: Float[Array, "K 3"]
) -> Float[Array, "6 6"]:
    """The information about a twist from points that are held along one direction each."""
    J = np.concatenate([np.cross(arms, normals), normals], 1)
    return (stiffness[:, None] * J).T @ J


def stretches(
    free: Bool[Array, " N"],
    directions: Float[Array, "N 3"],
    ratios: Float[Array, " N"],
    poses: Float[Array, "N 4 4"],
    least: int,
) -> tuple[Stretch, ...]:
    """Runs of frames that leave a direction undetermined, by the majority of each frame and its
    neighbours, `least` of them on each side.
    """
    if not len(free):
        return ()
    padded = np.pad(free.astype(np.int64), least, mode="edge")
    votes = np.convolve(padded, np.ones(2 * least + 1, np.int64), "valid")
    free = votes > least
    edges = np.flatnonzero(np.diff(np.concatenate([[False], free, [False]]).astype(np.int8)))
    found = []
    for first, end in edges.reshape(-1, 2).tolist():
        if end - first < least:
            continue
        part = np.einsum("nij,nj->ni", geometry.rotation(poses[first:end]), directions[first:end])
        mean = np.linalg.eigh(part.T @ part)[1][:, -1]
        found.append(Stretch(first, end - 1, mean, float(ratios[first:end].mean())))
    return tuple(found)


def sentence(stretch: Stretch, names: Sequence[str]) -> str:
    """What is said of a stretch."""
    x, y, z = stretch.direction
    return (
        f"undetermined: frames {stretch.first} to {stretch.last} ({names[stretch.first]} to"
        f" {names[stretch.last]}) along ({x:.2f}, {y:.2f}, {z:.2f}): nothing seen there says how"
        " far the sensor moved that way; do not trust the path along it"
    )
