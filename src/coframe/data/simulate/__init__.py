# SPDX-License-Identifier: MIT
"""Scenes with known poses: surfaces, sensors that look at them, and what they measure."""

from coframe.data.simulate.mesh import Mesh, joined
from coframe.data.simulate.records import Scan, Scans
from coframe.data.simulate.views import (
    SampledSurface,
    SimulatedScene,
    diameter,
    paper_views,
    scan,
    scene,
    shape,
    surface_of_mesh,
)

__all__ = [
    "Mesh",
    "SampledSurface",
    "Scan",
    "Scans",
    "SimulatedScene",
    "diameter",
    "joined",
    "paper_views",
    "scan",
    "scene",
    "shape",
    "surface_of_mesh",
]
