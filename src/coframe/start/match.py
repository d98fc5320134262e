# SPDX-License-Identifier: MIT
"""Motions between pairs of scans, found from nothing: descriptors matched, matches pruned, motions
verified.

The native matcher (kiss-matcher: pruning by a graph of compatible matches, then a graduated robust
fit) runs in processes of its own. A crash costs the pair, not the run.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.compute.checkpoint import Checkpoint, digest
from coframe.compute.places import Pair, PerCloud
from coframe.errors import InputError
from coframe.start import verify
from coframe.start.features import ThinScan
from coframe.start.matcher_process import FEWEST, HYPOTHESES
from coframe.start.verify import Evidence
from coframe.types import Array

SECONDS = 60.0  # a pair that takes the native matcher longer is given up
ANSWER = HYPOTHESES * 13 * 8  # bytes
MOST_PAIRS = 300  # up to this many, all pairs are tried
WORDS = 200  # descriptors that stand for all, to compare clouds by
# of many clouds, how many others each is tried with: those most alike, and those next in the list
ALIKE, IN_ORDER = (
    8,
    3,
)

Motions = Float[Array, "H 4 4"]
Propose = Callable[[ThinScan, ThinScan], list[Float[Array, "4 4"]] | None]
_local = threading.local()


@dataclass(frozen=True)
class Edge:
    """What is known of a pair of scans: the best motion that carries `first` onto `second`, and
    others that were found.
    """

    first: int
    second: int
    best: Evidence
    others: tuple[Evidence, ...] = ()
    size: int = 0  # points of the smaller scan

    @property
    def margin(self) -> float:
        """How much more evidence there is for the best motion than for any other that was found, in
        nats.
        """
        return self.best.weight - max((other.weight for other in self.others), default=0.0)


class MatcherProcess:
    """One native matcher in a process of its own, which is replaced when it dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                stream.close()
            self._process = None

    def motions(
        self, source: Float[Array, "m 3"], target: Float[Array, "m 3"]
    ) -> list[Float[Array, "4 4"]] | None:
        """Motions that carry many of the matched points onto each other, best first; None when the
        native code died.
        """
        if len(source) < FEWEST:
            return []
        if self._process is None:
            command = [sys.executable, str(Path(__file__).with_name("matcher_process.py"))]
            # On several threads the matcher is slower for a few hundred matches, and not the same
            # from run to run.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        watch = threading.Timer(SECONDS, process.kill)
        watch.start()
        try:
            process.stdin.write(
                np.int64(len(source)).tobytes()
                + np.hstack([source, target]).astype(np.float32).tobytes()
            )
            process.stdin.flush()
            answer = process.stdout.read(ANSWER)
        except OSError:
            answer = b""
        finally:
            watch.cancel()
        if len(answer) < ANSWER:
            self.close()
            return None
        rows = np.frombuffer(answer).reshape(HYPOTHESES, 13)
        found = [
            (row[1:10].reshape(3, 3), row[10:])
            for row in rows
            if np.isfinite(row).all() and row[1:10].any()
        ]
        return [geometry.pose(geometry.nearest_rotation(R), t) for R, t in found]


def available() -> None:
    """Raise when the native matcher cannot be imported."""
    try:
        import kiss_matcher  # noqa: F401
    except ImportError as error:
        raise InputError(
            "start: expected kiss-matcher to be installed for clouds without start poses, found"
            f" {error}; pip install kiss-matcher, or give start poses"
        ) from None


def correspondences(a: ThinScan, b: ThinScan) -> tuple[Float[Array, "m 3"], Float[Array, "m 3"]]:
    """Points of both scans whose descriptors are each other's nearest."""
    likeness = a.descriptors.astype(np.float32) @ b.descriptors.astype(np.float32).T
    nearest = likeness.argmax(1)
    mutual = np.flatnonzero(likeness[np.arange(len(a)), nearest] >= likeness.max(0)[nearest])
    return a.points[mutual], b.points[nearest[mutual]]


def edges(
    scans: PerCloud[ThinScan],
    pairs: Sequence[Pair],
    *,
    known: Sequence[Float[Array, "4 4"] | None] | None = None,
    propose: Propose | None = None,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
    checkpoint: Checkpoint | None = None,
) -> tuple[list[Edge], list[Pair]]:
    """Every pair matched and verified, and the pairs that the native matcher crashed on.

    `known` holds a motion for each pair that is to be verified beside those found; `propose` finds
    motions without descriptors. The result does not depend on where the scans are. Motions that the
    `checkpoint` knows of are not sought again.
    """
    guesses = [None] * len(pairs) if known is None else known
    keys = _keys(scans, pairs) if checkpoint is not None and propose is None else []
    kept = (
        [checkpoint.recall(key) for key in keys]
        if checkpoint is not None and keys
        else [None] * len(pairs)
    )
    done = 0

    def heard(number: int, answer: tuple[Edge | None, Motions | None]) -> None:
        nonlocal done
        done += 1
        if checkpoint is not None and keys and answer[1] is not None:
            checkpoint.remember(keys[number], answer[1])
        on_pair(done, len(pairs))

    columns = pairs, guesses, kept, [propose or _by_descriptors] * len(pairs)
    found = scans.map_pairs(_edge, pairs, *columns, heard=heard)
    crashed = [pair for pair, (edge, _) in zip(pairs, found, strict=True) if edge is None]
    return [edge for edge, _ in found if edge is not None], crashed


