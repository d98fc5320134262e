# SPDX-License-Identifier: MIT
"""From fits in internal coordinates to the user's result: the one path of all methods.

`register`, `refine`, `judge` and `paper.batch` differ in how they fit; what follows is the same:
poses, mixture and covariances in the user's units, a verdict per cloud, a label per point.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align import alternatives, chance, known_poses, planes
from coframe.align.alternatives import Alternative
from coframe.align.covariance import error_covariance
from coframe.align.evidence import Surface, aligned_frame, draw_surfaces
from coframe.align.freedom import Freedom, Review, review
from coframe.align.recipe import ALIGN, AlignRecipe
from coframe.align.verdict import (
    contradictions,
    divisions,
    downgrade,
    freedoms,
    twins,
    unsupported,
    verdicts,
)
from coframe.em.constraints import UNCONSTRAINED, Constraints
from coframe.em.loop import Fit
from coframe.em.mixture import Mixture
from coframe.input.given import Given
from coframe.input.normalise import RADIUS, Normalisation
from coframe.input.options import DEFAULTS
from coframe.input.source import InMemory, Source
from coframe.result import labels, merged
from coframe.result.groups import side_by_side
from coframe.result.labels import CloudView, PointLabels
from coframe.result.registration import Registration
from coframe.start.doubt import Doubt
from coframe.types import Array, Pose, Poses

# Why clouds are in doubt which another fit places elsewhere.
RIVAL = "another fit places it elsewhere and agrees about as well: the data do not decide"

# Why clouds are in doubt that were matched and share too little.
CHANCE = (
    "what it shares with the other clouds could meet like this by chance: the data do not decide"
)

# What is said of poses that are known, and what to do then.
KNOWLEDGE = "poses that were given as known are in doubt"
CHECK = "check these poses, or leave one of them free"

# What is said where evidence is silent.
UNCHECKED = (
    "these clouds share too little surface to check by it where they lie, and their verdicts rest"
    " on the likelihood of the model alone"
)


@dataclass(frozen=True)
class Solution:
    """A fit of a group of clouds, and how its coordinates relate to the user's."""

    fit: Fit
    frames: Normalisation
    origin: Float[Array, " D"]  # the user's point that is the internal common origin
    group: Sequence[int]  # the clouds of the fit, by their numbers
    constraints: Constraints = UNCONSTRAINED
    rivals: Sequence[Poses] = ()  # of fits that ended elsewhere and are not clearly worse
    patches: Sequence[Surface] = ()  # of the clouds, where they are known
    given: Poses | None = None  # the user's start poses, in internal coordinates
    rematched: Collection[int] = ()  # clouds of the fit whose given poses were left aside

    @property
    def poses(self) -> Poses:
        """In the user's coordinates."""
        return self.frames.leave_poses(self.fit.poses, self.origin)

    def views(self, first: int) -> list[CloudView]:
        """How the fit sees its clouds; its first component has number `first` in the result."""
        visibility = self.fit.mixture.visibility
        rows = [None] * len(self.group) if visibility is None else list(visibility[:, None])
        each = zip(self.frames.each(), self.fit.poses, rows, strict=True)
        return [CloudView(*view, first) for view in each]

    def registration(
        self, given: Given, recipe: AlignRecipe = ALIGN, checked: Sequence[bool] | None = None
    ) -> Registration:
        """The result without its points. The fit's moments must be full."""
        fit, frames, origin = self.fit, self.frames, self.origin
        covariance = fit.covariance
        if covariance is None:
            covariance = error_covariance(
                fit.moments, fit.mixture, fit.poses, self.constraints, fit.independent, recipe
            )
        mixture = frames.leave_mixture(fit.mixture, origin)
        moments = frames.leave_moments(fit.moments, origin)
        return Registration(
            clouds=(),
            names=tuple(given.names[j] for j in self.group),
            poses=self.poses,
            mixture=mixture,
            moments=moments,
            outlier_probability=(),
            labels=(),
            verdicts=verdicts(moments, mixture, recipe.verdict, checked),
            pose_covariance=frames.leave_covariance(covariance),
            history=tuple(frames.leave_iteration(step, origin) for step in fit.history),
            status=fit.status,
            groups=(tuple(range(len(self.group))),),
        )

    def surfaces(self, given: Given, points: int, recipe: AlignRecipe = ALIGN) -> Sequence[Surface]:
        """Patches of the clouds, of about so many points of each."""
        clouds, counts = given.drawn
        return self.patches or draw_surfaces(
            clouds.subset(self.group),
            [counts[j] for j in self.group],
            self.frames,
            points or DEFAULTS.points,
            recipe,
        )

    def review(
        self,
        surfaces: Sequence[Surface],
        recipe: AlignRecipe = ALIGN,
        threads: int | None = 1,
    ) -> Review:
        """What evidence says of the poses."""
        known = self.constraints
        constrained = {*known.fixed, *known.level, *(prior.cloud for prior in known.priors)}
        rigid = self.constraints.motion == "rigid"
        movable = [rigid and j not in constrained for j in range(len(self.group))]
        possible = self._near_given(surfaces, recipe)
        found = review(surfaces, self.fit.poses, movable, recipe.evidence, possible, threads)
        freedoms = [
            None if each is None or self._contradicts_targets(j, each, recipe) else each
            for j, each in enumerate(found.freedoms)
        ]
        return replace(found, freedoms=tuple(freedoms))

    def _near_given(
        self, surfaces: Sequence[Surface], recipe: AlignRecipe
    ) -> Callable[[int, Pose], bool]:
        """Whether a cloud may lie in some pose: no farther from the given one than it may be off.

        By the largest reach, and so may be the poses of its neighbours. Of a cloud that ended
        farther away its given pose says nothing.
        """
        if self.given is None:
            return lambda cloud, pose: True
        given = aligned_frame(self.given, self.fit.poses) @ self.given

        def near(cloud: int, pose: Pose) -> bool:
            there = geometry.inverse(given[cloud]) @ pose
            turn = float(geometry.angle(geometry.rotation(there)))
            middle = surfaces[cloud].middle
            shift = float(np.linalg.norm(geometry.transform(there, middle[None])[0] - middle))
            return turn * RADIUS + shift / surfaces[cloud].extent <= 2 * recipe.reach

        follows = [near(j, pose) for j, pose in enumerate(self.fit.poses)]
        follows = [each and j not in self.rematched for j, each in enumerate(follows)]
        return lambda cloud, pose: not follows[cloud] or near(cloud, pose)

    def doubtful_known_poses(
        self, surfaces: Sequence[Surface], recipe: AlignRecipe, threads: int | None
    ) -> dict[int, str]:
        """Clouds whose fixed poses or priors the scans contradict, in words."""
        poses, known = self.fit.poses, self.constraints
        found = {
            j: f"it ended {deviations:.3g} standard deviations from its prior"
            for j, deviations in known_poses.far_from_priors(poses, known, recipe).items()
        }
        for j, each in known_poses.misfits(surfaces, poses, known, recipe, threads).items():
            what = "its fixed pose" if j in known.fixed else "its prior"
            shift = each.shift * self.frames.scale
            found[j] = (
                f"{what} contradicts the scans, which put it {shift:.3g} and"
                f" {np.degrees(each.turn):.2g} degrees away"
            )
        return found

    def _contradicts_targets(self, cloud: int, freedom: Freedom, recipe: AlignRecipe) -> bool:
        """Whether targets exclude where a cloud could lie by its surface alone."""
        poses = self.fit.poses.copy()
        poses[cloud] = freedom.alternative
        lost = self.constraints.penalty(self.fit.poses) - self.constraints.penalty(poses)
        return 2 * lost > recipe.evidence.clear**2

    def elsewhere(
        self,
        surfaces: Sequence[Surface],
        seen: Review,
        doubts: Sequence[Doubt],
        recipe: AlignRecipe = ALIGN,
        threads: int | None = 1,
    ) -> list[Alternative]:
        """Where rival fits, the start and free directions place clouds, if evidence allows it.

        In internal coordinates; the clouds by their numbers in the group.
        """
        own, limit = self.fit.poses, recipe.evidence
        tried = []
        for rival in self.rivals:
            gate = recipe.gates[0]
            near = planes.settle(surfaces, rival, gate, self.constraints, threads)
            tried.append((RIVAL, *alternatives.moved_clouds(surfaces, own, near, limit)))
        for doubt in self._own(doubts):
            j = list(self.group).index(doubt.cloud)
            for motion in doubt.motions:
                user = self.poses
                user[j] = user[j] @ motion
                there = self.frames.enter_poses(user, self.origin)[j]
                near = alternatives.settled(surfaces, own, j, there, recipe)
                if j in alternatives.moved_clouds(surfaces, own, near, limit)[0]:
                    tried.append((doubt.reason, (j,), near))
        found: list[Alternative] = []
        for reason, clouds, there in tried:
            shares, lead = alternatives.weigh(surfaces, own, clouds, there, limit)
            if clouds and lead <= limit.clear:
                found.append(Alternative(clouds, there[list(clouds)], reason, shares, lead))
        for j, reason in self._free(seen, recipe).items():
            freedom = seen.freedoms[j]
            assert freedom is not None
            there = freedom.alternative[None]
            shares, lead = freedom.contradictions, freedom.lead
            found.append(Alternative((j,), there, reason, shares, lead))
        return found

    def _open(
        self,
        surfaces: Sequence[Surface],
        seen: Review,
        others: Sequence[Alternative],
        doubts: Sequence[Doubt],
        recipe: AlignRecipe,
    ) -> dict[int, str]:
        """Clouds that the start doubts, and why, where evidence does not remove the doubt.

        The start saw thinned clouds. Evidence removes a doubt where it excludes all other places
        that were found, or where a cloud is not free and agrees with the others in enough
        territory, and closer than chance would have it.
        """
        left = {(j, each.reason) for each in others for j in each.clouds}
        open_ones = {}
        for doubt in self._own(doubts):
            j = list(self.group).index(doubt.cloud)
            if not doubt.motions or (j, doubt.reason) in left:
                open_ones[j] = doubt
        shares, sure = seen.agreement.shares, seen.sure(recipe.evidence)
        stiff = {j for j in open_ones if sure[j] and seen.freedoms[j] is None}
        held: set[int] = set()
        if any(doubt.by_chance for doubt in open_ones.values()):
            certain = [j for j in range(len(self.group)) if j not in open_ones]
            parts = chance.parts_beyond_chance(surfaces, self.fit.poses, certain, recipe.evidence)
            held = chance.majority(parts)
            held = {j for j in held & stiff if shares[j] <= recipe.evidence.max_share}
        return {
            j: doubt.reason
            for j, doubt in open_ones.items()
            if not (doubt.answerable and j in (held if doubt.by_chance else stiff))
        }

    def _own(self, doubts: Sequence[Doubt]) -> list[Doubt]:
        return [doubt for doubt in doubts if doubt.cloud in self.group]

    def _free(self, seen: Review, recipe: AlignRecipe) -> dict[int, str]:
        """Clouds with a free direction, and why.

        Where a cloud contradicts the others, poses around it are no worse. That leaves doubt, but
        says nothing of how far off it is.
        """
        agrees = seen.agreement.shares <= recipe.evidence.max_share
        known = freedoms(seen, self.frames.scale)
        wrong = contradictions(seen, recipe.evidence)
        return {j: why for j, why in known.items() if j not in wrong and agrees[j]}

    def doubted(
        self,
        found: Registration,
        surfaces: Sequence[Surface],
        seen: Review,
        others: Sequence[Alternative],
        doubts: Sequence[Doubt],
        matched: Sequence[set[int]] | None,
        recipe: AlignRecipe = ALIGN,
        threads: int | None = 1,
    ) -> tuple[Registration, dict[int, str]]:
        """The result with what speaks against it: evidence, other places, knowledge, and its start.

        `matched`: where the start was found by matching, which draws places that look alike
        together: the parts of the clouds that meet closer than by chance.

        Also returns why clouds may lie elsewhere.
        """
        wrong = contradictions(seen, recipe.evidence)
        free = {j: why for j, why in freedoms(seen, self.frames.scale).items() if j not in wrong}
        same = {} if matched is None else twins(seen, found.names)
        possible = self._near_given(surfaces, recipe)
        rivals = {
            j: each.reason
            for each in others
            for j, pose in zip(each.clouds, each.poses, strict=True)
            if each.reason == RIVAL and possible(j, pose)
        }
        known = self._open(surfaces, seen, others, doubts, recipe)
        loose = {}
        if matched is not None and chance.in_pieces(surfaces):
            held = chance.majority(matched)
            loose = {j: CHANCE for j in range(len(surfaces)) if j not in held}
        elsewhere = loose | rivals | same | free | known
        divided = divisions(seen, recipe.evidence)
        said = self.doubtful_known_poses(surfaces, recipe, threads)
        doubtful = loose | divided | rivals | same | wrong | free | known | said
        marked = downgrade(found.verdicts, doubtful)
        marked = downgrade(marked, unsupported(seen, marked))
        covariance = found.pose_covariance.copy()
        for i in self._free(seen, recipe):
            freedom = seen.freedoms[i]
            assert freedom is not None
            wide = np.outer(freedom.twist, freedom.twist)[None]
            covariance[i] += self.frames.leave_covariance(wide)[0]
        listed = "; ".join(f"{found.names[j]}: {why}" for j, why in sorted(said.items()))
        warnings = (*found.warnings, f"{KNOWLEDGE}: {listed}; {CHECK}") if said else found.warnings
        result = replace(found, verdicts=marked, pose_covariance=covariance, warnings=warnings)
        return result, elsewhere


