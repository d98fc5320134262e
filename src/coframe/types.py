# SPDX-License-Identifier: MIT
"""The words for arrays in annotations.

`Float[Array, "N D"]` is a float array of N rows and D columns. Points are rows; a pose is a matrix
(D+1, D+1), and pose j carries cloud j into the common frame: x = R v + t.
"""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float

Array: TypeAlias = np.ndarray
Points: TypeAlias = Float[Array, "N D"]
Pose: TypeAlias = Float[Array, "D1 D1"]
Poses: TypeAlias = Float[Array, "M D1 D1"]
