# SPDX-License-Identifier: MIT
"""Table and figure: translation RMSE of fr1/desk and fr2/desk, and the paths beside the truth."""

from typing import Any

from coframe import geometry
from coframe.evaluate import trajectory_errors
from coframe.io.trajectory import Trajectory
from experiments import drawing, methods
from experiments.claims import NEAR, Claim, mean_of, standing
from experiments.problems import SEQUENCES, DepthImages, sequences
from experiments.record import Found, Record, Run, table
from experiments.trials import Job

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
SENTENCE = (
    "The three methods above JRMPC-I use colour as well. The paper's front-end starts where "
    "it does not say; [sequences](docs/sequences.md) lists what was tried."
)
PAPER = {
    "ORB-SLAM2 (RGB-D)": (0.016, 0.009),
    "Elastic fusion": (0.020, 0.071),
    "RGBD SLAM": (0.026, 0.057),
    "JRMPC-I": (0.047, 0.034),
}
OURS, THEIRS = methods.TRACK, methods.PUBLISHED


def jobs(run: Run) -> list[Job]:
    """Every tracker on every sequence that is there."""
    return [
        Job(DepthImages(run.size, name), method, run.seeds[0])
        for name in sequences(run.size)
        for method in methods.TRACKERS
    ]


def measure(run: Run) -> Found:
    """Every tracker on every sequence that is there; all frames, rigid alignment (Sturm 2012)."""
    names = sequences(run.size)
    errors: dict[str, list[float]] = {method: [] for method in methods.TRACKERS}
    clock: dict[str, list[float]] = {method: [] for method in methods.TRACKERS}
    rates: dict[str, list[float]] = {method: [] for method in methods.TRACKERS}
    paths: dict[str, dict[str, Trajectory]] = {}
    for job in jobs(run):
        assert isinstance(job.problem, DepthImages)
        truth, found = job.problem.truth(), run.store.get(job)
        path = Trajectory(found.more["times"], found.poses)
        errors[job.method].append(trajectory_errors.absolute_errors(path, truth).rmse)
        clock[job.method].append(found.seconds)
        rates[job.method].append(len(path) / found.seconds)
        shown = paths.setdefault(job.problem.name, {"true": truth})
        shown[job.method] = trajectory_errors.aligned(path, truth)
    rows = {} if run.toy else PAPER
    paper = {
        m: [dict(zip(SEQUENCES, row, strict=True)).get(name) for name in names]
        for m, row in rows.items()
    }
    tables = [
        table(
            "RMSE [m]",
            names,
            errors,
            paper=paper,
            seconds={m: sum(each) for m, each in clock.items()},
        ),
        table("Frames per second of a processor", names, rates, digits=1, errors=False),
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


def shown(record: Record) -> list[Record]:
    """What the short page shows."""
    return list(record["tables"])


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
            axes.plot(*places[:, :2].T, label=method, **drawing.STYLES[method])
        axes.set(title=name, xlabel="x [m]", ylabel="y [m]", aspect="equal")
        axes.legend(fontsize="small")
