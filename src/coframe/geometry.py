# SPDX-License-Identifier: MIT
"""Rigid motions in two and three dimensions.

A pose is a (D+1, D+1) matrix that carries a cloud into the common frame: x = R v + t. Points are
rows.
"""

import numpy as np
from jaxtyping import Float, Shaped
from scipy.spatial.transform import Rotation

from coframe.errors import LARGEST_NUMBER
from coframe.types import Array, Points, Pose, Poses

# The cosine of 45 degrees: normals that differ less are nearer to parallel than to perpendicular.
ALIKE = 0.5**0.5


def pose(
    rotation: Float[Array, "*B D D"], translation: Float[Array, "*B D"]
) -> Float[Array, "*B D1 D1"]:
    """The poses with these rotations R and translations t."""
    D = translation.shape[-1]
    T = np.zeros((*translation.shape[:-1], D + 1, D + 1))
    T[..., :D, :D] = rotation
    T[..., :D, D] = translation
    T[..., D, D] = 1
    return T


def identity(count: int, dimension: int) -> Poses:
    """`count` poses that move nothing."""
    return np.tile(np.eye(dimension + 1), (count, 1, 1))


def rotation(poses: Float[Array, "*B D1 D1"]) -> Float[Array, "*B D D"]:
    """The rotations R of poses."""
    return poses[..., :-1, :-1]


def translation(poses: Float[Array, "*B D1 D1"]) -> Float[Array, "*B D"]:
    """The translations t of poses."""
    return poses[..., :-1, -1]


def transform(poses: Pose, points: Points) -> Points:
    """R v + t for every row v."""
    return points @ rotation(poses).T + translation(poses)


def inverse(poses: Float[Array, "*B D1 D1"]) -> Float[Array, "*B D1 D1"]:
    """The motions that undo the poses: R^T, -R^T t."""
    R = np.swapaxes(rotation(poses), -1, -2)
    return pose(R, -np.einsum("...ij,...j->...i", R, translation(poses)))


def degrees_of_freedom(dimension: int) -> int:
    """3 in the plane (an angle and a shift), 6 in space."""
    return dimension * (dimension + 1) // 2


def exp_rotation(omega: Float[Array, "*B W"]) -> Float[Array, "*B D D"]:
    """The rotation by the angle |omega| [rad] about omega; in the plane, omega has one entry."""
    if omega.shape[-1] == 1:
        c, s = np.cos(omega[..., 0]), np.sin(omega[..., 0])
        return np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
    return Rotation.from_rotvec(omega.reshape(-1, 3)).as_matrix().reshape(*omega.shape[:-1], 3, 3)


def log_rotation(R: Float[Array, "*B D D"]) -> Float[Array, "*B W"]:
    """The inverse of `exp_rotation`, with an angle of at most pi."""
    if R.shape[-1] == 2:
        return np.arctan2(R[..., 1, 0] - R[..., 0, 1], R[..., 0, 0] + R[..., 1, 1])[..., None]
    # Four times the products of the entries x, y, z, w of the unit quaternion; the row of the
    # largest entry is accurate. Several times faster than scipy, which checks its argument.
    products = np.empty((*R.shape[:-2], 4, 4))
    x, y, z = R[..., 0, 0], R[..., 1, 1], R[..., 2, 2]
    squares = np.stack([1 + x - y - z, 1 - x + y - z, 1 - x - y + z, 1 + x + y + z], -1)
    np.einsum("...ii->...i", products)[...] = squares
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        products[..., i, j] = products[..., j, i] = R[..., i, j] + R[..., j, i]
        products[..., k, 3] = products[..., 3, k] = R[..., j, i] - R[..., i, j]
    largest = squares.argmax(-1)[..., None, None]
    q = np.take_along_axis(products, largest, -2)[..., 0, :]
    q = np.where(q[..., 3:] < 0, -q, q)
    sine, cosine = np.sqrt((q[..., :3] ** 2).sum(-1, keepdims=True)), q[..., 3:]
    small = 2 / np.maximum(cosine, np.finfo(float).tiny)  # the quotient of angles that vanish
    share = np.where(sine > 0, 2 * np.arctan2(sine, cosine) / np.where(sine > 0, sine, 1), small)
    found: Float[Array, "*B W"] = share * q[..., :3]
    return found


def exp(twist: Float[Array, "*B P"]) -> Float[Array, "*B D1 D1"]:
    """The motion x -> exp(omega) x + tau of a twist (omega, tau): turn first, then shift."""
    D = 2 if twist.shape[-1] == 3 else 3
    return pose(exp_rotation(twist[..., :-D]), twist[..., -D:])


