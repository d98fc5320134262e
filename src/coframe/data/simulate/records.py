# SPDX-License-Identifier: MIT
"""What a simulated sensor measures, and all that is true about it."""

from dataclasses import dataclass

from jaxtyping import Bool, Float

from coframe.types import Array, Points, Pose, Poses


@dataclass(frozen=True)
class Scan:
    """One measurement of a sensor, in the sensor's own frame (the sensor is at the origin).

    Attributes
    ----------
    points : array (N, D)
        As measured, with noise.
    normals : array (N, D)
        True unit normals of the surface at each point, on the side of the sensor; zeros for points
        on no surface.
    sigma : array (N,)
        True standard deviation of the measured point along the normal of its surface.
    outliers : bool array (N,)
        Which points lie on no surface, such as flying pixels between two depths.
    pose : array (D+1, D+1)
        Carries the scan into the frame of the scene.
    """

    points: Points
    normals: Points
    sigma: Float[Array, " N"]
    outliers: Bool[Array, " N"]
    pose: Pose


@dataclass(frozen=True)
class Scans:
    """Several scans of one scene.

    Attributes
    ----------
    name : str
        Of the scene, such as "corridor with doors 3".
    clouds : list of arrays (N_j, D)
        Each in its own frame.
    poses : array (M, D+1, D+1)
        Carry each cloud into the common frame.
    normals : list of arrays (N_j, D), optional
        As in `Scan`, each in its cloud's own frame. None where the truth is not known.
    sigma : list of arrays (N_j,), optional
        As in `Scan`. None where the noise is not known.
    outliers : list of bool arrays (N_j,), optional
        As in `Scan`.
    sensors : array (M, D), optional
        Position of the sensor in each cloud's own frame.
    exact : bool
        Whether the poses are exact, or somebody's estimate.
    unit : str
        Of lengths: "m", "nm", or "" for bodies whose longest side is 1.
    """

    name: str
    clouds: list[Float[Array, "_ D"]]
    poses: Poses
    normals: list[Float[Array, "_ D"]] | None = None
    sigma: list[Float[Array, " _"]] | None = None
    outliers: list[Bool[Array, " _"]] | None = None
    sensors: Float[Array, "M D"] | None = None
    exact: bool = True
    unit: str = "m"
