# SPDX-License-Identifier: MIT
"""Figure: log-RMSE of the rotations against the share of outliers, and the learning curves of all methods. SNR 10 dB."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from coframe.simulate import Scene
from experiments.drawing import COLOURS, MARKERS
from experiments.methods import ITERATIONS, PAIRWISE
from experiments.models import MODELS
from experiments.record import Record, below_each, claim, figure_file, record, table
from experiments.simulated import Runs, rmse, runs

NAME = "outliers"
TITLE = "Rotation error against outliers (SNR 10 dB), and learning curves (20 % outliers)"
SETTINGS = {
    "paper": {"models": MODELS, "percent": (0, 20, 30, 40), "realisations": 2},
    "toy": {"models": ("bunny",), "percent": (30,), "realisations": 2},
}
NOISE_DB = 10.0
CURVE = 20  # percent of outliers of the learning curves; at toy size, the largest there is
NOTES = (
    "Natural logarithms. The paper shows these as curves without figures.",
    "10 dB by our definition is harsher than the authors' own views (experiment `noise`): on bunny and armadillo no method "
    "gets far from the row `start`, poses that turn nothing. Few realisations scatter by 0.1 to 0.2.",
    "GMMReg is better here than in the paper, most of all on lucy; it starts with wide kernels, which this noise calls for.",
)


def run(size: str, seed: int, *, realisations: int | None = None, folder: Path | None = None) -> Record:
    """Every method on the same views."""
    began, settings = time.perf_counter(), SETTINGS[size] | ({"realisations": realisations} if realisations else {})
    found: dict[tuple[str, int], Runs] = {
        (name, percent): runs(
            name, size=size, seed=seed, realisations=settings["realisations"], noise_db=NOISE_DB, outliers=percent / 100
        )
        for name in settings["models"]
        for percent in settings["percent"]
    }
    errors = {key: each.over(lambda trial, scene: rmse(trial.poses, scene)) for key, each in found.items()}
    tables = [
        table(
            f"{name}: mean log-RMSE",
            [f"{percent} %" for percent in settings["percent"]],
            {"start": [found[name, percent].start(log_rmse) for percent in settings["percent"]]}
            | {m: [np.log(errors[name, percent][m]).mean() for percent in settings["percent"]] for m in PAIRWISE},
            seconds={m: np.mean([found[name, percent].seconds()[m] for percent in settings["percent"]]) for m in PAIRWISE},
        )
        for name in settings["models"]
    ]
    curve = CURVE if CURVE in settings["percent"] else max(settings["percent"])
    curves = {name: learning(found[name, curve]) for name in settings["models"]}
    spoilt = [f"{percent} %" for percent in settings["percent"] if percent >= 20]
    checks = [
        check
        for each in tables
        for check in below_each(each, "JRMPC-B", ["ICP", "CPD / ECMPR", "GMMReg"], " with 20 % of outliers and more", spoilt)
    ]
    checks += [
        claim(
            f"{name}: JRMPC-B has settled after 100 iterations",
            curve_settled(each["JRMPC-B"]),
            f"log-RMSE {each['JRMPC-B'][-20]:.3f} at 80, {each['JRMPC-B'][-1]:.3f} at 100",
        )
        for name, each in curves.items()
    ]
    figures = figure_file(
        folder,
        f"{NAME}.svg",
        lambda figure: draw(figure, settings, errors, curves),
        width=4 * len(settings["models"]),
        height=6,
    )
    return record(
        NAME,
        TITLE,
        size=size,
        seed=seed,
        realisations=settings["realisations"],
        options={"snr_db": NOISE_DB, "degrees": [0, 10, 20, 30], "iterations": ITERATIONS, "curve_percent": curve, **settings},
        began=began,
        tables=tables,
        checks=checks,
        figures=figures,
        curves={"learning, mean log-RMSE after each iteration": curves},
    )


def log_rmse(poses: np.ndarray, scene: Scene) -> float:
    """Natural logarithm."""
    return float(np.log(rmse(poses, scene)))


def learning(each: Runs, iterations: int = ITERATIONS) -> dict[str, list[float]]:
    """The mean log-RMSE after each iteration; a method that has stopped stays where it is. `register` counts all its levels."""
    curves = {}
    for name, trials in each.trials.items():
        errors = np.array(
            [
                [rmse(poses, scene) for poses in (trial.history + [trial.poses] * iterations)[:iterations]]
                for trial, scene in zip(trials, each.scenes, strict=True)
            ]
        )
        curves[name] = np.log(errors).mean(0).round(4).tolist()
    return curves


def curve_settled(curve: list[float]) -> bool:
    """Less than 5 % in the last twenty iterations."""
    return abs(curve[-1] - curve[-20]) < 0.05


def draw(figure: Any, settings: Record, errors: Record, curves: Record) -> None:
    """Errors above, learning curves below, a column for each model."""
    axes = figure.subplots(2, len(settings["models"]), squeeze=False)
    for column, name in zip(axes.T, settings["models"], strict=True):
        for method in PAIRWISE:
            values = [np.log(errors[name, percent][method]).mean() for percent in settings["percent"]]
            column[0].plot(settings["percent"], values, color=COLOURS[method], marker=MARKERS[method], label=method)
            column[1].plot(range(1, len(curves[name][method]) + 1), curves[name][method], color=COLOURS[method])
        column[0].set(title=name, xlabel="outliers [%]", ylabel="log-RMSE")
        column[1].set(xlabel="iteration", ylabel="log-RMSE")
    axes[0, 0].legend(fontsize="small")
