# SPDX-License-Identifier: MIT
"""Where EM begins: poses, means and variances."""
