# SPDX-License-Identifier: MIT
"""The word for an array in annotations:

`Float[Array, "N D"]` is a float array of N rows and D columns.
"""

import numpy as np

Array = np.ndarray
