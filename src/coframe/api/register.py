# SPDX-License-Identifier: MIT
"""`register`: clouds in, poses out. Its body is the algorithm, a stage a call."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from jaxtyping import Float

from coframe.align import cost, schedule
from coframe.align.recipe import ALIGN, AlignRecipe
from coframe.align.targets import adjusted, joined
from coframe.api import inside
from coframe.api.problem import Candidate, Problem, Reports
from coframe.compute.checkpoint import Checkpoint
from coframe.compute.cluster import Client
from coframe.em import loop
from coframe.em.loop import Iteration, Status
from coframe.input.checks import as_indices
from coframe.input.given import open_clouds
from coframe.input.known import as_known
from coframe.input.options import (
    DEFAULTS,
    Options,
    check_callables,
    check_kind,
    check_options,
)
from coframe.input.prior import PosePrior
from coframe.input.targets import ControlPoint, Target, as_survey
from coframe.io import crs as reference_systems
from coframe.result.assemble import Solution, assemble
from coframe.result.registration import Registration
from coframe.start import search
from coframe.start.search import GIVEN, IDENTITY, MATCHED
from coframe.start.turntable import TURNTABLE
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
    level: Sequence[int] = (),
    turntable: float | None = None,
    rematch: Sequence[int] = (),
    max_turn: float | None = None,
    max_shift: float | None = None,
    targets: Sequence[Target] | str | PathLike[str] = (),
    control: Sequence[ControlPoint] | str | PathLike[str] = (),
    crs: str = "",
    names: Sequence[str] | None = None,
    exclude: Sequence[int] = (),
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
    clouds : iterable, mapping, str or path
        M arrays (N_j, D), D = 2 or 3, tables with columns x, y and z, or anything with `.points` or
        `.vertices`; or files, folders and patterns. Of a dictionary, the keys are the names of its
        arrays or files.
    poses : (M, D+1, D+1) array, optional
        Where to start; pose j carries cloud j into the common frame, x = R v + t. Default: found
        (see `Options.start`); with fixed clouds, priors, restricted motion or limits, which need a
        common frame, the clouds start where they are. Clouds that nothing connects end in several
        `groups`, each with a frame of its own.
    options : Options
    weights : sequence of (N_j,) arrays, optional
        The weight of each point; only their ratios count.
    fixed : sequence of int
        Clouds whose pose is known and does not change.
    priors : sequence of PosePrior
        What is known of poses, and how well.
    level : sequence of int
        Clouds of a levelled scanner: they turn about the common z axis only. Where nothing else
        says where the common frame is, the first of them stays.
    turntable : float, optional
        The turn of the object [deg] from each cloud to the next, in their order, about an axis that
        is found from those neighbours that can be matched.
    rematch : sequence of int
        Clouds whose start pose is not used: they are matched with the others anew.
    max_turn, max_shift : float, optional
        Limits [deg], [unit]: clouds start where they are given, are not matched, and have failed
        where they end farther away. A motion of all does not count, unless clouds are fixed.
    targets : sequence of Target, or path
        Where scans see targets: observations of the joint step, with their standard deviations. A
        path names a table, see `read_targets`. Where no start poses are given and targets connect
        all clouds, they give the start.
    control : sequence of ControlPoint, or path
        Known positions of targets, whose frame becomes the common frame, and check points, which
        are held out; a path names a table, see `read_control`. `result.targets` has the residuals.
    crs : str
        The coordinate reference system of the common frame, such as "EPSG:25832"; it is kept and
        written to files, nothing is computed with it. Default: that of the files, where all name
        the same one and the clouds start in it.
    names : sequence of str, optional
        Names of the clouds in messages and results: text on one line, no two alike.
    exclude : sequence of int
        Scans of the files that are left out, by their numbers among all. Poses, names and all
        other numbers are those of the scans that stay.
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
    crs = named = reference_systems.check(crs) if crs else ""
    check_kind("recipe", recipe, AlignRecipe, "an")
    check_callables(on_iteration=on_iteration, on_pair=on_pair, on_progress=on_progress)
    if checkpoint is not None:
        check_kind("checkpoint", checkpoint, Checkpoint)
    with open_clouds(
        clouds,
        weights,
        names,
        threads=options.threads,
        cluster=cluster,
        memory=memory,
        output=output,
        on_file=on_file,
        exclude=exclude,
        check_budget=lambda files: cost.check(files, options, memory or 0, recipe),
    ) as given:
        reports = Reports(on_iteration, on_pair, on_progress, checkpoint)
        count = len(given.names)
        known = as_known(
            level,
            rematch,
            turntable,
            max_turn,
            max_shift,
            count=count,
            given=poses is not None,
        )
        survey = as_survey(targets, control, given.names, given.dimension, options.motion)
        anchors = as_indices(fixed, count, "fixed")
        problem = Problem(given, options, anchors, priors, recipe, reports, survey, known)
        suggested = None
        if poses is None and given.files and cluster is None:
            poses = suggested = inside.agreeing(problem, given.files)
            problem = replace(problem, inside=suggested is not None)
        if checkpoint is not None:
            checkpoint.begin(*problem.fingerprint(poses))
        start = problem.start(poses)
        if start.rivals:
            start = problem.choose(start)
        start = problem.reference(start)
        candidates: list[Candidate] = []
        for group in start.groups:
            if len(group) == 1:
                continue  # nothing connects this cloud with the others
            part = problem.part(start, group)
            tried: list[Candidate] = []
            for attempt in (0, 1):  # a fit that contradicts its start is tried once more
                run = part.run(attempt)
                trials = schedule.trials(run, part.starts)
                if trials.doubtful and start.source != MATCHED:
                    start, matched = problem.match_beside(start, part, trials)
                    trials = schedule.beside(run, trials, matched)
                fit, rivals = schedule.finish(run, trials)
                about = run.frames, part.origin, group, run.constraints
                placed = part.starts[0] if start.source in (GIVEN, TURNTABLE) else None
                again = [i for i, j in enumerate(group) if j in problem.known.rematch]
                solution = Solution(fit, *about, rivals, trials.surfaces, placed, again)
                lost = search.contradicted_clouds(start, solution.poses, group)
                tried.append(Candidate(solution, lost))
                if not lost or start.source != MATCHED or fit.status is Status.STOPPED:
                    break
            candidates.append(min(tried, key=lambda each: len(each.contradicted)))
        result = assemble(
            given,
            [each.solution for each in candidates],
            groups=start.groups,
            matched=start.source == MATCHED,
            doubts=problem.doubts(start, candidates),
            points=options.points,
            output=None if output is None else Path(output),
            recipe=recipe,
            threads=options.threads,
        )
        found = [
            adjusted(survey, given.names, s.group, s.fit, s.frames, s.origin, s.constraints, recipe)
            for s in (each.solution for each in candidates)
        ]
        if not crs and not survey.points and start.source in (GIVEN, IDENTITY):
            crs = reference_systems.common(given.files) if given.files else ""
        if not named and given.files and (mixed := reference_systems.differing(given.files)):
            result = replace(result, warnings=(*result.warnings, mixed))
        result = problem.limited(problem.annotate(result, start, candidates), start)
        source = result.start if suggested is None else inside.INSIDE
        return replace(result.with_targets(joined(found)), crs=crs, start=source)
