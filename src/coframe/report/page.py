# SPDX-License-Identifier: MIT
"""The page: what it says, in which order, and how it is put together.

Warnings, tables and charts are plain HTML and SVG, made here; the script (`viewer.js`) draws the
scene and links the parts. A page is a title, a summary and a list of sections, so that other
results can have pages of their own.
"""

import base64
import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from string import Template

import numpy as np
from jaxtyping import Float, UInt8

from coframe import geometry
from coframe.io.files import atomic
from coframe.io.manifest import own_files
from coframe.io.transaction import transaction
from coframe.report import charts, links, numbers, scene
from coframe.report.markup import count, json_block, length, lengths, name, pack, png, text
from coframe.report.run import Run
from coframe.result.colours import palette
from coframe.result.folder import KIND
from coframe.result.merged import COLOURS, GREY
from coframe.result.quality import Quality, assess
from coframe.result.registration import UNRELIABLE, Registration
from coframe.types import Array, Pose

NUMBERS = 16  # [size] [clouds] up to which figures of pairs are written into cells
SHORT = 15  # [size] [clouds] up to which the table of clouds is shown whole
CELLS = 40  # [size] [clouds] up to which figures of pairs are a table, not a picture
# [size] Decimals of a position in a scene as long as one unit.
PLACES = 5
# What options are called, of which the tolerance of a contract is not the one in `Options`.
SAID = {"tolerance": "converged below", "distance_tolerance": "distance tolerance"}
MARKS = {"aligned": "✓", "weak": "!", "failed": "✕"}


@dataclass(frozen=True)
class Section:
    """A part of the page under its own heading. `body` is HTML."""

    key: str
    title: str
    body: str
    wide: bool = True


def write(
    result: Registration,
    path: str | os.PathLike[str],
    *,
    run: Run | None = None,
    quality: Quality | None = None,
    points: int = scene.POINTS,
    rng: np.random.Generator | None = None,
) -> Path:
    """Write the report to a file.

    Parameters
    ----------
    result
        The registration. Points are shown in their own colours where `attributes` has them.
    path
        The file to write.
    run
        How the result came about.
    quality
        Figures for each scan and each link; default: those of `coframe.assess`.
    points
        Number of points shown, of all clouds together.
    rng
        Chooses the points. Default: always the same ones.

    Returns
    -------
    Path
        The file written.

    Examples
    --------
    >>> coframe.report.write(result, "report.html")
    """
    page = html(result, run=run, quality=quality, points=points, rng=rng)
    return save_into(path, page)


