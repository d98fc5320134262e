# SPDX-License-Identifier: MIT
"""Simulated scans for the tests of starts, and a registration of them that is quick."""

from typing import Any

import numpy as np
from scenes import unchecked

import coframe
from coframe.data import simulate

FAST = coframe.Options(components=100, points=500, iterations=3)


def scene(
    views: int, points: int, degrees: float, seed: int = 0, **setting: Any
) -> simulate.SimulatedScene:
    """Scans in arbitrary poses."""
    rng = np.random.default_rng(seed)
    return simulate.scene(
        views,
        points,
        degrees=degrees,
        **({"motion_degrees": 180.0, "motion_shift": 2.0} | setting),
        rng=rng,
    )


def registered(clouds: list[np.ndarray], **arguments: Any) -> coframe.Registration:
    with unchecked():
        return coframe.register(clouds, options=FAST, **arguments)


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("these clouds are not matched")
