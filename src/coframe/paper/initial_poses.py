# SPDX-License-Identifier: MIT
"""Start poses without any matching, as in the paper's section on initialisation: identity rotations
and centred clouds.
"""
