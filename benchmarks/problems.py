# SPDX-License-Identifier: MIT
"""Problems with known answers: real and virtual scans, random points of each, and starts that are
off by a known measure.
"""

import sys
from collections.abc import Sequence

import numpy as np

import coframe
from coframe import geometry
from coframe.data import datasets

# Range scans in metres, with poses that are good to half a degree: their names in the catalogue.
CATALOGUE = {"bunny": "bunny", "dragon": "dragon", "happy": "happy buddha"}
PUBLISHED = ("bunny", "dragon")  # those that most benchmarks use
# virtual depth scans of bodies whose longest side is 1, with true poses
EXACT = ("armadillo", "lucy")
ALL = (*CATALOGUE, *EXACT)
# Which way along the z axis of a scan its scanner is.
SCANNER = dict.fromkeys(CATALOGUE, 1.0) | dict.fromkeys(EXACT, -1.0)
POINTS = 3000  # of each scan
DEGREES = 8.0  # by which starts are turned, at most
SHIFT = 0.004  # [m] by which starts are moved along each axis, at most

Scans = tuple[list[np.ndarray], np.ndarray]  # (N_j, 3) and (M, 4, 4)


def scans(name: str) -> Scans:
    """All points of a set, and its poses."""
    try:
        if name in CATALOGUE:
            found = datasets.load(CATALOGUE[name])
            return found.clouds(), np.array(found.poses)
        with np.load(datasets.root() / "exact" / f"{name}.npz") as file:
            return [
                file[key].astype(float) for key in sorted(file) if key.startswith("scan_")
            ], file["poses"]
    except (coframe.InputError, FileNotFoundError) as error:
        sys.exit(str(error))


def disturbed(
    scans: Sequence[np.ndarray],
    truth: np.ndarray,
    seed: int,
    *,
    points: int | None = POINTS,
    degrees: float = DEGREES,
    shift: float = SHIFT,
    noise_db: float | None = None,
) -> Scans:
    """Random points of every scan (None: all of them), and the true poses, all but the first turned
    and moved by up to so much.

    noise_db: Gaussian noise, so many dB below the mean variance of the scan's coordinates. None: no
    noise.
    """
    rng = np.random.default_rng(seed)
    clouds, start = [], truth.copy()
    for j, scan in enumerate(scans):
        cloud = (
            scan
            if points is None
            else scan[rng.choice(len(scan), min(points, len(scan)), replace=False)]
        )
        if noise_db is not None:
            cloud = cloud + rng.normal(size=cloud.shape) * np.sqrt(
                cloud.var(0).mean() / 10 ** (noise_db / 10)
            )
        clouds.append(cloud.astype(np.float32).astype(float))  # as the usual files would hold it
        disturbance = geometry.pose(
            geometry.random_rotation(rng, 3, degrees), rng.uniform(-shift, shift, 3)
        )
        if j > 0:
            start[j] = disturbance @ truth[j]
    return clouds, start
