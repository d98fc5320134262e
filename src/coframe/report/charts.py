# SPDX-License-Identifier: MIT
"""Small charts as SVG, without scripts, in the colours of the page."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float

from coframe.report.markup import text
from coframe.types import Array

WIDTH, HEIGHT = 520.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 12.0, 12.0, 40.0

Scale = Callable[[float], float]  # from a value to its position on the page
Marks = Sequence[tuple[float, str]]  # values and their labels


def curve(
    values: Float[Array, " n"], *, label: str, across: str, first: int = 1, log: bool = False
) -> str:
    """A curve over whole numbers from `first` on; `log`: on a logarithmic vertical axis."""
    y = np.log10(np.maximum(values, np.finfo(float).tiny)) if log else np.asarray(values, float)
    low, high = _padded(float(y.min()), float(y.max()))
    last = first + max(len(y) - 1, 1)
    x_of, y_of = (
        _scale(float(first), float(last), LEFT, WIDTH - RIGHT),
        _scale(low, high, HEIGHT - BOTTOM, TOP),
    )
    dots = " ".join(f"{x_of(first + i):.1f},{y_of(v):.1f}" for i, v in enumerate(y))
    marks = (
        [(v, _power(v)) for v in _decades(low, high)]
        if log
        else [(v, _plain(v, high - low)) for v in ticks(low, high, 5)]
    )
    steps = [
        (v, f"{v:g}") for v in ticks(float(first), float(last), 6) if v == round(v) and v >= first
    ]
    body = (
        _axes(steps, marks, x_of, y_of, across, label) + f'<polyline class="line" points="{dots}"/>'
    )
    if len(y) == 1:
        body += f'<circle class="dot" cx="{x_of(first):.1f}" cy="{y_of(float(y[0])):.1f}" r="3"/>'
    cursor = (
        f'<line class="cursor" x1="{x_of(last):.1f}" x2="{x_of(last):.1f}" y1="{TOP:g}"'
        f' y2="{HEIGHT - BOTTOM:g}"/>'
    )
    return _svg(
        body + cursor, f"{label}, over {across}", f'data-first="{first}" data-last="{last}"'
    )


def histogram(
    values: Float[Array, " n"],
    good: Bool[Array, " n"],
    *,
    label: str,
    threshold: float | None,
    threshold_label: str = "",
) -> str:
    """A histogram on a logarithmic axis; values that are not `good` have another colour."""
    exponents = np.log10(np.maximum(values, np.finfo(float).tiny))
    ends = [float(exponents.min()), float(exponents.max())] + (
        [math.log10(threshold)] if threshold else []
    )
    low, high = _padded(min(ends), max(ends))
    edges = np.linspace(low, high, 41)
    all_of, good_of = (
        np.histogram(exponents[which], edges)[0] for which in (np.ones_like(good), good)
    )
    x_of, y_of = (
        _scale(low, high, LEFT, WIDTH - RIGHT),
        _scale(0.0, max(int(all_of.max()), 1) * 1.08, HEIGHT - BOTTOM, TOP),
    )
    bars = ""
    for a, b, whole, part in zip(edges[:-1], edges[1:], all_of, good_of, strict=True):
        for bottom, top, kind in ((0, part, "bar"), (part, whole, "bar bad")):
            if top > bottom:
                place = f'x="{x_of(a) + 0.5:.1f}" width="{x_of(b) - x_of(a) - 1:.1f}"'
                bars += (
                    f'<rect class="{kind}" {place} y="{y_of(top):.1f}"'
                    f' height="{y_of(bottom) - y_of(top):.1f}"/>'
                )
    marks = [(v, f"{v:g}") for v in ticks(0.0, float(all_of.max()) * 1.08, 4) if v == round(v)]
    body = _axes(_log_marks(low, high), marks, x_of, y_of, label, "components") + bars
    if threshold:
        x = x_of(math.log10(threshold))
        left = x > (LEFT + WIDTH - RIGHT) / 2
        body += (
            f'<line class="threshold" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP:g}"'
            f' y2="{HEIGHT - BOTTOM:g}"/>'
        )
        anchor, beside = ("end", x - 5) if left else ("start", x + 5)
        body += (
            f'<text class="note" x="{beside:.1f}" y="{TOP + 10:g}"'
            f' text-anchor="{anchor}">{text(threshold_label)}</text>'
        )
    return _svg(body, f"Histogram of {label}")


def falling(
    x: Float[Array, " n"], y: Float[Array, " n"], *, threshold: float, label: str, across: str
) -> str:
    """A curve between 0 and 1, or slightly below, with a threshold across."""
    low = min(0.0, float(y.min()))
    x_of = _scale(0.0, float(x[-1]), LEFT, WIDTH - RIGHT)
    y_of = _scale(low, 1.02, HEIGHT - BOTTOM, TOP)
    marks = [(v, f"{v:g}") for v in (0.0, 0.25, 0.5, 0.75, 1.0)]
    steps = [(v, f"{v:.3g}") for v in ticks(0.0, float(x[-1]), 6)]
    dots = " ".join(f"{x_of(a):.1f},{y_of(b):.1f}" for a, b in zip(x, y, strict=True))
    level = y_of(threshold)
    line = (
        f'<line class="threshold" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{level:.1f}"'
        f' y2="{level:.1f}"/>'
    )
    body = _axes(steps, marks, x_of, y_of, across, label) + line
    return _svg(f'{body}<polyline class="line" points="{dots}"/>', f"{label}, over {across}")


def dots(names: Sequence[str], values: Sequence[float | None], *, label: str) -> str:
    """A dot for each name on a logarithmic axis, from top to bottom; none for values up to zero."""
    known = [math.log10(v) for v in values if v is not None and v > 0]
    low, high = _padded(min(known), max(known))
    left, row = LEFT + 50.0, 18.0
    floor = TOP + row * len(names)
    x_of = _scale(low, high, left, WIDTH - RIGHT - 50.0)
    body = ""
    for place, mark in _log_marks(low, high):
        body += (
            f'<line class="grid" x1="{x_of(place):.1f}" x2="{x_of(place):.1f}" y1="{TOP:g}"'
            f' y2="{floor:g}"/>'
        )
        body += f'<text x="{x_of(place):.1f}" y="{floor + 17:g}" text-anchor="middle">{mark}</text>'
    for i, (each, value) in enumerate(zip(names, values, strict=True)):
        y = TOP + row * (i + 0.5)
        body += (
            f'<text class="note" x="{left - 7:g}" y="{y + 4:.1f}"'
            f' text-anchor="end">{text(each)}</text>'
        )
        if value is not None and value > 0:
            x = x_of(math.log10(value))
            body += f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
            body += f'<text x="{x + 8:.1f}" y="{y + 4:.1f}">{value:.3g}</text>'
    middle = (left + WIDTH - RIGHT) / 2
    body += (
        f'<text class="label" x="{middle:g}" y="{floor + 34:g}"'
        f' text-anchor="middle">{text(label)}</text>'
    )
    return _svg(body, f"{label}, by method", height=floor + BOTTOM)


def over_time(
    times: Float[Array, " n"],
    share: Float[Array, " n"],
    marked: Bool[Array, " n"],
    *,
    label: str,
    across: str,
) -> str:
    """A share, 0 to 1, over time; where `marked`, the chart is shaded and has no curve."""
    step = float(np.median(np.diff(times))) if len(times) > 1 else 1.0
    x_of = _scale(float(times[0]) - step / 2, float(times[-1]) + step / 2, LEFT, WIDTH - RIGHT)
    y_of = _scale(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    bands = ""
    for a, b in runs(marked):
        left = x_of(float(times[a]) - step / 2)
        width = max(x_of(float(times[b]) + step / 2) - left, 1)
        bands += (
            f'<rect class="band" x="{left:.1f}" y="{TOP:g}" height="{HEIGHT - BOTTOM - TOP:g}"'
            f' width="{width:.1f}"/>'
        )
    lines = ""
    for a, b in runs(~marked):
        dots = " ".join(f"{x_of(times[i]):.1f},{y_of(share[i]):.1f}" for i in range(a, b + 1))
        lines += f'<polyline class="line" points="{dots}"/>'
    up = [(v, f"{v:.0%}") for v in (0.0, 0.25, 0.5, 0.75, 1.0)]
    steps = [(v, f"{v:g}") for v in ticks(float(times[0]), float(times[-1]), 8)]
    return _svg(
        bands + _axes(steps, up, x_of, y_of, across, label) + lines, f"{label}, over {across}"
    )


def plan(
    path: Float[Array, "n 2"],
    found: Bool[Array, " n"],
    points: Float[Array, "p 2"],
    *,
    labels: tuple[str, str],
    description: str,
) -> str:
    """A path over the points of a map, with equal axes, drawn where it was found."""
    shown = np.concatenate([path[found], np.percentile(points, [2, 98], axis=0)])
    low, high = shown.min(0), shown.max(0)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    # units per step on the page
    each = 1.1 * float(max((high[0] - low[0]) / width, (high[1] - low[1]) / height)) or 1.0
    middle = (low + high) / 2
    x_low, y_low = middle[0] - each * width / 2, middle[1] - each * height / 2
    x_of = _scale(x_low, x_low + each * width, LEFT, WIDTH - RIGHT)
    y_of = _scale(y_low, y_low + each * height, HEIGHT - BOTTOM, TOP)
    inside = points[(np.abs(points - middle) < each * np.array([width, height]) / 2).all(1)]
    dots = "".join(f"M{x_of(x):.1f} {y_of(y):.1f}h0" for x, y in inside)
    lines = "".join(
        '<polyline class="line"'
        f' points="{" ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in path[a : b + 1])}"/>'
        for a, b in runs(found)
    )
    across = [(v, _plain(v, each * width)) for v in ticks(x_low, x_low + each * width, 6)]
    up = [(v, _plain(v, each * height)) for v in ticks(y_low, y_low + each * height, 4)]
    body = _axes(across, up, x_of, y_of, *labels) + f'<path class="map" d="{dots}"/>' + lines
    if found.any():
        x, y = path[int(np.argmax(found))]
        body += f'<circle class="ring" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="5"/>'
    return _svg(body, description)


def runs(which: Bool[Array, " n"]) -> list[tuple[int, int]]:
    """First and last index of every run of true values."""
    edges = np.diff(np.concatenate([[0], which.astype(np.int64), [0]]))
    return list(
        zip(
            np.flatnonzero(edges == 1).tolist(),
            (np.flatnonzero(edges == -1) - 1).tolist(),
            strict=True,
        )
    )


def ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers between low and high."""
    rough = (high - low) / max(count, 1)
    if not (math.isfinite(rough) and rough > 0):
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    return [
        step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def _svg(body: str, description: str, attributes: str = "", height: float = HEIGHT) -> str:
    view = f'viewBox="0 0 {WIDTH:g} {height:g}" data-left="{LEFT:g}" data-right="{WIDTH - RIGHT:g}"'
    return (
        f'<svg class="chart" role="img" aria-label="{text(description)}" {view}'
        f" {attributes}>{body}</svg>"
    )


def _axes(across: Marks, up: Marks, x_of: Scale, y_of: Scale, x_label: str, y_label: str) -> str:
    floor, parts = HEIGHT - BOTTOM, []
    for value, mark in up:
        y = y_of(value)
        parts.append(
            f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<text x="{LEFT - 7:g}" y="{y + 4:.1f}" text-anchor="end">{mark}</text>')
    for value, mark in across:
        parts.append(
            f'<line class="tick" x1="{x_of(value):.1f}" x2="{x_of(value):.1f}" y1="{floor:g}"'
            f' y2="{floor + 4:g}"/>'
        )
        parts.append(
            f'<text x="{x_of(value):.1f}" y="{floor + 17:g}" text-anchor="middle">{mark}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2, (TOP + floor) / 2
    parts.append(
        f'<line class="tick" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{floor:g}" y2="{floor:g}"/>'
    )
    parts.append(
        f'<text class="label" x="{middle[0]:g}" y="{HEIGHT - 6:g}"'
        f' text-anchor="middle">{text(x_label)}</text>'
    )
    turned = f'transform="translate(13 {middle[1]:g}) rotate(-90)"'
    parts.append(f'<text class="label" {turned} text-anchor="middle">{text(y_label)}</text>')
    return "".join(parts)


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (end - start) * (value - low) / (high - low)


def _padded(low: float, high: float) -> tuple[float, float]:
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return low - room, high + room


def _plain(value: float, span: float) -> str:
    decimals = max(0, 1 - math.floor(math.log10(span))) if span > 0 else 0
    return f"{value:.{min(decimals, 6)}f}" if abs(value) < 1e6 else f"{value:.4g}"


def _power(exponent: float) -> str:
    return f'10<tspan dy="-5" font-size="8">{exponent:.0f}</tspan>'


def _decades(low: float, high: float) -> list[float]:
    every = max(1, math.ceil((high - low) / 6))
    whole = [e for e in range(math.ceil(low), math.floor(high) + 1) if e % every == 0]
    return [float(e) for e in whole]


def _log_marks(low: float, high: float) -> list[tuple[float, str]]:
    """Powers of ten where the axis spans many; with their double and fivefold where it spans few;
    else round numbers.
    """
    if high - low > 2.5:
        return [(e, _power(e)) for e in _decades(low, high)]
    if high - low > 0.7:
        steps = [
            m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)
        ]
    else:
        steps = [v for v in ticks(10**low, 10**high, 5) if v > 0]
    return [(math.log10(v), f"{v:.4g}") for v in steps if low <= math.log10(v) <= high]
