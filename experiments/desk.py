# SPDX-License-Identifier: MIT
"""Table and figure: translation RMSE of the sequences fr1/desk and fr2/desk, and the paths beside the true ones."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from coframe import datasets, geometry, simulate, trajectory
from coframe.sequence import frames
from coframe.trajectory import Trajectory
from experiments.record import Record, claim, figure_file, record, table, timed

NAME = "desk"
NOTES = ("The three methods above JRMPC-I use colour as well, and key frames only; the paper says so too.",)
TITLE = "Depth sequences: RMSE of the translation [m]"
SEQUENCES = {"fr1/desk": "freiburg1 desk", "fr2/desk": "freiburg2 desk"}
PAPER = {
    "ORB-SLAM2 (RGB-D)": (0.016, 0.009),
    "Elastic fusion": (0.020, 0.071),
    "RGBD SLAM": (0.026, 0.057),
    "JRMPC-I": (0.047, 0.034),
}
TOY_FRAMES = 12
Tracker = Callable[[Any, int], Trajectory]


def tracked(source: Any, seed: int) -> Trajectory:
    """`coframe.track`, no option but the seed; lost frames left out."""
    return coframe.track(source, options=coframe.TrackOptions(seed=seed)).found()


TRACKERS: dict[str, Tracker] = {"coframe.track": tracked}


def sequence(name: str, size: str) -> tuple[Any, Trajectory]:
    """The frames and the true path; at toy size, views of a body that the sensor goes around."""
    if size == "toy":
        scene = simulate.scene(
            TOY_FRAMES, 800, degrees=30.0, noise_db=45.0, motion_degrees=3.0, motion_shift=0.01, rng=np.random.default_rng(0)
        )
        source = frames.from_arrays(scene.clouds)
        return source, Trajectory(source.times, scene.poses)
    data = datasets.load(SEQUENCES[name])
    assert data.trajectory is not None
    return coframe.open_frames(data.folder), trajectory.read_tum(data.trajectory)


def run(size: str, seed: int, *, realisations: int | None = None, folder: Path | None = None) -> Record:
    """Every tracker on every sequence that is there; all frames, rigid alignment (Sturm et al. 2012)."""
    began = time.perf_counter()
    names = [name for name, key in SEQUENCES.items() if size == "toy" or datasets.present(key)]
    names = names[: 1 if size == "toy" else None]
    rows: dict[str, list[float]] = {method: [] for method in TRACKERS}
    clock: dict[str, list[float]] = {method: [] for method in TRACKERS}
    rates: dict[str, list[float]] = {method: [] for method in TRACKERS}
    paths: dict[str, dict[str, Trajectory]] = {}
    for name in names:
        source, truth = sequence(name, size)
        paths[name] = {"true": truth}
        for method, track in TRACKERS.items():
            path, seconds = timed(lambda track=track, source=source: track(source, seed))
            rows[method].append(trajectory.absolute_errors(path, truth).rmse)
            clock[method].append(seconds)
            rates[method].append(len(path) / seconds)
            paths[name][method] = trajectory.aligned(path, truth)
    paper = {m: [v for n, v in zip(SEQUENCES, row, strict=True) if n in names] for m, row in PAPER.items() if size == "paper"}
    missing = [name for name in SEQUENCES if name not in names]
    return record(
        NAME,
        TITLE,
        size=size,
        seed=seed,
        realisations=1,
        options={"frames": {name: len(paths[name]["true"]) if size == "toy" else "all" for name in names}},
        began=began,
        tables=[
            table("RMSE [m]", names, rows, paper=paper, seconds={m: sum(each) for m, each in clock.items()}),
            table("Frames per second", names, rates, digits=1, errors=False),
        ],
        checks=[
            claim(f"{name}: coframe.track below the paper's JRMPC-I", ours < PAPER["JRMPC-I"][list(SEQUENCES).index(name)])
            for name, ours in zip(names, rows["coframe.track"], strict=True)
            if size == "paper"
        ],
        figures=figure_file(folder, f"{NAME}.svg", lambda figure: draw(figure, paths), width=5 * len(names), height=4),
        notes=[f"Not run, because the sequence is not there: {', '.join(missing)}."] if missing and size == "paper" else [],
    )


def draw(figure: Any, paths: Record) -> None:
    """The paths seen from above."""
    for axes, (name, each) in zip(figure.subplots(1, len(paths), squeeze=False)[0], paths.items(), strict=True):
        for method, path in each.items():
            places = geometry.translation(path.poses)
            axes.plot(places[:, 0], places[:, 1], label=method, linewidth=1, color="#888888" if method == "true" else None)
        axes.set(title=name, xlabel="x [m]", ylabel="y [m]", aspect="equal")
        axes.legend(fontsize="small")
