# SPDX-License-Identifier: MIT
"""Simulated scenes and published data sets."""
