# SPDX-License-Identifier: MIT
"""Depth sequences: frames in, the path of the sensor and a model of the scene out."""
