# SPDX-License-Identifier: MIT
"""How good poses and trajectories are, against the truth and without one."""
