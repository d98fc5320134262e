# SPDX-License-Identifier: MIT
"""."""

from importlib import import_module
from typing import Any

LARGEST_NUMBER = 1e100  # the cube of any coordinate, and of any extent and its inverse, is a number


class InputError(ValueError):
    """What came in cannot be used; the message names it, says what was expected and what was found."""


def optional(module: str, extra: str, purpose: str) -> Any:
    """An optional optional, or one sentence on how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        install = f"pip install 'coframe[{extra}]'"
        raise InputError(
            f"{purpose}: expected the package {module.partition('.')[0]}, found none ({error});"
            f" {install}"
        ) from None
