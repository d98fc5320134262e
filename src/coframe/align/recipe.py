# SPDX-License-Identifier: MIT
"""Every tuned number of the alignment, with its unit, what it does and where it comes from.

Lengths are shares of the largest cloud's extent, which normalisation makes one. Origins: [paper],
[derived: how], [chosen on: what, and what it changed], [0.1, unknown].
"""

import math
from dataclasses import dataclass, field

from coframe.em.recipe import LOCALISE, LOOP, MODEL, LocaliseRecipe, LoopRecipe, ModelRecipe


@dataclass(frozen=True)
class Level:
    """One size of mixture: how many components on how many points, and when EM on it ends."""

    components: int
    points: int  # of each cloud, at most
    iterations: int
    # Iterations with fixed poses after seeding, since freshly seeded components mix surfaces and
    # would bias the first pose step. [0.1, unknown]
    burn_in: int = 4
    # Share of the scene's radius: poses that move less have settled. [0.1, unknown]
    tolerance: float = 1e-4
    # Spheres with priors common to all clouds, which attract from far away; else ellipsoids, and
    # each cloud's own priors.
    spheres: bool = False


@dataclass(frozen=True)
class DenoiseRecipe:
    """When a cloud counts as noisy, and over how many neighbours its noise is averaged."""

    # Points of a patch. [0.1, unknown]
    neighbours: int = 20
    # Nearest points of a patch, whose thickness is compared with that of the whole. [0.1, unknown]
    inner: int = 8
    # Patches that decide whether a cloud is noisy. [0.1, unknown]
    sample: int = 400
    # Thickness over width of a patch above which it counts as thick. [chosen on: the four objects
    # of 0.1; 0.1 to 0.3 on clean scans, above 0.5 where noise is as large as the spacing]
    min_thickness: float = 0.35
    # Growth of the thickness from the inner points to the whole patch below which noise, which is
    # thick at once, made it, and not curvature, which grows with size. [0.1, unknown]
    max_growth: float = 1.7


@dataclass(frozen=True)
class VerdictRecipe:
    """When a cloud is called aligned, weak or failed."""

    # Share of points that the model explains below which a cloud failed. [0.1, unknown]
    failed_inliers: float = 0.3
    # Overlap below which a cloud failed. [chosen on: the four objects of 0.1; clouds of other
    # objects reach 0.1 by chance, views at the edge of a scene have 0.6]
    failed_overlap: float = 0.15
    # Overlap below which a cloud is weak. [0.1, unknown]
    weak_overlap: float = 0.3
    # Residual over the typical one above which a cloud is weak. [0.1, unknown]
    weak_residual: float = 2.5
    # Residual over the typical one above which a cloud with little overlap failed. [chosen on: the
    # four objects of 0.1; clouds of other objects have 1.8 and more]
    failed_residual: float = 1.7
    # Mass of the other clouds over a cloud's own on a component above which it is shared.
    # [0.1, unknown]
    min_shared: float = 0.1
    # Probability with which a cloud that does not fit may be called aligned because it has few
    # points. [derived: one cloud in 1,000, as many as the largest scenes have]
    max_chance: float = 1e-3


@dataclass(frozen=True)
class JudgeRecipe:
    """When poses of another program count as wrong."""

    # Share of the scene's radius: a cloud that free refinement moves farther is weak.
    # [0.1, unknown]
    weak_shift: float = 0.01
    # Share of the scene's radius: a cloud that free refinement moves farther failed.
    # [0.1, unknown]
    failed_shift: float = 0.1
    # Standard deviations of its pose: a smaller shift is chance. [0.1, unknown]
    min_sigmas: float = 6.0


@dataclass(frozen=True)
class ExtendRecipe:
    """How a new cloud joins a registration."""

    # Points that try a reach. [0.1, unknown]
    trial_points: int = 400
    # Pose steps with one blur of a trial. [0.1, unknown]
    trial_steps: int = 5
    # Further steps without blur of the trials that are not given up. [0.1, unknown]
    last_steps: int = 5
    # EM iterations with all points and a fixed mixture, from the best trial. [0.1, unknown]
    pose_iterations: int = 3
    # Share of the radius at which these end. [0.1, unknown]
    pose_tolerance: float = 1e-3
    # Iterations with fixed poses after new components were added. [0.1, unknown]
    burn_in: int = 3
    # Smallest variance over that before a cloud was forgotten, below which what is left of a
    # component is no covariance. [0.1, unknown]
    min_left: float = 1e-3
    # Each blur of a trial over the one before. [0.1, unknown]
    narrowing: float = 1 / 3
    # Share of the extent: smaller blurs are none. [0.1, unknown]
    min_blur: float = 0.01