def save(path: str | os.PathLike[str], content: str) -> Path:
    """Write a page to a file, whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as temporary:
        temporary.write_text(content, encoding="utf-8", newline="\n")
    return path


def save_into(path: str | os.PathLike[str], content: str) -> Path:
    """Write a page to a file; in the folder of a result, it becomes a part of that."""
    path = Path(path)
    if not own_files(path.parent):
        return save(path, content)
    with transaction(path.parent, KIND, keep=True, elsewhere=True) as new:
        save(new / path.name, content)
    return path


def html(
    result: Registration,
    *,
    run: Run | None = None,
    quality: Quality | None = None,
    points: int = scene.POINTS,
    rng: np.random.Generator | None = None,
) -> str:
    """The report as one page that needs nothing else; see `write`."""
    run = run or Run()
    quality = assess(result) if quality is None else quality
    colours = _own_colours(result)
    rng = np.random.default_rng(0) if rng is None else rng
    drawn = scene.of(result, start=run.start, colours=colours, rng=rng, points=points)
    overlap, residual = numbers.pairs(result)
    outliers = 1 - sum(int(keep.sum()) for keep in result.inliers()) / sum(map(len, result.clouds))
    adjusted = result.targets
    targets = (
        []
        if adjusted is None
        else [Section("targets", "Targets", links.targets(adjusted, run.unit))]
    )
    sections = [
        Section("poses", "Clouds and poses", _poses(result, drawn, run, quality)),
        Section("scene", "Scene", _scene(result, drawn, outliers, colours is not None)),
        *targets,
        *_alternatives(result, run.unit),
        Section("links", "Links", links.section(result, quality, run)),
        Section("pairs", "Between clouds", _pairs(result, run, overlap, residual)),
        Section("convergence", "Convergence", _convergence(result), wide=False),
        Section("components", "Components", _components(result), wide=False),
        Section("run", "How this was made", how_made(run, status=result.status.sentence)),
    ]
    notices = numbers.notices(result, overlap, outliers)
    return page(
        run.title,
        _summary(result, run, outliers),
        notice_list(
            [_notice(each) for each in numbers.grouped(notices)],
            f"All {len(result.poses)} clouds are aligned; {text(result.status.sentence)}.",
        ),
        sections,
        replace(drawn, header=drawn.header | {"unit": run.unit}),
    )


def _own_colours(result: Registration) -> list[UInt8[Array, "_ 3"]] | None:
    """The clouds' own colours, grey for clouds that have none; None where no cloud has any."""
    coloured = [
        all(channel in each and each[channel].dtype == np.uint8 for channel in COLOURS)
        for each in result.attributes
    ]
    if not any(coloured):
        return None
    return [
        np.stack([each[channel] for channel in COLOURS], 1)
        if has
        else np.full((len(cloud), 3), GREY, np.uint8)
        for each, has, cloud in zip(result.attributes, coloured, result.clouds, strict=True)
    ]


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
        f'<section id="{part.key}" class="card{" wide" if part.wide else ""}">'
        f"<h2>{text(part.title)}</h2>{part.body}</section>"
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
    residuals = [v.residual for v in result.verdicts if v.verdict != "failed"] or [np.nan]
    gap = length(float(np.median(residuals)), run.unit)
    values = [
        (f"{good} of {len(result.poses)}", "clouds aligned"),
        (count(sum(result.counts)), "points"),
        (gap, "typical gap between clouds"),
        (f"{outliers:.1%}", "outliers"),
        (str(result.iterations), "iterations"),
    ]
    return facts(values, run)


def facts(values: Sequence[tuple[str, str]], run: Run | None = None) -> str:
    """Figures with their labels, the time of the run among them."""
    seconds = None if run is None else run.seconds
    taken = [] if seconds is None else [(_duration(seconds), "run time")]
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


def notice_list(notices: Sequence[tuple[str, str]], otherwise: str) -> str:
    """Notices, each a level ("failed" or "weak") and HTML; or the HTML that all is well."""
    if not notices:
        return (
            f'<p class="notice aligned"><span class="mark">{MARKS["aligned"]}</span>{otherwise}</p>'
        )
    items = "".join(
        f'<li class="notice {level}"><span class="mark">{MARKS[level]}</span>'
        f"<span>{body}</span></li>"
        for level, body in notices
    )
    return f'<ul class="notices" aria-label="Warnings">{items}</ul>'


