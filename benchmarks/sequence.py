# SPDX-License-Identifier: MIT
"""A depth sequence: `coframe.track`, a plain small_gicp odometry and the paper's scheme on the same
frames, in one run.

    pip install small_gicp; python -m benchmarks.sequence [FOLDER] [--published 1] [--skip breaks
    memory]

The odometry is what a user would write today: every fourth pixel, voxels of 3 cm, each frame
against a growing Gaussian voxel map of 5 cm, started with a constant velocity. The two take turns;
the time is that of the whole run, images read included, the best of the rounds. ATE and RPE follow
Sturm et al. (2012): poses matched by time, rigid alignment, all frames. Then the sequence is broken
in several places, by 20 blank frames or 30 missing ones, and goes forth and back several times for
the memory, of which docs/images/memory.svg is the picture. `--published N` runs the paper's scheme
with N times fewer points and components than it has (1: as published, which takes an hour; 0: not
at all).
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from benchmarks import record
from benchmarks.record import ROOT, machine
from coframe.evaluate import trajectory_errors
from coframe.io import trajectory
from coframe.io.frames import FAR, NEAR, FrameSource
from coframe.io.trajectory import Trajectory

DATA = (
    Path(os.environ.get("COFRAME_DATA") or ROOT.parent / "shared" / "data") / "tum_freiburg1_desk"
)
VOXEL = 0.03  # [m] of the odometry's points
MAP = 0.05  # [m] of its map
GATE = 0.1  # [m] correspondences that are farther apart do not count
PLACES = (50, 150, 300, 450)  # where the sequence is broken
BLANK = 20  # frames without points
JUMP = 30  # frames that are missing
AFTER = 60  # frames that are tracked after a break
PICTURE = ROOT / "docs" / "images" / "memory.svg"


def odometry(frames: FrameSource) -> Trajectory:
    """small_gicp, each frame against a growing voxel map."""
    import small_gicp

    grid, pose, motion, poses = small_gicp.GaussianVoxelMap(MAP), np.eye(4), np.eye(4), []
    for i in range(len(frames)):
        points, _ = small_gicp.preprocess_points(
            frames[i].points, downsampling_resolution=VOXEL, num_neighbors=15, num_threads=2
        )
        if i:
            found = small_gicp.align(
                grid,
                points,
                init_T_target_source=pose @ motion,
                max_correspondence_distance=GATE,
                num_threads=2,
            )
            motion, pose = np.linalg.inv(pose) @ found.T_target_source, found.T_target_source
        grid.insert(points, pose)
        poses.append(pose)
    return Trajectory(frames.times, np.array(poses))


def published(folder: Path, count: int, factor: int) -> Trajectory:
    """The paper's scheme, with `factor` times fewer points and components."""
    whole = coframe.PublishedOptions()
    options = replace(
        whole,
        downsampling=factor * whole.downsampling,
        front_components=whole.front_components // factor,
        back_components=whole.back_components // factor,
    )
    return coframe.track_published(
        first(coframe.open_frames(folder, intrinsics=camera(folder), step=1), count),
        options=options,
    )


def measured(run: Callable[[], Trajectory], truth: Trajectory) -> dict[str, Any]:
    """Errors and time of one run."""
    began, cpu = time.perf_counter(), time.process_time()
    path = run()
    seconds = time.perf_counter() - began
    found = path.found() if isinstance(path, coframe.Track) else path
    shift, turn = trajectory_errors.relative_errors(found, truth, seconds=1.0)
    return {
        "ate_rmse": trajectory_errors.absolute_errors(found, truth).rmse,
        "rpe_1s": shift.rmse,
        "rpe_1s_deg": turn.rmse,
        "frames_per_second": len(path) / seconds,
        "cpu_ms_per_frame": (time.process_time() - cpu) / len(path) * 1e3,
        "frames": len(path),
        "lost": int(path.lost.sum()) if isinstance(path, coframe.Track) else None,
    }


