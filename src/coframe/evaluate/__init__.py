# SPDX-License-Identifier: MIT
"""How good poses and trajectories are, against the truth and without one, and how good they can
be.
"""

from coframe.evaluate.limit import Limit, limit

__all__ = ["Limit", "limit"]
