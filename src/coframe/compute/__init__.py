# SPDX-License-Identifier: MIT
"""Where work runs, and what survives a crash."""