def _notice(notice: numbers.Notice) -> tuple[str, str]:
    cloud = "" if notice.cloud is None else f"<b>{name(notice.cloud)}</b> "
    return notice.level, f"{cloud}{text(notice.message)}"


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
    of_all = f"{count(total)} points of {len(result.names)} clouds are shown"
    thinned = f"{count(drawn.shown)} of {of_all}, evenly thinned"
    values = {
        "before": (
            "The clouds under their start poses"
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
        "note": thinned if drawn.shown < total else f"All {of_all}",
        "mouse": "Drag to move" if D == 2 else "Drag to turn, right-drag or Shift to move",
        "touch": "One finger moves, two zoom" if D == 2 else "One finger turns, two move and zoom",
    }
    return Template(
        (files("coframe.report") / "scene.html").read_text(encoding="utf-8")
    ).substitute(values)


def _convergence(result: Registration) -> str:
    if not result.history:
        return "<p>No iteration was run.</p>"
    likelihood = np.array([step.log_likelihood / step.points for step in result.history])
    steps = np.array([step.step for step in result.history])
    climb = figure(
        charts.curve(likelihood, label="log-likelihood per point", across="iteration"),
        "The log-likelihood jumps where a new level begins with another mixture; within a level it"
        ' never falls. <span class="onscreen">Click to see an iteration.</span>',
    )
    change = figure(
        charts.curve(steps, label="largest step", across="iteration", log=True),
        "The largest movement of a cloud in each iteration, as a share of the scene's radius.",
    )
    # Other methods have no likelihood.
    return f"{climb if np.isfinite(likelihood).all() else ''}{change}"


def _components(result: Registration) -> str:
    mixture, good = result.mixture, result.reliable()
    bad = int((~good).sum())
    unreliable = f"{bad} of {len(good)} components are unreliable; their points count as outliers."
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
        return figure(chart, f"{unreliable} Unreliable components are wider than the threshold.")
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(mixture.covariances), 0))
    thick = charts.histogram(
        values[:, 0], good, label="thickness (standard deviation along the normal)", threshold=None
    )
    body = figure(thick, "Thickness of the modelled surface; noise and misalignment increase it.")
    if mixture.outlier_density > 0:
        peaks = np.log(mixture.weights) + mixture.log_peaks - np.log(mixture.outlier_density)
        ratio = charts.histogram(
            np.exp(np.clip(peaks, -600, 600)),
            good,
            label="peak density over that of the outlier class",
            threshold=1.0,
            threshold_label="outlier threshold",
        )
        caption = "Unreliable components are everywhere less dense than the outlier class."
        body += figure(ratio, f"{unreliable} {caption}")
    return body


def _poses(result: Registration, drawn: scene.Scene, run: Run, quality: Quality) -> str:
    turn, shift = numbers.uncertainty(result)
    centres = np.array([np.median(cloud, axis=0) for cloud in result.clouds])
    unit = run.unit
    both = [v.residual for v in result.verdicts] + [v.expected for v in result.verdicts]
    gaps = lengths(both, unit=unit)
    columns: list[tuple[str, str, list[str]]] = [
        ("points", "", [str(count) for count in result.counts]),
        (
            "overlap",
            "share of its points on surface that other clouds see as well",
            [f"{v.overlap:.0%}" for v in result.verdicts],
        ),
        (
            "explained",
            "share of its points that the model explains",
            [f"{v.inliers:.0%}" for v in result.verdicts],
        ),
        (
            "gap",
            "between its surface and that of the other clouds, averaged over patches, along the"
            " normal, root mean square",
            gaps[: len(result.poses)],
        ),
        ("expected", "the gap that noise alone would leave", gaps[len(result.poses) :]),
        (
            "± turn [°]",
            "standard deviation of the rotation in the least certain direction",
            lengths(turn, 2),
        ),
        (
            "± shift",
            "standard deviation of the position in the least certain direction",
            lengths(shift, 2, unit),
        ),
    ]
    if quality.tolerance is not None:
        shares = ["–" if s.within is None else f"{s.within:.0%}" for s in quality.scans]
        hint = (
            "share of its points whose distance from the surface of linked clouds is within the"
            " tolerance"
        )
        columns.insert(3, (run.within(quality.tolerance), hint, shares))
    columns += [
        (
            "held",
            "how well its points are held along the axes: weak, free: by less than the scatter of a"
            " point, by less than a tenth of that",
            [_held(scan.strength) for scan in quality.scans],
        )
    ]
    if run.start is not None:
        turned, moved = numbers.travelled(drawn.start, result, centres)
        columns += [
            ("turned [°]", "rotation from its start pose", lengths(turned)),
            ("moved", "movement of its centre from its start pose", lengths(moved, unit=unit)),
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
            f"{MARKS[v.verdict]} {text(v.verdict)}</span>{reason}</td>{cells}</tr>"
        )
    tall = " tall" if len(result.names) > SHORT else ""
    return (
        f'<div class="scroll{tall}"><table class="clouds"><thead><tr><th scope="col">cloud</th><th'
        f' scope="col">verdict</th>{head}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div><p"
        f' class="small">Lengths are in {text(run.unit or "the unit of the input")}. Standard'
        f" deviations are relative to {_reference(result, run)}.</p>{_placed(result, drawn)}"
    )


