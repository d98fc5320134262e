# SPDX-License-Identifier: MIT
"""The methods that the paper compares with, on the same clouds from the same starts and judged in
the same way; see docs/baselines.md.

>>> result = coframe.baselines.run("trimmed icp", clouds, start_poses)
"""

from coframe.baselines.methods import METHODS, Baseline, run

__all__ = ["METHODS", "Baseline", "run"]
