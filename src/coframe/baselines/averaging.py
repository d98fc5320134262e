# SPDX-License-Identifier: MIT
"""Motion averaging (Govindu 2004): poses that agree best with measured motions between pairs of
clouds.

Motion e of the pair (a, b) carries cloud a into the frame of cloud b, so that pose_b motion_e =
pose_a when all agree.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.baselines.run import moved
from coframe.types import Array

SWEEPS = 50  # at most; a few do when the motions nearly agree
TOLERANCE = 1e-12  # of the radius


def averaged(
    poses: Float[Array, "M D1 D1"],
    pairs: Sequence[tuple[int, int]],
    motions: Float[Array, "E D1 D1"],
    weights: Float[Array, " E"],
) -> Float[Array, "M D1 D1"]:
    """The poses that minimise sum w |log(pose_b motion pose_a^-1)|^2 over all pairs, from a start,
    in its gauge.

    Each sweep takes the discrepancies to the Lie algebra, where they are linear, solves there and
    moves all poses at once.
    """
    M = len(poses)
    a, b = np.array(pairs).T
    incidence = np.zeros((len(a), M))
    incidence[np.arange(len(a)), a], incidence[np.arange(len(a)), b] = 1, -1
    solve = np.linalg.pinv(np.sqrt(weights)[:, None] * incidence) * np.sqrt(weights)
    for _ in range(SWEEPS):
        discrepancy = geometry.log(poses[b] @ motions @ geometry.inverse(poses[a]))
        new = geometry.exp(solve @ discrepancy) @ poses
        done = moved(poses, new) < TOLERANCE
        poses = new
        if done:
            break
    return poses
