# SPDX-License-Identifier: MIT
"""Every tuned number of the alignment, with its unit, what it does and where it comes from.

Lengths are shares of the largest cloud's extent, which normalisation makes one. Origins: [paper],
[derived: how], [chosen on: what, and what it changed], [0.1, varied on: what, and what others
change].
"""

import math
from dataclasses import dataclass, field, replace

from coframe.em.recipe import LOCALISE, MODEL, LocaliseRecipe, ModelRecipe
from coframe.input.options import DEFAULTS


@dataclass(frozen=True)
class Level:
    """One size of mixture: how many components on how many points, and when EM on it ends."""

    components: int
    points: int  # of each cloud, at most
    iterations: int
    # Iterations with fixed poses after seeding, since freshly seeded components mix surfaces and
    # would bias the first pose step. [0.1, varied on proving/tune, 2026-11-18: 6 nothing]
    burn_in: int = 4
    # Share of the scene's radius: poses that move less have settled.
    tolerance: float = DEFAULTS.tolerance
    # Spheres with priors common to all clouds, which attract from far away; else ellipsoids, and
    # each cloud's own priors.
    spheres: bool = False


@dataclass(frozen=True)
class DenoiseRecipe:
    """When a cloud counts as noisy, and over how many neighbours its noise is averaged."""

    # Points of a patch. [0.1, varied on proving/tune, 2026-11-18: 30 and 13 nothing]
    neighbours: int = 20
    # Thickness over width of a patch above which it counts as thick. [chosen on: the four objects
    # of 0.1; 0.1 to 0.3 on clean scans, above 0.5 where noise is as large as the spacing]
    min_thickness: float = 0.35
    # Growth of the thickness from the inner points to the whole patch below which noise, which is
    # thick at once, made it, and not curvature, which grows with size. [chosen on: lucy and
    # armadillo with noise of 0 to 1.2 % of their size; 1.9 to 2.3 on clean scans, 1.2 to 1.7 on
    # noisy ones]
    max_growth: float = 1.7

    @property
    def inner(self) -> int:
        """Nearest points of a patch, whose thickness is compared with that of the whole."""
        return MODEL.min_points


@dataclass(frozen=True)
class SurfaceRecipe:
    """The last step: all poses against the surface that the clouds share (see `surface`)."""

    # Patches that a point belongs to, about. [proving/tune, 2026-11-18: 3 against 8
    # worse by 10 %; 6 is for speed]
    coverage: int = 6
    # Points of all clouds that a normal is made of, over those of `DenoiseRecipe`, where clouds are
    # noisy. [proving/tune, 2026-11-18, patches of 40: 16 % gained without, 21 % with]
    noisy_pool: int = 2
    # Agreement of the normals of neighbours, 1 where none face away from each other: with less, a
    # view looks all around, or views see both sides of a sheet. [chosen on proving/tune,
    # 2026-11-18: 0.94 to 0.97 of scans all around; a scan with more is left as it is]
    min_agreement: float = 0.98
    # Thickness over width of a cloud's own patches above which it is no surface. [chosen on
    # proving/tune, 2026-11-18: at most 0.67 on noisy bodies]
    max_flatness: float = 0.7


@dataclass(frozen=True)
class VerdictRecipe:
    """When a cloud is called aligned, weak or failed."""

    # Overlap below which a cloud is weak, and failed below half of it; share of points that the
    # model explains below which a cloud failed. [chosen on: the four objects of 0.1; clouds of
    # other objects reach an overlap of 0.1 by chance, views at the edge of a scene have 0.6]
    weak_overlap: float = 0.3
    # Residual over the typical one above which a cloud is weak. [0.1, varied on proving/tune,
    # 2026-11-18: 3.75 and 1.67 nothing]
    weak_residual: float = 2.5
    # Mass of the other clouds over a cloud's own on a component above which it is shared. [0.1,
    # varied on proving/tune, 2026-11-18: 0.15 and 0.0667 nothing]
    min_shared: float = 0.1
    # Probability with which a cloud that does not fit may be called aligned because it has few
    # points. [derived: one cloud in 1,000, as many as the largest scenes have]
    max_chance: float = 1e-3
    # Share of the scene's radius: a cloud that free refinement of given poses moves farther is
    # weak. [0.1, varied on proving/tune, 2026-11-18: 0.015 and 0.00667 not reached]
    weak_shift: float = 0.01

    @property
    def failed_overlap(self) -> float:
        """Overlap below which a cloud failed."""
        return self.weak_overlap / 2

    @property
    def failed_residual(self) -> float:
        """Residual over the typical one above which a cloud with little overlap failed.

        Clouds of other objects have 1.8 and more.
        """
        return math.sqrt(self.weak_residual)


