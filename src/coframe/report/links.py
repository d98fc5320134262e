# SPDX-License-Identifier: MIT
"""Which scans hold which: the links on a plan view and as a table; and the targets."""

import re
import shlex
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.align.residuals import Adjustment
from coframe.report.markup import length, lengths, name, text
from coframe.report.run import Run
from coframe.report.scene import upright
from coframe.result.colours import palette
from coframe.result.quality import Link, Quality
from coframe.result.registration import Registration
from coframe.types import Array

# [size] Side of the plan [pixels].
SIDE = 460
# [size] Rows of a table of links or targets.
ROWS = 200
DISTANCE = "distance of points"
# [size] Clouds whose names stand beside their points.
LABELS = 40
# [limit] [share of how far clouds are apart] Difference in height beyond which clouds are not seen
# from above.
STACKED = 0.5


def short_names(names: Sequence[str]) -> list[str]:
    """Names without what all begin with, cut behind a separator: setup0 stays setup0.

    >>> short_names(["happyStandRight_0", "happyStandRight_24"])
    ['0', '24']
    """
    if len(names) < 2:
        return list(names)
    low, high = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    while same and low[same - 1].isalnum():
        same -= 1
    cut = [each[same:] for each in names]
    return cut if same > 3 and all(cut) else list(names)


def section(result: Registration, quality: Quality, run: Run) -> str:
    """The plan view, the table of links, and the command that leaves scans out."""
    if not quality.links:
        return "<p>No two clouds see the same surface.</p>"
    alone = sum(link.bridge for link in quality.links)
    weak = sum(link.weak for link in quality.links)
    said = f"{len(quality.links)} link{'s' * (len(quality.links) > 1)} between clouds"
    said += f", {alone} of them the only connection of two parts" if alone else ""
    said += f", {weak} weak" if weak else ""
    across, along = _plan_axes(result)
    plan = (
        f"<figure>{_plan(across, result, quality.links)}<figcaption>Plan view{along}: clouds and"
        " the links between them. Thick: much overlap; red: nothing else connects the two sides;"
        ' dashed: little overlap. <span class="onscreen">Click a link to see the two clouds.</span>'
        "</figcaption></figure>"
    )
    table = _table(result.names, quality, run)
    return f'<p>{said}.</p><div class="matrices">{plan}{table}</div>{_again(result, run)}'


def _plan(centres: Float[Array, "M 2"], result: Registration, links: Sequence[Link]) -> str:
    low, high = centres.min(0), centres.max(0)
    scale = (SIDE - 80) / (float((high - low).max()) or 1.0)
    x = 40 + (centres[:, 0] - low[0]) * scale
    y = 40 + (high[1] - centres[:, 1]) * scale  # north is up
    height = round(80 + float(high[1] - low[1]) * scale)
    numbers = {each: j for j, each in enumerate(result.names)}
    lines = ""
    for link in links:
        a, b = (numbers[each] for each in link.clouds)
        kind = " bridge" * link.bridge + " weak" * link.weak
        width = 1.5 + 6 * max(link.overlap)
        lines += (
            f'<line class="link{kind}" data-pair="{a} {b}" x1="{x[a]:.1f}" y1="{y[a]:.1f}"'
            f' x2="{x[b]:.1f}" y2="{y[b]:.1f}" stroke-width="{width:.1f}"><title>'
            f"{text(f'{link.clouds[0]} – {link.clouds[1]}: {max(link.overlap):.0%} overlap')}"
            "</title></line>"
        )
    dots = ""
    shorts = short_names(result.names)
    for j, (cloud, colour) in enumerate(zip(result.names, palette(len(x)), strict=True)):
        dots += (
            f'<circle class="node" cx="{x[j]:.1f}" cy="{y[j]:.1f}" r="7" fill="{colour}">'
            f"<title>{text(cloud)}</title></circle>"
        )
        if len(x) <= LABELS:
            dots += f'<text x="{x[j] + 10:.1f}" y="{y[j] - 8:.1f}">{text(shorts[j])}</text>'
    return (
        f'<svg class="chart plan" viewBox="0 0 {SIDE} {height}" role="img" aria-label="Plan of the'
        f' links between clouds">{lines}{dots}</svg>'
    )


def _plan_axes(result: Registration) -> tuple[Float[Array, "M 2"], str]:
    """The median of each cloud, seen from above, and along which axis that is, in words; where the
    medians differ about as much in height, as on storeys, along the axis on which they differ
    least.
    """
    centres = np.array(
        [
            geometry.transform(pose, np.median(cloud, axis=0)[None])[0]
            for cloud, pose in zip(result.clouds, result.poses, strict=True)
        ]
    )
    if centres.shape[1] == 2:
        return centres, ""
    spread = np.ptp(centres, axis=0)
    above = upright(result)
    stacked = spread[above] > STACKED * spread.max()
    least = 2 - int(np.argmin(spread[::-1])) if stacked else above
    return np.delete(centres, least, axis=1), f" along the {'xyz'[least]} axis"


