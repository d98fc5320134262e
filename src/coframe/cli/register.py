# SPDX-License-Identifier: MIT
"""`coframe register`."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coframe.cli import signals
from coframe.cli.app import (
    AsJson,
    Output,
    Quiet,
    Seed,
    Strict,
    Threads,
    WithReport,
    complain,
    counted,
    say,
    say_json,
    say_table,
)
from coframe.cli.chosen import Chosen
from coframe.cli.interrupt import interruptible
from coframe.cli.output import INSIDE, claimed, say_unused_poses
from coframe.cli.show import (
    as_json_content,
    fails,
    next_step,
    run_so_far,
    say_warnings,
    target_sentence,
    target_table,
    verdict_table,
)
from coframe.cli.watch import watching

if TYPE_CHECKING:
    from coframe import Iteration, Options, Registration
    from coframe.cli.watch import Watch
    from coframe.compute.cluster import Client
    from coframe.report import Run
    from coframe.result.quality import Quality
    from coframe.types import Array

SECONDS = 10.0  # [limit] [s] to wait for a scheduler


class Method(StrEnum):
    """How clouds are registered."""

    REGISTER = "register"
    PAPER = "paper"


def register(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES", help="Two or more clouds: files of any format, folders, patterns."
        ),
    ],
    output: Output,
    poses: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|inside",
            help=(
                "Start poses in any format, matched by name, or in the order of FILES if they have"
                " no names; inside: those that the E57, PTX or PCD files hold. Default: those, if"
                " the scans agree with them, else estimated."
            ),
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            metavar="auto|identity|match",
            help=(
                "identity: start from the clouds' own coordinates or --poses; match: by matching"
                " their shapes; auto: match if needed."
            ),
        ),
    ] = "auto",
    method: Annotated[
        Method,
        typer.Option(help="paper: JRMPC-B as published; clouds start centred on each other."),
    ] = Method.REGISTER,
    components: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Gaussians of the model. Default: 1000; paper: 60 % of a cloud, at most 1000.",
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A cloud whose pose is known; repeat for more."),
    ] = None,
    prior: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Poses with standard deviations: JSON {NAME: {"pose", "turn", "shift"}}.',
        ),
    ] = None,
    motion: Annotated[
        str,
        typer.Option(
            metavar="rigid|yaw|translation",
            help="How clouds may move; yaw: turns about the z axis only, for a levelled scanner.",
        ),
    ] = "rigid",
    level: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A cloud of a levelled scanner: it turns about the z axis only; repeat for more.",
        ),
    ] = None,
    turntable: Annotated[
        float | None,
        typer.Option(
            metavar="DEG",
            help="The object turned by so much from each cloud to the next, in order of names.",
        ),
    ] = None,
    rematch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A cloud whose pose in --poses is wrong or missing: match it with the others.",
        ),
    ] = None,
    max_shift: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="Clouds that end farther than this from where they are given failed, as 50cm.",
        ),
    ] = None,
    max_turn: Annotated[
        float | None, typer.Option(metavar="DEG", help="The same for their turn, in degrees.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The cloud whose frame becomes the common frame; not beside --fixed and --prior.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A cloud to leave out, or a scan of a file; repeat for more."
        ),
    ] = None,
    targets: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where scans see targets: a table scan,name,x,y,z[,sd]."),
    ] = None,
    target_sd: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH", help="Standard deviation of targets without one in the table: 3mm."
        ),
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Known positions of targets: a table name,x,y,z[,sd[,role]]; their frame becomes"
                " the common frame."
            ),
        ),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A control point to hold out as a check; repeat for more."
        ),
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="Say which share of the distances between scans is within this, such as 6mm.",
        ),
    ] = None,
    crs: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Coordinate reference system of the result, such as EPSG:25832; kept in files.",
        ),
    ] = "",
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="m|cm|mm|km|in|ft",
            help="The unit of the clouds, for lengths such as 6mm and the report. Default: m.",
        ),
    ] = None,
    project: Annotated[str, typer.Option(metavar="TEXT", help="The title of the report.")] = "",
    seed: Seed = 0,
    threads: Threads = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory budget, such as 2GB: clouds stay in files and are read in blocks."
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help=(
                "Dask scheduler, tcp://... or tls://...; its workers read the files. A run ends"
                " when there has been no worker for 30 s."
            )
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run in the same folder.")
    ] = False,
    strict: Strict = False,
    report: WithReport = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Bring clouds into one common frame.

    Clouds can come straight from the scanner; start poses help if you have them. After Ctrl-C, the
    same command with --resume goes on and ends with the same result. If a result looks wrong, the
    last line says what to try next.

    Examples:

    coframe register scans/*.ply -o out

    coframe register scans -o out --poses start.json

    coframe register scans -o out --json --no-report --strict

    coframe register scans -o out --fixed scan0 --motion yaw

    coframe register scans -o out --exclude scan2 --reference scan1

    coframe register views -o turned --turntable 30

    coframe register scans -o again --poses out/poses.json --rematch scan2

    coframe register scans -o out --targets targets.csv --control control.csv

    coframe register scans -o out --memory 2GB

    coframe register scans -o out --scheduler tcp://10.0.0.1:8786

    coframe register scans -o out --method paper --components 300
    """
    import coframe
    from coframe import report as reports
    from coframe.api import inside
    from coframe.errors import InputError
    from coframe.geometry import identity
    from coframe.input.targets import read_control
    from coframe.input.units import check_unit, length

    started = time.perf_counter()
    scale = check_unit(unit or "m")
    options = coframe.Options(
        components=components or 1000, motion=motion, start=start, seed=seed, threads=threads
    )
    published = method is Method.PAPER
    if published and (resume or memory or scheduler):
        raise InputError(
            "method: expected register beside --resume, --memory and --scheduler, found paper;"
            " leave out --method or the others"
        )
    limits = (turntable, max_shift, max_turn)
    if published and (
        fixed or prior or targets or level or rematch or motion != "rigid" or any(limits)
    ):
        raise InputError(
            "method: expected register beside what is known of clouds (--fixed, --prior, --motion,"
            " --level, --turntable, --rematch, --max-shift, --max-turn, --targets), found paper;"
            " leave out --method or the others"
        )
    if rematch and poses is None:
        raise InputError(
            "rematch: expected --poses with the poses of the other clouds, found none; add it, or"
            " leave --rematch out: without poses, all clouds are matched"
        )
    if control and (reference or not targets):
        found = "--reference" if reference else "no --targets"
        raise InputError(
            f"control: expected --targets and no --reference beside it, found {found}; the common"
            " frame is that of the control points, and targets say where scans see them"
        )
    if reference and (fixed or prior):
        found = "--fixed" if fixed else "--prior"
        raise InputError(
            f"reference: expected neither --fixed nor --prior beside it, found {found}, which says"
            " where the common frame is; leave --reference out, or use result.relative_to in Python"
        )
    if (check and not control) or (target_sd and not targets):
        raise InputError(
            "--check, --target-sd: expected --control beside --check and --targets beside"
            " --target-sd, found none; add it, or leave them out"
        )
    if reference and (memory or scheduler):
        raise InputError(
            "reference: expected clouds in memory, found --memory or --scheduler; leave"
            " --reference out and use --fixed, or result.relative_to in Python"
        )
    chosen = Chosen.of(files, exclude or ())
    paths = chosen.paths
    anchors = chosen.indices(fixed or (), "fixed")
    levelled = chosen.indices(level or (), "level")
    again = chosen.indices(rematch or (), "rematch")
    frame = chosen.indices([reference] if reference else (), "reference")
    priors = chosen.priors(prior) if prior else []
    _check_crs_unit(paths, crs, unit)
    within = None if tolerance is None else length(tolerance, scale, "tolerance")
    deviation = None if target_sd is None else length(target_sd, scale, "target-sd")
    seen = chosen.targets(targets, deviation) if targets else []
    positions = read_control(control, check or ()) if control else []
    reach = None if max_shift is None else length(max_shift, scale, "max-shift")
    bound = bool(anchors or priors or levelled or motion != "rigid" or max_shift or max_turn)
    if poses is None and bound and start == "auto" and turntable is None and chosen.hold_poses:
        poses = Path(INSIDE)
        complain(
            "start: the poses inside the files, since fixed clouds, priors, restricted motion and"
            " limits need a common frame; for the clouds' own coordinates, add --start identity"
        )
    known = chosen.poses(poses, unknown=again)
    clouds: dict[str, Any] = {"names": chosen.names if exclude else None, "exclude": chosen.exclude}
    if memory is not None:
        _check_memory(paths, options, memory, quiet or as_json)
    with (
        claimed(output, reports.files(page=report), paths),
        watching(quiet) as watch,
        _workers(scheduler) as cluster,
        nullcontext() if published else interruptible(output, resume, quiet=quiet) as checkpoint,
    ):
        if published:
            result = _published(paths, known, components, options, watch, clouds)
        else:
            result = coframe.register(
                paths,
                known,
                options=options,
                fixed=anchors,
                priors=priors,
                level=levelled,
                turntable=turntable,
                rematch=again,
                max_turn=max_turn,
                max_shift=reach,
                targets=seen,
                control=positions,
                crs=crs,
                checkpoint=checkpoint,
                memory=memory,
                cluster=cluster,
                output=None if memory is None and cluster is None else output,
                **clouds,
                **watch.callbacks,
            )
        watch.show("writing")
        result = reports.complete(result.relative_to(frame[0]) if frame else result)
        if known is None and result.start == inside.INSIDE:
            known = inside.read(paths, chosen.exclude)
        first = identity(len(result.poses), result.mixture.dimension) if known is None else known
        run = run_so_far(
            started,
            options,
            first,
            fixed=fixed,
            prior=prior and str(prior),
            level=level,
            turntable=turntable,
            rematch=rematch,
            max_shift=max_shift,
            max_turn=max_turn,
            reference=reference,
            exclude=exclude,
            targets=targets and str(targets),
            target_sd=target_sd,
            control=control and str(control),
            check=check,
            distance_tolerance=tolerance,  # Options has a tolerance, too
            crs=crs,
            unit=unit or (scale if tolerance or target_sd or max_shift else None),
            project=project,
        )
        said = {name: value for name, value in run.options.items() if name not in asdict(options)}
        result = replace(result, options={**said, **result.options})
        quality = coframe.assess(result, within)
        written = reports.write_folder(result, output, run=run, page=report, quality=quality)
    if as_json:
        say_json(as_json_content(output, written, started))
    elif not quiet:
        step = next_step(result, bound=bound, tried=[chosen.names[j] for j in again])
        _show(result, quality, run, output, written, step)
        if poses is None and result.start != inside.INSIDE and turntable is None:
            searched = start == "auto" and result.start in ("identity", "matched")
            tried = searched and not (published or scheduler or bound)
            contradicted = tried and inside.read(paths, chosen.exclude) is not None
            say_unused_poses(paths, contradicted=contradicted)
    if fails(result, strict=strict):
        raise typer.Exit(1)


