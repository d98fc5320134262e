# SPDX-License-Identifier: MIT
"""Scenes with known poses: surfaces, sensors that look at them, and what they measure."""

from coframe.data.simulate.cast import Caster
from coframe.data.simulate.mesh import Mesh, joined
from coframe.data.simulate.records import Scan, Scans
from coframe.data.simulate.sensors import (
    airborne,
    around,
    depth_camera,
    gathered,
    lidar,
    looking,
    terrestrial,
    turntable,
)
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
    "Caster",
    "Mesh",
    "SampledSurface",
    "Scan",
    "Scans",
    "SimulatedScene",
    "airborne",
    "around",
    "depth_camera",
    "diameter",
    "gathered",
    "joined",
    "lidar",
    "looking",
    "paper_views",
    "scan",
    "scene",
    "shape",
    "surface_of_mesh",
    "terrestrial",
    "turntable",
]
