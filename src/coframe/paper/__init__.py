# SPDX-License-Identifier: MIT
"""JRMPC-B and JRMPC-I as published and as the authors run them, equal to their program to 1e-8."""

from coframe.paper import initial
from coframe.paper.batch import batch
from coframe.paper.incremental import incremental, integrate
from coframe.paper.published import batch_with_defaults

__all__ = ["batch", "batch_with_defaults", "incremental", "initial", "integrate"]
