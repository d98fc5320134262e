# SPDX-License-Identifier: MIT
"""A tracked sequence as a page of its own: the path, how well each frame was explained, and the
map.
"""

import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.report import charts
from coframe.report.markup import count, lengths, name, text
from coframe.report.page import Section, facts, how_made, notice_list, page, save_into
from coframe.report.run import Run
from coframe.report.scene import POINTS, Scene, box, roots, shares, spacing
from coframe.result.colours import palette
from coframe.sequence import degeneracy
from coframe.sequence.track import Track
from coframe.types import Array

# [size] Colours along the path: so many stretches of key frames.
STRETCHES = 12
# [size] Components of the model that is shown.
COMPONENTS = 3000
# [size] Points along the path.
DENSE = 20_000
# [size] Stretches of lost frames that are listed.
LISTED = 20
# [size] Points of the map behind the drawn path.
BACKGROUND = 1500
# [size] Steps longer than this many typical ones are jumps, and not drawn.
JUMP = 20


def write(tracked: Track, path: str | os.PathLike[str], *, run: Run | None = None) -> Path:
    """Write the page of a tracked sequence to a file.

    Parameters
    ----------
    tracked
        The result of `coframe.track`.
    path
        The file, such as "report.html".
    run
        How the result was made, if that is to be shown.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> coframe.report.track.write(coframe.track("desk"), "report.html")
    """
    return save_into(path, html(tracked, run=run))


def html(tracked: Track, *, run: Run | None = None) -> str:
    """The page as text."""
    run = run or Run()
    drawn = scene(tracked, np.random.default_rng(0)) if tracked.keyframes else None
    sections = [
        Section("path", "Path", _path(tracked)),
        Section("quality", "Quality", _quality(tracked), wide=False),
        Section("run", "How this was made", how_made(run, frames=len(tracked.names)), wide=False),
    ]
    if drawn is not None:
        sections.insert(0, Section("scene", "Map", _map(tracked, drawn)))
    return page("coframe track", _summary(tracked, run), _notices(tracked), sections, drawn)


def scene(tracked: Track, rng: np.random.Generator, points: int = POINTS) -> Scene:
    """Key frames in stretches of the path, the path itself as one more cloud, and a mixture of it
    all.
    """
    groups = _stretches(tracked)
    clouds = [np.concatenate([tracked.keyframes[i].points for i in group]) for group in groups]
    counts = shares([len(cloud) for cloud in clouds], points)
    clouds = [
        cloud[rng.permutation(len(cloud))[:count]]
        for cloud, count in zip(clouds, counts, strict=True)
    ]
    along = _along(geometry.translation(tracked.found().poses))
    origin, low, high = box(np.concatenate([*clouds, along]))
    model = tracked.model(COMPONENTS)
    clouds.append(along[rng.permutation(len(along))])
    still = np.tile(np.eye(3, 4), (1, len(clouds), 1, 1))
    together = np.concatenate(clouds)
    arrays = {
        "points": (together - origin).astype("f4"),
        "outlier": np.zeros(len(together), "u1"),
        "poses": still.astype("f4"),
        "model": roots(model.means - origin, model.covariances)[None].astype("f4"),
        "reliable": np.ones(len(model), "u1"),
    }
    header = {
        "dimension": 3,
        "names": [*_labels(tracked, groups), "path"],
        "counts": [len(cloud) for cloud in clouds],
        "frames": ["result"],
        "keys": [0],
        "components": len(model),
        "origin": origin.tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "spacing": spacing(together, rng),
    }
    return Scene(header, arrays, np.tile(np.eye(4), (len(clouds), 1, 1)), len(together))


def _stretches(tracked: Track) -> list[Int[Array, " n"]]:
    return np.array_split(np.arange(len(tracked.keyframes)), min(STRETCHES, len(tracked.keyframes)))


def _labels(tracked: Track, groups: Sequence[Int[Array, " n"]]) -> list[str]:
    ends = [
        (tracked.keyframes[group[0]].index, tracked.keyframes[group[-1]].index) for group in groups
    ]
    return [_label(first, last) for first, last in ends]


def _label(first: int, last: int) -> str:
    """Of key frames from one frame to another; those of a map come first and have no frame."""
    if last < 0:
        return "map"
    if first < 0:
        return f"map, frames to {last}"
    return f"frames {first}–{last}" if first < last else f"frame {first}"


