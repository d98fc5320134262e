# SPDX-License-Identifier: MIT
"""Table and figure: translation RMSE of fr1/desk and fr2/desk, and the paths beside the truth."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import coframe
from coframe import geometry
from coframe.data import datasets, simulate
from coframe.evaluate import trajectory_errors
from coframe.io import frames, trajectory
from coframe.io.trajectory import Trajectory
from experiments.claims import NEAR, Claim, mean_of, standing
from experiments.record import Found, Record, Run, table, timed

NAME = "desk"
SEEDS = {"paper": (0,), "toy": (0,)}
KNOWN = {
    "fr1/desk: coframe.track_published near the paper's JRMPC-I": (
        "We do not reach the paper's figure with its scheme; what "
        "was tried is in docs/sequences.md. The paper does not say how groups of frames start."
    )
}
NOTES = (
    (
        "The three methods above JRMPC-I use colour as well, and key frames only; the paper says so"
        " too."
    ),
)
TITLE = "Depth sequences: RMSE of the translation [m]"
SEQUENCES = {"fr1/desk": "freiburg1 desk", "fr2/desk": "freiburg2 desk"}
PAPER = {
    "ORB-SLAM2 (RGB-D)": (0.016, 0.009),
    "Elastic fusion": (0.020, 0.071),
    "RGBD SLAM": (0.026, 0.057),
    "JRMPC-I": (0.047, 0.034),
}
TOY_FRAMES = 12
FEWEST = 300  # points of a frame that are kept; those of toys have few
Opened = Callable[[int], Any]  # every so many rows and columns of the images -> frames
Tracker = Callable[[Opened, int], Trajectory]


def tracked(opened: Opened, seed: int) -> Trajectory:
    """`coframe.track`, no option but the seed; lost frames left out."""
    return coframe.track(opened(4), options=coframe.TrackOptions(seed=seed)).found()


def published(opened: Opened, seed: int) -> Trajectory:
    """The paper's scheme with a quarter of its points and components; in full, it takes an hour."""
    whole, source = coframe.PublishedOptions(seed=seed), opened(1)
    quarter = {name: getattr(whole, name) // 4 for name in ("front_components", "back_components")}
    every = min(4 * whole.downsampling, max(1, len(source[0].points) // FEWEST))
    return coframe.track_published(source, options=replace(whole, downsampling=every, **quarter))


OURS, THEIRS = "coframe.track", "coframe.track_published, a quarter of the points"
TRACKERS: dict[str, Tracker] = {OURS: tracked, THEIRS: published}


def sequence(name: str, size: str) -> tuple[Opened, Trajectory]:
    """The frames and the true path; at toy size, views of a body that the sensor goes around."""
    if size == "toy":
        scene = simulate.scene(
            TOY_FRAMES,
            800,
            degrees=30.0,
            noise_db=45.0,
            motion_degrees=3.0,
            motion_shift=0.01,
            rng=np.random.default_rng(0),
        )
        source = frames.from_arrays(scene.clouds)
        return lambda step: source, Trajectory(source.times, scene.poses)
    data = datasets.load(SEQUENCES[name])
    assert data.trajectory is not None
    return lambda step: coframe.open_frames(data.folder, step=step), trajectory.read_tum(
        data.trajectory
    )


def measure(run: Run) -> Found:
    """Every tracker on every sequence that is there; all frames, rigid alignment (Sturm 2012)."""
    names = [name for name, key in SEQUENCES.items() if run.toy or datasets.present(key)][
        : 1 if run.toy else None
    ]
    errors: dict[str, list[float]] = {method: [] for method in TRACKERS}
    clock: dict[str, list[float]] = {method: [] for method in TRACKERS}
    rates: dict[str, list[float]] = {method: [] for method in TRACKERS}
    paths: dict[str, dict[str, Trajectory]] = {}
    for name in names:
        opened, truth = sequence(name, run.size)
        paths[name] = {"true": truth}
        for method, track in TRACKERS.items():
            path, seconds = timed(lambda track=track, opened=opened: track(opened, run.seeds[0]))
            errors[method].append(trajectory_errors.absolute_errors(path, truth).rmse)
            clock[method].append(seconds)
            rates[method].append(len(path) / seconds)
            paths[name][method] = trajectory_errors.aligned(path, truth)
    rows = {} if run.toy else PAPER
    paper = {
        m: [v for n, v in zip(SEQUENCES, row, strict=True) if n in names] for m, row in rows.items()
    }
    tables = [
        table(
            "RMSE [m]",
            names,
            errors,
            paper=paper,
            seconds={m: sum(each) for m, each in clock.items()},
        ),
        table("Frames per second", names, rates, digits=1, errors=False),
    ]
    options = {"frames": {name: len(paths[name]["true"]) if run.toy else "all" for name in names}}
    figures = run.figure(
        f"{NAME}.svg", lambda figure: draw(figure, paths), width=5 * len(names), height=4
    )
    return Found(
        tables,
        options,
        figures,
        missing=[] if run.toy else [name for name in SEQUENCES if name not in names],
    )


def claims(record: Record) -> list[Claim]:
    """Ours and the paper's scheme beside the paper's figure for JRMPC-I."""
    if record["size"] == "toy":
        return standing(record["tables"])
    rows = mean_of(record["tables"][0])
    found = []
    for name, theirs in zip(SEQUENCES, PAPER["JRMPC-I"], strict=True):
        if name in rows[OURS]:
            ours, scheme = rows[OURS][name], rows.get(THEIRS, {}).get(name, float("inf"))
            detail = "not run" if THEIRS not in rows else f"{scheme:.3f} and {theirs}"
            found += [
                Claim(
                    f"{name}: coframe.track below the paper's JRMPC-I",
                    ours < theirs,
                    f"{ours:.4f} and {theirs}",
                ),
                Claim(
                    f"{name}: coframe.track_published near the paper's JRMPC-I",
                    scheme <= (1 + NEAR) * theirs,
                    detail,
                ),
            ]
    return found + standing(record["tables"])


def draw(figure: Any, paths: Record) -> None:
    """The paths seen from above."""
    for axes, (name, each) in zip(
        figure.subplots(1, len(paths), squeeze=False)[0], paths.items(), strict=True
    ):
        for method, path in each.items():
            places = geometry.translation(path.poses)
            axes.plot(
                places[:, 0],
                places[:, 1],
                label=method,
                linewidth=1,
                color="#888888" if method == "true" else None,
            )
        axes.set(title=name, xlabel="x [m]", ylabel="y [m]", aspect="equal")
        axes.legend(fontsize="small")
