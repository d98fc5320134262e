# SPDX-License-Identifier: MIT
"""Where EM begins: poses, means and variances. `nothing` finds poses of clouds that come without."""

from coframe.start import means, poses, scale

__all__ = ["means", "poses", "scale"]
