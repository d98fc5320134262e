# SPDX-License-Identifier: MIT
"""Numba's compiler, with a cache wherever there is a folder for one.

Numba keeps compiled code beside the source or in the user's cache folder, and refuses to compile
where it can write to neither: a read-only install, a user without HOME. There, compiled code is
kept in a temporary folder of this user, or nowhere.
"""

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` that compiles anew in every process where nothing can be kept."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(**options)(function)
        except RuntimeError:
            folder = _temporary_cache()
        if folder is None:
            return numba.njit(**{**options, "cache": False})(function)
        config: Any = numba.config
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder)
        try:
            return numba.njit(**options)(function)
        finally:
            config.CACHE_DIR = before

    return compiled


@cache
def _temporary_cache() -> Path | None:
    """A temporary folder that nobody else can write to, or None; said once."""
    log = logging.getLogger("coframe")
    try:
        folder = Path(tempfile.gettempdir()) / f"coframe-{os.getuid()}"
        if _is_private(folder):
            return folder
        folder.mkdir(mode=0o700)
        if not _is_private(folder):
            raise PermissionError
    except (AttributeError, OSError):  # No user ids on this system, or no folder.
        log.warning(
            "coframe: compiled code is not kept, so every start takes about 20 s longer: found no"
            " folder for it; set NUMBA_CACHE_DIR to a folder of your own"
        )
        return None
    log.warning(
        "coframe: compiled code is kept in %s, since its usual folders cannot be written to; set"
        " NUMBA_CACHE_DIR to choose another",
        folder,
    )
    return folder


def _is_private(folder: Path) -> bool:
    """Whether a folder is there, is ours, and can be neither written to nor replaced by others."""
    try:
        own, above = folder.lstat(), folder.parent.stat()
    except FileNotFoundError:
        return False
    replaceable = above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX
    return (
        stat.S_ISDIR(own.st_mode)
        and own.st_uid == os.getuid()
        and not own.st_mode & 0o077
        and above.st_uid in (0, os.getuid())
        and not replaceable
    )
