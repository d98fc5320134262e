# SPDX-License-Identifier: MIT
"""The public verbs, one file each."""
