# SPDX-License-Identifier: MIT
"""`coframe fuse`."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from coframe.cli.app import (
    AsJson,
    Output,
    Quiet,
    Seed,
    Threads,
    WithReport,
    complain,
    say,
    say_json,
)
from coframe.cli.output import claimed
from coframe.cli.watch import watching


def fuse(
    file: Annotated[
        Path,
        typer.Argument(
            help=(
                "Particles: .hdf5 of Picasso with groups, .csv of ThunderSTORM or SMAP with a"
                " column group or site, .mat with points and sigma, or .npz."
            )
        ),
    ],
    output: Output,
    symmetry: Annotated[
        int, typer.Option(min=1, max=12, help="Order of a symmetry to impose; 1: none.")
    ] = 1,
    classes: Annotated[
        int, typer.Option(min=1, max=10, help="Structures that particles are divided between.")
    ] = 1,
    template: Annotated[
        Path | None,
        typer.Option(help="Sites to start from: a cloud (.txt, .csv, .npy, .ply), unit as FILE."),
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(min=0, help="Precision of all localisations, instead of the file's."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="Unit of lengths in a .mat or .npz, such as nm or px; others are in nm."),
    ] = None,
    project: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    seed: Seed = 0,
    threads: Threads = None,
    report: WithReport = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fuse many copies of one structure (localisation microscopy).

    Exit code 1: no particle could be aligned for certain.

    Example:  coframe fuse logos.csv -o fused
    """
    import coframe
    from coframe import report as reports
    from coframe.io import localisations

    started = time.perf_counter()
    with watching(quiet or as_json) as watch:
        particles = localisations.read(file)
        if unit is not None:
            particles = particles.in_unit(unit)
        sites = None
        if template is not None:
            from coframe.io import clouds

            sites = clouds.read(template)
            if particles.clouds[0].shape[1] == 2 and sites.shape[1] == 3 and not sites[:, 2].any():
                sites = sites[:, :2]

        def show(what: str, share: float) -> None:
            watch.show(what)
            watch.progress(share)

        inputs = [path for path in (file, template) if path is not None]
        with claimed(output, reports.fusion_files(particles.kind, page=report), inputs):
            fusion = coframe.fuse(
                particles.clouds,
                particles.sigma if sigma is None else sigma,
                symmetry,
                classes=classes,
                template=sites,
                seed=seed,
                threads=threads,
                on_step=show,
            )
            watch.show("writing")
            command = shlex.join(["coframe", *sys.argv[1:]])
            options = {
                "symmetry": symmetry,
                "classes": classes,
                "template": None if template is None else str(template),
                "sigma": sigma,
                "unit": unit,
                "project": project,
                "seed": seed,
                "threads": threads,
            }
            run = reports.Run(
                command,
                options,
                seconds=time.perf_counter() - started,
                made=time.strftime("%Y-%m-%d %H:%M"),
            )
            written = reports.write_fusion_folder(fusion, particles, output, run=run, page=report)
    if as_json:
        record = fusion.record(particles.names)
        say_json({**record, "folder": str(output), "files": written})
    elif not quiet:
        counts = ", ".join(f"{count} {word}" for word, count in fusion.counts().items())
        say(f"{len(fusion.poses)} particles: {counts}")
        unit_of = (
            particles.unit if particles.unit != localisations.UNNAMED else "(unit of the file)"
        )
        for number, structure in enumerate(fusion.structures):
            where = f"class {number}: " if classes > 1 else ""
            say(
                f"{where}{len(fusion.used(number))} particles used, {len(structure.mixture.means)}"
                f" sites, resolution {structure.resolution:.3g} {unit_of}"
            )
        say(f"wrote {', '.join(written[:-1])} and {written[-1]} to {output}/")
    if not quiet:
        for warning in fusion.warnings:
            complain(warning)
    if not fusion.counts()["aligned"]:
        raise typer.Exit(1)
