# SPDX-License-Identifier: MIT
"""The page: what it says, in which order, and how it is put together.

Warnings, tables and charts are plain HTML and SVG, made here; the script (`viewer.js`) draws the
scene and links the parts. A page is a title, a summary and a list of sections, so that other
results can have pages of their own.
"""

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from coframe.errors import InputError
from coframe.io import ply
from coframe.io.files import atomic
from coframe.report import charts, numbers, scene
from coframe.report.markup import json_block, lengths, name, pack, png, text
from coframe.report.run import Run
from coframe.result.colours import palette
from coframe.result.registration import UNRELIABLE, Registration
from coframe.types import Array

NUMBERS = 16  # clouds whose pair figures are written out
CELLS = 40  # clouds whose pair figures are a table; beyond, a picture
MARKS = {"aligned": "✓", "weak": "!", "failed": "✕"}


@dataclass(frozen=True)
class Section:
    """A part of the page under its own heading. `body` is HTML."""

    key: str
    title: str
    body: str
    wide: bool = True


def write(result: Registration, path: str | os.PathLike[str], **options: Any) -> Path:
    """Write the report to a file; options as for `html`.

    >>> coframe.report.write(result, "report.html")
    """
    path = Path(path)
    page = html(result, **options)
    with atomic(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")
    return path


def html(
    result: Registration,
    *,
    run: Run | None = None,
    colours: Sequence[UInt8[Array, "_ 3"]] | None = None,
    points: int = scene.POINTS,
    rng: np.random.Generator | None = None,
) -> str:
    """The report as one page that needs nothing else.

    run: how the result came about. colours: the clouds' own, per point, red, green and blue.
    points: how many are shown in all. rng: chooses them (default: always the same ones).
    """
    run = run or Run()
    if colours is not None and [len(c) for c in colours] != [len(c) for c in result.clouds]:
        raise InputError(
            "colours: expected one row per point of every cloud, found other numbers of rows"
        )
    rng = np.random.default_rng(0) if rng is None else rng
    drawn = scene.of(result, start=run.start, colours=colours, rng=rng, points=points)
    overlap, residual = numbers.pairs(result)
    outliers = 1 - sum(int(keep.sum()) for keep in result.inliers()) / sum(map(len, result.clouds))
    sections = [
        Section("scene", "Scene", _scene(result, drawn, outliers, colours is not None)),
        Section("convergence", "Convergence", _convergence(result), wide=False),
        Section("components", "Components", _components(result), wide=False),
        Section("poses", "Clouds and poses", _poses(result, drawn, run)),
        Section("pairs", "Between clouds", _pairs(result, overlap, residual)),
        Section("run", "How this was made", _run(result, run)),
    ]
    notices = numbers.notices(result, overlap, outliers)
    return page(
        "coframe report",
        _summary(result, run, outliers),
        _notices(result, notices),
        sections,
        drawn,
    )


def stored_colours(
    folder: str | os.PathLike[str], result: Registration
) -> list[UInt8[Array, "_ 3"]] | None:
    """The clouds' own colours, where the merged.ply of a result folder has them."""
    if result.sizes:  # the folder has more points than the result
        channels = ("red", "green", "blue")
        if not all(set(channels) <= set(each) for each in result.attributes):
            return None
        return [np.stack([each[channel] for channel in channels], 1) for each in result.attributes]
    vertices = ply.read(Path(folder) / "merged.ply")
    if not {"red", "green", "blue"} <= set(vertices.dtype.names or ()):
        return None
    whole = np.stack([np.asarray(vertices[channel]) for channel in ("red", "green", "blue")], 1)
    if whole.dtype != np.uint8:
        return None
    return [whole[vertices["cloud"] == j] for j in range(len(result.poses))]


def page(
    title: str,
    summary: str,
    warnings: str,
    sections: Sequence[Section],
    drawn: scene.Scene | None = None,
) -> str:
    """Parts put together, with styles and scripts.

    Only our own script may run in it, and nothing may be fetched.
    """
    here = files("coframe.report")
    style, script = (
        (here / asset).read_text(encoding="utf-8") for asset in ("page.css", "viewer.js")
    )
    where, arrays = pack(drawn.arrays if drawn else {})
    header = {**drawn.header, "arrays": where} if drawn else {}
    body = "".join(
        f'<section id="{part.key}"'
        f' class="card{" wide" if part.wide else ""}"><h2>{text(part.title)}</h2>{part.body}</section>'
        for part in sections
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template((here / "page.html").read_text(encoding="utf-8")).substitute(
        policy=(
            "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src"
            f" 'sha256-{digest}'"
        ),
        title=text(title),
        style=style,
        summary=summary,
        warnings=warnings,
        sections=body,
        header=json_block(header),
        arrays=arrays,
        script=script,
    )


def _summary(result: Registration, run: Run, outliers: float) -> str:
    good = sum(v.verdict == "aligned" for v in result.verdicts)
    residuals = [v.residual for v in result.verdicts]
    values = [
        (f"{good} of {len(result.poses)}", "clouds aligned"),
        (f"{sum(result.counts):,}".replace(",", "\N{NARROW NO-BREAK SPACE}"), "points"),
        (lengths([float(np.median(residuals))])[0], "typical gap between clouds"),
        (f"{outliers:.1%}", "outliers"),
        (str(result.iterations), "iterations"),
    ]
    return facts(values, run)


def facts(values: Sequence[tuple[str, str]], run: Run) -> str:
    """Figures and what they are, side by side, and the time that the run took."""
    taken = [] if run.seconds is None else [(_duration(run.seconds), "run time")]
    return "".join(
        f"<div><dd>{text(value)}</dd><dt>{text(label)}</dt></div>"
        for value, label in [*values, *taken]
    )


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.1f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} min"
        if seconds < 6000
        else f"{seconds / 3600:.1f} h"
    )


