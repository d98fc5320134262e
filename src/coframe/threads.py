# SPDX-License-Identifier: MIT
"""Cores, a pool of threads, and BLAS on one thread."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _BlasLimit:
    """BLAS on one thread, for the whole process: the first user sets it, the last one lifts it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users: Counter[int] = Counter()  # by thread
        self.limit: Any = None

    def enter(self) -> None:
        with self.lock:
            self.users[threading.get_ident()] += 1
            if self.limit is None:
                self.limit = _controller().limit(limits=1, user_api="blas")

    def leave(self) -> None:
        with self.lock:
            self.users -= Counter([threading.get_ident()])
            if not self.users:
                self.limit.restore_original_limits()
                self.limit = None

    def after_fork(self) -> None:
        """Forget the other threads: they have not survived. Limits are lifted by the next user."""
        own = threading.get_ident()
        self.lock = threading.Lock()
        self.users &= Counter({own: self.users[own]})


_blas_limit = _BlasLimit()


@contextmanager
def quiet_blas() -> Iterator[None]:
    """BLAS on one thread: its matrices are small here, and its idle threads spin on the cores that
    the kernels need.
    """
    _blas_limit.enter()
    try:
        yield
    finally:
        _blas_limit.leave()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    """Threads that are kept for the next E-step."""
    return ThreadPoolExecutor(threads, thread_name_prefix="coframe")


if hasattr(os, "register_at_fork"):
    # A child has only the thread that forked: tasks for a pool of the parent would never begin.
    os.register_at_fork(after_in_child=pool.cache_clear)
    os.register_at_fork(after_in_child=_blas_limit.after_fork)
