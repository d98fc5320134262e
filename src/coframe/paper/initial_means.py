# SPDX-License-Identifier: MIT
"""Start means x_k and their number K, as in the paper's section on initialisation."""
