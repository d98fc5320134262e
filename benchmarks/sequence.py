# SPDX-License-Identifier: MIT
"""A depth sequence: `coframe.track` and a plain small_gicp odometry on the same frames, in one run, taking turns.

    pip install small_gicp; python -m benchmarks.sequence [FOLDER]

The odometry is what a user would write today: every fourth pixel, voxels of 3 cm, each frame against a growing Gaussian voxel
map of 5 cm, started with a constant velocity. The time is that of the whole run, images read included, the best of the rounds.
ATE and RPE follow Sturm et al. (2012): poses matched by time, rigid alignment, all frames.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from benchmarks.multiview import ROOT, machine
from coframe import trajectory
from coframe.sequence.frames import FAR, NEAR
from coframe.trajectory import Trajectory

DATA = Path(os.environ.get("COFRAME_DATA") or ROOT.parent / "shared" / "data") / "tum_freiburg1_desk"
VOXEL, MAP, GATE = 0.03, 0.05, 0.1  # m, of the odometry


def odometry(frames: Any) -> Trajectory:
    """small_gicp, each frame against a growing voxel map."""
    import small_gicp

    grid, pose, motion, poses = small_gicp.GaussianVoxelMap(MAP), np.eye(4), np.eye(4), []
    for i in range(len(frames)):
        points, _ = small_gicp.preprocess_points(
            frames[i].points, downsampling_resolution=VOXEL, num_neighbors=15, num_threads=2
        )
        if i:
            found = small_gicp.align(
                grid, points, init_T_target_source=pose @ motion, max_correspondence_distance=GATE, num_threads=2
            )
            motion, pose = np.linalg.inv(pose) @ found.T_target_source, found.T_target_source
        grid.insert(points, pose)
        poses.append(pose)
    return Trajectory(frames.times, np.array(poses))


def measured(run: Callable[[], Trajectory], truth: Trajectory) -> dict[str, Any]:
    """Errors and time of one run."""
    began, cpu = time.perf_counter(), time.process_time()
    path = run()
    seconds = time.perf_counter() - began
    shift, turn = trajectory.relative_errors(path, truth, seconds=1.0)
    return {
        "ate_rmse": trajectory.absolute_errors(path, truth).rmse,
        "rpe_1s": shift.rmse,
        "rpe_1s_deg": turn.rmse,
        "frames_per_second": len(path) / seconds,
        "cpu_ms_per_frame": (time.process_time() - cpu) / len(path) * 1e3,
        "frames": len(path),
    }


def tracked(frames: Any, memory: list[tuple[int, float]], seed: int) -> tuple[Trajectory, int]:
    """coframe, and how much memory it held after every 20 frames [MiB]."""

    def watch(step: Any) -> None:
        if step.index % 20 == 0:
            memory.append((step.index, resident()))

    result = coframe.track(frames, options=coframe.TrackOptions(seed=seed), on_frame=watch)
    return result, int(result.lost.sum())


def resident() -> float:
    """Memory of this process now, in MiB."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sequence", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frames", type=int, default=10**9, help="only so many frames")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "sequence.json")
    options = parser.parse_args()
    truth = trajectory.read_tum(options.folder / "groundtruth.txt")
    frames = coframe.open_frames(options.folder)
    names = frames.names[: options.frames]
    frames = type(frames)(names, frames.times[: len(names)], frames.read)
    few = type(frames)(names[:12], frames.times[:12], frames.read)
    coframe.track(few)  # compilation comes before
    rows, memory, lost = [], [], 0
    print(f"{len(frames)} frames; {machine()['cpu']}, load {machine()['load_at_start']} at the start, range {NEAR} to {FAR} m")
    for _ in range(options.rounds):
        rows.append({"method": "small_gicp", **measured(lambda: odometry(frames), truth)})
        show(rows[-1])
        memory = []

        def ours() -> Trajectory:
            nonlocal lost
            path, lost = tracked(frames, memory, options.seed)
            return path

        rows.append({"method": "coframe", **measured(ours, truth), "lost": lost})
        show(rows[-1])
    fastest = {
        name: max(row["frames_per_second"] for row in rows if row["method"] == name) for name in ("coframe", "small_gicp")
    }
    ratio = fastest["coframe"] / fastest["small_gicp"]
    print(f"coframe has {ratio:.2f} x the frames per second of small_gicp; {lost} frames lost")
    after = [mib for index, mib in memory if index >= 200]
    if after:
        print(f"memory after 200 frames {after[0]:.0f} MiB, at the end {after[-1]:.0f} MiB")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    report = {"folder": str(options.folder), "machine": machine(), "rows": rows, "memory_mib": memory}
    options.output.write_text(json.dumps(report, indent=1) + "\n")


def show(row: dict[str, Any]) -> None:
    print(
        f"{row['method']:11s} ATE {row['ate_rmse']:.4f} m, RPE {row['rpe_1s']:.4f} m and {row['rpe_1s_deg']:.2f} deg in 1 s, "
        f"{row['frames_per_second']:.1f} frames/s, {row['cpu_ms_per_frame']:.0f} ms of CPU a frame",
        flush=True,
    )


if __name__ == "__main__":
    main()