def _edge(
    a: ThinScan,
    b: ThinScan,
    pair: Pair,
    guess: Float[Array, "4 4"] | None,
    motions: Motions | None,
    propose: Propose,
) -> tuple[Edge | None, Motions | None]:
    """The edge of two scans, and the motions that were found or known. Where the native code died,
    there are none of these, and without a guess that fits there is no edge either."""
    if motions is None and (found := propose(a, b)) is not None:
        motions = np.array(found).reshape(-1, 4, 4)
    edge = edge_between(
        a, b, pair, ([] if guess is None else [guess]) + ([] if motions is None else list(motions))
    )
    return None if motions is None and edge.best is verify.NOTHING else edge, motions


def _by_descriptors(a: ThinScan, b: ThinScan) -> list[Float[Array, "4 4"]] | None:
    """Motions that the native matcher finds; every thread has a process of its own, which ends with
    it.
    """
    if not hasattr(_local, "solver"):
        _local.solver = MatcherProcess()
    return _local.solver.motions(*correspondences(a, b))


def _keys(scans: PerCloud[ThinScan], pairs: Sequence[Pair]) -> list[Array]:
    """What the motions of each pair depend on, in short."""
    digests = scans.map(_digest)
    return [np.array([digests[a], digests[b]]) for a, b in pairs]


def _digest(scan: ThinScan) -> str:
    return digest(scan.points, scan.descriptors)


def edge_at(a: ThinScan, b: ThinScan, pair: Pair, guess: Float[Array, "4 4"]) -> Edge:
    """The edge of two scans whose motion is known."""
    return edge_between(a, b, pair, [guess])


def edge_between(
    a: ThinScan, b: ThinScan, pair: Pair, motions: Sequence[Float[Array, "4 4"]]
) -> Edge:
    """The edge of two scans: each motion verified, and where the best of them can slide, what lies
    along the way.
    """
    found = _different([verify.verify(a, b, motion) for motion in motions])
    if found and found[0].weight > 0 and found[0].stiffness < verify.SOFT:
        found = _different([*found, *verify.slides(a, b, found[0].motion)])
    if not found:
        return Edge(*pair, verify.NOTHING)
    return Edge(*pair, found[0], tuple(found[1:]), min(len(a), len(b)))


def _different(found: list[Evidence]) -> list[Evidence]:
    """Best first, and of those that agree only the best."""
    kept: list[Evidence] = []
    for evidence in sorted(found, key=lambda each: -each.weight):
        if all(
            verify.motion_distance(evidence.motion, other.motion) > verify.SAME for other in kept
        ):
            kept.append(evidence)
    return kept


def candidates(scans: PerCloud[ThinScan], rng: np.random.Generator) -> list[Pair]:
    """The pairs worth trying: all, or for many clouds those that look alike and those that follow
    each other.
    """
    M = len(scans)
    if M * (M - 1) // 2 <= MOST_PAIRS:
        return [(a, b) for a in range(M) for b in range(a + 1, M)]
    likeness = alike(scans, rng)
    chosen = {(a, b) for a in range(M) for b in range(a + 1, min(M, a + 1 + IN_ORDER))}
    for a in range(M):
        order = np.argsort(-likeness[a], kind="stable")
        chosen |= {(min(a, int(b)), max(a, int(b))) for b in order[:ALIKE] if b != a}
    return sorted(chosen)


def alike(scans: PerCloud[ThinScan], rng: np.random.Generator) -> Float[Array, "M M"]:
    """How alike the surfaces of the clouds are: the cosine of their bags of words, rare words
    counting more.
    """
    ends = np.cumsum([len(range(0, size, _every(size))) for size in scans.map(len)])
    drawn = rng.choice(int(ends[-1]), min(WORDS, int(ends[-1])), replace=False)
    scan = np.searchsorted(ends, drawn, side="right")
    rows = drawn - np.concatenate([[0], ends])[scan]
    words = np.empty((len(drawn), 0))
    for j, part in enumerate(scans.map(_descriptors, [rows[scan == j] for j in range(len(scans))])):
        words = np.zeros((len(drawn), part.shape[1])) if j == 0 else words
        words[scan == j] = part
    counts = np.array(scans.map(_bag, shared=(words,)), float)
    share = counts / counts.sum(1, keepdims=True)
    rarity = np.log(len(scans) / np.maximum((counts > 0).sum(0), 1)) + 0.1
    bags = np.sqrt(share) * rarity
    bags /= np.maximum(np.linalg.norm(bags, axis=1, keepdims=True), np.finfo(float).tiny)
    likeness = bags @ bags.T
    np.fill_diagonal(likeness, -np.inf)
    return likeness


def _every(size: int) -> int:
    """One in how many descriptors of a scan may become a word."""
    return max(1, size // 500)


def _descriptors(scan: ThinScan, rows: Int[Array, " n"]) -> Float[Array, "n F"]:
    return scan.descriptors[:: _every(len(scan))][rows]


def _bag(scan: ThinScan, words: Float[Array, "W F"]) -> Int[Array, " W"]:
    return np.bincount((scan.descriptors @ words.T).argmax(1), minlength=len(words))
