# SPDX-License-Identifier: MIT
"""Colours and marks that a method keeps through all figures, and clouds seen along an axis."""

from collections.abc import Sequence
from typing import Any

import numpy as np

COLOURS = {
    "ICP": "#888888",
    "seqICP": "#bbbbbb",
    "GMMReg": "#2ca02c",
    "CPD / ECMPR": "#1f77b4",
    "SimReg": "#9467bd",
    "JRMPC-B": "#d62728",
    "register": "#000000",
}
MARKERS = {
    "ICP": "o",
    "seqICP": "v",
    "GMMReg": "s",
    "CPD / ECMPR": "^",
    "SimReg": "D",
    "JRMPC-B": "*",
    "register": "x",
}
CLOUD_COLOURS = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)


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
