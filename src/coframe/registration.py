# SPDX-License-Identifier: MIT
"""`register`: clouds in, poses out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import em, geometry, schedule
from coframe.arrays import Array
from coframe.clouds import Frames, InputError, as_clouds
from coframe.doors import Options, PosePrior, as_fixed, as_poses, as_priors, as_weights, near
from coframe.em import Iteration, Status
from coframe.estep import Cloud
from coframe.export import described
from coframe.io import clouds as cloud_files
from coframe.joint import Constraints
from coframe.journal import Journal, digest
from coframe.result import Registration, in_user_units, side_by_side
from coframe.schedule import Level, Runner
from coframe.start import nothing
from coframe.start.doubt import Doubt
from coframe.start.nothing import AS_THEY_LIE, Start
from coframe.sweeps import Sweep, available_cores, quiet_blas

FLOOR = 1e-7  # of the squared extent: the variance below which no component falls
COARSE = Level(300, 1000, 15)  # at which hypotheses about the start are compared
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
    on_iteration: Callable[[Iteration], bool | None] = em.carry_on,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
    journal: Journal | None = None,
) -> Registration:
    """Bring the clouds into one common frame.

    clouds: M arrays (N_j, D), D = 2 or 3, or anything with `.points` or `.vertices`; or files, folders and patterns.
    poses: (M, D+1, D+1) where to start; pose j carries cloud j into the common frame, x = R v + t. Default: found (see
    `Options.start`); with fixed clouds, priors or restricted motion, which speak of a common frame, the clouds are taken as
    they lie. Clouds that nothing connects end in several `groups`, each with a frame of its own.
    weights: per cloud, the weight of each point (N_j,); only their ratios count. fixed: clouds whose pose is known and stays.
    priors: poses that are known about. names: of the clouds, in messages and results. on_iteration: called after each
    iteration of each phase, of which several run side by side; returning True ends the phase. on_pair: called with the number
    of pairs matched so far and of all, where pairs are matched. journal: keeps what is done, so that a run that is interrupted
    can go on (see `Journal`).

    >>> result = coframe.register(clouds)
    >>> result.poses, result.verdicts, result.groups
    """
    if not isinstance(options, Options):
        raise InputError(f"options: expected coframe.Options, found {type(options).__name__}")
    clouds = [clouds] if isinstance(clouds, str | PathLike) else clouds if isinstance(clouds, np.ndarray) else list(clouds)
    if len(clouds) and all(isinstance(cloud, str | PathLike) for cloud in clouds):
        scans, files = cloud_files.open_all(clouds)
        result = register(
            [scan.points for scan in scans],
            poses,
            options=options,
            weights=weights,
            fixed=fixed,
            priors=priors,
            names=[scan.name for scan in scans] if names is None else names,
            on_iteration=on_iteration,
            on_pair=on_pair,
            journal=journal,
        )
        return described(result, scans, files)
    clouds = as_clouds(clouds, names=names)
    M, D = len(clouds), clouds[0].shape[1]
    names = [f"cloud {j}" for j in range(M)] if names is None else names
    problem = Problem(clouds, as_weights(weights, clouds), names, options, as_fixed(fixed, M), priors, on_iteration, journal)
    if journal is not None:
        journal.begin(*problem.fingerprint(poses))
    if poses is not None:
        return problem.fit(as_poses(poses, M, D))
    begun = _begun(problem, on_pair)
    parts = [
        _best(problem.part(group), [each[list(group)] for each in begun.poses], begun, group)
        for group in begun.groups
        if len(group) > 1
    ]
    fits, lost = [fit for fit, _ in parts], [doubt for _, doubts in parts for doubt in doubts]
    whole = fits[0] if len(begun.groups) == 1 else side_by_side(fits, begun.groups, clouds, names)
    return _told(whole, begun, lost)


@dataclass(frozen=True)
class Problem:
    """Checked input."""

    clouds: Sequence[Float[Array, "_ D"]]
    weights: Sequence[Float[Array, " _"]]
    names: Sequence[str]
    options: Options
    fixed: tuple[int, ...]
    priors: Sequence[PosePrior]
    on_iteration: Callable[[Iteration], bool | None]
    journal: Journal | None = None

    def fingerprint(self, poses: Float[Array, "M D1 D1"] | None) -> tuple[dict[str, Any], list[tuple[str, str]], str]:
        """All that the result depends on: options, name and digest of each cloud, a digest of start poses and the like."""
        options = {name: value for name, value in asdict(self.options).items() if name != "threads"}
        clouds = [(name, digest(cloud)) for name, cloud in zip(self.names, self.clouds, strict=True)]
        known = [np.array(prior.cloud) for prior in self.priors]
        known += [np.asarray(each) for prior in self.priors for each in (prior.pose, prior.covariance)]
        start = np.empty(0) if poses is None else np.asarray(poses, float)
        return options, clouds, digest(start, np.array(self.fixed), *self.weights, *known)

    def part(self, group: Sequence[int]) -> "Problem":
        """The problem of some of the clouds; only a problem without fixed clouds and priors has parts."""
        if len(group) == len(self.clouds):
            return self
        return replace(
            self,
            clouds=[self.clouds[j] for j in group],
            weights=[self.weights[j] for j in group],
            names=[self.names[j] for j in group],
        )

    def fit(self, poses: Float[Array, "M D1 D1"], *, seed: int = 0) -> Registration:
        """EM from start poses. Another `seed` is another run with the same options."""
        options = self.options
        counting = [weight > 0 for weight in self.weights]
        frames = Frames.of([cloud[count] for cloud, count in zip(self.clouds, counting, strict=True)])
        origin = np.mean([geometry.transform(T, c[None])[0] for T, c in zip(poses, frames.centres, strict=True)], axis=0)
        inner = frames.enter(self.clouds)
        points = float(sum(map(len, self.clouds)))
        constraints = Constraints(self.fixed, options.motion, as_priors(self.priors, frames, origin))

        def told(step: Iteration) -> bool | None:
            return self.on_iteration(step.in_user_units(frames, origin, points))

        fit = schedule.coarse_to_fine(
            [cloud[count] for cloud, count in zip(inner, counting, strict=True)],
            [weight[count] for weight, count in zip(self.weights, counting, strict=True)],
            near(frames.enter_poses(poses, origin), self.names),
            Level(options.components, options.points, options.iterations, tolerance=options.tolerance),
            Runner(
                floor=FLOOR,
                rng=np.random.default_rng([options.seed, seed] if seed else options.seed),
                threads=options.threads,
                constraints=constraints,
                on_iteration=em.carry_on if self.on_iteration is em.carry_on else told,
                journal=self.journal,
            ),
        )
        sweep = Sweep([Cloud.of(c, w) for c, w in zip(inner, self.weights, strict=True)], threads=options.threads)
        return in_user_units(fit, sweep, self.clouds, self.names, frames, origin, constraints)

    def held_out(self, poses: Float[Array, "M D1 D1"]) -> float:
        """How well a coarse model, fitted from start poses to some points, explains others: mean log-likelihood of a point."""
        clouds = [cloud[weight > 0] for cloud, weight in zip(self.clouds, self.weights, strict=True)]
        frames = Frames.of(clouds)
        origin = np.mean([geometry.transform(T, c[None])[0] for T, c in zip(poses, frames.centres, strict=True)], axis=0)
        rng = np.random.default_rng(self.options.seed)
        orders = [rng.permutation(len(cloud))[: 2 * COARSE.points] for cloud in clouds]
        inner = frames.enter([cloud[order] for cloud, order in zip(clouds, orders, strict=True)])
        runner = Runner(floor=FLOOR, rng=rng, threads=self.options.threads, journal=self.journal)
        fit = runner.fit([Cloud.of(cloud[::2]) for cloud in inner], near(frames.enter_poses(poses, origin), self.names), COARSE)
        sweep = Sweep([Cloud.of(cloud[1::2]) for cloud in inner], threads=self.options.threads)
        _, log_likelihood = sweep.moments(fit.poses, fit.mixture)
        return float(log_likelihood.sum() / sweep.points.sum())


def _begun(problem: Problem, on_pair: Callable[[int, int], object]) -> Start:
    """Start poses for clouds that come without."""
    M, D = len(problem.clouds), problem.clouds[0].shape[1]
    options = problem.options
    as_given = Start((geometry.identity(M, D),), (tuple(range(M)),), AS_THEY_LIE, 0)
    if options.start == "identity":
        return as_given
    if problem.fixed or problem.priors or options.motion != "rigid":
        if options.start == "match":
            raise InputError('start: expected "identity" beside fixed clouds, priors or restricted motion, found "match"')
        as_priors(problem.priors, Frames.of(problem.clouds), np.zeros(D))
        return as_given
    counted = [cloud[weight > 0] for cloud, weight in zip(problem.clouds, problem.weights, strict=True)]
    return nothing.start(
        counted,
        rng=np.random.default_rng(options.seed),
        threads=available_cores() if options.threads is None else options.threads,
        look=options.start == "auto",
        on_pair=on_pair,
        journal=problem.journal,
    )


def _best(
    problem: Problem, starts: Sequence[Float[Array, "M D1 D1"]], begun: Start, group: Sequence[int]
) -> tuple[Registration, tuple[Doubt, ...]]:
    """The fit from the hypothesis that explains held-out points best; once more where it leaves what was matched."""
    if len(starts) > 1:
        starts = sorted(starts, key=problem.held_out, reverse=True)
    result = problem.fit(starts[0])
    lost = nothing.contradicted(begun, result.poses, group)
    if lost and result.status is not Status.STOPPED:
        again = problem.fit(starts[0], seed=1)
        lost_again = nothing.contradicted(begun, again.poses, group)
        if len(lost_again) < len(lost):
            result, lost = again, lost_again
    return result, lost


def _told(result: Registration, begun: Start, lost: Sequence[Doubt]) -> Registration:
    """The result, with what its start says of it: nothing in doubt is called aligned."""
    group_of = {j: g for g, group in enumerate(begun.groups) for j in group}
    doubts = tuple({doubt.cloud: doubt for doubt in [*lost, *begun.doubts]}.values())
    reasons = {doubt.cloud: doubt.reason for doubt in doubts}
    verdicts = []
    for j, verdict in enumerate(result.verdicts):
        if len(begun.groups) > 1 and len(begun.groups[group_of[j]]) > 1:
            where = f"in group {group_of[j] + 1} of {len(begun.groups)}"
            verdict = replace(verdict, reason=f"{where}: {verdict.reason}")
        if j in reasons and verdict.verdict != "failed":
            verdict = replace(verdict, verdict="weak", reason=reasons[j])
        verdicts.append(verdict)
    warnings = []
    if len(begun.groups) > 1:
        lists = "; ".join(", ".join(result.names[j] for j in group) for group in begun.groups)
        warnings.append(
            f"the clouds fall into {len(begun.groups)} groups that nothing connects, each with a frame of its own: {lists}"
        )
    if doubts:
        listed = ", ".join(result.names[doubt.cloud] for doubt in doubts)
        warnings.append(f"the start is ambiguous, and the poses of these clouds may be wrong: {listed}")
    if begun.crashed:
        pairs = ", ".join(f"{result.names[a]} and {result.names[b]}" for a, b in begun.crashed)
        warnings.append(f"the matcher crashed on {len(begun.crashed)} of {begun.pairs} pairs, which were left out: {pairs}")
    return replace(
        result,
        verdicts=tuple(verdicts),
        groups=begun.groups,
        start=begun.source,
        pairs_tried=begun.pairs,
        doubts=doubts,
        warnings=tuple(warnings),
    )
