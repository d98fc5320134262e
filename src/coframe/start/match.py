# SPDX-License-Identifier: MIT
"""Motions between pairs of scans: descriptors matched, correspondences pruned, motions verified.

Descriptors of a pair give correspondences, most of them wrong. `clique_kernels` finds motions that
many of them agree with, and `verify` the evidence for each. Scans of built places have patches;
their motions and evidence are those of `directions`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from coframe.compute.checkpoint import Checkpoint, digest
from coframe.compute.per_cloud import Pair, PerCloud
from coframe.start import clique_kernels, directions, verify
from coframe.start.features import ThinScan
from coframe.start.recipe import START, StartRecipe
from coframe.start.verify import Evidence, Motion
from coframe.types import Array

# [format] The way in which motions are found: what a checkpoint of another one knows is not used.
MATCHER = "cliques/1 directions/1"
# [size] Descriptors that serve as words when clouds are compared.
WORDS = 200
# [size] Nearest descriptors that correspond, of pairs that are tried once more.
MORE_NEAREST = 3
# [size] Motions that are verified of such a pair: true ones that are found are among the first six.
MORE_MOTIONS = 8

Motions = Float[Array, "H 4 4"]
Similar = Callable[[ThinScan, ThinScan, StartRecipe], float]
FindMotions = Callable[[ThinScan, ThinScan, StartRecipe], list[Motion]]


@dataclass(frozen=True)
class Edge:
    """What is known of a pair of scans: motions that carry `first` onto `second`."""

    first: int
    second: int
    best: Evidence
    others: tuple[Evidence, ...] = ()
    # Points of the smaller scan.
    size: int = 0

    @property
    def margin(self) -> float:
        """How much more evidence [nats] the best motion has than any other that was found."""
        return self.best.weight - max((other.weight for other in self.others), default=0.0)


def correspondences(
    a: ThinScan, b: ThinScan, nearest: int = 1
) -> tuple[Int[Array, " m"], Int[Array, " m"]]:
    """Rows of the points of both scans whose descriptors are among each other's nearest."""
    similarity = a.descriptors.astype(np.float32) @ b.descriptors.astype(np.float32).T
    if nearest == 1:
        best = similarity.argmax(1)
        mutual = np.flatnonzero(similarity[np.arange(len(a)), best] >= similarity.max(0)[best])
        return mutual, best[mutual]
    nearest = min(nearest, len(a), len(b))
    of_a = np.partition(similarity, -nearest, axis=1)[:, -nearest, None]
    of_b = np.partition(similarity, -nearest, axis=0)[-nearest]
    i, j = np.nonzero((similarity >= of_a) & (similarity >= of_b))
    return i, j


def find_motions(a: ThinScan, b: ThinScan, recipe: StartRecipe = START) -> list[Motion]:
    """Motions that carry many points of a onto those of b with similar descriptors, best first."""
    if a.patches is not None and b.patches is not None:
        return directions.find_motions(a.patches, b.patches, recipe)
    return _cliques(a, b, 1, recipe.motions_per_pair, recipe)


def find_more_motions(a: ThinScan, b: ThinScan, recipe: StartRecipe = START) -> list[Motion]:
    """As `find_motions`, with more correspondences, and more motions of these."""
    return _cliques(a, b, MORE_NEAREST, MORE_MOTIONS, recipe)


def _cliques(
    a: ThinScan, b: ThinScan, nearest: int, wanted: int, recipe: StartRecipe
) -> list[Motion]:
    """So many motions that correspondences among the nearest descriptors agree with, at most."""
    i, j = correspondences(a, b, nearest)
    if len(i) < clique_kernels.MIN_CORRESPONDENCES:
        return []
    found = clique_kernels.find_motions(
        a.points[i],
        b.points[j],
        a.normals[i],
        b.normals[j],
        wanted,
        recipe.neighbour_distance,
        recipe.min_normal_cosine,
        recipe.first_gate,
        recipe.neighbour_distance,
        recipe.motion_radius,
    )
    return list(found)