def _notices(result: Registration, found: Sequence[numbers.Notice]) -> str:
    if not found:
        return (
            f'<p class="notice aligned"><span class="mark">{MARKS["aligned"]}</span>All'
            f" {len(result.poses)} clouds are aligned; {text(result.status.value)}.</p>"
        )
    items = "".join(
        f'<li class="notice {w.level}"><span class="mark">{MARKS[w.level]}</span><span>'
        f"{f'<b>{name(w.cloud)}</b> ' if w.cloud is not None else ''}{text(w.message)}</span></li>"
        for w in found
    )
    return f'<ul class="notices" aria-label="Warnings">{items}</ul>'


def _scene(result: Registration, drawn: scene.Scene, outliers: float, coloured: bool) -> str:
    frames, D = drawn.header["frames"], result.mixture.dimension
    assert isinstance(frames, list)
    chips = "".join(
        f'<label class="chip" data-cloud="{j}" style="--c:{colour}"><input type="checkbox"'
        f' checked><span class="swatch"></span>{name(cloud)}<span class="verdict {v.verdict}"'
        f' title="{text(v.verdict)}">{MARKS[v.verdict]}</span></label>'
        for j, (cloud, v, colour) in enumerate(
            zip(result.names, result.verdicts, palette(len(result.names)), strict=True)
        )
    )
    total = sum(result.counts)
    of_all = f"{total:,} points of {len(result.names)} clouds are shown"
    note = (
        f"{drawn.shown:,} of {of_all}, evenly thinned" if drawn.shown < total else f"All {of_all}"
    )
    values = {
        "before": (
            "As the clouds lay at the start"
            if frames[0] == "start"
            else "After the first iteration"
        ),
        "last": len(frames) - 1,
        "still": "hidden" if len(frames) < 2 else "",
        "own": "" if coloured else "hidden",
        "flat": "hidden" if D == 2 else "",
        "outliers": f"{outliers:.1%}",
        "components": len(result.mixture),
        "chips": chips,
        "note": note.replace(",", "\N{NARROW NO-BREAK SPACE}"),
    }
    return Template(
        (files("coframe.report") / "scene.html").read_text(encoding="utf-8")
    ).substitute(values)


def _convergence(result: Registration) -> str:
    if not result.history:
        return "<p>No iteration was run.</p>"
    likelihood = np.array([step.log_likelihood / step.points for step in result.history])
    steps = np.array([step.step for step in result.history])
    climb = (
        f"<figure>{charts.curve(likelihood, label='log-likelihood per point', across='iteration')}<figcaption>A"
        " jump marks a new level: another mixture, so another likelihood. Within a level it never"
        " falls. Click to see that iteration.</figcaption></figure>"
    )
    return (
        f"{climb if np.isfinite(likelihood).all() else ''}"  # methods of others have none
        f"<figure>{charts.curve(steps, label='largest step', across='iteration', log=True)}"
        "<figcaption>The longest way of any cloud in an iteration, as a share of the scene's"
        " radius.</figcaption></figure>"
    )