@dataclass(frozen=True)
class EvidenceRecipe:
    """When patches of two clouds agree, and when one hypothesis clearly beats another."""

    # Thickness squared over width squared of a patch below which it is flat; the same for width
    # over length: below, it is a line. [sketch of 2026-11: untuned]
    flat: float = 0.05
    # Quantile of the heights of a cloud's one half over the other, below which they agree.
    # [derived: 1 in 20 by chance]
    level: float = 0.95
    # Share of the spacing of the points: what heights may differ on surfaces without noise. [chosen
    # on proving/tune, 2026-11-18: true poses have at most 1 in 100 contradictions in clean rooms]
    floor: float = 0.1
    # Cosine between a patch's normal and the middle of its cloud below which it is not known which
    # way it faces. [chosen on proving/tune, 2026-11-18: stairs at true poses]
    sideways: float = 0.1
    # Standard deviations by which a hypothesis wins clearly. [derived: 1 in 740 by chance]
    clear: float = 3.0
    # Standard deviations below which a pose does not have more contradictions than another: of many
    # poses that are tried the best one is taken. [chosen on proving/tune, 2026-11-18: true poses of
    # objects and streets have 2.7 and more, corridors, facades and halls 1.5 and less]
    free: float = 2.0
    # Share of a cloud's extent: moves that are smaller are not an error. [derived: the error of a
    # pose that proving/score.py calls wrong]
    distinct: float = 0.05
    # Share of contradictions above the typical one, above which a cloud is weak. [chosen on
    # proving/tune, 2026-11-18: true poses of rooms and streets have at most 0.04, of thin bodies
    # about as many in all clouds]
    max_share: float = 0.1

    @property
    def sigmas(self) -> float:
        """Standard deviations of both patches' scatter: beyond, heights contradict each other."""
        return self.clear

    @property
    def along(self) -> float:
        """Squared cosine between the normals of two patches of one surface, at least.

        45 degrees. Nearer to perpendicular, they are the two faces of an edge: one face ends where
        the other begins, and there is no height of one over the other.
        """
        return 0.5

    @property
    def farthest(self) -> float:
        """Share of a cloud's extent: the largest move that is tried.

        Of a slab half of the territory is left after half of its extent.
        """
        return 0.5

    def neighbours(self, dimension: int) -> int:
        """Points of a patch: four for each of its parameters, D of a plane."""
        return 4 * dimension


