# SPDX-License-Identifier: MIT
"""`python -m coframe` is the `coframe` command."""

from coframe.cli import main

main()
