# SPDX-License-Identifier: MIT
"""Figure: rotation RMSE of two sets against the angle between them, which sets how much they overlap. SNR 20 dB."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.drawing import COLOURS, MARKERS
from experiments.methods import ITERATIONS
from experiments.record import Record, claim, figure_file, record, table
from experiments.simulated import rmse, runs

NAME = "angle"
TITLE = "Rotation error of two sets against the angle between them (SNR 20 dB, without and with 30 % outliers)"
SETTINGS = {
    "paper": {
        "models": ("lucy", "armadillo"),
        "angles": (-90, -60, -45, -30, 0, 30, 45, 60, 90),
        "outliers": (0.0, 0.3),
        "realisations": 1,
    },
    "toy": {"models": ("lucy",), "angles": (-45, 15), "outliers": (0.3,), "realisations": 1},
}
NOISE_DB = 20.0
METHODS = ("ICP", "GMMReg", "CPD / ECMPR", "JRMPC-B", "register")  # for two sets, all forms of ICP are one
ACCEPTED = 0.3  # RMSE of a rotation that is off by 12 degrees: the basin is where a method stays below
NOTES = ("The paper shows these as curves without figures.",)


def run(size: str, seed: int, *, realisations: int | None = None, folder: Path | None = None) -> Record:
    """Every method on the same pairs of views."""
    began, settings = time.perf_counter(), SETTINGS[size] | ({"realisations": realisations} if realisations else {})
    errors: dict[tuple[str, float], dict[str, list[float]]] = {}
    seconds: dict[tuple[str, float], dict[str, list[float]]] = {}
    for name in settings["models"]:
        for outliers in settings["outliers"]:
            cell, clock = {m: [] for m in METHODS}, {m: [] for m in METHODS}
            for angle in settings["angles"]:
                found = runs(
                    name,
                    METHODS,
                    size=size,
                    seed=seed,
                    realisations=settings["realisations"],
                    degrees=(0.0, float(angle)),
                    noise_db=NOISE_DB,
                    outliers=outliers,
                )
                for method, values in found.over(lambda trial, scene: rmse(trial.poses, scene)).items():
                    cell[method].append(float(values.mean()))
                    clock[method].append(found.seconds()[method])
            errors[name, outliers], seconds[name, outliers] = cell, clock
    titles = {key: f"{key[0]}, noise{' and outliers' if key[1] else ''}" for key in errors}
    tables = [
        table(
            f"{titles[key]}: mean RMSE",
            [f"{angle} deg" for angle in settings["angles"]],
            cell,
            seconds={m: np.mean(seconds[key][m]) for m in METHODS},
        )
        for key, cell in errors.items()
    ]
    checks = []
    for key, cell in errors.items():
        widths = {m: int(np.sum(np.array(values) < ACCEPTED)) for m, values in cell.items()}
        if key[0] == "lucy":
            rivals = [m for m in METHODS if m not in ("JRMPC-B", "register")]
            checks.append(
                claim(
                    f"{titles[key]}: JRMPC-B has the widest basin of the paper's methods",
                    all(widths["JRMPC-B"] >= widths[m] for m in rivals),
                    f"angles with an RMSE below {ACCEPTED}: " + ", ".join(f"{m} {w}" for m, w in widths.items()),
                )
            )
    figures = figure_file(
        folder, f"{NAME}.svg", lambda figure: draw(figure, settings, errors, titles), width=4 * len(errors), height=3.2
    )
    return record(
        NAME,
        TITLE,
        size=size,
        seed=seed,
        realisations=settings["realisations"],
        options={"snr_db": NOISE_DB, "iterations": ITERATIONS, "accepted": ACCEPTED, **settings},
        began=began,
        tables=tables,
        checks=checks,
        figures=figures,
    )


def draw(figure: Any, settings: Record, errors: Record, titles: Record) -> None:
    """A panel for each model and disturbance."""
    for axes, (key, cell) in zip(figure.subplots(1, len(errors), squeeze=False)[0], errors.items(), strict=True):
        for method, values in cell.items():
            axes.plot(settings["angles"], values, color=COLOURS[method], marker=MARKERS[method], label=method)
        axes.set(title=titles[key], xlabel="angle [deg]", ylabel="RMSE")
    axes.legend(fontsize="small")
