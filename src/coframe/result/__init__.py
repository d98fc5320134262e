# SPDX-License-Identifier: MIT
"""What comes out: the record, labels of points, files."""
