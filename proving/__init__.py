# SPDX-License-Identifier: MIT
"""Problems with known poses, run and scored: `python -m proving`."""
