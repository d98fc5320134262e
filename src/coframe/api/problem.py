# SPDX-License-Identifier: MIT
"""What `register` works on: checked input, its parts, and what is said of the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align.level import Run
from coframe.align.recipe import AlignRecipe, Level
from coframe.align.verdict import downgrade
from coframe.compute.checkpoint import Checkpoint, digest
from coframe.em import loop
from coframe.em.constraints import Constraints
from coframe.em.loop import Iteration
from coframe.errors import InputError
from coframe.input.alike import OTHER_SIZE, duplicates, refuse_other_units, unit_doubt
from coframe.input.checks import as_poses, as_priors, check_near
from coframe.input.given import Given
from coframe.input.normalise import Normalisation
from coframe.input.options import Options
from coframe.input.prior import PosePrior
from coframe.input.source import cloud_digest
from coframe.result.assemble import Solution
from coframe.result.registration import Registration
from coframe.start import search
from coframe.start.doubt import Doubt
from coframe.start.search import GIVEN, IDENTITY, Start
from coframe.types import Array, Poses

AMBIGUOUS = (
    "the result is ambiguous: different start poses fit about equally well; check the report, or"
    " give start poses or scans with more overlap"
)


@dataclass(frozen=True)
class Reports:
    """Whom a run reports to; see `register`."""

    on_iteration: Callable[[Iteration], bool | None]
    on_pair: Callable[[int, int], object]
    on_progress: Callable[[float], object]
    checkpoint: Checkpoint | None


@dataclass(frozen=True)
class Candidate:
    """A fit of a group of clouds, and what speaks against it."""

    solution: Solution
    contradicted: Sequence[Doubt]  # clouds that left where matching had put them
    ambiguous: bool  # whether other poses fit about as well


@dataclass(frozen=True)
class Problem:
    """Checked input of `register`."""

    given: Given
    options: Options
    fixed: tuple[int, ...]
    priors: Sequence[PosePrior]
    recipe: AlignRecipe
    reports: Reports

    def __post_init__(self) -> None:
        """Refuse wrong priors before any work."""
        origin = np.zeros(self.given.dimension)
        as_priors(self.priors, Normalisation.about(self.given.summaries), origin)

    def fingerprint(self, poses: Any) -> tuple[dict[str, Any], list[tuple[str, str]], str]:
        """All that the result depends on: options, name and digest of each cloud, start poses."""
        points, weights = zip(*self.given.clouds.map(cloud_digest), strict=True)
        clouds = list(zip(self.given.names, points, strict=True))
        known = [np.array(prior.cloud) for prior in self.priors]
        for prior in self.priors:
            about = [] if prior.about is None else [prior.about]
            known += [np.asarray(each) for each in (prior.pose, prior.covariance, *about)]
        start = np.empty(0) if poses is None else np.asarray(poses, float)
        recipe = np.array(repr(self.recipe))
        rest = digest(start, np.array(self.fixed), np.array(weights), recipe, *known)
        return self.options.record(), clouds, rest

    @property
    def bound(self) -> bool:
        """Whether fixed clouds, priors or restricted motion need a common frame.

        Matching knows nothing of it.
        """
        return bool(self.fixed or self.priors) or self.options.motion != "rigid"

    def start(self, poses: Any) -> Start:
        """Start poses: those given, identities, or those found by matching."""
        M, D = len(self.given.names), self.given.dimension
        everything = (tuple(range(M)),)
        if poses is not None:
            return Start((as_poses(poses, M, D),), everything, GIVEN, 0)
        identity = Start((geometry.identity(M, D),), everything, IDENTITY, 0)
        if self.options.start == "identity":
            return identity
        if self.bound:
            if self.options.start == "match":
                raise InputError(
                    'start: expected "identity" beside fixed clouds, priors or restricted motion,'
                    ' found "match"; leave start out, or leave these out'
                )
            return identity
        refuse_other_units(self.given.summaries, self.given.names)
        return self._match(try_identity=self.options.start == "auto")

    def match_beside(self, start: Start) -> tuple[Start, list[Poses]]:
        """Matched poses that turn the clouds little against given ones, and what matching found.

        In the common frame of the given poses; none where nothing near was found.
        """
        if self.bound or self.options.start == "identity":
            return start, []
        found = self._match(try_identity=False)
        given = start.poses[0]
        near = [
            given[0] @ geometry.inverse(poses[0]) @ poses
            for poses in found.poses
            if len(found.groups) == 1
            and _relative_turn(poses, given) < self.recipe.max_relative_turn
        ]
        if not near:
            return start, []
        return replace(found, poses=start.poses, source=GIVEN, doubts=()), near

    def _match(self, *, try_identity: bool) -> Start:
        """Start poses from the clouds' own shapes; `try_identity`: they may be in place already."""
        return search.find_start(
            self.given.clouds,
            self.given.summaries,
            rng=np.random.default_rng(self.options.seed),
            try_identity=try_identity,
            on_pair=self.reports.on_pair,
            checkpoint=self.reports.checkpoint,
        )

    def hypotheses(self, start: Start, group: Sequence[int]) -> "list[Part]":
        """The problem of a group of clouds, once for each hypothesis about its start poses."""
        M, members = len(self.given.names), list(group)
        before = sum(len(other) for other in start.groups[: start.groups.index(tuple(group))])

        def report(share: float) -> None:
            self.reports.on_progress((before + share * len(group)) / M)

        progress = self.reports.on_progress if len(group) == M else report
        summaries = [self.given.summaries[j] for j in group]
        frames = Normalisation.about(summaries)
        return [Part(self, group, poses[members], frames, progress) for poses in start.poses]

    def annotate(
        self, result: Registration, start: Start, candidates: Sequence[Candidate]
    ) -> Registration:
        """The result with what its start says of it: no cloud in doubt is called aligned."""
        groups = start.groups
        lost = [doubt for each in candidates for doubt in each.contradicted]
        doubts = tuple({doubt.cloud: doubt for doubt in [*lost, *start.doubts]}.values())
        verdicts = list(result.verdicts)
        warnings = []
        if len(groups) > 1:
            for number, group in enumerate(groups, 1):
                for j in group if len(group) > 1 else ():
                    reason = f"in group {number} of {len(groups)}: {verdicts[j].reason}"
                    verdicts[j] = replace(verdicts[j], reason=reason)
            lists = "; ".join(", ".join(result.names[j] for j in group) for group in groups)
            warnings.append(
                f"the clouds fall into {len(groups)} groups that nothing connects, each with a"
                f" frame of its own: {lists}; add scans that overlap both, or give start poses"
            )
        if doubts:
            listed = ", ".join(result.names[doubt.cloud] for doubt in doubts)
            warnings.append(
                f"the start is ambiguous, and the poses of these clouds may be wrong: {listed};"
                " check them in the report, or give start poses"
            )
        if any(each.ambiguous for each in candidates):
            warnings.append(AMBIGUOUS)
        warnings += duplicates(self.given.loaded, self.given.summaries, result.names)
        unsure = [j for j, verdict in enumerate(verdicts) if verdict.verdict != "aligned"]
        sizes = [each.extent for each in self.given.summaries]
        units = unit_doubt(sizes, result.names, least=OTHER_SIZE, suspects=unsure)
        warnings += [] if units is None else [units]
        return replace(
            result,
            verdicts=downgrade(verdicts, {doubt.cloud: doubt.reason for doubt in doubts}),
            groups=groups,
            start=start.source,
            pairs_tried=start.pairs,
            doubts=doubts,
            warnings=tuple(warnings),
            options=self.options.record(),
        )


