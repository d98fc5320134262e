# SPDX-License-Identifier: MIT
"""Fused particles as a page of its own: the density, the Fourier correlation, and the particles by
class and by fit.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from scipy.ndimage import gaussian_filter

from coframe.io.localisations import Localisations
from coframe.particles.fusion import Fusion, Structure
from coframe.particles.resolution import THRESHOLD
from coframe.report import charts
from coframe.report.markup import count, name, png, text
from coframe.report.page import (
    MARKS,
    Section,
    facts,
    figure,
    how_made,
    notice_list,
    page,
    save_into,
)
from coframe.report.run import Run
from coframe.types import Array, Points

# [size] Pixels of a picture along an axis.
PIXELS = 360
# [size] Particles that are listed.
LISTED = 300
# [size] Colours of a picture from dark to bright.
COLOURS = np.array([[0, 0, 0], [90, 15, 20], [200, 70, 10], [250, 180, 40], [255, 255, 235]])


def write(
    fusion: Fusion,
    particles: Localisations,
    path: str | os.PathLike[str],
    *,
    run: Run | None = None,
) -> Path:
    """Write the page of fused particles to a file.

    Parameters
    ----------
    fusion
        The result of `coframe.fuse`.
    particles
        What was fused.
    path
        The file, such as "report.html".
    run
        How the result was made, if that is to be shown.

    Returns
    -------
    Path
        The file.
    """
    return save_into(path, html(fusion, particles, run=run))


def html(fusion: Fusion, particles: Localisations, *, run: Run | None = None) -> str:
    """The page as text."""
    run = run or Run()
    unit = particles.unit
    sections = []
    many = len(fusion.structures) > 1
    for number, structure in enumerate(fusion.structures):
        of = f" of class {number}" if many else ""
        merged = fusion.merged(particles.clouds, number)
        used = len(fusion.used(number))
        sections += [
            Section(f"density{number}", f"Structure{of}", _density(merged, structure, used, unit)),
            Section(
                f"correlation{number}", f"Resolution{of}", _correlation(structure, unit), wide=False
            ),
            Section(f"fit{number}", f"Fit{of}", _fit(fusion, number), wide=False),
        ]
    sections += [
        Section("particles", "Particles", _table(fusion, particles.names)),
        Section("run", "How this was made", how_made(run, particles=len(fusion.poses))),
    ]
    return page("coframe fuse", _summary(fusion, run, unit), _notices(fusion), sections)


def _summary(fusion: Fusion, run: Run, unit: str) -> str:
    values = [
        (f"{fusion.counts()['aligned']} of {len(fusion.poses)}", "particles aligned"),
        (f"{fusion.resolution:.3g} {unit}", "resolution"),
        (str(len(fusion.mixture.means)), "sites"),
        (
            f"{fusion.symmetry_found}-fold" if fusion.symmetry_found > 1 else "none",
            "symmetry found",
        ),
    ]
    if len(fusion.structures) > 1:
        values.insert(1, (str(len(fusion.structures)), "classes"))
    return facts(values, run)


def _notices(fusion: Fusion) -> str:
    items = [("weak", text(warning)) for warning in fusion.warnings]
    counts = fusion.counts()
    if counts["weak"]:
        items.append(("weak", f"{counts['weak']} particles are not certain: see the table"))
    if counts["failed"]:
        items.append(
            ("failed", f"{counts['failed']} particles do not fit and have no part in the structure")
        )
    return notice_list(items, f"All {len(fusion.poses)} particles are aligned.")


def _density(points: Points, structure: Structure, used: int, unit: str) -> str:
    """The density seen along each axis, brightest where localisations are densest."""
    if not len(points):
        return "<p>No particle of the class fits.</p>"
    D = points.shape[1]
    views = [(0, 1)] if D == 2 else [(0, 1), (0, 2), (1, 2)]
    sites = structure.mixture.means
    low, high = sites.min(0), sites.max(0)
    middle, reach = (low + high) / 2, 0.75 * float((high - low).max()) or 1.0
    figures = ""
    for across, along in views:
        image = _picture(points[:, [across, along]], middle[[across, along]], reach, structure)
        axes = f"{'xyz'[across]} to the right, {'xyz'[along]} up"
        figures += figure(
            f'<img class="heat" alt="Density of the fused particles, {axes}" src="{png(image)}">',
            f"{count(len(points))} localisations of {used} particles, {axes};"
            f" {2 * reach:.3g} {unit} wide.",
        )
    return f'<div class="matrices">{figures}</div>'


def _picture(
    points: Float[Array, "N 2"], middle: Float[Array, " 2"], reach: float, structure: Structure
) -> UInt8[Array, "P P 3"]:
    edges = [np.linspace(c - reach, c + reach, PIXELS + 1) for c in middle]
    density = np.histogram2d(points[:, 0], points[:, 1], bins=edges)[0]
    # As sharp as the structure is resolved, and not sharper than the pixels.
    blur = max(structure.resolution / 4 / (2 * reach / PIXELS), 1.0)
    density = gaussian_filter(density, blur)
    level = np.sqrt(density / max(float(density.max()), np.finfo(float).tiny)).T[::-1]
    place = level * (len(COLOURS) - 1)
    below = np.minimum(place.astype(int), len(COLOURS) - 2)
    share = (place - below)[..., None]
    mixed = COLOURS[below] * (1 - share) + COLOURS[below + 1] * share
    picture: UInt8[Array, "P P 3"] = np.ascontiguousarray(mixed.round().astype(np.uint8))
    return picture


def _correlation(structure: Structure, unit: str) -> str:
    frequency, correlation = structure.correlation.T
    # Up to twice the frequency that is resolved.
    last = max(int(np.searchsorted(frequency, 2 / structure.resolution)), 8)
    chart = charts.falling(
        frequency[1:last],
        correlation[1:last],
        threshold=THRESHOLD,
        label="correlation",
        across=f"spatial frequency [1/{unit}]" if unit == "nm" else "spatial frequency",
    )
    return figure(
        chart,
        "Fourier correlation of two halves of the particles. It falls below 1/7 at"
        f" {structure.resolution:.3g} {unit}. The halves were aligned together: where particles are"
        " few, it is optimistic.",
    )


def _fit(fusion: Fusion, number: int) -> str:
    own = [fit for fit, c in zip(fusion.verdicts, fusion.classes, strict=True) if c == number]
    rows = ""
    for word in ("aligned", "weak", "failed"):
        of = [fit for fit in own if fit.verdict == word]
        share = len(of) / max(len(own), 1)
        margin = f"{np.median([fit.margin for fit in of]):.3g}" if of else "–"
        misfit = f"{np.median([fit.misfit for fit in of]):.2f}" if of else "–"
        rows += (
            f'<tr><th scope="row"><span class="badge {word}">{MARKS[word]} {word}</span></th>'
            f'<td data-label="particles">{len(of)}</td><td data-label="share">{share:.0%}</td>'
            f'<td data-label="margin">{margin}</td><td data-label="misfit">{misfit}</td></tr>'
        )
    return (
        '<div class="scroll"><table class="clouds"><thead><tr><th scope="col">verdict</th>'
        '<th scope="col">particles</th><th scope="col">share</th><th scope="col">margin</th>'
        f'<th scope="col">misfit</th></tr></thead><tbody>{rows}</tbody></table></div><p>Margin:'
        " log odds of the pose over every other one, 5.3 is 200 to 1. Misfit: robust standard"
        " deviations by which a particle fits worse than is typical. Medians.</p>"
    )


def _table(fusion: Fusion, names: Sequence[str]) -> str:
    """Particles, the least certain first."""
    order = sorted(
        range(len(names)),
        key=lambda j: (
            ("failed", "weak", "aligned").index(fusion.verdicts[j].verdict),
            fusion.verdicts[j].margin,
        ),
    )
    rows = ""
    for j in order[:LISTED]:
        fit = fusion.verdicts[j]
        margin = f"{fit.margin:.1f}" if np.isfinite(fit.margin) else "–"
        reason = (
            "" if fit.verdict == "aligned" else f'<span class="reason">{text(fit.reason)}</span>'
        )
        rows += (
            f'<tr><th scope="row">{name(names[j])}</th><td data-label="class">'
            f'{fusion.classes[j]}</td><td data-label="verdict"><span class="badge {fit.verdict}">'
            f"{MARKS[fit.verdict]} {fit.verdict}</span>{reason}</td>"
            f'<td data-label="margin">{margin}</td><td data-label="misfit">{fit.misfit:.1f}</td>'
            "</tr>"
        )
    left = f"<p>The {LISTED} least certain of {len(names)}.</p>" if len(names) > LISTED else ""
    return (
        '<div class="scroll"><table class="clouds"><thead><tr><th scope="col">particle</th>'
        '<th scope="col">class</th><th scope="col">verdict</th><th scope="col">margin</th>'
        f'<th scope="col">misfit</th></tr></thead><tbody>{rows}</tbody></table></div>{left}'
    )
