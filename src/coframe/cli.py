# SPDX-License-Identifier: MIT
"""The command line. It parses, shows and writes; the work is done by the library, imported where a command needs it."""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from coframe import Iteration, Options, Registration, simulate
    from coframe.arrays import Array
    from coframe.sequence.frames import Frames
    from coframe.sequence.tracking import Tracker

app = typer.Typer(
    help="Bring many overlapping point clouds into one common frame, jointly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
console = Console()
CHECKPOINT = 100  # frames of a sequence from one saved state to the next

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the result.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn at random.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads; default: all cores. The result is the same.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
EXPORTS = "Poses: json, matrix, aln, mlp, conf, tum, kitti, open3d. Points: e57, ply, pcd, las, laz, xyz, csv, npy, aligned."
EXTRAS = {  # extra -> package, what it is for
    "las": ("laspy", "LAS and LAZ files"),
    "pcd": ("python-neo-lzf", "compressed PCD files"),
    "e57": ("pye57", "E57 files"),
    "mesh": ("trimesh", "OBJ, STL and OFF files"),
    "images": ("pillow", "depth images"),
    "cluster": ("distributed", "clusters"),
}
SELF_TEST = 1.0  # degrees; the scene of the self-test leaves 0.17


def main() -> None:
    """The `coframe` command. Exit codes: 0 done, 1 a cloud failed, 2 bad input or usage, 130 interrupted."""
    from coframe.clouds import InputError

    try:
        app()
    except InputError as error:
        print(f"coframe: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("coframe: interrupted", file=sys.stderr)
        sys.exit(130)


def _show_version(wanted: bool) -> None:
    if wanted:
        import coframe

        print(f"coframe {coframe.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of coframe itself."""


@app.command()
def demo(
    output: Output = Path("demo"),
    views: Annotated[int, typer.Option(min=2, help="Number of scans.")] = 6,
    points: Annotated[int, typer.Option(min=100, help="Points per scan, about.")] = 2000,
    outliers: Annotated[float, typer.Option(min=0, max=1, help="Outliers per true point.")] = 0.1,
    noise: Annotated[float, typer.Option(help="Signal-to-noise ratio of the points, in dB.")] = 45.0,
    seed: Seed = 0,
    threads: Threads = None,
) -> None:
    """Simulate scans of a known shape, register them, and compare with the truth.

    Example:  coframe demo --views 8 --outliers 0.2 -o demo
    """
    import numpy as np

    from coframe import Options, register, simulate

    begun = time.perf_counter()
    rng = np.random.default_rng(seed)
    degrees = 360.0 * (views - 1) / views
    scene = simulate.scene(views, points, degrees=degrees, noise_db=noise, outliers=outliers, rng=rng)
    with _progress(quiet=False) as (on_iteration, on_pair):
        chosen = Options(seed=seed, threads=threads)
        result = register(scene.clouds, options=chosen, on_iteration=on_iteration, on_pair=on_pair)
    result.save(output)
    _write_report(output, result, chosen, None, begun)
    console.print(_demo_table(result, scene))
    console.print(f"Wrote poses.json, merged.ply, model.ply, state.npz and report.html to {output}/")


@app.command()
def register(
    files: Annotated[list[Path], typer.Argument(help="Two or more clouds: files of any format, folders, patterns.")],
    output: Output,
    poses: Annotated[
        Path | None, typer.Option(help="Start poses in any format, matched by name. Default: they are found.")
    ] = None,
    start: Annotated[
        str,
        typer.Option(help="Without --poses: 'identity' takes clouds as they lie, 'match' matches them, 'auto' looks first."),
    ] = "auto",
    components: Annotated[int, typer.Option(min=1, help="Gaussians of the model.")] = 1000,
    seed: Seed = 0,
    threads: Threads = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True,
    quiet: Quiet = False,
) -> None:
    """Register clouds as they come from the scanner, or from start poses.

    Example:  coframe register scans/*.ply -o out
    """
    import coframe
    from coframe.clouds import as_clouds
    from coframe.export import described
    from coframe.io import clouds as cloud_files
    from coframe.io import poses as pose_files

    begun = time.perf_counter()
    scans, files = cloud_files.open_all(files)
    clouds = as_clouds([scan.points for scan in scans], names=[str(path) for path in files])
    names = [scan.name for scan in scans]
    known = pose_files.read_for(poses, names) if poses else None
    options = coframe.Options(components=components, start=start, seed=seed, threads=threads)
    with _progress(quiet) as (on_iteration, on_pair):
        result = coframe.register(clouds, known, options=options, names=names, on_iteration=on_iteration, on_pair=on_pair)
    result = described(result, scans, files)
    result.save(output)
    if report:
        _write_report(output, result, options, known, begun)
    if not quiet:
        console.print(_verdict_table(result))
        tried = f", {result.pairs_tried} pairs tried" if result.pairs_tried else ""
        console.print(f"start: {result.start}{tried}")
        for warning in result.warnings:
            console.print(f"warning: {warning}", markup=False)
        written = "poses.json, merged.ply, model.ply, state.npz" + (", report.html" if report else "")
        console.print(f"{result.status.value}; wrote {written} to {output}/")
    if any(verdict.verdict == "failed" for verdict in result.verdicts):
        raise typer.Exit(1)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="Folder that `coframe register` wrote.")], quiet: Quiet = False) -> None:
    """Make the report of a result again: report.html, one page that needs nothing else.

    Example:  coframe report out
    """
    import coframe
    from coframe import report as reports
    from coframe.report import run

    result = coframe.load(folder)
    known = run.load(folder, result.poses.shape)
    path = reports.write(result, folder / "report.html", run=known, colours=reports.stored_colours(folder, result))
    if not quiet:
        console.print(f"Wrote {path}")


