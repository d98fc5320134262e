# SPDX-License-Identifier: MIT
"""Fused particles as a page of its own: the density, the Fourier correlation, and the particles by
class and by fit.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from scipy.ndimage import gaussian_filter
from scipy.spatial.transform import Rotation

from coframe.geometry import transform
from coframe.io.localisations import UNNAMED, Localisations
from coframe.particles.fusion import Fusion, Structure
from coframe.particles.resolution import THRESHOLD
from coframe.report import charts
from coframe.report.charts import ticks
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
# [size] Pixels of a picture of one particle along an axis.
TILE = 120
# [size] Particles that are shown of the best, the middle and the worst fit.
SHOWN = 8
# [size] Localisations that are drawn beside the sites.
DRAWN = 4000
# [size] Particles that are listed.
LISTED = 300
# [size] Colours of a picture from dark to bright.
COLOURS = np.array([[0, 0, 0], [90, 15, 20], [200, 70, 10], [250, 180, 40], [255, 255, 235]])
# [size] The structure behind a particle.
BEHIND = np.array([70, 110, 190])


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
        shown = _examples(fusion, particles, number)
        if shown:
            sections.append(Section(f"examples{number}", f"Particles by fit{of}", shown))
    sections += [
        Section("particles", "Particles", _table(fusion, particles.names, particles.clouds)),
        Section("run", "How this was made", how_made(run, particles=len(fusion.poses))),
    ]
    project = str(run.options.get("project") or "")
    title = f"{project}: coframe fuse" if project else "coframe fuse"
    return page(title, _summary(fusion, run, unit), _notices(fusion), sections)


def _summary(fusion: Fusion, run: Run, unit: str) -> str:
    named = f" {unit}" if unit != UNNAMED else ""
    many = len(fusion.structures) > 1
    largest = " of class 0" if many else ""
    values = [
        (f"{fusion.counts()['aligned']} of {len(fusion.poses)}", "particles aligned"),
        (
            f"{fusion.resolution:.3g}{named}",
            f"resolution{largest}" + ("" if named else f", {UNNAMED}"),
        ),
        (str(len(fusion.mixture.means)), f"sites{largest}"),
        (
            f"{fusion.symmetry_found}-fold" if fusion.symmetry_found > 1 else "none",
            f"symmetry found{largest}",
        ),
    ]
    if many:
        values.insert(1, (str(len(fusion.structures)), "classes"))
    return facts(values, run)


def _notices(fusion: Fusion) -> str:
    items = [("weak", text(warning)) for warning in fusion.warnings]
    for word in ("failed", "weak"):
        reasons = Counter(fit.reason for fit in fusion.verdicts if fit.verdict == word)
        for reason, number in reasons.most_common():
            which = "1 particle" if number == 1 else f"{number} particles"
            items.append((word, f"{which} {word}, because {text(reason)}"))
    return notice_list(items, f"All {len(fusion.poses)} particles are aligned.")


def directions(structure: Structure) -> tuple[Float[Array, "D D"], str]:
    """Axes of the pictures as rows, and what the last one is.

    In the plane, those of the frame. In space, the last is the axis of symmetry, else the direction
    in which the sites are spread least.
    """
    sites = structure.mixture.means
    D = sites.shape[1]
    if D == 2:
        return np.eye(2), ""
    order = structure.symmetry_found
    _, axes = np.linalg.eigh(np.cov(sites.T)) if len(sites) > 1 else (None, np.eye(3))
    last, word = axes[:, 0], "the direction of least extent"
    if order > 1:
        turns = Rotation.from_matrix(structure.symmetries[:, :3, :3]).as_rotvec()
        angles = np.linalg.norm(turns, axis=1)
        nearest = int(np.argmin(np.abs(angles - 2 * np.pi / order)))
        last, word = turns[nearest] / angles[nearest], f"the {order}-fold axis"
    # The widest direction across it is the first.
    across = axes[:, 2] - (axes[:, 2] @ last) * last
    if np.linalg.norm(across) < 0.1:
        across = axes[:, 1] - (axes[:, 1] @ last) * last
    first = across / np.linalg.norm(across)
    return np.stack([first, np.cross(last, first), last]), word


def _window(structure: Structure) -> tuple[Float[Array, "D D"], Float[Array, " D"], float, str]:
    """Axes, middle and half the width of all pictures of a structure."""
    axes, word = directions(structure)
    sites = structure.mixture.means @ axes.T
    low, high = sites.min(0), sites.max(0)
    return axes, (low + high) / 2, 0.75 * float((high - low).max()) or 1.0, word


def _density(points: Points, structure: Structure, used: int, unit: str) -> str:
    """The density seen along each axis, brightest where localisations are densest."""
    if not len(points):
        return "<p>No particle of the class fits.</p>"
    named = f" {unit}" if unit != UNNAMED else ""
    axes, middle, reach, word = _window(structure)
    turned = points @ axes.T
    bar = ticks(0.0, reach / 1.5, 4)[1]
    views = [((0, 1), f"seen along {word}" if word else "density, x to the right, y up")]
    if word:
        views += [((0, 2), f"from the side, {word} up"), ((1, 2), "from another side")]
    figures = ""
    for (across, along), caption in views:
        place = [across, along]
        image = _coloured(_levels(turned[:, place], middle[place], reach, structure, PIXELS))
        _draw_bar(image, bar / (2 * reach))
        figures += figure(
            f'<img class="picture" alt="Density of the fused particles, {caption}"'
            f' src="{png(image)}">',
            f"{caption[0].upper()}{caption[1:]}. Bar: {bar:g}{named}.",
        )
    if not word:
        figures += figure(
            _sites(points, structure, middle, reach),
            "Sites, as wide as two standard deviations, and localisations.",
        )
    return (
        f'<div class="pictures">{figures}</div><p class="small">{count(len(points))} localisations'
        f" of {used} particles, {len(structure.mixture.means)} sites.</p>"
    )


def _levels(
    points: Float[Array, "N 2"],
    middle: Float[Array, " 2"],
    reach: float,
    structure: Structure,
    pixels: int,
) -> Float[Array, "P P"]:
    """Square root of the density, 0 to 1; the first row is the highest."""
    edges = [np.linspace(c - reach, c + reach, pixels + 1) for c in middle]
    density = np.histogram2d(points[:, 0], points[:, 1], bins=edges)[0]
    # As sharp as the structure is resolved, and not sharper than the pixels.
    blur = max(structure.resolution / 4 / (2 * reach / pixels), 1.0)
    density = gaussian_filter(density, blur)
    levels: Float[Array, "P P"] = np.sqrt(
        density / max(float(density.max()), np.finfo(float).tiny)
    ).T[::-1]
    return levels


def _coloured(levels: Float[Array, "P P"]) -> UInt8[Array, "P P 3"]:
    place = levels * (len(COLOURS) - 1)
    below = np.minimum(place.astype(int), len(COLOURS) - 2)
    share = (place - below)[..., None]
    mixed = COLOURS[below] * (1 - share) + COLOURS[below + 1] * share
    picture: UInt8[Array, "P P 3"] = np.ascontiguousarray(mixed.round().astype(np.uint8))
    return picture


def _draw_bar(image: UInt8[Array, "P P 3"], share: float) -> None:
    """A white bar at the lower right, as long as a share of the picture's width."""
    pixels = len(image)
    margin, thick = pixels // 24, max(pixels // 90, 2)
    right = pixels - margin
    image[right - thick : right, right - max(round(share * pixels), 1) : right] = 255


