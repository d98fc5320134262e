# SPDX-License-Identifier: MIT
"""Every tuned number of the method itself, with its unit, what it does and where it comes from.

Origins: [paper], [derived: how], [chosen on: what, and what it changed], [0.1,
varied on: what, and what others change].
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelRecipe:
    """How a mixture is seeded and kept regular, and how far its components let a cloud slide."""

    # Share of points that the uniform class is expected to explain. [0.1, varied on proving/tune,
    # 2026-11-18: 0.045 and 0.02 nothing]
    outlier_share: float = 0.03
    # Points that each component is worth beyond those it has seen: they draw its covariance towards
    # a sphere, so that none is singular, and keep a cloud's own priors p_jk above zero. [0.1,
    # varied on proving/tune, 2026-11-18: 0.15 and 0.0667 nothing]
    pseudo_points: float = 0.1
    # Points of the cell that seeds a component, at least. [0.1, varied on proving/tune, 2026-11-18:
    # 12 and 5 nothing]
    min_points: int = 8
    # Tangential precision of a flat component over its precision along the normal, as a multiple of
    # its squared thickness over its squared width: the larger, the less a cloud slides. [0.1,
    # varied on proving/tune, 2026-11-18: 7.5 and 3.33 nothing]
    slide: float = 5.0
    # The same ratio, at least. [0.1, varied on proving/tune, 2026-11-18: 0.015 and 0.00667 nothing]
    min_tangent: float = 0.01
    # Whether the joint step is solved through the model (`joint_sparse`), which gives the same
    # numbers to rounding; None: whichever is quicker.
    sparse: bool | None = None


@dataclass(frozen=True)
class LocaliseRecipe:
    """How one cloud is localised against a mixture that stays as it is (see `localise`)."""

    # Steps with one blur before the next smaller one. [0.1, varied on proving/tune, 2026-11-18: 3
    # and 1 not reached]
    steps_per_blur: int = 2
    # Steps in all, at most. [0.1, varied on proving/tune, 2026-11-18: 18 and 8 not reached]
    max_steps: int = 12
    # [share of the scene's unit] A shorter step ends a blur. [0.1, varied on proving/tune,
    # 2026-11-18: 0.0003 and 0.000133 not reached]
    step_tolerance: float = 2e-4


MODEL = ModelRecipe()
LOCALISE = LocaliseRecipe()
