# SPDX-License-Identifier: MIT
"""The method on moments: no files, no units, no user input.

Compiled modules are imported at their first call: importing Numba takes longer than all the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coframe.em import joint_kernels, joint_sparse_kernels, kernels


class _Compiled:
    """Stands for a module until one of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = f"{__name__}.{name}"

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        setattr(self, name, found)
        return found


if not TYPE_CHECKING:
    kernels = _Compiled("kernels")
    joint_kernels = _Compiled("joint_kernels")
    joint_sparse_kernels = _Compiled("joint_sparse_kernels")
