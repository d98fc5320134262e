# SPDX-License-Identifier: MIT
"""Start variances, as in the paper's section on initialisation."""