def _sites(
    points: Float[Array, "N 2"], structure: Structure, middle: Float[Array, " 2"], reach: float
) -> str:
    """Sites as circles over some of the localisations, in the window of the density."""
    step = -(-len(points) // DRAWN)
    scale = PIXELS / (2 * reach)
    inside = points[::step][(np.abs(points[::step] - middle) < reach).all(1)]
    dots = "".join(
        f"M{x:.1f} {y:.1f}h0" for x, y in (inside - middle) * [scale, -scale] + PIXELS / 2
    )
    circles = ""
    deviations = np.sqrt(structure.mixture.covariances[:, 0, 0])
    for (x, y), deviation in zip(structure.mixture.means - middle, deviations, strict=True):
        circles += (
            f'<circle class="site" cx="{PIXELS / 2 + scale * x:.1f}"'
            f' cy="{PIXELS / 2 - scale * y:.1f}" r="{max(2 * scale * deviation, 2):.1f}"/>'
        )
    return (
        f'<svg class="chart picture" role="img" aria-label="Sites" viewBox="0 0 {PIXELS} {PIXELS}">'
        f'<path class="map" d="{dots}"/>{circles}</svg>'
    )


def _examples(fusion: Fusion, particles: Localisations, number: int) -> str:
    """Particles of the best, a middling and the worst fit, over the structure."""
    members = np.flatnonzero(fusion.classes == number)
    order = members[np.argsort([fusion.verdicts[j].misfit for j in members], kind="stable")]
    structure = fusion.structures[number]
    merged = fusion.merged(particles.clouds, number)
    if not len(merged):
        return ""
    axes, middle, reach, _ = _window(structure)
    behind = _levels((merged @ axes.T)[:, :2], middle[:2], reach, structure, TILE)
    start = max((len(order) - SHOWN) // 2, 0)
    rows = {
        "Best fit": order[:SHOWN],
        "Typical fit": order[start : start + SHOWN],
        "Worst fit": order[-SHOWN:],
    }
    if len(order) <= 3 * SHOWN:
        rows = {"From the best fit to the worst": order}
    body = ""
    for title, chosen in rows.items():
        tiles = ""
        for j in chosen:
            fit = fusion.verdicts[j]
            own = transform(fusion.poses[j], particles.clouds[j]) @ axes.T
            levels = _levels(own[:, :2], middle[:2], reach, structure, TILE)
            image = np.maximum(_coloured(levels), (behind[..., None] * BEHIND).astype(np.uint8))
            tiles += figure(
                f'<img class="picture" alt="Particle {name(particles.names[j])}"'
                f' src="{png(image)}">',
                f"{name(particles.names[j])}"
                f' <span class="badge {fit.verdict}">{MARKS[fit.verdict]} {fit.verdict}</span>'
                f" misfit {fit.misfit:.1f}",
            )
        body += f'<h3>{title}</h3><div class="tiles">{tiles}</div>'
    return f'{body}<p class="small">In colour: the particle. In blue: all that are used.</p>'


def _correlation(structure: Structure, unit: str) -> str:
    frequency, correlation = structure.correlation.T
    named = unit != UNNAMED
    # Up to twice the frequency that is resolved.
    last = max(int(np.searchsorted(frequency, 2 / structure.resolution)), 8)
    chart = charts.falling(
        frequency[1:last],
        correlation[1:last],
        threshold=THRESHOLD,
        label="correlation",
        across=f"spatial frequency [1/{unit}]" if named else "spatial frequency",
    )
    ring = "ring" if structure.mixture.dimension == 2 else "shell"
    return figure(
        chart,
        f"Fourier {ring} correlation of two halves of the particles. It falls below 1/7 (dashed) at"
        f" {structure.resolution:.3g}{f' {unit}' if named else ''}. The halves were aligned"
        " together: where particles are few, it is optimistic.",
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


def _table(fusion: Fusion, names: Sequence[str], clouds: Sequence[Array]) -> str:
    """Particles, the least certain first."""
    many = len(fusion.structures) > 1
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
            f'<tr><th scope="row">{name(names[j])}</th><td data-label="verdict"><span class="badge'
            f' {fit.verdict}">{MARKS[fit.verdict]} {fit.verdict}</span>{reason}</td>'
            + (f'<td data-label="class">{fusion.classes[j]}</td>' if many else "")
            + f'<td data-label="localisations">{len(clouds[j])}</td>'
            f'<td data-label="margin">{margin}</td><td data-label="misfit">{fit.misfit:.1f}</td>'
            "</tr>"
        )
    left = f"<p>The {LISTED} least certain of {len(names)}.</p>" if len(names) > LISTED else ""
    return (
        '<div class="scroll"><table class="clouds"><thead><tr><th scope="col">particle</th>'
        '<th scope="col">verdict</th>'
        + ('<th scope="col">class</th>' if many else "")
        + '<th scope="col">localisations</th><th scope="col">margin</th>'
        f'<th scope="col">misfit</th></tr></thead><tbody>{rows}</tbody></table></div>{left}'
    )
