# SPDX-License-Identifier: MIT
"""Motions between pairs of scans: descriptors matched, correspondences pruned, motions verified.

The native matcher (kiss-matcher: pruning by a graph of compatible correspondences, then a graduated
robust fit) runs in processes of its own. A crash costs the pair, not the run.
"""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from coframe import geometry
from coframe.compute.checkpoint import Checkpoint, digest
from coframe.compute.per_cloud import Pair, PerCloud
from coframe.errors import LONGEST_REASON, InputError
from coframe.start import verify
from coframe.start.features import ThinScan
from coframe.start.matcher_process import MIN_CORRESPONDENCES, NUMBERS, READY
from coframe.start.recipe import START, StartRecipe
from coframe.start.verify import Evidence, Motion
from coframe.types import Array

# [limit] Seconds after which the native matcher is stopped and its pair given up.
TIMEOUT = 60.0
# [size] Descriptors that serve as words when clouds are compared.
WORDS = 200

Motions = Float[Array, "H 4 4"]
FindMotions = Callable[[ThinScan, ThinScan, StartRecipe], list[Motion] | None]
_local = threading.local()


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


class MatcherProcess:
    """One native matcher in a process of its own, which is replaced when it dies."""

    def __init__(self, recipe: StartRecipe = START) -> None:
        self.recipe = recipe
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._owner != os.getpid():
            # That of the process which this one was forked from still needs it.
            self._owner = os.getpid()
            self._process = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                stream.close()
            self._process = None

    def motions(
        self, source: Float[Array, "m 3"], target: Float[Array, "m 3"]
    ) -> list[Motion] | None:
        """Find motions that carry many points onto those they correspond to, best first.

        None when the native code died; an InputError when it cannot even be started.
        """
        if len(source) < MIN_CORRESPONDENCES:
            return []
        if self._owner != os.getpid():
            self.close()
        if self._process is None:
            self._process = self._launch()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        size = self.recipe.motions_per_pair * NUMBERS * np.dtype(float).itemsize
        watch = threading.Timer(TIMEOUT, process.kill)
        watch.start()
        try:
            process.stdin.write(
                np.int64(len(source)).tobytes()
                + np.hstack([source, target]).astype(np.float32).tobytes()
            )
            process.stdin.flush()
            answer = process.stdout.read(size)
        except OSError:
            answer = b""
        finally:
            watch.cancel()
        if len(answer) < size:
            self.close()
            return None
        return [
            geometry.pose(geometry.nearest_rotation(row[:9].reshape(3, 3)), row[9:])
            for row in np.frombuffer(answer).reshape(-1, NUMBERS)
            if np.isfinite(row).all() and row[:9].any()
        ]

    def _launch(self) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("matcher_process.py")
        numbers = (self.recipe.motions_per_pair, self.recipe.first_gate)
        with tempfile.TemporaryFile() as errors:
            # With several threads the matcher is slower for a few hundred correspondences, and its
            # results differ from run to run.
            process = subprocess.Popen(
                [sys.executable, str(script), *map(str, numbers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            assert process.stdin is not None
            assert process.stdout is not None
            watch = threading.Timer(TIMEOUT, process.kill)
            watch.start()
            ready = process.stdout.read(len(READY)) == READY
            watch.cancel()
            if ready:
                return process
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
            errors.seek(0)
            said = errors.read().decode(errors="replace").split("\n")
        reason = next((line for line in reversed(said) if line.strip()), f"no answer from {script}")
        raise InputError(
            "start: expected the native matcher to start, found"
            f" {reason.strip()[:LONGEST_REASON]}; reinstall kiss-matcher and coframe, or give start"
            " poses"
        )


def require_matcher() -> None:
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
    similarity = a.descriptors.astype(np.float32) @ b.descriptors.astype(np.float32).T
    nearest = similarity.argmax(1)
    mutual = np.flatnonzero(similarity[np.arange(len(a)), nearest] >= similarity.max(0)[nearest])
    return a.points[mutual], b.points[nearest[mutual]]


def find_motions(a: ThinScan, b: ThinScan, recipe: StartRecipe) -> list[Motion] | None:
    """Find motions by descriptors. Every thread has a matcher of its own, which ends with it."""
    matcher: MatcherProcess | None = getattr(_local, "matcher", None)
    if matcher is None or matcher.recipe != recipe:
        matcher = _local.matcher = MatcherProcess(recipe)
    return matcher.motions(*correspondences(a, b))


def match_pairs(
    scans: PerCloud[ThinScan],
    pairs: Sequence[Pair],
    *,
    guesses: Sequence[Motion] | None = None,
    find: FindMotions = find_motions,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
    checkpoint: Checkpoint | None = None,
    recipe: StartRecipe = START,
) -> tuple[list[Edge], list[Pair]]:
    """Match and verify every pair. Also returns the pairs that the native matcher crashed on.

    `guesses` are motions, one for each pair, that are verified beside those found. The result does
    not depend on where the scans are. Motions that the `checkpoint` knows of are not sought again.
    """
    memory = checkpoint if find is find_motions else None
    keys = [] if memory is None else _keys(scans, pairs, recipe)
    known = [None] * len(pairs) if memory is None else [memory.recall(key) for key in keys]
    done = 0

    def report(number: int, answer: tuple[Edge | None, Motions | None]) -> None:
        nonlocal done
        done += 1
        if memory is not None and answer[1] is not None:
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
    crashed = [pair for pair, (edge, _) in zip(pairs, found, strict=True) if edge is None]
    return [edge for edge, _ in found if edge is not None], crashed


def _match_pair(
    a: ThinScan,
    b: ThinScan,
    pair: Pair,
    guess: Motion | None,
    motions: Motions | None,
    find: FindMotions,
    recipe: StartRecipe,
) -> tuple[Edge | None, Motions | None]:
    """The edge of two scans, and the motions that were found or known.

    Where the native code died there are no motions, and no edge either unless the guess fits.
    """
    if motions is None and (found := find(a, b, recipe)) is not None:
        motions = np.array(found).reshape(-1, 4, 4)
    tried = [*([] if guess is None else [guess]), *([] if motions is None else motions)]
    edge = edge_between(a, b, pair, tried, recipe)
    crashed = motions is None and edge.best is verify.NO_EVIDENCE
    return None if crashed else edge, motions


def _keys(scans: PerCloud[ThinScan], pairs: Sequence[Pair], recipe: StartRecipe) -> list[Array]:
    """Keys of the checkpoint: all that the motions of each pair depend on, in short."""
    digests = scans.map(_digest)
    numbers = f"{recipe.motions_per_pair} {recipe.first_gate}"
    return [np.array([digests[a], digests[b], numbers]) for a, b in pairs]


def _digest(scan: ThinScan) -> str:
    return digest(scan.points, scan.descriptors)


def edge_at(
    a: ThinScan, b: ThinScan, pair: Pair, guess: Motion, recipe: StartRecipe = START
) -> Edge:
    """The edge of two scans at a single motion."""
    return edge_between(a, b, pair, [guess], recipe)


def edge_between(
    a: ThinScan, b: ThinScan, pair: Pair, motions: Sequence[Motion], recipe: StartRecipe = START
) -> Edge:
    """The edge of two scans: motions verified, and where the best can slide, others on the way."""
    found = _distinct([verify.verify(a, b, motion, recipe) for motion in motions], recipe)
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
    scans: PerCloud[ThinScan], rng: np.random.Generator, recipe: StartRecipe = START
) -> list[Pair]:
    """The pairs worth matching: all, or above `max_pairs` those that are similar or in sequence."""
    M = len(scans)
    pairs = [(a, b) for a in range(M) for b in range(a + 1, M)]
    if len(pairs) <= recipe.max_pairs:
        return pairs
    similarity = compare_scans(scans, rng)
    following = recipe.partners // 4
    chosen = {(a, b) for a in range(M) for b in range(a + 1, min(M, a + 1 + following))}
    for a in range(M):
        similar = np.argsort(-similarity[a], kind="stable")[: recipe.partners - following]
        chosen |= {(min(a, int(b)), max(a, int(b))) for b in similar if b != a}
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