def assemble(
    given: Given,
    solutions: Sequence[Solution],
    *,
    groups: Sequence[Sequence[int]] | None = None,
    matched: bool = False,
    doubts: Sequence[Doubt] = (),
    points: int = 0,
    output: Path | None = None,
    recipe: AlignRecipe = ALIGN,
    threads: int | None = 1,
) -> Registration:
    """The result of one fit, or of several groups that nothing connects, with its points.

    `groups` has those of the solutions first, then clouds on their own. `matched`: the start was
    found by matching. `doubts`: what the start could not decide. Where not all points are in
    memory, the result has about `points` of each cloud, and all are written to `output`.
    """
    groups = [solution.group for solution in solutions] if groups is None else groups
    surfaces = [solution.surfaces(given, points, recipe) for solution in solutions]
    reviews = [
        solution.review(patches, recipe, threads)
        for solution, patches in zip(solutions, surfaces, strict=True)
    ]
    # Nothing asks for parts where clouds were not matched and each is sure by itself.
    held = [
        chance.parts_beyond_chance(patches, solution.fit.poses, (), recipe.evidence, threads)
        if matched or not all(seen.sure(recipe.evidence))
        else []
        for solution, patches, seen in zip(solutions, surfaces, reviews, strict=True)
    ]
    fitted = [
        solution.registration(given, recipe, seen.checked(parts, recipe.evidence))
        for solution, seen, parts in zip(solutions, reviews, held, strict=True)
    ]
    possible = [
        solution.elsewhere(patches, seen, doubts, recipe, threads)
        for solution, patches, seen in zip(solutions, surfaces, reviews, strict=True)
    ]
    checked = [
        solution.doubted(
            part, patches, seen, others, doubts, parts if matched else None, recipe, threads
        )
        for solution, part, patches, seen, others, parts in zip(
            solutions, fitted, surfaces, reviews, possible, held, strict=True
        )
    ]
    results = [part for part, _ in checked]
    result = results[0]
    if len(groups) > 1:
        result = side_by_side(results, groups, given.names, given.sizes, lambda T: _spans(given, T))
    found: dict[int, PointLabels] = {}
    folder = None if given.loaded else output
    with merged.targets(given, folder, result.poses) as targets:
        for group, views, mixture in _views(solutions, groups):
            clouds = given.clouds.subset(group)
            if given.loaded:
                labelled = clouds.map(labels.label_points, views, shared=(mixture,))
            else:
                where = [targets[j] for j in group]
                labelled = clouds.map(labels.write_points, views, where, shared=(mixture, points))
            found |= zip(group, labelled, strict=True)
    every = [found[j] for j in range(len(found))]
    some = [each for each in every if isinstance(each, labels.Some)]
    samples: Sequence[InMemory | labels.Some] = given.loaded or some
    inside = {j for solution in solutions for j in solution.group}
    doubted = [Doubt(doubt.cloud, doubt.reason) for doubt in doubts if doubt.cloud not in inside]
    doubted += [
        Doubt(solution.group[j], why)
        for solution, (_, elsewhere) in zip(solutions, checked, strict=True)
        for j, why in sorted(elsewhere.items())
    ]
    places = [
        _placed(each, solution, result.poses)
        for solution, patches, others in zip(solutions, surfaces, possible, strict=True)
        for each in alternatives.distinct(patches, others, recipe.evidence)
    ]
    silent = [
        given.names[j]
        for solution, seen in zip(solutions, reviews, strict=True)
        if seen.agreement.silent
        for j in solution.group
    ]
    unchecked = ", ".join(silent)
    warned = [each for part in results for each in part.warnings]
    if silent:
        warned.append(f"{UNCHECKED}: {unchecked}; compare the result with that of another seed")
    result = replace(
        result,
        warnings=tuple(warned),
        doubts=tuple(doubted),
        alternatives=tuple(places),
        clouds=tuple(cloud.points for cloud in samples),
        outlier_probability=tuple(each.outlier_probability for each in every),
        labels=tuple(each.labels for each in every),
    )
    if not given.files:
        return result
    return replace(
        result,
        attributes=tuple(cloud.columns for cloud in samples),
        files=tuple(str(file.absolute()) for file in given.files),
        sizes=() if given.loaded else tuple(given.sizes),
    )


