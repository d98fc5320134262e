# SPDX-License-Identifier: MIT
"""What all figures share: the colour, mark and line of a method, clouds seen along an axis.

Lines of methods differ in mark and dashes as well as in colour, and colours in lightness: the
figures can be read in print without colour.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

STYLES: Mapping[str, Mapping[str, Any]] = {
    "ICP": {"color": "#aaaaaa", "marker": "o", "linestyle": ":"},
    "seqICP": {"color": "#888888", "marker": "v", "linestyle": ":"},
    "GMMReg": {"color": "#4daf4a", "marker": "s", "linestyle": "--"},
    "CPD / ECMPR": {"color": "#56a0d3", "marker": "^", "linestyle": "-."},
    "SimReg": {"color": "#9467bd", "marker": "D", "linestyle": "--"},
    "JRMPC-B": {"color": "#c1121f", "marker": "*", "linestyle": "-"},
    "register": {"color": "#000000", "marker": "x", "linestyle": "-"},
    "true": {"color": "#aaaaaa", "linestyle": "-", "linewidth": 3.0},
    "coframe.track": {"color": "#000000", "linestyle": "-", "linewidth": 1.0},
    "coframe.track_published": {"color": "#c1121f", "linestyle": "--", "linewidth": 1.0},
}
# dark and light by turns, so that neighbours differ without colour, too
CLOUD_COLOURS = (
    "#00224e",
    "#e69f00",
    "#3b5b92",
    "#9acd32",
    "#7a0403",
    "#56b4e9",
    "#1b5e20",
    "#f4a0a0",
    "#5e3c99",
    "#b8b8b8",
)
STRAY = 0.001  # share of points at each side that a picture leaves out
BAND = 0.15  # opacity of the band of two standard errors


def line(axes: Any, method: str, x: Any, y: Any, **more: Any) -> None:
    """The curve of a method."""
    axes.plot(x, y, label=method, markersize=5, **STYLES[method], **more)


def band(axes: Any, method: str, x: Any, y: Any, error: Any) -> None:
    """Two standard errors on both sides of a curve."""
    y, error = np.asarray(y, float), np.asarray(error, float)
    colour = STYLES[method]["color"]
    axes.fill_between(x, y - 2 * error, y + 2 * error, color=colour, alpha=BAND, linewidth=0)


def legend(figure: Any, axes: Any, columns: int) -> None:
    """One for all panels, below them."""
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=columns, fontsize="small")


def clouds(
    axes: Any,
    groups: Sequence[np.ndarray],
    title: str,
    *,
    along: int = 2,
    size: float = 0.5,
    colours: Sequence[str] = (),
) -> None:
    """Point groups (N, 3) seen along a coordinate axis, each in a colour of its own."""
    seen = [axis for axis in range(3) if axis != along]
    colours = colours or CLOUD_COLOURS
    for j, points in enumerate(groups):
        axes.scatter(
            *points[:, seen].T, s=size, c=colours[j % len(colours)], linewidths=0, rasterized=True
        )
    axes.set_title(title, fontsize="small")
    axes.set_aspect("equal")
    axes.set_axis_off()


def surface(axes: Any, points: np.ndarray, normals: np.ndarray, title: str, pixels: int) -> None:
    """Points (N, 3) with normals, seen against the third axis and lit from there: of each pixel the
    nearest point.
    """
    low, high = np.quantile(points[:, :2], [STRAY, 1 - STRAY], axis=0)
    inside = ((points[:, :2] >= low) & (points[:, :2] < high)).all(1)
    points, normals = points[inside], normals[inside]
    step = (high - low).max() / pixels
    column, row = np.floor((points[:, :2] - low) / step).astype(int).T
    image = np.full((row.max() + 1, column.max() + 1), np.nan)
    order = np.argsort(points[:, 2])  # the nearest is written last
    image[row[order], column[order]] = np.abs(normals[order, 2])
    axes.imshow(image, origin="lower", cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(title, fontsize="small")
    axes.set_axis_off()