def broken(
    frames: FrameSource, truth: Trajectory, kind: str, at: int, seed: int = 0
) -> dict[str, Any]:
    """The sequence up to a break and `AFTER` frames: which are lost, and are the others right?"""
    count = BLANK if kind == "blank" else JUMP
    end = min(at + count + AFTER, len(frames))
    kept = [*range(at), *range(at + count, end)] if kind == "jump" else list(range(end))

    def read(i: int) -> Any:
        frame = frames[kept[i]]
        hidden = kind == "blank" and at <= kept[i] < at + count
        return (
            replace(frame, points=frame.points[:0], weights=frame.weights[:0]) if hidden else frame
        )

    said: list[bool] = []
    part = FrameSource(tuple(frames.names[i] for i in kept), frames.times[kept], read)
    result = coframe.track(
        part, options=coframe.TrackOptions(seed=seed), on_frame=lambda step: said.append(step.lost)
    )
    errors = trajectory_errors.absolute_errors(result.found(), truth)
    return {
        "kind": kind,
        "at": at,
        "said_lost": sum(said),
        "lost_in_the_end": int(result.lost.sum()),
        "recovered": not said[-1],
        "ate_rmse": errors.rmse,
        "largest_error": float(errors.values.max()),
    }


def memory(frames: FrameSource, passes: int, seed: int = 0) -> list[tuple[int, float]]:
    """The sequence forth and back, so many times: frames and memory [MiB]."""
    N = len(frames)
    order = [i if turn % 2 == 0 else N - 1 - i for turn in range(passes) for i in range(N)]
    times = np.arange(len(order)) / 30
    there = FrameSource(
        tuple(frames.names[i] for i in order),
        times,
        lambda i: replace(frames[order[i]], time=float(times[i])),
    )
    held: list[tuple[int, float]] = []

    def watch(step: Any) -> None:
        if step.index % 20 == 0:
            held.append((step.index, resident()))

    coframe.track(there, options=coframe.TrackOptions(seed=seed), on_frame=watch)
    return held


