# SPDX-License-Identifier: MIT
"""`register`: clouds in, poses out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.align import schedule
from coframe.align.level import Level, Runner
from coframe.align.schedule import Supply
from coframe.align.verdict import doubted
from coframe.compute.checkpoint import Checkpoint, digest
from coframe.compute.cluster import Client
from coframe.compute.places import PerCloud
from coframe.em import loop
from coframe.em.estep import TOLERANCE, Cloud
from coframe.em.joint import Constraints
from coframe.em.loop import Fit, Iteration, Status
from coframe.em.mixture import Mixture
from coframe.errors import InputError
from coframe.input.checks import as_fixed, as_poses, as_priors, near, unit_doubt
from coframe.input.given import Given, opened
from coframe.input.normalise import Normalisation, Summary
from coframe.input.options import Options, PosePrior
from coframe.input.source import Source, cloud_digest
from coframe.result import labels, merged
from coframe.result.groups import side_by_side
from coframe.result.labels import CloudView, PointLabels
from coframe.result.registration import Registration, in_user_units, with_points
from coframe.start import search
from coframe.start.doubt import Doubt
from coframe.start.search import GIVEN, IDENTITY, Start
from coframe.threads import quiet_blas
from coframe.types import Array

T = TypeVar("T")

FLOOR = 1e-7  # of the squared extent: the variance below which no component falls
COARSE = Level(300, 1000, 15)  # at which hypotheses about the start are compared
# matched poses that turn clouds by more against each other than given ones do are another idea
# altogether
ASTRAY = np.pi / 3
UNDECIDED = (
    "the start leaves doubt: poses that differ explain the clouds about as well; compare with other"
    " start poses"
)
DEFAULTS = Options()


@quiet_blas()
def register(
    clouds: Iterable[Any] | str | PathLike[str],
    poses: Float[Array, "M D1 D1"] | None = None,
    *,
    options: Options = DEFAULTS,
    weights: Sequence[Float[Array, " _"]] | None = None,
    fixed: Sequence[int] = (),
    priors: Sequence[PosePrior] = (),
    names: Sequence[str] | None = None,
    on_iteration: Callable[[Iteration], bool | None] = loop.carry_on,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
    on_progress: Callable[[float], object] = lambda share: None,
    on_file: Callable[[str], object] = lambda name: None,
    checkpoint: Checkpoint | None = None,
    cluster: Client | None = None,
    memory: str | int | None = None,
    output: str | PathLike[str] | None = None,
) -> Registration:
    """Bring the clouds into one common frame.

    clouds: M arrays (N_j, D), D = 2 or 3, or anything with `.points` or `.vertices`; or files,
    folders and patterns. poses: (M, D+1, D+1) where to start; pose j carries cloud j into the
    common frame, x = R v + t. Default: found (see `Options.start`); with fixed clouds, priors or
    restricted motion, which speak of a common frame, the clouds are taken as they lie. Clouds that
    nothing connects end in several `groups`, each with a frame of its own. weights: per cloud, the
    weight of each point (N_j,); only their ratios count. fixed: clouds whose pose is known and
    stays. priors: poses that are known about. names: of the clouds, in messages and results.
    on_iteration: called after each iteration of each phase, of which several run side by side;
    returning True ends the phase. on_pair: called with the number of pairs matched so far and of
    all, where pairs are matched. on_progress: called with the share of the work after that, 0 to 1,
    as far as it can be foreseen. on_file: called with each file's name before it is read on this
    machine. checkpoint: keeps what is done, so that a run that is interrupted can
    go on (see `Checkpoint`). cluster: the workers behind this `distributed.Client` do all that is
    done with points. memory: a budget ("2GB") for files that are larger; they are read in
    blocks. Where the points stay in files (with `memory`, or files with `cluster`), the result holds
    some points of each cloud, and all of them are written to the folder `output`.

    >>> result = coframe.register(clouds)
    >>> result.poses, result.verdicts, result.groups
    """
    if not isinstance(options, Options):
        raise InputError(f"options: expected coframe.Options, found {type(options).__name__}")
    with opened(
        clouds,
        weights,
        names,
        options=options,
        cluster=cluster,
        memory=memory,
        output=output,
        on_file=on_file,
    ) as given:
        M, D = len(given.names), given.dimension
        known = as_fixed(fixed, M), priors, on_iteration, on_progress, checkpoint
        problem = Problem(given.clouds, given.summaries, given.names, options, *known)
        if checkpoint is not None:
            checkpoint.begin(*problem.fingerprint(poses))
        result, views = _registered(
            problem, None if poses is None else as_poses(poses, M, D), on_pair
        )
        result = replace(_in_one_unit(result, problem.summaries), options=options.record())
        return _with_points(result, views, given, options, None if output is None else Path(output))


def _with_points(
    result: Registration, views: "Views", given: Given, options: Options, output: Path | None
) -> Registration:
    """The result with what is known of every point; or of some, where they are not all here, and
    all go to `output`.
    """
    if given.held:
        found: Sequence[PointLabels] = views.map(given.clouds, labels.label_points)
        clouds, attributes = (
            [cloud.points for cloud in given.held],
            [cloud.columns for cloud in given.held],
        )
        sizes: Sequence[int] = ()
    else:
        with merged.targets(given, output, result.poses) as targets:
            found = some = views.map(
                given.clouds, labels.write_points, targets, shared=(options.points,)
            )
        clouds, attributes = [each.points for each in some], [each.columns for each in some]
        sizes = [summary.size for summary in given.summaries]
    result = with_points(result, clouds, found)
    if not given.files:
        return result
    paths = tuple(str(file.absolute()) for file in given.files)
    return replace(result, attributes=tuple(attributes), files=paths, sizes=tuple(sizes))


def _registered(
    problem: "Problem", poses: Float[Array, "M D1 D1"] | None, on_pair: Callable[[int, int], object]
) -> tuple[Registration, "Views"]:
    """The result without its points, and how its fits see them."""
    if poses is not None:
        outcome = _given(problem, poses, on_pair)
        return outcome.result, Views.of([outcome], [range(len(poses))])
    begun = _begun(problem, on_pair)
    parts = [
        _best(
            problem.part(group, before), [each[list(group)] for each in begun.poses], begun, group
        )
        for before, group in zip(
            accumulate(map(len, begun.groups), initial=0), begun.groups, strict=False
        )
        if len(group) > 1
    ]
    outcomes, lost = (
        [outcome for outcome, _ in parts],
        [doubt for _, doubts in parts for doubt in doubts],
    )
    whole = outcomes[0].result
    if len(begun.groups) > 1:
        results, sizes = (
            [outcome.result for outcome in outcomes],
            [summary.size for summary in problem.summaries],
        )
        whole = side_by_side(results, begun.groups, problem.names, sizes, problem.span)
        whole = replace(
            whole,
            warnings=tuple(dict.fromkeys(warning for each in results for warning in each.warnings)),
        )
    return _told(whole, begun, lost), Views.of(outcomes, begun.groups)


@dataclass(frozen=True)
class Outcome:
    """A fit, and what it is in user units, without the points."""

    fit: Fit
    frames: Normalisation
    result: Registration


@dataclass(frozen=True)
class Views:
    """How the fits see the clouds: per group of clouds one mixture, or none for a cloud on its own."""

    groups: Sequence[Sequence[int]]
    mixtures: Sequence[Mixture | None]
    views: Sequence[Sequence[CloudView]]  # of each group

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], groups: Sequence[Sequence[int]]) -> "Views":
        first, views = 0, []
        for outcome in outcomes:
            mixture, frames = outcome.fit.mixture, outcome.frames.each()
            rows = (
                [None] * len(frames)
                if mixture.visibility is None
                else list(mixture.visibility[:, None])
            )
            views.append(
                [
                    CloudView(*each, first)
                    for each in zip(frames, outcome.fit.poses, rows, strict=True)
                ]
            )
            first += len(mixture)
        alone = len(groups) - len(outcomes)
        anywhere = CloudView(outcomes[0].frames.only(0), outcomes[0].fit.poses[0], None)
        return cls(
            groups,
            [*(o.fit.mixture for o in outcomes), *[None] * alone],
            [*views, *[[anywhere]] * alone],
        )

    def map(
        self,
        place: PerCloud[Source],
        function: Callable[..., T],
        *columns: Sequence[Any],
        shared: tuple[Any, ...] = (),
    ) -> list[T]:
        """function(cloud, view, *row, mixture, *shared) for every cloud, where it is."""
        found: dict[int, T] = {}
        for group, mixture, views in zip(self.groups, self.mixtures, self.views, strict=True):
            own = [[column[j] for j in group] for column in columns]
            found |= zip(
                group,
                place.subset(group).map(function, views, *own, shared=(mixture, *shared)),
                strict=True,
            )
        return [found[j] for j in range(len(found))]


@dataclass(frozen=True)
class Problem:
    """Checked input."""

    clouds: PerCloud[Source]
    summaries: Sequence[Summary]
    names: Sequence[str]
    options: Options
    fixed: tuple[int, ...]
    priors: Sequence[PosePrior]
    on_iteration: Callable[[Iteration], bool | None]
    on_progress: Callable[[float], object]
    checkpoint: Checkpoint | None = None

    def fingerprint(
        self, poses: Float[Array, "M D1 D1"] | None
    ) -> tuple[dict[str, Any], list[tuple[str, str]], str]:
        """All that the result depends on: options, name and digest of each cloud, a digest of start
        poses and the like.
        """
        points, weights = zip(*self.clouds.map(cloud_digest), strict=True)
        clouds = list(zip(self.names, points, strict=True))
        known = [np.array(prior.cloud) for prior in self.priors]
        known += [
            np.asarray(each) for prior in self.priors for each in (prior.pose, prior.covariance)
        ]
        start = np.empty(0) if poses is None else np.asarray(poses, float)
        return (
            self.options.record(),
            clouds,
            digest(start, np.array(self.fixed), np.array(weights), *known),
        )

    @property
    def counts(self) -> list[int]:
        """The points of each cloud that count."""
        return [summary.count for summary in self.summaries]

    def span(self, poses: Float[Array, "M D1 D1"]) -> Float[Array, "M 2"]:
        """The least and the largest x of each cloud under given poses."""
        return np.array(self.clouds.map(_span, list(poses)))

    def part(self, group: Sequence[int], before: int = 0) -> "Problem":
        """The problem of some of the clouds, so many done before; only one without fixed clouds and
        priors has parts.
        """
        if len(group) == len(self.clouds):
            return self
        return replace(
            self,
            clouds=self.clouds.subset(group),
            summaries=[self.summaries[j] for j in group],
            names=[self.names[j] for j in group],
            on_progress=lambda share: self.on_progress(
                (before + share * len(group)) / len(self.clouds)
            ),
        )

    @property
    def bound(self) -> bool:
        """Whether fixed clouds, priors or restricted motion speak of a common frame that matching
        knows nothing of.
        """
        return bool(self.fixed or self.priors) or self.options.motion != "rigid"

    def fit(
        self,
        poses: Float[Array, "M D1 D1"],
        *,
        seed: int = 0,
        elsewhere: Callable[[], Sequence[Float[Array, "M D1 D1"]]] = tuple,
    ) -> Outcome:
        """EM from start poses, or from those of `elsewhere` if need be.

        Another `seed` is another run with the same options.
        """
        options = self.options
        frames, origin = self._frames(poses)
        constraints = Constraints(
            self.fixed, options.motion, as_priors(self.priors, frames, origin)
        )

        def told(step: Iteration) -> bool | None:
            return self.on_iteration(frames.leave_iteration(step, origin))

        fit, decided = schedule.coarse_to_fine(
            Supply(self.clouds, self.counts, frames),
            near(frames.enter_poses(poses, origin), self.names),
            Level(
                options.components, options.points, options.iterations, tolerance=options.tolerance
            ),
            Runner(
                floor=FLOOR,
                rng=np.random.default_rng([options.seed, seed] if seed else options.seed),
                threads=options.threads,
                constraints=constraints,
                on_iteration=loop.carry_on if self.on_iteration is loop.carry_on else told,
                on_progress=self.on_progress,
                checkpoint=self.checkpoint,
            ),
            lambda: [
                frames.enter_poses(poses[0] @ geometry.inverse(each[0]) @ each, origin)
                for each in elsewhere()
            ],
        )
        result = in_user_units(fit, self.names, frames, origin, constraints)
        return Outcome(fit, frames, result if decided else replace(result, warnings=(UNDECIDED,)))

    def held_out(self, poses: Float[Array, "M D1 D1"]) -> float:
        """How well a coarse model, fitted from start poses to some points, explains others: mean
        log-likelihood of a point.
        """
        frames, origin = self._frames(poses)
        rng = np.random.default_rng(self.options.seed)
        rows = [rng.permutation(count)[: 2 * COARSE.points] for count in self.counts]
        some, others = (
            self.clouds.map_keep(_half, rows, frames.each(), shared=(first,)) for first in (0, 1)
        )
        runner = Runner(
            floor=FLOOR, rng=rng, threads=self.options.threads, checkpoint=self.checkpoint
        )
        fit = runner.fit(some, near(frames.enter_poses(poses, origin), self.names), COARSE)
        sweep = others.sweep(threads=self.options.threads, tolerance=TOLERANCE)
        _, log_likelihood = sweep.moments(fit.poses, fit.mixture)
        return float(log_likelihood.sum() / sweep.points.sum())

    def _frames(self, poses: Float[Array, "M D1 D1"]) -> tuple[Normalisation, Float[Array, " D"]]:
        """The clouds' frames, and the user's point that becomes the common origin."""
        frames = Normalisation.about(self.summaries)
        return frames, frames.middle(poses)


def _span(cloud: Source, pose: Float[Array, "D1 D1"]) -> tuple[float, float]:
    x = [geometry.transform(pose, block.points)[:, 0] for block in cloud.blocks()]
    return float(min(part.min() for part in x)), float(max(part.max() for part in x))


def _half(cloud: Source, rows: Int[Array, " n"], frame: Normalisation, first: int) -> Cloud:
    """Every second one of some points, so that another half is left to test with."""
    return Cloud.of(frame.enter([cloud.counted().take(rows).points])[0][first::2])


def _given(
    problem: Problem, poses: Float[Array, "M D1 D1"], on_pair: Callable[[int, int], object]
) -> Outcome:
    """The fit from given start poses.

    Where it turns out that those leave doubt, the clouds are matched, too.
    """
    asked: list[Start | None] = []

    def matched() -> Sequence[Float[Array, "M D1 D1"]]:
        if problem.bound or problem.options.start == "identity":
            asked.append(None)
            return ()
        begun = _matched(problem, on_pair)
        near = [
            each for each in begun.poses if len(begun.groups) == 1 and _turned(each, poses) < ASTRAY
        ]
        asked.append(begun if near else None)
        return near

    outcome = problem.fit(poses, elsewhere=matched)
    result = outcome.result
    for begun in asked:
        if begun is None:
            result = replace(result, warnings=tuple(dict.fromkeys([*result.warnings, UNDECIDED])))
        else:
            lost = search.contradicted_clouds(begun, result.poses, range(len(poses)))
            result = _told(result, replace(begun, source=GIVEN, doubts=()), lost)
    return replace(outcome, result=result)


def _turned(a: Float[Array, "M D1 D1"], b: Float[Array, "M D1 D1"]) -> float:
    """The largest angle [rad] by which two clouds are turned against each other otherwise in `a`
    than in `b`.
    """
    R = geometry.rotation(a) @ np.swapaxes(geometry.rotation(b), 1, 2)
    return max(float(geometry.angle(np.swapaxes(R, 1, 2) @ each).max()) for each in R)


def _begun(problem: Problem, on_pair: Callable[[int, int], object]) -> Start:
    """Start poses for clouds that come without."""
    M, D = len(problem.clouds), len(problem.summaries[0].median)
    options = problem.options
    as_given = Start((geometry.identity(M, D),), (tuple(range(M)),), IDENTITY, 0)
    if options.start == "identity":
        return as_given
    if problem.bound:
        if options.start == "match":
            raise InputError(
                'start: expected "identity" beside fixed clouds, priors or restricted motion, found'
                ' "match"'
            )
        as_priors(problem.priors, Normalisation.about(problem.summaries), np.zeros(D))
        return as_given
    return _matched(problem, on_pair, look=options.start == "auto")


def _matched(
    problem: Problem, on_pair: Callable[[int, int], object], *, look: bool = False
) -> Start:
    """Where the clouds lie, from their own shapes; `look`: they may lie in place already."""
    return search.find_start(
        problem.clouds,
        problem.summaries,
        rng=np.random.default_rng(problem.options.seed),
        look=look,
        on_pair=on_pair,
        checkpoint=problem.checkpoint,
    )


def _best(
    problem: Problem, starts: Sequence[Float[Array, "M D1 D1"]], begun: Start, group: Sequence[int]
) -> tuple[Outcome, tuple[Doubt, ...]]:
    """The fit from the hypothesis that explains held-out points best; once more where it leaves
    what was matched.
    """
    if len(starts) > 1:
        starts = sorted(starts, key=problem.held_out, reverse=True)
    outcome = problem.fit(starts[0])
    lost = search.contradicted_clouds(begun, outcome.result.poses, group)
    if lost and outcome.result.status is not Status.STOPPED:
        again = problem.fit(starts[0], seed=1)
        lost_again = search.contradicted_clouds(begun, again.result.poses, group)
        if len(lost_again) < len(lost):
            outcome, lost = again, lost_again
    return outcome, lost


def _in_one_unit(result: Registration, summaries: Sequence[Summary]) -> Registration:
    """The result; where a cloud failed, with a warning if the clouds' sizes may be the cause."""
    doubt = unit_doubt([summary.extent for summary in summaries], result.names)
    if doubt is None or all(verdict.verdict != "failed" for verdict in result.verdicts):
        return result
    return replace(result, warnings=(*result.warnings, doubt))