def _reference(result: Registration, run: Run) -> str:
    """What standard deviations of poses are relative to, in words."""
    control = result.targets is not None and result.targets.rms("control") is not None
    known = [
        words
        for words, there in (
            ("the control points", control),
            ("the fixed clouds", not result.pose_covariance.any((1, 2)).all()),
            ("the given priors", bool(run.options.get("prior"))),
        )
        if there
    ]
    return " and ".join(known) or "the average cloud"


def _placed(result: Registration, drawn: scene.Scene) -> str:
    """Where each cloud's own origin lies and how the cloud is turned; on the screen, its matrix."""
    size = float(np.max(np.array(drawn.header["high"]) - np.array(drawn.header["low"])))
    decimals = max(0, PLACES - math.floor(math.log10(size))) if size > 0 else PLACES
    D = result.mixture.dimension
    words = ("turn [°]",) if D == 2 else ("about z [°]", "about y [°]", "about x [°]")
    head = "".join(f'<th scope="col">{each}</th>' for each in (*"xyz"[:D], *words))
    rows = ""
    for cloud, pose in zip(result.names, result.poses, strict=True):
        values = [f"{v:.{decimals}f}" for v in pose[:D, D]]
        values += [f"{angle:.4f}" for angle in numbers.turns(pose)]
        rows += f'<tr><th scope="row">{name(cloud)}</th>'
        rows += "".join(f"<td>{each}</td>" for each in values)
        rows += f'</tr><tr class="pose"><td colspan="{1 + D + len(words)}">'
        rows += f"<pre>{_matrix(pose)}</pre></td></tr>"
    note = "" if D == 2 else " It is turned about x first, then about y, then about z."
    return (
        f'<details class="placed"><summary>Poses</summary><div class="scroll"><table class="poses">'
        f'<thead><tr><th scope="col">cloud</th>{head}</tr>'
        f'</thead><tbody>{rows}</tbody></table></div><p class="small">Where the origin of a cloud'
        f" (the instrument, in a scan) lies in the common frame, and how the cloud is turned.{note}"
        " A pose carries its cloud into the common frame, x = R v + t.</p></details>"
    )


def _held(strength: Sequence[str]) -> str:
    """How well each axis is held, in words."""
    loose = [
        f"{axis} {word}" for axis, word in zip("xyz", strength, strict=False) if word != "strong"
    ]
    return ", ".join(loose) or "strong"


def _alternatives(result: Registration, unit: str) -> list[Section]:
    """Where clouds could lie as well; no section where evidence leaves no such place."""
    rows = ""
    for each in result.alternatives:
        motions = each.poses @ geometry.inverse(result.poses[list(each.clouds)])
        turn = float(np.degrees(geometry.angle(geometry.rotation(motions))).max())
        centres = [np.median(result.clouds[j], axis=0) for j in each.clouds]
        ends = [
            geometry.transform(T, c[None])[0] - geometry.transform(now, c[None])[0]
            for T, now, c in zip(each.poses, result.poses[list(each.clouds)], centres, strict=True)
        ]
        far = float(np.linalg.norm(ends, axis=1).max())
        here, there = ("–", "–") if each.contradictions is None else each.contradictions
        shares = [share if isinstance(share, str) else f"{share:.1%}" for share in (here, there)]
        cells = [f"{turn:.3g}", length(far, unit), *shares, f"{each.lead:.1f}"]
        listed = ", ".join(name(result.names[j]) for j in each.clouds)
        matrices = "\n\n".join(map(_matrix, each.poses))
        rows += (
            f'<tr><th scope="row">{listed}</th>'
            + "".join(f"<td>{text(cell)}</td>" for cell in cells)
            + f'<td class="why">{text(each.reason)}</td><td class="pose"><details>'
            f"<summary>poses</summary><pre>{matrices}</pre></details></td></tr>"
        )
    if not rows:
        return []
    words = ("clouds", "turn [°]", "shift", "contradict here", "there", "lead")
    head = "".join(f'<th scope="col">{text(word)}</th>' for word in words)
    head += '<th scope="col" class="why">why</th><th scope="col">poses</th>'
    body = (
        f'<div class="scroll"><table class="clouds"><thead><tr>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div><p class="small">Places that the data do not exclude.'
        " Contradict: share of the clouds' points in common territory that contradict others, as"
        " they are and there. Lead: by how many standard deviations they contradict others less as"
        " they are; from 3 on, the other place is excluded.</p>"
    )
    return [Section("alternatives", "Other places", body)]