def _table(names: Sequence[str], quality: Quality, run: Run) -> str:
    numbers, shorts = {each: j for j, each in enumerate(names)}, short_names(names)
    rank = sorted(quality.links, key=lambda x: (not x.bridge, not x.weak, max(x.overlap)))
    values = [np.nan if link.rms is None else link.rms for link in rank]
    distances = lengths(values, unit=run.unit)
    share = quality.tolerance is not None
    head = f'<th scope="col">overlap</th><th scope="col">{DISTANCE}</th>'
    if quality.tolerance is not None:
        head += f'<th scope="col">{text(run.within(quality.tolerance))}</th>'
    rows = ""
    for link, distance in list(zip(rank, distances, strict=True))[:ROWS]:
        a, b = (numbers[each] for each in link.clouds)
        marks = '<span class="badge failed">only connection</span> ' * link.bridge
        marks += '<span class="badge weak">little overlap</span>' * link.weak
        within = "–" if link.within is None else f"{link.within:.0%}"
        rows += (
            '<tr><th scope="row"><button type="button" class="link" data-pair='
            f'"{a} {b}" title="{text(" – ".join(link.clouds))}">'
            f"{name(shorts[a])} – {name(shorts[b])}</button></th>"
            f"<td>{marks}</td><td>{max(link.overlap):.0%}</td>"
            f"<td>{'–' if link.rms is None else distance}</td>"
            + (f"<td>{within}</td>" if share else "")
            + "</tr>"
        )
    more = f'<p class="small">The first {ROWS} of {len(rank)}.</p>' if len(rank) > ROWS else ""
    return (
        '<div><div class="scroll tall"><table class="clouds links"><thead><tr>'
        f'<th scope="col">link</th><th scope="col"></th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>{more}</div>"
        f'<p class="small">{text(DISTANCE.capitalize())}: of single points of one cloud from planes'
        " through eight points of the other, root mean square; the noise of a point is in it, and"
        " roughness between the points. The gap below is that of the two surfaces, averaged over"
        " patches of many points: it is usually smaller.</p></div>"
    )


def _again(result: Registration, run: Run) -> str:
    """Boxes to mark clouds as wrong; the script writes the command that leaves them out."""
    if not run.command.startswith("coframe register") or len(result.names) < 3:
        return ""
    boxes = "".join(
        f'<label><input type="checkbox" data-exclude="{text(shlex.quote(cloud))}">'
        f" {name(cloud)}</label>"
        for cloud in result.names
    )
    return (
        "<details><summary>Run again without some clouds</summary>"
        f'<div class="controls leave-out">{boxes}</div>'
        f'<pre class="command" id="again" data-command="{text(_elsewhere(run.command))}"'
        " hidden></pre>"
        "</details>"
    )


def _elsewhere(command: str) -> str:
    """The command with another folder for its result, so that this one stays.

    >>> _elsewhere("coframe register scans -o out --resume")
    'coframe register scans -o out-2'
    """
    try:
        words = [word for word in shlex.split(command) if word != "--resume"]
    except ValueError:  # not what a run has written
        return command
    for i, word in enumerate(words):
        if i and words[i - 1] in ("-o", "--output"):
            words[i] = _next(word)
        elif word.startswith("--output="):
            words[i] = "--output=" + _next(word.removeprefix("--output="))
        elif re.match("-o.", word):
            words[i] = "-o" + _next(word[2:])
    return shlex.join(words)


def _next(folder: str) -> str:
    """out-2 after out, out-3 after out-2."""
    folder = folder.rstrip("/") or folder
    match = re.fullmatch(r"(.*)-([0-9]{1,9})", folder)
    return f"{match[1]}-{int(match[2]) + 1}" if match else f"{folder}-2"


def targets(found: Adjustment, unit: str = "") -> str:
    """Residuals of targets with their standard deviations, and the test of all of them."""
    axes = "xyz"[: len(found.residuals[0].residual)] if found.residuals else ""
    summary = [
        f"{label} {length(value, unit)}"
        for role, label in (
            ("control", "control points"),
            ("check", "check points"),
            ("tie", "ties"),
        )
        if (value := found.rms(role)) is not None
    ]
    low, high = found.limits
    verdict = "as expected" if found.consistent else "not as expected"
    rows = ""
    ranked = sorted(found.residuals, key=lambda each: (each.role, each.name, each.scan))
    columns = [lengths([each.residual[i] for each in ranked], unit=unit) for i in range(len(axes))]
    deviations = [lengths([each.sd[i] for each in ranked], unit=unit) for i in range(len(axes))]
    distances = lengths([each.distance for each in ranked], unit=unit)
    for i, each in enumerate(ranked[:ROWS]):
        mark = '<span class="badge failed">check this</span>' if each.suspicious else ""
        cells = "".join(
            f"<td>{column[i]} ± {sd[i]}</td>"
            for column, sd in zip(columns, deviations, strict=True)
        )
        rows += (
            f'<tr><th scope="row">{name(each.name)}</th><td>{name(each.scan)} {mark}</td>'
            f"<td>{text(each.role)}</td>{cells}<td>{distances[i]}</td></tr>"
        )
    head = "".join(f'<th scope="col">{axis}</th>' for axis in axes)
    return (
        f"<p>Root mean square distance: {text(', '.join(summary))}. Chi-square"
        f" {found.chi_square:.3g}, {verdict} ({low:.3g} to {high:.3g} in 95 of 100 cases).</p>"
        '<div class="scroll tall"><table class="clouds"><thead><tr><th scope="col">target</th><th'
        f' scope="col">scan</th><th scope="col">role</th>{head}<th scope="col">distance</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
        '<p class="small">Residual and its standard deviation: of control and check points against'
        " the known position, of ties against the mean of all scans. Check points took no part in"
        " the adjustment. For the root mean square, a target counts once, with its mean over all"
        " scans.</p>"
    )