def _check_crs_unit(paths: list[Path], crs: str, unit: str | None) -> None:
    """Refuse a unit that is not that of the reference system of the clouds."""
    from coframe.errors import InputError
    from coframe.input.units import SAME, UNITS
    from coframe.io import crs as systems

    for path in paths if unit else ():
        named = crs or systems.read(path)
        metres = systems.metres(named) if named else None
        if metres is not None and abs(UNITS[unit or "m"] / metres - 1) > SAME:
            own = next(
                (each for each, value in UNITS.items() if abs(value / metres - 1) < SAME), ""
            )
            raise InputError(
                f"unit: expected {own or f'{metres:g} m'}, the unit of the coordinate reference"
                f" system {systems.title(named)} of {path}, found {unit}; leave out what is wrong"
            )


def _check_memory(paths: list[Path], options: "Options", memory: str, quiet: bool) -> None:
    """Print what the run will take, and refuse a budget that is too small."""
    from coframe.align import cost

    estimate = cost.estimate(paths, options)
    if not quiet:
        budget = cost.bytes_of(memory) / 1e6
        say(f"{counted(len(paths), 'file')}, {estimate.described()}, of {budget:.0f} MB")
    cost.check(len(paths), options, memory)


def _published(
    paths: list[Path],
    poses: "Array | None",
    components: int | None,
    options: "Options",
    watch: "Watch",
    clouds: dict[str, Any],
) -> "Registration":
    from coframe import paper
    from coframe.paper.published import ITERATIONS

    def on_iteration(step: "Iteration") -> None:
        watch.iteration(step)
        watch.progress(watch.iterations / ITERATIONS)

    return paper.batch_with_defaults(
        paths,
        poses,
        components,
        seed=options.seed,
        threads=options.threads,
        on_file=watch.file,
        on_iteration=on_iteration,
        **clouds,
    )


