# SPDX-License-Identifier: MIT
"""The tables and figures of the paper, one file each.

`python -m experiments --help`, docs/reproducing.md.
"""
