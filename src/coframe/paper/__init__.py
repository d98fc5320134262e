# SPDX-License-Identifier: MIT
"""JRMPC-B and JRMPC-I as published and as the authors run them, equal to their program to 1e-8."""

from coframe.paper import initial
from coframe.paper.batch import batch
from coframe.paper.incremental import incremental, integrate

__all__ = ["batch", "incremental", "initial", "integrate"]