def _along(positions: Float[Array, "N 3"]) -> Float[Array, "n 3"]:
    """Points along the path, close enough together to look like a line; not across jumps."""
    if len(positions) < 2:
        return positions
    steps = np.linalg.norm(np.diff(positions, axis=0), axis=1)
    walked = steps < JUMP * max(float(np.median(steps)), np.finfo(float).tiny)
    count = max(2, DENSE // len(positions))
    share = np.linspace(0, 1, count, endpoint=False)[:, None]
    return np.concatenate(
        [positions[i] + share * (positions[i + 1] - positions[i]) for i in np.flatnonzero(walked)]
        or [positions]
    )


def _summary(tracked: Track, run: Run) -> str:
    N, lost = len(tracked), int(tracked.lost.sum())
    values = [
        (f"{N - lost} of {N}", "frames found"),
        (lengths([tracked.found().length])[0], "length of the path"),
        (str(len(tracked.keyframes)), "key frames"),
        (
            f"{np.median(tracked.explained[~tracked.lost]) if lost < N else 0:.0%}",
            "of a frame explained, typically",
        ),
    ]
    return facts(values, run)


def _notices(tracked: Track) -> str:
    names = tracked.names
    unread = np.zeros(len(tracked), bool)
    unread[list(tracked.skipped)] = True
    stretches = charts.runs(tracked.lost & ~unread)
    items = [
        f"skipped, since it could not be read: frame {i} ({name(reason)})"
        for i, reason in list(tracked.skipped.items())[:LISTED]
    ]
    if len(tracked.skipped) > LISTED:
        items.append(f"and {len(tracked.skipped) - LISTED} other frames that could not be read")
    items += [
        (
            f"lost: frames {a} to {b} ({name(names[a])} to {name(names[b])})"
            if a < b
            else f"lost: frame {a} ({name(names[a])})"
        )
        for a, b in stretches[:LISTED]
    ]
    if len(stretches) > LISTED:
        items.append(f"and {len(stretches) - LISTED} other stretches of lost frames")
    items += [text(degeneracy.sentence(stretch, names)) for stretch in tracked.degenerate[:LISTED]]
    return notice_list([("weak", each) for each in items], f"No frame of {len(tracked)} was lost.")


def _path(tracked: Track) -> str:
    """The path seen along the direction in which the map reaches least far, which is often upright,
    and from the side.
    """
    if not tracked.keyframes:
        return "<p>No frame was localised.</p>"
    points = tracked.merged()
    some = points[:: max(1, len(points) // BACKGROUND)]
    reach = np.ptp(np.percentile(points, [2, 98], axis=0), axis=0)
    up = int(np.argmin(reach))
    first, second = (axis for axis in range(3) if axis != up)
    found, lost = geometry.translation(tracked.poses), tracked.lost
    figures = ""
    for title, across, along in (
        (f"along {'xyz'[up]}", first, second),
        (f"along {'xyz'[second]}", first, up),
    ):
        chart = charts.plan(
            found[:, [across, along]],
            ~lost,
            some[:, [across, along]],
            labels=("xyz"[across], "xyz"[along]),
            description=f"The path of the sensor, seen {title}",
        )
        figures += (
            f"<figure>{chart}<figcaption>The path seen {title}, on the map. The ring is its"
            " start.</figcaption></figure>"
        )
    return f'<div class="matrices">{figures}</div>'


def _quality(tracked: Track) -> str:
    if not len(tracked):
        return "<p>No frame was read.</p>"
    seconds = tracked.times - tracked.times[0]
    across = "time [s]" if tracked.timed else "frame"
    chart = charts.over_time(
        seconds, tracked.explained, tracked.lost, label="share explained", across=across
    )
    return (
        f"<figure>{chart}<figcaption>The share of each frame's points that the model explained when"
        " the frame came. Lost frames are marked; frames that were found again only later have a"
        " low share where the loss began.</figcaption></figure>"
    )


def _map(tracked: Track, drawn: Scene) -> str:
    labels = drawn.header["names"]
    assert isinstance(labels, list)
    chips = "".join(
        f'<label class="chip" data-cloud="{j}" style="--c:{colour}"><input type="checkbox" checked>'
        f'<span class="swatch"></span>{name(label)}</label>'
        for j, (label, colour) in enumerate(zip(labels, palette(len(labels)), strict=True))
    )
    total = sum(len(keyframe.cloud) for keyframe in tracked.keyframes)
    values = {
        "before": "",
        "last": 0,
        "still": "hidden",
        "own": "hidden",
        "flat": "",
        "outliers": "",
        "components": drawn.header["components"],
        "chips": chips,
        "clouds": len(labels),
        "note": f"{len(tracked.keyframes)} key frames, {count(total)} points",
        "mouse": "Drag to turn, right-drag or Shift to move",
        "touch": "One finger turns, two move and zoom",
    }
    return Template(
        (files("coframe.report") / "scene.html").read_text(encoding="utf-8")
    ).substitute(values)
