# SPDX-License-Identifier: MIT
"""Start poses without any matching, as in the paper's section on initialisation: identity rotations and centred clouds."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.types import Array


def by_centroid(clouds: Sequence[Float[Array, "_ D"]], target: Float[Array, " D"]) -> Float[Array, "M D1 D1"]:
    """t_j = target - mean of cloud j; the target is the mean of the component means."""
    return _shifted([cloud.mean(0) for cloud in clouds], target)


def by_median(clouds: Sequence[Float[Array, "_ D"]], target: Float[Array, " D"]) -> Float[Array, "M D1 D1"]:
    """The same with medians, which flying pixels do not pull."""
    return _shifted([np.median(cloud, axis=0) for cloud in clouds], target)


def _shifted(centres: Sequence[Float[Array, " D"]], target: Float[Array, " D"]) -> Float[Array, "M D1 D1"]:
    return geometry.pose(np.tile(np.eye(len(target)), (len(centres), 1, 1)), target - np.array(centres))
