# SPDX-License-Identifier: MIT
"""Is a cloud that fits nowhere mirrored, by a left-handed program or a wrong sign of an axis?"""

from collections.abc import Sequence

import numpy as np

from coframe.compute.per_cloud import Local, PerCloud
from coframe.input.normalise import Summary
from coframe.input.source import InMemory, Source
from coframe.start import features, graph, match
from coframe.start.features import ThinScan
from coframe.start.match import Edge
from coframe.start.recipe import START, StartRecipe

# [size] Clouds that are looked at, at most.
SUSPECTS = 3
# [size] Other clouds that each is compared with, at most.
PARTNERS = 6


def mirrored(
    clouds: Sequence[InMemory],
    summaries: Sequence[Summary],
    suspects: Sequence[int],
    recipe: StartRecipe = START,
) -> list[int]:
    """Of some clouds in space, those whose mirror image fits another one, and they do not.

    The mirror image must fit without ambiguity, and better than the cloud itself fits any other.
    """
    rest = [j for j in range(len(clouds)) if j not in suspects][:PARTNERS]
    chosen = list(suspects[:SUSPECTS])
    if not rest or not chosen or len(summaries[0].median) != 3:
        return []
    some = sorted([*rest, *chosen])
    local: PerCloud[Source] = Local([clouds[j] for j in some], None)
    side = features.find_spacing(local, [summaries[j] for j in some], recipe.points_3d)
    thin = {j: features.thin(clouds[j], summaries[j], side) / side for j in some}
    partners = [(i, ThinScan.of(thin[i], recipe)) for i in rest]

    def best(points: np.ndarray, number: int) -> Edge:
        scan = ThinScan.of(points, recipe)
        edges = [_edge(scan, partner, (number, i), recipe) for i, partner in partners]
        clear = graph.unambiguous(edges, recipe)
        return max(clear or edges, key=lambda edge: edge.best.weight)

    found = []
    for j in chosen:
        image, own = best(thin[j] * [-1, 1, 1], j), best(thin[j], j)
        if holds(image, own, recipe):
            found.append(j)
    return found


def holds(image: Edge, own: Edge, recipe: StartRecipe = START) -> bool:
    """Whether the best edge of a mirror image says that the cloud is mirrored.

    As an edge that alone connects two parts: views of different corners of a room fit each other
    and each other's images by chance.
    """
    clear = image.margin >= recipe.bridge_factor * graph.needed_evidence(image, recipe)
    better = image.best.weight > own.best.weight
    return clear and better and bool(graph.unambiguous([image], recipe))


def _edge(scan: ThinScan, other: ThinScan, pair: tuple[int, int], recipe: StartRecipe) -> Edge:
    return match.edge_between(scan, other, pair, match.find_motions(scan, other, recipe), recipe)
