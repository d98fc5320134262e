# SPDX-License-Identifier: MIT
"""Clouds as a Plotly figure, for notebooks."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe.errors import optional
from coframe.result.colours import palette
from coframe.types import Array


def figure(
    clouds: Sequence[Float[Array, "_ D"]],
    names: Sequence[str],
    *,
    points: int = 50_000,
    rng: np.random.Generator,
) -> Any:
    """The clouds (N_j, D) in their colours, D = 2 or 3, thinned evenly to about `points` in all."""
    go = optional("plotly.graph_objects", "plot", "result.plot()")
    share = min(1.0, points / sum(map(len, clouds)))
    made = go.Figure()
    for cloud, name, colour in zip(clouds, names, palette(len(names)), strict=True):
        kept = cloud[rng.permutation(len(cloud))[: max(1, round(share * len(cloud)))]]
        axes = dict(zip("xyz", kept.T, strict=False))
        kind = go.Scatter3d if len(axes) == 3 else go.Scattergl
        marker = {"size": 2 if len(axes) == 3 else 4, "color": colour}
        made.add_trace(
            kind(**axes, mode="markers", name=escape(name), marker=marker, hoverinfo="name")
        )
    made.update_layout(
        scene={"aspectmode": "data"},
        legend={"itemsizing": "constant"},
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
    )
    if clouds[0].shape[1] == 2:
        made.update_yaxes(scaleanchor="x")
    return made
