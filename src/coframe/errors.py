# SPDX-License-Identifier: MIT
"""What is said of input that cannot be used."""

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

# [limit] The cube of any coordinate, and of any extent and its inverse, is a number.
LARGEST_NUMBER = 1e100
# [limit] Characters of another program's message that are repeated in ours.
LONGEST_REASON = 300
# [format] Where libE57 goes on with lines of its own source.
DEBUG = "Debug info:"
# [format] Characters that are no text: controls (C0, DEL, C1), marks of writing direction,
# separators of lines and paragraphs, and lone surrogates, which stand for bytes of file names that
# are no UTF-8.
INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
SURROGATES = re.compile("[\ud800-\udfff]")


def visible(text: object) -> str:
    r"""Text on one line that a terminal shows as it is: what is no text becomes an escape.

    >>> visible("a\x1b[31m\nb\udcff")
    'a\\x1b[31m\\x0ab\\xff'
    """
    return INVISIBLE.sub(_escape, str(text))


def encodable(text: str) -> str:
    r"""Text that every encoding of Unicode accepts: bytes that were no UTF-8 become escapes.

    >>> encodable("a\nb\udcff")
    'a\nb\\xff'
    """
    return SURROGATES.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    """The character as in a string of Python; of an undecodable byte, the byte."""
    code = ord(match[0])
    byte = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code
    return f"\\x{byte:02x}" if byte < 0x100 else f"\\u{byte:04x}"


class InputError(ValueError):
    """Input that cannot be used: the message names it, says what was expected and what was found.

    The message is one line of text, whatever is in the names of files (see `visible`).

    Examples
    --------
    >>> raise InputError("points: expected at least 4 a cloud, found 3; give more")
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


def one_line(error: BaseException) -> str:
    """What an error says, on one line and not too long; its type where it says nothing.

    >>> one_line(ValueError("bad checksum. Debug info: context = x.cpp"))
    'bad checksum.'
    """
    text = " ".join(str(error).split()).partition(DEBUG)[0].strip()
    return text[:LONGEST_REASON] or type(error).__name__


def optional(module: str, extra: str, purpose: str) -> Any:
    """A module that may be absent, or one sentence on how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"{purpose}: expected the package {module.partition('.')[0]}, found none ({error});"
            f" pip install 'coframe[{extra}]'"
        ) from None


def nearest(name: str, names: Sequence[str]) -> str:
    """The names that are most like one that does not exist, or the first of all, for a message."""
    from difflib import get_close_matches

    near = get_close_matches(name, names, n=3, cutoff=0.4)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names[:10])}"
