# SPDX-License-Identifier: MIT
"""Cores, a pool of threads, and BLAS on one thread."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Quiet:
    """Limits are the whole process's: the first that comes sets them, and the last that goes lifts
    them.
    """

    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), 0

    def enter(self) -> None:
        with self.lock:
            if not self.users:
                self.limit = _controller().limit(limits=1, user_api="blas")
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.limit.restore_original_limits()


_quiet = _Quiet()


@contextmanager
def quiet_blas() -> Iterator[None]:
    """BLAS on one thread: its matrices are small here, and its idle threads spin on the cores that
    the kernels need.
    """
    _quiet.enter()
    try:
        yield
    finally:
        _quiet.leave()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="coframe")