def _told(result: Registration, begun: Start, lost: Sequence[Doubt]) -> Registration:
    """The result, with what its start says of it: nothing in doubt is called aligned."""
    group_of = {j: g for g, group in enumerate(begun.groups) for j in group}
    doubts = tuple({doubt.cloud: doubt for doubt in [*lost, *begun.doubts]}.values())
    verdicts = []
    for j, verdict in enumerate(result.verdicts):
        if len(begun.groups) > 1 and len(begun.groups[group_of[j]]) > 1:
            where = f"in group {group_of[j] + 1} of {len(begun.groups)}"
            verdict = replace(verdict, reason=f"{where}: {verdict.reason}")
        verdicts.append(verdict)
    warnings = []
    if len(begun.groups) > 1:
        lists = "; ".join(", ".join(result.names[j] for j in group) for group in begun.groups)
        warnings.append(
            f"the clouds fall into {len(begun.groups)} groups that nothing connects, each with a"
            f" frame of its own: {lists}"
        )
    if doubts:
        listed = ", ".join(result.names[doubt.cloud] for doubt in doubts)
        warnings.append(
            f"the start is ambiguous, and the poses of these clouds may be wrong: {listed}"
        )
    if begun.crashed:
        pairs = ", ".join(f"{result.names[a]} and {result.names[b]}" for a, b in begun.crashed)
        warnings.append(
            f"the matcher crashed on {len(begun.crashed)} of {begun.pairs} pairs, which were left"
            f" out: {pairs}"
        )
    return replace(
        result,
        verdicts=doubted(verdicts, {doubt.cloud: doubt.reason for doubt in doubts}),
        groups=begun.groups,
        start=begun.source,
        pairs_tried=begun.pairs,
        doubts=doubts,
        warnings=(*warnings, *result.warnings),
    )
