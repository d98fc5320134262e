# SPDX-License-Identifier: MIT
"""Every tuned number of the method itself, with its unit, what it does and where it comes from.

Origins: [paper], [derived: how], [chosen on: what, and what it changed], [0.1, unknown].
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelRecipe:
    """How a mixture is seeded and kept regular, and how far its components let a cloud slide."""

    # Share of points that the uniform class is expected to explain. [0.1, unknown]
    outlier_share: float = 0.03
    # Pseudo-points that draw each covariance towards a sphere, so that none is singular.
    # [0.1, unknown]
    roundness: float = 0.1
    # Pseudo-points of each component in a cloud's own priors p_jk. [0.1, unknown]
    smoothing: float = 0.3
    # Points of the cell that seeds a component, at least. [0.1, unknown]
    min_points: int = 8
    # Pseudo-points that each component of a past model is worth beyond those it has seen, so that
    # none is ever singular. [0.1, unknown]
    past_points: float = 0.1
    # Tangential precision of a flat component over its precision along the normal, as a multiple of
    # its squared thickness over its squared width: the larger, the less a cloud slides.
    # [0.1, unknown]
    slide: float = 5.0
    # The same ratio, at least. [0.1, unknown]
    min_tangent: float = 0.01
    # Points of a cloud on components that other clouds see too; with fewer nothing constrains its
    # pose. [0.1, unknown]
    min_shared: float = 1.0
    # Whether the joint step is solved through the model (`joint_sparse`), which gives the same
    # numbers to rounding; None: whichever is quicker.
    sparse: bool | None = None


@dataclass(frozen=True)
class LoopRecipe:
    """When EM stops, and how it lengthens its pose steps."""

    # Iterations in a row that must change little before the loop stops. [0.1, unknown]
    settled_iterations: int = 2
    # Over-relaxation of a pose step, at most. [0.1, unknown]
    max_stride: float = 5.0
    # Cosine between two steps in a row above which the next is lengthened. [0.1, unknown]
    lengthen_above: float = 0.8
    # Factor of a lengthened step. [0.1, unknown]
    lengthen_by: float = 1.4
    # Cosine between two steps in a row below which the next is shortened. [0.1, unknown]
    shorten_below: float = 0.3
    # Factor of a shortened step. [0.1, unknown]
    shorten_by: float = 0.5


@dataclass(frozen=True)
class LocaliseRecipe:
    """How one cloud is localised against a mixture that stays as it is (see `localise`)."""

    # Share of a point's posterior mass that the kernels may skip. [0.1, unknown]
    tolerance: float = 1e-4
    # Steps with one blur before the next smaller one. [0.1, unknown]
    steps_per_blur: int = 2
    # Steps in all, at most. [0.1, unknown]
    max_steps: int = 12
    # [share of the scene's unit] A shorter step ends a blur. [0.1, unknown]
    step_tolerance: float = 1e-3
    # [share of the scene's unit] A shorter step ends the last blur. [0.1, unknown]
    last_step_tolerance: float = 2e-4
    # Points of a component, at least, that take part in a step. [0.1, unknown]
    min_mass: float = 1e-3


MODEL = ModelRecipe()
LOOP = LoopRecipe()
LOCALISE = LocaliseRecipe()