def _components(result: Registration) -> str:
    mixture, good = result.mixture, result.reliable()
    bad = int((~good).sum())
    unreliable = f"{bad} of {len(good)} components are unreliable: their points count as outliers."
    if mixture.spherical:
        deviations = np.sqrt(mixture.variances)
        threshold = float(np.sqrt(UNRELIABLE * np.median(mixture.variances)))
        chart = charts.histogram(
            deviations,
            good,
            label="standard deviation",
            threshold=threshold,
            threshold_label=f"{UNRELIABLE:g} × median variance",
        )
        return (
            f"<figure>{chart}<figcaption>{unreliable} They are wider than the"
            " threshold.</figcaption></figure>"
        )
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(mixture.covariances), 0))
    thick = charts.histogram(
        values[:, 0], good, label="thickness (standard deviation along the normal)", threshold=None
    )
    body = (
        f"<figure>{thick}<figcaption>How thin the model of the surface is: noise and misalignment"
        " make it thicker.</figcaption>"
    )
    if mixture.outlier_density > 0:
        peaks = np.log(mixture.weights) + mixture.log_peaks - np.log(mixture.outlier_density)
        ratio = charts.histogram(
            np.exp(np.clip(peaks, -600, 600)),
            good,
            label="peak density over that of the outlier class",
            threshold=1.0,
            threshold_label="outlier threshold",
        )
        body += (
            f"</figure><figure>{ratio}<figcaption>{unreliable} They are nowhere as dense as the"
            " outlier class.</figcaption>"
        )
    return body + "</figure>"


def _poses(result: Registration, drawn: scene.Scene, run: Run) -> str:
    turn, shift = numbers.uncertainty(result)
    centres = np.array([np.median(cloud, axis=0) for cloud in result.clouds])
    gaps = lengths([v.residual for v in result.verdicts] + [v.expected for v in result.verdicts])
    columns: list[tuple[str, str, list[str]]] = [
        ("points", "", [str(count) for count in result.counts]),
        (
            "overlap",
            "share of its points on surface that other clouds see too",
            [f"{v.overlap:.0%}" for v in result.verdicts],
        ),
        (
            "explained",
            "share of its points that the model explains",
            [f"{v.inliers:.0%}" for v in result.verdicts],
        ),
        (
            "gap",
            "to the other clouds along the surface normal, root mean square",
            gaps[: len(result.poses)],
        ),
        (
            "expected",
            "the gap that the scatter of its points alone would leave",
            gaps[len(result.poses) :],
        ),
        (
            "± turn [°]",
            "standard deviation of the rotation in its least certain direction",
            lengths(turn, 2),
        ),
        (
            "± shift",
            "standard deviation of the position in its least certain direction",
            lengths(shift, 2),
        ),
    ]
    if run.start is not None:
        turned, moved = numbers.travelled(drawn.start, result, centres)
        columns += [
            ("turned [°]", "from its start", lengths(turned)),
            ("moved", "its centre, from its start", lengths(moved)),
        ]
    head = "".join(
        f'<th scope="col" title="{text(hint)}">{text(label)}</th>' for label, hint, _ in columns
    )
    rows = ""
    for j, (cloud, v) in enumerate(zip(result.names, result.verdicts, strict=True)):
        cells = "".join(
            f'<td data-label="{text(label)}">{text(values[j])}</td>' for label, _, values in columns
        )
        reason = "" if v.verdict == "aligned" else f'<span class="reason">{text(v.reason)}</span>'
        rows += (
            f'<tr><th scope="row">{name(cloud)}</th><td data-label="verdict"><span class="badge'
            f' {v.verdict}">'
            f"{MARKS[v.verdict]} {text(v.verdict)}</span>{reason}</td>{cells}"
            f'<td class="pose"><details><summary>pose</summary><pre>{_matrix(result.poses[j])}</pre></details></td></tr>'
        )
    return (
        '<div class="scroll"><table class="clouds"><thead><tr><th scope="col">cloud</th><th'
        f' scope="col">verdict</th>{head}<th'
        f' scope="col">pose</th></tr></thead><tbody>{rows}</tbody></table></div><p'
        ' class="small">Lengths are in the units of the input. A pose carries its cloud into the'
        " common frame, x = R v + t. Standard deviations are relative to the average cloud.</p>"
    )