def resident() -> float:
    """Memory of this process now, in MiB."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def picture(held: Sequence[tuple[int, float]], path: Path) -> None:
    """Memory over frames, as SVG."""
    width, height, left, low = 640, 240, 60, 40
    frames, mib = np.array(held).T
    top = float(np.ceil(mib.max() * 1.15 / 50) * 50)
    x, y = (
        left + (width - left - 12) * frames / frames.max(),
        height - low - (height - low - 12) * mib / top,
    )
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    marks = "".join(
        f'<line x1="{left}" x2="{width - 12}" y1="{h:.1f}" y2="{h:.1f}" stroke="#ccc"/>'
        f'<text x="{left - 6}" y="{h + 4:.1f}" text-anchor="end">{value:.0f}</text>'
        for value in np.linspace(0, top, 5)
        for h in [height - low - (height - low - 12) * value / top]
    )
    ends = "".join(
        f'<text x="{left + (width - left - 12) * value / frames.max():.1f}" y="{height - low + 16}"'
        f' text-anchor="middle">{value:.0f}</text>'
        for value in np.linspace(0, frames.max(), 6)
    )
    titles = (
        f'<text x="{(left + width) / 2}" y="{height - 6}" text-anchor="middle">frame</text><text'
        f' transform="translate(14 {height / 2}) rotate(-90)" text-anchor="middle">memory'
        " [MiB]</text>"
    )
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' font-family="sans-serif" font-size="11" fill="#444"><rect width="{width}"'
        f' height="{height}" fill="#fff"/>{marks}{ends}{titles}<polyline points="{line}"'
        ' fill="none" stroke="#0b66b0" stroke-width="1.8"/></svg>\n'
    )


def first(frames: FrameSource, count: int) -> FrameSource:
    return FrameSource(frames.names[:count], frames.times[:count], frames.read)


def camera(folder: Path) -> str | None:
    """The camera by the name of the folder, where that is not written as TUM does."""
    return "freiburg1" if "freiburg1" in folder.name else None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sequence", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frames", type=int, default=10**9, help="only so many frames")
    parser.add_argument(
        "--published",
        type=int,
        default=4,
        metavar="N",
        help="the paper's scheme, N times thinner; 0: not",
    )
    parser.add_argument("--passes", type=int, default=4, help="times forth or back for the memory")
    parser.add_argument("--skip", nargs="*", choices=["peer", "breaks", "memory"], default=[])
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "sequence.json")
    record.add_option(parser)
    options = parser.parse_args(arguments)
    truth = trajectory.read_tum(options.folder / "groundtruth.txt")
    frames = first(
        coframe.open_frames(options.folder, intrinsics=camera(options.folder)), options.frames
    )
    coframe.track(first(frames, 12))  # compilation comes before
    print(
        f"{len(frames)} frames; {machine()['cpu']}, load {machine()['load_at_start']} at the start,"
        f" range {NEAR} to {FAR} m"
    )
    report: dict[str, Any] = {"folder": str(options.folder), "machine": machine(), "rows": []}

    def keep() -> None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(report, indent=1) + "\n")

    methods: dict[str, Callable[[], Trajectory]] = {
        "small_gicp": lambda: odometry(frames),
        "coframe": lambda: coframe.track(frames, options=coframe.TrackOptions(seed=options.seed)),
    }
    for _ in range(options.rounds):
        for method in methods if "peer" not in options.skip else ["coframe"]:
            report["rows"].append({"method": method, **measured(methods[method], truth)})
            show(report["rows"][-1])
            keep()
    fastest = {row["method"]: 0.0 for row in report["rows"]}
    for row in report["rows"]:
        fastest[row["method"]] = max(fastest[row["method"]], row["frames_per_second"])
    if len(fastest) == 2:
        print(
            f"coframe has {fastest['coframe'] / fastest['small_gicp']:.2f} x the frames per second"
            " of small_gicp"
        )
    if options.published:
        row = measured(lambda: published(options.folder, len(frames), options.published), truth)
        report["rows"].append(
            {"method": f"published, 1/{options.published} of the points and components", **row}
        )
        show(report["rows"][-1])
        keep()
    if "breaks" not in options.skip:
        report["breaks"] = []
        for kind in ("blank", "jump"):
            for at in [place for place in PLACES if place + JUMP < len(frames)]:
                report["breaks"].append(broken(frames, truth, kind, at, options.seed))
                print(report["breaks"][-1], flush=True)
                keep()
    if "memory" not in options.skip:
        held = memory(frames, options.passes, options.seed)
        report["memory_mib"] = held
        picture(held, PICTURE)
        after = [mib for index, mib in held if index >= 200]
        if after:
            print(
                f"memory after 200 frames {after[0]:.0f} MiB, at the end ({held[-1][0]} frames)"
                f" {after[-1]:.0f} MiB"
            )
    keep()
    tabulate(report, options.records)


def tabulate(report: dict[str, Any], folder: Path) -> None:
    """The two tables of docs/sequences.md: methods side by side, and breaks."""
    rows = []
    for method in dict.fromkeys(row["method"] for row in report["rows"]):
        runs = [row for row in report["rows"] if row["method"] == method]
        best = max(runs, key=lambda row: row["frames_per_second"])
        rows.append(
            [
                method,
                f"{best['ate_rmse']:.4f} m",
                f"{best['rpe_1s']:.3f} m, {best['rpe_1s_deg']:.1f} deg",
                "-" if best["lost"] is None else str(best["lost"]),
                f"{best['frames_per_second']:.1f}",
                f"{best['cpu_ms_per_frame']:.0f} ms",
            ]
        )
    columns = ["", "ATE RMSE", "RPE in 1 s", "lost", "frames/s", "CPU a frame"]
    what = f"All {report['rows'][0]['frames']} frames of {Path(report['folder']).name}."
    record.save("sequence", what, columns, rows, folder=folder)
    kinds = {"blank": f"{BLANK} frames blank at", "jump": f"{JUMP} frames missing at"}
    breaks = {kind: [b for b in report.get("breaks", []) if b["kind"] == kind] for kind in kinds}
    if not all(breaks.values()):
        return
    figures = {
        "reported as lost at first": ("said_lost", "", ""),
        "lost in the end": ("lost_in_the_end", "", ""),
        "ATE of all others": ("ate_rmse", ".3f", " m"),
    }
    rows = [
        [title, *(", ".join(f"{b[key]:{form}}" for b in each) + unit for each in breaks.values())]
        for title, (key, form, unit) in figures.items()
    ]
    places = [", ".join(str(b["at"]) for b in each) for each in breaks.values()]
    columns = ["", *(f"{kind} {at}" for kind, at in zip(kinds.values(), places, strict=True))]
    record.save(
        "sequence-breaks", f"{AFTER} frames after each break.", columns, rows, folder=folder
    )


def show(row: dict[str, Any]) -> None:
    lost = "" if row["lost"] is None else f", {row['lost']} lost"
    print(
        f"{row['method']:11s} ATE {row['ate_rmse']:.4f} m, RPE {row['rpe_1s']:.4f} m and"
        f" {row['rpe_1s_deg']:.2f} deg in 1 s, {row['frames_per_second']:.1f} frames/s,"
        f" {row['cpu_ms_per_frame']:.0f} ms of CPU a frame{lost}",
        flush=True,
    )


if __name__ == "__main__":
    main()