def _write_report(folder: Path, result: "Registration", options: "Options", start: "Array | None", begun: float) -> None:
    """report.html, and run.json with what the result itself does not know. Without start poses, clouds start as they lie."""
    from dataclasses import asdict

    from coframe import geometry
    from coframe import report as reports

    start = geometry.identity(len(result.poses), result.mixture.dimension) if start is None else start
    command = shlex.join(["coframe", *sys.argv[1:]])
    run = reports.Run(command, asdict(options), seconds=time.perf_counter() - begun, start=start)
    run.save(folder)
    reports.write(result, folder / "report.html", run=run, colours=reports.stored_colours(folder, result))


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a result.")],
    to: Annotated[str, typer.Option(help=EXPORTS)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File or folder to write. Default: one in DIR.")] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Leave the outliers out.")] = False,
) -> None:
    """Write a result for other programs.

    Examples:

    coframe export out --to mlp -o scans.mlp     for MeshLab

    coframe export out --to matrix -o matrices   for CloudCompare

    coframe export out --to aligned -o aligned   every input in its own format

    coframe export out --to laz --clean -o all.laz
    """
    import coframe
    from coframe.export import export as write

    for path in write(coframe.load(folder), to, folder, output, clean=clean):
        print(path)


@app.command()
def extend(
    folder: Annotated[Path, typer.Argument(help="Folder with a result of register or extend.")],
    files: Annotated[list[Path], typer.Argument(help="One or more clouds to add, in this order.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the result. Default: the same.")] = None,
    start: Annotated[
        str, typer.Option(help="Where a cloud starts: previous, velocity, or match (from anywhere).")
    ] = "previous",
    poses: Annotated[Path | None, typer.Option(help="Start poses, matched by file name.")] = None,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Add clouds to a registration; the ones already there stay where they are.

    Example:  coframe extend out scans/new.ply --start match
    """
    import coframe
    from coframe.clouds import InputError
    from coframe.io import poses as pose_files

    result = coframe.load(folder)
    before = len(result.clouds)
    known = pose_files.read_for(poses, [path.stem for path in files]) if poses else [start] * len(files)
    options = coframe.Options(seed=seed, threads=threads)
    for path, pose in zip(files, known, strict=True):
        if path.stem in result.names:
            raise InputError(f"{path}: expected a cloud that is not in {folder} yet, found {path.stem} there")
        result = coframe.extend(result, path, pose, options=options)
    result.save(output or folder)
    if not quiet:
        console.print(_verdict_table(result))
        console.print(f"added {len(files)} to {before} clouds; wrote {output or folder}/")
    if any(verdict.verdict == "failed" for verdict in result.verdicts[before:]):
        raise typer.Exit(1)


@app.command()
def track(
    sequence: Annotated[Path, typer.Argument(help="Folder: TUM RGB-D, depth images with intrinsics.json, or clouds.")],
    output: Output,
    intrinsics: Annotated[
        str | None,
        typer.Option(help="Camera: a JSON file with fx, fy, cx, cy, scale; or freiburg1, freiburg2, freiburg3, kinect."),
    ] = None,
    points: Annotated[int, typer.Option(min=100, help="Points of a frame.")] = 1500,
    components: Annotated[int, typer.Option(min=10, help="Gaussians that frames are placed against.")] = 1000,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run in the same folder ended.")] = False,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Follow a sensor through a depth sequence.

    Example:  coframe track rgbd_dataset_freiburg1_desk -o desk
    """
    from coframe.sequence import frames
    from coframe.sequence.tracking import Tracker, TrackOptions

    camera = frames.read_intrinsics(intrinsics) if intrinsics and Path(intrinsics).suffix == ".json" else intrinsics
    source = frames.open_frames(sequence, intrinsics=camera)
    state = output / "state.npz"
    options = TrackOptions(points=points, components=components, seed=seed, threads=threads)
    tracker = Tracker.load(state) if resume else Tracker(options)
    output.mkdir(parents=True, exist_ok=True)
    stopped = _follow(tracker, source, state, quiet)
    result = tracker.result()
    _write_track(output, tracker, source)
    if not quiet:
        lost = int(result.lost.sum())
        console.print(f"{len(result)} of {len(source)} frames, {lost} lost, {len(result.keyframes)} key frames")
        console.print(f"wrote trajectory.txt, model.ply, merged.ply, track.json and state.npz to {output}/")
    if stopped:
        print(f"coframe: interrupted; go on with: coframe track {sequence} -o {output} --resume", file=sys.stderr)
        raise typer.Exit(130)


def _follow(tracker: "Tracker", source: "Frames", state: Path, quiet: bool) -> bool:
    """Give the tracker all frames; after Ctrl-C the frame at hand is finished first. Returns whether the run was stopped."""
    import signal

    from coframe.sweeps import quiet_blas

    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    before = signal.signal(signal.SIGINT, stop)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    try:
        hidden = quiet or not console.is_terminal
        with quiet_blas(), Progress(*columns, console=console, transient=True, disable=hidden) as progress:
            first, began = len(tracker.times), time.perf_counter()
            task = progress.add_task(f"frame {first} of {len(source)}")
            for frame in source.prepared(tracker.prepared, first):
                step = tracker.add(frame)
                rate = (step.index + 1 - first) / (time.perf_counter() - began)
                quality = "lost" if step.lost else f"{step.explained:.0%} explained"
                progress.update(task, description=f"frame {step.index + 1} of {len(source)}: {rate:.0f} frames/s, {quality}")
                if (step.index + 1) % CHECKPOINT == 0:
                    tracker.save(state)
                if stopped:
                    break
    finally:
        signal.signal(signal.SIGINT, before)
    tracker.save(state)
    return stopped


def _write_track(output: Path, tracker: "Tracker", source: "Frames") -> None:
    import json
    from dataclasses import asdict
    from importlib.metadata import version

    import numpy as np

    from coframe import trajectory
    from coframe.io import ply
    from coframe.io.files import atomic

    result = tracker.result()
    trajectory.write_tum(output / "trajectory.txt", result.found())
    if result.keyframes:
        model = result.model()
        ply.write(output / "model.ply", model.means, variance=model.variances, weight=model.weights)
        sizes = [len(keyframe.cloud) for keyframe in result.keyframes]
        indices = np.array([keyframe.index for keyframe in result.keyframes], "<i4")
        ply.write(output / "merged.ply", result.merged(), frame=np.repeat(indices, sizes))
    report = {
        "format": "coframe-track/1",
        "frames": len(result),
        "of": len(source),
        "lost": [source.names[i] for i in np.flatnonzero(result.lost)],
        "explained": [round(share, 4) for share in result.explained.tolist()],
        "keyframes": [keyframe.index for keyframe in result.keyframes],
        "options": asdict(tracker.options),
        "version": version("coframe"),
    }
    with atomic(output / "track.json") as temporary:
        temporary.write_text(json.dumps(report, indent=1) + "\n")


@app.command()
def doctor() -> None:
    """Show versions, threads and optional packages, and register a small scene whose answer is known.

    Example:  coframe doctor
    """
    import os
    import platform
    import time
    from importlib.metadata import PackageNotFoundError, version

    import numpy as np

    import coframe
    from coframe import metrics, simulate

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return ""

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"coframe {coframe.__version__}, Python {platform.python_version()} on {platform.platform()}, {cores} threads")
    print("  " + ", ".join(f"{package} {installed(package)}" for package in ("numpy", "scipy", "numba", "plyfile")))
    for extra, (package, purpose) in EXTRAS.items():
        found = installed(package)
        print(f"  {purpose}: " + (f"{package} {found}" if found else f"absent; pip install 'coframe[{extra}]'"))
    scene = simulate.scene(3, 300, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    began = time.perf_counter()
    result = coframe.register(scene.clouds)
    seconds = time.perf_counter() - began
    error = float(metrics.rotation_errors(result.poses, scene.poses).max())
    good = error < SELF_TEST and all(verdict.verdict == "aligned" for verdict in result.verdicts)
    print(f"  self-test: {'passed' if good else 'FAILED'}, largest rotation error {error:.3f} deg, {seconds:.1f} s")
    if not good:
        raise typer.Exit(1)


@contextmanager
def _progress(quiet: bool) -> "Iterator[tuple[Callable[[Iteration], None], Callable[[int, int], None]]]":
    """A line that shows where the run is; callbacks move it, for iterations and for pairs."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task, done = progress.add_task("reading the scene"), 0

        def show(iteration: "Iteration") -> None:
            nonlocal done
            done += 1
            text = f"iteration {done}: log-likelihood {iteration.log_likelihood:.5g}, largest step {iteration.step:.1e}"
            progress.update(task, description=text)

        def show_pair(pair: int, pairs: int) -> None:
            progress.update(task, description=f"matching: pair {pair} of {pairs}")

        yield show, show_pair


def _verdict_table(result: "Registration") -> Table:
    table = Table("cloud", "points", "verdict", "overlap", "residual", "reason")
    for name, cloud, verdict in zip(result.names, result.clouds, result.verdicts, strict=True):
        figures = f"{verdict.overlap:.0%}", f"{verdict.residual:.3g}"
        reason = "" if verdict.verdict == "aligned" else verdict.reason
        table.add_row(name, str(len(cloud)), verdict.verdict, *figures, reason)
    return table


def _demo_table(result: "Registration", scene: "simulate.Scene") -> Table:
    from coframe import metrics

    errors = metrics.rotation_errors(result.poses, scene.poses)
    table = Table("cloud", title="Registered against the truth")
    for heading in ("points", "rotation error", "verdict", "outliers", "found", "false alarms"):
        table.add_column(heading, justify="right")
    for j, (keep, true) in enumerate(zip(result.inliers(), scene.outliers, strict=True)):
        found, false_alarms = (~keep & true).sum(), (~keep & ~true).sum()
        table.add_row(
            str(j),
            str(len(keep)),
            "reference" if j == 0 else f"{errors[j]:.3f} deg",
            result.verdicts[j].verdict,
            str(true.sum()),
            _share(found, true.sum()),
            _share(false_alarms, (~true).sum()),
        )
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"