def _matrix(pose: Float[Array, "D1 D1"]) -> str:
    """All digits that a double has."""
    return "\n".join(" ".join(f"{value: .15g}" for value in row) for row in pose)


def _pairs(
    result: Registration, overlap: Float[Array, "M M"], residual: Float[Array, "M M"]
) -> str:
    known = residual[np.isfinite(residual)]
    typical, top = (
        (float(np.median(known)), float(np.percentile(known, 98))) if len(known) else (1.0, 1.0)
    )
    power = int(np.floor(np.log10(typical))) if typical > 0 else 0
    power = power if abs(power) > 1 else 0
    unit = f" (in 10<sup>{power}</sup> of your unit)".replace("-", "−") if power else ""
    share, distance = [], []
    if len(overlap) <= CELLS:
        share = [
            ["" if i == j else f"{value:.0%}" for j, value in enumerate(row)]
            for i, row in enumerate(overlap)
        ]
        distance = [
            [f"{v / 10.0**power:.1f}" if np.isfinite(v) else "–" for v in row] for row in residual
        ]
        for j in range(len(overlap)):
            distance[j][j] = ""
    own = np.eye(len(overlap), dtype=bool)
    scales = (
        ("", " –: nothing shared.")
        if share
        else (
            " Dark: none, bright: all.",
            f" Dark: 0, bright: {top:.2g} or more, grey: nothing shared.",
        )
    )
    return (
        "<div"
        f' class="matrices"><figure>{_heat(result.names, np.where(own, np.nan, overlap), share, "overlap")}<figcaption>'
        "Overlap: the share of the row's points on surface that the column's cloud sees"
        f" too.{scales[0]}</figcaption></figure>"
        f"<figure>{_heat(result.names, np.clip(residual / (top or 1.0), 0, 1), distance, 'gap')}<figcaption>Gap"
        " between the "
        "two clouds along the surface normal, root mean"
        f" square{unit if share else ''}.{scales[1]}</figcaption></figure></div>"
    )


def _heat(
    names: Sequence[str], values: Float[Array, "M M"], labels: Sequence[Sequence[str]], kind: str
) -> str:
    """Values from 0 to 1 as a table of shaded cells, or as a picture where there are many."""
    if len(names) > CELLS:
        level = np.where(np.isfinite(values), values, 0)[..., None]
        low, high = np.array([24.0, 30, 66]), np.array([255.0, 214, 92])
        image = (
            np.where(np.isfinite(values)[..., None], low + (high - low) * level, 128)
            .round()
            .astype(np.uint8)
        )
        return (
            f'<img class="heat" alt="{text(kind)} between clouds, in the order of the table above"'
            f' src="{png(image)}">'
        )
    written = len(names) <= NUMBERS
    head = "".join(f'<th scope="col" title="{text(n)}"><span>{name(n)}</span></th>' for n in names)
    rows = ""
    for row, n in enumerate(names):
        cells = ""
        for column, other in enumerate(names):
            value, label = values[row, column], labels[row][column]
            style = f' style="--v:{value:.2f}"' if np.isfinite(value) else ""
            hint = "" if written else f' title="{text(f"{n} – {other}: {label}")}"'
            cells += f"<td{style}{hint}{' class=strong' if value > 0.65 else ''}>{text(label) if written else ''}</td>"
        rows += f'<tr><th scope="row" title="{text(n)}"><span>{name(n)}</span></th>{cells}</tr>'
    table = (
        '<table class="heat'
        f' {kind}"><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table>'
    )
    return f'<div class="scroll">{table}</div>'


def _run(result: Registration, run: Run) -> str:
    command = (
        f"<pre class=command>{text(run.command)}</pre>"
        if run.command
        else "<p>Called from Python.</p>"
    )
    facts = {"status": result.status.value, **run.options, **run.versions}
    rows = "".join(
        f"<div><dt>{text(key)}</dt><dd>{text('default' if v is None else v)}</dd></div>"
        for key, v in facts.items()
    )
    return f'{command}<dl class="facts">{rows}</dl>'
