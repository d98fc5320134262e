# SPDX-License-Identifier: MIT
"""What the user gave: checked, summarised, normalised."""
