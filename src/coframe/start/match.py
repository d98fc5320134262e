# SPDX-License-Identifier: MIT
"""Motions between pairs of scans, found from nothing: descriptors matched, matches pruned, motions verified.

The native matcher (kiss-matcher: pruning by a graph of compatible matches, then a graduated robust fit) runs in processes of
its own. A crash costs the pair, not the run.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.arrays import Array
from coframe.clouds import InputError
from coframe.journal import Journal
from coframe.start import verify
from coframe.start.features import Scan
from coframe.start.verify import Evidence
from coframe.start.worker import FEWEST, HYPOTHESES

SECONDS = 60.0  # a pair that takes the native matcher longer is given up
ANSWER = HYPOTHESES * 13 * 8  # bytes
MOST_PAIRS = 300  # up to this many, all pairs are tried
WORDS = 200  # descriptors that stand for all, to compare clouds by
ALIKE, IN_ORDER = 8, 3  # of many clouds, how many others each is tried with: those most alike, and those next in the list

Pair = tuple[int, int]


@dataclass(frozen=True)
class Edge:
    """What is known of a pair of scans: the best motion that carries `first` onto `second`, and others that were found."""

    first: int
    second: int
    best: Evidence
    others: tuple[Evidence, ...] = ()
    size: int = 0  # points of the smaller scan

    @property
    def margin(self) -> float:
        """How much more evidence there is for the best motion than for any other that was found, in nats."""
        return self.best.weight - max((other.weight for other in self.others), default=0.0)


class Solver:
    """One native matcher in a process of its own, which is replaced when it dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Solver":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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

    def motions(self, source: Float[Array, "m 3"], target: Float[Array, "m 3"]) -> list[Float[Array, "4 4"]] | None:
        """Motions that carry many of the matched points onto each other, best first; None when the native code died."""
        if len(source) < FEWEST:
            return []
        if self._process is None:
            command = [sys.executable, str(Path(__file__).with_name("worker.py"))]
            # On several threads the matcher is slower for a few hundred matches, and not the same from run to run.
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
            process.stdin.write(np.int64(len(source)).tobytes() + np.hstack([source, target]).astype(np.float32).tobytes())
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
        found = [(row[1:10].reshape(3, 3), row[10:]) for row in rows if np.isfinite(row).all() and row[1:10].any()]
        return [geometry.pose(geometry.nearest_rotation(R), t) for R, t in found]


def available() -> None:
    """Raise when the native matcher cannot be imported."""
    try:
        import kiss_matcher  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"start: expected kiss-matcher to be installed for clouds without start poses, found {error}; "
            "pip install kiss-matcher, or give start poses"
        ) from None


def matched(a: Scan, b: Scan) -> tuple[Float[Array, "m 3"], Float[Array, "m 3"]]:
    """Points of both scans whose descriptors are each other's nearest."""
    likeness = a.descriptors.astype(np.float32) @ b.descriptors.astype(np.float32).T
    nearest = likeness.argmax(1)
    mutual = np.flatnonzero(likeness[np.arange(len(a)), nearest] >= likeness.max(0)[nearest])
    return a.points[mutual], b.points[nearest[mutual]]


def edges(
    scans: Sequence[Scan],
    pairs: Sequence[Pair],
    *,
    threads: int,
    known: Sequence[Float[Array, "4 4"] | None] | None = None,
    propose: Callable[[Scan, Scan], list[Float[Array, "4 4"]]] | None = None,
    on_pair: Callable[[int, int], object] = lambda done, total: None,
    journal: Journal | None = None,
) -> tuple[list[Edge], list[Pair]]:
    """Every pair matched and verified, and the pairs that the native matcher crashed on.

    `known` holds a motion for each pair that is to be verified beside those found; `propose` finds motions without descriptors.
    The result does not depend on `threads`. Motions that the `journal` knows of are not sought again.
    """
    guesses = [None] * len(pairs) if known is None else known
    solvers: list[Solver] = []
    local, lock, done = threading.local(), threading.Lock(), 0

    def edge(pair: Pair, guess: Float[Array, "4 4"] | None) -> Edge | None:
        nonlocal done
        a, b = scans[pair[0]], scans[pair[1]]
        if propose is not None:
            motions: list[Float[Array, "4 4"]] | None = propose(a, b)
        else:
            if not hasattr(local, "solver"):
                local.solver = Solver()
                with lock:
                    solvers.append(local.solver)
            motions = _recalled(journal, local.solver, *matched(a, b))
        tried = ([] if guess is None else [guess]) + (motions or [])
        found_edge = weighed(a, b, pair, tried)
        with lock:
            done += 1
            on_pair(done, len(pairs))
        return None if motions is None and found_edge.best is verify.NOTHING else found_edge

    try:
        with ThreadPoolExecutor(max(1, threads)) as pool:
            found = list(pool.map(edge, pairs, guesses))
    finally:
        for solver in solvers:
            solver.close()
    crashed = [pair for pair, edge_found in zip(pairs, found, strict=True) if edge_found is None]
    return [edge_found for edge_found in found if edge_found is not None], crashed


def _recalled(
    journal: Journal | None, solver: Solver, source: Float[Array, "m 3"], target: Float[Array, "m 3"]
) -> list[Float[Array, "4 4"]] | None:
    """The solver's motions, or those that the journal knows of."""
    if journal is None:
        return solver.motions(source, target)

    def found() -> Float[Array, "H 4 4"] | None:
        motions = solver.motions(source, target)
        return None if motions is None else np.array(motions).reshape(-1, 4, 4)

    known = journal.recall((source, target), found)
    return None if known is None else list(known)


def weighed(a: Scan, b: Scan, pair: Pair, motions: Sequence[Float[Array, "4 4"]]) -> Edge:
    """The edge of two scans: each motion verified, and where the best of them can slide, what lies along the way."""
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
        if all(verify.apart(evidence.motion, other.motion) > verify.SAME for other in kept):
            kept.append(evidence)
    return kept


def candidates(scans: Sequence[Scan], rng: np.random.Generator) -> list[Pair]:
    """The pairs worth trying: all, or for many clouds those that look alike and those that follow each other."""
    M = len(scans)
    if M * (M - 1) // 2 <= MOST_PAIRS:
        return [(a, b) for a in range(M) for b in range(a + 1, M)]
    likeness = alike(scans, rng)
    chosen = {(a, b) for a in range(M) for b in range(a + 1, min(M, a + 1 + IN_ORDER))}
    for a in range(M):
        order = np.argsort(-likeness[a], kind="stable")
        chosen |= {(min(a, int(b)), max(a, int(b))) for b in order[:ALIKE] if b != a}
    return sorted(chosen)


def alike(scans: Sequence[Scan], rng: np.random.Generator) -> Float[Array, "M M"]:
    """How alike the surfaces of the clouds are: the cosine of their bags of words, rare words counting more."""
    everything = np.concatenate([scan.descriptors[:: max(1, len(scan) // 500)] for scan in scans])
    words = everything[rng.choice(len(everything), min(WORDS, len(everything)), replace=False)]
    counts = np.array([np.bincount((scan.descriptors @ words.T).argmax(1), minlength=len(words)) for scan in scans], float)
    share = counts / counts.sum(1, keepdims=True)
    rarity = np.log(len(scans) / np.maximum((counts > 0).sum(0), 1)) + 0.1
    bags = np.sqrt(share) * rarity
    bags /= np.maximum(np.linalg.norm(bags, axis=1, keepdims=True), np.finfo(float).tiny)
    likeness = bags @ bags.T
    np.fill_diagonal(likeness, -np.inf)
    return likeness
