# SPDX-License-Identifier: MIT
"""What is said of input that cannot be used."""

from importlib import import_module
from typing import Any

# [limit] The cube of any coordinate, and of any extent and its inverse, is a number.
LARGEST_NUMBER = 1e100
# [limit] Characters of another program's message that are repeated in ours.
LONGEST_REASON = 300


class InputError(ValueError):
    """Input that cannot be used: the message names it, says what was expected and what was found.

    Examples
    --------
    >>> raise InputError("points: expected at least 4 a cloud, found 3; give more")
    """


def one_line(error: BaseException) -> str:
    """What an error says, on one line and not too long; its type where it says nothing."""
    return " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__


def optional(module: str, extra: str, purpose: str) -> Any:
    """A module that may be absent, or one sentence on how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"{purpose}: expected the package {module.partition('.')[0]}, found none ({error});"
            f" pip install 'coframe[{extra}]'"
        ) from None
