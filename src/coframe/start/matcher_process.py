# SPDX-License-Identifier: MIT
"""The process in which the native matcher runs; a crash of it ends this process and nothing else.
Run as a script.

For each pair of clouds it reads the number of matches n (int64) and n pairs of points (n, 6)
float32, and writes 13 float64 for each hypothesis: the number of matches that agree with the
motion, its rotation (9) and its translation (3). It imports nothing of coframe, so it is up
quickly.
"""

import os
import sys

import numpy as np

HYPOTHESES = 2
FEWEST = 4  # matches that a motion can be found from
APART = 4.0  # spacings: a match that far off a motion may speak for another one


def motions(matches: np.ndarray) -> np.ndarray:
    """The motion that most matches agree with, and the one that most of the others agree with:
    (HYPOTHESES, 13).
    """
    import kiss_matcher

    found = np.zeros((HYPOTHESES, 13))
    for row in found:
        if len(matches) < FEWEST:
            break
        matcher = kiss_matcher.KISSMatcher(kiss_matcher.KISSMatcherConfig(1.0))
        source, target = np.ascontiguousarray(matches[:, :3]), np.ascontiguousarray(matches[:, 3:])
        solution = matcher.prune_and_solve(source, target)
        R, t = np.asarray(solution.rotation, float), np.ravel(solution.translation).astype(float)
        row[0], row[1:10], row[10:] = max(matcher.get_num_final_inliers(), 0), R.ravel(), t
        matches = matches[np.linalg.norm(source @ R.T + t - target, axis=1) > APART]
    return found


def main() -> None:
    """Serve until the input ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not speak into our answers
    while head := requests.read(8):
        count = int(np.frombuffer(head, np.int64)[0])
        matches = np.frombuffer(requests.read(24 * count), np.float32).reshape(count, 6)
        answers.write(motions(matches).tobytes())
        answers.flush()


if __name__ == "__main__":
    main()
