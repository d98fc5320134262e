# SPDX-License-Identifier: MIT
"""Files in, files out."""