def log(poses: Float[Array, "*B D1 D1"]) -> Float[Array, "*B P"]:
    """The twist (omega, tau) of a motion: the inverse of `exp`."""
    return np.concatenate([log_rotation(rotation(poses)), translation(poses)], -1)


def angle(R: Float[Array, "*B D D"]) -> Float[Array, "*B"]:
    """The angle of a rotation in radians, accurate for small angles."""
    return np.asarray(np.linalg.norm(log_rotation(R), axis=-1))


def nearest_rotation(A: Float[Array, "*B D D"]) -> Float[Array, "*B D D"]:
    """The rotation R that maximises trace(R^T A): U S V^T, with S guarding against a reflection."""
    U, _, Vt = np.linalg.svd(A)
    U[..., -1] *= np.sign(np.linalg.det(U @ Vt))[..., None]
    R = U @ Vt
    # The factors are orthogonal to several roundings; a Newton step leaves one. Large coordinates
    # would magnify the rest.
    return R + R @ (np.eye(R.shape[-1]) - R.swapaxes(-1, -2) @ R) / 2


def procrustes(
    source: Float[Array, "*B K D"], target: Float[Array, "K D"], weights: Float[Array, "*B K"]
) -> Float[Array, "*B D1 D1"]:
    """The motion that carries `source` onto `target` with the least weighted sum of squared
    distances (Umeyama).
    """
    total = np.maximum(weights.sum(-1, keepdims=True), np.finfo(float).tiny)
    share = (weights / total)[..., None, :]
    source_mean, target_mean = share @ source, share @ target
    R = nearest_rotation(
        (np.swapaxes(target - target_mean, -1, -2) * share) @ (source - source_mean)
    )
    return pose(R, (target_mean - source_mean @ np.swapaxes(R, -1, -2))[..., 0, :])


def random_rotation(
    rng: np.random.Generator, dimension: int, degrees: float = 180.0
) -> Float[Array, "D D"]:
    """A rotation about a random axis by an angle drawn uniformly from [0, degrees] (in the plane:
    [-degrees, degrees]).
    """
    if dimension == 2:
        return exp_rotation(np.radians(rng.uniform(-degrees, degrees, 1)))
    axis = rng.normal(size=3)
    return exp_rotation(axis / np.linalg.norm(axis) * np.radians(rng.uniform(0, degrees)))


def is_rigid(pose: Shaped[Array, "..."], tolerance: float = 1e-3) -> bool:
    """Whether a matrix is a rotation and a translation; its rotation may be off by the tolerance.

    False for NaN, for numbers so large that their squares overflow, and for other shapes.
    """
    if pose.shape not in ((3, 3), (4, 4)) or not (np.abs(pose) <= LARGEST_NUMBER).all():
        return False
    D = len(pose) - 1
    R = pose[:D, :D]
    near = bool(
        (np.abs(R) < 2).all()
        and np.abs(R @ R.T - np.eye(D)).max() <= tolerance
        and np.linalg.det(R) > 0
    )
    return near and bool(np.array_equal(pose[D], np.eye(D + 1)[D]))


def about(motions: Poses, centre: Float[Array, " D"]) -> Poses:
    """Motions x -> R (x - c) + c + t, given x -> R x + t."""
    R = rotation(motions)
    return pose(R, translation(motions) + centre - R @ centre)


def lever(arm: Float[Array, " D"]) -> Float[Array, "P P"]:
    """From a twist about a centre to the twist about a point that lies `arm` away from it.

    (omega, tau) becomes (omega, tau + omega x arm).
    """
    D, P = len(arm), degrees_of_freedom(len(arm))
    J = np.eye(P)
    J[-D:, :-D] = levers(arm[None])[0][:, :-D]
    return J


def levers(arms: Float[Array, "K D"]) -> Float[Array, "K D P"]:
    """How a twist about the origin moves points: omega x arm + tau."""
    K, D = arms.shape
    J = np.zeros((K, D, degrees_of_freedom(D)))
    J[:, :, -D:] = np.eye(D)
    if D == 2:
        J[:, 0, 0], J[:, 1, 0] = -arms[:, 1], arms[:, 0]
    else:
        x, y, z = arms.T
        J[:, 0, 1], J[:, 0, 2] = z, -y
        J[:, 1, 0], J[:, 1, 2] = -z, x
        J[:, 2, 0], J[:, 2, 1] = y, -x
    return J


def extent(points: Points) -> float:
    """A robust size of a cloud: the longest side of the box around the middle 98 % of its points.

    The box is taken coordinate by coordinate; of fewer than 100 points it holds all.
    """
    if len(points) >= 100:
        low, high = np.percentile(points, [1, 99], axis=0)
    else:
        low, high = points.min(0), points.max(0)
    return float((high - low).max()) or float(np.ptp(points, axis=0).max())