@dataclass(frozen=True)
class Part:
    """The problem of a group of clouds, with one hypothesis about its start poses."""

    problem: Problem
    group: Sequence[int]
    poses: Poses
    frames: Normalisation
    on_progress: Callable[[float], object]

    @cached_property
    def origin(self) -> Float[Array, " D"]:
        """The user's point that becomes the internal common origin."""
        return self.frames.middle(self.poses)

    @property
    def start(self) -> Poses:
        """The start poses in internal coordinates."""
        names = [self.problem.given.names[j] for j in self.group]
        return check_near(self.enter(self.poses), names)

    def enter(self, poses: Poses) -> Poses:
        """Poses of the user in internal coordinates."""
        return self.frames.enter_poses(poses, self.origin)

    def run(self, attempt: int = 0) -> Run:
        """What the levels of a registration share; another attempt draws other points."""
        problem, options = self.problem, self.problem.options
        given = problem.given
        whole = len(self.group) == len(given.names)
        priors = as_priors(problem.priors, self.frames, self.origin)

        def in_user_units(step: Iteration) -> bool | None:
            return problem.reports.on_iteration(self.frames.leave_iteration(step, self.origin))

        silent = problem.reports.on_iteration is loop.carry_on
        return Run(
            given.clouds if whole else given.clouds.subset(self.group),
            [given.counts[j] for j in self.group],
            self.frames,
            Level(
                options.components, options.points, options.iterations, tolerance=options.tolerance
            ),
            np.random.default_rng([options.seed, attempt] if attempt else options.seed),
            threads=options.threads,
            constraints=Constraints(problem.fixed, options.motion, priors),
            on_iteration=loop.carry_on if silent else in_user_units,
            on_progress=self.on_progress,
            checkpoint=problem.reports.checkpoint,
            recipe=problem.recipe,
        )


def _relative_turn(a: Poses, b: Poses) -> float:
    """The largest angle [rad] by which relative rotations differ between `a` and `b`."""
    R = geometry.rotation(a) @ np.swapaxes(geometry.rotation(b), 1, 2)
    return max(float(geometry.angle(np.swapaxes(R, 1, 2) @ each).max()) for each in R)