def _placed(one: Alternative, solution: Solution, poses: Poses) -> Alternative:
    """An alternative in the user's coordinates, in the frame of the result."""
    internal = solution.fit.poses.copy()
    internal[list(one.clouds)] = one.poses
    there = solution.frames.leave_poses(internal, solution.origin)
    # Groups are laid beside each other, each by one motion.
    shift = poses[solution.group[0]] @ geometry.inverse(solution.poses[0])
    clouds = tuple(solution.group[i] for i in one.clouds)
    return replace(one, clouds=clouds, poses=shift @ there[list(one.clouds)])


def _views(
    solutions: Sequence[Solution], groups: Sequence[Sequence[int]]
) -> list[tuple[Sequence[int], list[CloudView], Mixture | None]]:
    """How the fits see the clouds of each group; nothing is known of a cloud on its own."""
    first, seen = 0, []
    for solution in solutions:
        seen.append((solution.group, solution.views(first), solution.fit.mixture))
        first += len(solution.fit.mixture)
    one = solutions[0]
    anywhere = CloudView(one.frames.only(0), one.fit.poses[0], None)
    return [*seen, *((group, [anywhere], None) for group in groups[len(solutions) :])]


def _spans(given: Given, poses: Poses) -> Float[Array, "M 2"]:
    """The least and the largest x of each cloud under given poses."""
    return np.array(given.clouds.map(_span, list(poses)))


def _span(cloud: Source, pose: Pose) -> tuple[float, float]:
    x = [geometry.transform(pose, block.points)[:, 0] for block in cloud.blocks()]
    return float(min(part.min() for part in x)), float(max(part.max() for part in x))
