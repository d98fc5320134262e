# SPDX-License-Identifier: MIT
"""`register`: clouds in, poses out. Its body is the algorithm, a stage a call."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe.align import cost, schedule
from coframe.align.recipe import ALIGN, AlignRecipe
from coframe.api.problem import Candidate, Problem, Reports
from coframe.compute.checkpoint import Checkpoint
from coframe.compute.cluster import Client
from coframe.em import loop
from coframe.em.loop import Iteration, Status
from coframe.input.checks import as_fixed
from coframe.input.given import open_clouds
from coframe.input.options import DEFAULTS, Options, PosePrior, check_options
from coframe.result.assemble import Solution, assemble
from coframe.result.registration import Registration
from coframe.start import search
from coframe.start.search import GIVEN
from coframe.threads import quiet_blas
from coframe.types import Array, Poses


@quiet_blas()
def register(
    clouds: Iterable[Any] | str | PathLike[str],
    poses: Poses | None = None,
    *,
    options: Options = DEFAULTS,
    weights: Sequence[Float[Array, " _"]] | None = None,
    fixed: Sequence[int] = (),
    priors: Sequence[PosePrior] = (),
    names: Sequence[str] | None = None,
    on_file: Callable[[str], object] = lambda name: None,
    on_iteration: Callable[[Iteration], bool | None] = loop.carry_on,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
    on_progress: Callable[[float], object] = lambda share: None,
    checkpoint: Checkpoint | None = None,
    cluster: Client | None = None,
    memory: str | int | None = None,
    output: str | PathLike[str] | None = None,
    recipe: AlignRecipe = ALIGN,
) -> Registration:
    """Bring the clouds into one common frame.

    Parameters
    ----------
    clouds : iterable, str or path
        M arrays (N_j, D), D = 2 or 3, or anything with `.points` or `.vertices`; or files, folders
        and patterns.
    poses : (M, D+1, D+1) array, optional
        Where to start; pose j carries cloud j into the common frame, x = R v + t. Default: found
        (see `Options.start`); with fixed clouds, priors or restricted motion, which need a common
        frame, the clouds start where they are. Clouds that nothing connects end in several
        `groups`, each with a frame of its own.
    options : Options
    weights : sequence of (N_j,) arrays, optional
        The weight of each point; only their ratios count.
    fixed : sequence of int
        Clouds whose pose is known and does not change.
    priors : sequence of PosePrior
        What is known of poses, and how well.
    names : sequence of str, optional
        Names of the clouds in messages and results.
    on_file : callable
        Called with each file's name before it is read on this machine.
    on_iteration : callable
        Called after each iteration of each phase, several of which run side by side in threads of
        their own; returning True ends the phase.
    on_pair : callable
        Called with the number of pairs matched so far and of all, where pairs are matched.
    on_progress : callable
        Called with the share of the work after that, 0 to 1, as far as it can be foreseen.
    checkpoint : Checkpoint, optional
        Keeps what is done, so that an interrupted run can go on.
    cluster : distributed.Client, optional
        The workers behind it do all work on points; they read files themselves, under the same
        paths as here.
    memory : str or int, optional
        A budget ("2GB") for files that are larger than memory; they are read in blocks.
    output : str or path, optional
        Where the points stay in files (with `memory`, or files with `cluster`), the result has some
        points of each cloud, and all of them are written to this folder.
    recipe : AlignRecipe
        Every tuned number of the alignment; for experiments.

    Returns
    -------
    Registration

    Raises
    ------
    InputError
        When the input cannot be used; the message says what to change.

    Examples
    --------
    >>> result = coframe.register(clouds)
    >>> result.poses, result.verdicts, result.groups
    """
    check_options(options)
    with open_clouds(
        clouds,
        weights,
        names,
        threads=options.threads,
        cluster=cluster,
        memory=memory,
        output=output,
        on_file=on_file,
        check_budget=lambda files: cost.check(files, options, memory or 0, recipe),
    ) as given:
        reports = Reports(on_iteration, on_pair, on_progress, checkpoint)
        known = as_fixed(fixed, len(given.names)), priors
        problem = Problem(given, options, *known, recipe, reports)
        if checkpoint is not None:
            checkpoint.begin(*problem.fingerprint(poses))
        start = problem.start(poses)
        candidates: list[Candidate] = []
        for group in start.groups:
            if len(group) == 1:
                continue  # nothing connects this cloud with the others
            hypotheses = problem.hypotheses(start, group)
            scores = [0.0]
            if len(hypotheses) > 1:
                scores = [schedule.validate(each.run(), each.start) for each in hypotheses]
            part = hypotheses[int(np.argmax(scores))]
            tried: list[Candidate] = []
            for attempt in (0, 1):  # a fit that contradicts its start is tried once more
                run = part.run(attempt)
                trials = schedule.trials(run, part.start)
                ambiguous = False
                if trials.doubtful and start.source == GIVEN:
                    start, matched = problem.match_beside(start)
                    ambiguous = not matched
                    trials = schedule.beside(run, trials, [part.enter(each) for each in matched])
                fit, decided = schedule.finish(run, trials)
                solution = Solution(fit, run.frames, part.origin, group, run.constraints)
                lost = search.contradicted_clouds(start, solution.poses, group)
                tried.append(Candidate(solution, lost, ambiguous or not decided))
                if not lost or start.source == GIVEN or fit.status is Status.STOPPED:
                    break
            candidates.append(min(tried, key=lambda each: len(each.contradicted)))
        result = assemble(
            given,
            [each.solution for each in candidates],
            groups=start.groups,
            points=options.points,
            output=None if output is None else Path(output),
            recipe=recipe,
        )
        return problem.annotate(result, start, lost, ambiguous)


@dataclass(frozen=True)
class Problem:
    """Checked input, and whom the run reports to."""

    given: Given
    options: Options
    fixed: tuple[int, ...]
    priors: Sequence[PosePrior]
    recipe: AlignRecipe
    on_iteration: Callable[[Iteration], bool | None]
    on_pair: Callable[[int, int], object]
    on_progress: Callable[[float], object]
    checkpoint: Checkpoint | None

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
        rest = digest(start, np.array(self.fixed), np.array(weights), *known)
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
        return self._match(look=self.options.start == "auto")

    def match_beside(self, start: Start) -> tuple[Start, list[Float[Array, "M D1 D1"]]]:
        """Matched poses that turn the clouds little against given ones, and what matching found.

        In the common frame of the given poses; none where nothing near was found.
        """
        if self.bound or self.options.start == "identity":
            return start, []
        found = self._match(look=False)
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

    def _match(self, *, look: bool) -> Start:
        """Start poses from the clouds' own shapes; `look`: they may lie in place already."""
        return search.find_start(
            self.given.clouds,
            self.given.summaries,
            rng=np.random.default_rng(self.options.seed),
            look=look,
            on_pair=self.on_pair,
            checkpoint=self.checkpoint,
        )

    def hypotheses(self, start: Start, group: Sequence[int]) -> "list[Part]":
        """The problem of a group of clouds, once for each hypothesis about its start poses."""
        M, members = len(self.given.names), list(group)
        before = sum(len(other) for other in start.groups[: start.groups.index(tuple(group))])

        def report(share: float) -> None:
            self.on_progress((before + share * len(group)) / M)

        progress = self.on_progress if len(group) == M else report
        summaries = [self.given.summaries[j] for j in group]
        frames = Normalisation.about(summaries)
        return [Part(self, group, poses[members], frames, progress) for poses in start.poses]

    def annotate(
        self, result: Registration, start: Start, lost: Sequence[Doubt], ambiguous: bool
    ) -> Registration:
        """The result with what its start says of it: no cloud in doubt is called aligned."""
        groups = start.groups
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
        if start.crashed:
            pairs = ", ".join(f"{result.names[a]} and {result.names[b]}" for a, b in start.crashed)
            warnings.append(
                f"the matcher crashed on {len(start.crashed)} of {start.pairs} pairs, which were"
                f" left out: {pairs}; if clouds are missing from a group, give start poses"
            )
        if ambiguous:
            warnings.append(AMBIGUOUS)
        if any(verdict.verdict == "failed" for verdict in verdicts):
            units = unit_doubt([each.extent for each in self.given.summaries], result.names)
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
    poses: Float[Array, "M D1 D1"]
    frames: Normalisation
    on_progress: Callable[[float], object]

    @cached_property
    def origin(self) -> Float[Array, " D"]:
        """The user's point that becomes the internal common origin."""
        return self.frames.middle(self.poses)

    @property
    def start(self) -> Float[Array, "M D1 D1"]:
        """The start poses in internal coordinates."""
        names = [self.problem.given.names[j] for j in self.group]
        return check_near(self.enter(self.poses), names)

    def enter(self, poses: Float[Array, "M D1 D1"]) -> Float[Array, "M D1 D1"]:
        """Poses of the user in internal coordinates."""
        return self.frames.enter_poses(poses, self.origin)

    def run(self, attempt: int = 0) -> Run:
        """What the levels of a registration share; another attempt draws other points."""
        problem, options = self.problem, self.problem.options
        given = problem.given
        whole = len(self.group) == len(given.names)
        priors = as_priors(problem.priors, self.frames, self.origin)

        def in_user_units(step: Iteration) -> bool | None:
            return problem.on_iteration(self.frames.leave_iteration(step, self.origin))

        silent = problem.on_iteration is loop.carry_on
        return Run(
            given.clouds if whole else given.clouds.subset(self.group),
            [given.counts[j] for j in self.group],
            self.frames,
            Level(
                options.components,
                options.points,
                options.iterations,
                tolerance=options.tolerance,
            ),
            np.random.default_rng([options.seed, attempt] if attempt else options.seed),
            threads=options.threads,
            constraints=Constraints(problem.fixed, options.motion, priors),
            on_iteration=loop.carry_on if silent else in_user_units,
            on_progress=self.on_progress,
            checkpoint=problem.checkpoint,
            recipe=problem.recipe,
        )


def _relative_turn(a: Float[Array, "M D1 D1"], b: Float[Array, "M D1 D1"]) -> float:
    """The largest angle [rad] by which relative rotations differ between `a` and `b`."""
    R = geometry.rotation(a) @ np.swapaxes(geometry.rotation(b), 1, 2)
    return max(float(geometry.angle(np.swapaxes(R, 1, 2) @ each).max()) for each in R)