@dataclass(frozen=True)
class AlignRecipe:
    """How start poses become a fit: trials on few points, then repetitions of the last level."""

    # Share of the squared extent: the variance added to every component. [0.1, unknown]
    min_variance: float = 1e-7
    # Share of a point's posterior mass that the kernels may skip: far below what a level resolves.
    # [0.1, unknown]
    kernel_tolerance: float = 1e-6
    # Nats per point and iteration: with more gain the mixture still changes enough to move poses.
    # [0.1, unknown]
    min_gain: float = 0.005
    # Points per component that seed a mixture, at most. [0.1, unknown]
    seeds: int = 256

    # The first phase of a trial. [0.1, unknown]
    first: Level = Level(100, 400, 20, burn_in=0, tolerance=2e-3, spheres=True)
    # Points of all clouds together in the first phase: few clouds bring more of theirs.
    # [0.1, unknown]
    first_points: int = 6000
    # Standard deviations of the first phase's spheres, one for each trial: how far off the start
    # may be. None: no such phase. [0.1, unknown]
    reaches: tuple[float | None, ...] = (None, 0.02, 0.05, 0.15)
    # The levels that every trial goes through. [0.1, unknown]
    trials: tuple[Level, ...] = (
        Level(200, 1000, 12, burn_in=3, tolerance=1e-3),
        Level(400, 1500, 10, burn_in=4, tolerance=5e-4),
    )
    # Nats per point behind the best: a trial is given up. [0.1, unknown]
    max_deficit: float = 0.2
    # Share of the radius: trials that are farther apart have ended in different places.
    # [0.1, unknown]
    distinct: float = 0.035
    # Nats per point behind the best: a trial that ended elsewhere may still be right.
    # [0.1, unknown]
    rival_deficit: float = 0.1
    # The same where no trial agrees with the best. [0.1, unknown]
    lone_rival_deficit: float = 0.15
    # Nats per point by which other start poses must win. [chosen on: benchmarks.parts of 0.1; by
    # less they win by chance, where they were needed it was 0.05 to 0.24]
    min_lead: float = 0.03
    # Matched starts whose relative rotations differ more from the given ones are ignored [rad].
    # [0.1, unknown]
    max_relative_turn: float = math.pi / 3
    # The level at which hypotheses about the start are validated on points left out.
    # [0.1, unknown]
    validation: Level = Level(300, 1000, 15)

    # Independent repetitions of the last level. [0.1, unknown]
    chains: int = 2
    # Re-seedings in a row that must leave the poses unchanged. [0.1, unknown]
    repetitions: int = 2
    # Re-seedings, at most. [0.1, unknown]
    max_repetitions: int = 10
    # Iterations after a re-seeding. [0.1, unknown]
    repeat_iterations: int = 8
    # Times as many points in the end, where clouds have as many. [chosen on: the four objects of
    # 0.1; beyond, nothing was gained]
    more_points: int = 4
    # Standard deviations: poses that differ by less are the same but for the chance of where
    # components lie. [0.1, unknown]
    same_sigmas: float = 4.0

    # The same as `ModelRecipe.slide`, for the softened tangents of the bias estimate.
    # [0.1, unknown]
    bias_slide: float = 1.0

    # Passes of `refine` through the last level, each with new components. [0.1, unknown]
    refine_passes: int = 2

    denoise: DenoiseRecipe = field(default_factory=DenoiseRecipe)
    verdict: VerdictRecipe = field(default_factory=VerdictRecipe)
    judge: JudgeRecipe = field(default_factory=JudgeRecipe)
    extend: ExtendRecipe = field(default_factory=ExtendRecipe)
    model: ModelRecipe = MODEL
    loop: LoopRecipe = LOOP
    localise: LocaliseRecipe = LOCALISE

    @property
    def judge_burn_in(self) -> int:
        """Iterations of `judge`: as many as a repetition of the last level has in all."""
        return Level(1, 1, 1).burn_in + self.repeat_iterations

    @property
    def blurs(self) -> tuple[tuple[float, ...], ...]:
        """For each reach the blurs that narrow it down to none, for a new cloud."""
        return tuple(self._narrowed(reach or 0.0) for reach in self.reaches)

    def _narrowed(self, blur: float) -> tuple[float, ...]:
        steps = []
        while blur >= self.extend.min_blur:
            steps.append(blur)
            blur = round(self.extend.narrowing * blur, 3)
        return (*steps, 0.0)

    @property
    def drawn_levels(self) -> int:
        """Copies of a level's points that are alive at once: chains, a rival's, the last fit."""
        return self.chains + 1 + self.more_points


ALIGN = AlignRecipe()