def _matrix(pose: Pose) -> str:
    """All significant digits of a double."""
    return "\n".join(" ".join(f"{value: .15g}" for value in row) for row in pose)


def _pairs(
    result: Registration,
    run: Run,
    overlap: Float[Array, "M M"],
    residual: Float[Array, "M M"],
) -> str:
    known = residual[np.isfinite(residual)]
    typical, top = (
        (float(np.median(known)), float(np.percentile(known, 98))) if len(known) else (1.0, 1.0)
    )
    power = int(np.floor(np.log10(typical))) if typical > 0 else 0
    power = power if abs(power) > 1 else 0
    factor = f"10<sup>{power}</sup> ".replace("-", "−") if power else ""
    named = text(run.unit) or ("of your unit" if power else "")
    unit = f" (in {factor}{named})" if named else ""
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
    overlaps = figure(
        _heat(result.names, np.where(own, np.nan, overlap), share, "overlap"),
        "Overlap: the share of the row's points on surface that the column's cloud sees as well."
        f"{scales[0]}",
    )
    gaps = figure(
        _heat(result.names, np.clip(residual / (top or 1.0), 0, 1), distance, "gap"),
        "Gap between the surfaces of the two clouds along the normal, averaged over patches of many"
        f" points, root mean square{unit if share else ''}.{scales[1]}",
    )
    return f'<div class="matrices">{overlaps}{gaps}</div>'


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
    shorts = links.short_names(names)
    head = "".join(
        f'<th scope="col" title="{text(n)}"><span>{name(short)}</span></th>'
        for n, short in zip(names, shorts, strict=True)
    )
    rows = ""
    for row, n in enumerate(names):
        cells = ""
        for column, other in enumerate(names):
            value, label = values[row, column], labels[row][column]
            style = f' style="--v:{value:.2f}"' if np.isfinite(value) else ""
            hint = "" if written else f' title="{text(f"{n} – {other}: {label}")}"'
            strong = " class=strong" if value > 0.65 else ""
            pair = f' data-pair="{row} {column}"' if row != column else ""
            cells += f"<td{pair}{style}{hint}{strong}>{text(label) if written else ''}</td>"
        short = name(shorts[row])
        rows += f'<tr><th scope="row" title="{text(n)}"><span>{short}</span></th>{cells}</tr>'
    table = (
        '<table class="heat'
        f' {kind}"><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table>'
    )
    return f'<div class="scroll">{table}</div>'


def figure(chart: str, caption: str) -> str:
    """A chart with its caption, both HTML."""
    return f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"


def _plain(value: object) -> object:
    """An option as it is shown."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "default" if value is None else value


def how_made(run: Run, **facts: object) -> str:
    """The command of a run, some facts, its options and the versions that it ran with."""
    command = (
        f"<pre class=command>{text(run.command)}</pre>"
        if run.command
        else "<p>Called from Python.</p>"
    )
    made = {"made": run.made} if run.made else {}
    rows = "".join(
        f"<div><dt>{text(SAID.get(key, key))}</dt><dd>{text(_plain(v))}</dd></div>"
        for key, v in {**made, **facts, **run.options, **run.versions}.items()
    )
    signed = "".join(f"<span>{each}</span>" for each in ("Date", "Checked by", "Signature"))
    return f'{command}<dl class="facts">{rows}</dl><p class="sign">{signed}</p>'
