# SPDX-License-Identifier: MIT
"""What `register` works on: checked input, its parts, and what is said of the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align import schedule
from coframe.align.evidence import aligned_frame, better
from coframe.align.level import Run
from coframe.align.recipe import AlignRecipe, Level
from coframe.align.schedule import Trials
from coframe.align.verdict import EMPTY
from coframe.api.limits import departures, enforce
from coframe.compute.checkpoint import Checkpoint, digest
from coframe.em import loop
from coframe.em.constraints import Constraints
from coframe.em.loop import Iteration
from coframe.errors import InputError
from coframe.input.alike import OTHER_SIZE, duplicates, refuse_other_units, unit_doubt
from coframe.input.checks import as_poses, as_priors, check_near
from coframe.input.given import Given
from coframe.input.known import NOTHING, Known
from coframe.input.normalise import RADIUS, Normalisation
from coframe.input.options import Options
from coframe.input.prior import PosePrior
from coframe.input.source import cloud_digest
from coframe.input.targets import NO_SURVEY, Survey
from coframe.result.assemble import CHANCE, RIVAL, Solution
from coframe.result.registration import Registration
from coframe.start import mirror, search, turntable
from coframe.start.doubt import Doubt
from coframe.start.search import GIVEN, IDENTITY, TARGETS, UNMATCHED, Start
from coframe.types import Array, Poses

AMBIGUOUS = "the result is ambiguous: different start poses fit about equally well"

# What is said of a cloud that leaves its given pose: one of the user, and one inside a file.
LEFT = (
    "it ended far from the pose that was given, and shares too little surface with others to show"
    " that it belongs there; if the given pose is right, fix it (`fixed`) or say how certain it is"
    " (`priors`)",
    "it ended far from the pose inside its file, and shares too little surface with others to show"
    " that it belongs there; check it in the report, or give its pose",
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


@dataclass(frozen=True)
class Problem:
    """Checked input of `register`."""

    given: Given
    options: Options
    fixed: tuple[int, ...]
    priors: Sequence[PosePrior]
    recipe: AlignRecipe
    reports: Reports
    survey: Survey = NO_SURVEY
    known: Known = NOTHING
    inside: bool = False  # whether the start poses are those inside the files

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
        recipe = np.array(repr((self.recipe, self.known)))
        rest = digest(
            start, np.array(self.fixed), np.array(weights), recipe, *known, *self.survey.arrays()
        )
        return self.options.record(), clouds, rest

    @property
    def bound(self) -> bool:
        """Whether fixed clouds, priors, restricted motion or limits need a common frame.

        Matching knows nothing of it.
        """
        known = bool(self.fixed or self.priors or self.known.level) or self.known.limited
        return known or self.options.motion != "rigid"

    @property
    def anchors(self) -> tuple[int, ...]:
        """Clouds that do not move.

        Where the vertical is all that is known of the common frame, the first levelled cloud is
        one of them.
        """
        located = self.fixed or self.priors or self.survey.points
        return self.fixed if located else self.known.level[:1]

    def start(self, poses: Any) -> Start:
        """Start poses: those given, identities, or those found by matching."""
        M, D = len(self.given.names), self.given.dimension
        everything = (tuple(range(M)),)
        if poses is not None:
            start = Start((as_poses(poses, M, D),), everything, GIVEN, 0)
            return self._rematched(start) if self.known.rematch else start
        if self.known.turntable is not None:
            if self.bound:
                raise InputError(
                    "turntable: expected no fixed clouds, priors, restricted motion or limits"
                    " beside it, found some; leave one of them out"
                )
            return turntable.find_start(
                self.given.clouds,
                self.given.summaries,
                self.known.turntable,
                on_pair=self.reports.on_pair,
                checkpoint=self.reports.checkpoint,
            )
        if self.survey.points and not self.bound and self.options.start == "auto":
            known = self.survey.start(M, D, self.options.motion)
            if known is not None:
                return Start((known,), everything, TARGETS, 0)
        identity = Start((geometry.identity(M, D),), everything, IDENTITY, 0)
        if self.options.start == "identity":
            return identity
        if self.bound:
            if self.options.start == "match":
                raise InputError(
                    'start: expected "identity" beside fixed clouds, priors, restricted motion or'
                    ' limits, found "match"; leave start out, or leave these out'
                )
            return identity
        refuse_other_units(self.given.summaries, self.given.names)
        return self._match(try_identity=self.options.start == "auto")

    def reference(self, start: Start) -> Start:
        """The start in the frame of the control points; groups that are in it become one.

        Poses beside fixed clouds and priors are in it already.
        """
        motion = self.options.motion
        known = [group for group in start.groups if self.survey.settles(group, motion)]
        if self.fixed or self.priors or not known:
            return start
        poses = list(start.poses)
        for group in known:
            poses = [self.survey.georeferenced(each, group, motion) for each in poses]
        whole = tuple(sorted(j for group in known for j in group))
        rest = [group for group in start.groups if group not in known]
        doubts = [d for d in start.doubts if d.reason != UNMATCHED or d.cloud not in whole]
        groups = (whole, *sorted(rest, key=len, reverse=True))
        return replace(start, poses=tuple(poses), groups=groups, doubts=tuple(doubts))

    def match_beside(self, start: Start, part: "Part", found: Trials) -> tuple[Start, list[Poses]]:
        """Other candidates, from matching, where given poses leave doubt: of all clouds, and of
        those alone that contradict the others.

        In internal coordinates and in the common frame of the best trial.
        """
        if self.bound or self.options.start == "identity":
            return start, []
        matched = self._match(try_identity=False)
        best, members = found.best.poses, list(part.group)
        candidates = []
        for poses in matched.poses:
            whole = part.enter(poses[members])
            near = aligned_frame(whole, best) @ whole
            if len(matched.groups) == 1 and self._near(near, best):
                candidates.append(near)
            for group in matched.groups:
                inside = [i for i, j in enumerate(members) if j in group]
                moved = [i for i in inside if i in found.suspects]
                sure = [i for i in inside if i not in found.suspects]
                if moved and sure:
                    mixed = best.copy()
                    mixed[moved] = aligned_frame(whole[sure], best[sure]) @ whole[moved]
                    candidates.append(mixed)
        return replace(start, pairs=start.pairs + matched.pairs), candidates

    def _near(self, one: Poses, other: Poses) -> bool:
        """Whether two sets of poses are one place, roughly known: in another, they fit by chance.

        A cloud's pose may be off by the largest reach, in either of them; so may its neighbour's,
        against which it turns.
        """
        shifts = np.linalg.norm(geometry.translation(one) - geometry.translation(other), axis=1)
        turn, reach = relative_turn(one, other) * RADIUS, self.recipe.reach
        return bool(turn < 4 * reach and shifts.max() < 2 * reach)

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

    def _rematched(self, start: Start) -> Start:
        """The start with clouds where matching puts them among the others, which stay."""
        matched = self._match(try_identity=False)
        frames = Normalisation.about(self.given.summaries)
        again = set(self.known.rematch)
        stay = [j for j in range(len(self.given.names)) if j not in again]
        origin = frames.middle(start.poses[0])
        given, whole = (frames.enter_poses(each.poses[0], origin) for each in (start, matched))
        poses, lost = given.copy(), again.copy()
        for group in matched.groups:
            moved = sorted(again.intersection(group))
            sure = [j for j in stay if j in group]
            if moved and sure:
                poses[moved] = aligned_frame(whole[sure], given[sure]) @ whole[moved]
                lost -= set(moved)
        doubts = [doubt for doubt in matched.doubts if doubt.cloud in again - lost]
        doubts += [Doubt(j, UNMATCHED) for j in sorted(lost)]
        everywhere = start.poses[0].copy()
        everywhere[sorted(again)] = frames.leave_poses(poses, origin)[sorted(again)]
        return replace(start, poses=(everywhere,), pairs=matched.pairs, doubts=tuple(doubts))

    def choose(self, start: Start) -> Start:
        """Of a start and its rivals, the one whose clouds contradict each other least.

        A rival must be clearly better.
        """
        every = [start, *start.rivals]
        parts = [self.part(each, each.groups[0]) for each in every]
        found = [
            dict(zip(part.group, schedule.check_start(part.run(), part.starts[0]), strict=True))
            for part in parts
        ]
        best = 0
        for k in range(1, len(every)):
            common = sorted(found[best].keys() & found[k].keys())
            one, other = ([each[j] for j in common] for each in (found[k], found[best]))
            if common and better(one, other, self.recipe.evidence):
                best = k
        return every[best]

    def part(self, start: Start, group: Sequence[int]) -> "Part":
        """The problem of a group of clouds."""
        M, members = len(self.given.names), list(group)
        before = sum(len(other) for other in start.groups[: start.groups.index(tuple(group))])

        def report(share: float) -> None:
            self.reports.on_progress((before + share * len(group)) / M)

        progress = self.reports.on_progress if len(group) == M else report
        frames = Normalisation.about([self.given.summaries[j] for j in group])
        return Part(self, group, [poses[members] for poses in start.poses], frames, progress)

    def doubts(self, start: Start, candidates: Sequence[Candidate]) -> list[Doubt]:
        """What a start says against itself or against the result: of each cloud the last word."""
        lost = [doubt for each in candidates for doubt in each.contradicted]
        if start.source in (GIVEN, turntable.TURNTABLE):
            poses = candidates[0].solution.poses
            left = self._left(start.poses[0], poses)
            lost += [Doubt(j, LEFT[self.inside], answerable=True, by_chance=True) for j, *_ in left]
        return list({doubt.cloud: doubt for doubt in [*lost, *start.doubts]}.values())

    def annotate(
        self, result: Registration, start: Start, candidates: Sequence[Candidate]
    ) -> Registration:
        """The result with warnings, and what is known of its start."""
        groups = start.groups
        reasons = {(doubt.cloud, doubt.reason) for doubt in self.doubts(start, candidates)}
        doubts = [each for each in result.doubts if (each.cloud, each.reason) in reasons]
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
        rivals = [doubt for doubt in result.doubts if doubt.reason == RIVAL]
        few = [doubt for doubt in result.doubts if doubt.reason == CHANCE and doubt not in doubts]
        if few:
            listed = ", ".join(result.names[doubt.cloud] for doubt in few)
            warnings.append(
                "these clouds share so little surface with the others that it could meet by chance:"
                f" {listed}; give start poses, or add scans that overlap them more"
            )
        free = [doubt for doubt in result.doubts if doubt not in [*doubts, *rivals, *few]]
        if free:
            listed = ", ".join(result.names[doubt.cloud] for doubt in free)
            warnings.append(
                "the data do not decide where these clouds lie, they fit as well elsewhere:"
                f" {listed}; give start poses, or add scans that overlap them more"
            )
        if start.source in (GIVEN, turntable.TURNTABLE):
            listed = ", ".join(
                f"{result.names[j]} by {np.degrees(turn):.3g} degrees and {shift:.3g}"
                for j, turn, shift in self._left(start.poses[0], result.poses)
            )
            if listed and self.inside:
                warnings.append(
                    f"these clouds ended far from the poses inside their files: {listed}; check"
                    " them in the report, or give their poses (`poses`)"
                )
            elif listed:
                warnings.append(
                    f"these clouds ended far from the poses that were given: {listed}; if the given"
                    " poses are right, fix them (`fixed`) or say how certain they are (`priors`)"
                )
        if any(each.solution.rivals for each in candidates):
            moved = {j for a in result.alternatives if a.reason == RIVAL for j in a.clouds}
            listed = ", ".join(result.names[j] for j in sorted(moved))
            named = f": {listed}" if listed else ""
            warnings.append(
                f"{AMBIGUOUS}{named}; check the clouds in the report, or give start poses or"
                " scans with more overlap"
            )
        warnings += result.warnings
        warnings += duplicates(self.given.loaded, self.given.summaries, result.names)
        unsure = [j for j, verdict in enumerate(verdicts) if verdict.verdict != "aligned"]
        for j in mirror.mirrored(self.given.loaded, self.given.summaries, unsure):
            warnings.append(
                f"{result.names[j]} does not fit, but its mirror image does; check whether an axis"
                " has the wrong sign or the program that wrote it a left-handed frame, and mirror"
                " it back"
            )
        sizes = [each.extent for each in self.given.summaries]
        units = unit_doubt(sizes, result.names, least=OTHER_SIZE, suspects=unsure)
        warnings += [] if units is None else [units]
        return replace(
            result,
            verdicts=tuple(verdicts),
            groups=groups,
            start=start.source,
            pairs_tried=start.pairs,
            warnings=tuple(warnings),
            options=self.options.record(),
        )

    def limited(self, result: Registration, start: Start) -> Registration:
        """The result, in which clouds that ended farther away than allowed have failed."""
        if not self.known.limited:
            return result
        anchored = bool(self.anchors or self.priors or self.survey.points)
        return enforce(result, start.poses[0], self.known, self.given.summaries, anchored=anchored)

    def _left(self, given: Poses, found: Poses) -> list[tuple[int, float, float]]:
        """Clouds that ended far from the poses given, with the angle [rad] and the distance.

        Farther than twice the largest reach of the trials. A common motion of all clouds does not
        count, nor do clouds whose given pose was not used.
        """
        turns, shifts = departures(given, found, self.given.summaries)
        extents = np.maximum([each.extent for each in self.given.summaries], EMPTY)
        steps = turns * RADIUS + shifts / extents
        far = np.flatnonzero(steps > 2 * self.recipe.reach).tolist()
        far = [j for j in far if j not in self.known.rematch]
        return [(j, float(turns[j]), float(shifts[j])) for j in far]


@dataclass(frozen=True)
class Part:
    """The problem of a group of clouds, with hypotheses about its start poses, best first."""

    problem: Problem
    group: Sequence[int]
    poses: Sequence[Poses]
    frames: Normalisation
    on_progress: Callable[[float], object]

    @cached_property
    def origin(self) -> Float[Array, " D"]:
        """The user's point that becomes the internal common origin."""
        return self.frames.middle(self.poses[0])

    @property
    def starts(self) -> list[Poses]:
        """The start poses in internal coordinates."""
        names = [self.problem.given.names[j] for j in self.group]
        return [check_near(self.enter(poses), names) for poses in self.poses]

    def enter(self, poses: Poses) -> Poses:
        """Poses of the user in internal coordinates."""
        return self.frames.enter_poses(poses, self.origin)

    def run(self, attempt: int = 0) -> Run:
        """What the levels of a registration share; another attempt draws other points."""
        problem, options = self.problem, self.problem.options
        given = problem.given
        clouds, counts = given.drawn
        whole = len(self.group) == len(given.names)
        priors = as_priors(problem.priors, self.frames, self.origin)
        targets = problem.survey.internal(self.frames, self.origin, self.group, options.motion)
        tied = tuple(target for target in targets if target is not None)

        def in_user_units(step: Iteration) -> bool | None:
            return problem.reports.on_iteration(self.frames.leave_iteration(step, self.origin))

        silent = problem.reports.on_iteration is loop.carry_on
        return Run(
            clouds if whole else clouds.subset(self.group),
            [counts[j] for j in self.group],
            self.frames,
            Level(
                options.components, options.points, options.iterations, tolerance=options.tolerance
            ),
            np.random.default_rng([options.seed, attempt] if attempt else options.seed),
            threads=options.threads,
            constraints=Constraints(
                problem.anchors, options.motion, priors, tied, problem.known.level
            ),
            on_iteration=loop.carry_on if silent else in_user_units,
            on_progress=self.on_progress,
            checkpoint=problem.reports.checkpoint,
            recipe=problem.recipe,
        )


def relative_turn(a: Poses, b: Poses) -> float:
    """The largest angle [rad] by which relative rotations differ between `a` and `b`."""
    R = geometry.rotation(a) @ np.swapaxes(geometry.rotation(b), 1, 2)
    return max(float(geometry.angle(np.swapaxes(R, 1, 2) @ each).max()) for each in R)
