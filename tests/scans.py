# SPDX-License-Identifier: MIT
"""One small scan with everything that formats can keep, for the tests of files."""

import numpy as np
import pytest

from coframe import geometry
from coframe.io.scan import Scan

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(7, 3)) + np.array([4.4e6, 5e5, 100])  # survey coordinates
NEAR = RNG.normal(size=(7, 3)).astype("f4").astype(float)  # what floats can hold
COLOURS = RNG.integers(0, 256, (7, 3), dtype=np.uint8)
NORMALS = np.linalg.qr(RNG.normal(size=(7, 3, 3)))[0][:, 0]
INTENSITY = RNG.integers(2, 60000, 7).astype("f8")
POSE = geometry.exp(np.array([0.3, -0.2, 0.5, 10.0, -20.0, 3.0]))
FULL = Scan(POINTS, COLOURS, NORMALS, INTENSITY, {"time": np.arange(7.0)}, POSE, "scan")
LIBRARIES = {
    ".las": "laspy",
    ".laz": "laspy",
    ".e57": "pye57",
    ".obj": "trimesh",
    ".stl": "trimesh",
    ".off": "trimesh",
}


def needs(suffix: str) -> None:
    """Skip where the library of a format is absent."""
    if suffix in LIBRARIES:
        pytest.importorskip(LIBRARIES[suffix])
