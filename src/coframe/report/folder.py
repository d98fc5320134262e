# SPDX-License-Identifier: MIT
"""A result folder with its report."""

import os

from coframe.io import localisations
from coframe.io.manifest import MANIFEST
from coframe.io.transaction import transaction
from coframe.particles.fusion import FILES as FUSION_FILES
from coframe.particles.fusion import KIND as FUSION_KIND
from coframe.particles.fusion import Fusion
from coframe.report import fusion as fusion_page
from coframe.report import track
from coframe.report.page import html, save
from coframe.report.run import FILE, Run
from coframe.result import folder as folders
from coframe.result.quality import Quality, assess
from coframe.result.registration import Registration
from coframe.sequence.track import FILES as TRACK_FILES
from coframe.sequence.track import KIND, Track

PAGE = "report.html"


def files(*, page: bool = True) -> list[str]:
    """The names of the files that `write_folder` writes, points of a cluster left out."""
    return [*folders.FILES, FILE, *([PAGE] if page else [])]


def track_files(*, page: bool = True) -> list[str]:
    """The names of the files that `write_track_folder` writes."""
    return [*TRACK_FILES, *([PAGE] if page else [])]


def fusion_files(kind: str, *, page: bool = True) -> list[str]:
    """The names of the files that `write_fusion_folder` writes; `kind`: of the particles' file."""
    return [*FUSION_FILES, *localisations.fused_files(kind), *([PAGE] if page else [])]


def write_folder(
    result: Registration,
    folder: str | os.PathLike[str],
    *,
    run: Run | None = None,
    page: bool = True,
    quality: Quality | None = None,
) -> list[str]:
    """Save a result with run.json, which says how it came about, and report.html, all at once.

    Parameters
    ----------
    result
        The registration.
    folder
        Where to write; made if need be.
    run
        How the result came about. Default: called from Python.
    page
        Whether to write report.html; if not, that of an earlier result is removed with it.
    quality
        Figures for each scan and each link; default: those of `coframe.assess`.

    Returns
    -------
    list of str
        The names of the files written.

    Examples
    --------
    >>> coframe.report.write_folder(result, "out")
    """
    run = run or Run()
    quality = assess(result) if quality is None else quality
    fields = vars(result) | {"quality": quality}
    with folders.replacing(folder, fields, reliable=result.reliable()) as new:
        run.save(new)
        if page:
            save(new / PAGE, html(result, run=run, quality=quality))
        parts = sorted(path.name for path in new.glob("merged-*.ply"))
    merged = f"{parts[0]} to {parts[-1]}" if parts else "merged.ply"
    names = [merged if name == "merged.ply" else name for name in files(page=page)]
    return [*names, MANIFEST]


def write_track_folder(
    tracked: Track,
    folder: str | os.PathLike[str],
    *,
    run: Run | None = None,
    page: bool = True,
) -> list[str]:
    """Save a tracked sequence with report.html, all at once.

    Parameters
    ----------
    tracked
        The result of `coframe.track`.
    folder
        Where to write; made if need be.
    run
        How the result came about. Default: called from Python.
    page
        Whether to write report.html; if not, that of an earlier result is removed with it.

    Returns
    -------
    list of str
        The names of the files written.

    Examples
    --------
    >>> coframe.report.write_track_folder(coframe.track("desk"), "out")
    """
    with transaction(folder, KIND) as new:
        written = tracked.write_files(new)
        if page:
            save(new / PAGE, track.html(tracked, run=run))
            written.append(PAGE)
    return [*written, MANIFEST]


def write_fusion_folder(
    fusion: Fusion,
    particles: localisations.Localisations,
    folder: str | os.PathLike[str],
    *,
    run: Run | None = None,
    page: bool = True,
) -> list[str]:
    """Save fused particles with report.html, all at once.

    Parameters
    ----------
    fusion
        The result of `coframe.fuse`.
    particles
        What was fused; the fused set is written as the same kind of file.
    folder
        Where to write; made if need be.
    run
        How the result came about. Default: called from Python.
    page
        Whether to write report.html; if not, that of an earlier result is removed with it.

    Returns
    -------
    list of str
        The names of the files written.

    Examples
    --------
    >>> particles = coframe.io.localisations.read("logos.hdf5")
    >>> fusion = coframe.fuse(particles.clouds, particles.sigma)
    >>> coframe.report.write_fusion_folder(fusion, particles, "out")
    """
    with transaction(folder, FUSION_KIND) as new:
        written = fusion.write_files(new, particles.names)
        written += localisations.write_fused(
            new,
            particles,
            fusion.poses,
            fusion.classes,
            [fit.verdict for fit in fusion.verdicts],
        )
        if page:
            save(new / PAGE, fusion_page.html(fusion, particles, run=run))
            written.append(PAGE)
    return [*written, MANIFEST]