@dataclass(frozen=True)
class AlignRecipe:
    """How start poses become a fit: trials on few points, then repetitions of the last level."""

    # Share of the squared extent: the variance added to every component. [0.1, varied on
    # proving/tune, 2026-11-18: 1.5e-07 and 6.67e-08 within chance]
    min_variance: float = 1e-7
    # Nats per point and iteration: with more gain the mixture still changes enough to move poses.
    # [0.1, varied on proving/tune, 2026-11-18: 0.0075 and 0.00333 nothing]
    min_gain: float = 0.005

    # Levels of a trial, each with half the components and points of the next. [0.1, varied on
    # proving/tune, 2026-11-18: 4 worse, 2 within chance]
    trial_levels: int = 3
    # The largest reach: standard deviation of the spheres of a trial's first level, which says how
    # far off the start may be. [0.1, varied on proving/tune, 2026-11-18: 0.225 within chance, 0.1
    # better]
    reach: float = 0.15
    # Ratio of a reach to the next smaller one. [0.1, varied on proving/tune, 2026-11-18: 4.5 and 2
    # nothing]
    reach_ratio: float = 3.0
    # Reaches that are tried, beside a trial without a level of spheres. [0.1, varied on
    # proving/tune, 2026-11-18: 4 less accurate, 2 worse]
    reach_count: int = 3

    # Independent repetitions of the last level; re-seedings in a row that must leave the poses of
    # each unchanged; passes of `refine`, each with new components. [0.1, varied on proving/tune,
    # 2026-11-18: 3 nothing, 1 within chance]
    repetitions: int = 2
    # Re-seedings, at most. [0.1, varied on proving/tune, 2026-11-18: 15 and 7 nothing]
    max_repetitions: int = 10
    # Times as many points in the end, where clouds have as many. [chosen on: the four objects of
    # 0.1; beyond, nothing was gained]
    more_points: int = 4
    # Standard deviations: poses that differ by less are the same but for the chance of where
    # components lie. [0.1, varied on proving/tune, 2026-11-18: 6 better, 2.67 nothing]
    same_sigmas: float = 4.0

    denoise: DenoiseRecipe = field(default_factory=DenoiseRecipe)
    surface: SurfaceRecipe = field(default_factory=SurfaceRecipe)
    verdict: VerdictRecipe = field(default_factory=VerdictRecipe)
    evidence: EvidenceRecipe = field(default_factory=EvidenceRecipe)
    model: ModelRecipe = MODEL
    localise: LocaliseRecipe = LOCALISE

    @property
    def distinct(self) -> float:
        """Share of the radius: poses that are farther apart have ended in different places.

        The radius is half of the extent: half of what counts as an error, as the truth may lie
        between the two.
        """
        return self.evidence.distinct

    @property
    def reaches(self) -> tuple[float | None, ...]:
        """One for each trial, smallest first; None: no first level of spheres."""
        smaller = range(self.reach_count - 1, -1, -1)
        return (None, *(self.reach / self.reach_ratio**steps for steps in smaller))

    @property
    def gates(self) -> tuple[float, float]:
        """How far apart surfaces may lie at the start: the largest reach, and the next smaller."""
        return self.reach / self.reach_ratio, self.reach

    @property
    def blurs(self) -> tuple[tuple[float, ...], ...]:
        """For each reach the blurs that narrow it down to none, for a new cloud."""
        reaches = [reach or 0.0 for reach in self.reaches]
        return tuple(tuple(reaches[last::-1]) for last in range(len(reaches)))

    def coarse(self, halvings: int) -> Level:
        """The default last level with its components and points halved so often.

        Poses settle as much more coarsely as a level has fewer components.
        """
        share = 2**halvings
        return Level(
            DEFAULTS.components // share,
            DEFAULTS.points // share,
            DEFAULTS.iterations,
            tolerance=share * DEFAULTS.tolerance,
        )

    @property
    def first(self) -> Level:
        """The first level of a trial, of spheres."""
        return replace(self.coarse(self.trial_levels), burn_in=0, spheres=True)

    @property
    def first_points(self) -> int:
        """Points of all clouds together in the first level: few clouds bring more of theirs."""
        return 2 * DEFAULTS.points

    @property
    def trials(self) -> tuple[Level, ...]:
        """The other levels of a trial."""
        return tuple(self.coarse(halvings) for halvings in range(self.trial_levels - 1, 0, -1))

    @property
    def repeat_iterations(self) -> int:
        """Iterations after a re-seeding, from poses that have nearly settled."""
        return DEFAULTS.iterations // 2

    @property
    def judge_burn_in(self) -> int:
        """Iterations of `judge`: as many as a repetition of the last level has in all."""
        return Level(1, 1, 1).burn_in + self.repeat_iterations

    @property
    def drawn_levels(self) -> int:
        """Copies of a level's points that are alive at once: chains, a rival's, the last fit."""
        return self.repetitions + 1 + self.more_points


ALIGN = AlignRecipe()
