# SPDX-License-Identifier: MIT
"""The process in which the native matcher runs, so that a crash of it ends nothing else.

Run as a script with two arguments: the number of motions H that are sought for a pair of clouds,
and the residual [spacings] above which a correspondence is left for the next motion. It writes
`READY` when the matcher is imported. For each pair it reads the number of correspondences n (int64)
and n pairs of points (n, 6) float32, and writes (H, 12) float64: rotations (9) and translations
(3), zero where none was found. It imports nothing of coframe, so it starts quickly.
"""

import os
import signal
import sys
from importlib import import_module

import numpy as np

# [limit] Correspondences that a motion can be found from, at least.
MIN_CORRESPONDENCES = 4
# [format] Numbers of a motion in an answer.
NUMBERS = 12
# [format] The first bytes that the process writes.
READY = b"ready\n"


def find_motions(matches: np.ndarray, count: int, max_residual: float) -> np.ndarray:
    """The motion that most matches agree with, then the one that most of the others agree with."""
    import kiss_matcher

    found = np.zeros((count, NUMBERS))
    for row in found:
        if len(matches) < MIN_CORRESPONDENCES:
            break
        # The resolution is one spacing.
        matcher = kiss_matcher.KISSMatcher(kiss_matcher.KISSMatcherConfig(1.0))
        source = np.ascontiguousarray(matches[:, :3])
        target = np.ascontiguousarray(matches[:, 3:])
        solution = matcher.prune_and_solve(source, target)
        R = np.asarray(solution.rotation, float)
        t = np.ravel(solution.translation).astype(float)
        row[:9] = R.ravel()
        row[9:] = t
        matches = matches[np.linalg.norm(source @ R.T + t - target, axis=1) > max_residual]
    return found


def main() -> None:
    """Answer requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which ends this process.
    count = int(sys.argv[1])
    max_residual = float(sys.argv[2])
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # A library that prints must not write into the answers.
    import_module("kiss_matcher")
    answers.write(READY)
    answers.flush()
    while head := requests.read(8):
        size = int(np.frombuffer(head, np.int64)[0])
        matches = np.frombuffer(requests.read(24 * size), np.float32).reshape(size, 6)
        answers.write(find_motions(matches, count, max_residual).tobytes())
        answers.flush()


if __name__ == "__main__":
    main()
