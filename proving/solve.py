# SPDX-License-Identifier: MIT
"""Solve one problem with the coframe of this interpreter:

    python solve.py PROBLEM.npz ANSWER.npz [SECONDS]

Stands alone, so that any release of coframe can be run: reads a saved `Problem`, calls `register`
or `track` with default options on one thread, and writes an `Answer` (see problem.py for both).
The system ends the process when it has used so many seconds of a processor.
"""

import json
import resource
import sys
import time
import warnings

import numpy as np

import coframe


def solve(about, stored):
    """Poses, verdicts, groups, warnings and covariance, as `Answer` has them."""
    clouds = [stored[f"clouds.{j}"] for j in range(about["lists"]["clouds"])]
    if about["rest"]["kind"] == "track":
        path = coframe.track(frames(clouds), options=coframe.TrackOptions(threads=1))
        lost = [bool(each) for each in path.lost]
        found = [j for j, each in enumerate(lost) if not each]
        return {
            "poses": path.poses,
            "verdicts": ["failed" if each else "aligned" for each in lost],
            "groups": [found, *([j] for j, each in enumerate(lost) if each)],
            "warnings": [],
            "covariance": None,
        }
    start = stored["start"] if "start" in stored.files else None
    options = coframe.Options(threads=1)
    result = coframe.register(clouds, start, options=options)
    return {
        "poses": result.poses,
        "verdicts": [each.verdict for each in result.verdicts],
        "groups": [list(map(int, group)) for group in result.groups],
        "warnings": list(result.warnings),
        "covariance": result.pose_covariance,
    }


def frames(clouds):
    """Release 0.1 does not take arrays, but has a function that makes frames of them."""
    try:
        from coframe.sequence.frames import from_arrays
    except ImportError:
        return clouds
    return from_arrays(clouds)


def main(problem, answer, limit="0"):
    if int(limit):
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
    warnings.simplefilter("ignore")
    coframe.register, coframe.track = coframe.register, coframe.track  # import what they need now
    with np.load(problem, allow_pickle=False) as stored:
        about = json.loads(str(stored["json"]))
        began, cpu = time.perf_counter(), time.process_time()
        try:
            found = {"error": None, **solve(about, stored)}
        except Exception as problem:
            text = f"{type(problem).__name__}: {problem}"
            found = {"error": text, "poses": None, "verdicts": [], "groups": [], "warnings": []}
            found["covariance"] = None
        found["seconds"] = time.perf_counter() - began
        found["cpu"] = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["memory"] = peak * (1 if sys.platform == "darwin" else 1024)
    arrays = {k: found.pop(k) for k in ("poses", "covariance") if found[k] is not None}
    rest = json.dumps({"rest": {"poses": None} | found, "lists": {}})
    with open(answer, "wb") as file:
        np.savez(file, json=np.array(rest), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
