# SPDX-License-Identifier: MIT
"""From start poses to a fit, and what it is worth."""
