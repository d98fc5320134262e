# SPDX-License-Identifier: MIT
"""Start poses from nothing: descriptors, matches, verified motions, one graph."""