def match_pairs(
    scans: PerCloud[ThinScan],
    pairs: Sequence[Pair],
    *,
    guesses: Sequence[Motion] | None = None,
    find: FindMotions = find_motions,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
    checkpoint: Checkpoint | None = None,
    recipe: StartRecipe = START,
) -> list[Edge]:
    """Match and verify every pair.

    `guesses` are motions, one for each pair, that are verified beside those found. The result does
    not depend on where the scans are. Motions that the `checkpoint` knows of are not sought again.
    """
    memory = checkpoint if find is find_motions else None
    keys = [] if memory is None else _keys(scans, pairs, recipe)
    known = [None] * len(pairs) if memory is None else [memory.recall(key) for key in keys]
    if find is find_motions:  # of each scan once, and side by side
        used = {j for pair in pairs for j in pair}
        scans.map(_prepare, [j in used for j in range(len(scans))])
    done = 0

    def report(number: int, answer: tuple[Edge, Motions]) -> None:
        nonlocal done
        done += 1
        if memory is not None:
            memory.remember(keys[number], answer[1])
        on_pair(done, len(pairs))

    found = scans.map_pairs(
        _match_pair,
        pairs,
        pairs,
        [None] * len(pairs) if guesses is None else guesses,
        known,
        [find] * len(pairs),
        [recipe] * len(pairs),
        on_result=report,
    )
    return [edge for edge, _ in found]


def _match_pair(
    a: ThinScan,
    b: ThinScan,
    pair: Pair,
    guess: Motion | None,
    motions: Motions | None,
    find: FindMotions,
    recipe: StartRecipe,
) -> tuple[Edge, Motions]:
    """The edge of two scans, and the motions that were found or known."""
    if motions is None:
        motions = np.array(find(a, b, recipe)).reshape(-1, 4, 4)
    return edge_between(a, b, pair, list(motions), recipe, guess=guess), motions


def _prepare(scan: ThinScan, used: bool) -> None:
    """What matching needs of a scan, computed before its pairs ask for it."""
    if used and scan.patches is None:
        _ = scan.descriptors


def _keys(scans: PerCloud[ThinScan], pairs: Sequence[Pair], recipe: StartRecipe) -> list[Array]:
    """Keys of the checkpoint: all that the motions of each pair depend on, in short."""
    digests = scans.map(_digest)
    numbers = (
        f"{MATCHER} {recipe.motions_per_pair} {recipe.first_gate} {recipe.neighbour_distance}"
        f" {recipe.min_normal_cosine} {recipe.motion_radius} {recipe.last_gate}"
        f" {recipe.soft_stiffness} {recipe.patch_evidence} {recipe.patch_conflict}"
    )
    return [np.array([digests[a], digests[b], numbers]) for a, b in pairs]


def _digest(scan: ThinScan) -> str:
    patches = [] if scan.patches is None else [scan.patches.centres]
    return digest(scan.points, scan.normals, scan.descriptors, *patches)


def joined(one: Edge, other: Edge, recipe: StartRecipe = START) -> Edge:
    """One edge with the motions of two of the same pair."""
    found = _distinct([one.best, *one.others, other.best, *other.others], recipe)
    return Edge(one.first, one.second, found[0], tuple(found[1:]), max(one.size, other.size))


def edge_at(
    a: ThinScan, b: ThinScan, pair: Pair, guess: Motion, recipe: StartRecipe = START
) -> Edge:
    """The edge of two scans at a single motion."""
    return edge_between(a, b, pair, [], recipe, guess=guess)


def verify_motion(
    a: ThinScan, b: ThinScan, motion: Motion, recipe: StartRecipe = START
) -> Evidence:
    """Refine a motion and collect the evidence for it, of patches where the scans have some."""
    if a.patches is None or b.patches is None:
        return verify.verify(a, b, motion, recipe)
    settled = directions.settle(a.patches, b.patches, motion, recipe)
    return directions.evidence_for(a.patches, b.patches, settled, recipe)


