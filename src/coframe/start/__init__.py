# SPDX-License-Identifier: MIT
"""Where EM begins: poses, means and variances."""

from coframe.start import means, poses, scale

__all__ = ["means", "poses", "scale"]
