# SPDX-License-Identifier: MIT
"""The clouds that experiments start from: published sets at paper size, simulated ones, which need
no download, at toy size.
"""

from functools import cache

import numpy as np

from coframe.data import datasets, simulate

MODELS = ("bunny", "lucy", "armadillo")


@cache
def model(name: str, size: str) -> np.ndarray:
    """The vertices (N, 3) of a whole model."""
    if size == "toy":
        return simulate.shape(4000, np.random.default_rng(MODELS.index(name))).points
    return datasets.load({"bunny": "bunny model"}.get(name, name)).clouds()[0]


@cache
def scans(name: str, size: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Range scans around an object, in units of their largest extent, and their published poses."""
    if size == "toy":
        found = simulate.scene(
            4,
            1200,
            degrees=75.0,
            motion_degrees=0.0,
            motion_shift=0.0,
            rng=np.random.default_rng(0),
        )
        return found.clouds, found.poses
    data = datasets.load(name)
    clouds, poses = data.clouds(), data.poses
    assert poses is not None
    unit = max(simulate.diameter(cloud) for cloud in clouds)
    poses = poses.copy()
    poses[:, :3, 3] /= unit
    return [cloud / unit for cloud in clouds], poses


def available(names: tuple[str, ...], size: str) -> list[str]:
    """Those of the sets that are there; all, at toy size."""
    return [name for name in names if size == "toy" or datasets.present(name)]