def edge_between(
    a: ThinScan,
    b: ThinScan,
    pair: Pair,
    motions: Sequence[Motion],
    recipe: StartRecipe = START,
    *,
    guess: Motion | None = None,
) -> Edge:
    """The edge of two scans: motions verified, and where the best can slide, others on the way.

    A `guess` counts as it is, too: on surfaces that leave a direction free, ICP may only move it.
    """
    known = [] if guess is None else [guess]
    if a.patches is not None and b.patches is not None:
        found = [verify_motion(a, b, motion, recipe) for motion in known]
        found += [
            directions.evidence_for(a.patches, b.patches, motion, recipe)
            for motion in (*known, *motions)
        ]
        found = _distinct([*found, verify.NO_EVIDENCE], recipe)
        return Edge(*pair, found[0], tuple(found[1:]), min(len(a), len(b)))
    found = [verify.verify(a, b, motion, recipe) for motion in (*known, *motions)]
    found += [verify.evidence_for(a, b, motion, recipe) for motion in known]
    found = _distinct(found, recipe)
    if found and found[0].weight > 0 and found[0].stiffness < recipe.soft_stiffness:
        slides = verify.verify_slides(a, b, found[0].motion, recipe)
        found = _distinct([*found, *slides], recipe)
    if not found:
        return Edge(*pair, verify.NO_EVIDENCE)
    return Edge(*pair, found[0], tuple(found[1:]), min(len(a), len(b)))


def _distinct(found: list[Evidence], recipe: StartRecipe) -> list[Evidence]:
    """Best first, and of motions that agree only the best."""
    kept: list[Evidence] = []
    for evidence in sorted(found, key=lambda each: -each.weight):
        distances = [verify.motion_distance(evidence.motion, e.motion, recipe) for e in kept]
        if all(distance > recipe.first_gate for distance in distances):
            kept.append(evidence)
    return kept


def candidate_pairs(
    scans: PerCloud[ThinScan],
    rng: np.random.Generator,
    recipe: StartRecipe = START,
    similar: Similar | None = None,
) -> list[Pair]:
    """The pairs worth matching: all, or above `max_pairs` those that are similar or in sequence.

    `similar`: how similar two scans are; without it, their descriptors say so.
    """
    M = len(scans)
    pairs = [(a, b) for a in range(M) for b in range(a + 1, M)]
    if len(pairs) <= recipe.max_pairs:
        return pairs
    if similar is None:
        similarity = compare_scans(scans, rng)
    else:
        similarity = np.full((M, M), -np.inf)
        rows, columns = np.array(pairs).T
        found = scans.map_pairs(similar, pairs, [recipe] * len(pairs))
        similarity[rows, columns] = similarity[columns, rows] = found
    following = recipe.partners // 4
    chosen = {(a, b) for a in range(M) for b in range(a + 1, min(M, a + 1 + following))}
    for a in range(M):
        nearest = np.argsort(-similarity[a], kind="stable")[: recipe.partners - following]
        chosen |= {(min(a, int(b)), max(a, int(b))) for b in nearest if b != a}
    return sorted(chosen)


def compare_scans(scans: PerCloud[ThinScan], rng: np.random.Generator) -> Float[Array, "M M"]:
    """How similar the surfaces of the clouds are, -inf on the diagonal.

    The cosine of their bags of words, in which rare words count more.
    """
    ends = np.cumsum(scans.map(len))
    drawn = rng.choice(int(ends[-1]), min(WORDS, int(ends[-1])), replace=False)
    scan = np.searchsorted(ends, drawn, side="right")
    rows = drawn - np.concatenate([[0], ends])[scan]
    chosen = [rows[scan == j] for j in range(len(scans))]
    parts = scans.map(_descriptors, chosen)
    words = np.zeros((len(drawn), parts[0].shape[1]))
    for j, part in enumerate(parts):
        words[scan == j] = part
    counts = np.array(scans.map(_count_words, shared=(words,)), float)
    share = counts / counts.sum(1, keepdims=True)
    seen = np.maximum((counts > 0).sum(0), 1)
    bags = np.sqrt(share) * np.log(1 + len(scans) / seen)
    bags /= np.maximum(np.linalg.norm(bags, axis=1, keepdims=True), np.finfo(float).tiny)
    similarity = bags @ bags.T
    np.fill_diagonal(similarity, -np.inf)
    return similarity


def _descriptors(scan: ThinScan, rows: Int[Array, " n"]) -> Float[Array, "n F"]:
    return scan.descriptors[rows]


def _count_words(scan: ThinScan, words: Float[Array, "W F"]) -> Int[Array, " W"]:
    return np.bincount((scan.descriptors @ words.T).argmax(1), minlength=len(words))
