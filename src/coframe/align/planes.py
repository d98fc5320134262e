# SPDX-License-Identifier: MIT
"""From rough start poses to nearby ones: all clouds at once, point to plane, without a mixture.

Components that are as wide as the start is off draw clouds onto each other along whatever they
share: at fixed K overlap pays. Planes do not: a patch of one cloud is drawn along the normal of the
nearest patch of another, and a patch beyond the edge of the other cloud is not drawn at all. Where
the planes leave a direction free, clouds stay where they started.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.linalg import spsolve

from coframe import geometry
from coframe.align.evidence import Surface, partners_of, signs_of, some_patches
from coframe.compute.per_cloud import Local
from coframe.em.constraints import UNCONSTRAINED, Constraints
from coframe.types import Array, Pose, Poses

# [size] Steps with each gate before it is halved.
STEPS = 3
# [limit] Steps of one cloud with the last gate. Along a direction that is held by a hundredth of
# the mean stiffness, each step goes half of the way.
LAST = 20
# [guard] The smallest gate over the largest.
SMALLEST = 2.0**-10
# [limit] Standard deviations of the points of a patch: with this gate Tukey's weights are 95 %
# efficient where noise is normal.
SIGMAS = 4.7
# [guard] Share of the mean stiffness that keeps each cloud near where it started, so that a
# direction in which no plane constrains it stays as it was. Other directions are off by this share
# of the way, which the last gates remove: these start where the others ended.
STAY = 0.01


def settle(
    surfaces: Sequence[Surface],
    start: Poses,
    gate: float,
    constraints: Constraints = UNCONSTRAINED,
    threads: int | None = 1,
) -> Poses:
    """Poses near the start at which the planes of the clouds meet.

    Parameters
    ----------
    surfaces : sequence of Surface
    start : (M, D+1, D+1) array
    gate : float
        How far apart surfaces may lie at the start. It is halved until it is as small as the noise.
    constraints : Constraints
    threads : int, optional
        Default: one; None: all cores.

    Returns
    -------
    (M, D+1, D+1) array
    """
    M = len(surfaces)
    some = [some_patches(each, M) for each in surfaces]
    variances = np.concatenate([each.variances[each.flat] for each in some])
    radius = float(np.median(np.concatenate([each.radii for each in some])))
    smallest = _smallest(variances, radius, gate)
    some = [each.subset(np.flatnonzero(each.flat)) for each in some]
    poses = anchor = start
    while True:
        if gate < radius:
            anchor = poses
        for _ in range(STEPS):
            twists, centre = _step(surfaces, some, anchor, poses, gate, constraints, threads)
            poses = geometry.about(geometry.exp(twists), centre) @ poses
        if gate < smallest:
            return poses
        gate /= 2


def _smallest(variances: Float[Array, " n"], radius: float, gate: float) -> float:
    """The last gate: the noise of flat patches, unless that is beyond what their size can tell."""
    noise = float(np.sqrt(np.median(variances))) if len(variances) else radius
    # Points that coincide have patches without a size.
    return max(min(max(SIGMAS * noise, radius / 16), radius), gate * SMALLEST)


def settle_one(one: Surface, others: Surface, pose: Pose, gate: float, sign: float) -> Pose:
    """The pose near another one at which a cloud's planes meet those of others, which stay.

    `others` are in the common frame; `sign`: see `signs_of`.
    """
    frame = np.eye(len(pose))
    flat = one.subset(np.flatnonzero(one.flat))
    smallest = _smallest(flat.variances, float(np.median(one.radii)), gate)
    while True:
        last = gate < smallest
        for _ in range(LAST if last else STEPS):
            centre = geometry.translation(pose)
            H, drawn = _pull(flat, others, pose, frame, centre, gate, sign)
            mean = np.trace(H) / len(H)
            if not mean > 0:
                return pose
            twist = -np.linalg.solve(H + STAY * mean * np.eye(len(H)), drawn)
            pose = geometry.about(geometry.exp(twist)[None], centre)[0] @ pose
        if last:
            return pose
        gate /= 2


def _step(
    surfaces: Sequence[Surface],
    some: Sequence[Surface],
    start: Poses,
    poses: Poses,
    gate: float,
    constraints: Constraints,
    threads: int | None,
) -> tuple[Float[Array, "M P"], Float[Array, " D"]]:
    """One Gauss-Newton step of all poses with Tukey's weights: twists about a centre."""
    M, D = len(poses), poses.shape[1] - 1
    P = geometry.degrees_of_freedom(D)
    blocks: dict[tuple[int, int], Float[Array, "P P"]] = defaultdict(lambda: np.zeros((P, P)))
    g = np.zeros((M, P))
    inverse = geometry.inverse(poses)
    centre = geometry.translation(poses).mean(0)
    signs = signs_of(surfaces, poses)
    partners = partners_of(surfaces, poses, gate)

    def pull(j: int) -> list[tuple[Float[Array, "P P"], Float[Array, " P"]]]:
        found = []
        for i in partners[j]:
            motion = inverse[i] @ poses[j]
            sign = signs[i] * signs[j]
            found.append(_pull(some[j], surfaces[i], motion, poses[i], centre, gate, sign))
        return found

    for j, found in enumerate(Local(range(M), threads).map(pull)):
        for i, (H, drawn) in zip(partners[j], found, strict=True):
            blocks[j, j] += H
            blocks[i, i] += H
            blocks[j, i] -= H
            blocks[i, j] -= H
            g[j] += drawn
            g[i] -= drawn
    mean = sum(np.trace(blocks[j, j]) for j in range(M)) / (M * P)
    if not mean > 0:  # no plane of any cloud is near one of another
        return np.zeros((M, P)), centre
    stay = STAY * mean
    away = geometry.log(geometry.about(poses @ geometry.inverse(start), -centre))
    g += stay * away
    for j in range(M):
        blocks[j, j] += stay * np.eye(P)
    for prior in constraints.priors:
        H, drawn = prior.normal_equations(poses[prior.cloud], centre)
        # Heights over planes are off by about the gate.
        blocks[prior.cloud, prior.cloud] += gate**2 * H
        g[prior.cloud] += gate**2 * drawn
    allowed = constraints.allowed(M, D).ravel()
    first = P * np.array(list(blocks))
    rows, columns = np.broadcast_arrays(
        first[:, 0, None, None] + np.arange(P)[:, None], first[:, 1, None, None] + np.arange(P)
    )
    values = np.stack(list(blocks.values()))
    A = coo_array((values.ravel(), (rows.ravel(), columns.ravel()))).tocsc()
    twists = np.zeros(M * P)
    twists[allowed] = spsolve(A[allowed][:, allowed], -g.ravel()[allowed])
    return twists.reshape(M, P), centre


def _pull(
    one: Surface,
    other: Surface,
    motion: Pose,
    frame: Pose,
    centre: Float[Array, " D"],
    gate: float,
    sign: float,
) -> tuple[Float[Array, "P P"], Float[Array, " P"]]:
    """How the planes of another cloud draw the patches of one, all flat: H and the gradient."""
    from coframe.align import plane_kernels  # Numba, which results alone do not need

    nearest = other.nearest
    x = geometry.transform(motion, one.centres)
    return plane_kernels.attraction(
        *(x, one.normals @ geometry.rotation(motion).T, one.facing),
        *(nearest.points, nearest.order, nearest.boxes),
        *(other.centres, other.normals, other.radii, other.flat, other.facing),
        *(np.ascontiguousarray(frame), centre, float(gate), float(sign), geometry.ALIKE),
    )