@contextmanager
def _workers(scheduler: str | None) -> "Iterator[Client | None]":
    """A client of the scheduler; certificates for tls:// come from Dask's own configuration."""
    if scheduler is None:
        yield None
        return
    from coframe.errors import InputError, one_line, optional

    distributed = optional("distributed", "cluster", "scheduler")
    _silence_dask()
    try:
        client = _connect(
            lambda: distributed.Client(
                scheduler, direct_to_workers=True, set_as_default=False, timeout=SECONDS
            )
        )
    except Exception as error:  # An HTTP server's answer, say, is read as a length: MemoryError.
        signals.ending.at_once = True
        raise InputError(
            f"scheduler: expected the address of a Dask scheduler, found {scheduler}"
            f" ({one_line(error)}); check that it runs and can be reached"
        ) from None
    try:
        yield client
    except BaseException:
        signals.ending.at_once = True
        raise
    client.close()


def _connect(make_client: "Callable[[], Client]") -> "Client":
    """A client, or TimeoutError: a server of another kind may keep Dask waiting for ever."""
    from concurrent.futures import Future, wait

    found: Future[Client] = Future()

    def connect() -> None:
        try:
            found.set_result(make_client())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=connect, name="coframe-connect", daemon=True).start()
    wait([found], SECONDS + 1)
    if not found.done():
        raise TimeoutError(f"no answer of that kind within {SECONDS:g} s")
    return found.result()


def _silence_dask() -> None:
    """What goes wrong is said by coframe, in one sentence."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _show(
    result: "Registration",
    quality: "Quality",
    run: "Run",
    output: Path,
    written: list[str],
    step: str,
) -> None:
    say_table(verdict_table(result, quality, run))
    tried = (
        f", {result.pairs_tried} pair{'s' * (result.pairs_tried > 1)} tried"
        if result.pairs_tried
        else ""
    )
    from coframe.api import inside

    source = result.start
    if source == inside.INSIDE:
        source = "poses inside the files, which agree with the scans"
    say(f"start: {source}{tried}")
    if result.targets is not None:
        say_table(target_table(result.targets, run.unit))
        say(target_sentence(result.targets, run.unit))
    say_warnings(result, step)
    published = result.options["method"] == Method.PAPER
    ended = f"{result.iterations} iterations, as published" if published else result.status.sentence
    if not any(warning.endswith(ended) for warning in result.warnings):
        say(ended)
    say(f"wrote {', '.join(written)} to {output}/")
